//! The laboratory's errors, by whose fault each is.
//!
//! A target that breaks under a load is no error here but a result.

use std::{fmt, io, path::Path, process::ExitStatus, time::Duration};

/// The laboratory's errors. Each reads as a sentence with its remedy, where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The scenario, or what was asked of it, can't be run: the user's to change.
    #[error("{0}")]
    Input(String),
    /// The machine lacks something.
    #[error("{0}")]
    Lacking(String),
    /// A file or a pipe.
    #[error("cannot {what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program}: {status}{}", behind_colon(.said))]
    Failed {
        /// Its name.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its last words.
        said: String,
    },
    /// A program, or a state of things, did not come to its end.
    #[error("{what} did not end within {} s", .limit.as_secs())]
    TimedOut {
        /// The program or state that was waited for.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// A statement failed, or a connection.
    #[error("cannot {what}: {}", words(.source))]
    Sql {
        /// The action that failed.
        what: String,
        /// PostgreSQL's answer.
        source: postgres::Error,
    },
    /// PostgreSQL could not be had.
    #[error("{0}")]
    Server(String),
    /// The output of a program could not be understood.
    #[error("cannot read {what}: {text}")]
    Unreadable {
        /// The expected content.
        what: &'static str,
        /// As much of it as helps.
        text: String,
    },
}

impl Error {
    /// For a file: `cannot read FILE: …`.
    pub(crate) fn file(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{what} {}", path.display());
        move |source| Self::Io { what, source }
    }

    /// For anything else of the system's.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For a statement or a connection.
    pub(crate) fn sql(what: impl Into<String>) -> impl FnOnce(postgres::Error) -> Self {
        let what = what.into();
        move |source| Self::Sql { what, source }
    }

    /// Of something that `Display`s what it lacks.
    pub(crate) fn server(error: impl fmt::Display) -> Self {
        Self::Server(error.to_string())
    }
}

fn behind_colon(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

/// PostgreSQL's own words, without the driver's.
pub fn words(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => {
            let hint = answer.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}{hint}", answer.message())
        }
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
    }
}
