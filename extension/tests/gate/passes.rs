//! Statements that pass no gate, and sessions that have passed it already.

use sluice_testkit::{Version, versions};

use crate::server::{Gate, ONE_BLOCK, ONE_QUERY, ONE_WRITE, Occupied, code, meanwhile_run, run};

versions!(
    who_is_inside_passes,
    what_never_waits,
    a_statement_that_has_passed_is_inside,
    what_runs_while_planning_passes_no_gate,
    ddl_does_not_wait_for_its_own_queries,
    a_copy_of_a_program_waits_nowhere,
    a_login_waits_nowhere,
);

fn who_is_inside_passes(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ONE_QUERY, ONE_WRITE]);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t (n int);
         CREATE FUNCTION f(depth int) RETURNS int LANGUAGE plpgsql AS $$
         BEGIN
           INSERT INTO t VALUES (depth);
           IF depth > 0 THEN EXECUTE format('SELECT f(%s)', depth - 1); END IF;
           RETURN (SELECT count(*) FROM t);
         END $$;
         CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM t; RETURN NEW; END';
         CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION g();",
    );
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "SELECT f(5)");
    assert_eq!(gate.sum("admitted"), 1, "functions and triggers run within their statement");
    run(
        &mut client,
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 2 FROM c; INSERT INTO t VALUES (9); FETCH 2 FROM c;
         SAVEPOINT s; SELECT 1; ROLLBACK TO s; SELECT f(2); CLOSE c; COMMIT",
    );
    assert_eq!(gate.sum("admitted"), 2, "so do all statements of a block");
    run(&mut client, "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT * FROM t; COMMIT");
    run(&mut client, "FETCH ALL FROM h");
    assert_eq!(gate.sum("admitted"), 3, "and a cursor that is kept has run already");
    // Workers run under their leader's slot.
    let parallel = if version == Version::V15 { "force_parallel_mode" } else { "debug_parallel_query" };
    run(&mut client, &format!("SET {parallel} = on; SET parallel_setup_cost = 0"));
    run(&mut client, "SELECT count(*) FROM t");
    assert_eq!(gate.sum("admitted"), 4);
    assert_eq!(gate.sum("running"), 0);
}

fn what_never_waits(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ONE_QUERY, ONE_WRITE, ("sluice.exempt_roles", "hasty")]);
    gate.server.execute("DROP ROLE IF EXISTS hasty; CREATE ROLE hasty LOGIN IN ROLE trusted");
    let mut inside = gate.session();
    run(&mut inside, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    run(&mut inside, "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'two'");
    run(&mut inside, "BEGIN");
    // Both gates are full now.
    let mut other = gate.session();
    run(&mut other, "COMMIT PREPARED 'two'");
    run(&mut other, "CREATE INDEX ON t (n)");
    run(&mut other, "VACUUM ANALYZE t");
    run(&mut other, "SET work_mem = '1MB'; SHOW work_mem");
    let mut hasty = gate.session_of("hasty");
    run(&mut hasty, "BEGIN; SELECT 1; COMMIT");
    run(&mut hasty, "SELECT 1");
    // One slot above each limit is the superusers'.
    let mut superuser = gate.database.superuser();
    run(&mut superuser, "SELECT 1");
    run(&mut superuser, "BEGIN");
    let second = meanwhile_run(gate.database.superuser(), "BEGIN");
    gate.waits("transaction", 1);
    run(&mut superuser, "COMMIT");
    second.join().unwrap().1.unwrap();
    run(&mut inside, "COMMIT");
    occupied.end();
}

fn a_statement_that_has_passed_is_inside(version: Version) {
    let gate = Gate::new(version, &[ONE_WRITE]);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t (n int);
         CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (1); RETURN 1; END'",
    );
    gate.server.execute("SELECT sluice_gate_reset()");
    // Queries have no limit, so this one holds no slot. What it writes does not wait in the midst of it.
    run(&mut client, "SELECT f() FROM generate_series(1, 3)");
    assert_eq!(gate.of("autocommit", "admitted"), "0");
}

