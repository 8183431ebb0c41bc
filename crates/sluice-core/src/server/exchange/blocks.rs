//! The transaction that is open: the status that what was sent leads to, whether it is a block, and what is known of its
//! end if the server is lost now.

use sluice_wire::message::TransactionStatus;

use crate::sql::{self, Reset};

use super::Exchange;

/// The kind of message, among those sent, that may end the block which is open.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing.
    #[default]
    None,
    /// One or more plain COMMITs.
    Commit,
    /// Something else, or what nobody knows.
    Open,
}

impl Exchange {
    /// The status in which the next message finds the transaction, unless an error comes first.
    pub fn expected_status(&self) -> TransactionStatus {
        self.turns.last().unwrap_or(if self.is_implicit() { TransactionStatus::Idle } else { self.status })
    }

    /// Whether the transaction that is open is that of a batch, and no block.
    pub fn is_implicit(&self) -> bool {
        self.implicit.is_open()
    }

    /// Settings that were reset in such a transaction are put in place again when it has ended.
    pub fn put_off(&mut self, resets: &Reset) {
        self.implicit.put_off(resets);
    }

    /// Something is sent that may end the block which is open, now or later: that text, if it is known.
    pub fn may_end_block(&mut self, text: Option<&[u8]>) {
        let commits = text.and_then(sql::end) == Some("COMMIT") && self.ending != Ending::Open;
        self.ending = if commits { Ending::Commit } else { Ending::Open };
    }

    /// Whether something was sent that may end the block which is open.
    pub fn is_ending(&self) -> bool {
        self.ending != Ending::None
    }

    /// A statement is described, or a portal, by that name. Other answers than that of a COMMIT's portal are not known.
    pub fn describes(&mut self, portal: Option<&[u8]>) {
        let is_commits = portal.is_some_and(|name| self.turns.leads_to(name) == Some(TransactionStatus::Idle));
        if self.ending == Ending::Commit && !is_commits {
            self.ending = Ending::Open;
        }
    }

    /// A portal, or a part of a text, has run.
    pub fn has_run(&mut self) {
        self.has_run = true;
    }

    /// The client has heard that a COMMIT was done.
    pub fn has_committed(&mut self) {
        self.ending = Ending::Open;
    }

    /// Whether the client has a block open that is rolled back for certain if nothing more is answered: it was open, or had
    /// failed, when the server last told its status, or a BEGIN of the pool's goes before the one request that there is.
    pub fn rolls_back(&self) -> bool {
        let begins = self.replies.begin_block() && self.replies.client_requests() <= 1;
        let is_open = self.status != TransactionStatus::Idle || begins;
        is_open && self.is_plain() && !self.is_ending() && self.turns.last() != Some(TransactionStatus::Idle)
    }

    /// The messages with which the answer to a COMMIT begins, if that and nothing else is unanswered in a block.
    pub fn unanswered_commit(&self) -> Option<Vec<u8>> {
        let commits = self.ending == Ending::Commit && self.turns.last() == Some(TransactionStatus::Idle);
        let is_open = self.status == TransactionStatus::InTransaction;
        let is_whole = self.is_closed() && !self.has_run && self.replies.client_requests() == 1;
        if commits && is_open && is_whole && self.is_plain() { self.replies.ahead_of_commit() } else { None }
    }

    /// Whether nothing but requests of the client's is under way in its block.
    fn is_plain(&self) -> bool {
        !self.is_copying() && !self.may_be_in_doubt() && !self.replies.have_own() && !self.is_implicit()
    }
}
