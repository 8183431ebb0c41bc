//! The protocol, message by message: what a client gets through the pool is what it gets from PostgreSQL itself.

use std::time::Duration;

use sluice_testkit::{Case, Mode, Raw, Script, becomes, matrix, raw::transcript};

use crate::{config, database};

matrix!(both_modes:
    scripts_answer_as_postgresql_does,
    flush_brings_answers_before_sync,
    large_values_both_ways,
    notices_reach_their_client,
    malformed_messages_end_that_client_only,
);
matrix!(brief: messages_cut_at_every_byte, oversized_messages_are_refused);

/// What a client sends, and how many ReadyForQuery it then waits for.
type Step = (Script, usize);

fn s() -> Script {
    Script::new()
}

/// Each is run in a session of its own. The table `t (id int primary key, v text)` is there, and empty.
fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    let mut all = simple();
    all.extend(extended());
    all.extend(names());
    all.extend(begins());
    all.extend(errors());
    all.extend(copies());
    all
}

fn simple() -> Vec<(&'static str, Vec<Step>)> {
    let rows = "SELECT i, NULL AS n, repeat('x', i) FROM generate_series(1, 3) i";
    vec![
        ("one query", vec![(s().query("SELECT 1 AS a, 'b' AS b, NULL AS c"), 1)]),
        ("rows", vec![(s().query(rows), 1), (s().query("SELECT WHERE false"), 1)]),
        ("empty queries", vec![(s().query("").query(" ; ").query("-- nothing"), 3)]),
        ("several statements", vec![(s().query("SELECT 1; SELECT 2; INSERT INTO t VALUES (1, 'a'); SELECT 3"), 1)]),
        ("several statements, an error", vec![(s().query("SELECT 1; SELECT 1/0; SELECT 2"), 1)]),
        ("queries in a pipeline", vec![(s().query("SELECT 1").query("SELECT 1/0").query("BEGIN").query("END"), 4)]),
        (
            "a transaction",
            vec![
                (s().query("BEGIN"), 1),
                (s().query("INSERT INTO t VALUES (1, 'a')"), 1),
                (s().query("SAVEPOINT a"), 1),
                (s().query("SELECT 1/0"), 1),
                (s().query("SELECT 1"), 1),
                (s().query("ROLLBACK TO a; SELECT count(*) FROM t"), 1),
                (s().query("COMMIT"), 1),
                (s().query("SELECT count(*) FROM t"), 1),
            ],
        ),
        (
            "a transaction that fails to commit",
            vec![(s().query("BEGIN").query("SELECT 1/0").query("COMMIT").query("SELECT 1"), 4)],
        ),
        ("warnings", vec![(s().query("COMMIT").query("ROLLBACK").query("BEGIN; BEGIN; ROLLBACK"), 3)]),
        ("do with a notice", vec![(s().query("DO $$ BEGIN RAISE NOTICE 'hi'; RAISE WARNING 'ho'; END $$"), 1)]),
        // pg_catalog.int4pl, version, and a function that does not exist.
        ("function calls", vec![(s().call(177, &[&[0, 0, 0, 2], &[0, 0, 0, 3]]).call(89, &[]).call(1, &[]), 3)]),
        (
            "function calls in a transaction",
            vec![(s().query("BEGIN").call(177, &[&[0, 0, 0, 2], &[0, 0, 0, 3]]).call(1, &[]).query("ROLLBACK"), 4)],
        ),
        ("only syncs", vec![(s().sync().sync().flush().sync(), 3)]),
    ]
}

/// Commands about names, and what comes behind them before they are answered.
fn names() -> Vec<(&'static str, Vec<Step>)> {
    let one = || s().parse("a", "SELECT 1").parse("b", "SELECT 2").sync();
    let use_b = || s().bind("b", &[]).execute().sync();
    vec![
        (
            "deallocate in a pipeline of queries",
            vec![
                (one(), 1),
                (s().query("SELECT 1").query("DEALLOCATE a").query("SELECT 3").query("DEALLOCATE a"), 4),
                (s().query("BEGIN").query("SELECT 1/0").query("DEALLOCATE b").query("ROLLBACK").then(&use_b()), 5),
                (s().query("SELECT 1").query("COPY (SELECT 1) TO STDOUT").query("DEALLOCATE b").then(&use_b()), 4),
            ],
        ),
        (
            "names given behind deallocate all",
            vec![
                (one(), 1),
                (s().query("BEGIN").query("SELECT 1"), 2),
                (s().query("DEALLOCATE ALL").parse("b", "SELECT 4").sync().then(&use_b()), 3),
                (use_b(), 1),
                (s().query("COMMIT").query("DISCARD ALL").parse("b", "SELECT 5").sync().then(&use_b()), 4),
                (use_b(), 1),
                (s().query("SELECT 1").query("DISCARD ALL").then(&one()).then(&use_b()), 4),
            ],
        ),
    ]
}