/// A function that tells a session's tenant, immutable or stable, by a query; it is called where a statement is planned.
fn what_runs_while_planning_passes_no_gate(version: Version) {
    let all = [ONE_QUERY, ONE_WRITE, ("sluice.transaction_concurrency", "9")];
    let gate = Gate::new(version, &all);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t (n int);
         CREATE FUNCTION fixed() RETURNS int IMMUTABLE LANGUAGE plpgsql
           AS 'BEGIN RETURN (SELECT count(*) FROM pg_database WHERE datname = current_database()); END';
         CREATE FUNCTION stable() RETURNS int STABLE LANGUAGE plpgsql
           AS 'BEGIN RETURN (SELECT count(*) FROM pg_database WHERE datname = current_database()); END';
         CREATE FUNCTION fails() RETURNS int IMMUTABLE LANGUAGE plpgsql
           AS 'BEGIN RETURN (SELECT count(*) / 0 FROM pg_database); END';
         CREATE TABLE parts (n int) PARTITION BY LIST (n);
         CREATE TABLE one PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE two PARTITION OF parts FOR VALUES IN (2);
         INSERT INTO t SELECT generate_series(1, 1000);
         ANALYZE t",
    );
    run(&mut client, "PREPARE p AS UPDATE t SET n = fixed()");
    for (sql, class) in [
        ("EXPLAIN SELECT * FROM t WHERE n > fixed()", "none"),
        ("EXPLAIN SELECT * FROM t WHERE n > stable()", "none"),
        ("EXPLAIN SELECT * FROM parts WHERE n = stable()", "none"),
        ("DELETE FROM t WHERE n < stable()", "autocommit"),
        ("UPDATE t SET n = 1 WHERE n < fixed()", "autocommit"),
        ("SELECT * FROM t WHERE n < stable()", "query"),
        ("SELECT * FROM parts WHERE n = stable()", "query"),
        ("EXECUTE p", "autocommit"),
        ("SELECT * FROM t WHERE n < fails()", "none"),
        ("UPDATE t SET n = 1 WHERE n < 0", "autocommit"),
        // An error while planning that is caught leaves nothing behind.
        ("DO 'BEGIN PERFORM fails() FROM t; EXCEPTION WHEN division_by_zero THEN NULL; END'", "none"),
        ("UPDATE t SET n = 1 WHERE n < 0", "autocommit"),
    ] {
        gate.server.execute("SELECT sluice_gate_reset()");
        let outcome = client.batch_execute(sql);
        assert!(outcome.is_ok() || sql.contains("fails()"), "{sql}: {outcome:?}");
        let passed =
            gate.server.value("SELECT coalesce(string_agg(name, ','), 'none') FROM sluice_gate WHERE admitted > 0");
        assert_eq!(passed, class, "{sql}");
    }
    // An EXPLAIN does not wait.
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    run(&mut client, "EXPLAIN SELECT * FROM t WHERE n > fixed()");
    occupied.end();
}

fn ddl_does_not_wait_for_its_own_queries(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY, ONE_WRITE]);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE a (n int PRIMARY KEY); CREATE TABLE b (n int); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1);
         CREATE MATERIALIZED VIEW m AS SELECT * FROM a",
    );
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    run(&mut client, "ALTER TABLE b ADD FOREIGN KEY (n) REFERENCES a");
    run(&mut client, "REFRESH MATERIALIZED VIEW m");
    occupied.end();
}

/// Neither before the program runs, nor while it does: a trigger has a query run for each row.
fn a_copy_of_a_program_waits_nowhere(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY, ONE_WRITE]);
    gate.server.execute(
        "DROP ROLE IF EXISTS copier; CREATE ROLE copier LOGIN IN ROLE trusted, app, pg_execute_server_program",
    );
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t (n int);
         CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql
           AS 'BEGIN NEW.n := (SELECT count(*) FROM pg_class LIMIT 1); RETURN NEW; END';
         CREATE TRIGGER counts BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION counts()",
    );
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock_shared(1)");
    let writing = meanwhile_run(client, "INSERT INTO t SELECT 1 FROM pg_advisory_lock_shared(1)");
    gate.runs("autocommit", 1);
    // Both gates are full.
    let mut copier = gate.session_of("copier");
    run(&mut copier, "SET sluice.gate_timeout = '10s'");
    for sql in [
        "COPY t FROM PROGRAM 'echo 1; echo 2'",
        "COPY (SELECT n FROM t) TO PROGRAM 'cat > /dev/null'",
        "COPY t TO PROGRAM 'cat > /dev/null'",
    ] {
        run(&mut copier, sql);
    }
    occupied.end();
    writing.join().unwrap().1.unwrap();
    assert_eq!(gate.server.value("SELECT sum(failed_waits + running) FROM sluice_gate"), "0");
}

/// Its triggers run queries, and an error of theirs would end the connection.
fn a_login_waits_nowhere(version: Version) {
    if version != Version::V18 {
        // They came with 17.
        return;
    }
    let gate = Gate::new(version, &[ONE_QUERY]);
    let name = &gate.database.name;
    let mut superuser = gate.database.superuser();
    run(
        &mut superuser,
        &format!(
            "CREATE TABLE logins (n bigint);
             GRANT INSERT ON logins TO app;
             CREATE FUNCTION log_in() RETURNS event_trigger LANGUAGE plpgsql
               AS 'BEGIN PERFORM 1 FROM pg_class; INSERT INTO logins VALUES (1); END';
             CREATE EVENT TRIGGER log_in ON login EXECUTE FUNCTION log_in();
             ALTER DATABASE {name} SET sluice.gate_timeout = '1s'"
        ),
    );
    let mut holder = gate.session();
    run(&mut holder, "SET sluice.gate_timeout = 0; SELECT pg_advisory_lock(1)");
    let inside = meanwhile_run(gate.session(), "SET sluice.gate_timeout = 0; SELECT pg_advisory_lock(1)");
    gate.runs("query", 1);
    for track in ["on", "off"] {
        run(&mut superuser, &format!("ALTER DATABASE {name} SET track_activities = {track}"));
        // The first command waits as any.
        assert_eq!(code(gate.session().batch_execute("SELECT 1")).code(), "53S01", "{track}");
    }
    drop(holder);
    inside.join().unwrap().1.unwrap();
    gate.runs("query", 0);
    run(&mut superuser, "DROP EVENT TRIGGER log_in");
    assert!(superuser.query_one("SELECT count(*) FROM logins", &[]).unwrap().get::<_, i64>(0) >= 4);
}
