//! Differences from PostgreSQL that were found after those of `found.rs`, by attacks, reviews and the twin test, each as a
//! script that is run beside PostgreSQL.

use std::{thread, time::Duration};

use sluice_testkit::{Case, matrix, raw::Message};

use crate::{
    beside::{Startup, beside, beside_with, s, shown},
    wire,
};

matrix!(transaction:
    parameters_that_go_back,
    parameters_that_go_back_within_a_batch,
    cursors_that_are_gone,
    long_names,
    buffers_of_temporary_tables,
    statements_behind_the_end_of_a_block,
    seeds,
    ends_of_servers_that_are_kept,
    what_a_block_has_set_stays,
    literals_are_read_as_in_the_block_of_their_parse,
    ddl_past_the_pool_is_seen_with_the_extension,
    statements_that_a_function_deallocates,
    nobody_is_told_what_sequences_gave_to_others,
    nobody_is_told_what_sequences_gave_where_nobody_has_asked,
    probes_under_odd_settings,
    what_goes_back_goes_to_the_clients_start,
    what_goes_back_changes_nothing_else,
    custom_settings_that_are_empty,
    settings_of_a_library,
);

fn parameters_that_go_back_within_a_batch(case: Case) {
    let named: Startup<'_> = &[("TimeZone", "Asia/Tokyo"), ("DateStyle", "German, DMY")];
    beside(case, &[named, &[]], |b| {
        for act in ["SELECT 1", "SET TimeZone = 'Asia/Seoul'"] {
            for (back, then) in [
                ("DISCARD ALL", "SELECT 1/(random() * 0)::int"),
                ("RESET TimeZone", "SELECT 1/(random() * 0)::int"),
                ("RESET TimeZone", "SET TimeZone = 'Asia/Seoul'"),
                ("RESET ALL", "SET TimeZone = 'Asia/Seoul'"),
                ("DISCARD ALL", "SET TimeZone = 'Asia/Seoul'"),
                ("RESET TimeZone", "RESET DateStyle"),
            ] {
                b.query(0, act);
                b.query(1, "SHOW TimeZone");
                let batch = s().unnamed(back, &[]).unnamed(then, &[]).sync();
                match back == "DISCARD ALL" && act != "SELECT 1" {
                    // What it takes back is reported behind it already.
                    true => b.runs(0, &batch),
                    false => drop(b.says(0, &batch)),
                }
                b.query(0, "SHOW TimeZone");
                b.query(0, "RESET ALL");
            }
        }
    });
}

fn cursors_that_are_gone(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(0, "BEGIN; DECLARE q CURSOR FOR SELECT 1 AS one");
        b.says(0, &s().parse("f", "FETCH 1 FROM q").bind("f", &[]).execute().sync());
        b.query(0, "COMMIT");
        b.on_each_server(0, 1, &s().bind("f", &[]).execute().sync());
        b.query(0, "BEGIN; DECLARE q CURSOR FOR SELECT 1 AS one");
        b.says(0, &s().bind("f", &[]).execute().sync());
        b.query(0, "COMMIT");
    });
}

fn parameters_that_go_back(case: Case) {
    let named: Startup<'_> = &[("application_name", "app"), ("DateStyle", "German, DMY")];
    beside(case, &[named, &[]], |b| {
        for act in ["SET application_name = ''; SET DateStyle = 'ISO, MDY'", "SET application_name = 'other'"] {
            for back in ["RESET application_name", "RESET ALL", "DISCARD ALL", "SET application_name TO DEFAULT"] {
                b.query(0, act);
                b.query(1, "SHOW application_name");
                b.query(0, back);
                b.query(1, "SHOW DateStyle");
                b.query(0, "SHOW application_name");
                b.query(0, act);
                b.query(0, "BEGIN READ WRITE");
                b.query(0, back);
                b.query(0, "SHOW application_name");
                b.query(0, "COMMIT");
                b.query(0, "RESET ALL");
            }
        }
    });
}

