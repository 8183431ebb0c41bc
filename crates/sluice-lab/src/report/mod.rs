//! Reports: what a run has found, for people and for programs.
//!
//! The HTML page is one file that refers to nothing outside and runs no script; the result itself stands inside it as
//! JSON, so the page alone is enough to compare with later. Reports work out medians, ratios and verdicts, and measure
//! nothing.

mod chart;
pub(crate) mod colour;
pub(crate) mod columns;
mod csv;
pub(crate) mod html;
mod json;
pub(crate) mod number;
pub(crate) mod outline;
pub(crate) mod page;
mod reference;
mod stalls;
mod tables;
mod text;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

pub(crate) use self::{
    chart::{Bar, Caption, Item, Key, Ladder, Point, Rung, bars, ladder},
    tables::{Cell, Heading, Table},
};
pub use self::{
    json::{ReadError, read},
    page::html,
    text::summary,
    verdict::{Verdict, verdict},
};
use crate::result::RunResult;

/// The files of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub html: PathBuf,
    /// The result as it is.
    pub json: PathBuf,
    /// A row a turn.
    pub summary_csv: PathBuf,
    /// A row a value: the seconds and the samples of all turns.
    pub series_csv: PathBuf,
}

/// A report could not be written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The system would not have it.
    #[error("cannot write {path:?}: {source}; give another directory for reports")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A mistake of the program.
    #[error("the result can't be written as JSON: {0}; this is a mistake in Sluice, please report it")]
    Json(#[from] serde_json::Error),
    /// A mistake of the program.
    #[error("the result can't be written as CSV: {0}; this is a mistake in Sluice, please report it")]
    Csv(#[from] ::csv::Error),
}

/// Writes `report.html`, `result.json`, `summary.csv` and `series.csv`. Each file is replaced as a whole.
pub fn write(result: &RunResult, directory: &Path) -> Result<Written, ReportError> {
    let json = json::text(result)?;
    let files = [
        ("report.html", page::html_with(result, &json).into_bytes()),
        ("summary.csv", csv::summary(result)?),
        ("series.csv", csv::series(result)?),
        ("result.json", json.into_bytes()),
    ];
    fs::create_dir_all(directory).map_err(|source| ReportError::Write { path: directory.to_owned(), source })?;
    for (name, bytes) in files {
        replace(&directory.join(name), &bytes)?;
    }
    let path = |name| directory.join(name);
    Ok(Written {
        html: path("report.html"),
        json: path("result.json"),
        summary_csv: path("summary.csv"),
        series_csv: path("series.csv"),
    })
}

/// Writes beside the file, then puts it in its place, so that nobody reads half of it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let beside = path.with_extension("new");
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| ReportError::Write { path: path.to_owned(), source })
}
