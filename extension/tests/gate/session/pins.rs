//! State that ties a session's client to it.

use super::*;

versions!(
    temporary_objects_pin,
    what_goes_at_commit_does_not_pin,
    locks_pin,
    listening_pins,
    cursors_pin,
    prepared_statements_pin,
    sequences_pin,
    identity_columns_are_sequences,
    seeds_and_libraries_pin,
);

fn temporary_objects_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    gate.server.execute(&format!("GRANT TEMPORARY ON DATABASE {} TO app", gate.database.name));
    let mut session = Session::new(&gate);
    session.holds("CREATE TEMP TABLE t (a int)", "pins=temp");
    session.holds("DROP TABLE t", "");
    session.holds("CREATE TEMP TABLE t (a int); CREATE TEMP TABLE u (a int)", "pins=temp");
    session.holds("DROP TABLE u", "pins=temp");
    session.holds("DISCARD TEMP", "");
    session.holds("BEGIN; CREATE TEMP TABLE t (a int); ROLLBACK", "");
    session.holds("BEGIN; CREATE TEMP TABLE t (a int); DROP TABLE t; COMMIT", "");
    session.holds("BEGIN", "");
    session.holds("SELECT 1 AS a INTO TEMP t", "");
    session.holds("COMMIT", "pins=temp");
    session.holds("BEGIN; DROP TABLE t; ROLLBACK", "pins=temp");
    session.holds("BEGIN; SAVEPOINT s; DROP TABLE t; ROLLBACK TO s; COMMIT", "pins=temp");
    session.holds("DROP TABLE t", "");
    for (create, drop) in [
        ("CREATE TEMP VIEW v AS SELECT 1", "DROP VIEW v"),
        ("CREATE TEMP SEQUENCE s", "DROP SEQUENCE s"),
        ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP FUNCTION pg_temp.f"),
        ("CREATE TYPE pg_temp.e AS ENUM ('a')", "DROP TYPE pg_temp.e"),
        ("CREATE TYPE pg_temp.c AS (a int)", "DROP TYPE pg_temp.c"),
        ("CREATE DOMAIN pg_temp.d AS int", "DROP DOMAIN pg_temp.d"),
        (
            "CREATE OPERATOR pg_temp.=== (leftarg = int, rightarg = int, function = int4eq)",
            "DROP OPERATOR pg_temp.=== (int, int)",
        ),
        ("CREATE COLLATION pg_temp.c FROM \"C\"", "DROP COLLATION pg_temp.c"),
        ("CREATE TEXT SEARCH CONFIGURATION pg_temp.c (COPY = simple)", "DROP TEXT SEARCH CONFIGURATION pg_temp.c"),
        ("CREATE TABLE pg_temp.t (a serial)", "DROP TABLE pg_temp.t"),
        ("CREATE TEMP TABLE t AS SELECT 1", "DROP TABLE t"),
        ("DO 'BEGIN CREATE TEMP TABLE t (); END'", "DO 'BEGIN DROP TABLE t; END'"),
        ("PREPARE p AS SELECT 1; CREATE TEMP TABLE t AS EXECUTE p; DEALLOCATE p", "DROP TABLE t"),
    ] {
        session.holds(create, "pins=temp");
        session.holds(drop, "");
    }
    // What is permanent pins nothing.
    session.holds("CREATE TABLE kept (a int)", "");
    session.holds_after_error("CREATE TEMP TABLE kept AS SELECT 1/0 AS a", "");
}

fn what_goes_at_commit_does_not_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.reports = 0;
    session.holds("BEGIN; CREATE TEMP TABLE t (a serial PRIMARY KEY, b text) ON COMMIT DROP; COMMIT", "");
    session.holds(
        "BEGIN; CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1 AS a; CREATE TEMP VIEW v AS SELECT * FROM t; COMMIT",
        "",
    );
    session.holds("CREATE TEMP TABLE t (a int) ON COMMIT DROP", "");
    assert_eq!(session.reports, 0, "{}", session.report);
    session
        .holds("BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; CREATE TEMP TABLE u (a int); COMMIT", "pins=temp");
    session.holds("BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; COMMIT", "pins=temp");
    session.holds("DROP TABLE u", "");
    session.holds("BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; ROLLBACK", "");
    session.holds("CREATE TEMP TABLE u (a int) ON COMMIT DELETE ROWS", "pins=temp");
    session.holds("BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; DROP TABLE u; COMMIT", "");
}

