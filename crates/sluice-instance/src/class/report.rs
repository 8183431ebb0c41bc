//! The outcome for each limit of a class: enforced, as the kernel says itself, or not, with the reason.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use super::{Cpus, Iops, Memory, Obstacle};

/// A limit that the kernel enforces; connections are PostgreSQL's own matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Main memory, without swap.
    Memory(Memory),
    /// Processor time.
    Cpus(Cpus),
    /// Reads a second, and writes a second.
    Iops(Iops),
}

impl Limit {
    /// `memory`, `cpus` or `iops`: as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Cpus(_) => "cpus",
            Self::Iops(_) => "iops",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Self::Memory(memory) => memory.fmt(f),
            Self::Cpus(cpus) => cpus.fmt(f),
            Self::Iops(iops) => iops.fmt(f),
        }
    }
}

/// A file of a control group, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBack {
    /// The file.
    pub file: PathBuf,
    /// The line with the limit.
    pub value: String,
}

/// The outcome for a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel enforces it: these files say so.
    Enforced(Vec<ReadBack>),
    /// Nobody enforces it.
    NotEnforced(Obstacle),
}

/// The outcome for a class. Its `Display` is one line, for a console or a report:
/// `class enforced: memory 1GB, cpus 1; class not enforced: iops (no blkio controller)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassReport {
    /// Each limit that was asked for; without any, nothing is reported.
    pub outcomes: Vec<(Limit, Outcome)>,
}

impl ClassReport {
    /// Whether every limit that was asked for is enforced.
    pub fn is_enforced(&self) -> bool {
        self.not_enforced().next().is_none()
    }

    /// The limits that are enforced.
    pub fn enforced(&self) -> impl Iterator<Item = Limit> {
        self.outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Enforced(_))).map(|(limit, _)| *limit)
    }

    /// The limits that are not enforced, and why.
    pub fn not_enforced(&self) -> impl Iterator<Item = (Limit, &Obstacle)> {
        self.outcomes.iter().filter_map(|(limit, outcome)| match outcome {
            Outcome::NotEnforced(why) => Some((*limit, why)),
            Outcome::Enforced(_) => None,
        })
    }

    /// Remedies for the limits that are not enforced, each once.
    pub fn remedies(&self) -> BTreeSet<&'static str> {
        self.not_enforced().map(|(_, why)| why.remedy()).collect()
    }

    /// The groups that hold an enforced limit.
    pub(super) fn groups(&self) -> BTreeSet<PathBuf> {
        let files = self.outcomes.iter().filter_map(|(_, outcome)| match outcome {
            Outcome::Enforced(files) => Some(files),
            Outcome::NotEnforced(_) => None,
        });
        files.flatten().filter_map(|read| read.file.parent()).map(Path::to_owned).collect()
    }

    /// The limits in `group` are not enforced any more.
    pub(super) fn lose(&mut self, group: &Path, why: &Obstacle) {
        for (_, outcome) in &mut self.outcomes {
            let is_there = |read: &ReadBack| read.file.parent() == Some(group);
            if matches!(outcome, Outcome::Enforced(files) if files.iter().any(is_there)) {
                *outcome = Outcome::NotEnforced(why.clone());
            }
        }
    }
}

impl fmt::Display for ClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let enforced: Vec<String> = self.enforced().map(|limit| limit.to_string()).collect();
        let not: Vec<String> = self.not_enforced().map(|(limit, why)| format!("{} ({why})", limit.name())).collect();
        let parts = [("class enforced", enforced), ("class not enforced", not)];
        let parts = parts.into_iter().filter(|(_, limits)| !limits.is_empty());
        let parts: Vec<String> = parts.map(|(what, limits)| format!("{what}: {}", limits.join(", "))).collect();
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ClassReport {
        let read = |file: &str| ReadBack { file: file.into(), value: "1".to_owned() };
        let none = Obstacle::NoController { controller: "blkio" };
        ClassReport {
            outcomes: vec![
                (Limit::Memory("1GB".parse().unwrap()), Outcome::Enforced(vec![read("/m/x/limit")])),
                (Limit::Cpus("0.5".parse().unwrap()), Outcome::Enforced(vec![read("/c/x/period"), read("/c/x/quota")])),
                (Limit::Iops("400".parse().unwrap()), Outcome::NotEnforced(none)),
            ],
        }
    }

    #[test]
    fn one_line() {
        let mut report = report();
        let line = "class enforced: memory 1GB, cpus 0.5; class not enforced: iops (no blkio controller)";
        assert_eq!(report.to_string(), line);
        report.outcomes.pop();
        assert!(report.is_enforced());
        assert_eq!(report.to_string(), "class enforced: memory 1GB, cpus 0.5");
        assert_eq!(ClassReport::default().to_string(), "");
    }

    #[test]
    fn a_group_that_is_lost() {
        let mut report = report();
        assert_eq!(report.groups(), ["/c/x", "/m/x"].map(PathBuf::from).into());
        let why = Obstacle::NotMember { pid: 7, group: "/c/x".into() };
        report.lose(Path::new("/c/x"), &why);
        assert_eq!(report.groups(), ["/m/x"].map(PathBuf::from).into());
        assert_eq!(report.not_enforced().map(|(limit, _)| limit.name()).collect::<Vec<_>>(), ["cpus", "iops"]);
        assert_eq!(report.remedies().len(), 2);
    }
}
