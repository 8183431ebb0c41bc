//! Blocks whose wait at BEGIN has failed: nothing that belongs to one runs outside of it.

use postgres::Client;
use sluice_testkit::{
    Version,
    raw::{Raw, Script, transcript},
    versions,
};
use sluice_wire::message::backend;

use crate::server::{Gate, run};

versions!(
    nothing_runs_outside_of_a_block_that_was_not_admitted,
    the_end_of_a_block_that_was_not_admitted,
    pipelines_of_blocks_that_are_not_admitted,
    a_cancel_of_a_begin_is_remembered,
    a_block_that_was_not_admitted_holds_nothing,
);

/// A gate that lets one block in, which is inside, and a table that is empty.
fn full(version: Version) -> (Gate, Client) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1")]);
    let mut inside = gate.session();
    run(&mut inside, "CREATE TABLE t (n int)");
    run(&mut inside, "BEGIN");
    (gate, inside)
}

/// A session that waits for so long at a gate.
fn hasty(gate: &Gate, setting: &str) -> Raw {
    let mut raw = gate.server.raw().login("app", &gate.database.name);
    raw.query(setting);
    raw
}

/// The answers to a script of so many Syncs and Queries, without reports of settings.
fn answers(raw: &mut Raw, script: &Script, readies: usize) -> String {
    raw.send(script);
    let mut messages = raw.until_ready(readies);
    messages.retain(|message| message.tag != backend::PARAMETER_STATUS);
    transcript(&messages)
}

/// Sends texts one after the other; each has to be answered like that.
#[track_caller]
fn talk(raw: &mut Raw, texts: &[(&str, &str)]) {
    for (sql, expected) in texts {
        assert_eq!(answers(raw, &Script::new().query(sql), 1), *expected, "{sql}");
    }
}

const GATE_TIMEOUT: &str = "SET sluice.gate_timeout = '50ms'";

fn nothing_runs_outside_of_a_block_that_was_not_admitted(version: Version) {
    let (gate, mut inside) = full(version);
    for (setting, code) in [(GATE_TIMEOUT, "53S01"), ("SET statement_timeout = '200ms'", "57014")] {
        let mut raw = hasty(&gate, setting);
        let refused = format!("E({code}) Z(E)");
        for first in [
            "INSERT INTO t VALUES (1)",
            "SELECT 1",
            "EXPLAIN SELECT 1",
            "CREATE TABLE u (n int)",
            "SAVEPOINT s",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET work_mem = '1MB'",
            "SHOW work_mem",
            "LISTEN heard",
            "COPY t TO STDOUT",
            "COPY t FROM STDIN",
            "DECLARE c CURSOR FOR SELECT 1",
            "BEGIN",
            "DO 'BEGIN END'",
            "CALL missing()",
            "PREPARE p AS SELECT 1",
        ] {
            talk(&mut raw, &[("BEGIN", "C(BEGIN) Z(T)")]);
            // Parse analysis may find out before that there is no such procedure.
            let heard = answers(&mut raw, &Script::new().query(first), 1);
            assert!(heard == refused || (first.starts_with("CALL") && heard == "E(42883) Z(E)"), "{first}: {heard}");
            talk(
                &mut raw,
                &[
                    ("INSERT INTO t VALUES (2)", "E(25P02) Z(E)"),
                    ("ROLLBACK", "C(ROLLBACK) Z(I)"),
                    ("EXECUTE p", "E(26000) Z(I)"),
                ],
            );
        }
        // An empty string is no statement.
        talk(&mut raw, &[("BEGIN", "C(BEGIN) Z(T)"), (";", "I Z(T)"), ("SELECT 1", &refused)]);
        talk(&mut raw, &[("COMMIT", "C(ROLLBACK) Z(I)")]);
        // All of it in one string, as psql -c sends it.
        let all = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); ROLLBACK";
        talk(&mut raw, &[(all, &format!("C(BEGIN) E({code}) Z(E)")), ("ROLLBACK", "C(ROLLBACK) Z(I)")]);
    }
    run(&mut inside, "COMMIT");
    assert_eq!(gate.session().query_one("SELECT count(*) FROM t", &[]).unwrap().get::<_, i64>(0), 0);
    // With room again, the session goes on as if nothing had been.
    let mut raw = hasty(&gate, GATE_TIMEOUT);
    talk(
        &mut raw,
        &[("BEGIN", "C(BEGIN) Z(T)"), ("INSERT INTO t VALUES (3)", "C(INSERT 0 1) Z(T)"), ("COMMIT", "C(COMMIT) Z(I)")],
    );
}

fn the_end_of_a_block_that_was_not_admitted(version: Version) {
    let (gate, _inside) = full(version);
    let mut raw = hasty(&gate, GATE_TIMEOUT);
    let begun = ("BEGIN", "C(BEGIN) Z(T)");
    // What asks for a commit is told that there is none, and the block is over, as where a deferred constraint fails.
    for end in ["COMMIT", "END", "COMMIT AND CHAIN", "PREPARE TRANSACTION 'p'"] {
        talk(
            &mut raw,
            &[
                begun,
                (end, "E(53S01) Z(I)"),
                ("SHOW transaction_isolation", "T(transaction_isolation) D(read committed) C(SHOW) Z(I)"),
            ],
        );
    }
    assert_eq!(gate.server.value("SELECT count(*) FROM pg_prepared_xacts"), "0");
    talk(
        &mut raw,
        &[
            begun,
            ("ROLLBACK", "C(ROLLBACK) Z(I)"),
            ("ROLLBACK", "N(there is no transaction in progress) C(ROLLBACK) Z(I)"),
        ],
    );
    // The next block asks the gate anew.
    talk(
        &mut raw,
        &[
            begun,
            ("ROLLBACK AND CHAIN", "C(ROLLBACK) Z(T)"),
            ("SELECT 1", "E(53S01) Z(E)"),
            ("ROLLBACK", "C(ROLLBACK) Z(I)"),
        ],
    );
    assert_eq!(gate.of("transaction", "concat_ws('/', running, waiting)"), "1/0");
}

