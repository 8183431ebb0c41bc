//! Statements of the protocol and of SQL, which share their names, beside PostgreSQL; and others by the same names.

use sluice_testkit::{Case, Script, matrix};

use crate::beside::{Beside, beside, s};

matrix!(transaction:
    names_that_both_know,
    names_under_settings,
    names_of_clients_that_go,
    names_that_are_given_again,
    keywords_as_names,
    a_batch_goes_on_behind_what_takes_all_names,
    functions_that_forget,
    statements_that_no_longer_parse,
    what_is_only_forgotten_is_not_run,
);

const NOTHING: &[Option<&str>] = &[];

fn run(name: &str) -> Script {
    s().bind(name, NOTHING).execute()
}

fn unnamed(sql: &str) -> Script {
    s().unnamed(sql, NOTHING)
}

fn q(sql: &str) -> Script {
    s().query(sql)
}

fn a() -> Script {
    s().parse("a", "SELECT 1 AS one")
}

fn b() -> Script {
    s().parse("b", "SELECT $1::int + 2 AS two")
}

/// Statements of SQL, used by the protocol.
#[rustfmt::skip]
fn of_sql() -> Vec<Vec<Script>> {
    let made = || q("PREPARE a AS SELECT 3");
    let used = || run("a").sync();
    vec![
        vec![made(), used(), s().describe("a").sync(), a().sync(), used(), q("DEALLOCATE a"), used(), a().sync()],
        vec![made(), s().close("a").sync(), q("EXECUTE a"), a().sync(), q("EXECUTE a"), q("DEALLOCATE a")],
        vec![q("PREPARE b AS SELECT 3"), a().sync(), q("EXECUTE a; EXECUTE b"), made(), used(), q("DEALLOCATE a; DEALLOCATE b"), used()],
        vec![made(), a().bind("a", NOTHING).execute().sync(), used(), q("DEALLOCATE ALL"), a().sync()],
    ]
}

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "EXECUTE a", "EXPLAIN (COSTS OFF) EXECUTE a", "EXPLAIN EXECUTE A", "SELECT 5; EXECUTE a; SELECT 6",
    "EXECUTE \"a\"; SELECT 1/0", "EXECUTE A(1)", "EXECUTE b('x')", "PREPARE a AS SELECT 7", "PREPARE a AS SELECT no_such",
    "PREPARE b AS SELECT 7; PREPARE c AS SELECT 8", "DEALLOCATE a", "DEALLOCATE A; EXECUTE a",
    "DEALLOCATE a; PREPARE a AS SELECT 9", "DEALLOCATE a; PREPARE a AS SELECT 9; EXECUTE a; EXECUTE b(1)",
    "PREPARE c AS SELECT 1; DEALLOCATE c; EXECUTE b(1)", "DEALLOCATE ALL; PREPARE a AS SELECT 2", "DISCARD ALL",
    "CREATE TEMP TABLE made AS EXECUTE b(40)", "BEGIN; EXECUTE a; SAVEPOINT x; EXECUTE none",
    "BEGIN; DEALLOCATE a; ROLLBACK; EXECUTE a", "EXECUTE a; COMMIT; EXECUTE a; BEGIN; EXECUTE a",
    "EXECUTE a; EXECUTE c; EXECUTE a", "DEALLOCATE \"A\"", "DEALLOCATE PREPARE", "EXECUTE \"\"", "EXECUTE",
    "EXECUTE a; frobnicate", "DEALLOCATE a; DEALLOCATE a",
    "SELECT 1/0; DEALLOCATE a", "BEGIN; SELECT 1/0; DEALLOCATE a", "BEGIN; DEALLOCATE a; SELECT 1/0",
    "BEGIN; DEALLOCATE a", "BEGIN; SAVEPOINT s; SELECT 1/0; DEALLOCATE b", "DEALLOCATE a; PREPARE b AS SELECT 2",
];

