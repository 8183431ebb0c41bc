//! The schemas in which a session finds functions, operators and tables that are named without theirs.
//!
//! A database's owner may make operators and functions there, and say in which schemas sessions look for them, so that
//! a superuser who looks at the database would run the owner's code (CVE-2018-1058). What the start of a session says
//! counts above `ALTER DATABASE` and `ALTER ROLE`.
//! Source: PostgreSQL's documentation, sections 5.10.6 (usage patterns) and 20.1.3 (where parameters are set).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use postgres::{Client, error::SqlState};

use super::first_value;

/// Temporary tables come last: unnamed, they are looked through first.
const CATALOG: &str = "pg_catalog,pg_temp";
/// PostgreSQL's own schema goes before, where it is not named; what a session makes goes to the first that is.
const TABLES: &str = "public,pg_temp";

/// A path that sessions begin with, and whether the server takes one.
#[derive(Clone, Debug)]
pub(super) struct SearchPath {
    schemas: &'static str,
    is_refused: Arc<AtomicBool>,
}

impl Default for SearchPath {
    fn default() -> Self {
        Self { schemas: CATALOG, is_refused: Arc::default() }
    }
}

impl SearchPath {
    pub(super) fn for_tables(&self) -> Self {
        Self { schemas: TABLES, is_refused: Arc::clone(&self.is_refused) }
    }

    /// The options of a start; none where they are not taken. Whose tables are elsewhere says so in the options of the
    /// connection string, which then count.
    pub(super) fn options(&self, given: Option<&str>) -> Option<String> {
        let own = format!("-c search_path={}", self.schemas);
        let given = given.unwrap_or_default();
        let options = if self.schemas == TABLES { format!("{own} {given}") } else { format!("{given} {own}") };
        (!self.is_refused.load(Relaxed)).then(|| options.trim().to_owned())
    }

    pub(super) fn was_refused(&self) {
        self.is_refused.store(true, Relaxed);
    }
}

/// Whether it is the options of a start that are refused, as PgBouncer and RDS Proxy do; PostgreSQL has other codes for
/// what it does not take.
pub(super) fn is_refused(error: &postgres::Error) -> bool {
    let codes = [&SqlState::PROTOCOL_VIOLATION, &SqlState::FEATURE_NOT_SUPPORTED];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// A statement that finds PostgreSQL's own only, in whatever session, for a simple query: behind a pool the session's
/// path is that of the database, and nothing may be left in it.
pub(crate) fn guarded(statement: &str) -> String {
    format!("SET LOCAL search_path = {CATALOG}; {statement}")
}

/// Whether a superuser's session has another path than it was told to begin with.
pub(crate) fn is_open(client: &mut Client) -> Result<bool, postgres::Error> {
    // Neither statement looks anything up.
    let is_told = first_value(client, "SHOW search_path")?.is_some_and(|path| path == CATALOG);
    Ok(!is_told && first_value(client, "SHOW is_superuser")?.as_deref() == Some("on"))
}

/// The schema of an extension that only superusers can make, as SQL names it; none where the extension is missing.
pub(crate) fn extension_schema(client: &mut Client, extension: &str) -> Result<Option<String>, postgres::Error> {
    let query = "SELECT pg_catalog.quote_ident(nspname) FROM pg_catalog.pg_extension e \
                 JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace \
                 WHERE extname OPERATOR(pg_catalog.=)";
    first_value(client, &format!("{query} '{extension}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_tells_the_path() {
        let own = SearchPath::default();
        let tables = own.for_tables();
        for (path, given, told) in [
            (&own, None, "-c search_path=pg_catalog,pg_temp"),
            (&own, Some("-c search_path=mine"), "-c search_path=mine -c search_path=pg_catalog,pg_temp"),
            (&tables, None, "-c search_path=public,pg_temp"),
            (&tables, Some("-c search_path=mine"), "-c search_path=public,pg_temp -c search_path=mine"),
        ] {
            assert_eq!(path.options(given).as_deref(), Some(told));
        }
        own.was_refused();
        assert_eq!(tables.options(None), None);
    }
}
