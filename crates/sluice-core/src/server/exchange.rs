//! The exchange with one server: the answers it owes, the batch that stands open there, and whether another message may
//! go to it now.
//!
//! Nothing here reads or writes a message. Whoever sends one says which answer is expected, by [`Exchange::expect`],
//! and that alone moves the state of the batch; whoever hears an answer takes it out of the queue. An expected answer
//! holds all that its coming or failing means, so that answers to several clients could stand in one queue.

mod blocks;
mod copies;
mod failure;
mod names;
mod resets;

use sluice_wire::{FrontendKind, message::TransactionStatus};

use crate::{
    replies::{Expected, LearnFor, Own, Replies},
    sql::{self, Reset},
    statement::known_name,
    time::Time,
};

use super::{
    batch_resets::BatchResets,
    begin::EarlyBegin,
    implicit::Implicit,
    replay::Replay,
    turns::{Turn, Turns},
};
use blocks::End;
use copies::Copies;

pub use blocks::Left;
pub use copies::InDoubt;

/// Answers that a server may owe before its client has to wait: far more than drivers send in one batch, and a few
/// hundred kilobytes.
const OWED_MAX: usize = 10_000;

/// The exchange with a server.
#[derive(Debug)]
pub struct Exchange {
    /// Of the last ReadyForQuery.
    status: TransactionStatus,
    /// The time of the last ReadyForQuery.
    ready_at: Time,
    replies: Replies,
    state: State,
    hold: Hold,
    /// Whether a Sync stands behind messages that give names a meaning: until they are answered, what a name means
    /// behind that Sync is open.
    names_open: bool,
    /// Whether a client's message waits until nothing is owed any more.
    awaited: bool,
    /// Whether the server has been asked for the answers to what was sent of the open batch.
    asked: bool,
    begin: EarlyBegin,
    replay: Replay,
    /// The settings that the batch which is open resets to what its client began with.
    batch_resets: BatchResets,
    /// The turns that what was sent gives to the transaction.
    turns: Turns,
    /// What is known of the end of the block which is open.
    end: End,
    left: Left,
    /// Whether a part of the request that is being answered has run.
    has_run: bool,
    /// Whether the client has heard that the request has failed, whose end is to come.
    is_failure_told: bool,
    /// Whether the request that is being answered has discarded all, which is committed at once, whatever follows in
    /// its batch.
    has_discarded: bool,
    /// Whether nothing has run since.
    is_behind_discard: bool,
    implicit: Implicit,
    copies: Copies,
}

/// The messages that the server has got since the last Sync or Query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Batch {
    /// None.
    Closed,
    /// Messages of the extended protocol that only prepare and describe.
    Prepares,
    /// Messages of the extended protocol that may run something.
    Runs,
}

/// The server's way with the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It handles it, as part of that batch.
    Ready(Batch),
    /// It ignores all up to the next Sync, which has not been sent yet.
    Skipping,
    /// It reads a COPY whose end has not been sent yet; that batch is behind it.
    Copying(Batch),
}

/// The answer that a client's next message waits for, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    None,
    /// The shape of a statement's result, for the Bind that comes next.
    Shape,
    /// ReadyForQuery to a Sync of Sluice's own: behind an error, what the client sends next would run instead of being
    /// skipped.
    OwnSync {
        /// Whether that Sync is sent when the client's message that is passing has come to its end.
        follows: bool,
    },
}

/// Whether a message may go to a server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Now,
    /// Not before what is under way has ended.
    Later,
    /// Not before the server has answered what it owes, which is as much as may be noted.
    AfterAnswers,
}

/// The messages that an abandoned server is sent to come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Farewell {
    /// Whether it reads a COPY for certain.
    pub copies: bool,
    /// CopyFail: it reads a COPY, or may be about to.
    pub copy_fail: bool,
    /// A message that fails, so that what ran since the last Sync is rolled back.
    pub failure: bool,
    /// Sync.
    pub sync: bool,
}

