//! Syncs of which it is not known whether the server answers them. It ignores each that it reads within a COPY, and
//! answers it where the COPY has failed before: by an error, it does not say which it was.

use sluice_wire::FrontendKind;

use crate::replies::{CopyBegun, Expected};

use super::{Batch, Exchange, Hold, State, is_of_copy};

/// The ReadyForQuerys that may come for such Syncs.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// Syncs that the server ignores if the COPY that it has begun to read lives up to them.
    in_copy: usize,
    /// ReadyForQuery may come so often for those of a COPY that has failed.
    may_come: usize,
    /// Whether the server has been asked for something that it answers behind all of them.
    is_asked: bool,
    /// Whether other messages stood behind such a Sync: it is not known whether they are skipped.
    is_lost: bool,
}

impl Doubt {
    /// The server has begun to read a COPY, behind which it has been sent so many already; or one more is sent.
    pub(super) fn ignore(&mut self, syncs: usize) {
        self.in_copy += syncs;
    }

    /// The COPY, if there is one, is done: they were ignored.
    pub(super) fn complete(&mut self) {
        self.in_copy = 0;
    }

    /// The COPY, if there is one, has failed.
    pub(super) fn fail(&mut self) {
        self.may_come += std::mem::take(&mut self.in_copy);
    }

    /// Whether one may yet come.
    pub(super) fn is_open(&self) -> bool {
        self.may_come > 0
    }

    /// Whether it will be, where the COPY fails that is under way.
    pub(super) fn is_ahead(&self) -> bool {
        self.in_copy > 0
    }

    /// Whether it is, or will be where the COPY that is under way fails.
    pub(super) fn may_open(&self) -> bool {
        self.is_open() || self.is_ahead()
    }

    /// ReadyForQuery has come, where none was certain to come; returns whether it is one of theirs.
    pub(super) fn take_ready(&mut self) -> bool {
        let is_theirs = self.may_come > 0;
        self.may_come -= usize::from(is_theirs);
        self.is_asked &= self.may_come > 0;
        is_theirs
    }

    /// Whether the server is to be asked, which it is from now on.
    pub(super) fn ask(&mut self) -> bool {
        self.is_open() && !std::mem::replace(&mut self.is_asked, true)
    }

    /// Something else has come: so has all for these Syncs.
    pub(super) fn settle(&mut self) {
        *self = Self::default();
    }
}

impl Exchange {
    /// The server has begun to read a COPY. Returns whether it ignores a Sync that it has been sent.
    pub fn begin_copy(&mut self) -> bool {
        let by_execute = matches!(self.replies.front(), Some(Expected::Execute(_)));
        let CopyBegun { has_ended, ignored, has_sync } = self.replies.begin_copy_in();
        let ignores_sync = !ignored.is_empty();
        self.doubt.ignore(ignored.len());
        for resets in ignored.into_iter().flatten() {
            self.batch_resets.add(resets);
        }
        // Its Sync does not count any more.
        let batch = if by_execute && !has_sync { Batch::Runs } else { self.batch() };
        self.state = if has_ended { State::Ready(batch) } else { State::Copying(batch) };
        self.asked &= !ignores_sync;
        ignores_sync
    }

    /// Whether it owes nothing, for certain.
    pub fn is_settled(&self) -> bool {
        !self.owes() && !self.doubt.is_open()
    }

    /// Whether a message has to wait, so that nothing stands behind a COPY that may turn out to have failed, but what
    /// ends it and its batch.
    pub(super) fn waits_for_copy(&self, kind: FrontendKind) -> bool {
        let is_of_copy = is_of_copy(kind);
        match self.state {
            State::Copying(_) | State::Skipping => false,
            // Its end was sent, and it is not known yet that there is one.
            _ if self.replies.has_copy_end() => {
                let is_behind = matches!(self.replies.back(), Some(Expected::Sync(_)));
                kind != FrontendKind::Sync && (!is_of_copy || is_behind)
            }
            _ if !self.doubt.may_open() => false,
            State::Ready(Batch::Closed) => true,
            State::Ready(_) => !matches!(kind, FrontendKind::Sync | FrontendKind::Flush),
        }
    }

    /// A message that was sent is taken for one that is skipped.
    pub(super) fn note_skipped(&mut self, expected: &Expected) {
        self.doubt.is_lost |= self.doubt.is_open() && !matches!(expected, Expected::CopyEnd(_));
    }

    /// Whether it can't be known any more.
    pub fn is_lost(&self) -> bool {
        self.doubt.is_lost
    }

    /// Whether it is not known what it owes.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_open()
    }

    /// Whether it is not known what it owes, or will not be where a COPY fails that is under way.
    pub fn may_be_in_doubt(&self) -> bool {
        self.doubt.may_open()
    }

    /// Whether the server reads a COPY, which it has to complete or to refuse before it is ready.
    pub fn is_amid_copy(&self) -> bool {
        self.is_copying() || self.doubt.is_ahead()
    }

    /// Whether the server is to be asked for something that settles what it owes: from now on it is expected, a Close,
    /// and a Sync of Sluice's own.
    pub fn asks_in_doubt(&mut self) -> bool {
        let is_quiet = self.replies.is_empty() && self.is_closed();
        let can_ask = is_quiet && self.hold == Hold::None && !self.begin.holds() && !self.replay.holds();
        let asks = can_ask && self.doubt.ask();
        if asks {
            self.expect(Expected::OwnClose);
            self.expect(Expected::OwnSync);
        }
        asks
    }

    /// The client has sent a Sync for the COPY that is being read.
    pub fn ignore_sync(&mut self) {
        self.doubt.ignore(1);
    }

    /// The command that is being answered is done: if it was a COPY, the server has ignored its Syncs.
    pub fn copied(&mut self) {
        self.doubt.complete();
    }

    /// An answer comes that is no ReadyForQuery: all of those have come which were in doubt.
    pub fn settle_doubt(&mut self) {
        self.doubt.settle();
    }

    /// ReadyForQuery has come that may be for a Sync which the server was to ignore: how many come counts, and not for
    /// which each is. Returns whether it has ended what the server skipped.
    pub fn expect_ready_in_doubt(&mut self) -> bool {
        // Of what waits for the answer, nothing has been sent but Syncs: one that is certain comes in any case.
        let is_certain = self.replies.front().is_some_and(Expected::is_request);
        if is_certain || !self.doubt.take_ready() {
            return false;
        }
        self.is_extra = true;
        self.replies.push_front(Expected::Sync(None));
        let skipped = self.state == State::Skipping;
        if skipped {
            self.state = State::Ready(Batch::Closed);
        }
        skipped
    }
}
