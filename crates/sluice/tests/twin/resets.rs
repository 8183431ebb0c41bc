//! Settings that are taken back in the midst of a text: each as a script that is run beside PostgreSQL.

use std::collections::BTreeMap;

use sluice_testkit::{Case, Mode, matrix, raw::Message};

use crate::{
    beside::{Beside, Startup, beside, s},
    ignored::ordered,
};

matrix!(transaction:
    what_stands_behind_a_reset_goes_by_the_clients_start,
    errors_behind_a_reset_name_places_in_the_clients_text,
    what_a_session_began_with_is_there_in_session_mode,
    roles_behind_a_reset,
    a_role_goes_with_the_sessions_user,
    old_names_of_settings,
    custom_settings_of_a_role_go_back_to_the_clients_own,
    what_is_reset_for_a_transaction_is_reported_as_it_is_behind_it,
    a_reset_is_answered_in_the_midst_of_a_message,
    calls_behind_a_reset,
    what_a_function_has_reset_is_told,
    what_may_stand_alone_behind_a_discard_begins_the_transaction,
    commands_that_stand_alone,
    what_stands_behind_a_discard_has_the_clients_characteristics,
    what_is_set_behind_a_discard_stays,
    what_a_discard_takes_back_is_told_at_the_end_of_its_batch,
    what_is_skipped_resets_nothing,
);

const STARTED: Startup<'static> = &[
    ("TimeZone", "Asia/Tokyo"),
    ("DateStyle", "German, DMY"),
    ("default_transaction_isolation", "repeatable read"),
    ("xmloption", "document"),
    // Not as PostgreSQL writes it.
    ("search_path", "a,b"),
    ("options", "-c app.x=1"),
];

/// The oid of current_setting(text).
const CURRENT_SETTING: u32 = 2077;

const SHOWS: &str = "SELECT current_setting('TimeZone'), current_setting('DateStyle'), current_setting('xmloption'), \
     current_setting('search_path'), current_setting('app.x', true), \
     current_setting('default_transaction_isolation')";

const MAKES: &str = "CREATE FUNCTION public.sets(text, text) RETURNS text LANGUAGE plpgsql AS \
    'BEGIN RETURN pg_catalog.set_config($1, $2, false); END'";

const BACK: [&str; 4] = ["RESET ALL", "RESET TimeZone", "SET DateStyle TO DEFAULT", "SET LOCAL TimeZone TO DEFAULT"];

const THEN: [&str; 13] = [
    "SELECT set_config('TimeZone', 'UTC', false)",
    "SELECT set_config('TimeZone', 'UTC', true)",
    "SELECT public.sets('TimeZone', 'UTC')",
    "DO $$ BEGIN PERFORM set_config('TimeZone', 'UTC', false); END $$",
    "DO $$ BEGIN SET TimeZone = 'UTC'; END $$",
    "UPDATE pg_settings SET setting = 'UTC' WHERE name = 'TimeZone'",
    "SET TIME ZONE 9",
    "SET LOCAL TimeZone = 'UTC'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET XML OPTION CONTENT",
    "SAVEPOINT a; SET TimeZone = 'UTC'",
    "SELECT timestamptz '2024-06-01 00:00', date '2024-12-31'",
    "SET app.x = 2; RESET app.x; SHOW app.x; RESET DateStyle",
];

fn try_each(b: &mut Beside) {
    b.query(0, MAKES);
    for back in BACK {
        for then in THEN {
            let query = format!("{back}; {then}; SELECT current_setting('TimeZone')");
            b.query(0, &query);
            b.query(0, SHOWS);
            b.query(0, "ROLLBACK");
            for ends in [&["COMMIT"][..], &["ROLLBACK TO a", "COMMIT"], &["COMMIT AND CHAIN", "ROLLBACK"]] {
                for sql in ["BEGIN READ WRITE", "SAVEPOINT a", "SET TimeZone = 'Asia/Seoul'", &query, SHOWS] {
                    b.query(0, sql);
                }
                for end in ends {
                    b.query(0, end);
                    b.query(0, SHOWS);
                }
            }
            b.query(0, "RESET ALL");
            b.query(0, SHOWS);
        }
    }
}

fn what_stands_behind_a_reset_goes_by_the_clients_start(case: Case) {
    beside(case, &[STARTED, &[]], |b| {
        try_each(b);
        // The same after others had that server.
        b.query(1, "SET TimeZone = 'Asia/Seoul'");
        b.query(0, "RESET ALL; SELECT set_config('TimeZone', 'UTC', false)");
        b.query(1, "SHOW TimeZone");
        b.query(0, SHOWS);
    });
}

