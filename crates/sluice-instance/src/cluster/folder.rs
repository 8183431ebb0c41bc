//! Folders of PostgreSQL's user.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, lchown},
    path::Path,
};

use super::ClusterError;
use crate::run_as::RunAs;

/// Folders in each other at most: etcd has three.
const DEPTH_MAX: usize = 16;

/// Makes one, closed to others. One that is there becomes that user's.
pub(super) fn make_dir(path: &Path, run_as: &RunAs) -> Result<(), ClusterError> {
    let made = match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) => Ok(()),
        Err(_) => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
    };
    let owned = made
        .and_then(|()| if run_as.switches() { chown(path, Some(run_as.uid()), Some(run_as.gid())) } else { Ok(()) });
    owned.map_err(ClusterError::io("create", path))
}

/// The same, with all that is in it: the user of etcd is another one where a host with data becomes the witness, or the
/// witness gets data.
pub(super) fn make_tree(path: &Path, run_as: &RunAs) -> Result<(), ClusterError> {
    make_dir(path, run_as)?;
    if !run_as.switches() {
        return Ok(());
    }
    let give = |path: &Path| lchown(path, Some(run_as.uid()), Some(run_as.gid()));
    give_below(path, run_as.uid(), &give, DEPTH_MAX).map_err(ClusterError::io("change the owner of the files in", path))
}

/// Gives away what is not that user's; never what a link leads to.
fn give_below(dir: &Path, uid: u32, give: &dyn Fn(&Path) -> io::Result<()>, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        let is_file = metadata.is_file() && metadata.nlink() == 1;
        if metadata.uid() != uid && (is_file || metadata.is_dir()) {
            give(&path)?;
        }
        if metadata.is_dir() && depth > 0 {
            give_below(&path, uid, give, depth - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn all_of_another_user_is_given_away_but_links() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("etcd");
        fs::create_dir_all(dir.join("member/wal")).unwrap();
        fs::write(dir.join("member/wal/0.wal"), "").unwrap();
        fs::write(place.path().join("elsewhere"), "").unwrap();
        symlink(place.path(), dir.join("member/link")).unwrap();
        fs::hard_link(place.path().join("elsewhere"), dir.join("member/hard")).unwrap();
        let uid = fs::metadata(&dir).unwrap().uid();
        let given = |uid| {
            let given = RefCell::new(Vec::new());
            let give = |path: &Path| -> io::Result<()> {
                given.borrow_mut().push(path.strip_prefix(&dir).unwrap().display().to_string());
                Ok(())
            };
            give_below(&dir, uid, &give, DEPTH_MAX).unwrap();
            let mut given = given.into_inner();
            given.sort();
            given
        };
        assert_eq!(given(uid + 1), ["member", "member/wal", "member/wal/0.wal"]);
        assert_eq!(given(uid), [""; 0]);
    }

    #[test]
    fn a_tree_becomes_its_users() {
        let run_as = RunAs::resolve(None).unwrap();
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("etcd");
        fs::create_dir_all(dir.join("member")).unwrap();
        make_tree(&dir, &run_as).unwrap();
        let metadata = fs::metadata(&dir).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (run_as.uid(), 0o700));
        assert_eq!(fs::metadata(dir.join("member")).unwrap().uid(), run_as.uid());
    }
}
