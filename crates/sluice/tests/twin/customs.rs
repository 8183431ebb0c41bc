//! Custom settings (`app.tenant`) leave their names, and only with those who made them.

use std::{collections::BTreeSet, thread, time::Duration};

use sluice_testkit::{Case, Version, matrix};
use sluice_wire::message::frontend;

use crate::{
    beside::{Beside, Startup, beside, beside_with, query_of, s},
    twins::Place,
    wire,
};

matrix!(transaction:
    a_value_that_looks_like_a_name_makes_nothing,
    a_number_is_no_part_of_a_name,
    what_a_text_makes_that_a_function_runs_stays,
    a_set_that_fails_makes_nothing,
    a_set_local_makes_what_it_sets,
    what_did_not_run_makes_nothing,
    what_did_not_run_for_a_client_that_left_is_made_for_others,
    a_setting_may_begin_empty,
    what_is_kept_elsewhere_is_made_here,
    what_others_made_is_not_taken_on_with_their_settings,
    what_functions_leave_where_no_text_shows_it,
    values_cost_no_servers,
    names_that_are_put_together_stay_with_their_client,
    settings_of_a_library_that_others_have_loaded,
);

const IS_THERE: &str = "SELECT current_setting('app.tenant', true) IS NULL, current_setting('a.b', true) IS NULL, \
                        current_setting('app.user', true) IS NULL";

/// Time in which the server of a client that has gone is ready for the next one.
const MOMENT: Duration = Duration::from_millis(60);

/// The second client's next server is the one where the first one has set `app.tenant`; the third one has the other.
fn on_the_first_ones(b: &mut Beside) {
    b.clients(&[&[], &[], &[]]);
    b.query(2, "BEGIN; SELECT 1");
    b.query(0, "SET app.tenant = 'first'");
}

fn a_value_that_looks_like_a_name_makes_nothing(case: Case) {
    beside(case, &[], |b| {
        for text in [
            "SET application_name = 'app.tenant'",
            "SET app.other = 'app.tenant'",
            "SET app.other = 'x'; SELECT current_setting('app.tenant', true) IS NULL",
            "SET work_mem = '5MB'; SELECT current_setting('app.tenant', true) IS NULL",
            "SET application_name = 'x'",
        ] {
            on_the_first_ones(b);
            b.query(1, text);
            b.query(1, IS_THERE);
            if !text.contains(';') {
                on_the_first_ones(b);
                b.says(1, &s().unnamed(text, &[]).unnamed(IS_THERE, &[]).sync());
                b.query(1, IS_THERE);
            }
        }
        on_the_first_ones(b);
        b.says(1, &s().parse("", "SET app.tenant = 'x'").unnamed(IS_THERE, &[]).sync());
        on_the_first_ones(b);
        b.says(1, &s().unnamed("SET app.tenant = 'second'", &[]).unnamed("SHOW app.tenant", &[]).sync());
    });
}

fn names_that_are_put_together_stay_with_their_client(case: Case) {
    const SETS: &str = "set_config('app.' || 'tenant', '42', false)";
    beside(case, &[&[]], |b| {
        b.query(0, "CREATE TABLE z (a text); CREATE PROCEDURE pr(text) LANGUAGE plpgsql AS 'BEGIN END'");
        for text in [
            &format!("PREPARE p AS SELECT {SETS}; EXECUTE p; DEALLOCATE p"),
            &format!("CREATE TABLE y AS SELECT {SETS}; DROP TABLE y"),
            &format!("ALTER TABLE z ALTER a TYPE text USING {SETS}; ALTER TABLE z ADD c text DEFAULT {SETS}"),
            &format!("CALL pr({SETS})"),
            &format!("DO $$ BEGIN PERFORM {SETS}; END $$"),
            "PREPARE p(text) AS SELECT set_config($1, '42', false); EXECUTE p(E'app\\x2etenant'); DEALLOCATE p",
            "PREPARE p(text) AS SELECT set_config($1, '42', false); EXECUTE p('app.'\n'tenant'); DEALLOCATE p",
        ] {
            b.clients(&[&[], &[], &[]]);
            b.query(0, text);
            for client in [1, 2, 0, 1] {
                b.query(client, IS_THERE);
            }
        }
    });
}

