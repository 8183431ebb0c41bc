//! The machine that figures come from: found out, not asked for.

mod disk;
mod network;

use std::fs;

use sluice_instance::Hierarchies;

pub use self::{
    disk::{Probe, probe as probe_disk},
    network::loopback_round_trip_us,
};
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
        let memory_kb = proc::value_kb(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0);
        Self {
            cpu: value_of(&read("/proc/cpuinfo"), ':', "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: proc::cores(),
            memory_mb: memory_kb / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: value_of(&read("/etc/os-release"), '=', "PRETTY_NAME")
                .map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned()),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            group: group_limits(memory_kb << 10),
            disk: None,
            loopback_round_trip_us: None,
        }
    }

    /// A warning if others kept the machine busy before the start.
    pub fn warning(&self) -> Option<String> {
        let load = self.load.filter(|load| *load > LOAD_QUIET)?;
        Some(format!("The machine was busy before the start (load {load}): the figures are noisy."))
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

/// Of the groups that this process is in.
fn group_limits(memory_bytes: u64) -> GroupLimits {
    let groups = Hierarchies::current();
    // Version 1 writes no limit as a large one.
    let memory_bytes = groups.memory_limit_bytes().filter(|limit| *limit < memory_bytes);
    GroupLimits { cpus: groups.cpu_quota(), memory_mb: memory_bytes.map(|bytes| bytes >> 20), io: groups.io_limits() }
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
    fn this_machine_is_described() {
        let machine = Machine::describe();
        assert!(machine.cores >= 1 && machine.memory_mb > 0 && !machine.kernel.is_empty());
        assert!(Machine { load: Some(3.0), ..Machine::default() }.warning().is_some());
    }
}
