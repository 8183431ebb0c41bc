//! `sluice serve` started anew in the place of the process that runs, as it was started.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::Sender,
    thread,
    time::Duration,
};

use sluice_proxy::{Bequest, GivesUp, NotReady, Successor};

use crate::signals::Wake;

/// Time limit for a new process to listen: it reads files, and resolves names.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

/// The way in which this process was started.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// To be asked at the start: later, the file may be another one, or gone.
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        Ok(Self { path: path_of(Path::new(&name))?, arguments: arguments.collect() })
    }

    /// Starts it anew, and says by `done` whether it listens.
    pub(crate) fn start(&self, bequest: Bequest, done: Sender<Wake>) -> io::Result<(u32, GivesUp)> {
        let mut command = Command::new(&self.path);
        command.arg0(env::args_os().next().unwrap_or_default()).args(&self.arguments);
        let mut successor = Successor::start(command, bequest)?;
        let (pid, gives_up) = (successor.pid(), successor.gives_up()?);
        let wait = move || {
            let outcome = successor.wait_until_ready(READY_TIME_MAX).map(|()| successor);
            // This process may have ended without it, and then the new one finds itself alone, and ends too.
            let _ = done.send(Wake::Upgraded(outcome));
        };
        thread::Builder::new().name("upgrade".to_owned()).spawn(wait)?;
        Ok((pid, gives_up))
    }

    /// The file that is started.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The program's path. Where it was called by a path, links in that are followed when it is started anew: they may lead
/// to another version by then.
fn path_of(name: &Path) -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    if name.components().count() < 2 {
        return Ok(this);
    }
    let called = std::path::absolute(name)?;
    Ok(if called.canonicalize().is_ok_and(|path| path == this) { called } else { this })
}

/// The outcome in words for the log, where the new process does not take over.
pub(crate) fn not_taken_over(error: &NotReady) -> String {
    format!("the new process does not take over: {error}\n  this one goes on as before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_called_by_a_path_keeps_it() {
        let this = env::current_exe().unwrap();
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&this, &link).unwrap();
        assert_eq!(path_of(&link).unwrap(), link);
        assert_eq!(path_of(Path::new("sluice")).unwrap(), this);
        assert_eq!(path_of(Path::new("/bin/sh")).unwrap(), this);
    }
}
