//! The times for which clients wait for a server: PgBouncer's defaults are longer than Sluice's, and clients notice.

use std::time::Duration;

use sluice_control::settings::PoolSettings;
use toml_edit::value;

use super::{Conversion, Entry};
use crate::{schema, units};

/// The default of `query_wait_timeout`.
const WAIT: Duration = Duration::from_secs(120);

/// The default of `server_connect_timeout`.
const CONNECT: Duration = Duration::from_secs(15);

impl Conversion {
    /// Writes the defaults out, and says where clients are told sooner that there is no server.
    pub(super) fn waits(&mut self, entries: &[Entry]) {
        let given = |key: &str| entries.iter().find(|entry| entry.section == "pgbouncer" && entry.key == key);
        let (wait, connect) = (given("query_wait_timeout"), given("server_connect_timeout"));
        for (entry, key, default) in [(wait, "wait_timeout", WAIT), (connect, "connect_timeout", CONNECT)] {
            if entry.is_none() {
                self.pool.insert(key, value(units::show_duration(default)));
            }
        }
        // 0 is no limit to PgBouncer, and leaves Sluice's default here.
        let time = |entry: Option<&Entry>, default: Duration| match entry.map(|entry| entry.value.parse()) {
            None => Some(default),
            Some(Ok(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
            Some(Err(_)) => None,
        };
        let (Some(wait_for), Some(connect_for)) = (time(wait, WAIT), time(connect, CONNECT)) else { return };
        let connect_for = if connect_for.is_zero() { PoolSettings::default().connect_timeout } else { connect_for };
        let connect_for = connect_for.min(schema::CONNECT_TIMEOUT.kind.max);
        if wait_for.is_zero() || wait_for > connect_for {
            let what = format!(
                "while PostgreSQL can't be reached and a pool has no connection left, its clients are told so after \
                 connect_timeout, {}, and not after this time: raise connect_timeout under [pool] if they are to wait",
                units::show_duration(connect_for)
            );
            self.say(wait.map(|entry| entry.line), "query_wait_timeout", what, true);
        }
    }
}
