//! The key of connections by TCP.

use std::time::Duration;

use super::{Absent, HOUR, Key, seconds};
use crate::kinds::Time;

/// The default of `tcp_user_timeout`.
pub(crate) const USER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) static TCP_USER_TIMEOUT: Key<Time> = Key {
    name: "tcp_user_timeout",
    kind: Time { min: seconds(1), max: seconds(24 * HOUR) },
    absent: Absent::Default("\"1min\""),
    meaning: "A TCP peer, client or server, that acknowledges nothing for this long (`TCP_USER_TIMEOUT`) is considered \
              dead, and so is one that does not answer keepalive probes, which begin when it has been silent for half of \
              that time. Shorter network outages go unnoticed. Clients of a dead server get an error (08006). A peer that \
              answers, and only reads nothing, is waited for; if it is gone then, that is noticed within three times as \
              long (12 s at least).",
};
