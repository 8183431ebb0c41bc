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
    /// The status to which running a portal leads.
    portals: BTreeMap<Box<[u8]>, TransactionStatus>,
}

impl Turns {
    /// A portal is bound to a statement that leads to this status, if to any.
    pub(super) fn bind(&mut self, portal: &[u8], leads_to: Option<TransactionStatus>) {
        self.portals.remove(portal);
        if let Some(status) = leads_to
            && self.portals.len() < PORTALS_MAX
        {
            self.portals.insert(portal.into(), status);
        }
    }

    /// That portal is about to be run.
    pub(super) fn run(&mut self, portal: &[u8]) {
        self.last = self.portals.get(portal).copied().or(self.last);
    }

    /// The status that it has led to, unless the server has told it since.
    pub(super) fn last(&self) -> Option<TransactionStatus> {
        self.last
    }

    /// A portal is closed.
    pub(super) fn close(&mut self, portal: &[u8]) {
        self.portals.remove(portal);
    }

    /// All portals are closed.
    pub(super) fn close_all(&mut self) {
        self.portals.clear();
    }

    /// What is sent leads to that status, if to any.
    pub(super) fn lead_to(&mut self, status: Option<TransactionStatus>) {
        self.last = status.or(self.last);
    }

    /// The server has told the status, or something has failed that may have led to it.
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
        turns.run(b"");
        turns.bind(b"", None);
        turns.run(b"");
        assert_eq!(turns.last(), Some(TransactionStatus::Idle));
        turns.bind(b"a", Some(TransactionStatus::InTransaction));
        turns.run(b"a");
        assert_eq!(turns.last(), Some(TransactionStatus::InTransaction));
        turns.forget();
        assert_eq!(turns.last(), None);
    }
}
