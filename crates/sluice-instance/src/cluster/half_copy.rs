//! A copy of data that was interrupted: it is no data, and Patroni neither goes on with it nor begins anew.

use std::{fs, io, path::Path};

use super::earlier;

/// Removes a copy that was interrupted, with whoever still makes it; says whether there was one.
///
/// What a cluster's data lack is the control file, which comes last ("pg_basebackup" in PostgreSQL's documentation).
/// Where there is none, and no PostgreSQL has ever been started, nothing of anybody's is lost. A copy with tablespaces of
/// its own is left for its operator to look at.
pub(super) fn remove(pgdata: &Path) -> io::Result<bool> {
    if !is_one(pgdata) {
        return Ok(false);
    }
    if !earlier::end_copies(pgdata) {
        return Err(io::Error::other("pg_basebackup still writes there, and does not end"));
    }
    // It may have come to its end just then.
    if !is_one(pgdata) {
        return Ok(false);
    }
    fs::remove_dir_all(pgdata).map(|()| true)
}

fn is_one(pgdata: &Path) -> bool {
    // What can't be looked at may be there.
    let lacks = |file: &str| matches!(pgdata.join(file).try_exists(), Ok(false));
    let is_empty = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    let has_tablespaces = !lacks("pg_tblspc") && !is_empty(&pgdata.join("pg_tblspc"));
    pgdata.is_dir() && !is_empty(pgdata) && lacks("global/pg_control") && lacks("postmaster.opts") && !has_tablespaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lacks_its_end_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let pgdata = home.path().join("pgdata");
        assert!(!remove(&pgdata).unwrap());
        fs::create_dir_all(pgdata.join("global")).unwrap();
        fs::write(pgdata.join("PG_VERSION"), "15\n").unwrap();
        for file in ["global/pg_control", "postmaster.opts"] {
            fs::write(pgdata.join(file), "").unwrap();
            assert!(!remove(&pgdata).unwrap(), "{file}");
            fs::remove_file(pgdata.join(file)).unwrap();
        }
        fs::create_dir_all(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(!remove(&pgdata).unwrap(), "it has a tablespace");
        fs::remove_dir(pgdata.join("pg_tblspc/16384")).unwrap();
        assert!(remove(&pgdata).unwrap() && !pgdata.exists());
    }
}
