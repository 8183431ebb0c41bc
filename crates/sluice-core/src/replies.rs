//! The answers that a server still owes: one entry for each message sent to it that it will answer, in order, and what
//! Sluice itself puts between the answers.

mod expected;

use std::{collections::VecDeque, sync::Arc};

use sluice_wire::message::{BIND_COMPLETE, CLOSE_COMPLETE, NO_DATA, PARSE_COMPLETE};

use crate::{
    amended::Amended,
    sql::Reset,
    statement::{NameTag, Statement, StatementId, Unnamed},
};

pub use expected::{By, Called, DescribedAs, Expected, Given, LearnFor, Local, Own, ParseSent, Portal, SentFor, Taken};

/// The answers a server owes, the next one first.
#[derive(Debug, Default)]
pub struct Replies {
    queue: VecDeque<Expected>,
    /// The number of those that would change what a name means if they failed or were skipped: a client's, or a shared
    /// one.
    named: usize,
    /// The number of those that reset settings.
    resetting: usize,
    /// The number of those that give the client its unnamed statement.
    unnamed: usize,
    /// The bytes of Sluice's own messages among them.
    own_bytes: usize,
    /// The number of those that decide the transaction's status.
    deciding: usize,
    /// The number of those that are ends of COPYs.
    ends: usize,
}

impl Replies {
    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether all that is owed is to Sluice itself.
    pub fn are_own(&self) -> bool {
        self.queue.iter().all(|expected| matches!(expected, Expected::Own(_)))
    }

    /// Whether something is owed to the client, or belongs to what it has asked for.
    pub fn have_clients(&self) -> bool {
        self.queue.iter().any(|expected| !matches!(expected, Expected::Own(_)) && !expected.is_of_own_batch())
    }

    /// Whether a query of Sluice's own is owed, beside one ahead of all else that reports the client's address.
    pub fn have_own_beside_address(&self) -> bool {
        let mut behind = self.queue.iter().skip_while(|expected| expected.reports_address());
        behind.any(|expected| matches!(expected, Expected::Own(_)))
    }

    /// Whether the next one is to a report of the client's address.
    pub fn report_address_next(&self) -> bool {
        self.queue.front().is_some_and(Expected::reports_address)
    }

    /// The number of the client's requests that have been sent to their ends.
    pub fn client_requests(&self) -> usize {
        self.queue.iter().filter(|expected| expected.ends_client_request()).count()
    }

    /// The messages with which the server answers what stands ahead of a block's end, if that, the end and its request are
    /// all that is owed, and none of them can fail; else `None`. What is described is known to have no rows.
    pub fn ahead_of_end(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue.iter();
        let (mut ahead, mut bound) = (Vec::new(), None);
        loop {
            match queue.next()? {
                Expected::Query { amended: None, .. } => break,
                Expected::Execute { portal, .. } => {
                    let is_ends = bound.is_none_or(|bound| bound == portal);
                    if !is_ends || !matches!(queue.next(), Some(Expected::Sync(_))) {
                        return None;
                    }
                    break;
                }
                Expected::Parse(sent) if sent.ends_block() => ahead.extend(PARSE_COMPLETE),
                // The last one by that name is the one that is run; another name may be taken.
                Expected::Bind(_, portal @ Portal::Unnamed) if bound.is_none() => {
                    bound = Some(portal);
                    ahead.extend(BIND_COMPLETE);
                }
                Expected::Describe(..) => ahead.extend(NO_DATA),
                Expected::Close(_) | Expected::Evict(_) | Expected::OwnClose => ahead.extend(CLOSE_COMPLETE),
                Expected::Local(_) => {}
                _ => return None,
            }
        }
        queue.next().is_none().then_some(ahead)
    }