fn long_names(case: Case) {
    let long = "a".repeat(70);
    let run = |name: &str| s().bind(name, &[]).execute().sync();
    beside(case, &[&[]], |b| {
        b.says(0, &s().parse(&long, "SELECT 1").describe(&long[..63]).sync());
        for bytes in [62, 63, 64, 70] {
            b.says(0, &run(&long[..bytes]));
        }
        b.says(0, &s().bind(&long, &[Some("1")]).execute().sync());
        b.says(0, &s().parse(&long[..63], "SELECT 2").sync());
        b.says(0, &s().parse(&long[..69], "SELECT 2").sync());
        b.says(0, &s().close(&long[..65]).sync());
        b.says(0, &run(&long));
    });
}

fn buffers_of_temporary_tables(case: Case) {
    let temporary = "CREATE TEMP TABLE x AS SELECT 1 AS i; DROP TABLE x";
    let show = s().query("SHOW temp_buffers");
    beside(case, &[&[], &[], &[]], |b| {
        b.query(2, "SET temp_buffers = '3MB'");
        b.on_each_server(0, 1, &s().query(temporary));
        b.on_each_server(2, 0, &show);
        b.on_each_server(2, 0, &s().query(temporary));
        b.query(2, "SELECT 1");
        b.on_each_server(1, 0, &show);
        b.on_each_server(0, 1, &s().query(temporary));
        b.clients(&[&[("temp_buffers", "2MB")], &[], &[("temp_buffers", "1MB")]]);
        b.on_each_server(0, 1, &show);
        b.on_each_server(1, 2, &show);
        b.on_each_server(2, 0, &show);
    });
}

/// A statement is needed on a server that lacks it, in a batch that has begun or ended a block.
fn statements_behind_the_end_of_a_block(case: Case) {
    // As many as a server keeps, and more.
    let others =
        (0..8).map(|i| format!("o{i}")).fold(s(), |s, name| s.close(&name).parse(&name, &format!("SELECT '{name}'")));
    let others = others.sync();
    beside(case, &[&[], &[]], |b| {
        b.past_the_pool("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'");
        b.query(0, "SET DateStyle = 'German'");
        b.says(0, &s().parse("d", "SELECT '01.02.2020'::date").parse("l", "SELECT 'lit', count(*) FROM shared").sync());
        b.query(0, "SET DateStyle = 'ISO, MDY'");
        for begin in
            ["BEGIN; SELECT 1/0", "BEGIN; SAVEPOINT a; SELECT 1/0", "BEGIN; SAVEPOINT a; SELECT f()", "SELECT 1"]
        {
            for turn in ["ROLLBACK", "COMMIT", "ROLLBACK TO a", "ROLLBACK AND CHAIN", "BEGIN", "COMMIT AND CHAIN"] {
                // Outside of a block nobody knows what a function has set (0014's table).
                let is_known = !begin.contains("f()") || !matches!(turn, "ROLLBACK" | "COMMIT");
                for name in ["d", "l"].into_iter().filter(|name| is_known || *name == "l") {
                    b.on_each_server(1, 0, &others);
                    b.query(0, begin);
                    b.says(0, &s().unnamed(turn, &[]).bind(name, &[]).execute().sync());
                    b.query(0, "ROLLBACK");
                    b.says(1, &s().unnamed("RESET DateStyle", &[]).unnamed("SELECT 1", &[]).sync());
                }
            }
        }
    });
}

fn seeds(case: Case) {
    beside(case, &[], |b| {
        for seed in [
            "SET seed = 0.5",
            "SET SESSION seed TO 0.5",
            "SET \"seed\" = 0.5",
            "SET SESSION \"Seed\" = 0.5",
            r#"SET U&"s\0065ed" = 0.5"#,
            r#"SELECT U&"sets\0065ed"(0.5)"#,
            r"SELECT set_config(U&'s\0065ed', '0.5', false)",
            "SELECT setseed(0.5)",
            "SELECT set_config('seed', '0.5', false)",
            "BEGIN; SET LOCAL seed = 0.5; COMMIT",
        ] {
            b.clients(&[&[], &[]]);
            b.query(0, seed);
            for _ in 0..3 {
                b.query(1, "BEGIN READ WRITE");
                b.query(0, "SELECT random()");
                b.query(1, "COMMIT");
            }
        }
    });
}

