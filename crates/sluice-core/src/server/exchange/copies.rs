//! COPYs that the server reads, and what is not known when one fails (docs/decisions/0023).
//!
//! The server ignores each Sync that it reads within a COPY, and answers it where the COPY has failed before; by its error
//! it does not say which it was. So it is asked: by a Sync, which ends whatever it skips, a Close, whose answer shows
//! where its answers to all before have ended, and another Sync, all of Sluice's own. Until it has answered, the client
//! waits, and nothing of the client's stands behind a COPY meanwhile but what belongs to one.

use sluice_wire::{FrontendKind, message::TransactionStatus};

use crate::{
    replies::{CopyBegun, Expected},
    time::Time,
};

use super::{Batch, Exchange, Hold, State, is_of_copy};

/// The state of COPYs, besides whether one is being read.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Whether one may begin, or has, by what the server owes.
    are_ahead: bool,
    /// Whether a portal of the open transaction may be one.
    are_bound: bool,
    /// Whether one may be prepared under any name, in a session whose statements are not followed.
    are_prepared: bool,
    /// Whether the server has read one since it was asked for anything that is Sluice's own.
    has_read: bool,
    /// Syncs that the server ignores if the COPY that it has begun to read lives up to them.
    syncs_within: usize,
    doubt: Option<Doubt>,
    /// Whether it was sent something in the midst of one that PostgreSQL ends the session for.
    is_lost: bool,
}

/// Syncs that were sent for a COPY that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Doubt {
    /// ReadyForQuery may have come for so many of them, or be still to come.
    may_come: usize,
    /// ReadyForQuery has come so often beyond what is owed for certain.
    heard: usize,
    asked: Asked,
}

/// The question that settles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// The answer to the Close is still to come.
    Yes,
    /// The answer to the last Sync is still to come.
    Answered,
}

/// A ReadyForQuery that comes while it is not known what is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDoubt {
    /// It is for what the client was to hear of in any case.
    Certain,
    /// It counts.
    Counted,
    /// It is the last one: all is known.
    Last,
}

impl Exchange {
    /// A text was sent that may begin a COPY which the server reads.
    pub fn may_begin_copy(&mut self) {
        self.copies.are_ahead = true;
    }

    /// A portal was bound that may do so, or its statement prepared.
    pub fn may_bind_copy(&mut self) {
        self.copies.are_bound = true;
    }

    /// The same of a statement that may be bound at any time.
    pub fn may_prepare_copy(&mut self) {
        self.copies.are_prepared = true;
    }

    /// A portal is run.
    pub fn note_execute(&mut self) {
        self.copies.are_ahead |= self.copies.are_bound || self.copies.are_prepared;
    }

    /// A text is run that may run any prepared statement.
    pub fn note_text(&mut self) {
        self.copies.are_ahead |= self.copies.are_prepared;
    }

    /// The transaction has ended, and all portals with it.
    pub(super) fn forget_bound_copies(&mut self) {
        self.copies.are_bound = false;
    }

    /// Something is about to be sent, and nothing is owed: no COPY is ahead.
    pub(super) fn forget_copies_ahead(&mut self) {
        self.copies.are_ahead = false;
    }

    /// The server has begun to read a COPY. Returns whether that can be: it is the answer to a Query or an Execute, and
    /// nothing was sent behind that but what belongs to a COPY.
    pub fn begin_copy(&mut self) -> bool {
        let by_execute = matches!(self.replies.front(), Some(Expected::Execute { .. }));
        if !(by_execute || matches!(self.replies.front(), Some(Expected::Query { .. }))) || !self.replies.may_copy() {
            return false;
        }
        let CopyBegun { has_ended, ignored, has_sync } = self.replies.begin_copy_in();
        // It may have read a Flush within the COPY.
        self.asked = false;
        self.copies.syncs_within += ignored.len();
        for resets in ignored.into_iter().flatten() {
            self.batch_resets.add(resets);
        }
        self.copies.has_read = true;
        // Its Sync does not count any more.
        let batch = if by_execute && !has_sync { Batch::Runs } else { self.batch() };
        self.state = if has_ended { State::Ready(batch) } else { State::Copying(batch) };
        true
    }

    /// Whether a Sync was sent for the COPY that is being read.
    pub fn has_sync_within_copy(&self) -> bool {
        self.copies.syncs_within > 0
    }

    /// The client has sent a Sync for the COPY that is being read.
    pub fn ignore_sync(&mut self) {
        self.copies.syncs_within += 1;
    }

