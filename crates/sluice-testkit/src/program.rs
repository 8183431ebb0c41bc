//! Programs under `tests/drivers`, which check a driver against the server that their environment names.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{case::repository, proc};

/// The exit code of a program that can't run here, since its language is missing.
const SKIPPED: i32 = 77;

/// The server that a program is to check: on this machine, for a user whose password is `secret`.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its port.
    pub port: u16,
    /// The role to log in as.
    pub user: &'a str,
    /// The database to log in to.
    pub database: &'a str,
    /// The authority of its certificate, if it is to be reached by TLS.
    pub authority: Option<&'a Path>,
}

/// Runs `tests/drivers/FOLDER/run` to its end, with what it writes in a file; gives that, or `None` if this machine
/// lacks the language.
pub fn run(folder: &str, arguments: &[&str], target: Target<'_>, log: &Path, time_max: Duration) -> Option<String> {
    let begin = Instant::now();
    let mut command = Command::new(repository().join("tests/drivers").join(folder).join("run"));
    command.args(arguments).env("PGHOST", "127.0.0.1").env("PGPORT", target.port.to_string());
    command.env("PGUSER", target.user).env("PGPASSWORD", "secret").env("PGDATABASE", target.database);
    if let Some(authority) = target.authority {
        command.env("PGHOST", "localhost").env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", authority);
        // Node's driver asks Node.
        command.env("NODE_EXTRA_CA_CERTS", authority);
    }
    fs::write(log, "").unwrap();
    // Appending, so that both streams can go to one file.
    let append = fs::OpenOptions::new().append(true).open(log).unwrap();
    command.env_remove("PGOPTIONS").stdin(Stdio::null()).stdout(append.try_clone().unwrap()).stderr(append);
    let said = || String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned();
    let mut child = command.spawn().unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > time_max {
            proc::send(child.id(), proc::Kind::SIGKILL);
            child.wait().unwrap();
            panic!("{folder} is not done after {time_max:?}:\n{}", said());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = said();
    if status.code() == Some(SKIPPED) {
        // Past the harness, which shows only what failed.
        let _ = std::io::stderr().write_all(format!("{folder}: {said}").as_bytes());
        return None;
    }
    assert!(status.success(), "{folder} ended with {status}:\n{said}");
    Some(said)
}