fn ends_of_servers_that_are_kept(case: Case) {
    beside(case, &[&[], &[]], |b| {
        for act in ["CREATE TEMP TABLE kept (a int)", "LISTEN news", "SELECT pg_advisory_lock(7)"] {
            b.clients(&[&[], &[]]);
            b.query(0, act);
            for clients in [&mut b.pooled, &mut b.alone] {
                let pid = clients[0].value("SELECT pg_backend_pid()");
                assert_eq!(clients[1].value(&format!("SELECT pg_terminate_backend({pid})")), "t");
            }
            let [pooled, alone] = [&mut b.pooled[0], &mut b.alone[0]].map(|raw| raw.until_end());
            let heard = |messages: &[Message]| messages.iter().map(shown).collect::<Vec<_>>();
            assert_eq!(heard(&pooled), heard(&alone), "{act}");
            assert!(heard(&alone)[0].starts_with("FATAL 57P01"), "{act}");
            b.query(1, "SELECT 1");
        }
    });
}

fn what_a_block_has_set_stays(case: Case) {
    let zones = "SELECT current_setting('TimeZone'), current_user";
    let parsed = s().parse("q", "SELECT timestamptz '2024-06-01 00:00'").sync();
    let run = s().bind("q", &[]).execute().sync();
    let batch = s().unnamed("SELECT set_config('DateStyle', 'German', true)", &[]).bind("q", &[]).execute().sync();
    for local in ["SET LOCAL TimeZone = 'Asia/Tokyo'", "SET TimeZone = 'Asia/Tokyo'", "SET LOCAL ROLE pg_monitor"] {
        for used in [&run, &batch] {
            beside(case, &[&[("TimeZone", "UTC")]], |b| {
                b.says(0, &parsed);
                b.query(0, "SET TimeZone = 'America/New_York'");
                b.query(0, "BEGIN READ WRITE");
                b.query(0, local);
                b.says(0, used);
                b.query(0, zones);
                b.query(0, "SHOW DateStyle");
                b.query(0, "COMMIT");
                b.query(0, zones);
                b.query(0, "BEGIN READ WRITE");
                b.query(0, local);
                b.query(0, "SAVEPOINT mine");
                b.says(0, used);
                b.query(0, "ROLLBACK TO mine");
                b.query(0, zones);
                b.query(0, "COMMIT");
                b.says(0, &run);
                b.query(0, zones);
            });
        }
    }
}

/// A statement that was parsed in a block, under settings of that block's own, is needed on another server.
fn literals_are_read_as_in_the_block_of_their_parse(case: Case) {
    let settings = [
        ("client_encoding = 'SJIS'", &b"SELECT 'a\x83\\' AS words"[..]),
        ("client_encoding = 'LATIN1'", b"SELECT '\xe9' AS words"),
        ("TimeZone = 'Asia/Tokyo'", b"SELECT timestamptz '2024-06-01 00:00'"),
        ("DateStyle = 'German'", b"SELECT date '01/02/2024', timestamptz '01/02/2024 00:00'"),
        ("standard_conforming_strings = off", b"SELECT 'a\\tb' AS words"),
        ("array_nulls = off", b"SELECT '{NULL,a}'::text[]"),
        ("transform_null_equals = on", b"SELECT count(*) WHERE NULL = NULL"),
        (
            "TimeZone = 'Asia/Tokyo'; DO $$BEGIN PERFORM set_config('DateStyle', 'German', true); END$$",
            b"SELECT date '01/02/2024'",
        ),
    ];
    let ends = [("SET", "ROLLBACK"), ("SET", "COMMIT"), ("SET LOCAL", "COMMIT")];
    let run = s().bind("q", &[]).execute().sync();
    beside(case, &[], |b| {
        for (setting, text) in settings {
            let parsed = wire::parse("q", text, &[]).describe("q").sync();
            for (set, end) in ends {
                b.clients(&[&[("TimeZone", "UTC")], &[], &[]]);
                b.query(0, "BEGIN READ WRITE");
                b.query(0, &format!("{set} {setting}"));
                b.says(0, &parsed);
                b.says(0, &run);
                b.query(0, end);
                b.query(0, "SET DateStyle = 'SQL, DMY'");
                // Others need both servers.
                b.query(1, "BEGIN READ WRITE");
                b.query(2, "BEGIN READ WRITE");
                for holder in [1, 2] {
                    b.query(holder, "COMMIT");
                    b.says(0, &run);
                    b.query(0, "BEGIN");
                    b.says(0, &run);
                    b.query(0, "COMMIT");
                    b.query(holder, "BEGIN READ WRITE");
                }
                b.query(1, "COMMIT");
                b.query(2, "COMMIT");
            }
        }
    });
}

