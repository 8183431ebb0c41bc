//! The machine that figures come from: found out, not asked for.

mod disk;
mod network;

use std::{fs, thread};

pub use self::{disk::probe as probe_disk, network::loopback_round_trip_us};
use crate::{
    proc,
    result::{GroupLimits, Machine},
};

/// Work of others above this many processors makes figures noise.
const LOAD_QUIET: f64 = 0.5;

impl Machine {
    /// This one, without its disk and its network.
    pub fn describe() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: value_of(&read("/proc/cpuinfo"), ':', "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            memory_mb: proc::value_kb(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: value_of(&read("/etc/os-release"), '=', "PRETTY_NAME")
                .map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned()),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            group: group_limits(&read("/proc/self/cgroup")),
            disk: None,
            loopback_round_trip_us: None,
        }
    }

    /// A warning if others kept the machine busy before the start.
    pub fn warning(&self) -> Option<String> {
        let load = self.load.filter(|load| *load > LOAD_QUIET)?;
        Some(format!("The machine was busy before the start (load {load}): the figures are noisy."))
    }

    /// What tells this machine from another, as lines; a comparison between unlike machines says so.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, own: String, others: String| {
            if own != others {
                differences.push(format!("{what}: {own} and {others}"));
            }
        };
        differ("processor", self.cpu.clone(), other.cpu.clone());
        differ("processors", self.cores.to_string(), other.cores.to_string());
        differ("memory", format!("{} MB", self.memory_mb), format!("{} MB", other.memory_mb));
        differ("kernel", self.kernel.clone(), other.kernel.clone());
        differ("system", self.system.clone(), other.system.clone());
        differences
    }
}

/// The value behind a key in the first line that has it.
fn value_of(text: &str, separator: char, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })?;
    Some(value.to_owned())
}

/// Of the group that this process is in, by version 2 or version 1.
fn group_limits(groups: &str) -> GroupLimits {
    let path = |controller: &str| {
        let line = groups.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        line.split(':').nth(2)
    };
    let read = |mount: &str, controller: &str, file: &str| {
        let place = format!("/sys/fs/cgroup{mount}{}/{file}", path(controller)?.trim_end_matches('/'));
        fs::read_to_string(place).ok()
    };
    let cpus = read("", "", "cpu.max").and_then(|text| quota(text.split_once(' ')?)).or_else(|| {
        let quota_us = read("/cpu", "cpu", "cpu.cfs_quota_us")?;
        quota((quota_us.trim(), &read("/cpu", "cpu", "cpu.cfs_period_us")?))
    });
    let memory_mb = read("", "", "memory.max")
        .or_else(|| read("/memory", "memory", "memory.limit_in_bytes"))
        .and_then(|text| text.trim().parse::<u64>().ok())
        // Version 1 writes no limit as the largest number of pages.
        .filter(|bytes| *bytes < 1 << 60)
        .map(|bytes| bytes >> 20);
    GroupLimits { cpus, memory_mb }
}

fn quota((quota_us, period_us): (&str, &str)) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota_us.trim().parse().ok()?, period_us.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_key() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nmodel name\t: Other\n";
        assert_eq!(value_of(text, ':', "model name").as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(value_of(text, ':', "model"), None);
    }

    #[test]
    fn quotas() {
        assert_eq!(quota(("50000", "100000")), Some(0.5));
        assert_eq!(quota(("max", "100000")), None);
        assert_eq!(quota(("-1", "100000")), None);
    }

    #[test]
    fn this_machine_is_like_itself() {
        let machine = Machine::describe();
        assert!(machine.cores >= 1 && machine.memory_mb > 0 && !machine.kernel.is_empty());
        assert_eq!(machine.differences(&machine), Vec::<String>::new());
        let other = Machine { memory_mb: 1, ..machine.clone() };
        assert_eq!(machine.differences(&other).len(), 1);
        assert!(Machine { load: Some(3.0), ..Machine::default() }.warning().is_some());
    }
}
