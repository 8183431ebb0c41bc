//! Session mode: what a client leaves in its session, the next one does not find.

use std::{thread, time::Duration};

use sluice_testkit::{Case, Script, Version, becomes, matrix, raw::transcript};

use crate::{
    beside::{Beside, Startup, beside, beside_with, s},
    rights::at_log_ins,
};

matrix!(session:
    log_ins_go_by_changes,
    a_session_leaves_nothing,
    a_plain_session_leaves_its_server,
    what_no_text_shows_is_nobody_elses,
    a_login_trigger_is_every_sessions,
    what_a_client_begins_with_is_what_reset_goes_back_to,
    what_postgresql_refuses_at_a_log_in,
    a_session_holds_its_server_from_its_log_in_on,
    what_a_login_trigger_says_is_heard,
);

/// Time in which the server of a client that has gone is ready for the next one.
const MOMENT: Duration = Duration::from_millis(60);

/// All that a session may find of others.
const FINDS: &str = "SELECT current_setting('app.x', true), current_setting('my.own', true), \
    current_setting('work_mem'), current_setting('search_path'), current_user, \
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors), pg_my_temp_schema(), \
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
    (SELECT count(*) FROM pg_listening_channels())";

const SETTING: Startup<'_> = &[("options", "-c app.x=6 -c work_mem=7MB")];

/// The client goes.
fn leave(b: &mut Beside) {
    for raw in [&mut b.pooled[0], &mut b.alone[0]] {
        raw.send(&s().terminate());
    }
    thread::sleep(MOMENT);
}

/// A client says this and goes, and then another one comes.
fn left(b: &mut Beside, startup: Startup<'_>, script: &Script, times: usize) {
    b.clients(&[startup]);
    b.until(0, script, times);
    leave(b);
    b.clients(&[&[]]);
    b.query(0, FINDS);
    b.query(0, "SELECT lastval()");
    // Its schema is there from the first temporary table on.
    b.query(0, "SET temp_buffers = 200");
}

fn a_session_leaves_nothing(case: Case) {
    beside(case, &[&[]], |b| {
        b.query(
            0,
            "CREATE FUNCTION makes(name text) RETURNS text LANGUAGE sql AS 'SELECT set_config($1, ''1'', false)'",
        );
        b.query(0, "CREATE FUNCTION hides() RETURNS text LANGUAGE sql AS 'SELECT makes(''app.'' || ''x'')'");
        b.query(0, "CREATE SEQUENCE s");
        for text in [
            "SET app.x = '1'",
            "BEGIN; SET LOCAL app.x = '2'; COMMIT",
            "SELECT set_config('app.' || 'x', '3', true)",
            "SELECT makes('app.x')",
            "SELECT hides()",
            "DO $$ BEGIN PERFORM hides(); END $$",
            "CREATE TEMP TABLE t (a int)",
            "BEGIN; CREATE TEMP TABLE t (a int) ON COMMIT DROP; COMMIT",
            "PREPARE p AS SELECT 1",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "LISTEN a",
            "SELECT pg_advisory_lock(7)",
            "SELECT nextval('s')",
            "SET work_mem = '7MB'; SET search_path = pg_catalog",
        ] {
            left(b, &[], &s().query(text), 1);
            left(b, &[], &s().parse("a", text).bind("a", &[]).execute().sync(), 1);
        }
        let sets = s().parse("", "SELECT set_config($1, $2, false)").bind("", &[Some("app.x"), Some("1")]).execute();
        left(b, &[], &sets.sync(), 1);
        left(b, SETTING, &s().query("SELECT 1"), 1);
        left(b, &[], &s().query(&format!("SET app.x = '{}'", "x".repeat(50_000))), 1);
        left(b, &[], &s().query("BEGIN; SET LOCAL app.x = '1'").query("SELECT 1/0"), 2);
        // `set_config` by its number.
        left(b, &[], &s().call(2078, &[b"app.x", b"1", b"\x01"]), 1);
        let seeded = "SELECT setseed(0.25)";
        let first = [seeded, "SELECT random()"].map(|text| b.query(0, text))[1].clone();
        b.query(0, seeded);
        b.pooled[0].send(&s().terminate());
        thread::sleep(MOMENT);
        b.clients(&[&[]]);
        b.pooled[0].send(&s().query("SELECT random()"));
        assert_ne!(transcript(&b.pooled[0].until_ready(1)), first, "another client's seed");
    });
}

