//! The decision whether to wait for the next event awake.
//!
//! With one client at a time, each message finds everybody asleep, and waking up costs more than the message: a pool
//! that stays awake for a moment takes itself out of that. With many clients there is always something to do, and a
//! processor that waits awake would be missed elsewhere. So the worker stays awake only while events come one by one,
//! close together, and for one server at a time.

use std::time::{Duration, Instant};

/// Time to wait awake: as long as PostgreSQL or a client takes for a short statement, with the wake-up of a processor.
const SPIN: Duration = Duration::from_micros(100);

/// The longest gap that the average takes in.
const GAP_MAX: Duration = Duration::from_micros(400);

/// Weight of the past in the averages: 7 of 8.
const MEMORY: u32 = 8;

/// Events a turn, in 256ths, up to which they come "one by one".
const ALONE: u32 = 256 + 64;

/// A record of recent turns.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Events a turn, in 256ths.
    events: u32,
    /// Servers in use when a turn began to wait, in 256ths.
    busy: u32,
    /// Mean time that a turn waited, in nanoseconds.
    gap_ns: u32,
    /// The end of the last turn's work.
    idle_since: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { events: 0, busy: 0, gap_ns: GAP_MAX.as_nanos() as u32, idle_since: now }
    }

    /// The time to stay awake in the next turn, which begins now with `busy` servers in use (more than 2 are as 2).
    pub(crate) fn spin(&mut self, now: Instant, busy: usize) -> Duration {
        self.idle_since = now;
        self.busy = self.busy / MEMORY * (MEMORY - 1) + (busy.min(2) as u32) * 256 / MEMORY;
        let close = self.gap_ns < SPIN.as_nanos() as u32;
        if close && self.events <= ALONE && self.busy <= 256 { SPIN } else { Duration::ZERO }
    }

    /// A turn has brought that many events.
    pub(crate) fn woke(&mut self, now: Instant, events: usize) {
        let gap = now.saturating_duration_since(self.idle_since).min(GAP_MAX).as_nanos() as u32;
        let events = (events.min(64) as u32) * 256;
        self.gap_ns = self.gap_ns / MEMORY * (MEMORY - 1) + gap / MEMORY;
        self.events = self.events / MEMORY * (MEMORY - 1) + events / MEMORY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(turns: u32, gap: Duration, events: usize, busy: usize) -> Duration {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..turns {
            pace.spin(now, busy);
            now += gap;
            pace.woke(now, events);
        }
        pace.spin(now, busy)
    }

    #[test]
    fn stays_awake_only_for_single_events_close_together() {
        assert_eq!(pace(100, Duration::from_micros(15), 1, 1), SPIN);
        assert_eq!(pace(100, Duration::from_micros(15), 4, 1), Duration::ZERO);
        assert_eq!(pace(100, Duration::from_micros(15), 1, 2), Duration::ZERO);
        assert_eq!(pace(100, Duration::from_micros(300), 1, 1), Duration::ZERO);
        assert_eq!(pace(3, Duration::from_micros(15), 1, 1), Duration::ZERO);
    }
}
