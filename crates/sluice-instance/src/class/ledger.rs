//! The groups that an instance has made, listed on disk, so that the next start finds those that a killed one left,
//! wherever that one was started.
//!
//! `DIR/cgroups` has a path a line, and is written before a group is made. Only paths that end in the instance's own
//! name count, and a group is removed only if the kernel finds it empty.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Obstacle, group_fs::GroupFs};
use crate::files::{self, Owner};

#[derive(Debug)]
pub(super) struct Ledger {
    file: PathBuf,
    /// The last part of each group's path.
    name: String,
    groups: Vec<PathBuf>,
}

impl Ledger {
    /// Reads the file; a missing one lists no groups.
    pub(super) fn read(file: PathBuf, name: String) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let groups = text.lines().map(PathBuf::from).filter(|group| group.is_absolute() && group.ends_with(&name));
        Self { groups: groups.collect(), file, name }
    }

    /// The instance's group within another.
    pub(super) fn group_in(&self, parent: &Path) -> PathBuf {
        parent.join(&self.name)
    }

    pub(super) fn groups(&self) -> &[PathBuf] {
        &self.groups
    }

    /// Notes a group that is about to be made.
    pub(super) fn add(&mut self, group: &Path) -> Result<(), Obstacle> {
        if self.groups.iter().any(|known| known == group) {
            return Ok(());
        }
        self.groups.push(group.to_owned());
        self.write().map_err(|error| Obstacle::file("write", &self.file, &error))
    }

    /// Removes the groups that are not in `keep`; returns those that were there and are gone now.
    pub(super) fn remove(&mut self, fs: &dyn GroupFs, keep: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut removed = Vec::new();
        let before = self.groups.len();
        self.groups.retain(|group| {
            if keep(group) {
                return true;
            }
            match fs.remove(group) {
                Ok(()) => removed.push(group.clone()),
                Err(error) => return error.kind() != io::ErrorKind::NotFound,
            }
            false
        });
        if self.groups.len() < before
            && let Err(error) = self.write()
        {
            // The next start finds groups that are gone, and strikes them out.
            tracing::warn!(%error, file = %self.file.display(), "cannot note that control groups are gone");
        }
        removed
    }

    fn write(&self) -> io::Result<()> {
        if self.groups.is_empty() {
            return fs::remove_file(&self.file);
        }
        // Names of groups are the kernel's or systemd's, and ours; one that is not UTF-8 would not be found again.
        let text: String = self.groups.iter().map(|group| format!("{}\n", group.display())).collect();
        files::write_private(&self.file, text.as_bytes(), Owner::Us)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::group_fs::Kernel, *};

    #[test]
    fn what_was_left_is_found_by_its_name_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cgroups");
        let ours = dir.path().join("a/sluice-1");
        let other = dir.path().join("a/sluice-2");
        let full = dir.path().join("b/sluice-1");
        for folder in [&ours, &other, &full.join("child")] {
            fs::create_dir_all(folder).unwrap();
        }
        let gone = dir.path().join("gone/sluice-1");
        let lines = [&ours, &other, &full, &gone].map(|path| format!("{}\n", path.display())).concat();
        fs::write(&file, format!("{lines}sluice-1\n\n")).unwrap();

        let open = || Ledger::read(file.clone(), "sluice-1".to_owned());
        assert_eq!(open().remove(&Kernel, |_| false), std::slice::from_ref(&ours));
        assert!(!ours.exists() && other.exists() && full.exists());
        assert_eq!(open().groups(), std::slice::from_ref(&full));

        fs::remove_dir(full.join("child")).unwrap();
        assert_eq!(open().remove(&Kernel, |_| false), [full]);
        assert!(!file.exists());
    }

    #[test]
    fn noted_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cgroups");
        let mut ledger = Ledger::read(file.clone(), "sluice-1".to_owned());
        let group = ledger.group_in(dir.path());
        ledger.add(&group).unwrap();
        ledger.add(&group).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", group.display()));
        assert!(ledger.remove(&Kernel, |_| false).is_empty());
        assert!(!file.exists());
    }
}