/// Statements of the protocol that a text of SQL speaks of.
fn of_the_protocol(sql: &str) -> Vec<Vec<Script>> {
    let used = || run("a").sync();
    let mut all = vec![vec![a().sync(), b().sync(), q(sql), used(), q("EXECUTE a"), q(sql), a().sync(), used()]];
    if !sql.contains(';') {
        let runs = || unnamed(sql);
        let other = a().parse("b", "SELECT $1::int").parse("x", sql).describe("x").sync();
        let (run_x, close) = (|| run("x").sync(), s().close("a").sync());
        all.push(vec![a().sync(), b().sync(), runs().sync(), used(), runs().sync(), a().sync()]);
        all.push(vec![other, run_x(), close, run_x(), a().sync(), run_x()]);
        all.push(vec![a().then(&runs()).then(&run("a")).sync(), runs().then(&a()).then(&run("a")).sync(), used()]);
        all.push(vec![a().flush().then(&runs()).flush().then(&run("a")).sync(), used()]);
    }
    all
}

/// Batches in which names come and go, and statements that speak of others.
#[rustfmt::skip]
fn in_batches() -> Vec<Vec<Script>> {
    let used = || run("a").sync();
    let makes = || unnamed("PREPARE a AS SELECT 2");
    let executes = || unnamed("EXECUTE a");
    vec![
        vec![a().sync(), unnamed("DEALLOCATE ALL").then(&makes()).then(&run("a")).sync(), used()],
        vec![a().then(&unnamed("DEALLOCATE ALL")).then(&a()).then(&run("a")).sync(), used(), q("EXECUTE a")],
        vec![makes().then(&a()).sync(), used(), unnamed("DEALLOCATE a").then(&a()).then(&run("a")).sync(), used()],
        vec![a().sync(), unnamed("DEALLOCATE a").then(&makes()).sync(), used()],
        vec![a().sync(), executes().close("a").parse("a", "SELECT 9").then(&executes()).sync(), used(), q("EXECUTE a")],
        vec![a().sync(), executes().then(&unnamed("SELECT 1/0")).close("a").sync(), q("EXECUTE a"), used()],
        vec![s().parse("a", "EXECUTE b(3)").sync(), b().sync(), q("EXECUTE a"), used(), s().close("b").sync(), q("EXECUTE a"), used()],
        vec![s().parse("a", "DEALLOCATE b").sync(), b().sync(), q("EXECUTE a"), q("EXECUTE b(1)"), b().sync()],
        vec![s().parse("a", "SET work_mem = '3MB'").sync(), q("EXECUTE a"), q("SHOW work_mem")],
        vec![s().parse("a", "SET work_mem = '3MB'").parse("b", "RESET work_mem").sync(), q("EXECUTE a"), q("EXECUTE b"), q("SHOW work_mem")],
        vec![s().parse("a", "").sync(), q("EXECUTE a"), used()],
        vec![a().then(&b()).sync(), q("EXECUTE a"), s().close("a").sync(), q("EXECUTE a"), q("EXECUTE b(1)"), s().parse("a", "SELECT 5").sync(), q("EXECUTE a")],
        vec![a().sync(), s().bind_to("p", "a", &[]).execute_some("p", 1).then(&executes()).sync()],
    ]
}

/// Conversations about `a` and `b`, step by step.
fn conversations() -> Vec<Vec<Script>> {
    let texts = TEXTS.iter().flat_map(|sql| of_the_protocol(sql));
    of_sql().into_iter().chain(texts).chain(in_batches()).collect()
}

/// Nobody finds what another client has lent.
fn others_find_nothing(b: &mut Beside) {
    b.clients(&[&[], &[]]);
    for begin in ["BEGIN READ WRITE", "COMMIT", "BEGIN READ WRITE"] {
        b.query(1, begin);
        for name in ["a", "b", "c", "x"] {
            b.says(0, &s().describe(name).sync());
            b.query(0, &format!("EXECUTE {name}"));
            b.says(0, &s().parse(name, "SELECT 'own'").bind(name, NOTHING).execute().close(name).sync());
        }
    }
}

