//! Deadlocks: sessions that could wait for each other for ever, and do not.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use sluice_testkit::{Version, becomes, versions};

use crate::server::{Gate, meanwhile, meanwhile_run, run};

versions!(
    ddl_behind_a_statement_that_waits,
    a_lock_of_the_session_that_waits,
    a_copy_that_waits_holds_nothing_of_its_table,
    a_lock_that_is_held_opens_no_gate_at_once,
    slots_that_nobody_uses,
    a_begin_behind_a_write_in_one_string,
    a_server_that_calls_itself,
    a_transaction_that_goes_on_is_not_idle,
    a_wait_for_another_process,
    a_parallel_query_is_not_idle,
    a_query_that_another_session_works_for_is_not_idle,
);

const SOON: (&str, &str) = ("deadlock_timeout", "100ms");

/// A query is inside and will want a table; another one waits outside and has locked it; DDL stands between them.
fn ddl_behind_a_statement_that_waits(version: Version) {
    let gate = Gate::new(version, &[("sluice.query_concurrency", "1"), SOON]);
    let mut holder = gate.session();
    run(
        &mut holder,
        "CREATE TABLE t (n int);
         CREATE FUNCTION late() RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
           -- Awake, or it would seem to wait for somebody.
           WHILE NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP;
           RETURN (SELECT count(*) FROM t);
         END $$",
    );
    run(&mut holder, "SELECT pg_advisory_lock(1)");
    let inside = meanwhile_run(gate.session(), "SELECT late()");
    gate.runs("query", 1);
    let outside = meanwhile_run(gate.session(), "SELECT * FROM t");
    gate.waits("query", 1);
    let ddl = meanwhile_run(gate.session(), "ALTER TABLE t ADD COLUMN m int");
    // It waits for the one outside, which therefore goes in.
    becomes("sessions above the limit", "1".to_owned(), || gate.of("query", "over_limit"));
    // Now the first one may run on, into the table that is locked.
    drop(holder);
    for handle in [inside, outside, ddl] {
        handle.join().unwrap().1.unwrap();
    }
    assert_eq!(gate.of("query", "concat_ws('/', running, waiting, over_limit)"), "0/0/1");
}

/// The lock is an advisory one, which a session keeps between its transactions.
fn a_lock_of_the_session_that_waits(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), SOON]);
    let (mut first, mut second) = (gate.session(), gate.session());
    run(&mut second, "SELECT pg_advisory_lock(1)");
    run(&mut first, "BEGIN");
    let inside = meanwhile_run(first, "SELECT pg_advisory_lock(1)");
    let deadlocked = meanwhile_run(second, "BEGIN; SELECT pg_advisory_unlock(1); COMMIT");
    deadlocked.join().unwrap().1.unwrap();
    inside.join().unwrap().1.unwrap();
    assert_eq!(gate.of("transaction", "over_limit"), "1");
}

/// Looking for an identity column, it would stand in the way of whom it waits for.
fn a_copy_that_waits_holds_nothing_of_its_table(version: Version) {
    let gate = Gate::new(version, &[SOON]);
    let mut ddl = gate.session();
    run(&mut ddl, "CREATE TABLE t (n int)");
    run(&mut ddl, "BEGIN; CREATE INDEX ON t (n)");
    let copy = meanwhile(gate.session(), |client| {
        let mut data = client.copy_in("COPY t (n) FROM STDIN")?;
        data.write_all(b"1\n2\n").unwrap();
        data.finish()
    });
    becomes("it waits", "1".to_owned(), || gate.server.value("SELECT count(*) FROM pg_locks WHERE NOT granted"));
    let held = "SELECT count(*) FROM pg_locks l, pg_class c WHERE l.relation = c.oid AND relname = 't' AND granted";
    assert_eq!(ddl.query_one(&format!("{held} AND l.pid <> pg_backend_pid()"), &[]).unwrap().get::<_, i64>(0), 0);
    run(&mut ddl, "ALTER TABLE t ADD COLUMN m int DEFAULT 7; COMMIT");
    assert_eq!(copy.join().unwrap().1.unwrap(), 2);
}

