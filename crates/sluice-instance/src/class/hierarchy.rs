//! The hierarchies of control groups on this machine, and the groups that a process is in.
//!
//! Read from `/proc/self/mountinfo` and `/proc/PID/cgroup` (proc(5), cgroups(7)). Both versions may be mounted at
//! once, with a controller in one of them only. Nothing is changed here.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// The controller of the kernel that a limit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Requests to disks.
    Io,
}

/// The folder of a group, by the version of control groups that says how its files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupDir<'a> {
    /// Of a hierarchy of version 1.
    V1(&'a Path),
    /// Of version 2.
    V2(&'a Path),
}

impl Controller {
    /// Its name in version 1.
    pub(super) fn v1(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "blkio",
        }
    }

    /// Its name in version 2.
    pub(super) fn v2(self) -> &'static str {
        match self {
            Self::Io => "io",
            other => other.v1(),
        }
    }
}

/// A mounted hierarchy of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    controllers: Vec<String>,
    mount: PathBuf,
    /// The process's group in it.
    own: PathBuf,
}

/// The hierarchies in which a process's group can be seen from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    v1: Vec<Hierarchy>,
    /// The mount point of version 2, and the process's group.
    v2: Option<(PathBuf, PathBuf)>,
}

impl Hierarchies {
    /// Those of this process; without `/proc` there are none.
    pub fn current() -> Self {
        Self::of(std::process::id())
    }

    /// Those of a process.
    pub fn of(pid: u32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/self/mountinfo"), &read(&format!("/proc/{pid}/cgroup")))
    }

    /// Those of a `mountinfo` and a `cgroup` file.
    pub fn parse(mountinfo: &str, cgroup: &str) -> Self {
        let memberships: Vec<Membership<'_>> = cgroup.lines().filter_map(Membership::parse).collect();
        let mut found = Self::default();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            match mount.file_system {
                "cgroup" => found.v1.extend(mount.v1(&memberships)),
                "cgroup2" if found.v2.is_none() => found.v2 = mount.v2(&memberships),
                _ => {}
            }
        }
        found
    }

    /// The own group in the hierarchy of version 1 that has a controller.
    pub(super) fn v1(&self, controller: Controller) -> Option<&Path> {
        self.with(controller).map(|hierarchy| hierarchy.own.as_path())
    }

    /// The own group in the hierarchy of version 2.
    pub(super) fn v2(&self) -> Option<&Path> {
        self.v2.as_ref().map(|(_, own)| own.as_path())
    }

    /// The group that a controller counts the process in, unless it is the root of the hierarchy, which has no limits.
    /// In a container, what is mounted may be a group of its own; only version 2 tells.
    pub fn own(&self, controller: Controller) -> Option<GroupDir<'_>> {
        match self.with(controller) {
            Some(hierarchy) => (hierarchy.own != hierarchy.mount).then_some(GroupDir::V1(&hierarchy.own)),
            None => {
                let (mount, own) = self.v2.as_ref()?;
                (own != mount || own.join("cgroup.type").exists()).then_some(GroupDir::V2(own))
            }
        }
    }

    /// The lowest limit of memory on the way from the own group up to the mount point, in bytes; `None` if there is
    /// none. What version 1 says where nothing is limited is more than any machine has.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        let limit = |group: GroupDir<'_>| match group {
            GroupDir::V1(dir) => read(dir, "memory.limit_in_bytes")?.parse().ok(),
            GroupDir::V2(dir) => read(dir, "memory.max")?.parse().ok(),
        };
        self.on_the_way(Controller::Memory).filter_map(limit).min()
    }

    /// The lowest quota of processors on the same way; `None` if there is none.
    pub fn cpu_quota(&self) -> Option<f64> {
        let limit = |group: GroupDir<'_>| match group {
            GroupDir::V1(dir) => quota(&read(dir, "cpu.cfs_quota_us")?, &read(dir, "cpu.cfs_period_us")?),
            GroupDir::V2(dir) => read(dir, "cpu.max")?.split_once(' ').and_then(|(time, period)| quota(time, period)),
        };
        self.on_the_way(Controller::Cpu).filter_map(limit).min_by(f64::total_cmp)
    }

    /// Limits of requests to disks in the nearest group that has some, in the words of version 2:
    /// `254:0 riops=400 wiops=400`.
    pub fn io_limits(&self) -> Vec<String> {
        const V1: [(&str, &str); 4] =
            [("rbps", "read_bps"), ("wbps", "write_bps"), ("riops", "read_iops"), ("wiops", "write_iops")];
        let limits = |group: GroupDir<'_>| -> Vec<String> {
            match group {
                GroupDir::V1(dir) => {
                    let of = |(word, name): (&str, &str)| {
                        let text = read(dir, &format!("blkio.throttle.{name}_device")).unwrap_or_default();
                        let lines = text.lines().filter_map(|line| line.split_once(' '));
                        lines.map(|(disk, limit)| format!("{disk} {word}={limit}")).collect::<Vec<_>>()
                    };
                    V1.into_iter().flat_map(of).collect()
                }
                GroupDir::V2(dir) => read(dir, "io.max").unwrap_or_default().lines().map(str::to_owned).collect(),
            }
        };
        self.on_the_way(Controller::Io).map(limits).find(|limits| !limits.is_empty()).unwrap_or_default()
    }

    /// The own group and all above it, up to the mount point, in both versions.
    fn on_the_way(&self, controller: Controller) -> impl Iterator<Item = GroupDir<'_>> {
        fn up<'a>(mount: &'a Path, own: &'a Path) -> impl Iterator<Item = &'a Path> {
            own.ancestors().take_while(move |dir| dir.starts_with(mount))
        }
        let v1 = self.with(controller).into_iter().flat_map(|hierarchy| up(&hierarchy.mount, &hierarchy.own));
        let v2 = self.v2.iter().flat_map(|(mount, own)| up(mount, own));
        v1.map(GroupDir::V1).chain(v2.map(GroupDir::V2))
    }

    /// The hierarchy of version 1 that has a controller.
    fn with(&self, controller: Controller) -> Option<&Hierarchy> {
        let has = |hierarchy: &&Hierarchy| hierarchy.controllers.iter().any(|name| name == controller.v1());
        self.v1.iter().find(has)
    }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    Some(fs::read_to_string(dir.join(file)).ok()?.trim().to_owned())
}

