//! Prepared statements of the protocol where their catalogs, their settings or the transaction have changed since.

use std::{thread, time::Duration};

use sluice_testkit::{Case, matrix};

use crate::beside::{Startup, beside, s};

matrix!(transaction:
    parameters_are_described_before_a_result_fails,
    what_has_no_result_is_described_whatever_has_become_of_its_tables,
    an_unnamed_statement_that_a_skipped_one_would_have_replaced,
    what_follows_the_end_of_a_failed_block_in_its_batch,
    a_description_takes_no_snapshot,
    portals_last_as_long_as_the_block_that_their_batch_begins_or_ends,
    literals_behind_what_their_batch_has_set,
    a_parse_in_a_block_takes_a_snapshot_and_locks,
    literals_behind_what_may_have_set_something,
    literals_under_another_search_path,
    what_a_server_said_of_literals_is_used_once,
    literals_that_can_not_be_read_anew_are_tried_again,
    literals_where_a_transaction_moved_the_path_and_the_next_one_sets_others,
    literals_where_another_role_finds_other_schemas,
    a_statement_that_was_read_anew_is_lent_as_it_was_parsed,
    statements_with_open_types_are_read_anew_once,
    superusers_settings_behind_another_role,
    statements_that_have_types_in_a_failed_block,
);

const ELSEWHERE: Startup<'_> = &[("search_path", "elsewhere, public")];

const OBJECTS: &str = "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.t (n int); CREATE SEQUENCE elsewhere.s";

fn parameters_are_described_before_a_result_fails(case: Case) {
    beside(case, &[ELSEWHERE, &[], &[]], |b| {
        b.query(1, OBJECTS);
        // The second one is parsed by the settings of before, and read again by those of now.
        for (sql, value) in [("SELECT n FROM t WHERE n > $1", &[Some("1")][..]), ("SELECT 's'::regclass", &[])] {
            for then in [s().describe("a"), s().bind("a", value).execute()] {
                b.says(0, &s().close("a").parse("a", sql).describe("a").sync());
                b.query(0, "SET search_path = public");
                b.on_each_server(0, 2, &then.clone().sync());
                b.query(0, "RESET search_path");
                b.on_each_server(0, 2, &then.sync());
            }
        }
    });
}

fn what_has_no_result_is_described_whatever_has_become_of_its_tables(case: Case) {
    beside(case, &[ELSEWHERE, &[], &[]], |b| {
        b.query(1, OBJECTS);
        for sql in ["INSERT INTO t VALUES ($1)", "INSERT INTO t VALUES ($1) RETURNING n", "DROP TABLE t"] {
            b.says(0, &s().close("a").parse("a", sql).sync());
            for before in ["SET search_path = public", "BEGIN; SELECT 1/0", "RESET search_path"] {
                b.query(0, before);
                b.on_each_server(0, 2, &s().describe("a").sync());
                b.query(0, "ROLLBACK");
            }
        }
    });
}

fn an_unnamed_statement_that_a_skipped_one_would_have_replaced(case: Case) {
    beside(case, &[&[], &[("DateStyle", "German")], &[]], |b| {
        for then in [s().describe(""), s().bind("", &[]).execute()] {
            for between in [s(), s().close("a"), s().unnamed("SELECT 1", &[]).close("a")] {
                b.says(0, &s().parse("", "SELECT count(timestamptz 'now') AS times").sync());
                b.on_each_server(1, 2, &s().query("SELECT 1"));
                let skipped = s().bind("missing", &[]).parse("", "SELECT 'skipped'").sync();
                b.until(0, &skipped.then(&between).then(&then).sync(), 2);
            }
        }
    });
}

fn what_follows_the_end_of_a_failed_block_in_its_batch(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        for fails in ["DISCARD ALL", "SELECT 1/0", "DEALLOCATE never"] {
            for end in ["ROLLBACK", "COMMIT", "ROLLBACK AND CHAIN"] {
                for then in [
                    s().close("b").parse("b", "SELECT 'given'"),
                    s().bind("a", &[]).execute(),
                    s().describe("a").bind("a", &[]).execute(),
                ] {
                    b.says(0, &s().close("a").parse("a", "SELECT 'from before'").sync());
                    b.says(0, &s().unnamed("START TRANSACTION", &[]).sync());
                    b.says(0, &s().unnamed(fails, &[]).sync());
                    b.says(0, &s().unnamed(end, &[]).then(&then).sync());
                    b.says(0, &s().parse("b", "SELECT 'given already, or not'").sync());
                    b.query(0, "ROLLBACK");
                    b.on_each_server(0, 2, &then.sync());
                }
            }
        }
    });
}

