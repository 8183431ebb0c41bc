//! A copy of data that was interrupted: it is no data, and Patroni neither goes on with it nor begins anew.

use std::{fs, io, path::Path};

use super::{earlier, error::ClusterError};
use crate::{
    event::{Event, Observer},
    files::if_there,
};

/// Beside the data: they are being copied, and were none before.
const MARK: &str = "copying";

/// Notes that a node has no data, if so, before they are copied.
pub(super) fn note(home: &Path) -> io::Result<()> {
    match if_there(fs::read_dir(home.join("pgdata")))?.and_then(|mut entries| entries.next()) {
        Some(_) => Ok(()),
        None => fs::write(home.join(MARK), ""),
    }
}

/// Notes that the data are whole.
pub(super) fn forget(home: &Path) -> io::Result<()> {
    if_there(fs::remove_file(home.join(MARK))).map(drop)
}

/// Removes what an interrupted copy has left of a node's data, before that is started, and tells so.
pub(super) fn clear(home: &Path, observer: &dyn Observer) -> Result<(), ClusterError> {
    if remove(home).map_err(ClusterError::io("remove the half copy in", home))? {
        observer.event(Event::RemovedHalfCopy { path: home.join("pgdata") });
    }
    Ok(())
}

/// Ends whoever copies data to a node, of an earlier Patroni's, and removes what such a copy has left; says whether
/// there was something.
///
/// A base backup begins with its label and ends with the control file ("pg_basebackup" in PostgreSQL's documentation).
/// Where the last is missing and no PostgreSQL has ever been started, the label shows that nothing of anybody's is lost,
/// and so does the note that there had been nothing before: a power failure can take the label. A copy with tablespaces
/// of its own is left for its operator to look at.
pub(super) fn remove(home: &Path) -> io::Result<bool> {
    // Its place may be a link to another disk, and stays one.
    let Some(pgdata) = if_there(home.join("pgdata").canonicalize())? else { return Ok(false) };
    // One that fails at its very end removes all, and PostgreSQL may run on that by then.
    if !earlier::end_copies(&pgdata) {
        return Err(io::Error::other("pg_basebackup still writes there, and does not end"));
    }
    let is_noted = home.join(MARK).is_file();
    if !is_one(&pgdata, is_noted) {
        return Ok(false);
    }
    empty(home, &pgdata, is_noted, &|entry| match entry.file_type()?.is_dir() {
        true => fs::remove_dir_all(entry.path()),
        false => fs::remove_file(entry.path()),
    })
}

/// Removes all that is there; says whether there was something. Interrupted, it is gone on with: the label may be gone by
/// then, but not the note.
fn empty(
    home: &Path,
    pgdata: &Path,
    is_noted: bool,
    remove: &dyn Fn(&fs::DirEntry) -> io::Result<()>,
) -> io::Result<bool> {
    let mut has_some = false;
    for entry in fs::read_dir(pgdata)? {
        if !has_some && !is_noted {
            fs::write(home.join(MARK), "")?;
        }
        has_some = true;
        remove(&entry?)?;
    }
    if !is_noted {
        forget(home)?;
    }
    Ok(has_some)
}

fn is_one(pgdata: &Path, is_noted: bool) -> bool {
    // What can't be looked at may be there.
    let lacks = |file: &str| matches!(pgdata.join(file).try_exists(), Ok(false));
    let has_tablespaces = || {
        let mut entries = fs::read_dir(pgdata.join("pg_tblspc")).into_iter().flatten();
        entries.next().is_some()
    };
    (is_noted || pgdata.join("backup_label").is_file())
        && lacks("global/pg_control")
        && lacks("postmaster.opts")
        && !has_tablespaces()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_lacks_its_end_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let pgdata = home.join("disk2/pgdata");
        symlink(&pgdata, home.join("pgdata")).unwrap();
        assert!(!remove(home).unwrap());
        fs::create_dir_all(pgdata.join("global")).unwrap();
        fs::write(pgdata.join("PG_VERSION"), "15\n").unwrap();
        assert!(!remove(home).unwrap(), "it is no base backup");
        fs::write(pgdata.join("backup_label"), "").unwrap();
        for file in ["global/pg_control", "postmaster.opts"] {
            fs::write(pgdata.join(file), "").unwrap();
            assert!(!remove(home).unwrap(), "{file}");
            fs::remove_file(pgdata.join(file)).unwrap();
        }
        fs::create_dir_all(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(!remove(home).unwrap(), "it has a tablespace");
        fs::remove_dir(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(remove(home).unwrap() && home.join("pgdata").is_symlink());
        assert_eq!(fs::read_dir(&pgdata).unwrap().count(), 0);
        assert!(!remove(home).unwrap(), "there is nothing more");
    }

    #[test]
    fn a_removal_that_was_interrupted_is_gone_on_with() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let pgdata = home.join("pgdata");
        fs::create_dir_all(&pgdata).unwrap();
        for file in ["PG_VERSION", "backup_label"] {
            fs::write(pgdata.join(file), "").unwrap();
        }
        // It ends behind the label, which may come first or last.
        let stops = |_: &fs::DirEntry| {
            if_there(fs::remove_file(pgdata.join("backup_label")))?;
            Err(io::Error::other("interrupted"))
        };
        empty(home, &pgdata, false, &stops).unwrap_err();
        assert!(pgdata.join("PG_VERSION").exists() && remove(home).unwrap());
        assert_eq!(fs::read_dir(&pgdata).unwrap().count(), 0);
    }

    #[test]
    fn one_that_was_noted_need_not_have_its_label() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let copy = || {
            fs::create_dir_all(home.join("pgdata/pg_wal/archive_status")).unwrap();
            fs::write(home.join("pgdata/PG_VERSION"), "15\n").unwrap();
        };
        note(home).unwrap();
        copy();
        assert!(remove(home).unwrap());
        copy();
        forget(home).unwrap();
        forget(home).unwrap();
        assert!(!remove(home).unwrap());
        note(home).unwrap();
        assert!(!remove(home).unwrap(), "there are data, and they are not to be copied");
    }
}