/// Processors, by the time that may be used in a period. `max`, or a time below zero, is no quota.
fn quota(time_us: &str, period_us: &str) -> Option<f64> {
    let (time_us, period_us): (f64, f64) = (time_us.parse().ok()?, period_us.parse().ok()?);
    (time_us > 0.0 && period_us > 0.0).then(|| time_us / period_us)
}

/// A line of `/proc/self/cgroup`: `4:memory:/docker/1f`, `0::/init.scope`.
struct Membership<'a> {
    controllers: Vec<&'a str>,
    path: &'a Path,
}

impl<'a> Membership<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).collect();
        Some(Self { controllers, path: Path::new(path) })
    }
}

/// A line of `/proc/self/mountinfo`:
/// `35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`.
struct Mount<'a> {
    /// The part of the hierarchy that is seen at the mount point.
    root: PathBuf,
    point: PathBuf,
    file_system: &'a str,
    options: Vec<&'a str>,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (unescape(place.next()?), unescape(place.next()?));
        let mut kind = kind.split(' ');
        let file_system = kind.next()?;
        let options = kind.nth(1).unwrap_or_default().split(',').collect();
        Some(Self { root, point, file_system, options })
    }

    fn v1(self, memberships: &[Membership<'_>]) -> Option<Hierarchy> {
        let same = |membership: &&Membership<'_>| {
            let first = membership.controllers.first();
            first.is_some_and(|first| self.options.contains(first))
        };
        let membership = memberships.iter().find(same)?;
        let controllers = membership.controllers.iter().map(|&name| name.to_owned()).collect();
        Some(Hierarchy { controllers, own: self.dir_of(membership.path)?, mount: self.point })
    }

    fn v2(self, memberships: &[Membership<'_>]) -> Option<(PathBuf, PathBuf)> {
        let membership = memberships.iter().find(|membership| membership.controllers.is_empty())?;
        Some((self.point.clone(), self.dir_of(membership.path)?))
    }

    /// The folder of a group; `None` if it is outside of what is mounted here.
    fn dir_of(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let visible = below.components().all(|part| matches!(part, Component::Normal(_)));
        // Joined part by part, so that the mount point itself gets no slash at its end.
        visible.then(|| below.components().fold(self.point.clone(), |dir, part| dir.join(part)))
    }
}

