//! The places of lines.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::lines::Line;

/// The place of a line, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file that has it.
    pub file: PathBuf,
    /// Its number, from 1. A line that is continued counts where it begins.
    pub line: usize,
}

impl Place {
    pub(crate) fn of(line: &Line) -> Arc<Self> {
        Arc::new(Self { file: line.file.clone(), line: line.number })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}
