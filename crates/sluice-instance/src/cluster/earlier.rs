//! Remains of an earlier run: programs of ours that still end, or that nobody ended.
//!
//! A Sluice that is killed has its programs end by the kernel, which takes them some seconds, and the next one may meet
//! them. They are known by their command line, which names a file or folder of this instance. PostgreSQL itself is not
//! ended here: Patroni takes over one that runs on a node's data.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::files::if_there;

const POLL: Duration = Duration::from_millis(50);
/// The time for those of a killed Sluice to leave by themselves: Patroni shuts PostgreSQL down first.
const ALONE: Duration = Duration::from_secs(20);
/// The time after each signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until no program has any of these paths as an argument; ends those that do not leave. Says how many were met.
pub(super) fn clear(paths: &[PathBuf]) -> usize {
    let met = running(paths).len();
    for (signal, time) in [(None, ALONE), (Some(Signal::SIGTERM), PATIENCE), (Some(Signal::SIGKILL), PATIENCE)] {
        if let Some(signal) = signal {
            for pid in running(paths) {
                // It may have left meanwhile.
                let _ = kill(pid, signal);
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < time {
            if running(paths).is_empty() {
                return met;
            }
            thread::sleep(POLL);
        }
    }
    met
}

/// Ends whoever still copies data to there; says whether nobody does any more.
///
/// `pg_basebackup` goes on when its Patroni has been killed, and would write into the next copy as well.
pub(super) fn end_copies(pgdata: &Path) -> bool {
    let copies = || programs(|comm| comm == "pg_basebackup\n", &[pgdata.to_owned()]);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let left = copies();
        if left.is_empty() {
            return true;
        }
        for pid in left {
            // It may have left meanwhile.
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(POLL);
    }
    false
}

/// Patroni and etcd with one of these paths as an argument.
fn running(paths: &[PathBuf]) -> Vec<Pid> {
    programs(|comm| comm == "etcd\n" || comm.starts_with("python") || comm.starts_with("patroni"), paths)
}

/// The programs of such a name that have one of these paths as an argument, or as an option's value.
fn programs(is_one: impl Fn(&str) -> bool, paths: &[PathBuf]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        let proc = Path::new("/proc").join(pid.to_string());
        fs::read_to_string(proc.join("comm")).is_ok_and(|comm| is_one(&comm)) && names_one(&proc, paths)
    };
    pids.filter(is_ours).map(Pid::from_raw).collect()
}

fn names_one(proc: &Path, paths: &[PathBuf]) -> bool {
    let arguments = fs::read(proc.join("cmdline")).unwrap_or_default();
    let mut values = arguments.split(|byte| *byte == 0).map(|argument| match argument.strip_prefix(b"--pgdata=") {
        Some(value) => value,
        None => argument,
    });
    values.any(|value| {
        let mut named = paths.iter().filter(|path| path.as_os_str().as_bytes() == value);
        named.any(|path| is_same_there(proc, path))
    })
}

/// Tells files of one path apart: to a process in a container it is a file of another instance, by whose name there is
/// one here, too. Who may not look at such a process's files is in a container himself, and sees only his
/// own.
fn is_same_there(proc: &Path, path: &Path) -> bool {
    let file = |path: &Path| if_there(fs::metadata(path)).map(|it| it.map(|it| (it.dev(), it.ino())));
    let there = proc.join("root").join(path.strip_prefix("/").unwrap_or(path));
    match (file(path), file(&there)) {
        // It is gone: for both, where they have the same mounts.
        (Ok(None), Ok(None)) => match (file(&proc.join("ns/mnt")), file(Path::new("/proc/self/ns/mnt"))) {
            (Ok(there), Ok(here)) => there == here,
            _ => true,
        },
        (Ok(here), Ok(there)) => here == there,
        (_, Err(error)) => error.kind() == io::ErrorKind::PermissionDenied,
        (Err(_), Ok(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt,
        process::{Child, Command, Stdio},
    };

    use super::*;

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Waits until a program has been started there, whose arguments end with that path.
    fn names(running: &Running, path: &Path) -> Pid {
        let cmdline = format!("/proc/{}/cmdline", running.0.id());
        let wanted = [path.as_os_str().as_bytes(), b"\0"].concat();
        let is_it =
            || fs::read(&cmdline).unwrap().ends_with(&wanted) && !fs::read(&cmdline).unwrap().starts_with(b"un");
        while !is_it() {
            thread::sleep(POLL);
        }
        Pid::from_raw(running.0.id().cast_signed())
    }

    #[test]
    fn a_program_of_another_container_is_not_ours_though_its_path_is() {
        let dir = tempfile::tempdir().unwrap();
        let (program, folder, elsewhere) = (dir.path().join("etcd"), dir.path().join("data"), dir.path().join("other"));
        fs::write(&program, "#!/bin/sh\nread -r line\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let own = Running(Command::new(&program).arg(&folder).stdin(Stdio::piped()).spawn().unwrap());
        let own_pid = names(&own, &folder);
        assert_eq!(running(std::slice::from_ref(&folder)), [own_pid]);
        let mut contained = Command::new("unshare");
        contained.args(["--mount", "sh", "-c", r#"mount --bind "$1" "$2" && exec "$0" "$2""#]);
        contained.args([&program, &elsewhere, &folder]);
        if !nix::unistd::geteuid().is_root() {
            // Only root has other mounts.
            return;
        }
        let contained = Running(contained.stdin(Stdio::piped()).spawn().unwrap());
        let pid = names(&contained, &folder);
        let found = running(&[folder]);
        assert!(found.contains(&own_pid) && !found.contains(&pid));
    }
}