fn locks_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("SELECT pg_advisory_lock(1)", "pins=lock");
    session.holds("SELECT pg_advisory_lock(1)", "pins=lock");
    session.holds("SELECT pg_advisory_unlock(1)", "pins=lock");
    session.holds("SELECT pg_advisory_unlock(1)", "");
    session.holds("SELECT pg_try_advisory_lock_shared(1, 2)", "pins=lock");
    session.holds("SELECT pg_advisory_unlock_all()", "");
    session.holds("SELECT pg_advisory_xact_lock(1)", "");
    session.holds("BEGIN; SELECT pg_advisory_lock(3); ROLLBACK", "pins=lock");
    session.holds("BEGIN; SELECT pg_advisory_xact_lock(4); SELECT pg_advisory_unlock(3); COMMIT", "");
    session.holds_after_error("SELECT 1/length(pg_advisory_lock(5)::text)", "pins=lock");
    session.holds("SELECT pg_advisory_unlock_all()", "");
    let mut other = Session::new(&gate);
    other.holds("SELECT pg_advisory_lock(7)", "pins=lock");
    session.holds("SELECT pg_try_advisory_lock(7)", "");
}

fn listening_pins(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("LISTEN a", "pins=listen");
    session.holds("LISTEN b", "pins=listen");
    session.holds("UNLISTEN a", "pins=listen");
    session.holds("UNLISTEN b", "");
    session.holds("BEGIN; LISTEN a; ROLLBACK", "");
    session.holds("BEGIN; LISTEN a; COMMIT", "pins=listen");
    session.holds("BEGIN; UNLISTEN *; ROLLBACK", "pins=listen");
    session.holds("DO 'BEGIN UNLISTEN *; END'", "");
    session.holds("BEGIN; LISTEN a; UNLISTEN a; COMMIT", "");
}

fn cursors_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "pins=cursor");
    session.holds("FETCH c", "pins=cursor");
    session.holds("DECLARE d CURSOR WITH HOLD FOR SELECT 1", "pins=cursor");
    session.holds("CLOSE c", "pins=cursor");
    session.holds("CLOSE ALL", "");
    session.holds("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; ROLLBACK", "");
    session.holds("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; CLOSE c; COMMIT", "");
    session.holds("BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT", "");
    session.holds("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "pins=cursor");
    // A cursor that the protocol closes is seen to be gone at the next transaction's end.
    session.talk(&Script::new().close_portal("c").sync());
    session.holds("SELECT 1", "");
    session.holds_after_error("DECLARE c CURSOR WITH HOLD FOR SELECT 1/0", "");
}

fn prepared_statements_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.talk(&Script::new().parse("mine", "SELECT 1").sync());
    assert_eq!(session.held, "");
    session.holds("PREPARE p AS SELECT 1", "pins=prepare");
    session.holds("PREPARE q AS SELECT 1", "pins=prepare");
    session.holds("DEALLOCATE p", "pins=prepare");
    session.holds("DEALLOCATE q", "");
    session.holds("BEGIN; PREPARE p AS SELECT 1; ROLLBACK", "pins=prepare");
    session.holds_after_error("PREPARE p AS SELECT 1", "pins=prepare");
    session.holds("DEALLOCATE ALL", "deallocated=1");
    session.holds_after_error("PREPARE p AS SELECT nothing", "deallocated=1");
    session.holds("PREPARE p AS SELECT 1", "pins=prepare deallocated=1");
    session.talk(&Script::new().close("p").sync());
    session.holds("SELECT 1", "deallocated=1");
    let long = "p".repeat(100);
    session.run(&format!("PREPARE {long} AS SELECT 1"));
    assert_eq!(session.held, "pins=prepare deallocated=1");
    session.holds("DEALLOCATE ALL", "deallocated=2");
    session.talk(&Script::new().parse("mine", "SELECT 1").sync());
    session.holds("DO $$ BEGIN EXECUTE 'DEALLOCATE mine'; END $$", "deallocated=3");
}

fn sequences_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    run(&mut gate.session(), "CREATE SEQUENCE s; CREATE TABLE t (id serial, a int)");
    let mut session = Session::new(&gate);
    session.holds("SELECT last_value FROM s", "");
    session.holds("SELECT nextval('s')", "pins=sequence");
    session.holds("DISCARD SEQUENCES", "");
    session.holds("SELECT setval('s', 1)", "pins=sequence");
    session.holds_after_error("BEGIN; DISCARD ALL", "pins=sequence");
    session.holds("ROLLBACK", "pins=sequence");
    session.holds("DISCARD SEQUENCES", "");
    session.holds("BEGIN; INSERT INTO t (a) VALUES (1); ROLLBACK", "pins=sequence");
    session.holds("DISCARD SEQUENCES", "");
    session.holds("INSERT INTO t VALUES (1, 1)", "");
    session.holds("DO $$ BEGIN PERFORM setval('s', 1, false); END $$", "pins=sequence");
    // A cursor may still use it.
    session
        .holds("BEGIN; DECLARE c CURSOR FOR SELECT nextval('s'); DISCARD SEQUENCES; FETCH c; COMMIT", "pins=sequence");
}

