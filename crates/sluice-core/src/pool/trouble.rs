//! Connections that can't be opened: when the next attempt is made, and who hears of the failure.

use std::{sync::Arc, time::Duration};

use sluice_wire::ErrorResponse;

use crate::{
    logins::{Generation, Opened},
    time::Time,
};

use super::{PoolState, Purpose, Refusal, Waiter};

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
            let pause = match &self.trouble {
                Some(trouble) => (trouble.pause * 2).min(self.settings.backoff_max),
                None => self.settings.backoff_min,
            };
            let pause = if self.settings.failover_timeout.is_some() { pause.min(FAILOVER_BACKOFF_MAX) } else { pause };
            let generation = opened.generation;
            self.trouble = Some(Trouble { error: error.clone(), lasts, pause, retry_at: now + pause, generation });
        }
        let concerns_work = lasts == Lasts::ForAll && self.open == 0;
        let concerns = |waiter: &Waiter| {
            waiter.is_concerned(opened)
                && lasts != Lasts::ForNobody
                && (concerns_work || waiter.purpose == Purpose::LogIn)
        };
        let concerned = std::iter::from_fn(|| self.waiters.pop_where(concerns));
        let mut refused: Vec<_> = concerned.map(|waiter| (waiter.client, error.clone())).collect();
        refused.extend(self.expire(now));
        refused
    }

    /// The failure that those who have sessions can only wait out: it is one of what the pool logs in with.
    pub(super) fn lacks_secret(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.lasts == Lasts::ForLogIns)
    }
}
