//! The count of the catalog's changes, as sessions are told of it.

use postgres::error::SqlState;
use sluice_testkit::{Version, raw::Script, versions};

use crate::{
    server::{Gate, code, run},
    session::Session,
};

versions!(
    others_are_told_of_changes,
    what_changes_nothing_for_others_is_not_counted,
    a_block_is_told_at_its_begin,
    changes_in_several_transactions_are_counted_to_the_end,
    a_prepared_transaction_changes_when_it_is_committed,
    who_may_not_write_is_told_so_whatever_the_name,
    errors_are_those_that_come_first,
);

/// Whether the statements are counted: another session is told with its next transaction.
fn is_counted(gate: &Gate, session: &mut Session, sql: &str) -> bool {
    let mut other = Session::new(gate);
    session.run("SELECT 1");
    let (mine, before) = (session.catalog, other.catalog);
    let said = session.run(sql);
    assert!(!said.contains("E("), "{sql}: {said}");
    other.run("SELECT 1");
    assert_eq!(session.catalog > mine, other.catalog > before, "{sql}");
    // The session that has changed it is told with that transaction.
    assert!(session.catalog <= other.catalog, "{sql}");
    other.catalog > before
}

fn others_are_told_of_changes(version: Version) {
    let gate = Gate::new(version, &[]);
    run(&mut gate.session(), "CREATE TABLE t (a int); CREATE SEQUENCE s");
    let mut session = Session::new(&gate);
    for sql in [
        "CREATE TABLE u (a int)",
        "ALTER TABLE u ADD COLUMN b text",
        "CREATE INDEX ON u (a)",
        "CREATE INDEX CONCURRENTLY ON u (b)",
        "DROP TABLE u",
        "SELECT 1 AS a INTO u",
        "CREATE TABLE v AS SELECT 1 AS a",
        "EXPLAIN (ANALYZE, COSTS OFF) CREATE TABLE w AS SELECT 1 AS a",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE e AS ENUM ('a')",
        "ALTER TYPE e ADD VALUE 'b'",
        "GRANT SELECT ON t TO PUBLIC",
        "COMMENT ON TABLE t IS 'one'",
        "BEGIN; DROP TABLE u; COMMIT",
        "DO 'BEGIN DROP TABLE v; END'",
        "ALTER SEQUENCE s INCREMENT 2",
        "BEGIN; CREATE TEMP TABLE x (a int); CREATE TABLE y (a int); COMMIT",
        "CREATE TEMP TABLE child () INHERITS (t)",
        "DROP TABLE x, y",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert!(is_counted(&gate, &mut session, sql), "{sql}");
    }
    session.talk(&Script::new().unnamed("CREATE TABLE z (a int)", &[]).sync());
    let mut other = Session::new(&gate);
    assert_eq!(session.catalog, other.catalog);
    session.talk(&Script::new().unnamed("DROP TABLE z", &[]).sync());
    other.talk(&Script::new().unnamed("SELECT 1", &[]).sync());
    assert_eq!(session.catalog, other.catalog);
}

fn what_changes_nothing_for_others_is_not_counted(version: Version) {
    let gate = Gate::new(version, &[]);
    run(&mut gate.session(), "CREATE TABLE t (a int); CREATE SEQUENCE s");
    let mut session = Session::new(&gate);
    for sql in [
        "INSERT INTO t VALUES (1)",
        "TRUNCATE t",
        "SELECT nextval('s')",
        "BEGIN; DROP TABLE t; ROLLBACK",
        "VACUUM t",
        "ANALYZE t",
        "SET app.a = '1'",
        "LISTEN a",
        "PREPARE p AS SELECT 1",
        "EXPLAIN CREATE TABLE u AS SELECT 1",
        "DISCARD ALL",
        "CREATE TEMP TABLE x (a serial PRIMARY KEY, b text)",
        "CREATE INDEX ON x (b)",
        "ALTER TABLE x ADD COLUMN c int",
        "SELECT 1 AS a INTO TEMP y",
        "CREATE TEMP VIEW v AS SELECT 1",
        "CREATE TEMP SEQUENCE s2; ALTER SEQUENCE s2 INCREMENT 2",
        "DROP VIEW v; DROP TABLE x, y",
        "BEGIN; CREATE TEMP TABLE x (a int) ON COMMIT DROP; INSERT INTO x VALUES (1); COMMIT",
        "DISCARD TEMP",
    ] {
        assert!(!is_counted(&gate, &mut session, sql), "{sql}");
    }
}

