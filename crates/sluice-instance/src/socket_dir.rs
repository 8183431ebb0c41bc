//! The place of PostgreSQL's Unix socket: a folder that nobody else can enter, with a path short enough.
//!
//! A socket's path may have 107 bytes (`sun_path`, unix(7)); a data directory's may be longer.

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use crate::{name, run_as::RunAs};

/// `sizeof(sun_path)` without the closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The longest name that PostgreSQL gives a socket, with its lock file: `/.s.PGSQL.65535.lock`.
const NAME_BYTES: usize = "/.s.PGSQL.65535.lock".len();

/// Finds or makes the folder: `ROOT/run`; if that is too long, one under `/run` (root), `$XDG_RUNTIME_DIR`, or
/// `/tmp`, with a name that follows from `root`.
pub(crate) fn prepare(root: &Path, run_as: &RunAs) -> io::Result<PathBuf> {
    let system = if run_as.switches() { Some("/run".into()) } else { env::var_os("XDG_RUNTIME_DIR") };
    let dir = choose(root, system.map(PathBuf::from).filter(|dir| dir.is_dir()), run_as.uid());
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Ok(()) if run_as.switches() => chown(&dir, Some(run_as.uid()), Some(run_as.gid()))?,
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_existing(&dir, run_as)?,
        Err(error) => return Err(error),
    }
    Ok(dir)
}

/// The choice itself; `system` is a folder for run-time files, if there is one.
fn choose(root: &Path, system: Option<PathBuf>, uid: u32) -> PathBuf {
    let fits = |dir: &PathBuf| dir.as_os_str().len() + NAME_BYTES <= SOCKET_PATH_BYTES_MAX;
    let name = name::of(root);
    [Some(root.join("run")), system.map(|dir| dir.join(&name))]
        .into_iter()
        .flatten()
        .find(fits)
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/{name}-{uid}")))
}

/// A folder that is there already must be the user's, and closed to others: in `/tmp` anybody could have made it.
fn check_existing(dir: &Path, run_as: &RunAs) -> io::Result<()> {
    let metadata = fs::symlink_metadata(dir)?;
    if !metadata.is_dir() {
        return Err(io::Error::other("it is not a folder; remove it"));
    }
    if metadata.uid() != run_as.uid() {
        let owner = metadata.uid();
        let (name, uid) = (run_as.name(), run_as.uid());
        return Err(io::Error::other(format!("it belongs to user id {owner}, not to {name} ({uid}); remove it")));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_short_enough() {
        let long = format!("/{}", "d".repeat(100));
        let runtime = || Some(PathBuf::from("/run"));
        assert_eq!(choose(Path::new("/var/lib/sluice"), runtime(), 7), Path::new("/var/lib/sluice/run"));

        let chosen = choose(Path::new(&long), runtime(), 7);
        assert!(chosen.starts_with("/run") && chosen.as_os_str().len() < 40, "{chosen:?}");
        assert_eq!(chosen, choose(Path::new(&long), runtime(), 7));
        assert_ne!(chosen, choose(Path::new(&format!("{long}x")), runtime(), 7));

        let chosen = choose(Path::new(&long), Some(PathBuf::from(&long)), 7);
        assert!(chosen.starts_with("/tmp") && chosen.to_str().unwrap().ends_with("-7"), "{chosen:?}");
        assert!(choose(Path::new(&long), None, 7).starts_with("/tmp"));
    }

    #[test]
    fn an_existing_one_is_closed_to_others() {
        let run_as = RunAs::resolve(None).unwrap();
        let root = tempfile::tempdir().unwrap();
        let dir = prepare(root.path(), &run_as).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(prepare(root.path(), &run_as).unwrap(), dir);
        let metadata = fs::metadata(&dir).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o700, run_as.uid()));
    }
}
