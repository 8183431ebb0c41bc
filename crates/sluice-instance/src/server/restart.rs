//! The policy that decides when a crashed server is started again, and when it is given up. Pure: `now` is an argument.

use std::time::{Duration, Instant};

/// The policy for starting a server again after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// A server that was ready for this long before it crashed is stable: its earlier failures are forgotten.
    pub stable_after: Duration,
    /// Failures in a row, crashes and failed starts, after which it stays down. 0: it is never started again.
    pub failures_max: u32,
    /// The wait before the second attempt in a row; it doubles with each. The first is made at once.
    pub delay_min: Duration,
    /// The longest wait.
    pub delay_max: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            stable_after: Duration::from_secs(30),
            failures_max: 6,
            delay_min: Duration::from_millis(250),
            delay_max: Duration::from_secs(10),
        }
    }
}

/// The decision after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Start it again after a wait.
    Restart { delay: Duration, failures: u32 },
    /// Leave it down.
    GiveUp { failures: u32 },
}

/// The failures so far.
#[derive(Debug)]
pub(crate) struct History {
    policy: RestartPolicy,
    failures: u32,
}

impl History {
    pub(crate) fn new(policy: RestartPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// Another failure; `ready_since` is when the server had become ready, if it ever did.
    pub(crate) fn failed(&mut self, ready_since: Option<Instant>, now: Instant) -> Decision {
        let stable = |since| now.saturating_duration_since(since) >= self.policy.stable_after;
        self.failures = if ready_since.is_some_and(stable) { 1 } else { self.failures.saturating_add(1) };
        let failures = self.failures;
        if failures > self.policy.failures_max {
            return Decision::GiveUp { failures };
        }
        let delay = match failures.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => self.policy.delay_min.saturating_mul(1 << doublings.min(20)).min(self.policy.delay_max),
        };
        Decision::Restart { delay, failures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_then_gives_up() {
        let mut history = History::new(RestartPolicy { failures_max: 8, ..RestartPolicy::default() });
        let now = Instant::now();
        for (failures, delay_ms) in (1..).zip([0, 250, 500, 1000, 2000, 4000, 8000, 10_000]) {
            let delay = Duration::from_millis(delay_ms);
            assert_eq!(history.failed(Some(now), now), Decision::Restart { delay, failures });
        }
        assert_eq!(history.failed(None, now), Decision::GiveUp { failures: 9 });
    }

    #[test]
    fn a_stable_server_starts_afresh() {
        let mut history = History::new(RestartPolicy::default());
        let ready = Instant::now();
        for _ in 0..6 {
            history.failed(None, ready);
        }
        let first = Decision::Restart { delay: Duration::ZERO, failures: 1 };
        assert_eq!(history.failed(Some(ready), ready + Duration::from_secs(30)), first);
    }

    #[test]
    fn never_again() {
        let mut history = History::new(RestartPolicy { failures_max: 0, ..RestartPolicy::default() });
        let now = Instant::now();
        assert_eq!(history.failed(Some(now), now + Duration::from_secs(99)), Decision::GiveUp { failures: 1 });
    }
}
