//! Time as the core knows it: an argument, never a clock.

use std::{ops::Add, time::Duration};

/// Microseconds since the service started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// The time since `earlier`; zero if it is still to come.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The first of these, if there is any.
    #[inline]
    pub fn first_of(times: impl IntoIterator<Item = Option<Time>>) -> Option<Time> {
        let first = times.into_iter().fold(Time(u64::MAX), |first, time| time.map_or(first, |time| time.min(first)));
        (first != Time(u64::MAX)).then_some(first)
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(micros))
    }
}
