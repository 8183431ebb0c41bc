//! The result as JSON, and back: from its own file, or from a page that holds it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;

use crate::result::{FORMAT, RunResult};

/// The element that holds the result in a page.
pub(super) const ELEMENT: &str = "result";

/// A stored result can't be used.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system would not give it.
    #[error("cannot read {path:?}: {source}; give a result.json or a report.html that `sluice bench` has written")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is a page, but of something else.
    #[error("{path:?} holds no result; give a report.html that `sluice bench` has written, or a result.json")]
    NoResult {
        /// The file.
        path: PathBuf,
    },
    /// A newer Sluice wrote it.
    #[error(
        "{path:?} has format {format}, and this Sluice reads {FORMAT} at most; use the Sluice that wrote it, or a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// It is damaged, or something else.
    #[error("{path:?} is no result of `sluice bench`: {source}; run the scenario again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
}

/// The part that all formats share.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// On one line.
pub(super) fn text(result: &RunResult) -> Result<String, serde_json::Error> {
    serde_json::to_string(result)
}

/// Reads a result from a `result.json` or from a page that holds it.
pub fn read(path: &Path) -> Result<RunResult, ReadError> {
    let text = fs::read_to_string(path).map_err(|source| ReadError::Read { path: path.to_owned(), source })?;
    let json = match text.trim_start().starts_with('<') {
        true => inside(&text).ok_or_else(|| ReadError::NoResult { path: path.to_owned() })?,
        false => &text,
    };
    let damaged = |source| ReadError::Damaged { path: path.to_owned(), source };
    let Head { format } = serde_json::from_str(json).map_err(damaged)?;
    if format > FORMAT {
        return Err(ReadError::Newer { path: path.to_owned(), format });
    }
    serde_json::from_str(json).map_err(damaged)
}

/// The JSON inside a page. It holds no `<`, so the next one ends it.
fn inside(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(&format!("<script type=\"application/json\" id=\"{ELEMENT}\">"))?;
    rest.split('<').next()
}