fn pipelines_of_blocks_that_are_not_admitted(version: Version) {
    let (gate, mut inside) = full(version);
    let mut raw = hasty(&gate, GATE_TIMEOUT);
    let command = |sql: &str| Script::new().unnamed(sql, &[]);
    let (begin, insert, commit) = (command("BEGIN"), command("INSERT INTO t VALUES (1)"), command("COMMIT"));
    // A Sync for each command.
    let script = begin.clone().sync().then(&insert).sync().then(&insert).sync().then(&commit).sync();
    let heard = answers(&mut raw, &script, 4);
    assert_eq!(heard, "1 2 n C(BEGIN) Z(T) 1 2 n E(53S01) Z(E) E(25P02) Z(E) 1 2 n C(ROLLBACK) Z(I)");
    // One for all of them: the rest is skipped, and the block has failed.
    let script = begin.clone().then(&insert).then(&insert).then(&commit).sync();
    assert_eq!(answers(&mut raw, &script, 1), "1 2 n C(BEGIN) 1 2 n E(53S01) Z(E)");
    talk(&mut raw, &[("ROLLBACK", "C(ROLLBACK) Z(I)")]);
    // Queries that are sent without waiting.
    let script = Script::new().query("BEGIN").query("INSERT INTO t VALUES (1)").query("COMMIT");
    assert_eq!(answers(&mut raw, &script, 3), "C(BEGIN) Z(T) E(53S01) Z(E) C(ROLLBACK) Z(I)");
    // Statements that were prepared before, of which nothing is parsed or planned any more.
    let prepare = Script::new().parse("i", "INSERT INTO t VALUES (1)").parse("s", "SELECT n FROM t").sync();
    assert_eq!(answers(&mut raw, &prepare, 1), "1 1 Z(I)");
    for name in ["i", "s"] {
        let script = begin.clone().sync().then(&Script::new().bind(name, &[]).execute()).sync();
        let heard = answers(&mut raw, &script, 2);
        assert!(heard.starts_with("1 2 n C(BEGIN) Z(T) ") && heard.ends_with("E(53S01) Z(E)"), "{name}: {heard}");
        talk(&mut raw, &[("ROLLBACK", "C(ROLLBACK) Z(I)")]);
    }
    // lo_create(0), by the protocol's FunctionCall.
    let script = begin.sync().then(&Script::new().call(715, &[&[0, 0, 0, 0]]));
    assert_eq!(answers(&mut raw, &script, 2), "1 2 n C(BEGIN) Z(T) E(53S01) Z(E)");
    talk(&mut raw, &[("ROLLBACK", "C(ROLLBACK) Z(I)")]);
    run(&mut inside, "COMMIT");
    let left = "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM pg_largeobject_metadata)";
    assert_eq!(inside.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
}

fn a_cancel_of_a_begin_is_remembered(version: Version) {
    let (gate, _inside) = full(version);
    let mut raw = gate.server.raw().login("app", &gate.database.name);
    raw.send(&Script::new().query("BEGIN"));
    gate.waits("transaction", 1);
    gate.server.execute(&format!("SELECT pg_cancel_backend({})", raw.key.0));
    assert_eq!(transcript(&raw.until_ready(1)), "C(BEGIN) Z(T)");
    gate.waits("transaction", 0);
    raw.send(&Script::new().query("INSERT INTO t VALUES (1)"));
    let messages = raw.until_ready(1);
    assert_eq!(transcript(&messages), "E(57014) Z(E)");
    assert_eq!(messages[0].field(b'M'), "canceling statement due to user request");
    assert_eq!(messages[0].field(b'W'), "while waiting for admission at the BEGIN of this transaction block");
    talk(&mut raw, &[("ROLLBACK", "C(ROLLBACK) Z(I)")]);
}

fn a_block_that_was_not_admitted_holds_nothing(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1"), ("sluice.role_concurrency", "app=2")]);
    let mut inside = gate.session();
    run(&mut inside, "BEGIN");
    let mut raw = hasty(&gate, GATE_TIMEOUT);
    talk(&mut raw, &[("BEGIN", "C(BEGIN) Z(T)")]);
    gate.runs("app", 1);
    gate.runs("transaction", 1);
    // Its client may think for as long as it likes, and others come and go.
    run(&mut inside, "COMMIT; BEGIN; COMMIT");
    gate.runs("transaction", 0);
    talk(&mut raw, &[("SELECT 1", "E(53S01) Z(E)"), ("ROLLBACK", "C(ROLLBACK) Z(I)"), ("BEGIN", "C(BEGIN) Z(T)")]);
    gate.runs("transaction", 1);
    assert_eq!(gate.of("transaction", "concat_ws('/', failed_waits, over_limit)"), "1/0");
}
