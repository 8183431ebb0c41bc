//! The key of an upgrade: a new process in the place of the one that runs.

use std::time::Duration;

use super::{Absent, DAY, HOUR, Key, ms, seconds};
use crate::kinds::Time;

/// The default of `upgrade_grace`.
pub(crate) const UPGRADE: Duration = Duration::from_secs(HOUR);

pub(crate) static UPGRADE_GRACE: Key<Time> = Key {
    name: "upgrade_grace",
    kind: Time { min: ms(0), max: seconds(7 * DAY) },
    absent: Absent::Default("\"1h\""),
    meaning: "How long clients of the old process may stay after an upgrade (SIGUSR2). Then it shuts down: those \
              without a transaction get an error (57P01), others have `shutdown_grace` to end theirs. An \
              application's connection pool that replaces its connections more often than that notices nothing.",
};
