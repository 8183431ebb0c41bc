//! Lets isolationtester see which of its sessions wait for which, through a pool.
//!
//! It asks a function of PostgreSQL's, with the process numbers that its connections were told when they began. A pool's
//! clients are told numbers of the pool's own, which no server knows. The function that answers on the pool's side finds
//! the processes by `application_name`, which isolationtester sets to the spec's and the session's name, and asks
//! PostgreSQL's own function about those. Nothing else differs: sessions run as they do straight.

use std::fs;

use sluice_testkit::TestServer;

use crate::suite::Suite;

const FUNCTION: &str = "
ALTER FUNCTION pg_isolation_test_session_is_blocked(int, int[]) RENAME TO pg_isolation_test_process_is_blocked;
CREATE SCHEMA isolation_sessions;
CREATE TABLE isolation_sessions.names (number int, application_name text);
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(session int, sessions int[]) RETURNS bool LANGUAGE sql
AS $$
    WITH processes AS (
        SELECT number, pid FROM pg_stat_activity JOIN isolation_sessions.names USING (application_name)
    )
    SELECT coalesce(bool_or(pg_isolation_test_process_is_blocked(pid, (SELECT array_agg(pid) FROM processes))), false)
    FROM processes WHERE number = array_position(sessions, session)
$$;
";

/// Puts that function in place.
pub(crate) fn prepare(server: &TestServer) {
    server.superuser(Suite::Specs.database()).batch_execute(FUNCTION).unwrap_or_else(|error| panic!("{error:?}"));
}

/// Tells it the sessions of a spec, in their order.
pub(crate) fn announce(server: &TestServer, name: &str) {
    let spec = fs::read_to_string(Suite::Specs.path(name)).unwrap();
    let sessions = spec.lines().filter_map(|line| line.strip_prefix("session"));
    let sessions = sessions.map(|name| name.split('#').next().unwrap_or_default().trim().trim_matches('"'));
    let rows: Vec<_> =
        sessions.enumerate().map(|(at, session)| format!("({}, 'isolation/{name}/{session}')", at + 1)).collect();
    let sql =
        format!("TRUNCATE isolation_sessions.names; INSERT INTO isolation_sessions.names VALUES {}", rows.join(", "));
    server.superuser(Suite::Specs.database()).batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}
