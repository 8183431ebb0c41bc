//! Session mode: what a client leaves in its session, the next one does not find.

use std::{thread, time::Duration};

use sluice_testkit::{Case, Script, Version, matrix, raw::transcript};

use crate::{
    beside::{Beside, Startup, beside, beside_with, s},
    rights::at_log_ins,
};

matrix!(session:
    log_ins_go_by_changes,
    a_session_leaves_nothing,
    a_plain_session_leaves_its_server,
    a_login_trigger_is_every_sessions,
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

/// A client says this and goes, and then another one comes.
fn left(b: &mut Beside, startup: Startup<'_>, script: &Script, times: usize) {
    b.clients(&[startup]);
    b.until(0, script, times);
    for raw in [&mut b.pooled[0], &mut b.alone[0]] {
        raw.send(&s().terminate());
    }
    thread::sleep(MOMENT);
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
    beside(case, &[&[]], |b| {
        let mut numbers = Vec::new();
        for text in ["SELECT 1", "SET work_mem = '7MB'", "LISTEN a", "SELECT lower('A')", "SET DateStyle = 'German'"] {
            b.clients(&[&[]]);
            b.query(0, text);
            b.pooled[0].send(&s().query("SELECT pg_backend_pid()"));
            numbers.push(transcript(&b.pooled[0].until_ready(1)));
            b.pooled[0].send(&s().terminate());
            thread::sleep(MOMENT);
        }
        assert!(numbers.windows(2).all(|two| two[0] == two[1]), "{numbers:?}");
    });
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