fn identity_columns_are_sequences(version: Version) {
    let gate = Gate::new(version, &[]);
    run(
        &mut gate.session(),
        "CREATE TABLE t (id int GENERATED BY DEFAULT AS IDENTITY, a int UNIQUE); CREATE TABLE u (a int);
         INSERT INTO u VALUES (1), (2); CREATE VIEW v AS SELECT * FROM t;
         CREATE TABLE parts (id int GENERATED BY DEFAULT AS IDENTITY, a int) PARTITION BY LIST (a);
         CREATE TABLE part PARTITION OF parts FOR VALUES IN (100)",
    );
    let mut session = Session::new(&gate);
    for using in [
        "INSERT INTO t (a) VALUES (10)",
        "INSERT INTO t (a) VALUES (20), (21)",
        "INSERT INTO t (a) SELECT a + 30 FROM u",
        "INSERT INTO t (a) SELECT a + 40 FROM u ORDER BY a LIMIT 1",
        "INSERT INTO t (a) SELECT a + 50 FROM u UNION ALL SELECT a + 60 FROM u",
        "INSERT INTO t (a) SELECT count(*) + 70 FROM u",
        "INSERT INTO t (a) SELECT generate_series(80, 82)",
        "INSERT INTO v (a) VALUES (90)",
        "WITH i AS (INSERT INTO t (a) VALUES (91) RETURNING id) SELECT * FROM i",
        "INSERT INTO parts (a) VALUES (100)",
        "INSERT INTO t VALUES (DEFAULT, 92)",
        "INSERT INTO t (id, a) VALUES (1, 10) ON CONFLICT (a) DO UPDATE SET id = DEFAULT",
        "UPDATE t SET id = DEFAULT WHERE a = 10",
        "INSERT INTO t (a) VALUES (generate_series(110, 111) + 1)",
        "ALTER TABLE u ADD COLUMN id int GENERATED ALWAYS AS IDENTITY",
    ] {
        session.holds(using, "pins=sequence");
        // It is so, too.
        session.holds("SELECT lastval()", "pins=sequence");
        session.holds("DISCARD SEQUENCES", "");
    }
    let copy = |session: &mut Session, sql: &str, data: &str| {
        session.talk(&Script::new().query(sql).copy_data(data.as_bytes()).copy_done());
        session.held.clone()
    };
    assert_eq!(copy(&mut session, "COPY t (a) FROM STDIN", "1000\n"), "pins=sequence");
    session.holds("SELECT lastval()", "pins=sequence");
    session.holds("DISCARD SEQUENCES", "");
    assert_eq!(copy(&mut session, "COPY t (a) FROM STDIN", "1500\nx\n"), "pins=sequence");
    session.holds("SELECT lastval()", "pins=sequence");
    session.holds("DISCARD SEQUENCES", "");
    assert_eq!(copy(&mut session, "COPY t FROM STDIN", "1\t1001\n"), "");
    assert_eq!(copy(&mut session, "COPY t (id) FROM STDIN", "1\n"), "");
    for other in [
        "INSERT INTO t VALUES (1, 1002)",
        "UPDATE t SET a = a + 10000",
        "DELETE FROM t",
        "INSERT INTO parts VALUES (1, 100)",
        "ALTER TABLE u ADD COLUMN b int DEFAULT 1",
        "CREATE TABLE w (LIKE t INCLUDING ALL)",
    ] {
        session.holds(other, "");
    }
    if version != Version::V15 {
        assert_eq!(copy(&mut session, "COPY t FROM STDIN (DEFAULT 'd')", "d\t1003\n"), "pins=sequence");
        session.holds("DISCARD SEQUENCES", "");
    }
    session.holds(
        "MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT (a) VALUES (u.a + 2000)",
        "pins=sequence",
    );
}

fn seeds_and_libraries_pin(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("BEGIN; SELECT setseed(0.5); ROLLBACK", "pins=seed");
    session.holds("DISCARD ALL", "pins=seed");
    for seeding in [
        "SET seed = 0.5",
        "BEGIN; SET LOCAL seed = 0.5; ROLLBACK",
        "SELECT set_config('seed', '0.5', false)",
        "BEGIN; SELECT set_config('seed', '0.5', true); ROLLBACK",
        "BEGIN; SAVEPOINT s; SELECT set_config('seed', '0.5', false); ROLLBACK TO s; COMMIT",
    ] {
        let mut session = Session::new(&gate);
        session.holds(seeding, "pins=seed");
    }
    let mut superuser = Session::of(&gate, "postgres");
    superuser.holds("LOAD 'sluice'", "");
    superuser.holds_after_error("LOAD 'no such library'", "");
    superuser.holds("BEGIN; LOAD 'pgoutput'; ROLLBACK", "pins=load");
    superuser.holds("DISCARD ALL", "pins=load");
}
