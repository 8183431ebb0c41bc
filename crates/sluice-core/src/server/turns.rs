//! The status of the transaction as what was sent makes it, of which a server tells at the end of a batch alone. Behind an
//! error nothing of a batch is run: whatever is run at all is run behind what was sent before it.

use std::collections::BTreeMap;

use sluice_wire::message::TransactionStatus;

/// Portals that are followed at once.
const PORTALS_MAX: usize = 64;

/// The turns that what was sent gives to the transaction.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The status behind the last portal that was run of those that begin or end a block.
    last: Option<TransactionStatus>,
    /// The number of requests whose end was still to come when that was sent, and is now.
    behind: usize,
    /// The status to which running a portal leads.
    portals: BTreeMap<Box<[u8]>, TransactionStatus>,
}

impl Turns {
    /// A portal is bound to a statement that leads to this status, if to any.
    pub(super) fn bind(&mut self, portal: &[u8], leads_to: Option<TransactionStatus>) {
        self.close(portal);
        if let Some(status) = leads_to
            && self.portals.len() < PORTALS_MAX
        {
            self.portals.insert(portal.into(), status);
        }
    }

    /// The status to which running that portal leads, if it begins or ends a block.
    pub(super) fn leads_to(&self, portal: &[u8]) -> Option<TransactionStatus> {
        self.portals.get(portal).copied()
    }

    /// Notes that this portal is about to be run, behind so many requests that are not answered.
    pub(super) fn run(&mut self, portal: &[u8], behind: impl FnOnce() -> usize) {
        if !self.portals.is_empty() {
            let status = self.portals.get(portal).copied();
            self.lead_to(status, behind);
        }
    }

    /// The status that it has led to, unless the server has told it since.
    pub(super) fn last(&self) -> Option<TransactionStatus> {
        self.last
    }

    /// A portal is closed.
    pub(super) fn close(&mut self, portal: &[u8]) {
        // Mostly there is none.
        if !self.portals.is_empty() {
            self.portals.remove(portal);
        }
    }

    /// All portals are closed.
    pub(super) fn close_all(&mut self) {
        if !self.portals.is_empty() {
            self.portals.clear();
        }
    }

    /// Notes that what is sent leads to that status, if to any.
    pub(super) fn lead_to(&mut self, status: Option<TransactionStatus>, behind: impl FnOnce() -> usize) {
        if status.is_some() {
            (self.last, self.behind) = (status, behind());
        }
    }

    /// A request has been answered.
    pub(super) fn answered(&mut self) {
        self.behind = self.behind.saturating_sub(1);
    }

    /// The request that is being answered has failed: it has led to nothing.
    pub(super) fn fail(&mut self) {
        if self.behind == 0 {
            self.forget();
        }
    }

    /// The server has told the status.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_portal_that_was_run_decides() {
        let mut turns = Turns::default();
        turns.bind(b"", Some(TransactionStatus::Idle));
        assert_eq!(turns.last(), None, "it has not been run");
        turns.run(b"", || 0);
        turns.bind(b"", None);
        turns.run(b"", || 0);
        assert_eq!(turns.last(), Some(TransactionStatus::Idle));
        turns.bind(b"a", Some(TransactionStatus::InTransaction));
        turns.run(b"a", || 1);
        assert_eq!(turns.last(), Some(TransactionStatus::InTransaction));
        turns.fail();
        assert_eq!(turns.last(), Some(TransactionStatus::InTransaction), "it was another request");
        turns.answered();
        turns.fail();
        assert_eq!(turns.last(), None);
    }
}
