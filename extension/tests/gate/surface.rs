//! What SQL sees of it, and who may.

use postgres::error::SqlState;
use sluice_testkit::{TestServer, Version};

use crate::{
    server::{Gate, code, run},
    versions,
};

versions!(views_show_to_those_who_may, it_has_to_be_loaded_at_the_start);

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

fn it_has_to_be_loaded_at_the_start(version: Version) {
    let server = TestServer::start(version, &[]);
    let mut client = server.superuser("postgres");
    let error = client.batch_execute("CREATE EXTENSION sluice").unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "sluice must be loaded when the server starts");
    assert!(error.hint().unwrap().contains("shared_preload_libraries"));
}