/// A name that is lent is closed and given again, in one batch with its use.
fn names_that_are_given_again(case: Case) {
    let sets = "SELECT set('9MB')";
    beside(case, &[&[]], |b| {
        for database in b.databases.clone() {
            let function = "CREATE FUNCTION set(text) RETURNS text LANGUAGE sql AS \
                            $$SELECT set_config('work_mem', $1, false)$$";
            b.place.execute_in(&database, function);
        }
        for used in [run("a"), unnamed("EXECUTE a"), s().describe("a").then(&run("a"))] {
            b.clients(&[&[], &[]]);
            // The client keeps its server for that, and the name stays lent.
            b.says(0, &s().parse("a", "SELECT 'today'::date = 'today'").sync());
            b.query(0, "EXECUTE a");
            b.query(0, "SELECT 1");
            b.says(0, &s().close("a").parse("a", sets).then(&used).sync());
            b.on_each_server(1, 0, &q("SHOW work_mem"));
            b.on_each_server(0, 1, &q("SHOW work_mem"));
        }
    });
}

/// A client has an unnamed statement that no server has as the unnamed one any more.
fn gives_unnamed(b: &mut Beside, sql: &str) {
    b.says(0, &s().parse("", sql).sync());
    b.on_each_server(1, 2, &unnamed("SELECT 2 AS two").sync());
}

/// Names are taken away by what runs in a batch, and what stands behind that speaks of statements.
fn a_batch_goes_on_behind_what_takes_all_names(case: Case) {
    let again = || s().parse("", "SELECT 1 AS one");
    let behind = [
        run(""),
        s().describe(""),
        again().then(&run("")),
        again().describe("").then(&run("")),
        unnamed("DEALLOCATE b"),
        unnamed("BEGIN").then(&again()).then(&run("")).then(&unnamed("ROLLBACK")),
        s().parse("b", "BEGIN").then(&run("b")).then(&unnamed("COMMIT")),
        a().then(&run("a")),
        run("a"),
        s().close("a").then(&a()).then(&run("a")),
    ];
    beside(case, &[], |b| {
        for all in ["DEALLOCATE ALL", "DISCARD ALL"] {
            let named = s().parse("all", all).then(&run("all"));
            for (runs, given, ends) in [
                (run(""), all, 0),
                (unnamed(all), all, 0),
                (named, "SELECT 2 AS two", 0),
                (q(&format!("SELECT 3; {all}")), all, 1),
            ] {
                b.clients(&[&[], &[], &[]]);
                for behind in &behind {
                    b.says(0, &s().close("a").close("b").close("all").then(&a()).sync());
                    gives_unnamed(b, given);
                    b.until(0, &s().then(&runs).then(behind).sync(), ends + 1);
                    // Servers have what they are thought to have.
                    for sql in ["SELECT 1 AS one", "SELECT 2 AS two"] {
                        b.on_each_server(1, 2, &unnamed(sql).sync());
                    }
                }
                let twice = s().parse("", "SELECT 2 AS two").then(&runs).sync().then(&run("")).sync();
                b.until(0, &twice, ends + 2);
            }
        }
    });
}