fn a_set_that_fails_makes_nothing(case: Case) {
    const SET: &str = "SET app.tenant = 'x'";
    const INT4: u32 = 23;
    let described = wire::message(frontend::DESCRIBE, |out| out.extend_from_slice(b"X\0"));
    let executed = wire::message(frontend::EXECUTE, |out| out.extend_from_slice(&[0, 0, 0]));
    beside(case, &[], |b| {
        for script in [
            s().parse_typed("", SET, &[INT4]).bind("", &[]).execute().sync(),
            s().parse("", SET).bind("", &[Some("1")]).execute().sync(),
            s().parse("", SET).then(&wire::bind_as("", "", &[], &[0, 0], &[])).execute().sync(),
            s().parse("", SET)
                .then(&wire::message(frontend::BIND, |out| out.extend_from_slice(&[0; 7])))
                .execute()
                .sync(),
            s().parse("", SET).bind("", &[]).then(&described).execute().sync(),
            s().parse("", SET).bind("", &[]).then(&executed).sync(),
            s().query("SET app.tenant + '='"),
            s().query("SET app.tenant = B'1'"),
            s().query("SET app.tenant TO X'1'"),
            s().then(&query_of(b"SET app.tenant = '\xff'")),
            s().then(&query_of(b"SET app.tenant = '\0'")),
        ] {
            on_the_first_ones(b);
            b.until(1, &script.clone().query(IS_THERE), 2);
            b.query(1, IS_THERE);
        }
        // This one succeeds.
        on_the_first_ones(b);
        b.until(
            1,
            &s().parse("", SET).then(&wire::bind_as("", "", &[], &[1], &[1])).execute().sync().query(IS_THERE),
            2,
        );
        b.query(1, IS_THERE);
    });
}

fn a_set_local_makes_what_it_sets(case: Case) {
    beside(case, &[&[], &[]], |b| {
        for set in ["SET LOCAL app.user = 'a.b'", "SET LOCAL App.User TO a, \"a.b\"", "SET LOCAL app.user = DEFAULT"] {
            b.clients(&[&[], &[]]);
            b.query(0, "BEGIN");
            b.query(0, set);
            b.query(0, "COMMIT");
            b.query(1, "BEGIN; SELECT 1");
            b.query(0, IS_THERE);
            b.query(1, "COMMIT");
            b.query(1, IS_THERE);
            b.query(0, IS_THERE);
        }
    });
}

fn what_did_not_run_makes_nothing(case: Case) {
    beside(case, &[&[]], |b| {
        for script in [
            s().parse("", "SELEC").query("SET LOCAL app.tenant = 'x'").sync(),
            s().query("SELECT 1/0; SET LOCAL app.tenant = 'x'"),
            s().query("SET LOCAL app.tenant = 'x'; SELEC"),
            s().parse("", "SET LOCAL app.tenant = 'x'").bind("", &[]).sync(),
            // These have made it.
            s().query("SET LOCAL app.tenant = 'x'; SELECT 1/0"),
            s().unnamed("SET LOCAL a.b = 'x'", &[]).unnamed("SELECT 1/0", &[]).sync(),
        ] {
            b.says(0, &script);
            b.query(0, IS_THERE);
        }
    });
}

fn what_did_not_run_for_a_client_that_left_is_made_for_others(case: Case) {
    beside(case, &[], |b| {
        for skipped in ["SET LOCAL app.tenant = 'x'", "SELECT set_config('app.tenant', 'x', false)"] {
            on_the_first_ones(b);
            for raw in [&mut b.pooled[1], &mut b.alone[1]] {
                raw.send(&s().parse("", "SELEC").query(skipped).sync().terminate());
            }
            b.ends(1);
            thread::sleep(MOMENT);
            b.query(0, IS_THERE);
            b.query(2, IS_THERE);
        }
    });
}

fn a_setting_may_begin_empty(case: Case) {
    let empty: Startup<'_> = &[("options", "-c app.tenant=")];
    beside(case, &[empty, &[]], |b| {
        b.query(0, IS_THERE);
        b.query(0, "SET app.tenant = 'x'; RESET app.tenant");
        b.query(1, IS_THERE);
        b.query(1, "BEGIN; SELECT 1");
        b.query(0, IS_THERE);
    });
}

