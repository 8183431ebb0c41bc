//! The file system of control groups: groups are folders, limits are files that the kernel makes with them.
//!
//! A trait, so that the rest can be tested against a folder that behaves like it.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use super::Obstacle;

/// The file that lists a group's processes, and takes new ones.
pub(super) const PROCS: &str = "cgroup.procs";

/// Operations on groups.
pub(super) trait GroupFs: fmt::Debug + Send + Sync {
    /// Makes a group.
    fn make(&self, group: &Path) -> io::Result<()>;

    /// Removes a group; the kernel refuses while a process or another group is in it.
    fn remove(&self, group: &Path) -> io::Result<()>;

    /// Whether a file or group is there.
    fn exists(&self, path: &Path) -> bool;

    /// All of a file.
    fn read(&self, file: &Path) -> io::Result<String>;

    /// Writes to a file that exists, in one system call: that is how the kernel tells one command from the next.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
}

/// The kernel's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel;

impl GroupFs for Kernel {
    fn make(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        fs::read_to_string(file)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
    }
}

/// The processes of a group; 0 stands for one of another namespace (pid_namespaces(7)).
pub(super) fn processes(files: &dyn GroupFs, group: &Path) -> Result<Vec<u32>, Obstacle> {
    let file = group.join(PROCS);
    let text = files.read(&file).map_err(|error| Obstacle::file("read", &file, &error))?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Moves a process with all its threads into a group, and looks whether it is there.
pub(super) fn admit(files: &dyn GroupFs, group: &Path, pid: u32) -> Result<(), Obstacle> {
    let file = group.join(PROCS);
    files.write(&file, &pid.to_string()).map_err(|error| Obstacle::file("write", &file, &error))?;
    match processes(files, group)?.contains(&pid) {
        true => Ok(()),
        false => Err(Obstacle::NotMember { pid, group: group.to_owned() }),
    }
}