fn a_block_is_told_at_its_begin(version: Version) {
    let gate = Gate::new(version, &[]);
    let (mut session, mut other) = (Session::new(&gate), Session::new(&gate));
    session.run("CREATE TABLE t (a int)");
    other.run("BEGIN");
    assert_eq!(session.catalog, other.catalog);
    session.run("DROP TABLE t");
    other.run("SELECT 1");
    assert!(other.catalog < session.catalog, "it is told at the ends of transactions");
    other.run("COMMIT");
    assert_eq!(session.catalog, other.catalog);
}

fn changes_in_several_transactions_are_counted_to_the_end(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    let before = session.catalog;
    session.run("DO $$ BEGIN CREATE TABLE t (a int); COMMIT; CREATE TABLE u (a int); COMMIT; PERFORM 1/0; END $$");
    let other = Session::new(&gate);
    assert!(other.catalog > before + 2, "{} {before}", other.catalog);
    assert_eq!(session.catalog, other.catalog);
}

fn a_prepared_transaction_changes_when_it_is_committed(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    assert!(!is_counted(&gate, &mut session, "BEGIN; CREATE TABLE t (a int); PREPARE TRANSACTION 'one'"));
    assert!(is_counted(&gate, &mut session, "COMMIT PREPARED 'one'"));
}

fn who_may_not_write_is_told_so_whatever_the_name(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut client = gate.session();
    run(&mut client, "SET default_transaction_read_only = on");
    for sql in ["DROP TABLE IF EXISTS a.b.c.d", "ALTER TABLE a.b.c ADD d int", "CREATE INDEX ON a.b.c (d)"] {
        assert_eq!(code(client.batch_execute(sql)), SqlState::READ_ONLY_SQL_TRANSACTION, "{sql}");
    }
}

/// The extension looks at a command before PostgreSQL does, and leaves it to that to find a fault.
fn errors_are_those_that_come_first(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut superuser = gate.database.superuser();
    run(&mut superuser, "CREATE SCHEMA hidden; CREATE TABLE hidden.t (n int); CREATE TABLE locked (n int)");
    run(&mut superuser, "BEGIN; LOCK TABLE locked");
    let mut client = gate.session();
    for (sql, message) in [
        ("EXPLAIN (other, ANALYZE sometimes) SELECT 1", "unrecognized EXPLAIN option \"other\""),
        ("COPY hidden.t FROM '/none'", "pg_read_server_files"),
        // It waits for no lock either.
        ("COPY locked FROM '/none'", "pg_read_server_files"),
        ("COPY locked FROM PROGRAM 'none'", "pg_execute_server_program"),
        (
            "BEGIN; CREATE INDEX CONCURRENTLY ON hidden.t (n)",
            "CREATE INDEX CONCURRENTLY cannot run inside a transaction block",
        ),
        ("BEGIN; DROP INDEX CONCURRENTLY hidden.i", "DROP INDEX CONCURRENTLY cannot run inside a transaction block"),
        ("BEGIN; DROP INDEX CONCURRENTLY a.b.c.d", "DROP INDEX CONCURRENTLY cannot run inside a transaction block"),
        ("DROP TABLE a.b.c.d", "improper relation name"),
        ("DROP TABLE hidden.t", "permission denied for schema hidden"),
        ("ALTER TABLE a.b.c ADD n int", "cross-database references are not implemented"),
    ] {
        run(&mut client, "SET lock_timeout = '20s'");
        let error = client.batch_execute(sql).unwrap_err();
        let error = error.as_db_error().unwrap();
        let said = format!("{} {}", error.message(), error.detail().unwrap_or_default());
        assert!(said.contains(message), "{sql}: {said}");
        run(&mut client, "ROLLBACK");
    }
}
