//! Queries to a server as text, the pool's own by what they are for.

/// The beginning of the query that asks for a session's state.
const PROBE: &str = "SELECT pg_catalog.concat_ws(' ',pg_catalog.concat('pins='";

/// The beginning of a brief one, where a time-out could end it.
const SWITCHED: &str = "SELECT pg_catalog.concat('was='";

/// What stands before a query of the pool's own where the session's level may withhold a snapshot, and before [`NAMES`].
const LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// The beginning of the query that asks which of the lent names are left.
const NAMES: &str = "SET LOCAL statement_timeout = 0;SELECT pg_catalog.encode(";

/// The statement before a probe that a time-out could end.
const UNTIMED: &str = "SET LOCAL statement_timeout = 0;";

/// A query as text.
pub(super) fn query_text(tag: u8, sql: &str) -> String {
    match sql.strip_prefix(LEVEL) {
        Some(names) if names.starts_with(NAMES) => "Q(names)".to_owned(),
        Some(sql) => format!("level {}", query_text(tag, sql)),
        None if sql.starts_with(PROBE) && sql.contains("'values='") => "Q(brief probe)".to_owned(),
        None if sql.starts_with(SWITCHED) => "Q(untimed brief probe)".to_owned(),
        None if sql.starts_with(PROBE) => "Q(probe)".to_owned(),
        None if sql.starts_with(&[UNTIMED, PROBE].concat()) => "Q(untimed probe)".to_owned(),
        None => format!("{}({sql})", tag as char),
    }
}
