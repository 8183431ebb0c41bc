//! PostgreSQL's own views of the session, where that is the server: the pool's own statements and settings.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT name, statement, parameter_types::text, from_sql FROM pg_prepared_statements ORDER BY name", "SELECT count(*) FROM pg_prepared_statements",
    "SELECT name, setting, source FROM pg_settings WHERE source = 'session' ORDER BY name", "SELECT name, setting, reset_val, source FROM pg_settings WHERE name IN ('TimeZone', 'work_mem', 'application_name', 'search_path') ORDER BY name",
    "SELECT pg_my_temp_schema() <> 0", "SELECT inet_client_addr() IS NULL, backend_start = pg_postmaster_start_time() FROM pg_stat_activity WHERE pid = pg_backend_pid()",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
}