fn names_that_both_know(case: Case) {
    beside(case, &[], |b| {
        for (number, steps) in conversations().iter().enumerate() {
            for (begin, end) in [("", ""), ("BEGIN", "COMMIT"), ("BEGIN READ WRITE; SELECT 1/0", "ROLLBACK")] {
                b.clients(&[&[], &[]]);
                let (first, rest) = steps.split_first().expect("a conversation has a beginning");
                b.says(0, first);
                for sql in [begin].into_iter().filter(|sql| !sql.is_empty()) {
                    b.query(0, sql);
                }
                for step in rest {
                    b.says(0, step);
                }
                for sql in [end].into_iter().filter(|sql| !sql.is_empty()) {
                    b.query(0, sql);
                }
                b.query(0, "ROLLBACK");
                for step in [&run("a").sync(), &s().query("EXECUTE b(1)"), &s().parse("a", "SELECT 'again'").sync()] {
                    b.says(0, step);
                    b.query(1, "BEGIN READ WRITE");
                    b.says(0, step);
                    b.query(1, "COMMIT");
                }
                if number % 8 == 0 {
                    others_find_nothing(b);
                }
            }
        }
    });
}

fn names_under_settings(case: Case) {
    let sql = "SELECT timestamptz '2024-06-01 00:00' AT TIME ZONE 'UTC', E'a' 'b\\n', to_regclass('pg_class')";
    beside(case, &[&[("TimeZone", "UTC")], &[]], |b| {
        b.says(0, &s().parse("a", sql).parse("b", "SELECT current_setting('TimeZone')").sync());
        b.query(0, "SET TimeZone = 'America/New_York'; SET standard_conforming_strings = off");
        for _ in 0..2 {
            b.query(0, "EXECUTE a");
            b.says(0, &unnamed("EXECUTE a").then(&run("a")).sync());
            b.query(0, "BEGIN");
            b.query(0, "SET LOCAL TimeZone = 'Asia/Tokyo'; SET LOCAL search_path = pg_temp");
            b.query(0, "EXECUTE a; EXECUTE b");
            b.says(0, &run("a").sync());
            b.query(0, "SHOW TimeZone");
            b.query(0, "COMMIT");
            b.query(0, "EXECUTE b; SHOW TimeZone");
            b.query(0, "SET search_path = none; SET statement_timeout = '20s'; SET default_transaction_read_only = on");
            b.query(0, "SET default_transaction_isolation = 'serializable'; SET default_transaction_deferrable = on");
        }
    });
}

/// Those that PostgreSQL takes for a name, and those that are an error to it.
fn keywords_as_names(case: Case) {
    beside(case, &[&[]], |b| {
        let said = b.query(0, "SELECT word FROM pg_get_keywords()");
        let keywords: Vec<_> = said.split("D(").skip(1).filter_map(|row| row.split(')').next()).collect();
        assert!(keywords.len() > 400, "{said}");
        for keyword in keywords {
            b.says(0, &s().parse(keyword, "SELECT 1").sync());
            b.query(0, &format!("DEALLOCATE {keyword}"));
            b.query(0, &format!("EXECUTE \"{keyword}\""));
        }
    });
}

fn names_of_clients_that_go(case: Case) {
    let lends = |sql: &str| s().parse("a", "SELECT 1").parse("b", "SELECT pg_sleep(0.3)").sync().query(sql);
    beside(case, &[], |b| {
        for sql in [
            "EXECUTE a",
            "BEGIN; EXECUTE a",
            "BEGIN; EXECUTE a; SELECT 1/0",
            "PREPARE c AS SELECT 1",
            "DEALLOCATE a; SELECT 1",
        ] {
            for tail in [
                s(),
                s().terminate(),
                unnamed("EXECUTE b"),
                s().query("EXECUTE b"),
                s().query("DISCARD ALL"),
                s().query("DEALLOCATE ALL"),
            ] {
                b.clients(&[&[], &[]]);
                b.until(0, &lends(sql), 2);
                for raw in [&mut b.pooled[0], &mut b.alone[0]] {
                    raw.send(&tail);
                }
                others_find_nothing(b);
            }
        }
    });
}