fn what_is_kept_elsewhere_is_made_here(case: Case) {
    beside(case, &[], |b| {
        for text in [
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET app.tenant = '5' AS 'SELECT 1'",
            "CREATE PROCEDURE p() LANGUAGE sql SET app.tenant = '5' AS 'SELECT 1'",
            "ALTER FUNCTION f() SET app.tenant = '6'",
            "ALTER FUNCTION f() RESET a.b",
            "ALTER ROLE app SET app.tenant = '5'",
            "ALTER ROLE app RESET a.b",
            "ALTER ROLE nobody SET app.tenant = '5'",
            "SELECT set_config('app.tenant', NULL, false)",
            "SELECT set_config('app.tenant', NULL, true)",
            "BEGIN; SAVEPOINT s; SELECT set_config('a.b', NULL, true); ROLLBACK TO s; COMMIT",
            "DO 'BEGIN EXECUTE ''ALTER ROLE app SET app.tenant = 5''; EXCEPTION WHEN OTHERS THEN NULL; END'",
        ] {
            b.clients(&[&[], &[], &[]]);
            b.query(0, text);
            b.query(2, "BEGIN; SELECT 1");
            b.query(1, IS_THERE);
            b.query(2, "COMMIT");
            b.query(0, IS_THERE);
            b.query(2, IS_THERE);
        }
        b.clients(&[&[], &[]]);
        b.query(0, "PREPARE p (text) AS SELECT set_config($1, 'x', true); EXECUTE p('app.' || 'tenant'); DEALLOCATE p");
        b.query(1, IS_THERE);
        b.query(0, IS_THERE);
        let sets = "SELECT set_config('app.tenant', 'three', false)";
        for by_sql in [true, false] {
            b.clients(&[&[], &[]]);
            match by_sql {
                true => b.query(0, &format!("PREPARE a AS {sets}")),
                false => b.says(0, &s().parse("a", sets).sync()),
            };
            b.query(0, "EXECUTE a");
            b.query(0, "DEALLOCATE a");
            b.query(1, "SELECT current_setting('app.tenant', true)");
            b.query(0, "SELECT current_setting('app.tenant', true)");
        }
    });
}

fn what_others_made_is_not_taken_on_with_their_settings(case: Case) {
    beside(case, &[], |b| {
        for own in [&[][..], &[("work_mem", "3MB")]] {
            b.clients(&[&[], own, &[]]);
            b.query(2, "BEGIN; SELECT 1");
            b.query(0, "SET app.tenant = 'first'; SET geqo = off");
            // The server is brought to its settings, and says so, before it is seen that it is not to have it.
            b.query(1, IS_THERE);
            b.query(1, "SHOW work_mem");
            b.query(2, "COMMIT");
            b.query(2, IS_THERE);
            b.query(1, IS_THERE);
        }
    });
}

fn a_number_is_no_part_of_a_name(case: Case) {
    beside(case, &[], |b| {
        for text in [
            "SET app.tenant = 0.9",
            "SET app.tenant=.5",
            "SET app.tenant = 7.",
            "SET SESSION app.tenant=-0.9e-5",
            "SET app.tenant = 1.5; SET a.b TO 3",
            "BEGIN; SET LOCAL app.tenant = 0.5; LISTEN a; UNLISTEN a; COMMIT",
        ] {
            b.clients(&[&[], &[], &[]]);
            b.query(0, text);
            b.query(2, "BEGIN; SELECT 1");
            b.query(1, IS_THERE);
            b.query(2, "COMMIT");
            for client in 0..3 {
                b.query(client, IS_THERE);
                b.query(client, "SELECT current_setting('app.tenant', true)");
            }
        }
    });
}

fn what_a_text_makes_that_a_function_runs_stays(case: Case) {
    beside(case, &[], |b| {
        for text in [
            "SELECT * FROM ts_stat('SELECT set_config(''app''||''.tenant'', ''x'', false)::tsvector')",
            "SELECT * FROM ts_stat('SELECT setseed(0.5)::text::tsvector')",
            "SELECT ts_rewrite('a', 'SELECT set_config(''app''||''.tenant'', ''x'', false)::tsquery, ''b''::tsquery')",
        ] {
            b.clients(&[&[], &[]]);
            b.query(0, text);
            b.query(1, IS_THERE);
            // The first number by that seed.
            b.query(1, "SELECT random() = 0.9851677175347999");
        }
    });
}

