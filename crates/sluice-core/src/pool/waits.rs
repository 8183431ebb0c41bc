//! Waits that end: how long a client waits for a server, and what it is told then.

use std::sync::Arc;

use sluice_control::settings::PoolMode;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{holding::PinCounts, time::Time};

use super::{Attempt, IS_IT_RUNNING, PoolState, Refusal, Waiter};

impl PoolState {
    /// Those who have waited long enough, with the reason.
    pub fn expire(&mut self, now: Time) -> Vec<Refusal> {
        let mut refused = Vec::new();
        while let Some(waiter) = self.waiters.pop_where(|waiter| waiter.until.is_some_and(|until| now >= until)) {
            refused.push((waiter.client, Arc::new(self.wait_error(now))));
        }
        if self.paused {
            return refused;
        }
        if std::mem::take(&mut self.waits_anew) {
            self.waits_from = now;
        }
        if std::mem::take(&mut self.has_recovered) {
            self.recovered_at = now;
        }
        let from = self.waits_from;
        let waited = |waiter: &Waiter| now.since(waiter.since.max(from));
        if let Some(why) = self.held.clone() {
            let limit = self.failover_timeout();
            refused.extend(self.refuse(|waiter| waited(waiter) >= limit, &why));
            return refused;
        }
        let mut limit = self.settings.wait_timeout;
        if let Some(error) = self.obstacle() {
            limit = self.failing_wait();
            refused.extend(self.refuse(|waiter| waited(waiter) >= limit, &error));
            limit = limit.max(self.settings.wait_timeout);
        }
        // A primary that comes and goes makes no wait longer than one for it and one for a server.
        let (recovered, longest) = (self.recovered_at, self.settings.failover_timeout.unwrap_or_default() + limit);
        let is_due =
            |waiter: &Waiter| now.since(waiter.since.max(from).max(recovered)) >= limit || waited(waiter) >= longest;
        if self.waiters.iter().any(is_due) {
            let error = Arc::new(self.wait_error(now));
            refused.extend(self.refuse(is_due, &error));
        }
        refused
    }

    /// The reason why connecting fails, while nothing is open.
    pub(super) fn obstacle(&self) -> Option<Arc<ErrorResponse>> {
        let trouble = self.trouble.as_ref().filter(|_| !self.lacks_secret());
        let failed = trouble.map(|trouble| &trouble.error).or(self.nowhere.as_ref())?;
        (self.open as usize == self.connecting.len()).then(|| failed.clone())
    }

    /// Refuses all who have waited long enough. They need not be the first ones: who has lost its server waits before
    /// others, and from now on.
    fn refuse(&mut self, is_due: impl Fn(&Waiter) -> bool, error: &Arc<ErrorResponse>) -> Vec<Refusal> {
        let due = std::iter::from_fn(|| self.waiters.pop_where(&is_due));
        due.map(|waiter| (waiter.client, error.clone())).collect()
    }

    fn wait_error(&self, now: Time) -> ErrorResponse {
        let waited = self.settings.wait_timeout.as_secs_f64();
        if self.is_unanswered(now) {
            let error = format!("the server has not answered within {waited} s (wait_timeout)");
            return ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, error).hint(IS_IT_RUNNING);
        }
        let error = ErrorResponse::fatal(
            sqlstate::TOO_MANY_CONNECTIONS,
            format!("no server connection became free within {waited} s (wait_timeout)"),
        )
        .hint(match self.share.missed() {
            _ if self.lacks_secret() => {
                "The role's password was changed or has expired, or the role is gone: connect again, with the new one."
            }
            _ if self.settings.sharing.mode == PoolMode::Session => {
                "In session mode a client keeps its server until it disconnects: have clients leave sooner, raise \"size\" \
                 of this pool and the limit that is named, if one is, or use transaction mode."
            }
            Some(_) if self.open < self.settings.size => {
                "Shorten transactions, or raise that limit, or \"wait_timeout\"."
            }
            _ => "Shorten transactions, or raise \"size\" of this pool, or \"wait_timeout\".",
        });
        match &self.trouble {
            Some(trouble) => error.detail(format!("The last attempt to connect failed: {}", trouble.error.message)),
            None => error.detail(self.occupancy()),
        }
    }

    /// Whether nothing is open, and an attempt that has not come to an end is as old as such a wait.
    fn is_unanswered(&self, now: Time) -> bool {
        let is_old = |attempt: &Attempt| now.since(attempt.since) >= self.settings.wait_timeout;
        let is_dark = self.trouble.is_none() && self.open as usize == self.connecting.len();
        is_dark && self.connecting.iter().any(is_old)
    }

    /// The reason why nothing is free, for those who wait.
    fn occupancy(&self) -> String {
        let mut open = format!("{} of {} server connections are open", self.open, self.settings.size);
        if !self.connecting.is_empty() {
            open += &format!(", or are being opened ({})", self.connecting.len());
        }
        // Not those that their clients may lose, which have been asked for.
        let lasting = || self.kept().filter(|pins| pins.are_lasting());
        let kept = lasting().count();
        if kept > 0 {
            let pins = PinCounts::of(lasting());
            open += &format!(", {kept} of them kept by clients whose sessions can't be moved ({pins})");
        }
        match self.share.missed() {
            Some(limit) if self.open < self.settings.size => format!("{open}; the limit is {limit}."),
            _ => open + ".",
        }
    }
}