fn what_a_session_began_with_is_there_in_session_mode(case: Case) {
    let case = Case { mode: Mode::Session, ..case };
    beside(case, &[STARTED, &[]], |b| {
        for back in ["RESET ALL", "RESET DateStyle", "DISCARD ALL", "SET TimeZone TO DEFAULT"] {
            b.query(0, "SET TimeZone = 'UTC'; SET DateStyle = 'SQL, MDY'; SET work_mem = '5MB'");
            b.query(0, back);
            b.query(0, SHOWS);
            b.query(0, "SHOW work_mem");
        }
        try_each(b);
    });
}

fn errors_behind_a_reset_name_places_in_the_clients_text(case: Case) {
    beside(case, &[STARTED, &[]], |b| {
        for query in [
            "RESET ALL; SELECT nowhere",
            "RESET ALL; SELECT 'é' AS é, nowhere; RESET ALL",
            "SELECT nowhere; RESET ALL; SELECT 1",
            "RESET ALL; SELEC 1",
            "SELECT 'ü'; RESET DateStyle; RESET TimeZone -- é\n; SELECT 1 FROM nowhere",
            "SELECT 1; SET app.x TO DEFAULT /* é */; INSERT INTO nowhere VALUES (1)",
        ] {
            for begin in ["ROLLBACK", "BEGIN READ WRITE"] {
                b.query(0, begin);
                let places = [&mut b.pooled[0], &mut b.alone[0]].map(|raw| {
                    raw.send(&s().query(query));
                    let heard = raw.until_ready(1);
                    ordered(&heard)
                        .into_iter()
                        .map(|message| (message.to_string(), message.field(b'P')))
                        .collect::<Vec<_>>()
                });
                let [pooled, alone] = places;
                assert_eq!(pooled, alone, "{query}");
                assert!(alone.iter().any(|(_, place)| !place.is_empty()), "{query}");
            }
        }
    });
}

fn roles_behind_a_reset(case: Case) {
    let who = "SELECT current_user, session_user";
    beside(case, &[], |b| {
        b.clients(&[&[("TimeZone", "Asia/Tokyo"), ("options", "-c role=trusted")], &[]]);
        for back in ["RESET ROLE", "RESET SESSION AUTHORIZATION", "SET ROLE NONE", "RESET ALL"] {
            for then in ["SET TimeZone = 'UTC'", "SET ROLE NONE", "SELECT set_config('role', 'none', false)"] {
                b.query(0, "SET ROLE NONE");
                b.query(0, &format!("{back}; {who}; {then}; {who}"));
                b.query(1, who);
                b.query(0, who);
                b.query(0, "RESET ROLE; RESET ALL");
                b.query(0, who);
            }
        }
    });
}

/// A client that began with a role, and changes the session's user by the setting's name or by the command.
fn a_role_goes_with_the_sessions_user(case: Case) {
    const WHO: &str = "SELECT current_user, session_user, current_setting('role')";
    beside(case, &[], |b| {
        for text in [
            "SET session_authorization TO DEFAULT",
            "SET SESSION session_authorization = DEFAULT",
            "RESET session_authorization",
            "RESET SESSION AUTHORIZATION",
            "SET session_authorization = app",
            "SET \"session_authorization\" TO 'app'",
            "SET SESSION AUTHORIZATION app",
            "SET LOCAL session_authorization = app",
        ] {
            for before in ["SELECT 1", "SET ROLE NONE", "SET SESSION AUTHORIZATION app"] {
                b.clients(&[&[("role", "trusted")], &[]]);
                b.query(0, before);
                b.query(0, text);
                b.query(1, WHO);
                b.query(0, WHO);
                b.query(0, &format!("BEGIN; {text}; {WHO}"));
                b.query(0, WHO);
                b.query(0, "COMMIT");
                b.query(1, WHO);
                b.query(0, WHO);
                b.says(0, &s().unnamed(text, &[]).unnamed(WHO, &[]).sync());
                b.query(0, &format!("RESET ROLE; {WHO}"));
                b.query(1, WHO);
                b.query(0, WHO);
            }
        }
    });
}