/// Names that a function makes or drops are the session's own; nothing of them is found by others.
fn functions_that_forget(case: Case) {
    beside(case, &[&[], &[]], |b| {
        b.query(1, "CREATE FUNCTION runs(sql text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE sql; END'");
        b.says(0, &s().parse("a", "SELECT 1").parse("b", "SELECT 2").sync());
        b.query(0, "EXECUTE a; SELECT runs('DEALLOCATE a')");
        b.says(0, &run("a").sync());
        b.query(0, "BEGIN; EXECUTE b");
        b.query(0, "SELECT runs('DEALLOCATE b')");
        b.query(0, "SELECT runs('PREPARE b AS SELECT 4')");
        b.says(0, &run("b").sync());
        b.query(0, "COMMIT");
        b.says(0, &run("b").sync());
        b.says(0, &s().parse("b", "SELECT 5").sync());
        others_find_nothing(b);
    });
}

fn statements_that_no_longer_parse(case: Case) {
    beside(case, &[&[], &[]], |b| {
        let bind = |values: &[Option<&str>]| s().bind("gone", values).execute().sync();
        for _ in 0..2 {
            b.query(0, "CREATE TABLE gone (id int)");
            b.says(0, &s().parse("gone", "SELECT id FROM gone WHERE id = $1").sync());
            b.says(0, &s().parse("described", "SELECT id AS it FROM gone WHERE id = $1").describe("described").sync());
            b.on_each_server(0, 1, &bind(&[None]));
            b.query(0, "DROP TABLE gone");
            for values in [&[][..], &[None, None], &[None]] {
                b.on_each_server(0, 1, &bind(values));
                b.on_each_server(0, 1, &s().bind("described", values).execute().sync());
            }
            // PostgreSQL does not count what stands in a function's body.
            let body = "CREATE OR REPLACE FUNCTION its(int) RETURNS int LANGUAGE sql RETURN $1 + 1";
            b.says(0, &s().parse("body", body).sync());
            b.on_each_server(0, 1, &s().bind("body", NOTHING).execute().sync());
            // Several commands are none that can be prepared, whatever they speak of.
            for text in ["EXECUTE gone(1); SELECT 1", "SELECT 1; EXECUTE gone(1)", "DEALLOCATE gone; SELECT 1"] {
                b.on_each_server(0, 1, &s().unnamed(text, NOTHING).sync());
                b.on_each_server(0, 1, &s().parse("several", text).bind("several", NOTHING).execute().sync());
            }
            b.query(0, "DEALLOCATE ALL");
        }
    });
}

/// A text that takes a name away, or is refused for it, does nothing of what the statement would have done.
fn what_is_only_forgotten_is_not_run(case: Case) {
    const STATEMENTS: [&str; 6] =
        ["RESET ALL", "DISCARD ALL", "RESET application_name", "ROLLBACK", "SET application_name = 'c'", "EXECUTE b"];
    const TEXTS: [&str; 7] = [
        "SET application_name = 'd'; DEALLOCATE a",
        "DEALLOCATE a; SET application_name = 'd'",
        "SELECT 1; DEALLOCATE a",
        "BEGIN; SET application_name = 'd'; DEALLOCATE a",
        "BEGIN; SET LOCAL application_name = 'd'; DEALLOCATE a; SELECT 1",
        "RESET application_name; PREPARE a AS SELECT 1",
        "SET application_name = 'd'; EXECUTE a; DEALLOCATE a",
    ];
    beside(case, &[&[("application_name", "x")], &[]], |b| {
        b.says(0, &s().parse("b", "RESET ALL").sync());
        for statement in STATEMENTS {
            for text in TEXTS {
                b.query(0, "SET application_name = 'e'");
                b.says(0, &s().parse("a", statement).sync());
                // PostgreSQL says of a RESET behind it what the pool can't know (0014).
                if text.contains("EXECUTE") && !statement.starts_with("SET") {
                    continue;
                }
                b.query(0, text);
                b.query(0, "COMMIT");
                b.on_each_server(0, 1, &q("SHOW application_name"));
                b.says(0, &s().close("a").sync());
            }
        }
    });
}