impl Exchange {
    /// Nothing sent yet.
    pub fn new(now: Time) -> Self {
        Self {
            status: TransactionStatus::Idle,
            ready_at: now,
            replies: Replies::default(),
            state: State::Ready(Batch::Closed),
            hold: Hold::None,
            names_open: false,
            awaited: false,
            asked: false,
            begin: EarlyBegin::none(now),
            replay: Replay::default(),
            batch_resets: BatchResets::default(),
            turns: Turns::default(),
            end: End::default(),
            left: Left::Nothing,
            has_run: false,
            is_failure_told: false,
            has_discarded: false,
            is_behind_discard: false,
            implicit: Implicit::default(),
            copies: Copies::default(),
        }
    }

    /// The status that the last ReadyForQuery told.
    pub fn reported_status(&self) -> TransactionStatus {
        self.status
    }

    /// The time of the last ReadyForQuery.
    pub fn ready_at(&self) -> Time {
        self.ready_at
    }

    /// The answers it owes.
    pub fn replies(&self) -> &Replies {
        &self.replies
    }

    /// Whether it owes an answer.
    pub fn owes(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether all that was sent has come to its end: no batch or COPY is open.
    pub fn is_closed(&self) -> bool {
        self.state == State::Ready(Batch::Closed)
    }

    /// Whether it is over: no transaction, nothing owed, and nobody held.
    pub fn is_over(&self) -> bool {
        self.status == TransactionStatus::Idle && self.is_settled() && self.is_closed() && self.hold == Hold::None
    }

    /// Whether messages of the extended protocol were sent since the last Sync.
    pub fn has_open_batch(&self) -> bool {
        self.batch() != Batch::Closed
    }

    /// Whether it reads a COPY whose end has not been sent yet.
    pub fn is_copying(&self) -> bool {
        matches!(self.state, State::Copying(_))
    }

    /// Whether messages that may run something were sent since the last Sync.
    pub fn runs(&self) -> bool {
        self.batch() == Batch::Runs
    }

    /// Whether the batch that is open begins in a transaction block, and has run nothing else: a BEGIN at most.
    pub fn begins_in_block(&self) -> bool {
        let is_in_block = self.status == TransactionStatus::InTransaction || self.replies.begin_block();
        is_in_block && self.batch() == Batch::Prepares
    }

    /// Whether it would prepare a statement, and not skip or refuse it.
    pub fn prepares(&self) -> bool {
        matches!(self.state, State::Ready(_)) && self.expected_status() != TransactionStatus::Failed
    }

    /// Whether what is open does nothing but prepare and describe, outside of a transaction.
    pub fn only_prepares(&self) -> bool {
        self.batch() == Batch::Prepares && self.status == TransactionStatus::Idle
    }

    /// The early BEGIN.
    pub fn begin(&mut self) -> &mut EarlyBegin {
        &mut self.begin
    }

    /// The messages that can be sent again.
    pub fn replay(&mut self) -> &mut Replay {
        &mut self.replay
    }

    /// The time up to which a BEGIN that was sent may be taken to be at work.
    pub fn begun_by(&self) -> Time {
        self.begin.at_work_until()
    }

    /// Whether the server's next answer is one that a cancel must not hit.
    pub fn shields(&self, now: Time) -> bool {
        match self.replies.front() {
            // Nobody asked for what is Sluice's own to be cancelled.
            Some(Expected::Own(_)) => true,
            Some(Expected::Begin(_)) => now < self.begun_by(),
            _ => self.replies.begin_own_batch(),
        }
    }

    /// Whether a client's message of that kind may go now.
    pub fn admission(&self, kind: FrontendKind) -> Admission {
        let is_held = self.hold != Hold::None || self.begin.holds() || self.replay.holds() || self.is_in_doubt();
        // What the client began with is brought back first, unless that waits for the client to end a COPY.
        let is_resetting = self.replies.are_resetting() && !self.is_copying() && !is_of_copy(kind);
        // Into a COPY it only brings an error.
        let is_unknown = self.names_open && names_statements(kind) && !self.is_copying();
        if is_held || is_resetting || is_unknown {
            Admission::Later
        } else if self.waits_for_copy(kind) || (self.replies.len() >= OWED_MAX && !is_of_copy(kind)) {
            Admission::AfterAnswers
        } else {
            Admission::Now
        }
    }

    /// A message is sent that will be answered like that, or not at all.
    pub fn expect(&mut self, mut expected: Expected) {
        self.asked = false;
        if self.replies.is_empty() {
            self.forget_copies_ahead();
        }
        match &mut expected {
            Expected::Parse(_)
            | Expected::Describe(..)
            | Expected::Close(_)
            | Expected::Evict(_)
            | Expected::OwnClose
            | Expected::Switch
            | Expected::Fault
            | Expected::Refused(_)
            | Expected::Learn(_, LearnFor::Parse(_))
            | Expected::Begin(_) => self.extend_batch(Batch::Prepares),
            Expected::Bind(..) | Expected::BindStandIn(_) | Expected::Execute { .. } => self.extend_batch(Batch::Runs),
            Expected::Learn(_, LearnFor::Describe | LearnFor::Use) => {
                self.extend_batch(Batch::Prepares);
                self.hold_for(Hold::Shape);
            }
            Expected::Query { clears, is_amid, .. } => {
                let goes_on = matches!(self.replies.back(), Some(Expected::Query { is_amid: true, .. }));
                *is_amid = (self.runs() || goes_on) && self.expected_status() == TransactionStatus::Idle;
                self.close_batch();
                self.end_request();
                self.begin.follow();
                self.names_open |= *clears;
            }
            Expected::Sync(_) => {
                self.state = State::Ready(Batch::Closed);
                self.end_request();
                self.begin.follow();
                self.names_open |= self.replies.has_named();
            }
            Expected::OwnSync(_) => {
                self.close_batch();
                self.hold_for(Hold::OwnSync { follows: false });
            }
            Expected::Own(Own::Prepare | Own::Settings | Own::Sequences) => self.close_batch(),
            Expected::Own(_) | Expected::Local(_) | Expected::CopyEnd(_) | Expected::Failure => {}
        }
        self.replies.push(expected);
    }

    /// Messages are sent that the server handles before all that it has not answered yet.
    pub fn expect_first(&mut self, expected: Expected) {
        self.replies.push_front(expected);
    }

    /// In place of a Query's answers, its ReadyForQuery now comes to a Sync of Sluice's own; `follows` says that it is
    /// sent when the client's message has come to its end.
    pub fn expect_own_sync_first(&mut self, follows: bool) {
        self.hold_for(Hold::OwnSync { follows });
        self.replies.push_front(Expected::OwnSync(None));
    }

    /// A client's message has come to its end; returns whether a Sync of Sluice's own is to be sent behind it.
    pub fn take_sync_that_follows(&mut self) -> bool {
        let follows = self.hold == Hold::OwnSync { follows: true };
        if follows {
            self.hold = Hold::OwnSync { follows: false };
        }
        follows
    }

    /// The client has sent the end of a COPY: of one that the server reads, or of one that it may be about to.
    pub fn end_copy(&mut self) {
        // What it has been asked for was before.
        self.asked = false;
        if self.is_copying() {
            self.stop_copying();
        } else if self.owes() {
            self.replies.push(Expected::CopyEnd(1));
        }
    }

    /// A client's message waits until nothing is owed any more. Returns whether the server has to be asked for that: to a
    /// batch without an end, it may keep its answers to itself.
    pub fn await_answers(&mut self) -> bool {
        self.awaited = true;
        self.ask_for_answers()
    }

    /// Returns whether a Flush is to be sent, so that the server keeps no answers to itself.
    pub fn ask_for_answers(&mut self) -> bool {
        self.has_open_batch() && !std::mem::replace(&mut self.asked, true)
    }

    /// Whether the server may keep all answers that it owes to itself: nothing that was sent asks for them.
    pub fn may_keep_answers(&self) -> bool {
        self.owes() && !self.asked && self.has_open_batch() && !self.replies.end_requests()
    }

    /// The client has gone, and nobody waits for its answers. Returns what is to be sent, which is expected from now
    /// on.
    pub fn abandon(&mut self) -> Farewell {
        self.replay = Replay::default();
        self.stop_learning();
        self.awaited = false;
        let owes = self.owes();
        let (batch, copies, skips) = match self.state {
            State::Ready(batch) => (batch, false, false),
            State::Copying(batch) => (batch, true, false),
            State::Skipping => (Batch::Runs, false, true),
        };
        let copy_fail = copies || owes;
        let failure = batch != Batch::Closed && !skips;
        let sync = copy_fail || failure || skips;
        self.state = State::Ready(Batch::Closed);
        if owes {
            self.replies.push(Expected::CopyEnd(1));
        }
        if failure {
            self.replies.push(Expected::Describe(None, None));
        }
        if sync {
            self.replies.push(Expected::Sync(None));
        }
        Farewell { copies, copy_fail, failure, sync }
    }

    /// A portal is bound to a statement that resets these settings to what the client began with, or none: then its
    /// text, of those that may change settings, sets what it names. It may begin or end a block.
    pub fn bind_portal(&mut self, portal: &[u8], resets: Option<Reset>, text: Option<&[u8]>, turn: Turn) {
        let portal = known_name(portal);
        self.turns.bind(portal, turn);
        self.batch_resets.bind(portal, resets, || text.map(sql::settings_named));
    }

    /// A portal of the open batch is about to be run, unless the server skips or refuses that.
    pub fn run_portal(&mut self, portal: &[u8]) {
        let portal = known_name(portal);
        if self.prepares() {
            self.batch_resets.run(portal);
        }
        if matches!(self.state, State::Ready(_)) {
            let ends = self.turns.run(portal, || self.replies.requests());
            self.end_block(ends);
        }
    }

    /// A portal is closed, unless the server skips that.
    pub fn close_portal(&mut self, portal: &[u8]) {
        if matches!(self.state, State::Ready(_)) {
            self.turns.close(known_name(portal));
            self.batch_resets.close(known_name(portal));
        }
    }

    /// A Query is sent that leads to that status, if to any.
    pub fn lead_to(&mut self, status: Option<TransactionStatus>) {
        // It stands among them itself.
        self.turns.lead_to(status, || self.replies.requests().saturating_sub(1));
    }

    /// See [`Replies::complete`].
    pub fn complete(&mut self, tag: &[u8]) -> bool {
        self.replies.complete(tag)
    }

    /// The answer that comes next has come.
    pub fn answered(&mut self) -> Option<Expected> {
        self.replies.pop()
    }

    /// The next one, if nothing comes from the server for it.
    pub fn answered_here(&mut self) -> Option<Expected> {
        self.replies.pop_settled()
    }

    /// ReadyForQuery has come; returns to what.
    pub fn ready(&mut self, now: Time, status: TransactionStatus) -> Option<Expected> {
        self.status = status;
        self.ready_at = now;
        (self.has_run, self.is_behind_discard) = (false, false);
        self.end.is_told = false;
        let mut answered = self.replies.pop();
        // One of Sluice's own stands amid the client's batch.
        self.is_failure_told &= matches!(answered, Some(Expected::OwnSync(_)));
        self.turns.answered();
        match &mut answered {
            Some(Expected::Query { resets, is_amid, .. }) => {
                self.stop_copying();
                self.has_discarded = false;
                let is_block = self.turns.last() == Some(TransactionStatus::InTransaction);
                let is_open = *is_amid && status == TransactionStatus::InTransaction && !is_block;
                self.implicit.told(is_open, resets);
                if is_open && self.is_closed() && !self.replies.end_requests() {
                    // The batch goes on.
                    self.extend_batch(Batch::Runs);
                }
            }
            Some(Expected::Sync(resets)) => {
                self.stop_copying();
                self.has_discarded = false;
                self.implicit.told(false, resets);
            }
            Some(Expected::OwnSync(resets)) => {
                self.hold = Hold::None;
                self.has_discarded &= resets.is_none();
            }
            _ => {}
        }
        self.told_status();
        answered
    }

    /// The server has told the transaction's status.
    fn told_status(&mut self) {
        if !self.replies.decide_status() && self.is_closed() {
            self.turns.forget();
        }
        if self.owes() || !self.is_closed() {
            return;
        }
        // What might have ended the block has not, or has begun the next one.
        self.end = End::default();
        // The transaction has ended, and all portals with it.
        if self.status == TransactionStatus::Idle {
            self.left = Left::Nothing;
            self.turns.close_all();
            self.batch_resets.close_all();
            self.forget_bound_copies();
        }
    }

    /// An error has come: a COPY ends with it.
    pub fn stop_copying(&mut self) {
        if let State::Copying(batch) = self.state {
            self.state = State::Ready(batch);
        }
    }

    /// An error has come to a batch, and is taken out of the queue: the next one that the server skips because of it.
    pub fn skipped(&mut self) -> Option<Expected> {
        self.replies.pop_skipped()
    }

    /// An error has come to a batch of nothing but Sluice's own: what is left of it is its end.
    pub fn fail_own_batch(&mut self) {
        self.replies.pop_own_batch();
    }

    /// The shape is known that a Bind waits for, or never will be; returns whether one waited.
    pub fn stop_learning(&mut self) -> bool {
        let learnt = self.hold == Hold::Shape;
        if learnt {
            self.hold = Hold::None;
        }
        learnt
    }

    /// Called when an answer has been handled; returns whether that has ended a client's wait.
    #[inline]
    pub fn ends_wait(&mut self) -> bool {
        if !self.names_open && !self.awaited {
            return false;
        }
        let names_known = self.names_open && !self.replies.has_named();
        let all_answered = self.awaited && (self.is_settled() || self.is_copying());
        self.names_open &= !names_known;
        self.awaited &= !all_answered;
        names_known || all_answered
    }

    fn batch(&self) -> Batch {
        match self.state {
            State::Ready(batch) | State::Copying(batch) => batch,
            State::Skipping => Batch::Runs,
        }
    }

    fn extend_batch(&mut self, to: Batch) {
        if let State::Ready(batch) | State::Copying(batch) = &mut self.state {
            *batch = to.max(*batch);
        }
    }

    fn close_batch(&mut self) {
        debug_assert_ne!(self.state, State::Skipping, "nothing but a Sync goes to a server that skips");
        if let State::Ready(batch) | State::Copying(batch) = &mut self.state {
            *batch = Batch::Closed;
        }
    }

    fn hold_for(&mut self, hold: Hold) {
        debug_assert_eq!(self.hold, Hold::None, "a client that is held sends nothing to be held for");
        self.hold = hold;
    }
}

/// Whether a message may speak of a prepared statement by its name.
fn names_statements(kind: FrontendKind) -> bool {
    matches!(
        kind,
        FrontendKind::Parse | FrontendKind::Bind | FrontendKind::Describe | FrontendKind::Close | FrontendKind::Query
    )
}

/// Whether a message is part of a COPY: a server that reads one gives no answer before it has it.
pub fn is_of_copy(kind: FrontendKind) -> bool {
    matches!(kind, FrontendKind::CopyData | FrontendKind::CopyDone | FrontendKind::CopyFail)
}
