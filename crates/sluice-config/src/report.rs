//! Problems of a configuration: all of them at once, each with its place and its remedy.
//!
//! Nothing here decides what is a problem; and no password reaches a message.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// All that is wrong with a configuration. It prints one problem a block, in the order of the file, and their count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file: the configuration, or one that it names.
    pub file: PathBuf,
    /// Its position in the file; `None` is the file as a whole.
    pub position: Option<Position>,
    /// The key's path, such as `pool.size`; empty where no key is at fault.
    pub key: String,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// A place in a text file, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// The problem with a value, before it is known where the value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Report {
    /// A report of these problems, in the order given.
    pub(crate) fn new(problems: Vec<Problem>) -> Self {
        debug_assert!(!problems.is_empty(), "a report without a problem");
        Self { problems }
    }

    /// The problems: those of the configuration file by line, then those of the files that it names.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// The problem that this fault is at a place.
    pub(crate) fn at(self, file: &Path, position: Option<Position>, key: impl Into<String>) -> Problem {
        Problem { file: file.to_owned(), position, key: key.into(), what: self.what, remedy: self.remedy }
    }
}

impl Problem {
    /// It in one line, as for a log.
    pub fn in_one_line(&self) -> String {
        self.to_string().replace("\n    ", "; ")
    }
}

impl Position {
    /// The place of a byte offset; an offset past the end is the end.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        // Bytes that continue a UTF-8 character do not count.
        let column = before[line_start..].iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1;
        Self { line, column }
    }
}

/// Puts the problems in the order of the file, and each one in once: databases that share the settings of `[pool]`
/// find the same mistake there.
pub(crate) fn in_order(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| (a.position, &a.key, &a.what).cmp(&(b.position, &b.key, &b.what)));
    problems.dedup();
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        match self.problems.len() {
            1 => f.write_str("1 problem"),
            count => write!(f, "{count} problems"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Position { line, column }) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}\n    {}", self.what, self.remedy)
    }
}

impl std::error::Error for Report {}
