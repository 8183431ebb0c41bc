//! Settings that are too large, or too many, for the extension to tell of them: they stay with their client.

use sluice_testkit::{Case, matrix};

use crate::beside::{beside, s};

matrix!(transaction:
    settings_that_are_not_told_stay_as_they_are,
    names_that_are_not_told_are_nobody_elses,
    statements_are_used_under_settings_that_are_not_told,
);

const LARGE: &str = "SELECT length(set_config('app.claims', repeat('x', 15000), false))";
const TIME: &str = "SELECT '2020-01-01 12:00'::timestamptz";

fn settings_that_are_not_told_stay_as_they_are(case: Case) {
    beside(case, &[&[("TimeZone", "Europe/Berlin"), ("options", "-c app.began=1")], &[]], |b| {
        b.query(0, "SET TimeZone = 'Asia/Tokyo'; SET app.began = '2'");
        b.says(0, &s().parse("before", TIME).sync());
        for zone in ["Asia/Tokyo", "America/New_York", "UTC"] {
            b.query(0, LARGE);
            let shown = "SELECT current_setting('TimeZone'), current_setting('app.began'), length(current_setting('app.claims'))";
            b.query(0, shown);
            b.says(0, &s().bind("before", &[]).execute().sync());
            b.says(0, &s().unnamed(TIME, &[]).sync());
            b.query(1, "SELECT current_setting('app.claims', true) IS NULL, current_setting('TimeZone')");
            b.says(1, &s().unnamed(TIME, &[]).sync());
            // The report says the same after it.
            b.query(0, &format!("SET TimeZone = '{zone}'"));
            b.query(0, shown);
            b.says(0, &s().parse(zone, TIME).bind(zone, &[]).execute().sync());
            b.query(0, "BEGIN; SET LOCAL TimeZone = 'Asia/Kolkata'");
            b.says(0, &s().unnamed(TIME, &[]).sync());
            b.query(0, "ROLLBACK");
            b.says(0, &s().bind(zone, &[]).execute().sync());
            b.query(0, "RESET TimeZone");
            b.query(0, shown);
            b.query(0, &format!("SET TimeZone = '{zone}'"));
            b.query(0, "SET app.claims = 'few'");
            b.query(0, shown);
            b.says(0, &s().unnamed(TIME, &[]).sync());
        }
        b.query(0, LARGE);
        b.query(0, "RESET ALL");
        b.query(0, "SELECT current_setting('TimeZone'), current_setting('app.began'), current_setting('app.claims')");
        b.query(0, LARGE);
        b.query(0, "DISCARD ALL");
        b.query(0, "SELECT current_setting('TimeZone'), current_setting('app.began'), current_setting('app.claims')");
        // Their next sessions.
        b.query(0, LARGE);
        b.clients(&[&[], &[], &[]]);
        for client in 0..3 {
            b.query(client, "BEGIN");
            b.query(client, "SELECT current_setting('app.claims', true) IS NULL, current_setting('TimeZone')");
            b.query(client, "COMMIT");
        }
    });
}

/// Named statements whose literals are read by a `search_path` that may be another one since.
fn statements_are_used_under_settings_that_are_not_told(case: Case) {
    let names = "DO $$ BEGIN FOR i IN 1..600 LOOP PERFORM set_config('app.' || repeat('n', 40) || i, '1', false); \
                 END LOOP; END $$";
    let path = "DO $$ BEGIN PERFORM set_config('search_path', (SELECT string_agg('n' || i, ', ') || ', pg_catalog' \
                FROM generate_series(1, 5000) i), false); END $$";
    for large in [names, path] {
        beside(case, &[&[]], |b| {
            let set = s().parse("set", "SELECT set_config($1, $2, false)").sync();
            b.says(0, &set);
            let sets = |name, value| s().bind("set", &[Some(name), Some(value)]).execute().sync();
            b.query(0, "BEGIN");
            b.says(0, &sets("search_path", "\"$user\""));
            b.query(0, "COMMIT");
            b.says(0, &s().parse("class", "SELECT 'pg_class'::regclass, $1::text").sync());
            b.query(0, large);
            b.query(0, "SELECT 1");
            for value in ["r", "s"] {
                b.says(0, &sets("app.c", value));
                b.says(0, &s().describe("class").bind("class", &[Some("x")]).execute().sync());
                b.says(0, &s().parse(value, "SELECT 'pg_class'::regclass, 'now'::text").sync());
                b.says(0, &s().bind(value, &[]).execute().bind("class", &[Some("y")]).execute().sync());
                b.query(0, "BEGIN");
                b.says(0, &sets("app.c", "t"));
                b.says(0, &s().bind("class", &[Some("z")]).execute().sync());
                b.query(0, "COMMIT");
                b.query(0, &format!("EXECUTE {value}"));
            }
        });
    }
}

fn names_that_are_not_told_are_nobody_elses(case: Case) {
    beside(case, &[&[], &[]], |b| {
        b.query(0, "SELECT count(set_config('app.n' || i, 'v', true)) FROM generate_series(1, 3000) i");
        for client in [1, 0] {
            b.query(client, "SELECT current_setting('app.n7', true) IS NULL");
        }
        b.query(0, "DISCARD ALL");
        for client in [1, 0] {
            b.query(client, "SELECT current_setting('app.n7', true) IS NULL");
        }
        b.clients(&[&[], &[]]);
        for client in [1, 0] {
            b.query(client, "SELECT current_setting('app.n7', true) IS NULL");
        }
    });
}