/// Two users could take a lock and wait for it, and so go in as if there were no limit. Each time one of them waits first.
fn a_lock_that_is_held_opens_no_gate_at_once(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), ("deadlock_timeout", "1s")]);
    let (mut inside, mut holder) = (gate.session(), gate.session());
    run(&mut inside, "BEGIN");
    run(&mut holder, "SELECT pg_advisory_lock(1)");
    let second = meanwhile_run(gate.session(), "SELECT pg_advisory_lock(1)");
    becomes("it waits", "1".to_owned(), || gate.server.value("SELECT count(*) FROM pg_locks WHERE NOT granted"));
    let begin = Instant::now();
    for times in 1..=2 {
        run(&mut holder, "BEGIN; COMMIT");
        assert!(begin.elapsed() >= Duration::from_secs(times), "{:?}", begin.elapsed());
    }
    assert_eq!(gate.of("transaction", "over_limit"), "2");
    drop(holder);
    second.join().unwrap().1.unwrap();
}

/// All slots belong to clients that do nothing with them; they may be waiting for the one outside.
fn slots_that_nobody_uses(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "2"), SOON]);
    let mut inside = [gate.session(), gate.session()];
    for client in &mut inside {
        run(client, "BEGIN");
    }
    let outside: Vec<_> = (0..3).map(|_| meanwhile_run(gate.session(), "BEGIN; SELECT 1; COMMIT")).collect();
    for handle in outside {
        handle.join().unwrap().1.unwrap();
    }
    // Where one of them works, the others wait.
    run(&mut inside[0], "COMMIT");
    let working = meanwhile_run(gate.session(), "BEGIN; SELECT pg_sleep(1.5); COMMIT");
    gate.runs("transaction", 2);
    gate.server.execute("SELECT sluice_gate_reset()");
    let outside = meanwhile_run(gate.session(), "BEGIN; COMMIT");
    outside.join().unwrap().1.unwrap();
    working.join().unwrap().1.unwrap();
    assert_eq!(gate.of("transaction", "concat_ws('/', over_limit, waited)"), "0/1");
}

/// It waits with the row that it has locked, which the block that is inside wants.
fn a_begin_behind_a_write_in_one_string(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), SOON]);
    let mut inside = gate.session();
    run(&mut inside, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    run(&mut inside, "BEGIN");
    let outside = meanwhile_run(gate.session(), "UPDATE t SET n = n + 1; BEGIN; UPDATE t SET n = n + 1; COMMIT");
    gate.waits("transaction", 1);
    let inside = meanwhile_run(inside, "UPDATE t SET n = n + 1; COMMIT");
    outside.join().unwrap().1.unwrap();
    let (mut inside, outcome) = inside.join().unwrap();
    outcome.unwrap();
    assert_eq!(inside.query_one("SELECT n FROM t", &[]).unwrap().get::<_, i32>(0), 4);
}

/// By dblink, where it is there.
fn a_server_that_calls_itself(version: Version) {
    let gate = Gate::new(version, &[("sluice.query_concurrency", "1"), SOON]);
    if gate.server.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'") == "0" {
        // The builds of 16 and 18 come without contrib.
        assert_ne!(version, Version::V15);
        return;
    }
    let mut superuser = gate.database.superuser();
    run(&mut superuser, "CREATE EXTENSION dblink");
    let sql = format!(
        "SELECT * FROM dblink('host={} port={} user=app dbname={}', 'SELECT 7') AS t (n int)",
        gate.server.socket_dir().display(),
        gate.server.port(),
        gate.database.name
    );
    run(&mut superuser, &sql);
    assert_eq!(gate.of("query", "concat_ws('/', over_limit, running)"), "1/0");
}

