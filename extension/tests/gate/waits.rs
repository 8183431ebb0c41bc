//! Waits: the sessions that wait and where, the ends of a wait, and the times when a slot is given back.

use std::{
    fs,
    time::{Duration, Instant},
};

use postgres::error::SqlState;
use sluice_testkit::{Version, becomes, raw::Script, versions};

use crate::{
    names_waits,
    server::{Gate, ONE_BLOCK, ONE_QUERY, ONE_WRITE, Occupied, code, meanwhile, meanwhile_run, pid_of, run},
};

versions!(
    a_block_waits_at_its_begin_and_holds_nothing,
    a_single_statement_waits_before_it_runs,
    statements_are_of_the_class_that_they_are,
    each_end_gives_the_slot_back,
    a_wait_can_be_ended,
    a_client_that_has_gone_leaves_the_queue,
    a_wait_has_a_limit,
    all_gates_share_one_deadline,
    first_come_first_served,
    several_statements_in_one_string,
    a_chained_block_waits_at_its_first_statement,
    a_procedure_that_commits_enters_anew,
    a_chain_that_fails_is_none,
    an_error_that_is_caught_leaves_no_slot_behind,
    an_error_in_the_catalog_leaves_no_slot_behind,
);

fn a_block_waits_at_its_begin_and_holds_nothing(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    let (mut first, mut second) = (gate.session(), gate.session());
    let pid = pid_of(&mut second);
    run(&mut first, "BEGIN");
    let waiting = meanwhile_run(second, "BEGIN");
    gate.waits("transaction", 1);
    let held = gate.server.value(&format!(
        "SELECT concat_ws('/', backend_xid IS NULL, backend_xmin IS NULL, state, wait_event_type,
           (SELECT string_agg(locktype, ',') FROM pg_locks WHERE pid = {pid}))
         FROM pg_stat_activity WHERE pid = {pid}"
    ));
    assert_eq!(held, "t/t/active/Extension/virtualxid");
    let event = gate.server.value(&format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}"));
    assert_eq!(event, if names_waits(version) { "SluiceGateTransaction" } else { "Extension" });
    let row = gate
        .server
        .value("SELECT concat_ws('/', name, queue_position, wait_time > '0', usename) FROM sluice_gate_waiters");
    assert_eq!(row, "transaction/1/t/app");
    run(&mut first, "COMMIT");
    let (_second, outcome) = waiting.join().unwrap();
    outcome.unwrap();
    let counted = gate.of("transaction", "concat_ws('/', admitted, waited, over_limit, failed_waits, waited_ms > 0)");
    assert_eq!(counted, "2/1/0/0/t");
    let histogram = gate.of("transaction", "(SELECT sum(n) FROM unnest(wait_histogram) n)");
    assert_eq!(histogram, "1");
}

fn a_single_statement_waits_before_it_runs(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY]);
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock_shared(1)");
    let waiting = meanwhile(gate.session(), |client| client.query_one("SELECT 7", &[]).unwrap().get::<_, i32>(0));
    gate.waits("query", 1);
    // Other classes have slots of their own.
    let mut other = gate.session();
    run(&mut other, "CREATE TABLE t (n int)");
    run(&mut other, "INSERT INTO t VALUES (1)");
    run(&mut other, "BEGIN; SELECT 1; COMMIT");
    occupied.end();
    let (_client, seven) = waiting.join().unwrap();
    assert_eq!(seven, 7);
    gate.runs("query", 0);
}