/// A BEGIN on its own is answered without a server; nothing of that is to be seen.
fn begins() -> Vec<(&'static str, Vec<Step>)> {
    let isolation = "SHOW transaction_isolation; SHOW transaction_read_only";
    vec![
        ("nothing in a transaction", vec![(s().query("BEGIN"), 1), (s().query("COMMIT"), 1)]),
        ("nothing, rolled back", vec![(s().query("begin work;"), 1), (s().query("ROLLBACK"), 1)]),
        ("nothing, and gone", vec![(s().query("BEGIN"), 1)]),
        ("begin twice", vec![(s().query("BEGIN"), 1), (s().query("BEGIN"), 1), (s().query("COMMIT"), 1)]),
        ("start", vec![(s().query("START TRANSACTION"), 1), (s().query("SELECT 1"), 1), (s().query("END"), 1)]),
        (
            "modes",
            vec![
                (s().query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), 1),
                (s().query(isolation), 1),
                (s().query("INSERT INTO t VALUES (1, 'a')"), 1),
                (s().query("COMMIT"), 1),
                (s().query("start transaction isolation level serializable"), 1),
                (s().query(isolation).query("COMMIT"), 2),
                (s().query("BEGIN ISOLATION LEVEL NONE"), 1),
            ],
        ),
        (
            "begin by Parse and Bind",
            vec![
                (s().parse("b", "BEGIN").describe("b").sync(), 1),
                (s().bind("b", &[]).describe_portal("").execute().sync(), 1),
                (s().query("INSERT INTO t VALUES (1, 'a')"), 1),
                (s().query("ROLLBACK").query("SELECT count(*) FROM t"), 2),
                (s().unnamed("BEGIN", &[]).sync(), 1),
                (s().unnamed("INSERT INTO t VALUES (2, 'a')", &[]).sync(), 1),
                (s().unnamed("COMMIT", &[]).sync().query("SELECT count(*) FROM t"), 2),
                (s().bind("b", &[]).execute().close("b").sync().query("ROLLBACK"), 2),
            ],
        ),
        (
            "begin step by step",
            vec![
                (s().parse("b", "BEGIN").sync(), 1),
                (s().bind("b", &[]).sync(), 1),
                (s().execute().sync(), 1),
                (s().bind("b", &[]).flush().parse("", "SELECT 'never seen before'").execute().sync(), 1),
                (s().query("SELECT 1").query("ROLLBACK"), 2),
                (s().bind("b", &[]).close_portal("").execute().sync(), 1),
                (s().bind("b", &[Some("1")]).execute().sync(), 1),
            ],
        ),
        (
            "errors behind begin",
            vec![
                (s().query("BEGIN"), 1),
                (s().bind("missing", &[]).execute().sync(), 1),
                (s().query("SELECT 1").query("ROLLBACK"), 2),
                (s().query("BEGIN").query("SELECT 1/0").query("SELECT 1").query("COMMIT"), 4),
                (s().query("BEGIN"), 1),
                (s().query("nonsense"), 1),
                (s().unnamed("SELECT 1", &[]).sync().query("ROLLBACK"), 2),
            ],
        ),
        (
            "commands about the session behind begin",
            vec![
                (s().parse("p", "SELECT 1").sync().query("BEGIN"), 2),
                (s().query("DISCARD ALL"), 1),
                (s().query("ROLLBACK").query("BEGIN"), 2),
                (s().query("DEALLOCATE p"), 1),
                (s().bind("p", &[]).execute().sync().query("ROLLBACK"), 2),
                (s().query("BEGIN"), 1),
                (s().query("SET LOCAL application_name = 'in it'").query("SHOW application_name"), 2),
                (s().query("COMMIT").query("SHOW application_name"), 2),
            ],
        ),
        (
            "savepoints, calls and copies behind begin",
            vec![
                (s().query("BEGIN"), 1),
                (s().query("SAVEPOINT a").query("ROLLBACK TO a").query("COMMIT"), 3),
                (s().query("BEGIN"), 1),
                (s().call(177, &[&[0, 0, 0, 2], &[0, 0, 0, 3]]).query("COMMIT"), 2),
                (s().query("BEGIN"), 1),
                (s().query("COPY (SELECT 1) TO STDOUT").query("COMMIT"), 2),
                (s().query("BEGIN").sync().flush().sync(), 3),
                (s().query("COMMIT"), 1),
            ],
        ),
    ]
}