    /// The command that is being answered is done: if it was a COPY, the server has ignored its Syncs.
    pub fn copied(&mut self) {
        self.copies.syncs_within = 0;
    }

    /// Notes that what is being answered has failed. Of a COPY's Syncs, it is not known which the server ignores.
    pub(super) fn copy_fails(&mut self) {
        let may_come = std::mem::take(&mut self.copies.syncs_within);
        if may_come > 0 {
            self.copies.doubt = Some(Doubt { may_come, heard: 0, asked: Asked::No });
        }
    }

    /// A message is sent in the midst of a COPY that does not belong there: PostgreSQL ends the session for it, if the
    /// COPY has not failed.
    pub fn lose_copy(&mut self) {
        self.stop_copying();
        self.copies.is_lost = true;
    }

    /// Whether that was so.
    pub fn has_lost_copy(&self) -> bool {
        self.copies.is_lost
    }

    /// Whether the server reads a COPY, or it is not known what it owes for one.
    pub fn is_amid_copies(&self) -> bool {
        self.is_copying() || self.may_be_in_doubt()
    }

    /// Whether it owes nothing, for certain.
    pub fn is_settled(&self) -> bool {
        !self.owes() && !self.is_amid_copies()
    }

    /// Whether the server may begin to read a COPY, or has, by what it owes.
    pub fn may_have_copy_ahead(&self) -> bool {
        self.copies.are_ahead && self.owes()
    }

    /// Whether a message has to wait, so that nothing stands behind a COPY but what belongs to one.
    pub(super) fn waits_for_copy(&self, kind: FrontendKind) -> bool {
        if !self.may_have_copy_ahead() {
            return false;
        }
        match kind {
            FrontendKind::Sync | FrontendKind::Flush => false,
            // Behind the Sync of one whose end was sent, they would be of another one.
            _ if is_of_copy(kind) => {
                self.replies.has_copy_end() && matches!(self.replies.back(), Some(Expected::Sync(_)))
            }
            // It ends the session.
            _ => !self.is_copying(),
        }
    }

    /// Whether it is not known what it owes.
    pub fn is_in_doubt(&self) -> bool {
        self.copies.doubt.is_some()
    }

    /// Whether it is not, or will not be where a COPY fails that is under way.
    pub fn may_be_in_doubt(&self) -> bool {
        self.copies.doubt.is_some() || self.copies.syncs_within > 0 || self.copies.is_lost
    }

    /// Whether the server is to be asked what it owes, which it is from now on.
    pub fn asks_in_doubt(&mut self) -> bool {
        let is_free = self.hold == Hold::None && !self.begin.holds() && !self.replay.holds();
        let Some(doubt) = self.copies.doubt.as_mut().filter(|doubt| is_free && doubt.asked == Asked::No) else {
            return false;
        };
        doubt.asked = Asked::Yes;
        // Whatever it has skipped, it does not any more.
        self.state = State::Ready(Batch::Closed);
        self.begin.follow();
        true
    }

    /// ReadyForQuery has come while that is not known.
    pub fn ready_in_doubt(&mut self, now: Time, status: TransactionStatus) -> InDoubt {
        let is_certain = self.replies.front().is_some_and(Expected::is_request);
        let Some(doubt) = self.copies.doubt.as_mut().filter(|_| !is_certain) else { return InDoubt::Certain };
        (self.status, self.ready_at) = (status, now);
        if doubt.asked != Asked::Answered {
            doubt.heard += 1;
            return InDoubt::Counted;
        }
        self.copies.doubt = None;
        self.has_discarded = false;
        self.implicit.told(false, &mut None);
        self.told_status();
        InDoubt::Last
    }

    /// The answer to the Close has come. Returns how many of the client's Syncs the server has answered; `None` where
    /// that can't be.
    pub fn count_in_doubt(&mut self) -> Option<usize> {
        let is_empty = self.replies.is_empty();
        let doubt = self.copies.doubt.as_mut().filter(|doubt| is_empty && doubt.asked == Asked::Yes)?;
        doubt.asked = Asked::Answered;
        // One of them is Sluice's own.
        doubt.heard.checked_sub(1).filter(|answered| *answered <= doubt.may_come)
    }

    /// Whether the server has read a COPY since this was asked last. PostgreSQL keeps a time-out or a cancel that comes
    /// while it waits for data until it reads the next command.
    pub fn take_copy_read(&mut self) -> bool {
        std::mem::take(&mut self.copies.has_read)
    }
}
