//! Scripts of client messages, for a comparison of the answers.

use sluice_testkit::Script;

/// The messages that a client sends, and the number of ReadyForQuery that it then waits for.
pub(super) type Step = (Script, usize);

pub(super) fn s() -> Script {
    Script::new()
}

/// Each is run in a session of its own. The table `t (id int primary key, v text)` is there, and empty.
pub(super) fn scripts() -> Vec<(&'static str, Vec<Step>)> {
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
            vec![(s().query("BEGIN; INSERT INTO deferred VALUES (1), (1)").query("COMMIT"), 2)],
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
        (
            "a query amid a batch that resets, whose transaction goes on behind it on 18",
            vec![
                (
                    s().unnamed("INSERT INTO t VALUES (1)", &[])
                        .unnamed("RESET TimeZone", &[])
                        .query("SELECT 1")
                        .sync(),
                    2,
                ),
                (s().sync(), 1),
            ],
        ),
        (
            "a reset by a query amid a batch",
            vec![(s().unnamed("SELECT 1", &[]).query("RESET ALL").unnamed("SELECT 2", &[]).sync().sync(), 3)],
        ),
        (
            "a statement whose literal was read by other settings, behind a query amid a batch",
            vec![
                (s().parse("d", "SELECT date '01/02/2020'::text").sync().query("SET datestyle = 'German'"), 2),
                (s().unnamed("SELECT 1", &[]).query("SELECT 2").bind("d", &[]).execute().sync(), 2),
            ],
        ),
    ]
}