fn a_description_takes_no_snapshot(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE TABLE t (n int)");
        b.says(0, &s().parse("b", "BEGIN ISOLATION LEVEL SERIALIZABLE").parse("a", "SELECT n FROM t").sync());
        for (name, sql) in [("", "INSERT INTO t VALUES ($1)"), ("a", "SELECT n FROM t")] {
            b.says(0, &s().close(name).parse(name, sql).sync());
            b.on_each_server(1, 2, &s().query("SELECT 1"));
            b.says(0, &s().describe(name).bind("b", &[]).execute().sync());
            b.query(0, "ROLLBACK");
        }
    });
}

fn portals_last_as_long_as_the_block_that_their_batch_begins_or_ends(case: Case) {
    beside(case, &[&[], &[]], |b| {
        for (before, turn) in [("SELECT 1", "BEGIN"), ("BEGIN; SELECT 1", "COMMIT"), ("BEGIN", "COMMIT AND CHAIN")] {
            b.query(0, before);
            b.says(0, &s().close("a").parse("a", "SELECT 1").sync());
            let script = s().unnamed(turn, &[]).parse("", "DEALLOCATE a").bind("", &[]).flush();
            b.pooled[0].send(&script);
            b.alone[0].send(&script);
            // What has run is answered before its batch ends.
            thread::sleep(Duration::from_millis(100));
            b.says(0, &s().sync());
            b.says(0, &s().execute().sync());
            b.query(0, "ROLLBACK");
        }
    });
}

fn literals_behind_what_their_batch_has_set(case: Case) {
    let sets = [
        "SET datestyle = 'SQL, DMY'",
        "SET LOCAL datestyle = 'German'",
        "SET client_encoding = 'LATIN1'",
        "SET search_path = \"a\u{e9}\", public",
        "SELECT set_config('timezone', 'Asia/Tokyo', false), set_config('intervalstyle', 'iso_8601', true)",
        "DO $$BEGIN PERFORM set_config('datestyle', 'ISO, DMY', false); END$$",
        "RESET datestyle",
        "COMMENT ON TABLE t IS 'remarked'",
        "CREATE TABLE IF NOT EXISTS made ()",
        "LISTEN heard",
        "INSERT INTO t VALUES (1)",
    ];
    let run = s().bind("a", &[Some("x")]).execute();
    let uses = [
        run.clone(),
        s().describe("a").then(&run),
        s().unnamed("EXECUTE a ('x')", &[]).then(&run),
        s().unnamed("SET datestyle = 'Postgres, YMD'", &[]).then(&run).unnamed("BEGIN", &[]).then(&run),
        run.clone().unnamed("SELECT 1/0", &[]),
    ];
    let shows = s().unnamed("SELECT current_setting('datestyle'), current_setting('timezone')", &[]);
    let start: Startup<'_> = &[("datestyle", "SQL, MDY"), ("timezone", "America/New_York")];
    beside(case, &[&[], &[], &[]], |b| {
        let mut texts = 0;
        b.query(1, "CREATE TABLE t (n int)");
        for set in sets {
            for (place, then) in uses.iter().enumerate() {
                texts += 1;
                let text = format!(
                    "SELECT {texts}, date '01/02/2024', timestamptz '2024-06-01 00:00', 'a\u{e9}', interval 'P1Y', $1::text"
                );
                b.clients(&[start, &[], &[]]);
                b.query(1, "BEGIN READ WRITE");
                b.says(0, &s().parse("a", &text).sync());
                b.query(2, "BEGIN READ WRITE");
                b.query(1, "COMMIT");
                // This server lacks it.
                let before = match place {
                    0 => s(),
                    _ => s().unnamed("INSERT INTO t VALUES (0)", &[]),
                };
                b.says(0, &before.unnamed(set, &[]).then(then).then(&shows).sync());
                b.query(0, "ROLLBACK");
                b.says(0, &shows.clone().sync());
                // Under other settings it is another statement there.
                b.query(0, "SET geqo = off");
                b.says(0, &s().unnamed(set, &[]).then(then).sync());
                b.query(0, "ROLLBACK");
                b.query(2, "COMMIT");
                b.query(0, "DROP TABLE IF EXISTS made");
            }
        }
    });
}