fn statements_are_of_the_class_that_they_are(version: Version) {
    let all = [ONE_QUERY, ONE_WRITE, ("sluice.transaction_concurrency", "9"), ("sluice.bigquery_concurrency", "1")];
    let gate = Gate::new(version, &all);
    let mut client = gate.session();
    run(&mut client, "CREATE TABLE t (n int)");
    for (sql, class) in [
        ("SELECT 1", "query"),
        ("VALUES (1)", "query"),
        ("TABLE t", "query"),
        ("COPY t TO '/dev/null'", "none"),
        ("COPY (SELECT 1) TO STDOUT", "query"),
        ("COPY (DELETE FROM t RETURNING n) TO STDOUT", "autocommit"),
        ("COPY (SELECT n FROM t FOR UPDATE) TO STDOUT", "autocommit"),
        ("COPY (WITH x AS (UPDATE t SET n = 1 RETURNING n) SELECT * FROM x) TO STDOUT", "autocommit"),
        ("INSERT INTO t VALUES (1)", "autocommit"),
        ("UPDATE t SET n = 2", "autocommit"),
        ("DELETE FROM t", "autocommit"),
        ("SELECT * FROM t FOR UPDATE", "autocommit"),
        ("WITH x AS (INSERT INTO t VALUES (1) RETURNING n) SELECT * FROM x", "autocommit"),
        ("EXPLAIN SELECT 1", "none"),
        ("EXPLAIN ANALYZE SELECT 1", "query"),
        ("CREATE TABLE u AS SELECT 1", "autocommit"),
        ("CREATE TABLE empty AS SELECT 1 WITH NO DATA", "none"),
        ("SELECT 1 AS n INTO v", "autocommit"),
        ("CREATE MATERIALIZED VIEW m AS SELECT 1", "autocommit"),
        ("EXPLAIN ANALYZE CREATE TABLE w AS SELECT 1", "autocommit"),
        ("EXPLAIN CREATE TABLE x AS SELECT 1", "none"),
        ("PREPARE p AS SELECT 1", "none"),
        ("EXECUTE p", "query"),
        ("CREATE TABLE y AS EXECUTE p", "autocommit"),
        ("EXPLAIN ANALYZE CREATE TABLE z AS EXECUTE p", "autocommit"),
        ("EXECUTE p", "query"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "query"),
        ("DO 'BEGIN CREATE TABLE q AS SELECT 1; COMMIT; PERFORM count(*) FROM t; END'", "autocommit,query"),
        ("SELECT 1; BEGIN; ROLLBACK", "transaction,query"),
        ("INSERT INTO t VALUES (1); START TRANSACTION; COMMIT", "transaction,autocommit"),
        ("DO 'BEGIN PERFORM count(*) FROM t; END'", "query"),
        ("TRUNCATE t", "none"),
        ("VACUUM t", "none"),
        ("SET work_mem = '1MB'", "none"),
        ("BEGIN", "transaction"),
        ("ROLLBACK", "none"),
    ] {
        gate.server.execute("SELECT sluice_gate_reset()");
        let outcome = match sql.ends_with("STDOUT") {
            true => client.copy_out(sql).map(drop),
            false => client.batch_execute(sql),
        };
        match outcome {
            Ok(()) => {}
            // Only members of pg_write_server_files may.
            Err(error) if sql.contains("/dev/null") => {
                assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE))
            }
            Err(error) => panic!("{sql}: {error:?}"),
        }
        let passed =
            gate.server.value("SELECT coalesce(string_agg(name, ','), 'none') FROM sluice_gate WHERE admitted > 0");
        let expected = if sql.contains("/dev/null") { "query" } else { class };
        assert_eq!(passed, expected, "{sql}");
    }
    gate.set(&[("sluice.bigquery_cost", "1000")]);
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "SELECT count(*) FROM generate_series(1, 10) a");
    run(&mut client, "SELECT count(*) FROM generate_series(1, 1000) a, generate_series(1, 1000) b");
    assert_eq!((gate.of("query", "admitted").as_str(), gate.of("bigquery", "admitted").as_str()), ("1", "1"));
}

fn each_end_gives_the_slot_back(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    for end in [
        "COMMIT",
        "ROLLBACK",
        "SELECT 1/0",
        "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'",
        "SAVEPOINT s; RELEASE s; COMMIT",
        "END AND NO CHAIN",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(9)",
    ] {
        let mut client = gate.session();
        run(&mut client, "BEGIN");
        gate.runs("transaction", 1);
        let _may_fail = client.batch_execute(end);
        gate.runs("transaction", 0);
    }
    // An error in a subtransaction does not end the block.
    let mut client = gate.session();
    run(&mut client, "BEGIN; SAVEPOINT s");
    assert_eq!(code(client.batch_execute("SELECT 1/0")), SqlState::DIVISION_BY_ZERO);
    gate.runs("transaction", 1);
    run(&mut client, "ROLLBACK TO s");
    gate.runs("transaction", 1);
    // A client that is gone.
    drop(client);
    gate.runs("transaction", 0);
}