/// A client that begins with another value of a custom setting than its role has (`ALTER ROLE … SET`).
fn custom_settings_of_a_role_go_back_to_the_clients_own(case: Case) {
    const SHOWS: &str = "SELECT current_setting('app.z', true), current_setting('work_mem')";
    beside(case, &[], |b| {
        let database = b.databases[0].clone();
        let role = format!("own_{database}");
        b.place.execute_as_superuser_in(
            &database,
            &format!("CREATE ROLE {role} LOGIN IN ROLE trusted; ALTER ROLE {role} SET app.z = 'its own'; ALTER ROLE {role} SET work_mem = '9MB'"),
        );
        let user = ("user", role.as_str());
        for set in ["SELECT 1", "SET app.z = '1'", "SET app.z = 'its own'"] {
            for text in [
                "SET app.z TO DEFAULT",
                "RESET App.Z",
                "RESET ALL",
                "DISCARD ALL",
                "BEGIN; SET LOCAL app.z TO DEFAULT; COMMIT",
            ] {
                b.clients(&[&[user, ("app.z", "the client's"), ("work_mem", "7MB")], &[user]]);
                b.query(0, set);
                b.query(1, SHOWS);
                b.query(0, text);
                b.query(1, SHOWS);
                b.query(0, SHOWS);
                b.query(0, SHOWS);
                if !text.contains(';') {
                    b.query(0, set);
                    b.says(0, &s().unnamed(text, &[]).sync());
                    b.query(1, SHOWS);
                    b.query(0, SHOWS);
                }
            }
        }
    });
}

/// `sort_mem` is what `work_mem` was called once, `vacuum_mem` what `maintenance_work_mem` was.
fn old_names_of_settings(case: Case) {
    const SHOWS: &str = "SHOW work_mem; SHOW maintenance_work_mem";
    let start: Startup<'_> = &[("work_mem", "7MB"), ("maintenance_work_mem", "9MB")];
    beside(case, &[start, &[]], |b| {
        for text in [
            "RESET sort_mem",
            "SET sort_mem TO DEFAULT",
            "SET LOCAL Sort_Mem TO DEFAULT",
            "RESET vacuum_mem",
            "SET vacuum_mem = '3MB'",
            "RESET ALL; SET sort_mem = '2MB'",
        ] {
            b.query(0, "SET work_mem = '3MB'; SET maintenance_work_mem = '4MB'");
            b.query(0, &format!("{text}; {SHOWS}"));
            b.query(0, "BEGIN");
            b.query(0, text);
            b.query(0, SHOWS);
            b.query(0, "COMMIT");
            b.query(0, SHOWS);
            b.query(1, SHOWS);
            if !text.contains(';') {
                b.says(0, &s().unnamed(text, &[]).unnamed("SHOW work_mem", &[]).sync());
            }
            b.query(0, SHOWS);
        }
    });
}

fn what_is_reset_for_a_transaction_is_reported_as_it_is_behind_it(case: Case) {
    beside(case, &[&[("TimeZone", "Europe/Berlin"), ("DateStyle", "German")]], |b| {
        let set = || s().unnamed("SET TimeZone = 'America/New_York'", &[]);
        for script in [
            set().unnamed("SET LOCAL TimeZone TO DEFAULT", &[]).sync(),
            s().unnamed("SET LOCAL TimeZone TO DEFAULT", &[]).then(&set()).sync(),
            set().unnamed("SET LOCAL TimeZone TO DEFAULT", &[]).unnamed("RESET TimeZone", &[]).sync(),
            s().unnamed("SET DateStyle = 'SQL'", &[]).unnamed("SET LOCAL DateStyle TO DEFAULT", &[]).sync(),
        ] {
            b.says(0, &script);
            b.query(0, "SHOW TimeZone");
            b.query(0, "SET TimeZone = 'UTC'");
            b.says(0, &script);
            b.query(0, "BEGIN");
            b.says(0, &script);
            b.query(0, "COMMIT");
        }
    });
}

/// The transaction behind a DISCARD ALL in a batch begins as the client's own transactions do.
fn calls_behind_a_reset(case: Case) {
    // A call brings its own ReadyForQuery.
    beside(case, &[STARTED, &[("TimeZone", "UTC")], &[]], |b| {
        for (client, back) in (0..3).flat_map(|client| BACK.map(|back| (client, back))) {
            for begin in ["BEGIN", "SELECT 1"] {
                b.query(client, "SET TimeZone = 'Asia/Seoul'");
                b.query(client, begin);
                b.says(client, &s().unnamed(back, &[]).call(CURRENT_SETTING, &[b"TimeZone"]));
                b.query(client, "SHOW TimeZone");
                b.query(client, "ROLLBACK");
                b.query(client, "RESET ALL");
            }
        }
    });
}