fn a_parse_in_a_block_takes_a_snapshot_and_locks(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE TABLE t (n int); SET lock_timeout = '30ms'");
        for (name, sql) in
            [("a", "SELECT count(*) FROM t"), ("", "SELECT count(*) AS unnamed FROM t"), ("b", "TABLE t")]
        {
            let parsed = s().close("a").close("b").parse(name, sql);
            let run = s().bind(name, &[]).execute().sync();
            for begin in
                ["BEGIN READ WRITE", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"]
            {
                for script in [
                    parsed.clone().sync(),
                    parsed.clone().describe(name).sync(),
                    s().unnamed("SAVEPOINT c", &[]).then(&parsed).sync(),
                    s().unnamed("SELECT 1", &[]).then(&parsed).describe(name).sync(),
                ] {
                    // It is known to the pool, and to the servers.
                    b.on_each_server(2, 1, &parsed.clone().bind(name, &[]).execute().sync());
                    b.query(0, begin);
                    b.says(0, &script);
                    b.query(1, "INSERT INTO t VALUES (1)");
                    b.query(1, "ALTER TABLE t ADD COLUMN other int");
                    b.query(0, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
                    b.says(0, &run);
                    b.query(0, "COMMIT");
                    b.query(1, "ALTER TABLE t DROP COLUMN IF EXISTS other");
                }
            }
        }
    });
}

fn literals_behind_what_may_have_set_something(case: Case) {
    let sets = "SET datestyle = 'German'";
    let parsed = s().parse("a", "SELECT date '01/02/2024', timestamptz '2024-03-04', 'x'");
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE FUNCTION sets() RETURNS text LANGUAGE sql AS $$ SELECT set_config('datestyle', 'SQL, DMY', true) $$");
        for (before, times) in [
            (s().bind("missing", &[]).unnamed(sets, &[]).sync(), 2),
            (s().unnamed(sets, &[]).unnamed("SELECT 1/0", &[]).sync(), 2),
            (s().unnamed(sets, &[]), 1),
            (s().unnamed("SELECT sets()", &[]), 1),
            (s().query("BEGIN; SELECT sets()"), 2),
            (s().query("BEGIN").unnamed("SET LOCAL TimeZone = 'Asia/Tokyo'", &[]), 2),
            (s().query("BEGIN; SET LOCAL intervalstyle = 'iso_8601'; SELECT sets(); ROLLBACK"), 2),
        ] {
            for then in [s().describe("a"), s().bind("a", &[]).execute(), s().unnamed("EXECUTE a", &[])] {
                b.clients(&[&[], &[], &[]]);
                b.until(0, &before.clone().then(&parsed).then(&then).sync(), times);
                b.query(0, "COMMIT");
                b.query(0, "SET TimeZone = 'Asia/Seoul'; SET datestyle = 'ISO, MDY'");
                b.on_each_server(0, 2, &s().bind("a", &[]).execute().sync());
                b.query(0, "EXECUTE a; PREPARE a AS SELECT 3");
            }
        }
    });
}

