//! The transaction that is open: the status that what was sent leads to, whether it is a block, and what is known of its
//! end if the server is lost now.

use sluice_wire::message::TransactionStatus;

use crate::{
    sql::{Ending, Reset},
    statement::known_name,
};

use super::Exchange;

/// What is known of the end of the block that is open.
#[derive(Debug, Default)]
pub(super) struct End {
    /// What all that was sent, and may have run, does to it.
    ending: Ending,
    /// Whether any of that may be a COMMIT.
    may_commit: bool,
    /// Whether the request that is being answered has ended it.
    pub(super) is_told: bool,
    /// Whether something was described in the request that was sent last, up to its end, of which the answer is not
    /// known; and in the one that is being sent.
    is_described: bool,
    is_being_described: bool,
}

/// What the session of a block may hold that its ROLLBACK does not take away, and that nobody knows elsewhere.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing.
    #[default]
    Nothing,
    /// Something of the block's own.
    Within,
    /// Something that was committed before it, and has not been acted on.
    Before,
}

impl Exchange {
    /// The status in which the next message finds the transaction, unless an error comes first.
    pub fn expected_status(&self) -> TransactionStatus {
        self.turns.last().unwrap_or(if self.is_implicit() { TransactionStatus::Idle } else { self.status })
    }

    /// Whether the next message finds a block, unless an error comes first: one that is open, has failed, or begins ahead
    /// of it.
    pub fn expects_block(&self) -> bool {
        let begins = self.turns.last().is_none() && self.replies.begin_block();
        begins || self.expected_status() != TransactionStatus::Idle
    }

    /// Whether the transaction that is open is that of a batch, and no block.
    pub fn is_implicit(&self) -> bool {
        self.implicit.is_open()
    }

    /// Settings that were reset in such a transaction are put in place again when it has ended.
    pub fn put_off(&mut self, resets: &Reset) {
        self.implicit.put_off(resets);
    }

    /// Something is sent that is run, and does that to the block which is open.
    pub fn end_block(&mut self, ending: Ending) {
        self.end.ending = self.end.ending.and(ending);
        self.note_end(ending);
    }

    /// The same, where nobody asks how the block ends if the server is lost.
    pub fn note_end(&mut self, ending: Ending) {
        self.end.may_commit |= matches!(ending, Ending::Commit | Ending::Open);
    }

    /// Whether a COMMIT may be among what is owed.
    pub fn may_owe_commit(&self) -> bool {
        self.end.may_commit && self.owes()
    }

    /// Whether anything was sent that may end the block which is open.
    pub fn may_end_block(&self) -> bool {
        self.end.ending != Ending::None || self.turns.last() == Some(TransactionStatus::Idle)
    }

    /// Whether the request that is being answered has ended its block: one that is open behind it is another.
    pub fn has_ended_block(&self) -> bool {
        self.end.is_told
    }

    /// A statement is described, or the portal of that name: of one that ends a block, the answer is known.
    pub fn describes(&mut self, portal: Option<&[u8]>) {
        let is_ends = portal.is_some_and(|name| self.turns.of(known_name(name)).ends.is_known());
        self.end.is_being_described |= !is_ends;
    }

    /// A request of the client's is sent to its end.
    pub(super) fn end_request(&mut self) {
        self.end.is_described = std::mem::take(&mut self.end.is_being_described);
        self.turns.end_request();
    }

    /// The session may hold something that the block's end does not take away.
    pub fn leave(&mut self, left: Left) {
        self.left = self.left.max(left);
    }

    /// What its session may hold of that kind.
    pub fn left(&self) -> Left {
        self.left
    }

    /// A portal, or a part of a text, has run.
    pub fn has_run(&mut self) {
        self.has_run = true;
        self.is_behind_discard = false;
    }

    /// The client has heard that the block has ended, if anything was sent that may end it: a ROLLBACK to a savepoint is
    /// told in the same words.
    pub fn has_ended(&mut self) {
        self.end.is_told |= self.end.ending != Ending::None;
        self.end.ending = self.end.ending.known_if(false);
    }

    /// Whether the client has a block open that is rolled back for certain if nothing more is answered: it was open, or had
    /// failed, when the server last told its status, or a BEGIN of the pool's goes before the one request that there is.
    /// No query of the pool's own ends a client's block, and what stands ahead of its first message decides nothing.
    pub fn rolls_back(&self) -> bool {
        let requests = self.replies.client_requests();
        let begins = self.replies.begin_block() && requests <= 1;
        let is_open = self.status != TransactionStatus::Idle || begins;
        let is_known = requests == 0 || !self.replies.have_own_beside_address();
        is_open
            && is_known
            && self.is_plain()
            && self.end.ending == Ending::None
            && self.turns.last() != Some(TransactionStatus::Idle)
    }

    /// Whether the answer to a COMMIT, with what goes ahead of it, and nothing else is owed in a block.
    pub fn owes_commit(&self) -> bool {
        self.end.ending == Ending::Commit && self.status == TransactionStatus::InTransaction && self.owes_end()
    }

    /// Likewise to a ROLLBACK: whatever comes, the block is rolled back. In one that has failed, a COMMIT does the same.
    pub fn owes_rollback(&self) -> bool {
        let rolls_back = match self.end.ending {
            Ending::Rollback => self.status != TransactionStatus::Idle,
            Ending::Commit => self.status == TransactionStatus::Failed,
            Ending::None | Ending::Open => false,
        };
        rolls_back && self.owes_end()
    }

    fn owes_end(&self) -> bool {
        let is_last = self.turns.last() == Some(TransactionStatus::Idle) && self.replies.client_requests() == 1;
        let is_known = self.is_closed() && !self.has_run && !self.end.is_described;
        is_last && is_known && self.is_plain() && self.replies.ahead_of_end().is_some()
    }

    /// Whether nothing but requests is under way in its block.
    fn is_plain(&self) -> bool {
        !self.is_copying() && !self.may_be_in_doubt() && !self.is_implicit()
    }
}
