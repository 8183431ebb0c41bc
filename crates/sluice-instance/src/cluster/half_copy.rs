//! A copy of data that was interrupted: it is no data, and Patroni neither goes on with it nor begins anew.

use std::{fs, io, path::Path};

use super::earlier;
use crate::files::if_there;

/// Ends whoever copies data to there, of an earlier Patroni's, and removes what such a copy has left; says whether there
/// was something.
///
/// A base backup begins with its label and ends with the control file ("pg_basebackup" in PostgreSQL's documentation).
/// Where the first is there and the last is not, and no PostgreSQL has ever been started, nothing of anybody's is lost. A
/// copy with tablespaces of its own is left for its operator to look at.
pub(super) fn remove(pgdata: &Path) -> io::Result<bool> {
    // Its place may be a link to another disk, and stays one.
    let Some(pgdata) = if_there(pgdata.canonicalize())? else { return Ok(false) };
    // One that fails at its very end removes all, and PostgreSQL may run on that by then.
    if !earlier::end_copies(&pgdata) {
        return Err(io::Error::other("pg_basebackup still writes there, and does not end"));
    }
    if !is_one(&pgdata) {
        return Ok(false);
    }
    for entry in fs::read_dir(&pgdata)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(true)
}

fn is_one(pgdata: &Path) -> bool {
    // What can't be looked at may be there.
    let lacks = |file: &str| matches!(pgdata.join(file).try_exists(), Ok(false));
    let has_tablespaces = || {
        let mut entries = fs::read_dir(pgdata.join("pg_tblspc")).into_iter().flatten();
        entries.next().is_some()
    };
    pgdata.join("backup_label").is_file()
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
        let (pgdata, place) = (home.path().join("disk2/pgdata"), home.path().join("pgdata"));
        symlink(&pgdata, &place).unwrap();
        assert!(!remove(&place).unwrap());
        fs::create_dir_all(pgdata.join("global")).unwrap();
        fs::write(pgdata.join("PG_VERSION"), "15\n").unwrap();
        assert!(!remove(&place).unwrap(), "it is no base backup");
        fs::write(pgdata.join("backup_label"), "").unwrap();
        for file in ["global/pg_control", "postmaster.opts"] {
            fs::write(pgdata.join(file), "").unwrap();
            assert!(!remove(&place).unwrap(), "{file}");
            fs::remove_file(pgdata.join(file)).unwrap();
        }
        fs::create_dir_all(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(!remove(&place).unwrap(), "it has a tablespace");
        fs::remove_dir(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(remove(&place).unwrap() && place.is_symlink());
        assert_eq!(fs::read_dir(&pgdata).unwrap().count(), 0);
    }
}
