//! `postmaster.pid`: who runs on a data directory, and how far its start has come.
//!
//! The file's lines are those of PostgreSQL's `src/include/utils/pidfile.h`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::orphans;

/// The file's name in the data directory.
pub(crate) const NAME: &str = "postmaster.pid";

const LINE_PID: usize = 0;
const LINE_PORT: usize = 3;
const LINE_SOCKET_DIR: usize = 4;
/// Written from PostgreSQL 10 on.
const LINE_STATUS: usize = 7;

/// The contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PidFile {
    /// The postmaster; a standalone backend has a negative number there.
    pub(crate) pid: i32,
    /// Its last line.
    pub(crate) status: Status,
}

/// The state that a server has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Connections are accepted, if only for reading.
    Ready,
    /// It is shutting down.
    Stopping,
    /// It has not come so far yet.
    Starting,
}

/// The process that runs on a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// No `postmaster.pid`, or one that names nobody.
    Nobody,
    /// The file is from a server that died: its process is gone, or is another program by now.
    Stale(i32),
    /// A PostgreSQL runs.
    Live(i32),
}

impl PidFile {
    /// Reads the file; `None` if it is missing or its first line holds no number yet.
    pub(crate) fn read(pgdata: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(pgdata.join(NAME)) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.nth(LINE_PID)?.trim().parse().ok()?;
        let status = match lines.nth(LINE_STATUS - LINE_PID - 1).unwrap_or_default().trim() {
            "ready" | "standby" => Status::Ready,
            "stopping" => Status::Stopping,
            _ => Status::Starting,
        };
        Some(Self { pid, status })
    }
}

/// Finds the process that runs on the data directory `pgdata` (an absolute path without symbolic links).
pub(crate) fn runner(pgdata: &Path) -> io::Result<Runner> {
    let Some(PidFile { pid, .. }) = PidFile::read(pgdata)? else { return Ok(Runner::Nobody) };
    let pid = pid.saturating_abs();
    Ok(if orphans::is_server_of(pid, pgdata) { Runner::Live(pid) } else { Runner::Stale(pid) })
}

/// The port of the server that runs on `pgdata`, and the folder of its Unix socket; none, where there is none.
pub(crate) fn socket(pgdata: &Path) -> io::Result<Option<(PathBuf, u16)>> {
    let Runner::Live(_) = runner(pgdata)? else { return Ok(None) };
    Ok(socket_of(&fs::read_to_string(pgdata.join(NAME))?))
}

fn socket_of(text: &str) -> Option<(PathBuf, u16)> {
    let line = |nth: usize| text.lines().nth(nth).map(str::trim).filter(|line| !line.is_empty());
    Some((PathBuf::from(line(LINE_SOCKET_DIR)?), line(LINE_PORT)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let full = "4711\n/data/pgdata\n1700000000\n5432\n/data/run\n\n  1048577         3\n";
        for (text, expected) in [
            (format!("{full}ready   \n"), Some((4711, Status::Ready))),
            (format!("{full}standby \n"), Some((4711, Status::Ready))),
            (format!("{full}starting\n"), Some((4711, Status::Starting))),
            (format!("{full}stopping\n"), Some((4711, Status::Stopping))),
            (full.to_owned(), Some((4711, Status::Starting))),
            ("4711\n".to_owned(), Some((4711, Status::Starting))),
            ("-12\n/data\n".to_owned(), Some((-12, Status::Starting))),
            (String::new(), None),
            ("\n".to_owned(), None),
            ("ready\n".to_owned(), None),
        ] {
            let parsed = PidFile::parse(&text).map(|file| (file.pid, file.status));
            assert_eq!(parsed, expected, "{text:?}");
        }
        assert_eq!(socket_of(&format!("{full}ready\n")), Some((PathBuf::from("/data/run"), 5432)));
        assert_eq!(socket_of("4711\n/data/pgdata\n1700000000\n5432\n\n"), None);
    }

    #[test]
    fn a_live_process_that_is_no_postgres_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let pgdata = dir.path().canonicalize().unwrap();
        assert_eq!(runner(&pgdata).unwrap(), Runner::Nobody);
        let own = std::process::id().cast_signed();
        fs::write(pgdata.join(NAME), format!("{own}\n")).unwrap();
        assert_eq!(runner(&pgdata).unwrap(), Runner::Stale(own));
    }
}
