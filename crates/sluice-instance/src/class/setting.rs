//! Settings that are written to a group's files for a limit, and whether the kernel took them as they were meant.

use std::path::Path;

use super::{Cpus, Iops, Limit, Memory, Obstacle, ReadBack, device::Disk, group_fs::GroupFs, hierarchy::Controller};

/// The time of which a group gets its share, in microseconds: the kernel's default.
pub(super) const CPU_PERIOD_US: u64 = 100_000;

/// A limit with all that is needed to write it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Demand {
    Memory(Memory),
    Cpus(Cpus),
    Iops(Iops, Disk),
}

impl Demand {
    pub(super) fn new(limit: Limit, disk: impl FnOnce() -> Result<Disk, Obstacle>) -> Result<Self, Obstacle> {
        Ok(match limit {
            Limit::Memory(memory) => Self::Memory(memory),
            Limit::Cpus(cpus) => Self::Cpus(cpus),
            Limit::Iops(iops) => Self::Iops(iops, disk()?),
        })
    }

    pub(super) fn controller(self) -> Controller {
        match self {
            Self::Memory(_) => Controller::Memory,
            Self::Cpus(_) => Controller::Cpu,
            Self::Iops(..) => Controller::Io,
        }
    }
}

/// The part of each [`CPU_PERIOD_US`] that a group may run, in microseconds.
pub(super) fn cpu_quota_us(cpus: Cpus) -> u64 {
    u64::from(cpus.millis()) * CPU_PERIOD_US / 1000
}

/// A value for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    /// Whether a kernel without that file is as good.
    pub(super) optional: bool,
}

impl Setting {
    pub(super) fn new(file: &'static str, value: impl ToString) -> Self {
        Self { file, value: value.to_string(), optional: false }
    }

    pub(super) fn optional(file: &'static str, value: impl ToString) -> Self {
        Self { optional: true, ..Self::new(file, value) }
    }

    /// Writes it and reads it back; `None` where it is optional and missing.
    pub(super) fn apply(&self, files: &dyn GroupFs, group: &Path) -> Result<Option<ReadBack>, Obstacle> {
        let file = group.join(self.file);
        if self.optional && !files.exists(&file) {
            return Ok(None);
        }
        files.write(&file, &self.value).map_err(|error| Obstacle::file("write", &file, &error))?;
        let text = files.read(&file).map_err(|error| Obstacle::file("read", &file, &error))?;
        match text.lines().find(|line| says(line, &self.value)) {
            Some(line) => Ok(Some(ReadBack { file, value: line.to_owned() })),
            None => Err(Obstacle::ReadBack { file, wanted: self.value.clone(), found: text.trim().to_owned() }),
        }
    }
}

/// Whether a line has the words of `value` in their order. The kernel's may have more: `254:0 rbps=max wbps=max
/// riops=400 wiops=400`.
fn says(line: &str, value: &str) -> bool {
    let mut words = line.split_whitespace();
    value.split_whitespace().all(|wanted| words.any(|word| word == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_say_so() {
        for (line, value, expected) in [
            ("536870912", "536870912", true),
            ("536866816", "536870912", false),
            ("50000 100000", "50000 100000", true),
            ("100000 100000", "100000 100000", true),
            ("max 100000", "100000 100000", false),
            ("254:0 rbps=max wbps=max riops=400 wiops=400", "254:0 riops=400 wiops=400", true),
            ("254:0 rbps=max wbps=max riops=400 wiops=max", "254:0 riops=400 wiops=400", false),
            ("8:0 riops=400 wiops=400", "254:0 riops=400 wiops=400", false),
            ("", "0", false),
        ] {
            assert_eq!(says(line, value), expected, "{line} / {value}");
        }
    }
}
