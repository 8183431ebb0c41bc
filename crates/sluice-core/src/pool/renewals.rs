//! Leave to close servers because of DDL: where that comes all the time, connecting must not.

use std::time::Duration;

use crate::time::Time;

/// The time in which one more may be closed, in the long run.
const INTERVAL: Duration = Duration::from_millis(500);

/// The times that each server of a pool may be closed in a row.
const TIMES: u32 = 10;

/// The servers that have been closed, each of which counts for an interval.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// The time at which none of them counts any more.
    over_at: Time,
}

impl Renewals {
    /// Counts one more in, if a pool of so many servers may close it now.
    pub(super) fn take(&mut self, now: Time, servers: u32) -> bool {
        let over_at = self.over_at.max(now);
        let may = over_at < now + INTERVAL * servers.saturating_mul(TIMES);
        if may {
            self.over_at = over_at + INTERVAL;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_ten_times_and_then_one_at_a_time() {
        let (mut renewals, mut now) = (Renewals::default(), Time(7_000_000));
        assert_eq!((0..99).filter(|_| renewals.take(now, 3)).count(), 30);
        now = now + INTERVAL;
        assert_eq!((0..99).filter(|_| renewals.take(now, 3)).count(), 1);
        now = now + INTERVAL * 100;
        assert_eq!((0..99).filter(|_| renewals.take(now, 3)).count(), 30);
    }
}