fn a_wait_can_be_ended(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    for (how, expected) in [("cancel", SqlState::QUERY_CANCELED), ("terminate", SqlState::ADMIN_SHUTDOWN)] {
        let mut client = gate.session();
        let pid = pid_of(&mut client);
        let waiting = meanwhile_run(client, "BEGIN");
        gate.waits("transaction", 1);
        gate.server.execute(&format!("SELECT pg_{how}_backend({pid})"));
        let (mut client, outcome) = waiting.join().unwrap();
        // A block begins all the same, and fails with its next statement.
        let error = outcome.and_then(|()| client.batch_execute("SELECT 1")).unwrap_err();
        // The end of the connection may be seen before the message that tells of it.
        assert!(error.code() == Some(&expected) || (how == "terminate" && error.is_closed()), "{how}: {error:?}");
        gate.waits("transaction", 0);
    }
    // In the midst of the queue, too.
    let mut waiting = Vec::new();
    for position in 1..=3 {
        let mut client = gate.session();
        let pid = pid_of(&mut client);
        waiting.push((pid, meanwhile_run(client, "BEGIN; COMMIT")));
        gate.waits("transaction", position);
    }
    gate.server.execute(&format!("SELECT pg_cancel_backend({})", waiting[1].0));
    gate.waits("transaction", 2);
    run(&mut inside, "COMMIT");
    let outcomes: Vec<bool> = waiting.into_iter().map(|(_, handle)| handle.join().unwrap().1.is_ok()).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(gate.of("transaction", "failed_waits"), "3");
    // In a subtransaction that catches the error, the session goes on, and not in the queue.
    gate.set(&[ONE_QUERY]);
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    let caught = meanwhile_run(
        gate.session(),
        "SET statement_timeout = '100ms';
         DO $$ BEGIN PERFORM 1 FROM pg_class; EXCEPTION WHEN query_canceled THEN NULL; END $$",
    );
    caught.join().unwrap().1.unwrap();
    gate.waits("query", 0);
    occupied.end();
}

fn a_client_that_has_gone_leaves_the_queue(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ("deadlock_timeout", "100ms")]);
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    // Awake, or the others would be let in.
    let inside = meanwhile_run(inside, "SELECT pg_sleep(3); COMMIT");
    let log = || fs::read(gate.server.log_file()).unwrap();
    let before = log().len();
    let mut raw = gate.server.raw().login("app", &gate.database.name);
    raw.send(&Script::new().query("BEGIN"));
    gate.waits("transaction", 1);
    drop(raw);
    gate.waits("transaction", 0);
    inside.join().unwrap().1.unwrap();
    let written = String::from_utf8_lossy(&log()[before..]).into_owned();
    assert!(written.contains("FATAL:  connection to client lost"), "{written}");
    assert!(!written.contains("could not send data to client"), "{written}");
}

fn a_wait_has_a_limit(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    let mut client = gate.session();
    run(&mut client, "SET sluice.gate_timeout = '50ms'; BEGIN");
    let error = client.batch_execute("SELECT 1").unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "53S01");
    assert_eq!(error.message(), "canceling statement due to gate timeout");
    assert_eq!(error.detail(), Some("The class gate \"transaction\" has a limit of 1 and a queue length of 1."));
    assert!(error.hint().unwrap().contains("sluice.gate_timeout"));
    // Statements outside of a block go on.
    run(&mut client, "ROLLBACK; SELECT 1");
    run(&mut client, "RESET sluice.gate_timeout; SET statement_timeout = '50ms'; BEGIN");
    assert_eq!(code(client.batch_execute("SELECT 1")), SqlState::QUERY_CANCELED);
    assert_eq!(gate.of("transaction", "concat_ws('/', waiting, failed_waits)"), "0/2");
}

/// The gate of the role opens when most of the time is over; what is left is for the next one.
fn all_gates_share_one_deadline(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ("sluice.role_concurrency", "app=1")]);
    becomes("the gate of the role", "1".to_owned(), || gate.of("app", "concurrency"));
    gate.server.execute("DROP ROLE IF EXISTS other; CREATE ROLE other LOGIN IN ROLE trusted");
    let mut other = gate.session_of("other");
    run(&mut other, "BEGIN");
    gate.runs("transaction", 1);
    let inside = meanwhile_run(gate.session(), "SELECT pg_sleep(6)");
    gate.runs("app", 1);
    let waiting = meanwhile(gate.session(), |client| {
        run(client, "SET sluice.gate_timeout = '8s'");
        let begin = Instant::now();
        run(client, "BEGIN");
        (code(client.batch_execute("SELECT 1")), begin.elapsed())
    });
    let (_client, (code, elapsed)) = waiting.join().unwrap();
    assert_eq!(code.code(), "53S01");
    assert!(elapsed < Duration::from_secs(13), "{elapsed:?}");
    inside.join().unwrap().1.unwrap();
}