fn a_plain_session_leaves_its_server(case: Case) {
    beside(case, &[], |b| {
        let mut numbers = Vec::new();
        for text in ["SELECT 1", "SET work_mem = '7MB'", "LISTEN a", "SELECT lower('A')", "SET DateStyle = 'German'"] {
            b.clients(&[&[]]);
            b.query(0, text);
            b.pooled[0].send(&s().query("SELECT pg_backend_pid()"));
            numbers.push(transcript(&b.pooled[0].until_ready(1)));
            b.pooled[0].send(&s().terminate());
            // It has forgotten what its last client listened for, and the like, and is the next one's.
            let in_order = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND state = 'idle' AND \
                 (query = 'DISCARD ALL' OR query LIKE '%pg_catalog.pg_proc%' OR query LIKE '%dathasloginevt%')",
                b.databases[0]
            );
            let mut superuser = b.place.superuser();
            becomes("servers in order", 1, || superuser.query_one(&in_order, &[]).unwrap().get::<_, i64>(0));
        }
        assert!(numbers.windows(2).all(|two| two[0] == two[1]), "{numbers:?}");
    });
}

fn what_no_text_shows_is_nobody_elses(case: Case) {
    for extension in [false, true] {
        beside_with(case, extension, &[&[]], |b| {
            b.query(
                0,
                "CREATE SCHEMA a; CREATE SCHEMA b;
                 CREATE TABLE a.prices (price int, name text); INSERT INTO a.prices VALUES (1, 'one');
                 CREATE TABLE b.prices (name text, price int); INSERT INTO b.prices VALUES ('two', 2);
                 CREATE TABLE custom (v text); CREATE TABLE temporary (v text); CREATE TABLE priced (v text);
                 CREATE TABLE escaped (v text); CREATE TABLE owners (v text);
                 CREATE FUNCTION custom() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN PERFORM set_config('app.' || 'x', '1', false); RETURN new; END $$;
                 CREATE FUNCTION owners() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                     BEGIN PERFORM set_config('app.' || 'x', '1', true); RETURN new; END $$;
                 CREATE FUNCTION temporary() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN CREATE TEMP TABLE t (a int) ON COMMIT DROP; RETURN new; END $$;
                 CREATE FUNCTION priced() RETURNS trigger LANGUAGE plpgsql AS $$
                     DECLARE row b.prices%ROWTYPE;
                     BEGIN SELECT * INTO row FROM b.prices; new.v := row; SELECT price INTO new.v FROM prices;
                     RETURN new; END $$;
                 CREATE FUNCTION escaped() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN new.v := 'a\\b'; RETURN new; END $$;
                 CREATE TRIGGER t BEFORE INSERT ON custom FOR EACH ROW EXECUTE FUNCTION custom();
                 CREATE TRIGGER t BEFORE INSERT ON owners FOR EACH ROW EXECUTE FUNCTION owners();
                 CREATE TRIGGER t BEFORE INSERT ON temporary FOR EACH ROW EXECUTE FUNCTION temporary();
                 CREATE TRIGGER t BEFORE INSERT ON priced FOR EACH ROW EXECUTE FUNCTION priced();
                 CREATE TRIGGER t BEFORE INSERT ON escaped FOR EACH ROW EXECUTE FUNCTION escaped()",
            );
            for (first, then) in [
                ("SELECT 1", "SELECT 1"),
                ("SET standard_conforming_strings = off", "SELECT 1"),
                ("SET search_path = a, public", "SET search_path = b, public"),
            ] {
                for table in ["custom", "owners", "temporary", "priced", "escaped"] {
                    let insert = format!("INSERT INTO {table} VALUES ('') RETURNING v");
                    left(b, &[], &s().query(first).query(&insert), 2);
                    b.query(0, then);
                    b.query(0, &insert);
                }
            }
        });
    }
}

fn a_login_trigger_is_every_sessions(case: Case) {
    if case.version != Version::V18 {
        return;
    }
    for extension in [false, true] {
        beside_with(case, extension, &[], |b| {
            let custom = if extension { "PERFORM set_config('app.x', session_user, false);" } else { "" };
            at_log_ins(b, &format!("PERFORM set_config('work_mem', '8MB', false); {custom}"));
            for text in ["SELECT 1", "SET work_mem = '1MB'", "RESET work_mem", "DISCARD ALL", "SET app.x = 'mine'"] {
                left(b, &[], &s().query(text), 1);
                b.query(0, "RESET work_mem; SHOW work_mem");
            }
        });
    }
}