fn extended() -> Vec<(&'static str, Vec<Step>)> {
    let many = (0..20).fold(s(), |s, i| s.unnamed("SELECT $1::int + 1", &[Some(&i.to_string())]).sync());
    vec![
        ("one query, extended", vec![(s().unnamed("SELECT $1::text AS a", &[Some("x")]).sync(), 1)]),
        ("a NULL parameter", vec![(s().unnamed("SELECT $1::text AS a, $2::int", &[None, Some("4")]).sync(), 1)]),
        ("many syncs in a pipeline", vec![(many, 20)]),
        ("many queries before a sync", vec![(s().unnamed("SELECT 1", &[]).unnamed("SELECT 2", &[]).sync(), 1)]),
        (
            "begin and commit among them",
            vec![(
                s().unnamed("BEGIN", &[])
                    .unnamed("INSERT INTO t VALUES (1, 'a')", &[])
                    .sync()
                    .unnamed("SELECT * FROM t", &[])
                    .unnamed("COMMIT", &[])
                    .sync(),
                2,
            )],
        ),
        ("an empty query, extended", vec![(s().unnamed("", &[]).sync(), 1)]),
        (
            "a named statement",
            vec![
                (s().parse_typed("a", "SELECT $1 + $2 AS sum", &[23, 23]).describe("a").sync(), 1),
                (s().bind("a", &[Some("1"), Some("2")]).execute().bind("a", &[Some("3"), None]).execute().sync(), 1),
                (s().bind("a", &[Some("1"), Some("2")]).describe_portal("").execute().close("a").sync(), 1),
                (s().bind("a", &[Some("1"), Some("2")]).execute().sync(), 1),
                (s().close("a").close("never was").sync(), 1),
            ],
        ),
        (
            "two names for one statement",
            vec![
                (s().parse("a", "SELECT 1").parse("b", "SELECT 1").close("a").sync(), 1),
                (s().bind("b", &[]).execute().sync(), 1),
                (s().bind("a", &[]).execute().sync(), 1),
            ],
        ),
        (
            "a name that is used again",
            vec![
                (s().parse("a", "SELECT 1").bind("a", &[]).execute().sync(), 1),
                (s().close("a").parse("a", "SELECT 2").bind("a", &[]).execute().sync(), 1),
            ],
        ),
        (
            "portals in a transaction",
            vec![
                (s().query("BEGIN"), 1),
                (
                    s().parse("g", "SELECT generate_series(1, 5)")
                        .bind_to("p", "g", &[])
                        .bind_to("q", "g", &[])
                        .execute_some("p", 2)
                        .execute_some("q", 1)
                        .sync(),
                    1,
                ),
                (s().execute_some("p", 2).execute_some("q", 0).execute_some("p", 2).sync(), 1),
                (s().close_portal("p").execute_some("p", 1).sync(), 1),
                (s().query("COMMIT"), 1),
            ],
        ),
        (
            "a simple query inside a batch",
            vec![(s().parse("", "SELECT 1").bind("", &[]).execute().query("SELECT 2").bind("", &[]).sync(), 2)],
        ),
        (
            "the unnamed statement outlives a sync",
            vec![(s().parse("", "SELECT 7").sync(), 1), (s().bind("", &[]).execute().sync(), 1)],
        ),
        (
            "describe alone, and parse alone",
            vec![
                (s().parse("", "SELECT $1::int AS a").describe("").sync(), 1),
                (s().parse("x", "UPDATE t SET v = $1 WHERE id = $2").describe("x").sync(), 1),
                (s().describe("x").describe("").sync(), 1),
            ],
        ),
        (
            "deallocate",
            vec![
                (s().parse("a", "SELECT 1").parse("b", "SELECT 2").sync(), 1),
                (s().query("DEALLOCATE a"), 1),
                (s().bind("a", &[]).sync(), 1),
                (s().unnamed("DEALLOCATE b", &[]).sync(), 1),
                (s().bind("b", &[]).sync(), 1),
                (s().parse("c", "SELECT 3").sync().query("DEALLOCATE ALL").bind("c", &[]).sync(), 3),
                (s().query("DEALLOCATE never_was"), 1),
            ],
        ),
        (
            "discard all",
            vec![
                (s().parse("a", "SELECT 1").sync(), 1),
                (s().query("DISCARD ALL"), 1),
                (s().bind("a", &[]).sync().parse("a", "SELECT 2").bind("a", &[]).execute().sync(), 2),
                (s().query("BEGIN; DISCARD ALL"), 1),
                (s().query("ROLLBACK"), 1),
            ],
        ),
    ]
}

