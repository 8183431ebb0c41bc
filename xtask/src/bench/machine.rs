//! The machine and the versions behind the figures; a figure without them says little.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Work of others above this many processors makes the figures noise.
const LOAD_QUIET: f64 = 0.5;

/// What the head of a report says.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mb: u64,
    pub(crate) kernel: String,
    /// Of the last minute, at the start of the benchmark.
    pub(crate) load: Option<f64>,
    pub(crate) versions: Vec<String>,
}

impl Machine {
    /// This machine, with the versions of what is measured.
    pub(crate) fn describe(versions: Vec<String>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = value_of(&read("/proc/meminfo"), "MemTotal");
        let kb = memory.as_deref().and_then(|memory| memory.split(' ').next()?.parse::<u64>().ok());
        Self {
            cpu: value_of(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: kb.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            versions,
        }
    }

    /// A warning if others kept the machine busy.
    pub(crate) fn warning(&self) -> Option<String> {
        let load = self.load.filter(|load| *load > LOAD_QUIET)?;
        Some(format!("The machine was busy before the start (load {load}): the figures are noisy."))
    }
}

/// As a list.
impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "- {}, {} cores, {} MB, Linux {}", self.cpu, self.cores, self.memory_mb, self.kernel)?;
        for line in self.versions.iter().chain(&self.warning()) {
            writeln!(out, "- {line}")?;
        }
        Ok(())
    }
}

/// The value behind `key :` in the first line that has it.
fn value_of(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })?;
    Some(value.to_owned())
}

/// What a program says first, for its version.
pub(crate) fn first_line(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_key() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nmodel name\t: Other\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(value_of("MemTotal:       24684 kB\n", "MemTotal").as_deref(), Some("24684 kB"));
        assert_eq!(value_of(text, "model"), None);
    }
}