/// The extension's report of a change is as old as the last request.
fn ddl_past_the_pool_is_seen_with_the_extension(case: Case) {
    const AGE_MAX: Duration = Duration::from_millis(300);
    let seen = s().unnamed("SELECT v FROM seen WHERE $1::int = 1", &[Some("1")]).sync();
    let all = s().unnamed("SELECT * FROM kept WHERE $1::int = 1", &[Some("1")]).sync();
    beside_with(case, true, &[&[("search_path", "early, public")]], |b| {
        b.past_the_pool("CREATE SCHEMA early");
        b.past_the_pool("CREATE TABLE seen AS SELECT 'late' AS v; CREATE TABLE kept AS SELECT 1 AS a");
        for _ in 0..4 {
            b.says(0, &seen);
            b.says(0, &all);
        }
        b.past_the_pool("CREATE TABLE early.seen AS SELECT 'early' AS v");
        thread::sleep(AGE_MAX);
        b.says(0, &seen);
        for _ in 0..4 {
            b.says(0, &all);
        }
        b.past_the_pool("ALTER TABLE kept ADD c int");
        thread::sleep(AGE_MAX);
        b.query(0, "BEGIN");
        b.says(0, &all);
        b.query(0, "COMMIT");
        for _ in 0..4 {
            b.says(0, &all);
            b.says(0, &seen);
        }
        // What is said while a statement is healed is heard, too.
        b.past_the_pool("ALTER TABLE kept ALTER a TYPE text; DROP TABLE early.seen");
        b.says(0, &all);
        b.says(0, &seen);
    });
}

fn probes_under_odd_settings(case: Case) {
    // Things that would stand in the way of a probe: other functions and operators by the same names, plans that cost much
    // and are compiled, other encodings and ways to write, no rights.
    let odd = [
        "SET search_path = shadows, pg_catalog, public",
        "CREATE TEMP TABLE pg_proc (probin text, oid int); CREATE TEMP TABLE pg_depend (a int)",
        "SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = off",
        "SET jit_above_cost = 0",
        "SET default_transaction_read_only = on; SET default_transaction_isolation = 'serializable'; \
         SET default_transaction_deferrable = on",
        "SET client_encoding = 'SJIS'; SET application_name = 'a\\b'",
        "SET standard_conforming_strings = off; SET transform_null_equals = on; SET array_nulls = off",
        "SET bytea_output = 'escape'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'iso_8601'",
        "SET statement_timeout = '20s'; SET lock_timeout = '10s'",
        "SET work_mem = '4MB'; SET TimeZone = 'UTC'",
        "SET row_security = off",
        "SET ROLE trusted",
    ];
    let makes = "CREATE SCHEMA shadows; GRANT USAGE ON SCHEMA shadows TO PUBLIC; \
        CREATE FUNCTION shadows.lies(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'; \
        CREATE OPERATOR shadows.= (LEFTARG = text, RIGHTARG = text, PROCEDURE = shadows.lies); \
        CREATE OPERATOR shadows.<> (LEFTARG = text, RIGHTARG = text, PROCEDURE = shadows.lies); \
        CREATE FUNCTION shadows.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''lie''::text'; \
        CREATE FUNCTION shadows.current_setting(text, bool) RETURNS text LANGUAGE sql AS 'SELECT ''lie''::text'; \
        CREATE VIEW shadows.pg_proc AS SELECT 'lie' AS probin, 1 AS oid; \
        CREATE FUNCTION public.sets(text, text) RETURNS text LANGUAGE plpgsql AS \
        'BEGIN RETURN pg_catalog.set_config($1, $2, false); END'";
    beside(case, &[&[]], |b| {
        b.query(0, makes);
        for setting in odd {
            b.clients(&[&[("work_mem", "7MB")], &[]]);
            b.query(0, setting);
            for value in ["3MB", "5MB", "4MB"] {
                b.query(0, &format!("SELECT public.sets('work_mem', '{value}')"));
                b.query(0, "SELECT public.sets('app.odd', pg_catalog.chr(1))");
                // On another server.
                b.query(1, "BEGIN READ WRITE");
                b.query(0, "SHOW work_mem");
                b.query(0, "SHOW TimeZone");
                b.query(0, "SELECT pg_catalog.ascii(pg_catalog.current_setting('app.odd')), CURRENT_USER");
                b.query(1, "COMMIT");
                b.query(1, "SHOW work_mem");
            }
            // It says what the server itself would have.
            b.query(0, "SELECT public.sets('work_mem', NULL) IS NULL");
            b.query(0, "SHOW work_mem");
            b.query(0, "RESET ALL");
            b.query(0, "SHOW work_mem");
        }
    });
}

