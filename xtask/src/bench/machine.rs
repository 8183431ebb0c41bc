//! The machine and the versions behind the figures; a figure without them says little.

use std::fmt;
use std::path::Path;
use std::process::Command;

use sluice_lab::result::Machine as Facts;

/// The facts in the head of a report.
#[derive(Debug)]
pub(crate) struct Machine {
    facts: Facts,
    pub(crate) versions: Vec<String>,
}

impl Machine {
    /// This machine, with the versions of what is measured.
    pub(crate) fn describe(versions: Vec<String>) -> Self {
        Self { facts: Facts::describe(), versions }
    }

    /// A warning if others kept the machine busy.
    pub(crate) fn warning(&self) -> Option<String> {
        self.facts.warning()
    }
}

/// As a list.
impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { cpu, cores, memory_mb, kernel, .. } = &self.facts;
        writeln!(out, "- {cpu}, {cores} cores, {memory_mb} MB, Linux {kernel}")?;
        for line in self.versions.iter().chain(&self.warning()) {
            writeln!(out, "- {line}")?;
        }
        Ok(())
    }
}

/// The first line of a program's output, for its version.
pub(crate) fn first_line(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}