fn what_a_login_trigger_says_is_heard(case: Case) {
    if case.version != Version::V18 {
        return;
    }
    beside(case, &[], |b| {
        at_log_ins(b, "RAISE NOTICE 'for %', current_setting('application_name');");
        for startup in [&[][..], &[("application_name", "one")], &[("application_name", "one")]] {
            let said = b.log_in(startup);
            assert!(said.contains("N("), "{said}");
        }
    });
}

fn log_ins_go_by_changes(case: Case) {
    beside(case, &[], |b| {
        for act in ["SET work_mem = ''3MB''", "SET app.x = ''1''", "RESET work_mem"] {
            b.clients(&[&[], &[]]);
            b.query(0, "SELECT 1");
            let text = format!("ALTER DATABASE %I {act}");
            b.query(1, &format!("DO $$ BEGIN EXECUTE format('{text}', current_database()); END $$"));
            for client in [0, 1] {
                b.pooled[client].send(&s().terminate());
            }
            thread::sleep(MOMENT);
            b.clients(&[&[], &[]]);
            b.query(0, FINDS);
            b.query(1, FINDS);
        }
    });
}

/// Ways to begin, which PostgreSQL reads as it would without a pool.
const STARTS: &[Startup<'_>] = &[
    &[],
    &[("application_name", "one")],
    &[("options", "-c DateStyle=German -c work_mem=7MB"), ("DateStyle", "DMY")],
    &[("options", "-c app.tenant=7 -S 6MB"), ("search_path", "a,b")],
    &[("role", "twin_a"), ("DateStyle", "German")],
    &[("client_encoding", "LATIN1"), ("TimeZone", "Asia/Tokyo"), ("default_transaction_isolation", "serializable")],
    &[("session_authorization", "app"), ("temp_buffers", "200")],
    &[("bytea_output", "escape"), ("options", "-c statement_timeout=10s -c geqo=off")],
];

fn what_a_client_begins_with_is_what_reset_goes_back_to(case: Case) {
    const SHOW: &str = "SELECT current_setting('DateStyle'), current_setting('work_mem'), current_user, \
        current_setting('app.tenant', true), current_setting('search_path'), current_setting('geqo'), \
        current_setting('client_encoding'), current_setting('TimeZone'), current_setting('temp_buffers'), \
        current_setting('transaction_isolation'), (SELECT string_agg(name || '=' || reset_val || ' ' || source, ' ') \
        FROM pg_settings WHERE name IN ('DateStyle', 'work_mem', 'TimeZone', 'application_name'))";
    beside(case, &[], |b| {
        for startup in STARTS {
            // The second one may have the server of the first one, and the third one too.
            for leaves in ["SELECT 1", "SET DateStyle = 'SQL'; SET work_mem = '1MB'; SET app.tenant = '9'", ""] {
                b.clients(&[startup]);
                b.query(0, SHOW);
                for text in [
                    "SET DateStyle = 'Postgres'",
                    "SET work_mem = '3MB'; SET SESSION TimeZone = 'UTC'",
                    "RESET DateStyle",
                    "BEGIN; RESET work_mem; RESET TimeZone",
                    "ROLLBACK",
                    "RESET ALL",
                    "SELECT set_config('work_mem', NULL, false)",
                    "SET LOCAL work_mem = DEFAULT",
                    "RESET ROLE",
                    "SET SESSION AUTHORIZATION DEFAULT",
                    "DISCARD ALL",
                ] {
                    b.query(0, text);
                    b.query(0, SHOW);
                    b.says(
                        0,
                        &s().parse("", text).bind("", &[]).execute().parse("", SHOW).bind("", &[]).execute().sync(),
                    );
                }
                b.query(0, leaves);
                leave(b);
            }
        }
    });
}

fn what_postgresql_refuses_at_a_log_in(case: Case) {
    beside(case, &[&[]], |b| {
        let refused: &[Startup<'_>] = &[
            &[("no_such_parameter", "1"), ("options", "-c work_mem=no")],
            &[("work_mem", "no"), ("DateStyle", "none")],
            &[("options", "-c geqo")],
            &[("options", "-c ignore_system_indexes=on -z")],
            &[("options", "geqo=off")],
            &[("shared_buffers", "1MB")],
            &[("log_statement", "all")],
            &[("role", "nobody_at_all")],
            &[("temp_tablespaces", "nowhere"), ("role", "postgres")],
            &[("transaction_isolation", "chaos")],
        ];
        b.refuses(refused);
        // Others go on.
        b.clients(&[&[("application_name", "another")]]);
        b.query(0, "SELECT 1");
    });
}

fn a_session_holds_its_server_from_its_log_in_on(case: Case) {
    beside(case, &[&[], &[]], |b| {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND datname = current_database()";
        b.query(0, count);
    });
}