fn statements_that_a_function_deallocates(case: Case) {
    beside(case, &[&[], &[]], |b| {
        b.past_the_pool("CREATE FUNCTION runs(sql text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE sql; END'");
        let run = s().bind("q", &[]).execute().sync();
        for client in [0, 1] {
            b.says(client, &s().parse("q", "SELECT 7").sync());
            b.on_each_server(client, 1 - client, &run);
        }
        b.query(0, "SELECT runs('DEALLOCATE ALL')");
        for begin in ["BEGIN READ WRITE", "COMMIT", "BEGIN READ WRITE"] {
            b.query(1, begin);
            b.says(1, &run);
        }
        b.query(1, "COMMIT");
    });
}

fn nobody_is_told_what_sequences_gave_to_others(case: Case) {
    let lastval = s().parse("l", "SELECT lastval()").bind("l", &[]).execute().close("l").sync();
    for ask in [s().query("SELECT lastval()"), s().query("SELECT lastid()"), lastval] {
        beside(case, &[&[], &[], &[]], |b| {
            b.past_the_pool("CREATE SEQUENCE counts");
            b.past_the_pool("CREATE FUNCTION lastid() RETURNS int8 LANGUAGE plpgsql AS 'BEGIN RETURN lastval(); END'");
            b.past_the_pool("CREATE PROCEDURE nothing() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'");
            b.on_each_server(0, 2, &s().query("SELECT nextval('counts')"));
            b.query(1, "BEGIN READ WRITE");
            b.query(1, "SELECT 1");
            b.says(1, &ask);
            b.query(1, "ROLLBACK");
            b.says(1, &ask);
            b.query(1, "BEGIN READ WRITE");
            b.query(1, "SELECT nextval('counts')");
            b.says(1, &ask);
            b.query(1, "COMMIT");
            // Not all that may ask can run behind another statement.
            for sql in ["PREPARE TRANSACTION 'x'", "VACUUM", "CALL nothing()"] {
                b.on_each_server(0, 2, &s().query("SELECT nextval('counts')"));
                b.says(1, &s().unnamed(sql, &[]).sync());
                b.says(1, &s().parse("n", sql).sync());
                b.on_each_server(0, 2, &s().query("SELECT nextval('counts')"));
                b.says(1, &s().bind("n", &[]).execute().close("n").sync());
            }
        });
    }
}

fn nobody_is_told_what_sequences_gave_where_nobody_has_asked(case: Case) {
    // Nobody knows whether a function uses a sequence: `pg_advisory_unlock_all`, by its number, or a user's.
    let calls = s().query("BEGIN").call(2892, &[]).query("SELECT lastval()").query("ROLLBACK");
    let queries = s().query("BEGIN").query("SELECT nothing()").query("SELECT lastval()").query("ROLLBACK");
    let batch = s().unnamed("SELECT 1", &[]).unnamed("SELECT nothing()", &[]).unnamed("SELECT lastval()", &[]).sync();
    for (ask, times) in [(calls, 4), (queries, 4), (batch, 1)] {
        beside(case, &[&[], &[], &[]], |b| {
            b.past_the_pool("CREATE SEQUENCE counts");
            b.past_the_pool("CREATE FUNCTION nothing() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'");
            b.on_each_server(0, 2, &s().query("SELECT nextval('counts')"));
            b.until(1, &ask, times);
        });
    }
}

