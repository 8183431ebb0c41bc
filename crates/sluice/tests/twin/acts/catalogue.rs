//! What PostgreSQL itself shows of the session.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT name, statement, parameter_types::text, from_sql FROM pg_prepared_statements ORDER BY name", "SELECT count(*) FROM pg_prepared_statements", "SELECT name FROM pg_cursors WHERE name <> ''",
    "SELECT name, setting, source FROM pg_settings WHERE source = 'session' ORDER BY name", "SELECT name, setting, reset_val, source FROM pg_settings WHERE name IN ('TimeZone', 'work_mem', 'application_name', 'search_path') ORDER BY name",
    "SELECT application_name, state, query FROM pg_stat_activity WHERE pid = pg_backend_pid()", "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    "SELECT pg_my_temp_schema() <> 0", "SELECT pg_backend_pid() = pg_backend_pid()", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid = pg_backend_pid()",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
}