fn what_a_function_has_reset_is_told(case: Case) {
    // No text shows it, so that the client hears of it behind the transaction, before anything else of its own.
    beside(case, &[&[("client_encoding", "LATIN1"), ("TimeZone", "Asia/Tokyo")], &[]], |b| {
        for (set, back) in [
            ("SELECT 1", "SELECT set_config('client_encoding', null, false)"),
            ("SELECT 1", "BEGIN; SELECT set_config('client_encoding', null, false); COMMIT"),
            ("SELECT 1", "DO 'BEGIN RESET client_encoding; END'"),
            ("SET TimeZone = 'Asia/Seoul'", "DO 'BEGIN RESET ALL; END'"),
            ("SET client_encoding = 'UTF8'", "SELECT set_config('client_encoding', null, false)"),
        ] {
            b.query(0, set);
            let script = s().query(back);
            let told = [&mut b.pooled[0], &mut b.alone[0]].map(|raw| {
                raw.send(&script);
                let mut heard = raw.until_ready(1);
                raw.send(&s().query("SELECT 1"));
                heard.append(&mut raw.until_ready(1));
                last_told(&heard)
            });
            let [pooled, alone] = told;
            for (name, value) in alone {
                assert!(pooled.get(&name).is_none_or(|told| *told == value), "{back}: {name} is {value}, {pooled:?}");
            }
            for (name, told) in &pooled {
                let real = b.query(0, &format!("SELECT current_setting('{name}')"));
                assert!(real.contains(&**told), "{back}: told {name} = {told}; {real}");
            }
            b.query(1, "SELECT 1");
            b.query(0, "RESET ALL");
        }
    });
}

/// The parameters that messages tell of, as they tell last.
fn last_told(messages: &[Message]) -> BTreeMap<String, String> {
    let told = messages.iter().filter(|message| message.tag == b'S');
    told.map(|message| {
        let (name, value) = sluice_wire::message::read_parameter_status(&message.body).unwrap();
        (name.to_owned(), value.to_owned())
    })
    .collect()
}

fn what_may_stand_alone_behind_a_discard_begins_the_transaction(case: Case) {
    beside(case, &[&[("default_transaction_isolation", "serializable")], &[]], |b| {
        b.query(0, "CREATE TABLE IF NOT EXISTS behind (i int)");
        for first in ["DO $$ BEGIN PERFORM 1; END $$", "SELECT 1", "CALL nothing()"] {
            for then in ["INSERT INTO behind VALUES (1)", "SELECT count(*) FROM behind"] {
                b.says(0, &s().unnamed("DISCARD ALL", &[]).unnamed(first, &[]).unnamed(then, &[]).sync());
                b.query(0, "SHOW default_transaction_isolation");
            }
        }
    });
}

fn what_stands_behind_a_discard_has_the_clients_characteristics(case: Case) {
    const OF_TRANSACTION: &str = "SELECT current_setting('transaction_read_only'), \
        current_setting('transaction_isolation'), current_setting('transaction_deferrable')";
    let of_one = |name, value| [(name, value)];
    let all = [
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"),
    ];
    let singles = all.map(|(name, value)| of_one(name, value));
    let clients: Vec<Startup<'_>> = singles.iter().map(|one| &one[..]).chain([&all[..]]).collect();
    beside(case, &[], |b| {
        b.clients(&clients);
        let discard = || s().unnamed("DISCARD ALL", &[]);
        let shows = || s().unnamed(OF_TRANSACTION, &[]);
        for client in 0..clients.len() {
            for then in [
                shows(),
                s().unnamed("COMMIT", &[]).then(&shows()),
                s().unnamed("BEGIN", &[]).then(&shows()).unnamed("COMMIT", &[]).then(&shows()),
                s().unnamed("BEGIN ISOLATION LEVEL REPEATABLE READ", &[]).then(&shows()).unnamed("COMMIT", &[]),
                s().unnamed("CREATE TABLE forbidden (i int)", &[]),
                s().unnamed("CREATE OR REPLACE VIEW forbidden AS SELECT 1", &[]),
                s().unnamed("RESET ALL", &[]).then(&shows()),
                s().then(&discard()).then(&shows()),
            ] {
                b.says(client, &discard().then(&then).sync());
                b.query(client, OF_TRANSACTION);
                b.query(client, "ROLLBACK");
            }
        }
    });
}