fn what_goes_back_goes_to_the_clients_start(case: Case) {
    let started: Startup<'_> = &[("search_path", "started"), ("DateStyle", "German, DMY"), ("options", "-c app.x=1")];
    let adds = "INSERT INTO x VALUES (CURRENT_SCHEMA) RETURNING v, date '2024-12-31', current_setting('app.x', true)";
    beside(case, &[started, &[]], |b| {
        b.past_the_pool("CREATE SCHEMA started; GRANT USAGE ON SCHEMA started TO PUBLIC");
        b.past_the_pool(
            "CREATE TABLE x (v text); CREATE TABLE started.x (v text); GRANT ALL ON x, started.x TO PUBLIC",
        );
        for back in [
            "RESET search_path",
            "RESET ALL",
            "SET search_path TO DEFAULT",
            "SET LOCAL search_path TO DEFAULT",
            "SET LOCAL DateStyle TO DEFAULT",
            "SET LOCAL app.x = DEFAULT",
            "SET LOCAL application_name TO DEFAULT",
        ] {
            b.query(0, "SET search_path = public; SET DateStyle = 'ISO, MDY'; SET app.x = 2");
            b.query(0, back);
            b.query(0, adds);
            b.query(0, "BEGIN READ WRITE");
            b.query(0, "SET search_path = public; SET DateStyle = 'SQL, MDY'; SET app.x = 2");
            b.query(0, "SAVEPOINT mine");
            b.query(0, back);
            b.query(0, adds);
            b.query(0, "ROLLBACK TO mine");
            b.query(0, adds);
            b.query(0, back);
            b.query(0, adds);
            b.query(0, "COMMIT");
            b.query(0, adds);
            b.query(1, adds);
            let batch = s().unnamed("SET search_path = public", &[]).unnamed(back, &[]).unnamed(adds, &[]);
            b.says(0, &batch.unnamed("SET DateStyle = 'SQL, MDY'", &[]).unnamed(adds, &[]).sync());
            b.query(0, adds);
            b.query(0, "BEGIN READ WRITE");
            b.says(0, &s().unnamed(back, &[]).unnamed("SET app.x = 3", &[]).unnamed(adds, &[]).sync());
            b.query(0, adds);
            b.query(0, "COMMIT");
            b.query(0, adds);
            b.says(0, &s().unnamed(back, &[]).unnamed("SELECT 1 / 0", &[]).unnamed(adds, &[]).sync());
            b.query(0, adds);
            b.query(0, "RESET ALL");
        }
    });
}

fn custom_settings_that_are_empty(case: Case) {
    let began: Startup<'_> = &[("options", "-c app.tenant=b")];
    let shows = "SELECT current_setting('app.tenant', true)";
    beside(case, &[began, &[]], |b| {
        for empties in [
            "SET app.tenant = ''",
            "SELECT set_config('app.tenant', '', false)",
            "SELECT set_config('app.tenant', '', false), NULLIF(1, 1)",
            "DO 'BEGIN PERFORM set_config(''app.tenant'', '''', false); END'",
        ] {
            b.query(0, empties);
            for client in [0, 1, 0] {
                b.query(client, shows);
            }
            // It stays so, also where something else is looked at.
            b.query(0, "SET work_mem = '5MB'");
            for client in [0, 1, 0] {
                b.query(client, shows);
            }
            for back in ["RESET app.tenant", "SELECT set_config('app.tenant', NULL, false) IS NULL"] {
                b.query(0, back);
                b.query(0, "SELECT 1");
                for client in [0, 1, 0] {
                    b.query(client, shows);
                }
                b.query(0, empties);
            }
            b.query(0, "DISCARD ALL");
            b.query(0, shows);
        }
    });
}