fn errors() -> Vec<(&'static str, Vec<Step>)> {
    let bad = "SELECT 1/$1::int";
    vec![
        (
            "an error in a pipeline skips up to the sync",
            vec![(
                s().unnamed("SELECT 1", &[])
                    .unnamed(bad, &[Some("0")])
                    .unnamed("INSERT INTO t VALUES (1, 'skipped')", &[])
                    .close("x")
                    .sync()
                    .unnamed("SELECT count(*) FROM t", &[])
                    .sync(),
                2,
            )],
        ),
        (
            "an error in a transaction's pipeline",
            vec![
                (s().unnamed("BEGIN", &[]).unnamed(bad, &[Some("0")]).sync(), 1),
                (s().unnamed("SELECT 1", &[]).sync(), 1),
                (s().parse("n", "SELECT 1").sync(), 1),
                (s().parse("r", "ROLLBACK").bind("r", &[]).execute().sync().bind("n", &[]).sync(), 2),
            ],
        ),
        (
            "a parse that fails leaves the name free",
            vec![
                (s().parse("a", "SELEC 1").bind("a", &[]).execute().sync(), 1),
                (s().bind("a", &[]).sync(), 1),
                (s().parse("a", "SELECT 1").bind("a", &[]).execute().sync(), 1),
            ],
        ),
        (
            "a parse behind an error leaves the name free",
            vec![
                (s().unnamed(bad, &[Some("0")]).parse("a", "SELECT 1").sync(), 1),
                (s().parse("a", "SELECT 2").bind("a", &[]).execute().sync(), 1),
            ],
        ),
        (
            "a close behind an error closes nothing",
            vec![
                (s().parse("a", "SELECT 1").sync(), 1),
                (s().unnamed(bad, &[Some("0")]).close("a").sync(), 1),
                (s().bind("a", &[]).execute().sync(), 1),
            ],
        ),
        (
            "a name twice",
            vec![
                (s().parse("a", "SELECT 1").parse("a", "SELECT 2").bind("a", &[]).sync(), 1),
                (s().bind("a", &[]).execute().sync(), 1),
                (s().query("BEGIN").parse("a", "SELECT 1").sync().query("ROLLBACK"), 3),
            ],
        ),
        (
            "unknown names",
            vec![
                (s().bind("never was", &[]).execute().sync(), 1),
                (s().describe("never was").sync(), 1),
                (s().describe_portal("never was").sync(), 1),
                (s().execute_some("never was", 0).sync(), 1),
                (s().query("BEGIN").bind("never was", &[]).sync().query("ROLLBACK"), 3),
            ],
        ),
        ("no unnamed statement", vec![(s().bind("", &[]).sync().describe("").sync(), 2)]),
        (
            "too many parameters",
            vec![(s().parse("", "SELECT $1::int").bind("", &[Some("1"), Some("2")]).execute().sync(), 1)],
        ),
        ("a bad value", vec![(s().unnamed("SELECT $1::int", &[Some("x")]).sync().unnamed("SELECT 1", &[]).sync(), 2)]),
        (
            "several commands in one parse",
            vec![(s().parse("", "SELECT 1; SELECT 2").sync().unnamed("SELECT 3", &[]).sync(), 2)],
        ),
        (
            "a deferred constraint fails at commit",
            vec![(
                s().query("CREATE TABLE d (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
                    .query("BEGIN; INSERT INTO d VALUES (1), (1)")
                    .query("COMMIT")
                    .query("DROP TABLE d"),
                4,
            )],
        ),
    ]
}

fn copies() -> Vec<(&'static str, Vec<Step>)> {
    let rows = || s().copy_data(b"1\ta\n2\t").copy_data(b"b\n");
    let copy_in = "COPY t FROM STDIN";
    let count = || s().query("SELECT count(*), max(v) FROM t");
    let extended = || s().parse("", copy_in).bind("", &[]).execute();
    vec![
        ("copy in", vec![(s().query(copy_in).then(&rows()).copy_done(), 1), (count(), 1)]),
        ("copy in, extended", vec![(extended().then(&rows()).copy_done().sync(), 1), (count(), 1)]),
        ("copy in, extended, a sync before the data", vec![(extended().sync().then(&rows()).copy_done().sync(), 1)]),
        (
            "copy in, extended, syncs among the data",
            vec![(extended().sync().copy_data(b"1\ta\n").sync().flush().copy_data(b"2\tb\n").copy_done().sync(), 1)],
        ),
        ("copy in that the client fails", vec![(s().query(copy_in).then(&rows()).copy_fail("no"), 1), (count(), 1)]),
        ("copy in, extended, that the client fails", vec![(extended().then(&rows()).copy_fail("no").sync(), 1)]),
        (
            "copy in with bad data",
            vec![(s().query(copy_in).copy_data(b"x\ty\n").copy_data(b"1\ta\n").copy_done(), 1), (count(), 1)],
        ),
        (
            "copy in with bad data, extended",
            vec![(extended().copy_data(b"x\ty\n").copy_data(b"1\ta\n").copy_done().sync(), 1), (count(), 1)],
        ),
        (
            "copy in of a named statement, and more in the pipeline",
            vec![(
                s().parse("c", copy_in)
                    .bind("c", &[])
                    .execute()
                    .then(&rows())
                    .copy_done()
                    .sync()
                    .unnamed("SELECT count(*) FROM t", &[])
                    .sync(),
                2,
            )],
        ),
        (
            "copy in within a transaction",
            vec![(s().query("BEGIN").query(copy_in).then(&rows()).copy_done().query("ROLLBACK").then(&count()), 4)],
        ),
        (
            "two copies in one query",
            vec![(s().query("COPY t FROM STDIN; COPY t TO STDOUT").then(&rows()).copy_done(), 1)],
        ),
        ("copy out", vec![(s().query("COPY (SELECT i, NULL FROM generate_series(1, 3) i) TO STDOUT"), 1)]),
        (
            "copy out, extended",
            vec![(s().unnamed("COPY (SELECT 1) TO STDOUT", &[]).unnamed("SELECT 2", &[]).sync(), 1)],
        ),
        (
            "copy out with an error",
            vec![(s().query("COPY (SELECT 1/(2 - i) FROM generate_series(1, 3) i) TO STDOUT"), 1)],
        ),
        ("copy out of nothing", vec![(s().query("COPY t TO STDOUT"), 1)]),
        ("copy messages without a copy", vec![(rows().copy_done().copy_fail("x").query("SELECT 1"), 1)]),
        (
            "copy messages inside a batch",
            vec![(s().parse("", "SELECT 1").then(&rows()).copy_done().bind("", &[]).execute().sync(), 1)],
        ),
        ("copy refused", vec![(s().query("COPY nowhere FROM STDIN").then(&rows()).copy_done().query("SELECT 1"), 2)]),
        (
            "copy refused, extended",
            vec![(s().unnamed("COPY nowhere FROM STDIN", &[]).then(&rows()).copy_done().sync(), 1)],
        ),
    ]
}

/// The transcript of a script, sent in pieces of `piece` bytes.
fn run(mut client: Raw, steps: &[Step], piece: usize) -> Vec<String> {
    let mut answers = vec![client.query("TRUNCATE t")];
    for (script, ready) in steps {
        if piece == usize::MAX {
            client.send(script);
        } else {
            client.send_in_pieces(&script.0, piece);
        }
        answers.push(transcript(&client.until_ready(*ready)));
    }
    client.send(&s().terminate());
    assert_eq!(client.until_end(), []);
    answers
}

fn scripts_in_pieces(case: Case, pieces: &[usize]) {
    let database = database(case);
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)");
    // All of them on one server connection, so that each leaves it in order for the next.
    let pool = config(case).size(1).start();
    let pid = pool.raw_app(&database).backend();
    for (name, steps) in scripts() {
        let expected = run(database.server.raw().login("app", &database.name), &steps, usize::MAX);
        for piece in pieces {
            let got = run(pool.raw_app(&database), &steps, *piece);
            assert_eq!(got, expected, "{name}, in pieces of {piece} bytes");
        }
    }
    if case.mode == Mode::Session {
        // In transaction mode a server ends with its client where it can't be told what was left there.
        assert_eq!(pool.raw_app(&database).backend(), pid, "one server connection served them all");
    }
}