fn what_a_server_said_of_literals_is_used_once(case: Case) {
    let literals = "SELECT timestamptz '2024-01-01 12:00', date '01/02/2024'";
    let run = s().bind("b", &[]).execute().sync();
    beside(case, &[&[], &[], &[]], |b| {
        for takes in [s().parse("a", "SELECT 1").sync(), s().query("PREPARE a AS SELECT 1")] {
            b.clients(&[&[], &[], &[]]);
            b.says(0, &takes);
            b.query(0, "BEGIN; SET LOCAL TIME ZONE 'Asia/Tokyo'; SAVEPOINT s");
            // The name is taken.
            b.says(0, &s().parse("a", literals).sync());
            b.query(0, "ROLLBACK TO s; SET LOCAL TIME ZONE 'America/New_York'; SET LOCAL DateStyle = 'ISO, DMY'");
            b.says(0, &s().parse("b", literals).sync());
            b.says(0, &run);
            b.query(0, "COMMIT; DEALLOCATE a");
            b.on_each_server(0, 1, &run);
        }
        // What is no query takes no snapshot, and a Bind of another one is no use of what was parsed.
        b.clients(&[&[], &[], &[]]);
        b.on_each_server(0, 1, &s().close("c").parse("c", "SELECT 'known'").bind("c", &[]).execute().sync());
        for parsed in [
            s().parse("n", "NOTIFY a, 'a\u{e9}'").sync(),
            s().close("c")
                .parse("c", "SELECT 'known'")
                .unnamed("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", &[])
                .sync(),
            s().close("c").parse("c", "SELECT 'known'").bind("n", &[]).sync(),
        ] {
            b.query(0, "BEGIN; SET LOCAL DateStyle = 'ISO, DMY'");
            b.says(0, &parsed);
            b.query(0, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
            b.query(0, "ROLLBACK");
        }
    });
}

fn literals_under_another_search_path(case: Case) {
    let literals = "SELECT date '01/02/03', timestamptz '2024-03-04', E'a\\\\b', 'c\\d', (SELECT count(*) FROM pg_am WHERE oid = 0)";
    let parsed = s().parse("a", literals);
    let [run, describe] = [s().bind("a", &[]).execute(), s().describe("a")].map(|script| script.sync());
    let german = "SET DateStyle = 'German, DMY'";
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE SCHEMA other");
        for path in
            ["other, public", "public", "public,public", "\"$user\" , public, missing", "other", "pg_catalog, public"]
        {
            for uses in [&run, &describe] {
                let there = format!("SET search_path = {path}");
                let to_path = s().query(&there).sync();
                let local = s().query(&format!("BEGIN; SET LOCAL search_path = {path}")).sync();
                let within = s().query(&format!("BEGIN; SET search_path = {path}")).sync();
                let commit = s().query("COMMIT").sync();
                let with_others = s().query("SET LOCAL DateStyle = 'Postgres, YMD'").sync();
                for way in [
                    vec![&local, uses, &commit],
                    vec![&within, uses, &commit],
                    vec![&local, &with_others, uses, &commit],
                    vec![&within, &with_others, uses, &commit],
                    // Used there, and read by other settings then.
                    vec![&to_path, uses],
                    // Used there once other settings were in place.
                    vec![&to_path],
                    // Back again, not having been used there.
                    vec![&to_path, &s().query("RESET search_path").sync()],
                    // Back again, having been used.
                    vec![&to_path, uses, &s().query("RESET search_path").sync()],
                ] {
                    b.clients(&[&[], &[], &[]]);
                    b.says(0, &parsed.clone().sync());
                    for script in &way {
                        b.says(0, script);
                    }
                    b.query(0, german);
                    b.on_each_server(0, 1, &run);
                    b.query(0, "SET DateStyle = 'SQL, MDY'; SET TimeZone = 'Asia/Tokyo'; SET standard_conforming_strings = off");
                    b.on_each_server(0, 1, &run);
                    b.query(0, "RESET search_path");
                    b.on_each_server(0, 1, &run);
                    b.query(0, "BEGIN; RESET DateStyle");
                    b.says(0, &run);
                    b.query(0, "COMMIT");
                    b.on_each_server(0, 1, &run);
                }
            }
        }
    });
}

fn a_statement_that_was_read_anew_is_lent_as_it_was_parsed(case: Case) {
    beside(case, &[ELSEWHERE, &[], &[]], |b| {
        b.query(1, OBJECTS);
        for then in [s().parse("x", "PREPARE a AS SELECT 1").sync(), s().parse("", "EXECUTE a").sync()] {
            b.clients(&[ELSEWHERE, &[], &[]]);
            b.says(0, &s().parse("a", "SELECT date '01/02/2024' FROM t").sync());
            b.query(0, "SET search_path = public");
            // It finds no table there.
            b.says(0, &s().bind("a", &[]).execute().sync());
            b.query(0, "SET DateStyle = 'German, DMY'");
            b.says(0, &s().bind("a", &[]).execute().sync());
            b.on_each_server(0, 1, &then);
            b.query(0, "RESET search_path");
            b.on_each_server(0, 1, &s().bind("a", &[]).execute().sync());
        }
    });
}

