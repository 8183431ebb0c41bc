//! Files that appear whole or not at all, and those that may not be there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::Path,
};

use nix::fcntl::OFlag;

use crate::run_as::RunAs;

/// The owner of a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'a> {
    /// The user of this process.
    Us,
    /// The user that runs PostgreSQL.
    Postgres(&'a RunAs),
}

/// What was done to a file, or read from it; `None` where there is no such file.
pub(crate) fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a file in a folder of PostgreSQL's user, which has to be that user's own where root reads it.
///
/// What is read goes into files that PostgreSQL can read. Behind a symbolic link there may be one that only root can.
pub(crate) fn read_of_postgres(path: &Path, run_as: &RunAs) -> io::Result<String> {
    // A pipe in its place would hold the open up for ever.
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    if run_as.switches() && metadata.uid() != run_as.uid() {
        let why = format!("it, or the file that it is a link to, does not belong to {}", run_as.name());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file that only its owner can read (mode 0600), by way of a temporary one beside it and a rename.
///
/// A symbolic link that somebody put in the file's place is replaced, never followed: root writes into folders that
/// belong to PostgreSQL's user.
pub(crate) fn write_private(path: &Path, contents: &[u8], owner: Owner<'_>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    if_there(fs::remove_file(&temporary))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = write_all(&mut file, contents, owner).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_all(file: &mut File, contents: &[u8], owner: Owner<'_>) -> io::Result<()> {
    // The umask may have taken bits away, never added any.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    give(file, owner)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Hands an open file to its owner.
pub(crate) fn give(file: &File, owner: Owner<'_>) -> io::Result<()> {
    match owner {
        Owner::Postgres(run_as) if run_as.switches() => fchown(file, Some(run_as.uid()), Some(run_as.gid())),
        Owner::Postgres(_) | Owner::Us => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn private_and_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, path) = (dir.path().join("target"), dir.path().join("file"));
        fs::write(&target, "untouched").unwrap();
        symlink(&target, &path).unwrap();
        symlink(&target, dir.path().join("file.new")).unwrap();

        write_private(&path, b"one", Owner::Us).unwrap();
        write_private(&path, b"two", Owner::Us).unwrap();

        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert!(!dir.path().join("file.new").exists());
    }
}