fn scripts_answer_as_postgresql_does(case: Case) {
    // Twice: the second time the statements are known.
    scripts_in_pieces(case, &[usize::MAX, usize::MAX]);
}

fn messages_cut_at_every_byte(case: Case) {
    scripts_in_pieces(case, &[1, 7]);
}

fn flush_brings_answers_before_sync(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut client = pool.raw_app(&database);
    for _ in 0..3 {
        client.send(&s().parse("", "SELECT 5 AS five").bind("", &[]).flush());
        assert_eq!(transcript(&client.messages(2)), "1 2");
        client.send(&s().describe_portal("").execute().flush());
        assert_eq!(transcript(&client.messages(3)), "T(five) D(5) C(SELECT 1)");
        assert!(client.is_silent(Duration::from_millis(30)));
        client.send(&s().sync());
        assert_eq!(transcript(&client.messages(1)), "Z(I)");
    }
    // After an error nothing comes until the Sync.
    // At run time: a constant would be divided while it is planned.
    client.send(&s().unnamed("SELECT 1/(random() * 0)::int", &[]).flush());
    assert_eq!(transcript(&client.messages(4)), "1 2 T(?column?) E(22012)");
    client.send(&s().parse("x", "SELECT 1").flush());
    assert!(client.is_silent(Duration::from_millis(30)));
    assert_eq!(client.talk(&s().sync()), "Z(I)");
    assert_eq!(client.talk(&s().parse("x", "SELECT 1").sync()), "1 Z(I)");
    // The batch keeps its server, and a transaction opened in it too.
    client.send(&s().unnamed("BEGIN", &[]).flush());
    assert_eq!(transcript(&client.messages(4)), "1 2 n C(BEGIN)");
    assert_eq!(client.talk(&s().sync()), "Z(T)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
}

fn large_values_both_ways(case: Case) {
    const BYTES: usize = 10 << 20;
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut client = pool.raw_app(&database);
    let value: Vec<u8> = (0..BYTES).map(|i| b'a' + (i * 7 % 26) as u8).collect();
    let expected = database
        .server
        .value(&format!("SELECT md5(string_agg(chr(97 + (i * 7 % 26)), '')) FROM generate_series(0, {}) i", BYTES - 1));
    for statement in ["", "named"] {
        let sql = "SELECT md5($1), length($1), $1";
        client.send(&s().parse(statement, sql).bind_to("", statement, &[Some(&value)]).execute().sync());
        let messages = client.until_ready(1);
        assert_eq!(messages.len(), 5, "{}", transcript(&messages));
        let row = messages[2].values();
        assert_eq!(String::from_utf8_lossy(row[0].as_deref().unwrap()), expected);
        assert!(row[2].as_deref() == Some(&value), "10 MB came back changed");
    }
    // As text of a query, and many rows at once.
    let literal = String::from_utf8(value).unwrap();
    assert_eq!(client.value(&format!("SELECT md5('{literal}')")), expected);
    client.send(&s().query("SELECT repeat('r', 1000) FROM generate_series(1, 20000)"));
    assert_eq!(client.until_ready(1).len(), 20_003);
    // And by COPY, both ways.
    assert_eq!(client.query("CREATE TABLE big (v text)"), "C(CREATE TABLE) Z(I)");
    let copy = literal.as_bytes().chunks(60_000).fold(s().query("COPY big FROM STDIN"), Script::copy_data);
    assert_eq!(client.talk(&copy.copy_done()), "G C(COPY 1) Z(I)");
    assert_eq!(client.value("SELECT md5(v) FROM big"), expected);
    client.send(&s().query("COPY big TO STDOUT"));
    let bytes: usize = client.until_ready(1).iter().filter(|m| m.tag == b'd').map(|m| m.body.len()).sum();
    assert_eq!(bytes, BYTES + 1);
}

fn notices_reach_their_client(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    let mut clients = [pool.raw_app(&database), pool.raw_app(&database)];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&s().query(&format!(
            "BEGIN; DO $$ BEGIN FOR i IN 1..3 LOOP RAISE NOTICE '{number} %', i; PERFORM pg_sleep(0.02); END LOOP; \
             END $$; COMMIT"
        )));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let expected = format!("C(BEGIN) N({number} 1) N({number} 2) N({number} 3) C(DO) C(COMMIT) Z(I)");
        assert_eq!(transcript(&client.until_ready(1)), expected);
    }
}