fn first_come_first_served(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    let mut inside = gate.session();
    run(&mut inside, "CREATE TABLE came (position int, at timestamptz DEFAULT clock_timestamp()); BEGIN");
    let mut waiting = Vec::new();
    for position in 0..8 {
        let statements = format!("BEGIN; INSERT INTO came VALUES ({position}); COMMIT");
        waiting.push(meanwhile(gate.session(), move |client| run(client, &statements)));
        gate.waits("transaction", position + 1);
    }
    run(&mut inside, "COMMIT");
    for handle in waiting {
        handle.join().unwrap();
    }
    let order: String =
        inside.query_one("SELECT string_agg(position::text, '' ORDER BY at) FROM came", &[]).unwrap().get(0);
    assert_eq!(order, "01234567");
}

fn several_statements_in_one_string(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ONE_QUERY, ONE_WRITE]);
    let mut client = gate.session();
    run(&mut client, "CREATE TABLE t (n int)");
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "SELECT 1; INSERT INTO t VALUES (1); SELECT 2");
    assert_eq!(gate.sum("admitted"), 1, "they are one transaction");
    run(&mut client, "INSERT INTO t VALUES (2); BEGIN; SELECT 1; COMMIT; SELECT 2");
    // The block has a slot of its own, and gives back that of what stands before it.
    assert_eq!((gate.sum("admitted"), gate.sum("running")), (4, 0));
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    let waiting = meanwhile_run(gate.session(), "SELECT 1; BEGIN; INSERT INTO t VALUES (3); COMMIT");
    gate.waits("transaction", 1);
    gate.runs("query", 0);
    run(&mut inside, "COMMIT");
    waiting.join().unwrap().1.unwrap();
    // A wait that fails takes with it what stands before the BEGIN.
    run(&mut inside, "BEGIN");
    let outcome = client.batch_execute(
        "SET LOCAL sluice.gate_timeout = '50ms'; INSERT INTO t VALUES (4); BEGIN; INSERT INTO t VALUES (5); COMMIT",
    );
    assert_eq!(code(outcome).code(), "53S01");
    run(&mut client, "ROLLBACK");
    run(&mut inside, "COMMIT");
    assert_eq!(client.query_one("SELECT count(*) FROM t WHERE n > 3", &[]).unwrap().get::<_, i64>(0), 0);
    // Within a block, a further BEGIN asks for nothing.
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "BEGIN; SELECT 1; BEGIN; COMMIT");
    assert_eq!((gate.sum("admitted"), gate.sum("running")), (1, 0));
}

fn a_chained_block_waits_at_its_first_statement(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK]);
    let mut first = gate.session();
    run(&mut first, "BEGIN; SELECT 1");
    let waiting = meanwhile_run(gate.session(), "BEGIN");
    gate.waits("transaction", 1);
    run(&mut first, "COMMIT AND CHAIN");
    let (mut second, outcome) = waiting.join().unwrap();
    outcome.unwrap();
    let waiting = meanwhile_run(first, "SELECT 1; SELECT 2; COMMIT");
    gate.waits("transaction", 1);
    run(&mut second, "COMMIT");
    waiting.join().unwrap().1.unwrap();
    assert_eq!(gate.of("transaction", "admitted"), "3");
}

fn a_procedure_that_commits_enters_anew(version: Version) {
    let gate = Gate::new(version, &[ONE_WRITE]);
    let mut client = gate.session();
    run(
        &mut client,
        "CREATE TABLE t (n int);
         CREATE PROCEDURE p(times int) LANGUAGE plpgsql AS $$
         BEGIN
           FOR i IN 1..times LOOP INSERT INTO t VALUES (i); COMMIT; END LOOP;
         END $$",
    );
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "CALL p(5)");
    assert_eq!(gate.of("autocommit", "concat_ws('/', admitted, running)"), "5/0");
}