fn literals_that_can_not_be_read_anew_are_tried_again(case: Case) {
    let run = s().bind("a", &[]).execute().sync();
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE SCHEMA s1");
        for (begin, end) in [("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")] {
            b.clients(&[&[], &[], &[]]);
            b.query(0, "SET datestyle = 'ISO, DMY'");
            b.says(0, &s().parse("a", "SELECT date '25/12/2020'").sync());
            b.says(0, &run);
            b.query(0, "SET search_path = s1, public; SET datestyle = 'ISO, MDY'");
            for _ in 0..2 {
                b.query(0, begin);
                b.says(0, &run);
                b.query(0, end);
            }
            for style in ["DMY", "YMD", "DMY"] {
                b.query(0, &format!("SET datestyle = 'ISO, {style}'"));
                b.query(0, begin);
                b.says(0, &run);
                b.says(0, &run);
                b.query(0, end);
                b.on_each_server(0, 1, &run);
            }
        }
    });
}

fn literals_where_a_transaction_moved_the_path_and_the_next_one_sets_others(case: Case) {
    let literals = "SELECT timestamptz '2020-07-01 00:00', n FROM t";
    let run = s().bind("a", &[]).execute().sync();
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE SCHEMA s1; CREATE TABLE t AS SELECT 1 AS n");
        for moves in ["SET", "SET LOCAL"] {
            for end in ["COMMIT", "ROLLBACK"] {
                for uses in [run.clone(), s().describe("a").sync()] {
                    b.clients(&[&[], &[], &[]]);
                    b.says(0, &s().parse("a", literals).sync());
                    b.says(0, &run);
                    b.query(0, "BEGIN");
                    b.query(0, &format!("{moves} search_path = s1, public"));
                    b.says(0, &uses);
                    b.query(0, end);
                    for zone in ["Asia/Tokyo", "America/New_York"] {
                        b.query(0, &format!("BEGIN; SET LOCAL timezone = '{zone}'"));
                        b.says(0, &run);
                        b.query(0, "COMMIT");
                        b.on_each_server(0, 1, &run);
                    }
                }
            }
        }
    });
}

fn literals_where_another_role_finds_other_schemas(case: Case) {
    let run = s().bind("a", &[]).execute().sync();
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE ROLE finds_own_schema; GRANT finds_own_schema TO CURRENT_USER");
        b.query(1, "CREATE SCHEMA finds_own_schema AUTHORIZATION finds_own_schema; CREATE SCHEMA hidden");
        for path in ["\"$user\", public", "hidden, public", "public"] {
            b.clients(&[&[], &[], &[]]);
            b.query(0, &format!("SET search_path = {path}"));
            b.says(0, &s().parse("a", "SELECT date '01/02/2020'").sync());
            b.query(0, "SET datestyle = 'ISO, DMY'");
            b.on_each_server(0, 1, &run);
            b.query(0, "SET role = finds_own_schema");
            b.on_each_server(0, 1, &run);
            b.query(0, "SET datestyle = 'ISO, MDY'");
            b.on_each_server(0, 1, &run);
            b.query(0, "RESET role");
            b.on_each_server(0, 1, &run);
        }
        b.query(1, "DROP OWNED BY finds_own_schema; DROP ROLE finds_own_schema");
    });
}

