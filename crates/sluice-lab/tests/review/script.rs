//! The script, applied to a real server that is then started again: everything takes effect, and nothing is left to
//! change; undone, nothing of it is left.

use std::{fs, process::Stdio};

use sluice_instance::StopMode;
use sluice_lab::review::{self, Format, Report, SetBy, Workload};
use sluice_testkit::{TestServer, Version, becomes, versions};

use crate::{GIB, instance, reviewed, snapshot_of};

/// The settings that `ALTER SYSTEM` has written.
const AUTO: &str = "FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf'";

/// A large machine, so that settings of every kind change.
fn review_of(server: &TestServer) -> Report {
    reviewed(&snapshot_of(server), instance(16 * GIB, 64, Workload::Web))
}

/// Runs a script as an operator would.
fn psql(server: &TestServer, script: &str) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("review.sql");
    fs::write(&file, script).unwrap();
    let mut psql = server.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres"]);
    psql.arg("-h").arg(server.socket_dir()).arg("-p").arg(server.port().to_string()).arg("-f").arg(&file);
    let output = psql.stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
}

/// The lines by which a script says how to undo it.
fn undo_of(script: &str) -> String {
    let lines = script.lines().filter_map(|line| line.strip_prefix("--   ")).filter(|line| line.starts_with("ALTER"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn set_by_alter_system(server: &TestServer) -> String {
    server.value(&format!("SELECT count(*) {AUTO}"))
}

fn the_script_takes_effect(version: Version) {
    let server = TestServer::start(version, &[]);
    server.execute("ALTER SYSTEM SET deadlock_timeout = '2s'");
    server.execute("ALTER SYSTEM SET log_temp_files = '0'");
    server.execute("SELECT pg_reload_conf()");
    becomes("log_temp_files", "0".to_owned(), || server.value("SHOW log_temp_files"));
    let before = review_of(&server);
    let script = review::render(&before, Format::Sql, false).unwrap();
    for dangerous in ["fsync", "full_page_writes", "archive_mode", "wal_level", "listen_addresses"] {
        assert!(!script.lines().any(|line| line.starts_with(&format!("ALTER SYSTEM SET {dangerous}"))), "{script}");
    }
    assert!(before.changes().any(|row| row.needs_restart() && row.set_by != SetBy::CommandLine));

    psql(&server, &script);
    server.down(StopMode::Fast);
    server.up();
    let faults = format!("SELECT coalesce(string_agg(name || ': ' || error, ', '), '') {AUTO} AND error IS NOT NULL");
    assert_eq!(server.value(&faults), "");
    let pending = format!("SELECT count(*) FROM pg_settings WHERE pending_restart AND name IN (SELECT name {AUTO})");
    assert_eq!(server.value(&pending), "0");
    let after = review_of(&server);
    let left: Vec<_> = after.changes().filter(|row| row.set_by != SetBy::CommandLine).map(|row| &row.name).collect();
    assert!(left.is_empty(), "still to change: {left:?}");
    assert_eq!(server.value("SHOW maintenance_work_mem"), "1GB");
    assert_eq!(server.value("SHOW log_checkpoints"), "off", "the command line wins");

    psql(&server, &undo_of(&script));
    // What was set before is set again.
    assert_eq!(set_by_alter_system(&server), "2");
    server.down(StopMode::Fast);
    server.up();
    assert_eq!(server.value("SHOW log_temp_files"), "0");
    let names = |report: &Report| report.changes().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&review_of(&server)), names(&before));
}

versions!(the_script_takes_effect);
