//! The disk that a data directory is on, named as control groups name it. Looks only.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::sys::stat::{major, minor};

use super::Obstacle;

/// A whole disk, by its numbers (its `Display`: `8:0`); limits are not set on partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    major: u64,
    minor: u64,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Disk {
    pub(super) fn new(major: u64, minor: u64) -> Self {
        Self { major, minor }
    }

    /// The disk below the file system of `path`.
    ///
    /// # Errors
    ///
    /// [`Obstacle::NoDisk`] for a file system that has none of its own; [`Obstacle`] if `path` can't be looked at.
    pub fn below(path: &Path) -> Result<Self, Obstacle> {
        let none = |file_system| Obstacle::NoDisk { path: path.to_owned(), file_system };
        let metadata = fs::metadata(path).map_err(|error| Obstacle::file("look at", path, &error))?;
        let (major, minor) = (major(metadata.dev()), minor(metadata.dev()));
        Self::whole(Path::new("/sys/dev/block"), major, minor).ok_or_else(|| {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            none(file_system(&mounts, major, minor))
        })
    }

    /// The kernel's name of it: `sda`.
    pub fn name(&self) -> Option<String> {
        let device = fs::canonicalize(format!("/sys/dev/block/{self}")).ok()?;
        Some(device.file_name()?.to_string_lossy().into_owned())
    }

    /// The disk that a block device is, or is a partition of; `blocks` is a folder like `/sys/dev/block`, whose links
    /// lead to a folder a device, that of a partition within that of its disk.
    fn whole(blocks: &Path, major: u64, minor: u64) -> Option<Self> {
        let device: PathBuf = blocks.join(format!("{major}:{minor}")).canonicalize().ok()?;
        if !device.join("partition").exists() {
            return Some(Self::new(major, minor));
        }
        let numbers = fs::read_to_string(device.parent()?.join("dev")).ok()?;
        let (major, minor) = numbers.trim().split_once(':')?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The kind of the file system with these numbers, by a `mountinfo` (proc(5)). Btrfs is not found by them.
fn file_system(mountinfo: &str, major: u64, minor: u64) -> String {
    let numbers = format!("{major}:{minor}");
    let same = |line: &&str| line.split(' ').nth(2) == Some(numbers.as_str());
    let kind = |line: &str| Some(line.split_once(" - ")?.1.split(' ').next()?.to_owned());
    mountinfo.lines().find(same).and_then(kind).unwrap_or_else(|| "a file system".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn partitions_are_part_of_a_disk() {
        let sys = tempfile::tempdir().unwrap();
        let partition = sys.path().join("devices/nvme0n1/nvme0n1p2");
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "2\n").unwrap();
        fs::write(partition.join("dev"), "259:2\n").unwrap();
        fs::write(sys.path().join("devices/nvme0n1/dev"), "259:0\n").unwrap();
        let blocks = sys.path().join("dev");
        fs::create_dir(&blocks).unwrap();
        symlink("../devices/nvme0n1/nvme0n1p2", blocks.join("259:2")).unwrap();
        symlink("../devices/nvme0n1", blocks.join("259:0")).unwrap();

        let disk = Disk::new(259, 0);
        assert_eq!(Disk::whole(&blocks, 259, 2), Some(disk));
        assert_eq!(Disk::whole(&blocks, 259, 0), Some(disk));
        assert_eq!(Disk::whole(&blocks, 0, 44), None);
        assert_eq!(disk.to_string(), "259:0");
    }

    #[test]
    fn file_systems_without_a_disk() {
        let mounts = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
99 27 0:44 / / rw,relatime - overlay overlay rw,lowerdir=/a
";
        assert_eq!(file_system(mounts, 0, 44), "overlay");
        assert_eq!(file_system(mounts, 0, 45), "a file system");
        let Err(obstacle) = Disk::below(Path::new("/proc")) else { panic!("/proc has no disk") };
        assert!(obstacle.to_string().contains("/proc is on proc"), "{obstacle}");
    }
}
