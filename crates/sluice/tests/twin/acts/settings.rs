//! Settings, in all the ways in which a session can change and see them.

use crate::generate::Maker;

/// Names with values to choose from, as SQL literals.
#[rustfmt::skip]
const SETTINGS: &[(&str, &[&str])] = &[
    ("DateStyle", &["'ISO'", "'German'", "'SQL, DMY'", "'DMY'", "'MDY'", "'Postgres'", "'ISO, YMD'"]),
    ("TimeZone", &["'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Tokyo'", "'EST5EDT'", "'+3'"]),
    ("IntervalStyle", &["'postgres'", "'sql_standard'", "'iso_8601'", "'postgres_verbose'"]),
    ("search_path", &["'tenant_{x}'", "'c{k}'", "''"]),
    ("standard_conforming_strings", &["'off'", "'on'"]),
    ("extra_float_digits", &["0", "3", "-3", "1"]),
    ("bytea_output", &["'escape'", "'hex'"]),
    ("work_mem", &["'3MB'", "4096", "'1GB'"]),
    ("statement_timeout", &["'1h'", "3600001"]),
    ("lock_timeout", &["'2h'"]),
    ("app.tenant", &["'a'", "'b'", "''"]),
    ("app.other", &["'x'"]),
    ("application_name", &["'renamed'", "'client {k}'"]),
    ("transform_null_equals", &["'on'", "'off'"]),
    ("array_nulls", &["'off'", "'on'"]),
    ("quote_all_identifiers", &["'on'", "'off'"]),
    ("xmlbinary", &["'hex'", "'base64'"]),
    ("escape_string_warning", &["'off'"]),
    ("enable_seqscan", &["'off'", "'on'"]),
    ("plan_cache_mode", &["'force_generic_plan'", "'auto'"]),
    ("default_transaction_isolation", &["'serializable'", "'repeatable read'", "'read committed'"]),
    ("default_transaction_read_only", &["'on'", "'off'", "'off'"]),
    ("default_transaction_deferrable", &["'on'", "'off'"]),
    ("check_function_bodies", &["'off'"]),
    ("row_security", &["'off'", "'on'", "'on'"]),
    ("synchronous_commit", &["'on'", "'local'"]),
    ("client_min_messages", &["'warning'", "'notice'", "'error'"]),
    ("lc_monetary", &["'C'"]),
    ("timezone_abbreviations", &["'Default'", "'India'"]),
    ("default_text_search_config", &["'english'", "'simple'"]),
    ("idle_in_transaction_session_timeout", &["'1h'"]),
    ("geqo", &["off", "on"]),
];

#[rustfmt::skip]
const CHANGES: &[&str] = &[
    "SET {name} = {value}", "SET {name} = {value}", "SET {name} TO {value}", "SET SESSION {name} = {value}",
    "SET LOCAL {name} = {value}",
    "SELECT set_config('{name}', {value}::text, false)", "SELECT set_config('{name}', {value}::text, true)",
    "SET {name} TO DEFAULT", "RESET {name}",
];

#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "RESET ALL", "DISCARD ALL", "DISCARD PLANS", "DISCARD SEQUENCES",
    "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "SET TIME ZONE LOCAL", "SET TIME ZONE 5.5", "SET TIME ZONE DEFAULT",
    "SET NAMES 'UTF8'", "SET NAMES DEFAULT", "SET SCHEMA 'c{k}'", "SET search_path = c{k}, tenant_{x}, public",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET datestyle = ISO, DMY", "SET datestyle TO 'no such style'", "SET no_such_setting = 1", "SET app.\"Odd name\" = 'x'",
    "SET work_mem = 'many'", "SET TimeZone = 'Nowhere/Land'",
    "SET SESSION AUTHORIZATION DEFAULT", "SET CONSTRAINTS ALL DEFERRED", "SET TRANSACTION READ ONLY",
];

/// In one query, which is one transaction.
#[rustfmt::skip]
const SEVERAL: &[&str] = &[
    "SET TimeZone = 'Asia/Tokyo'; SELECT '2024-03-04'::timestamptz; SET DateStyle = 'German'",
    "SET LOCAL work_mem = '7MB'; SHOW work_mem; SELECT 1",
    "SET work_mem = '8MB'; SELECT 1/0",
    "BEGIN; SET work_mem = '9MB'; COMMIT; BEGIN; SET work_mem = '10MB'; ROLLBACK",
    "BEGIN; SET TimeZone = 'Asia/Tokyo'; SAVEPOINT s; SET TimeZone = 'UTC'; ROLLBACK TO s; COMMIT; SHOW TimeZone",
    "SET app.tenant = 'b'; SELECT content FROM tenant_rows",
    "SELECT set_config('app.tenant', 'a', false), set_config('IntervalStyle', 'iso_8601', false); SELECT interval '1 day 2:03'",
];

#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "SHOW {name}", "SELECT current_setting('{name}', true)", "SELECT setting, unit FROM pg_settings WHERE name = '{name}'",
    "SHOW {name}",
];

#[rustfmt::skip]
const OTHER_LOOKS: &[&str] = &[
    "SELECT current_setting('app.tenant', true), current_setting('app.other', true)",
    "SELECT current_schema(), current_schemas(false)::text",
    "SELECT content FROM tenant_rows ORDER BY 1",
    "SELECT current_user, session_user",
    "SHOW client_encoding", "SELECT pg_client_encoding()", "SHOW TIME ZONE", "SHOW TRANSACTION ISOLATION LEVEL", "SHOW SESSION AUTHORIZATION",
    "SELECT name, setting FROM pg_settings WHERE name IN ('work_mem', 'TimeZone', 'DateStyle', 'statement_timeout', 'geqo', 'search_path', 'transaction_read_only', 'transaction_isolation') ORDER BY name",
];

pub(crate) fn act(maker: &mut Maker) {
    let (name, values) = *maker.random.of(SETTINGS);
    let change = maker.one_of(CHANGES).replace("{name}", name);
    let value = maker.one_of(values);
    let change = change.replace("{value}", &value);
    match maker.random.below(10) {
        0..5 => {
            maker.sql(&change);
            if maker.random.percent(60) {
                look(maker, name);
            }
        }
        5 => {
            let text = maker.one_of(OTHERS);
            maker.sql(&text);
        }
        6 => {
            let text = maker.one_of(SEVERAL);
            maker.simple(&text);
        }
        _ => look(maker, name),
    }
}

fn look(maker: &mut Maker, name: &str) {
    let texts = if maker.random.percent(70) { LOOKS } else { OTHER_LOOKS };
    let text = maker.one_of(texts).replace("{name}", name);
    maker.sql(&text);
}
