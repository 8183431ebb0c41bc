//! The wall clock, as logs and samples share it.

use std::time::SystemTime;

/// Seconds since 1970.
pub(crate) fn unix_s() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}