fn a_chain_that_fails_is_none(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY, ("sluice.transaction_concurrency", "5")]);
    let mut client = gate.session();
    run(&mut client, "CREATE TABLE t (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); INSERT INTO t VALUES (1)");
    for (prepare, fail) in [
        ("SELECT 1", "COMMIT AND CHAIN"),
        ("BEGIN; INSERT INTO t VALUES (1)", "COMMIT AND CHAIN"),
        ("SELECT 1", "ROLLBACK AND CHAIN"),
    ] {
        run(&mut client, prepare);
        assert!(client.batch_execute(fail).is_err());
        gate.server.execute("SELECT sluice_gate_reset()");
        run(&mut client, "SELECT 1");
        assert_eq!(gate.of("query", "admitted"), "1", "{fail}: a statement of its own");
    }
    // Those that succeed, also from a block that has failed.
    run(&mut client, "BEGIN");
    assert!(client.batch_execute("SELECT 1/0").is_err());
    run(&mut client, "ROLLBACK AND CHAIN");
    gate.server.execute("SELECT sluice_gate_reset()");
    run(&mut client, "SELECT 1");
    assert_eq!(gate.of("transaction", "concat_ws('/', admitted, running)"), "1/1");
    run(&mut client, "ROLLBACK AND CHAIN");
    run(&mut client, "SELECT 1");
    assert_eq!(gate.of("transaction", "concat_ws('/', admitted, running)"), "2/1");
    run(&mut client, "COMMIT");
    gate.runs("transaction", 0);
}

fn an_error_that_is_caught_leaves_no_slot_behind(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY, ("sluice.role_concurrency", "app=9")]);
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    let waiting = meanwhile_run(
        gate.session(),
        "SET sluice.gate_timeout = '50ms';
         DO $$
         DECLARE
           told text;
         BEGIN
           PERFORM 1 FROM pg_class;
         EXCEPTION WHEN OTHERS THEN
           -- Such an expression does not start the executor, and so does not wait, for 50 ms as yet.
           told := set_config('sluice.gate_timeout', '0', false);
           PERFORM 2 FROM pg_class;
         END $$",
    );
    // The second statement waits as well, and has not come in by the first one's slot.
    becomes("queued again", "1/1".to_owned(), || gate.of("query", "concat_ws('/', failed_waits, waiting)"));
    occupied.end();
    waiting.join().unwrap().1.unwrap();
    assert_eq!(gate.sum("running"), 0);
}

/// The session has a slot of its role's gate when it finds the next one full, and the catalog of roles is locked: what it
/// looks up there could not be found before its time is up.
fn an_error_in_the_catalog_leaves_no_slot_behind(version: Version) {
    let gate = Gate::new(version, &[ONE_QUERY, ("sluice.role_concurrency", "app=9")]);
    becomes("the gate of the role", "9".to_owned(), || gate.of("app", "concurrency"));
    let mut client = gate.session();
    let pid = pid_of(&mut client);
    let occupied = Occupied::by(&gate, "SELECT pg_advisory_lock(1)");
    let mut superuser = gate.database.superuser();
    run(&mut superuser, "BEGIN; SELECT pg_advisory_lock(2)");
    // Simple expressions don't start the executor, and so wait nowhere. Nothing else looks for a role.
    let waiting = meanwhile_run(
        client,
        "SET search_path = '';
         SET lock_timeout = '100ms';
         SET sluice.gate_timeout = '1s';
         DO $$
         DECLARE x text;
         BEGIN
           x := pg_advisory_xact_lock(3);
           -- Either may look for the role, and find the catalog locked before lock 2 is given back.
           LOOP
             BEGIN
               EXIT WHEN pg_try_advisory_lock_shared(2);
               x := pg_sleep(0.01);
             EXCEPTION WHEN OTHERS THEN NULL;
             END;
           END LOOP;
           -- The lock on a table is where a session hears what others have changed, in the loop already, perhaps.
           BEGIN x := pg_relation_size(1259); EXCEPTION WHEN OTHERS THEN NULL; END;
           FOR try IN 1..3 LOOP
             BEGIN
               PERFORM 1;
             EXCEPTION WHEN OTHERS THEN
               NULL;
             END;
           END LOOP;
         END $$",
    );
    becomes("it runs", "1".to_owned(), || {
        gate.server.value(&format!("SELECT count(*) FROM pg_locks WHERE pid = {pid} AND objid = 3"))
    });
    // What the session knew of its role is void.
    gate.server.execute("ALTER ROLE app CONNECTION LIMIT 1000; ALTER ROLE app CONNECTION LIMIT -1");
    run(&mut superuser, "LOCK TABLE pg_authid; SELECT pg_advisory_unlock(2)");
    waiting.join().unwrap().1.unwrap();
    run(&mut superuser, "COMMIT");
    occupied.end();
    assert_eq!(gate.sum("running"), 0);
}
