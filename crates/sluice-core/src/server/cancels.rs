//! The CancelRequests for a server.

use crate::{ids::ClientRef, time::Time};

/// The CancelRequests on their way to a server, and those that wait.
#[derive(Debug)]
pub struct Cancels {
    under_way: u32,
    is_held: bool,
    /// Those who asked for the one that waits.
    pub askers: Vec<ClientRef>,
    again: Time,
}

impl Cancels {
    /// None.
    pub fn new(now: Time) -> Self {
        Self { under_way: 0, is_held: false, askers: Vec::new(), again: now }
    }

    /// Whether one is on its way, which would hit whatever the server is doing when it comes.
    pub fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// One is on its way.
    pub fn sent(&mut self) {
        self.under_way += 1;
    }

    /// One has been delivered.
    pub fn delivered(&mut self) {
        self.under_way -= 1;
    }

    /// Sets whether one waits until what Sluice itself has sent is done, which it must not hit.
    pub fn hold(&mut self, is_held: bool) -> bool {
        self.is_held = is_held;
        is_held
    }

    /// Whether one waits until what Sluice itself has sent is done.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Sluice's own query is done; returns whether one has waited for that.
    #[must_use]
    pub fn release(&mut self) -> bool {
        std::mem::take(&mut self.is_held)
    }

    /// Has another one sent then, if the server is still busy for a client that is gone.
    pub fn repeat_at(&mut self, again: Time) {
        self.again = again;
    }

    /// The time of the next one to a server that is still busy for a client that is gone.
    pub fn repeats_at(&self) -> Option<Time> {
        (self.under_way == 0).then_some(self.again)
    }
}
