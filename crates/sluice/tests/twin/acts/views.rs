//! PostgreSQL's views of the session, in so far as they show the client's state and not the server's.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT name, replace(statement, 'START TRANSACTION', 'BEGIN'), is_holdable, is_binary, is_scrollable FROM pg_cursors ORDER BY name", "SELECT name FROM pg_cursors WHERE name <> ''",
    "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' ORDER BY 1, 2, 3, 4",
    "SELECT relation::regclass::text, mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation::regclass::text IN ('t', 'shared', 'log') ORDER BY 1, 2",
    "SELECT application_name, state, query FROM pg_stat_activity WHERE pid = pg_backend_pid()", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid = pg_backend_pid()",
    "SELECT pg_backend_pid() = pg_backend_pid()", "SELECT channel FROM pg_listening_channels() channel ORDER BY 1",
    "SELECT pg_current_xact_id_if_assigned() IS NULL AS reads", "SELECT statement_timestamp() >= transaction_timestamp() AS later", "SELECT session_user, current_user, current_schemas(false)::text",
    "SELECT name FROM pg_prepared_statements WHERE from_sql ORDER BY name",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
}