fn a_reset_is_answered_in_the_midst_of_a_message(case: Case) {
    // A CopyFail that comes behind its COPY is passed on, and ignored. Nothing can be put in place within it.
    let (before, within) = (["SELECT 1", "SET TimeZone = 'Etc/UTC'"], ["SELECT 1", "SET TimeZone = 'Asia/Dili'"]);
    let late = s().copy_fail("which comes late").0;
    let (half, rest) = late.split_at(late.len() / 2);
    beside(case, &[STARTED, &[("TimeZone", "UTC")], &[]], |b| {
        b.query(2, "CREATE TABLE IF NOT EXISTS lines (line text)");
        for client in [0, 1, 2] {
            for (before, within) in before.iter().flat_map(|before| within.map(|within| (before, within))) {
                for back in BACK {
                    for then in [
                        s().bind("missing", &[]).sync(),
                        s().unnamed("SELECT 1/(random() * 0)::int", &[]).sync(),
                        s().unnamed(SHOWS, &[]).sync(),
                        s().query(SHOWS),
                        s().call(CURRENT_SETTING, &[b"TimeZone"]),
                    ] {
                        b.query(client, before);
                        b.query(client, "BEGIN");
                        let resets = format!("{within}; COPY lines FROM STDIN; {back}");
                        b.until(client, &s().query(&resets).copy_done().bytes(half), 1);
                        b.says(client, &s().bytes(rest).then(&then));
                        b.query(client, "SHOW TimeZone");
                        b.query(client, "ROLLBACK");
                        b.query(client, "SHOW TimeZone");
                        b.query(client, "RESET ALL");
                    }
                }
            }
        }
    });
}

/// A command that can't run in a pipeline, in a batch whose statements have to be prepared again under other settings.
fn commands_that_stand_alone(case: Case) {
    let started: Startup<'_> = &[("TimeZone", "Asia/Tokyo"), ("DateStyle", "German, DMY")];
    // As many as a server keeps, and more.
    let others =
        (0..8).map(|i| format!("o{i}")).fold(s(), |s, name| s.close(&name).parse(&name, &format!("SELECT '{name}'")));
    let others = others.sync();
    let date = "SELECT '01.02.2020'::date";
    beside(case, &[started, &[], &[]], |b| {
        b.query(0, "CREATE TABLE t (i int)");
        for alone in [
            "VACUUM t",
            "VACUUM (INDEX_CLEANUP 'auto') t",
            "CREATE DATABASE it TEMPLATE 'nosuch'",
            "ALTER SYSTEM SET work_mem = '4MB'",
            "REINDEX TABLE CONCURRENTLY t",
            "CREATE INDEX CONCURRENTLY ON t ((i + '1'::int))",
            "DISCARD ALL",
        ] {
            for first in [
                s(),
                s().close("nosuch"),
                s().parse("e", date),
                s().describe("d"),
                s().parse("e", date).describe("d"),
                s().parse("e", "nonsense").describe("d"),
            ] {
                b.query(0, "SET DateStyle = 'German, DMY'; SET TimeZone = 'Asia/Tokyo'");
                b.says(0, &s().close("v").close("d").close("e").parse("d", date).parse("v", alone).sync());
                b.query(0, "SET DateStyle = 'ISO, MDY'; SET TimeZone = 'UTC'");
                b.on_each_server(1, 2, &others);
                b.query(1, "BEGIN READ WRITE");
                b.says(0, &first.bind("v", &[]).execute().sync());
                b.query(0, "SHOW TimeZone");
                b.query(1, "COMMIT");
            }
        }
    });
}

