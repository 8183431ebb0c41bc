//! The control group of a server: its processor time, how often it was throttled, what it read and wrote, and its
//! pressure, which only version 2 tells.
//!
//! Version 2 and version 1 of the kernel's control groups, whichever holds the process. Reads only.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sluice_instance::{Controller, GroupDir, Hierarchies};

use super::{Value, metrics};

/// Periods of the processor's quota, and those in which it was used up.
pub(super) const PERIODS: &str = "periods";
pub(super) const THROTTLED: &str = "periods throttled";

/// Paths of the group's files; none for controllers that the process has no group of its own in.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    cpu_stat: Option<PathBuf>,
    /// Version 1 has it in a file of its own.
    cpu_usage: Option<PathBuf>,
    io: Option<IoFile>,
    /// By column.
    pressure: Vec<(&'static str, PathBuf)>,
}

#[derive(Debug, PartialEq)]
enum IoFile {
    /// `io.stat`: `254:0 rbytes=1 wbytes=2 rios=3 wios=4 …`.
    V2(PathBuf),
    /// `blkio.throttle.io_serviced`: `254:0 Read 3`.
    V1(PathBuf),
}

impl Group {
    /// The group of a process, if it has one of its own.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::within(&Hierarchies::of(pid))
    }

    fn within(hierarchies: &Hierarchies) -> Option<Self> {
        let cpu = hierarchies.own(Controller::Cpu);
        let cpu_stat = cpu.map(|(GroupDir::V1(dir) | GroupDir::V2(dir))| dir.join("cpu.stat"));
        let cpu_usage = match cpu {
            Some(GroupDir::V1(dir)) => Some(dir.join("cpuacct.usage")),
            _ => None,
        };
        let io = hierarchies.own(Controller::Io).map(|group| match group {
            GroupDir::V1(dir) => IoFile::V1(dir.join("blkio.throttle.io_serviced")),
            GroupDir::V2(dir) => IoFile::V2(dir.join("io.stat")),
        });
        let pressure = [
            (Controller::Cpu, metrics::GROUP_PRESSURE_CPU, "cpu.pressure"),
            (Controller::Io, metrics::GROUP_PRESSURE_IO, "io.pressure"),
            (Controller::Memory, metrics::GROUP_PRESSURE_MEMORY, "memory.pressure"),
        ];
        let pressure =
            pressure.into_iter().filter_map(|(controller, column, file)| match hierarchies.own(controller) {
                Some(GroupDir::V2(dir)) => Some((column, dir.join(file))),
                _ => None,
            });
        let group = Self { cpu_stat, cpu_usage, io, pressure: pressure.collect() };
        (group.cpu_stat.is_some() || group.io.is_some()).then_some(group)
    }

    /// Counters by column, as far as the files can be read.
    pub(super) fn counters(&self) -> Vec<Value> {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let mut values = Vec::new();
        if let Some(path) = &self.cpu_stat {
            let text = read(path);
            for (name, key, unit) in [
                (PERIODS, "nr_periods ", 1.0),
                (THROTTLED, "nr_throttled ", 1.0),
                (metrics::GROUP_CPU, "usage_usec ", 1e6),
            ] {
                let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<f64>().ok());
                values.extend(value.map(|value| (name.to_owned(), value / unit)));
            }
        }
        let usage_ns = self.cpu_usage.as_deref().and_then(|path| read(path).trim().parse::<f64>().ok());
        values.extend(usage_ns.map(|ns| (metrics::GROUP_CPU.to_owned(), ns / 1e9)));
        for (column, path) in &self.pressure {
            values.extend(pressure_us(&read(path)).map(|us| ((*column).to_owned(), us)));
        }
        let requests = match &self.io {
            Some(IoFile::V2(path)) => Some(requests_v2(&read(path))),
            Some(IoFile::V1(path)) => Some(requests_v1(&read(path))),
            None => None,
        };
        if let Some((reads, writes)) = requests {
            values.push((metrics::GROUP_READS.to_owned(), reads));
            values.push((metrics::GROUP_WRITES.to_owned(), writes));
        }
        values
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, of a group or of the machine: how long some task waited.
pub(super) fn pressure_us(text: &str) -> Option<f64> {
    text.lines().next()?.strip_prefix("some ")?.rsplit_once("total=")?.1.trim().parse().ok()
}

fn requests_v2(text: &str) -> (f64, f64) {
    let sum =
        |key: &str| text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<f64>().ok()).sum();
    (sum("rios="), sum("wios="))
}

fn requests_v1(text: &str) -> (f64, f64) {
    let sum = |kind: &str| {
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            (words.next()? == kind).then(|| words.next()?.parse::<f64>().ok()).flatten()
        });
        lines.sum()
    };
    (sum("Read"), sum("Write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_1() {
        let mounts = "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      1 2 0:4 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                      1 2 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let of = |groups: &str| Group::within(&Hierarchies::parse(mounts, groups));
        let group = of("7:blkio:/sluice-1\n1:cpu:/sluice-1\n0::/\n").unwrap();
        assert_eq!(group.cpu_stat, Some("/sys/fs/cgroup/cpu/sluice-1/cpu.stat".into()));
        assert_eq!(group.cpu_usage, Some("/sys/fs/cgroup/cpu/sluice-1/cpuacct.usage".into()));
        let file = "/sys/fs/cgroup/blkio/sluice-1/blkio.throttle.io_serviced";
        assert_eq!(group.io, Some(IoFile::V1(file.into())));
        assert_eq!(of("1:cpu:/\n0::/\n"), None);
    }

    #[test]
    fn groups_of_version_2() {
        let mounts = "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let group = Group::within(&Hierarchies::parse(mounts, "0::/user.slice/sluice\n")).unwrap();
        assert_eq!(group.cpu_stat, Some("/sys/fs/cgroup/user.slice/sluice/cpu.stat".into()));
        assert_eq!(group.io, Some(IoFile::V2("/sys/fs/cgroup/user.slice/sluice/io.stat".into())));
    }

    #[test]
    fn what_a_group_of_version_2_tells() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cgroup.type", "domain\n"),
            ("cpu.stat", "usage_usec 2500000\nnr_periods 10\nnr_throttled 4\n"),
            ("io.stat", "254:0 rbytes=1 wbytes=2 rios=3 wios=4\n"),
            ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let mounts = format!("1 2 0:3 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display());
        let group = Group::within(&Hierarchies::parse(&mounts, "0::/\n")).unwrap();
        let expected = [
            (PERIODS, 10.0),
            (THROTTLED, 4.0),
            (metrics::GROUP_CPU, 2.5),
            (metrics::GROUP_PRESSURE_IO, 77.0),
            (metrics::GROUP_READS, 3.0),
            (metrics::GROUP_WRITES, 4.0),
        ];
        assert_eq!(group.counters(), expected.map(|(column, value)| (column.to_owned(), value)));
    }

    #[test]
    fn pressure() {
        assert_eq!(pressure_us("some avg10=0.00 avg60=1.00 avg300=0.00 total=12345\nfull avg10=0\n"), Some(12345.0));
        assert_eq!(pressure_us(""), None);
    }

    #[test]
    fn requests() {
        assert_eq!(requests_v2("254:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:0 rios=1 wios=1\n"), (4.0, 5.0));
        assert_eq!(requests_v1("254:0 Read 3\n254:0 Write 4\n254:0 Total 7\nTotal 7\n"), (3.0, 4.0));
    }
}