    /// Whether a BEGIN of the pool's is among what is owed.
    pub fn begin_block(&self) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Begin(_)))
    }

    /// Takes a batch out that begins here, up to its end, if that is of nothing but Sluice's own.
    pub fn pop_own_batch(&mut self) {
        if let Some(steps) = self.own_batch() {
            self.queue.drain(..steps);
        }
    }

    /// Whether a batch of nothing but Sluice's own begins here.
    pub fn begin_own_batch(&self) -> bool {
        self.own_batch().is_some()
    }

    /// The number of answers before the end of a batch that begins here, if that is of nothing but Sluice's own.
    fn own_batch(&self) -> Option<usize> {
        let steps = self.queue.iter().take_while(|expected| expected.is_of_own_batch()).count();
        let ends_own = matches!(self.queue.get(steps), Some(Expected::Own(Own::Settings | Own::Sequences)));
        ends_own.then_some(steps)
    }

    /// Whether the next one is to Sluice itself, and holds the client.
    pub fn is_own_next(&self) -> bool {
        let Some(Expected::Own(own)) = self.queue.front() else { return false };
        use Own::{Names, Outcome, Prepare, Probe, Replayed, Sequences, Settings};
        matches!(own, Settings | Probe | Names | Sequences | Prepare | Outcome | Replayed)
    }

    /// Whether something is owed, and is to what puts a client's settings in place, or says what a log-in is told.
    pub fn are_for_settings(&self) -> bool {
        let is_one =
            |expected: &Expected| matches!(expected, Expected::Own(Own::Settings | Own::Sequences | Own::Recovery));
        self.queue.iter().any(is_one)
            && !self.queue.iter().any(|expected| matches!(expected, Expected::Own(Own::Probe | Own::Names)))
    }

    /// Whether any of them is to something that runs, and so may open or end a transaction.
    pub fn runs(&self) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Query { .. } | Expected::Execute { .. }))
    }

    /// Whether something is owed beside a BEGIN of the pool's.
    pub fn have_more_than_begin(&self) -> bool {
        self.queue.iter().any(|expected| !matches!(expected, Expected::Begin(_) | Expected::OwnClose))
    }

    /// Whether the next one is that to a client's Sync, with nothing ahead of it.
    pub fn is_sync_next(&self) -> bool {
        matches!(self.queue.front(), Some(Expected::Sync(_)))
    }

    /// Whether any of them ends a client's request, with ReadyForQuery.
    pub fn end_requests(&self) -> bool {
        self.queue.iter().any(Expected::ends_client_request)
    }

    /// The number of those to a ReadyForQuery.
    pub fn requests(&self) -> usize {
        self.queue.iter().filter(|expected| expected.is_request()).count()
    }

    /// Whether settings are being reset: they are not in place before that is answered.
    pub fn are_resetting(&self) -> bool {
        self.resetting > 0
    }

    /// The settings that the Query or the batch resets that is being answered.
    pub fn resets(&self) -> Option<&Reset> {
        match self.queue.front()? {
            Expected::Query { resets, .. } | Expected::Sync(resets) | Expected::OwnSync(resets) => resets.as_deref(),
            _ => None,
        }
    }

    /// The commands that were added to the Query that is being answered.
    pub fn amended(&self) -> Option<&Amended> {
        match self.queue.front()? {
            Expected::Query { amended, .. } => amended.as_deref(),
            _ => None,
        }
    }

    /// A command of the Query that is being answered has come to its end; returns whether the client sees it.
    pub fn complete(&mut self, tag: &[u8]) -> bool {
        match self.queue.front_mut() {
            Some(Expected::Query { amended: Some(amended), .. }) => amended.complete(tag),
            _ => true,
        }
    }

    /// Notes that what is being answered has reset settings, as far as it was not known, or resets none.
    /// Returns whether the end of it has been sent.
    pub fn set_resets(&mut self, now: Option<Reset>) -> bool {
        let Some(resets) = self.queue.iter_mut().find_map(Expected::resets_mut) else { return false };
        self.resetting -= usize::from(resets.is_some());
        *resets = now.map(|now| resets.take().unwrap_or_else(|| now.into()));
        self.resetting += usize::from(resets.is_some());
        true
    }

    /// Whether answers that are still to come decide if a transaction is open, or has failed: they have run something,
    /// or end a batch that has.
    pub fn decide_status(&self) -> bool {
        self.deciding > 0
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The bytes of Sluice's own messages among them.
    pub fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Whether it is still open what a name means.
    pub fn has_named(&self) -> bool {
        self.named > 0
    }

    /// Whether the unnamed statement of that turn came before a Sync whose answer is still to come: until then it is
    /// open whether the client has it.
    pub fn gives_before_sync(&self, turn: u32) -> bool {
        let mut is_before = false;
        let from_behind = self.queue.iter().rev().filter(|_| self.unnamed > 0);
        for expected in from_behind {
            if expected.unnamed_turn() == Some(turn) {
                return is_before;
            }
            is_before |= matches!(expected, Expected::Sync(_) | Expected::OwnSync(_));
        }
        false
    }

    /// The statement that the last Parse under way gives to a name that is lent.
    pub fn given_to_lent(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.queue.iter().rev().find_map(|expected| match expected {
            Expected::Parse(sent) => match &sent.by {
                By::Lent(lent) if **lent == *name => sent.statement.as_ref(),
                _ => None,
            },
            _ => None,
        })
    }

    /// Whether a Close of that shared statement is among them.
    pub fn closes(&self, id: StatementId) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Evict(evicted) if evicted.id == id))
    }

    /// Whether all that stands for that statement is uses of it, by that one of its client's names.
    pub fn only_use(&self, id: StatementId, by: NameTag) -> bool {
        self.queue.iter().all(|expected| match expected {
            Expected::Bind(Some(called), _) | Expected::Describe(Some(called), _) => {
                called.statement.id != id || called.by == by
            }
            Expected::Parse(sent) => sent.statement.as_ref().is_none_or(|statement| statement.id != id),
            Expected::Learn(statement, _) => statement.id != id,
            Expected::Evict(evicted) => evicted.id != id,
            _ => true,
        })
    }

    /// Whether a statement is being described for the pool itself.
    pub fn learn(&self, id: StatementId) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Learn(statement, _) if statement.id == id))
    }

    /// The client has another statement in place of one that it had by that name, of which nothing has been told yet.
    pub fn supersede(&mut self, old: StatementId, by: NameTag, new: &Arc<Statement>, name: Option<&[u8]>) {
        for expected in &mut self.queue {
            match expected {
                Expected::Bind(Some(called), _) if called.is(old, by) => called.statement = new.clone(),
                Expected::Describe(Some(called), described_as) if called.is(old, by) => {
                    called.statement = new.clone();
                    *described_as = name.map(|name| DescribedAs(name.into()));
                }
                Expected::Learn(statement, LearnFor::Parse(described_as))
                    if statement.id == old && described_as.by() == by =>
                {
                    *statement = new.clone();
                }
                _ => {}
            }
        }
    }

    /// An unnamed statement was never there: what a later one would bring back is what was there before it.
    pub fn correct_unnamed(&mut self, turn: u32, before: Option<&Unnamed>) {
        for expected in self.queue.iter_mut().filter(|_| self.unnamed > 0) {
            if let Some(Given::Unnamed(_, known)) = expected.given_mut()
                && known.as_ref().is_some_and(|known| known.turn == turn)
            {
                *known = before.cloned();
            }
        }
    }

    /// One more, behind the others.
    pub fn push(&mut self, expected: Expected) {
        if let (Some(Expected::CopyEnd(ends)), Expected::CopyEnd(more)) = (self.queue.back_mut(), &expected) {
            *ends = ends.saturating_add(*more);
            return;
        }
        self.count(&expected);
        self.queue.push_back(expected);
    }

    /// One more, before the others.
    pub fn push_front(&mut self, expected: Expected) {
        self.count(&expected);
        self.queue.push_front(expected);
    }

    #[inline]
    fn count(&mut self, expected: &Expected) {
        match expected {
            // Nearly all of them are one of these.
            Expected::Bind(..) | Expected::Describe(..) => {}
            Expected::Execute { .. } | Expected::Sync(None) => self.deciding += 1,
            _ => self.count_other(expected),
        }
    }

    fn count_other(&mut self, expected: &Expected) {
        self.named += usize::from(expected.is_named());
        self.resetting += usize::from(expected.is_resetting());
        self.unnamed += usize::from(expected.unnamed_turn().is_some());
        self.own_bytes += expected.own_bytes();
        self.deciding += usize::from(expected.decides_status());
        self.ends += usize::from(matches!(expected, Expected::CopyEnd(_)));
    }

    /// The next one.
    pub fn front(&self) -> Option<&Expected> {
        self.queue.front()
    }

    /// The last one.
    pub fn back(&self) -> Option<&Expected> {
        self.queue.back()
    }

    /// The next one has come.
    pub fn pop(&mut self) -> Option<Expected> {
        let expected = self.queue.pop_front()?;
        match &expected {
            // As in `count`.
            Expected::Bind(..) | Expected::Describe(..) => {}
            Expected::Execute { .. } | Expected::Sync(None) => self.deciding -= 1,
            _ => self.count_out(&expected),
        }
        Some(expected)
    }

    fn count_out(&mut self, expected: &Expected) {
        self.named -= usize::from(expected.is_named());
        self.resetting -= usize::from(expected.is_resetting());
        self.unnamed -= usize::from(expected.unnamed_turn().is_some());
        self.own_bytes -= expected.own_bytes();
        self.deciding -= usize::from(expected.decides_status());
        self.ends -= usize::from(matches!(expected, Expected::CopyEnd(_)));
    }

    /// The next one, if nothing more will come from the server for it.
    #[inline]
    pub fn pop_settled(&mut self) -> Option<Expected> {
        match self.queue.front() {
            Some(Expected::Local(_) | Expected::CopyEnd(_)) => self.pop(),
            _ => None,
        }
    }

    /// After an error in the extended protocol: the next one that the server skips because of it, until a Sync.
    pub fn pop_skipped(&mut self) -> Option<Expected> {
        match self.queue.front() {
            None | Some(Expected::Sync(_) | Expected::OwnSync(_) | Expected::Own(_)) => None,
            Some(_) => self.pop(),
        }
    }

    /// Whether what is being answered may be a COPY that the server reads: nothing stands behind it but what belongs to
    /// one.
    pub fn may_copy(&self) -> bool {
        // Behind its client's end stands what fails, too.
        let belongs =
            |e: &Expected| matches!(e, Expected::Sync(_) | Expected::CopyEnd(_) | Expected::Describe(None, None));
        self.queue.iter().skip(1).all(belongs)
    }

    /// Whether the end of a COPY stands among them that has not begun.
    pub fn has_copy_end(&self) -> bool {
        self.ends > 0
    }

    /// The server has begun to read a COPY: it ignores each Sync up to the COPY's end (PostgreSQL documentation, 55.2.6).
    pub fn begin_copy_in(&mut self) -> CopyBegun {
        let end = self.queue.iter().position(|e| matches!(e, Expected::CopyEnd(_)));
        let upto = end.unwrap_or(self.queue.len());
        let (mut place, mut ignored) = (0, Vec::new());
        self.queue.retain_mut(|expected| {
            place += 1;
            match expected {
                Expected::Sync(resets) if place <= upto => {
                    ignored.push(resets.take().map(|resets| *resets));
                    false
                }
                // This one has had its end.
                Expected::CopyEnd(ends) if Some(place - 1) == end => {
                    *ends -= 1;
                    *ends > 0
                }
                _ => true,
            }
        });
        self.resetting = self.queue.iter().filter(|expected| expected.is_resetting()).count();
        self.deciding = self.queue.iter().filter(|expected| expected.decides_status()).count();
        self.ends = self.queue.iter().filter(|expected| matches!(expected, Expected::CopyEnd(_))).count();
        let is_behind = |e: &Expected| matches!(e, Expected::Sync(_));
        CopyBegun { has_ended: end.is_some(), ignored, has_sync: self.queue.iter().any(is_behind) }
    }
}

/// The beginning of a COPY, by what the client had sent already.
#[derive(Debug)]
pub struct CopyBegun {
    /// Whether its end was among it.
    pub has_ended: bool,
    /// The settings that each Sync was to reset which the server ignores.
    pub ignored: Vec<Option<Reset>>,
    /// Whether there is a Sync that it does not ignore.
    pub has_sync: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_answer_is_small() {
        assert!(size_of::<Expected>() <= 40, "{}", size_of::<Expected>());
    }

    #[test]
    fn ends_of_copies_are_counted() {
        let mut replies = Replies::default();
        replies.push(Expected::Execute { portal: Portal::Unnamed, rows_max: 0 });
        (0..1000).for_each(|_| replies.push(Expected::CopyEnd(1)));
        replies.push(Expected::Sync(None));
        assert_eq!(replies.len(), 3);
        for _ in 0..1000 {
            let CopyBegun { has_ended, ignored, has_sync } = replies.begin_copy_in();
            assert_eq!((has_ended, ignored.len(), has_sync), (true, 0, true));
        }
        let CopyBegun { has_ended, ignored, has_sync } = replies.begin_copy_in();
        assert_eq!((has_ended, ignored.len(), has_sync, replies.len()), (false, 1, false, 1));
    }
}
