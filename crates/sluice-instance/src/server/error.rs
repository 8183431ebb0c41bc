//! Errors of a server's start. The fault is the machine's or the configuration's.

use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

use crate::diagnosis::Tail;

/// Reasons why a server did not start; each message ends with PostgreSQL's own words or with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another server, not ours, runs on the data directory.
    #[error(
        "a PostgreSQL that sluice did not start (process {pid}) runs on {}\n\
         stop it first: kill -INT {pid}",
        pgdata.display()
    )]
    AlreadyRunning {
        /// Its postmaster.
        pid: i32,
        /// The data directory.
        pgdata: PathBuf,
    },
    /// The server ended before it was ready.
    #[error("PostgreSQL ended while starting ({status}); the end of {}:{tail}", log.display())]
    Exited {
        /// The exit status.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: Tail,
    },
    /// It did not become ready in time, and was stopped.
    #[error("PostgreSQL was not ready after {} s; the end of {}:{tail}", waited.as_secs(), log.display())]
    NotReady {
        /// The time that it was given.
        waited: Duration,
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: Tail,
    },
    /// A file, thread or process could not be made.
    #[error("cannot {what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A stop was asked for meanwhile.
    #[error("the start of PostgreSQL was interrupted")]
    Interrupted,
    /// A defect of ours.
    #[error("the thread that keeps PostgreSQL died; please report this")]
    KeeperDied,
}

impl StartError {
    pub(super) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}
