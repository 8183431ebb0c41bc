//! Connections that can't be opened: when the next attempt is made, and who hears of the failure.

use std::{sync::Arc, time::Duration};

use sluice_wire::ErrorResponse;

use crate::{
    logins::{Generation, Opened},
    time::Time,
};

use super::{PoolState, Purpose, Refusal, Waiter};

/// The remedy where a server can't be reached, or says nothing.
pub const IS_IT_RUNNING: &str = "Is PostgreSQL running there, and does it accept connections?";

/// The longest wait between two attempts to connect to a cluster's primary, which clients wait for.
const FAILOVER_BACKOFF_MAX: Duration = Duration::from_millis(200);

/// Those who wait for whom trying again soon would end the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// Nobody: it may pass.
    ForNobody,
    /// Those who are logging in. The others have sessions, and the pool lacks what it could log in with: somebody may show
    /// that, and a server that another one has may become free.
    ForLogIns,
    /// All, where no server is open.
    ForAll,
}

/// A failure to connect, while nothing has gone right since.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: Arc<ErrorResponse>,
    pub(super) lasts: Lasts,
    failed_at: Time,
    pause: Duration,
    pub(super) retry_at: Time,
    /// The generation of the log-in that failed.
    pub(super) generation: Generation,
}

impl PoolState {
    /// A connection could not be opened. Whoever is logging in would hear the same of PostgreSQL where it lasts.
    pub fn connect_failed(
        &mut self,
        now: Time,
        opened: &Opened,
        error: &Arc<ErrorResponse>,
        lasts: Lasts,
    ) -> Vec<Refusal> {
        self.unreserve(&opened.startup);
        let is_clients = lasts != Lasts::ForNobody && !opened.startup.is_empty();
        if !is_clients {
            // Others need not hear of what one client has asked for.
            let pause = self.next_pause();
            let generation = opened.generation;
            let (failed_at, retry_at) = (now, now + pause);
            self.trouble = Some(Trouble { error: error.clone(), lasts, failed_at, pause, retry_at, generation });
        }
        let open = self.open;
        let concerns = |waiter: &Waiter| {
            let is_concerned = match lasts {
                Lasts::ForNobody => false,
                // Some could have another pool's.
                Lasts::ForLogIns => waiter.purpose == Purpose::LogIn || (open == 0 && waiter.until.is_some()),
                Lasts::ForAll => waiter.purpose == Purpose::LogIn || open == 0,
            };
            is_concerned && waiter.is_concerned(opened)
        };
        let concerned = std::iter::from_fn(|| self.waiters.pop_where(concerns));
        let mut refused: Vec<_> = concerned.map(|waiter| (waiter.client, error.clone())).collect();
        refused.extend(self.expire(now));
        refused
    }

    /// The time from this failure to the next attempt. Whoever waits now, or comes behind those who do, is to have an attempt
    /// of its own before it is refused.
    fn next_pause(&self) -> Duration {
        let least = self.settings.backoff_min;
        let pause = self.trouble.as_ref().map_or(least, |trouble| (trouble.pause * 2).min(self.settings.backoff_max));
        if self.settings.failover_timeout.is_some() {
            return pause.min(FAILOVER_BACKOFF_MAX);
        }
        if self.waiters.is_empty() { pause } else { pause.min(least.max(self.failing_wait() / 2)) }
    }

    /// Somebody is about to wait: the first one is not to wait for an attempt that was put off while nobody did.
    pub(super) fn hurry(&mut self, now: Time) {
        if let Some(trouble) = self.trouble.as_mut().filter(|_| self.waiters.is_empty()) {
            let soon = now.max(trouble.failed_at + self.settings.backoff_min);
            trouble.retry_at = trouble.retry_at.min(soon);
        }
    }

    /// The time for which clients wait while nothing is open and connects fail: one that is longer than a connect may take
    /// has no point.
    pub(super) fn failing_wait(&self) -> Duration {
        let limit = self.settings.wait_timeout.min(self.settings.connect_timeout);
        self.settings.failover_timeout.unwrap_or(limit)
    }

    /// The pool logs in with something else from now on: that may be what it lacked.
    pub fn has_another_secret(&mut self) {
        self.trouble.take_if(|trouble| trouble.lasts == Lasts::ForLogIns);
    }

    /// The failure that those who have sessions can only wait out: it is one of what the pool logs in with.
    pub(super) fn lacks_secret(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.lasts == Lasts::ForLogIns)
    }
}
