//! An instance's directory: created whole or not at all, locked, of the right version, with clear errors.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use common::{Place, binaries};
use sluice_instance::{DataDir, DataDirError, DataDirSpec, Event, RunAs, Silent, cluster};

#[test]
fn created_once_then_found() {
    let place = Place::new();
    // What an interrupted initdb leaves.
    let leftover = place.root().join("pgdata.new/base");
    fs::create_dir_all(&leftover).unwrap();

    let (sender, events) = std::sync::mpsc::channel();
    let observer = move |event| sender.send(event).unwrap();
    let data_dir = DataDir::open(place.spec(), &observer).unwrap();
    assert!(data_dir.created());
    let told: Vec<Event> = events.try_iter().collect();
    assert!(
        matches!(told[..], [Event::RemovedLeftover { .. }, Event::Creating { .. }, Event::Created { .. }]),
        "{told:?}"
    );
    assert!(!place.root().join("pgdata.new").exists());
    let pgdata = fs::metadata(data_dir.pgdata()).unwrap();
    assert_eq!((pgdata.mode() & 0o777, pgdata.uid()), (0o700, data_dir.run_as().uid()));
    let hba = fs::metadata(data_dir.pgdata().join("pg_hba.conf")).unwrap();
    assert_eq!((hba.mode() & 0o777, hba.uid()), (0o600, data_dir.run_as().uid()));

    let second = place.open().unwrap_err();
    let own = std::process::id();
    assert!(matches!(second, DataDirError::Locked { pid: Some(pid), .. } if pid == own), "{second}");

    drop(data_dir);
    assert!(!place.open().unwrap().created());
}

#[test]
fn initdb_that_fails_leaves_nothing() {
    let place = Place::new();
    let mut spec = place.spec();
    spec.binaries.initdb = "/bin/false".into();
    let error = DataDir::open(spec, &Silent).unwrap_err();
    assert!(matches!(error, DataDirError::InitDb { .. }), "{error}");
    assert!(!place.root().join("pgdata").exists() && !place.root().join("pgdata.new").exists());
}

/// A data directory as far as its version can be seen.
fn of_version(root: &Path, version: &str) {
    let run_as = RunAs::resolve(None).unwrap();
    let pgdata = root.join("pgdata");
    fs::create_dir_all(&pgdata).unwrap();
    fs::write(pgdata.join("PG_VERSION"), format!("{version}\n")).unwrap();
    std::os::unix::fs::chown(&pgdata, Some(run_as.uid()), None).unwrap();
}

#[test]
fn another_major_version() {
    let place = Place::new();
    of_version(&place.root(), "9.6");
    let error = place.open().unwrap_err().to_string();
    for part in ["has data of PostgreSQL 9.6, but", "--pg-bin", "apt-get install postgresql-9.6", "pg_upgrade"] {
        assert!(error.contains(part), "{part} is missing in {error}");
    }
}

#[test]
fn places_that_are_something_else() {
    let place = Place::new();
    fs::create_dir(place.root()).unwrap();
    fs::write(place.root().join("PG_VERSION"), "15\n").unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::IsPgData { .. }), "{error}");

    let place = Place::new();
    fs::create_dir_all(place.root().join("pgdata/photos")).unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::NotPgData { .. }), "{error}");

    let place = Place::new();
    fs::create_dir(place.root()).unwrap();
    fs::write(place.root().join("passwd"), "root:x:0:0").unwrap();
    // This is looked at before.
    cluster::to_one(&place.spec(), &Silent).unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::NotEmpty { .. }), "{error}");
    assert!(!place.root().join("lock").exists(), "nothing is left there");
    // Others have files of that name, too.
    fs::write(place.root().join("lock"), "mine").unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::NotEmpty { .. }), "{error}");
    // A start that was interrupted before it had made anything else.
    fs::write(place.root().join("lock"), "4711\n").unwrap();
    drop(place.open().unwrap());

    let place = Place::new();
    fs::create_dir_all(place.root().join("lost+found")).unwrap();
    drop(place.open().unwrap());

    let place = Place::new();
    fs::write(place.root(), "a file").unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::Io { .. }), "{error}");
}

#[test]
fn too_little_room() {
    let place = Place::new();
    let error = DataDir::open(DataDirSpec { free_bytes_min: u64::MAX, ..place.spec() }, &Silent).unwrap_err();
    assert!(matches!(error, DataDirError::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("make room"), "{error}");
    assert!(!place.root().join("pgdata").exists());
}

#[test]
fn postgresqls_user_must_get_there() {
    let run_as = RunAs::resolve(None).unwrap();
    if !run_as.switches() {
        return;
    }
    let place = Place::new();
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let spec = DataDirSpec::new(closed.join("new/data"), binaries(), run_as.clone());
    match DataDir::open(spec, &Silent).unwrap_err() {
        DataDirError::Blocked { at, user, .. } => assert_eq!((at, user.as_str()), (closed.clone(), run_as.name())),
        error => panic!("{error}"),
    }
    assert!(!closed.join("new").exists());
}

#[test]
fn data_of_another_user() {
    let run_as = RunAs::resolve(None).unwrap();
    if !run_as.switches() {
        return;
    }
    let place = Place::new();
    let binaries = binaries();
    of_version(&place.root(), &binaries.version.major.to_string());
    std::os::unix::fs::chown(place.root().join("pgdata"), Some(0), None).unwrap();
    let error = place.open().unwrap_err().to_string();
    assert!(error.contains("belongs to user root") && error.contains("chown -R"), "{error}");
    // PostgreSQL would refuse.
    assert!(!error.contains("--run-as"), "{error}");
}

#[test]
fn data_that_are_gone_are_not_made_anew() {
    let place = Place::new();
    // A disk that is not mounted.
    fs::create_dir_all(place.root().join("pgdata")).unwrap();
    for name in ["password", "sluice.secret"] {
        fs::write(place.root().join(name), "an earlier one").unwrap();
    }
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::DataGone { .. }), "{error}");
    assert!(error.to_string().contains("remove password and sluice.secret from "), "{error}");
    assert!(fs::read_dir(place.root().join("pgdata")).unwrap().next().is_none());
    fs::remove_dir(place.root().join("pgdata")).unwrap();
    fs::write(place.root().join("lock"), "").unwrap();
    fs::remove_file(place.root().join("password")).unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, DataDirError::DataGone { .. }), "{error}");
}