fn what_goes_back_changes_nothing_else(case: Case) {
    let started: Startup<'_> = &[("search_path", "started"), ("DateStyle", "German, DMY"), ("options", "-c app.x=1")];
    let shows = "SELECT current_setting('search_path'), current_setting('DateStyle'), current_setting('app.x', true)";
    let all = || s().unnamed(shows, &[]).sync();
    beside(case, &[started, &[]], |b| {
        for back in ["RESET search_path", "RESET ALL", "SET LOCAL app.x TO DEFAULT"] {
            // No snapshot is taken for it.
            b.query(0, "BEGIN READ WRITE");
            b.query(0, back);
            b.query(0, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
            b.query(0, shows);
            b.query(0, "COMMIT");
            b.says(0, &s().unnamed("BEGIN READ WRITE", &[]).unnamed(back, &[]).sync());
            b.query(0, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
            b.query(0, "COMMIT");
            let batch = s().unnamed(back, &[]).unnamed("BEGIN ISOLATION LEVEL REPEATABLE READ", &[]);
            b.says(0, &batch.unnamed(shows, &[]).unnamed("COMMIT", &[]).sync());
            // What is not run takes nothing back.
            b.query(0, "SET search_path = public; SET app.x = 2");
            b.says(0, &s().parse("r", back).bind_to("r", "r", &[]).unnamed(shows, &[]).unnamed(shows, &[]).sync());
            b.query(0, shows);
            b.query(0, "BEGIN READ WRITE");
            b.says(0, &s().bind_to("r", "r", &[]).unnamed(shows, &[]).unnamed(shows, &[]).sync());
            b.says(0, &all());
            b.says(0, &s().execute_some("r", 0).unnamed(shows, &[]).sync());
            b.says(0, &all());
            b.query(0, "COMMIT");
            b.query(0, shows);
            // Nor does what is undone.
            for then in ["ROLLBACK", "SAVEPOINT a; ROLLBACK TO a", "COMMIT"] {
                b.query(0, "SET search_path = public; SET app.x = 2");
                b.query(0, &format!("BEGIN READ WRITE; {back}; {then}; BEGIN READ WRITE"));
                b.query(0, shows);
                b.query(0, "COMMIT");
                b.query(0, shows);
                b.query(0, &format!("BEGIN READ WRITE; SAVEPOINT a; {back}; ROLLBACK TO a"));
                b.query(0, shows);
                b.query(0, "COMMIT");
                b.query(0, shows);
            }
            // Nor what is skipped.
            b.query(0, "SET search_path = public; SET app.x = 2; SET DateStyle = 'ISO'");
            b.until(0, &s().unnamed("SELECT 1/0", &[]).flush(), 0);
            thread::sleep(Duration::from_millis(50));
            b.says(0, &s().unnamed(back, &[]).unnamed("RESET DateStyle", &[]).sync());
            b.query(0, shows);
            // Portals of before go by it.
            let batch = s().parse("x", shows).bind_to("x", "x", &[]).unnamed(back, &[]).execute_some("x", 0);
            b.says(0, &batch.close("x").close("r").sync());
            b.query(0, "RESET ALL");
        }
        for then in ["VACUUM", "DISCARD ALL", "SET DateStyle = 'SQL'", shows] {
            b.query(0, "RESET ALL");
            b.says(0, &s().unnamed("DISCARD ALL", &[]).unnamed(then, &[]).unnamed(shows, &[]).sync());
            b.query(0, shows);
        }
    });
}

fn settings_of_a_library(case: Case) {
    // It is loaded by what uses it.
    let show = s().query("DO 'BEGIN END'; SHOW plpgsql.print_strict_params");
    beside(case, &[], |b| {
        for set in [
            "SET plpgsql.print_strict_params = on",
            "DO $$ BEGIN PERFORM set_config('plpgsql.print_strict_params', 'on', false); END $$",
            "SELECT sets('on')",
        ] {
            b.clients(&[&[], &[], &[]]);
            b.past_the_pool("DROP FUNCTION IF EXISTS sets(text)");
            let body = "RETURNS text LANGUAGE plpgsql AS $$ \
                BEGIN RETURN set_config('plpgsql.print_strict_params', $1, false); END $$";
            b.past_the_pool(&format!("CREATE FUNCTION sets(text) {body}"));
            b.on_each_server(0, 2, &show);
            b.query(1, "DO 'BEGIN END'");
            b.query(1, set);
            b.on_each_server(0, 2, &show);
            b.on_each_server(1, 2, &show);
            b.query(1, "RESET plpgsql.print_strict_params");
            b.on_each_server(1, 2, &show);
            b.on_each_server(0, 2, &show);
        }
    });
}