/// With the extension: a function's SET clause sows, a trigger's makes a setting, and a trigger in C uses a sequence.
fn what_functions_leave_where_no_text_shows_it(case: Case) {
    let superuser: Startup<'_> = &[("user", "postgres")];
    let done = |said: String| assert!(!said.contains("ERROR"), "{said}");
    beside_with(case, true, &[superuser], |b| {
        done(b.query(
            0,
            "CREATE FUNCTION names() RETURNS trigger LANGUAGE plpgsql SET app.named = '1' AS 'BEGIN RETURN NEW; END'; \
             CREATE TABLE watched (id int, name text); GRANT ALL ON watched TO app; \
             CREATE TRIGGER names BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION names()",
        ));
        b.clients(&[&[], &[]]);
        b.query(0, "INSERT INTO watched VALUES (1)");
        for client in [1, 0] {
            b.query(client, "SELECT current_setting('app.named', true)");
        }
        // PostgreSQL 16 and later let no function have a seed; and the trigger is of contrib, which not each has.
        if case.version != Version::V15 {
            return;
        }
        b.clients(&[superuser]);
        done(b.query(
            0,
            "CREATE FUNCTION sows() RETURNS int LANGUAGE plpgsql SET seed = '0.5' AS 'BEGIN RETURN 1; END'; \
             CREATE EXTENSION autoinc; CREATE SEQUENCE numbers START 4711; GRANT ALL ON numbers TO app; \
             CREATE TRIGGER counts BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION autoinc(id, numbers)",
        ));
        b.clients(&[&[], &[]]);
        b.query(0, "SELECT sows()");
        for _ in 0..3 {
            // The first number by that seed.
            b.query(1, "SELECT random() = 0.9851677175347999");
            b.query(1, "BEGIN READ WRITE");
            b.query(0, "SELECT random()");
            b.query(1, "COMMIT");
        }
        b.clients(&[&[], &[]]);
        b.query(1, "SELECT lastval()");
        b.query(0, "INSERT INTO watched (name) VALUES ('a')");
        b.query(1, "SELECT currval('numbers')");
        b.query(1, "SELECT lastval()");
    });
}

fn values_cost_no_servers(case: Case) {
    for extension in [false, true] {
        let place = Place::shared(case.version, extension);
        let database = place.empty();
        let pool = place.pool(case);
        let mut clients = [pool.raw(), pool.raw()].map(|client| client.login("app", &database));
        let mut servers = BTreeSet::new();
        for turn in 0..24 {
            let client = &mut clients[turn % 2];
            client.query(&format!("BEGIN; SET LOCAL app.mail = 'a{turn}@example{turn}.org'"));
            servers.insert(client.backend());
            client.query("COMMIT");
        }
        // Each of the two that were there first may have been closed for the other client.
        assert!(servers.len() <= 4, "{} servers", servers.len());
    }
}

fn settings_of_a_library_that_others_have_loaded(case: Case) {
    beside(case, &[], |b| {
        let loads = "DO 'BEGIN END'";
        for set in [
            "SET plpgsql.variable_conflict = 'use_column'",
            "SET plpgsql.variable_conflict = 'abc'",
            "SET plpgsql.foo = '1'",
        ] {
            b.clients(&[&[("user", "app")], &[], &[]]);
            for _ in 0..3 {
                b.query(0, set);
                b.query(1, loads);
                b.query(2, loads);
                b.on_each_server(0, 1, &s().query("SELECT 1"));
            }
        }
        b.clients(&[&[]]);
        b.query(0, "DO 'BEGIN END'");
        b.clients(&[&[], &[("plpgsql.foo", "1")], &[("options", "-c plpgsql.variable_conflict=use_column")]]);
        for client in [0, 1, 2, 0, 1, 2] {
            b.query(client, "SELECT 1");
        }
    });
}
