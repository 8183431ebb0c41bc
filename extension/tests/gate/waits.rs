//! Waits: the sessions that wait and where, the ends of a wait, and the times when a slot is given back.

use std::{
    fs,
    time::{Duration, Instant},
};

use postgres::{Client, error::SqlState};
use sluice_testkit::{Version, becomes, raw::Script, versions};

use crate::{
    names_waits,
    server::{Gate, Running, code, meanwhile, meanwhile_run, pid_of, run},
};

versions!(
    a_block_waits_at_its_begin_and_holds_nothing,
    a_single_statement_waits_before_it_runs,
    statements_are_of_the_class_that_they_are,
    who_is_inside_passes,
    what_never_waits,
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
    a_statement_that_has_passed_is_inside,
    what_runs_while_planning_passes_no_gate,
    ddl_does_not_wait_for_its_own_queries,
    a_copy_of_a_program_waits_nowhere,
    a_login_waits_nowhere,
);

const ONE_BLOCK: (&str, &str) = ("sluice.transaction_concurrency", "1");
const ONE_QUERY: (&str, &str) = ("sluice.query_concurrency", "1");
const ONE_WRITE: (&str, &str) = ("sluice.autocommit_concurrency", "1");

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

/// The slot of the query gate, taken by a statement that waits for an advisory lock, which another session holds.
struct Occupied {
    holder: Client,
    inside: Running,
}

impl Occupied {
    fn by(gate: &Gate, sql: &'static str) -> Self {
        let mut holder = gate.session();
        run(&mut holder, "SELECT pg_advisory_lock(1)");
        let inside = meanwhile_run(gate.session(), sql);
        gate.runs("query", 1);
        Self { holder, inside }
    }

    fn end(self) {
        drop(self.holder);
        self.inside.join().unwrap().1.unwrap();
    }
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
    let inside = meanwhile_run(gate.session(), "SELECT pg_sleep(3)");
    gate.runs("app", 1);
    let waiting = meanwhile(gate.session(), |client| {
        run(client, "SET sluice.gate_timeout = '4s'");
        let begin = Instant::now();
        run(client, "BEGIN");
        (code(client.batch_execute("SELECT 1")), begin.elapsed())
    });
    let (_client, (code, elapsed)) = waiting.join().unwrap();
    assert_eq!(code.code(), "53S01");
    assert!(elapsed < Duration::from_secs(6), "{elapsed:?}");
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
         BEGIN
           PERFORM 1 FROM pg_class;
         EXCEPTION WHEN OTHERS THEN
           PERFORM set_config('sluice.gate_timeout', '0', false);
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
