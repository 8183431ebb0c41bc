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
    meaning: "The time after which a peer by TCP, client or server, is taken to be gone that acknowledges nothing of \
              what it is sent (`TCP_USER_TIMEOUT`), or does not answer when it is asked whether it is still there \
              (keepalive, after half of that time without a word). A network that was cut for less is noticed by nobody. \
              Clients of a server that is gone are told so (08006).",
};
