//! The gate as SQL sees it, and the rights to use it.

use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use postgres::error::SqlState;
use sluice_instance::{RunAs, StopMode};
use sluice_testkit::{TestServer, Version, case::repository, versions};

use crate::server::{Gate, code, run};

versions!(
    views_show_to_those_who_may,
    it_has_to_be_loaded_at_the_start,
    the_guide_names_all_settings,
    installcheck_passes,
);

fn views_show_to_those_who_may(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut superuser = gate.database.superuser();
    run(&mut superuser, "CREATE EXTENSION sluice");
    let mut app = gate.session();
    let names: Vec<String> =
        app.query("SELECT name FROM sluice_gate", &[]).unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(names, ["transaction", "autocommit", "query", "bigquery"]);
    for forbidden in ["SELECT * FROM sluice_gate_waiters", "SELECT sluice_gate_reset()"] {
        assert_eq!(code(app.batch_execute(forbidden)), SqlState::INSUFFICIENT_PRIVILEGE);
    }
    run(&mut superuser, "DROP ROLE IF EXISTS watcher; CREATE ROLE watcher LOGIN IN ROLE trusted, pg_monitor");
    let mut watcher = gate.session_of("watcher");
    run(&mut watcher, "SELECT * FROM sluice_gate_waiters");
    assert_eq!(code(watcher.batch_execute("SELECT sluice_gate_reset()")), SqlState::INSUFFICIENT_PRIVILEGE);
    run(&mut superuser, "DROP EXTENSION sluice");
}

fn the_guide_names_all_settings(version: Version) {
    let gate = Gate::new(version, &[]);
    let guide = std::fs::read_to_string(repository().join("docs/gate.md")).unwrap();
    let mut superuser = gate.database.superuser();
    let settings = superuser
        .query("SELECT name, boot_val FROM pg_settings WHERE name LIKE 'sluice.%' ORDER BY name", &[])
        .unwrap();
    assert!(settings.len() > 10);
    for setting in settings {
        let (name, default): (String, String) = (setting.get(0), setting.get(1));
        let default = if default.is_empty() { default } else { format!("`{default}` ") };
        assert!(guide.contains(&format!("| `{name}` | {default}|")), "{name} with its default {default:?}");
    }
    run(&mut superuser, "CREATE EXTENSION sluice");
    for row in superuser
        .query("SELECT attname::text FROM pg_attribute WHERE attrelid = 'sluice_gate'::regclass AND attnum > 0", &[])
        .unwrap()
    {
        let column: String = row.get(0);
        assert!(guide.contains(&format!("`{column}`")), "the view's column {column}");
    }
}

fn it_has_to_be_loaded_at_the_start(version: Version) {
    let server = TestServer::start(version, &[]);
    let mut client = server.superuser("postgres");
    let error = client.batch_execute("CREATE EXTENSION sluice").unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "sluice must be loaded when the server starts");
    assert!(error.hint().unwrap().contains("shared_preload_libraries"));
    // A server that pg_upgrade has started is asked whether it could load it.
    server.down(StopMode::Fast);
    let run_as = RunAs::resolve(None).unwrap();
    let mut single = server.program("postgres");
    single.args(["--single", "-b", "-D"]).arg(server.data()).arg("postgres").stdin(Stdio::piped());
    if run_as.switches() {
        single.uid(run_as.uid()).gid(run_as.gid());
    }
    let mut single = single.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    single.stdin.take().unwrap().write_all(b"LOAD 'sluice'\nSELECT 7 AS answer\n").unwrap();
    let output = single.wait_with_output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("answer = \"7\"") && !errors.contains("ERROR"), "{said}{errors}");
}

/// Runs the equivalent of `make installcheck`: `sql/gate.sql` prints the text in `expected/gate.out`.
fn installcheck_passes(version: Version) {
    let gate = Gate::new(version, &[]);
    // It only runs psql and compares, and Debian's can do that for all: where 16 and 18 come from, it can't be run.
    let pgxs = Command::new(Version::V15.bin_dir().join("pg_config")).arg("--pgxs").output().unwrap().stdout;
    let pgxs = String::from_utf8(pgxs).unwrap();
    let pg_regress = Path::new(pgxs.trim()).parent().unwrap().join("../test/regress/pg_regress");
    let bin_dir = version.bin_dir();
    let path = std::env::var("PATH").unwrap();
    let outputs = tempfile::tempdir().unwrap();
    let output = gate
        .server
        .program(pg_regress.to_str().unwrap())
        .arg(format!("--inputdir={}", env!("CARGO_MANIFEST_DIR")))
        .arg(format!("--outputdir={}", outputs.path().display()))
        .arg(format!("--bindir={}", bin_dir.display()))
        .arg(format!("--host={}", gate.server.socket_dir().display()))
        .arg(format!("--port={}", gate.server.port()))
        .args(["--user=postgres", "--dbname=contrib_regression", "gate"])
        .env("PATH", format!("{}:{path}", bin_dir.display()))
        .output()
        .unwrap();
    let differences = fs::read_to_string(outputs.path().join("regression.diffs")).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}{differences}", String::from_utf8_lossy(&output.stderr));
}
