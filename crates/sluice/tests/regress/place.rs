//! A folder with PostgreSQL's own tests, in which the server may read and write.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use sluice_testkit::case::repository;

/// The tests as `scripts/postgres-tests.sh` has fetched them.
pub(crate) fn source() -> PathBuf {
    let source = repository().join("target/postgresql-tests");
    assert!(source.join("version").is_file(), "no tests in {}: run scripts/postgres-tests.sh", source.display());
    source
}

/// A copy of what the server reads: the folder of the tests may be closed to its user.
pub(crate) fn copy() -> tempfile::TempDir {
    let place = tempfile::Builder::new().prefix("sluice-regress-").tempdir().unwrap();
    let source = source();
    let mut copy = Command::new("cp");
    let copied =
        copy.arg("-r").args([source.join("regress/data"), source.join("lib")]).arg(place.path()).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
    fs::create_dir(place.path().join("results")).unwrap();
    for folder in ["", "data", "lib", "results"] {
        open(&place.path().join(folder));
    }
    place
}

fn open(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}