/// Bytes that no client should send, and the SQLSTATE that it is told.
fn malformed() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let framed = |tag: u8, body: &[u8]| {
        let mut message = vec![tag];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        message
    };
    vec![
        ("a length of 0", vec![b'Q', 0, 0, 0, 0], "08P01"),
        ("a length of 3", vec![b'Q', 0, 0, 0, 3], "08P01"),
        ("a negative length", vec![b'Q', 0xff, 0xff, 0xff, 0xff], "08P01"),
        ("a length of 2 GiB", vec![b'B', 0x7f, 0xff, 0xff, 0xff], "08P01"),
        ("an unknown type", framed(b'?', b""), "08P01"),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "08P01"),
    ]
}

fn malformed_messages_end_that_client_only(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let pid = pool.raw_app(&database).backend();
    for (name, bytes, code) in malformed() {
        let mut client = pool.raw_app(&database);
        client.send_bytes(&bytes);
        let messages = client.until_end();
        assert_eq!(transcript(&messages), format!("E(FATAL {code})"), "{name}");
        if case.is_transaction() {
            assert_eq!(pool.raw_app(&database).backend(), pid, "{name}: the server is still there");
        }
    }
    // In the middle of a transaction: rolled back, and the server goes on.
    let mut client = pool.raw_app(&database);
    assert_eq!(client.query("CREATE TABLE kept ()"), "C(CREATE TABLE) Z(I)");
    assert_eq!(client.query("BEGIN; CREATE TABLE lost ()"), "C(BEGIN) C(CREATE TABLE) Z(T)");
    client.send_bytes(&[b'?', 0, 0, 0, 4]);
    assert_eq!(transcript(&client.until_end()), "E(FATAL 08P01)");
    let mut client = pool.raw_app(&database);
    assert_eq!(client.value("SELECT to_regclass('kept') IS NOT NULL AND to_regclass('lost') IS NULL"), "t");
    drop(client);
    becomes("open server connections", 1, || database.connections());
}