/// What is prepared anew may have parameters whose types PostgreSQL finds out: a server that takes it has read it.
fn statements_with_open_types_are_read_anew_once(case: Case) {
    let statements: [(&str, &[Option<&str>]); 4] = [
        ("SELECT 'x' || $1::text", &[Some("1")]),
        ("SELECT * FROM t WHERE v = 'a' AND id = $1", &[Some("1")]),
        ("SELECT set_config($1, 'off', true)", &[Some("geqo")]),
        ("UPDATE t SET v = 'x' WHERE id = $1", &[Some("1")]),
    ];
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE SCHEMA zz; CREATE TABLE zz.t (id int, v text); CREATE TABLE t (id int, v text)");
        b.query(1, "INSERT INTO t VALUES (1, 'a'); INSERT INTO zz.t VALUES (1, 'b')");
        for (sql, values) in statements {
            let uses = [s().bind("n", values).execute().sync(), s().describe("n").sync()];
            for set in ["SET LOCAL search_path = zz", "SELECT set_config('search_path', 'zz', true)"] {
                for (use_it, end) in uses.iter().flat_map(|use_it| [(use_it, "COMMIT"), (use_it, "ROLLBACK")]) {
                    b.clients(&[&[], &[], &[]]);
                    b.query(0, "BEGIN");
                    b.query(0, set);
                    b.says(0, &s().parse("n", sql).sync());
                    b.query(0, end);
                    b.says(0, use_it);
                    b.on_each_server(0, 1, use_it);
                }
            }
            for use_it in &uses {
                // A batch that fails behind the Parse, and what it has set is undone.
                b.clients(&[&[], &[], &[]]);
                b.query(0, "SET search_path = zz");
                let set = s().parse("", "SET search_path = nope, zz").bind("", &[]).execute();
                b.says(0, &set.parse("n", sql).execute_some("missing", 0).sync());
                b.says(0, use_it);
                // Another client has changed the catalogs, and has not committed that.
                b.clients(&[&[], &[], &[]]);
                b.query(1, "BEGIN; CREATE TABLE uncommitted ()");
                b.says(0, &s().parse("n", sql).sync());
                b.query(0, "SET standard_conforming_strings = on; SET search_path = zz");
                b.says(0, use_it);
                b.query(1, "ROLLBACK");
            }
        }
    });
}

/// A statement is prepared by the settings of its Parse where its client is no superuser any more.
fn superusers_settings_behind_another_role(case: Case) {
    let superuser: Startup<'_> = &[("user", "postgres")];
    beside(case, &[superuser, &[], &[]], |b| {
        b.query(0, "GRANT USAGE ON SCHEMA public TO pg_monitor");
        for set in ["SET lc_messages = 'C'", "SET debug_discard_caches = 0", "SET session_replication_role = 'replica'"]
        {
            for sql in ["SELECT '2024-01-02'::date", "SET TimeZone = 'Asia/Tokyo'", "DO $$ BEGIN PERFORM 1 / 0; END $$"]
            {
                b.clients(&[superuser, superuser, superuser]);
                b.says(0, &s().parse("n", sql).bind("n", &[]).execute().sync());
                b.query(0, set);
                b.query(0, "SET ROLE pg_monitor");
                b.query(0, "SET DateStyle = 'German'");
                b.on_each_server(0, 1, &s().bind("n", &[]).execute().sync());
            }
        }
    });
}

/// A server may have a statement with other types than those that its client was told, and can't prepare it again where
/// a transaction has failed.
fn statements_that_have_types_in_a_failed_block(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        for (number, then) in
            [s().describe("a"), s().bind("a", &[Some("1")]).execute(), s().bind("a", &[])].iter().enumerate()
        {
            let sql = format!("SELECT {number} AS n WHERE $1 > 0");
            b.says(0, &s().close("a").parse("a", &sql).describe("a").sync());
            // Another client's server is told none.
            b.query(0, "BEGIN READ WRITE");
            b.says(1, &s().close("a").parse("a", &sql).bind("a", &[Some("1")]).execute().sync());
            b.query(2, "SELECT 1");
            b.query(0, "COMMIT");
            for client in [2, 1, 0] {
                b.query(client, "BEGIN READ WRITE");
                b.query(0, "BEGIN READ WRITE; SELECT 1/0");
                b.says(0, &then.clone().sync());
                b.query(0, "ROLLBACK");
                b.query(client, "ROLLBACK");
            }
            b.until(0, &s().query("BEGIN READ WRITE").query("SELECT 1/0").then(then).sync(), 3);
            b.query(0, "ROLLBACK");
        }
    });
}