/// A path as mountinfo writes it: blanks, tabs, line ends and backslashes are three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/1f /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn own(mountinfo: &str, cgroup: &str, controller: Controller) -> Option<String> {
        let found = Hierarchies::parse(mountinfo, cgroup);
        let own = found.v1(controller).or(found.v2());
        own.map(|path| path.to_str().unwrap().to_owned())
    }

    #[test]
    fn own_groups() {
        use Controller::{Cpu, Io, Memory};
        let v1 = "4:memory:/docker/1f/x\n3:cpu,cpuacct:/\n2:blkio:/../up\n1:name=systemd:/\n0::/\n";
        let v2 = "0::/user.slice/session-3.scope\n";
        for (mountinfo, cgroup, controller, expected) in [
            (V1, v1, Cpu, Some("/sys/fs/cgroup/cpu,cpuacct")),
            (V1, v1, Memory, Some("/sys/fs/cgroup/memory/x")),
            // Outside of this process's namespace.
            (V1, v1, Io, None),
            // Outside of what is mounted.
            (V1, "4:memory:/\n", Memory, None),
            (V2, v2, Io, Some("/sys/fs/cgroup/user.slice/session-3.scope")),
            ("", v2, Io, None),
            (V2, "", Io, None),
        ] {
            assert_eq!(own(mountinfo, cgroup, controller).as_deref(), expected, "{cgroup} {controller:?}");
        }
    }

    #[test]
    fn both_versions_at_once() {
        let v2 = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(&format!("{V1}{v2}"), "4:memory:/docker/1f\n0::/a\n");
        assert_eq!(found.v1(Controller::Memory), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(found.v2(), Some(Path::new("/sys/fs/cgroup/unified/a")));
    }

    #[test]
    fn groups_that_may_have_limits() {
        let found = Hierarchies::parse(V1, "4:memory:/docker/1f/x\n3:cpu,cpuacct:/\n0::/\n");
        assert_eq!(found.own(Controller::Memory), Some(GroupDir::V1(Path::new("/sys/fs/cgroup/memory/x"))));
        assert_eq!(found.own(Controller::Cpu), None);
        let hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(&format!("{V1}{hybrid}"), "3:cpu,cpuacct:/\n0::/a\n");
        assert_eq!(found.own(Controller::Cpu), None);
        let found = Hierarchies::parse(V2, "0::/user.slice\n");
        assert_eq!(found.own(Controller::Io), Some(GroupDir::V2(Path::new("/sys/fs/cgroup/user.slice"))));
    }

    #[test]
    fn the_lowest_quota_of_processors() {
        let root = tempfile::tempdir().unwrap();
        let point = root.path().to_str().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let v2 = Hierarchies::parse(&format!("1 2 0:3 / {point} rw - cgroup2 cgroup2 rw\n"), "0::/a/b\n");
        fs::write(root.path().join("a/b/cpu.max"), "max 100000\n").unwrap();
        assert_eq!(v2.cpu_quota(), None);
        fs::write(root.path().join("a/cpu.max"), "150000 100000\n").unwrap();
        assert_eq!(v2.cpu_quota(), Some(1.5));

        let v1 = Hierarchies::parse(&format!("1 2 0:3 / {point} rw - cgroup cgroup rw,cpu\n"), "4:cpu:/a\n");
        fs::write(root.path().join("a/cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(root.path().join("a/cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(v1.cpu_quota(), None);
        fs::write(root.path().join("a/cpu.cfs_quota_us"), "50000\n").unwrap();
        assert_eq!(v1.cpu_quota(), Some(0.5));
    }

    #[test]
    fn escapes() {
        for (text, expected) in [("/a\\040b", "/a b"), ("/a\\134", "/a\\"), ("/a\\04", "/a\\04"), ("/é", "/é")] {
            assert_eq!(unescape(text), Path::new(expected));
        }
    }

    #[test]
    fn the_lowest_limit_of_memory() {
        let root = tempfile::tempdir().unwrap();
        let point = root.path().to_str().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let v2 = Hierarchies::parse(&format!("1 2 0:3 / {point} rw - cgroup2 cgroup2 rw\n"), "0::/a/b\n");
        assert_eq!(v2.memory_limit_bytes(), None);
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "4096000\n").unwrap();
        assert_eq!(v2.memory_limit_bytes(), Some(4_096_000));

        let v1 = Hierarchies::parse(&format!("1 2 0:3 / {point} rw - cgroup cgroup rw,memory\n"), "4:memory:/a\n");
        fs::write(root.path().join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(v1.memory_limit_bytes(), Some(9_223_372_036_854_771_712));
        fs::write(root.path().join("a/memory.limit_in_bytes"), "8192\n").unwrap();
        assert_eq!(v1.memory_limit_bytes(), Some(8192));
    }
}
