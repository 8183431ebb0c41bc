//! The transaction that is open: the status that what was sent leads to, whether it is a block, and whether that is rolled
//! back for certain if the server is lost now.

use sluice_wire::message::TransactionStatus;

use crate::sql::Reset;

use super::Exchange;

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

    /// Something is sent that may end the block which is open, now or later.
    pub fn may_end_block(&mut self) {
        self.may_end_block = true;
    }

    /// Whether the client has a block open that is rolled back for certain if nothing more is answered: it was open when
    /// the server last told its status, or a BEGIN of the pool's goes before the one request that there is.
    pub fn rolls_back(&self) -> bool {
        let begins = self.replies.begin_block() && self.replies.client_requests() <= 1;
        let is_open = self.status == TransactionStatus::InTransaction || begins;
        let is_plain = !self.is_copying() && !self.may_be_in_doubt() && !self.replies.have_own();
        is_open && is_plain && !self.may_end_block && self.turns.last().is_none() && !self.is_implicit()
    }
}
