//! A folder that behaves like the file system of control groups, as far as Sluice uses it: files come with a group,
//! a process is in one group of a hierarchy, a used group can't be removed, and version 2 does not divide a group
//! that has processes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nix::errno::Errno;
use tempfile::TempDir;

use super::{group_fs::GroupFs, hierarchy::Hierarchies};

const V1_FILES: [(&str, &[&str]); 3] = [
    ("cpu", &["cpu.cfs_period_us", "cpu.cfs_quota_us"]),
    ("memory", &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
    ("blkio", &["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"]),
];
const V2_FILES: [(&str, &[&str]); 3] =
    [("cpu", &["cpu.max"]), ("memory", &["memory.max", "memory.swap.max"]), ("io", &["io.max"])];

#[derive(Debug)]
pub(super) struct Fake {
    /// Removed with the test's own value, not with those that groups hold.
    _dir: Option<TempDir>,
    root: PathBuf,
    refusals: Vec<(&'static str, Option<Errno>)>,
}

impl Fake {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { root: dir.path().to_owned(), _dir: Some(dir), refusals: Vec::new() }
    }

    /// Lets files that end so not be written, or be written in vain (no error).
    pub(super) fn refusing(mut self, file: &'static str, errno: Option<Errno>) -> Self {
        self.refusals.push((file, errno));
        self
    }

    /// For groups to work on.
    pub(super) fn files(&self) -> Box<dyn GroupFs> {
        Box::new(Self { _dir: None, root: self.root.clone(), refusals: self.refusals.clone() })
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim().to_owned()
    }

    /// Mounts a hierarchy of version 1.
    pub(super) fn v1(&self, controller: &str) {
        fs::create_dir(self.path(controller)).unwrap();
        self.put(&format!("{controller}/cgroup.procs"), "");
    }

    /// Mounts version 2 with a group `own`, which other groups know to hold `processes`.
    pub(super) fn v2(&self, own: &str, controllers: &str, processes: &str) {
        let dir = format!("v2/{own}");
        fs::create_dir_all(self.path(&dir)).unwrap();
        if !own.is_empty() {
            self.put(&format!("{dir}/cgroup.type"), "domain\n");
        }
        self.put(&format!("{dir}/cgroup.controllers"), controllers);
        self.put(&format!("{dir}/cgroup.subtree_control"), "");
        self.put(&format!("{dir}/cgroup.procs"), processes);
    }

    /// The hierarchies that the kernel shows to a process in `own` of version 2, and in the root of each of version 1.
    pub(super) fn hierarchies(&self, own: &str) -> Hierarchies {
        let root = self.root.display();
        let v1 = V1_FILES.iter().map(|(name, _)| *name).filter(|name| self.path(name).exists());
        let mounts: String =
            v1.clone().map(|name| format!("1 2 0:3 / {root}/{name} rw - cgroup cgroup rw,{name}\n")).collect();
        let groups: String = v1.map(|name| format!("4:{name}:/\n")).collect();
        Hierarchies::parse(
            &format!("{mounts}9 2 0:9 / {root}/v2 rw - cgroup2 cgroup2 rw\n"),
            &if self.path("v2").exists() { format!("{groups}0::/{own}\n") } else { groups },
        )
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    /// The files that a controller adds to a group.
    fn add_files(group: &Path, table: [(&str, &[&str]); 3], controllers: &str) -> io::Result<()> {
        let has = |name: &str| controllers.split_whitespace().any(|controller| controller == name);
        let files = table.iter().filter(|(name, _)| has(name)).flat_map(|(_, files)| files.iter());
        files.map(|file| group.join(file)).filter(|file| !file.exists()).try_for_each(|file| fs::write(file, "max\n"))
    }

    /// Takes a process out of every group below `dir`.
    fn take_out(dir: &Path, pid: &str) -> io::Result<()> {
        let file = dir.join("cgroup.procs");
        if let Ok(text) = fs::read_to_string(&file) {
            let left = text.lines().filter(|line| *line != pid).map(|line| format!("{line}\n"));
            fs::write(file, left.collect::<String>())?;
        }
        folders(dir).try_for_each(|child| Self::take_out(&child, pid))
    }

    fn enable(group: &Path, text: &str) -> io::Result<()> {
        let is_used = !fs::read_to_string(group.join("cgroup.procs"))?.is_empty();
        if is_used && group.join("cgroup.type").exists() {
            return Err(Errno::EBUSY.into());
        }
        let file = group.join("cgroup.subtree_control");
        let enabled = format!("{} {}", fs::read_to_string(&file)?.trim(), text.trim_start_matches('+'));
        fs::write(file, format!("{}\n", enabled.trim()))?;
        folders(group).try_for_each(|child| Self::add_files(&child, V2_FILES, &enabled))
    }
}

fn folders(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
}

impl GroupFs for Fake {
    fn make(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)?;
        fs::write(group.join("cgroup.procs"), "")?;
        let parent = group.parent().unwrap();
        match fs::read_to_string(parent.join("cgroup.subtree_control")) {
            Ok(controllers) => {
                for (file, text) in [
                    ("cgroup.type", "domain\n"),
                    ("cgroup.controllers", controllers.as_str()),
                    ("cgroup.subtree_control", ""),
                ] {
                    fs::write(group.join(file), text)?;
                }
                Self::add_files(group, V2_FILES, &controllers)
            }
            Err(_) => Self::add_files(group, V1_FILES, parent.file_name().unwrap().to_str().unwrap()),
        }
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        let is_used = !fs::read_to_string(group.join("cgroup.procs"))?.is_empty();
        if is_used || folders(group).next().is_some() {
            return Err(Errno::EBUSY.into());
        }
        fs::remove_dir_all(group)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        fs::read_to_string(file)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        if let Some((_, refusal)) = self.refusals.iter().find(|(end, _)| file.ends_with(end)) {
            return refusal.map_or(Ok(()), |errno| Err(errno.into()));
        }
        if !file.exists() {
            return Err(Errno::ENOENT.into());
        }
        let group = file.parent().unwrap();
        match file.file_name().unwrap().to_str().unwrap() {
            "cgroup.procs" => {
                let hierarchy = group.strip_prefix(&self.root).unwrap().components().next().unwrap();
                Self::take_out(&self.root.join(hierarchy), text)?;
                fs::write(file, format!("{}{text}\n", fs::read_to_string(file)?))
            }
            "cgroup.subtree_control" => Self::enable(group, text),
            "io.max" => fs::write(file, format!("{}\n", text.replacen(' ', " rbps=max wbps=max ", 1))),
            _ => fs::write(file, format!("{text}\n")),
        }
    }
}
