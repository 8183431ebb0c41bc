//! The control group of a server: how often it was throttled, and what it read and wrote.
//!
//! Version 2 and version 1 of the kernel's control groups, whichever holds the process. The root group has no limits,
//! so there is nothing to tell of it. Reads only.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Value, metrics};

/// Periods of the processor's quota, and those in which it was used up.
pub(super) const PERIODS: &str = "periods";
pub(super) const THROTTLED: &str = "periods throttled";

/// Where the group's files are; none for controllers that the process has no group of its own in.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    cpu_stat: Option<PathBuf>,
    io: Option<IoFile>,
}

#[derive(Debug, PartialEq)]
enum IoFile {
    /// `io.stat`: `254:0 rbytes=1 wbytes=2 rios=3 wios=4 …`.
    V2(PathBuf),
    /// `blkio.throttle.io_serviced`: `254:0 Read 3`.
    V1(PathBuf),
}

impl Group {
    /// The group of a process, if it is not the root's.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        Self::find(&groups, &mounts)
    }

    fn find(groups: &str, mounts: &str) -> Option<Self> {
        let v2 = directory(groups, mounts, None);
        let v1 = |controller: &str| directory(groups, mounts, Some(controller));
        let cpu_stat = v1("cpu").or_else(|| v2.clone()).map(|dir| dir.join("cpu.stat"));
        let io = match v1("blkio") {
            Some(dir) => Some(IoFile::V1(dir.join("blkio.throttle.io_serviced"))),
            None => v2.map(|dir| IoFile::V2(dir.join("io.stat"))),
        };
        (cpu_stat.is_some() || io.is_some()).then_some(Self { cpu_stat, io })
    }

    /// Counters by column, as far as the files can be read.
    pub(super) fn counters(&self) -> Vec<Value> {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let mut values = Vec::new();
        if let Some(path) = &self.cpu_stat {
            let text = read(path);
            for (name, key) in [(PERIODS, "nr_periods "), (THROTTLED, "nr_throttled ")] {
                let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
                values.extend(value.map(|value| (name.to_owned(), value)));
            }
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

/// A controller's directory for the process's group; `None` as a controller is the unified hierarchy.
fn directory(groups: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_meant = controller.map_or(controllers.is_empty(), |wanted| controllers.split(',').any(|c| c == wanted));
        is_meant.then_some(path)
    })?;
    if path == "/" {
        return None;
    }
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_meant = match controller {
            None => kind == "cgroup2",
            Some(wanted) => kind == "cgroup" && options.split(',').any(|option| option == wanted),
        };
        is_meant.then_some(place)
    })?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
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

    const MOUNTS_V1: &str = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                             cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n\
                             cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";

    #[test]
    fn groups_of_version_1() {
        let groups = "9:name=systemd:/\n7:blkio:/sluice-1\n2:cpuacct:/\n1:cpu:/sluice-1\n0::/\n";
        let group = Group::find(groups, MOUNTS_V1).unwrap();
        assert_eq!(group.cpu_stat, Some("/sys/fs/cgroup/cpu/sluice-1/cpu.stat".into()));
        let file = "/sys/fs/cgroup/blkio/sluice-1/blkio.throttle.io_serviced";
        assert_eq!(group.io, Some(IoFile::V1(file.into())));
        assert_eq!(Group::find("1:cpu:/\n0::/\n", MOUNTS_V1), None);
    }

    #[test]
    fn groups_of_version_2() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let group = Group::find("0::/user.slice/sluice\n", mounts).unwrap();
        assert_eq!(group.cpu_stat, Some("/sys/fs/cgroup/user.slice/sluice/cpu.stat".into()));
        assert_eq!(group.io, Some(IoFile::V2("/sys/fs/cgroup/user.slice/sluice/io.stat".into())));
    }

    #[test]
    fn requests() {
        assert_eq!(requests_v2("254:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:0 rios=1 wios=1\n"), (4.0, 5.0));
        assert_eq!(requests_v1("254:0 Read 3\n254:0 Write 4\n254:0 Total 7\nTotal 7\n"), (3.0, 4.0));
    }
}
