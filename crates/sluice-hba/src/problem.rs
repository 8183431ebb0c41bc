//! Things that are wrong with a file.

use std::path::PathBuf;

/// A line that can't be used. PostgreSQL's own words where PostgreSQL refuses it as well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}; {remedy}", .file.display())]
pub struct Problem {
    /// The file that has the line, or that can't be read.
    pub file: PathBuf,
    /// The number of the line, from 1. A line that is continued counts where it begins.
    pub line: usize,
    /// The thing that is wrong.
    pub what: String,
    /// The thing to do about it.
    pub remedy: String,
    /// The one at fault.
    pub fault: Fault,
}

/// The one at fault for a [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file: PostgreSQL refuses it too.
    File,
    /// Sluice: PostgreSQL may take the line, but it asks for something that Sluice does not have.
    Sluice,
}

/// A problem whose line is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: String,
    pub(crate) remedy: String,
    pub(crate) fault: Fault,
}

impl Flaw {
    /// A mistake in the file.
    pub(crate) fn mistake(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), fault: Fault::File }
    }

    /// Something that Sluice does not have.
    pub(crate) fn unsupported(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), fault: Fault::Sluice }
    }

    pub(crate) fn at(self, file: impl Into<PathBuf>, line: usize) -> Problem {
        Problem { file: file.into(), line, what: self.what, remedy: self.remedy, fault: self.fault }
    }
}