/// What is discarded is committed at once, and what follows may have to stand alone, or fail behind a COMMIT.
fn what_is_set_behind_a_discard_stays(case: Case) {
    beside(case, &[STARTED, &[]], |b| {
        for then in [
            "SET TimeZone = 'Asia/Seoul'",
            "SET LOCAL TimeZone = 'Asia/Seoul'",
            "DO $$ BEGIN SET TimeZone = 'Asia/Seoul'; END $$",
            "DO $$ BEGIN SET TimeZone = 'Asia/Seoul'; COMMIT; END $$",
            "VACUUM",
            "COMMIT",
            "ROLLBACK",
            "SELECT 1",
            "SET TRANSACTION READ ONLY",
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "DO $$ BEGIN PERFORM 1/0; END $$",
        ] {
            let batch = s().unnamed("DISCARD ALL", &[]).unnamed(then, &[]);
            let more = batch.clone().unnamed("SHOW TimeZone", &[]);
            let failing = more.clone().unnamed("COMMIT", &[]).unnamed("SELECT 1/0", &[]);
            let undone = batch.clone().unnamed("SELECT 1", &[]).unnamed("ROLLBACK", &[]).unnamed(SHOWS, &[]);
            let behind_failure = s().unnamed("SELECT 1/0", &[]).then(&more);
            for batch in [&batch, &more, &failing, &undone, &behind_failure].map(|batch| batch.clone().sync()) {
                b.says(0, &batch);
                b.query(0, "SHOW TimeZone");
                b.query(0, "ROLLBACK AND CHAIN; SHOW TimeZone");
                b.query(0, "ROLLBACK");
                b.query(0, "RESET ALL");
                b.query(1, "SHOW TimeZone");
            }
            b.says(0, &s().parse("d", "DISCARD ALL").parse("", then).sync());
            b.says(0, &s().bind("d", &[]).execute().bind("", &[]).execute().unnamed("SHOW TimeZone", &[]).sync());
            b.query(0, "SHOW TimeZone");
            b.query(0, "ROLLBACK");
            b.query(0, "RESET ALL");
            if then.starts_with("DO $$ BEGIN SET") {
                b.says(0, &batch.query("SHOW TimeZone"));
            }
            b.query(0, "ROLLBACK");
            b.query(0, "RESET ALL");
        }
    });
}

/// PostgreSQL reports parameters ahead of ReadyForQuery, each with its last value, and those alone that have changed.
fn what_a_discard_takes_back_is_told_at_the_end_of_its_batch(case: Case) {
    beside(case, &[STARTED, &[("application_name", "its own")], &[]], |b| {
        for (client, then) in (0..3).flat_map(|client| {
            let thens = [
                &["SELECT 1"][..],
                &["SELECT 1/0"],
                &["SET TimeZone = 'UTC'"],
                &["SET TimeZone = 'Asia/Seoul'", "SELECT 2"],
                &["SET TimeZone = 'Asia/Seoul'", "SET DateStyle = 'SQL, MDY'", "SELECT 1/0"],
                &["SET application_name = 'another'", "RESET ALL"],
                &["BEGIN", "SET LOCAL DateStyle = 'SQL, MDY'", "SELECT 2"],
                &["BEGIN", "SET DateStyle = 'SQL, MDY'", "ROLLBACK", "SHOW DateStyle"],
                &["SET LOCAL TimeZone = 'UTC'"],
                &["DISCARD ALL"],
            ];
            thens.map(|then| (client, then))
        }) {
            for before in
                ["SELECT 1", "SET TimeZone = 'Asia/Seoul'; SET DateStyle = 'SQL, MDY'; SET application_name = 'x'"]
            {
                b.query(client, before);
                let batch = s().unnamed("DISCARD ALL", &[]);
                let batch = then.iter().fold(batch, |batch, sql| batch.unnamed(sql, &[]));
                b.says(client, &batch.sync());
                b.query((client + 1) % 3, "SHOW TimeZone");
                b.query(client, SHOWS);
                b.query(client, "ROLLBACK");
                b.query(client, "RESET ALL");
            }
        }
    });
}

/// All up to the Sync is skipped behind an error, also what stands behind a Query.
fn what_is_skipped_resets_nothing(case: Case) {
    beside(case, &[STARTED, &[]], |b| {
        for failing in [s().bind("", &[]), s().bind("missing", &[]), s().unnamed("SELECT 1/0", &[])] {
            for skipped in [
                s().unnamed("RESET TimeZone", &[]),
                s().query("RESET TimeZone"),
                s().query("SELECT 1").unnamed("RESET TimeZone", &[]),
                s().query("BEGIN; SELECT 1/0; COMMIT").unnamed("DISCARD ALL", &[]).unnamed("SELECT 2", &[]),
                s().unnamed("RESET ALL", &[]).query("RESET TimeZone").query("SELECT 1"),
            ] {
                for begin in ["SELECT 1", "BEGIN READ WRITE"] {
                    b.query(0, "SET TimeZone = 'Asia/Seoul'");
                    b.query(0, begin);
                    b.says(0, &failing.clone().then(&skipped).sync());
                    b.query(0, "ROLLBACK");
                    b.query(0, SHOWS);
                    b.query(1, "SHOW TimeZone");
                }
            }
        }
    });
}