/// Its client sends a statement now and then: a look at any moment would find it waiting for that.
fn a_transaction_that_goes_on_is_not_idle(version: Version) {
    // Far longer than a busy machine keeps this thread from going on.
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), ("deadlock_timeout", "1s")]);
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    let waiting = meanwhile_run(gate.session(), "BEGIN; COMMIT");
    gate.waits("transaction", 1);
    for _ in 0..400 {
        run(&mut inside, "SELECT 1");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(gate.of("transaction", "concat_ws('/', over_limit, waiting)"), "0/1");
    run(&mut inside, "COMMIT");
    waiting.join().unwrap().1.unwrap();
}

/// A deferrable transaction waits for a serializable one, which waits at the gate with its chained block.
fn a_wait_for_another_process(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), SOON]);
    let mut chained = gate.session();
    run(&mut chained, "CREATE TABLE t (n int)");
    run(&mut chained, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM t");
    let deferrable = meanwhile_run(
        gate.session(),
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT * FROM t; COMMIT",
    );
    gate.waits("transaction", 1);
    run(&mut chained, "COMMIT AND CHAIN");
    let chained = meanwhile_run(chained, "INSERT INTO t VALUES (1); COMMIT");
    chained.join().unwrap().1.unwrap();
    deferrable.join().unwrap().1.unwrap();
}

/// Its leader does nothing but wait for its workers.
fn a_parallel_query_is_not_idle(version: Version) {
    let gate = Gate::new(version, &[("sluice.query_concurrency", "1"), SOON]);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t AS SELECT n FROM generate_series(1, 300) n;
         ALTER TABLE t SET (parallel_workers = 2);
         CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE COST 100000
           AS 'BEGIN PERFORM pg_sleep(0.02); RETURN $1; END';
         ANALYZE t",
    );
    run(
        &mut client,
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off",
    );
    let inside = meanwhile_run(client, "SELECT count(*) FROM t WHERE slow(n) > 0");
    let workers = "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'";
    becomes("workers", "t".to_owned(), || gate.server.value(workers));
    let outside = meanwhile_run(gate.session(), "SELECT 1");
    gate.waits("query", 1);
    for handle in [inside, outside] {
        handle.join().unwrap().1.unwrap();
    }
    assert_eq!(gate.of("query", "concat_ws('/', over_limit, waited, waited_ms > 1000)"), "0/1/t");
}

/// By `postgres_fdw`, where it is there, to this server; and that other session sleeps, which is as good as work.
fn a_query_that_another_session_works_for_is_not_idle(version: Version) {
    let gate = Gate::new(version, &[("sluice.query_concurrency", "1"), SOON]);
    if gate.server.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'") == "0" {
        // The builds of 16 and 18 come without contrib.
        assert_ne!(version, Version::V15);
        return;
    }
    let mut superuser = gate.database.superuser();
    run(
        &mut superuser,
        &format!(
            "CREATE EXTENSION postgres_fdw;
             CREATE VIEW slow AS SELECT 1 AS n FROM pg_sleep(3);
             CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{}', port '{}', dbname '{}');
             CREATE USER MAPPING FOR app SERVER itself OPTIONS (user 'app', password_required 'false');
             CREATE FOREIGN TABLE remote (n int) SERVER itself OPTIONS (table_name 'slow');
             GRANT SELECT ON slow, remote TO app",
            gate.server.socket_dir().display(),
            gate.server.port(),
            gate.database.name
        ),
    );
    let inside = meanwhile_run(gate.session(), "SELECT * FROM remote");
    gate.runs("query", 1);
    let outside = meanwhile_run(gate.session(), "SELECT 1");
    gate.waits("query", 1);
    for handle in [inside, outside] {
        handle.join().unwrap().1.unwrap();
    }
    assert_eq!(gate.of("query", "concat_ws('/', over_limit, waited, waited_ms > 1000)"), "0/1/t");
}