fn oversized_messages_are_refused(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).limit("rewritten_message = \"64KiB\"").start();
    let pid = pool.raw_app(&database).backend();
    let long = format!("SELECT '{}'", "x".repeat(100_000));
    // A statement to prepare must be collected; its text is too long for that.
    let mut client = pool.raw_app(&database);
    client.send(&s().parse("a", &long).sync());
    let messages = client.until_end();
    assert_eq!(transcript(&messages), "E(FATAL 54000)");
    assert!(messages[0].field(b'H').contains("rewritten_message"), "{}", messages[0].field(b'H'));
    // What only passes through may be of any size.
    let mut client = pool.raw_app(&database);
    assert_eq!(client.value(&format!("{long}, 1")).len(), 100_000);
    assert_eq!(client.backend(), pid);
    let value = vec![b'y'; 200_000];
    client.send(&s().parse("b", "SELECT length($1)").bind_to("", "b", &[Some(&value)]).execute().sync());
    assert_eq!(transcript(&client.until_ready(1)), "1 2 D(200000) C(SELECT 1) Z(I)");
    // A first packet has a limit of its own, and so have passwords.
    let mut client = pool.raw();
    client.send_bytes(&[0, 1, 0, 0, 0, 3, 0, 0]);
    assert_eq!(transcript(&client.until_end()), "E(FATAL 08P01)");
}
