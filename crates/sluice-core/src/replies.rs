//! The answers that a server still owes: one entry for each message sent to it that it will answer, in order, and what
//! Sluice itself puts between the answers.

use std::{collections::VecDeque, sync::Arc};

use sluice_wire::ErrorResponse;

use crate::{
    amended::Amended,
    sql::{Begin, Reset},
    statement::{OnServer, Prepared, Statement, StatementId, Unnamed},
};

/// An answer that is still to come. Small, since each is moved into a queue and out of it: what is large and rare stands
/// elsewhere.
#[derive(Debug)]
pub enum Expected {
    /// To a Query or FunctionCall: anything, then ReadyForQuery.
    Query {
        /// Whether it takes all names away: what they mean behind it is open until it is answered.
        clears: bool,
        /// The settings that it resets.
        resets: Option<Box<Reset>>,
        /// The commands that were added to its text.
        amended: Option<Box<Amended>>,
    },
    /// To a Sync: ReadyForQuery. With the settings that its batch resets.
    Sync(Option<Box<Reset>>),
    /// To a Sync of Sluice's own, in place of a client's Flush: the client never sees the answer.
    OwnSync,
    /// To a Parse.
    Parse(Box<ParseSent>),
    /// To a Bind, of a shared statement or of one the server alone knows.
    Bind(Option<Arc<Statement>>),
    /// To a Bind of a stand-in for the statement that the client knows by that name.
    BindStandIn(Box<[u8]>),
    /// To a Describe of a statement or portal.
    Describe(Option<Arc<Statement>>, Option<DescribedAs>),
    /// To a Describe of Sluice's own, of a shared statement: the client never sees the answer.
    Learn(Arc<Statement>, LearnFor),
    /// To a message that makes no sense, or speaks of a statement that is not there: an error.
    Fault,
    /// To an Execute.
    Execute,
    /// To a client's Close; of a statement whose name is lent, if one stands here.
    Close(Option<Box<[u8]>>),
    /// To a Close of a shared statement that had to make room: the client never sees the answer.
    Evict(OnServer),
    /// To a Close of Sluice's own, of an unnamed portal or statement: the client never sees the answer.
    OwnClose,
    /// To a Parse, Bind or Execute of Sluice's own, which switches settings within a batch: the client sees nothing of
    /// it.
    Switch,
    /// Nothing comes from the server: when its turn comes, the client gets this.
    Local(Box<Local>),
    /// Nothing comes: here the client ended so many COPYs, which the server may not have begun.
    CopyEnd(u32),
    /// An error that Sluice provoked, to be replaced by this one.
    Refused(Box<ErrorResponse>),
    /// To a Query of Sluice's own: the client sees nothing of it.
    Own(Own),
    /// To a Parse, Bind or Execute of a BEGIN that the client was told of before; it sees nothing of it.
    Begin(Begin),
    /// An error that Sluice provoked, and that the client was told of before.
    Failure,
}

/// The client's message for which a statement is described.
#[derive(Debug)]
pub enum LearnFor {
    /// Its Parse by that name, which has been sent.
    Parse(DescribedAs),
    /// A Describe, which waits for the answer.
    Describe,
    /// Another one that waits for it.
    Use,
}

/// The client's name of a statement that is described, empty for the unnamed one.
#[derive(Debug)]
pub struct DescribedAs(pub Box<[u8]>);

/// A Parse on its way.
#[derive(Debug)]
pub struct ParseSent {
    /// The statement; `None` where statements are not followed.
    pub statement: Option<Arc<Statement>>,
    /// The name that it is sent by.
    pub by: By,
    /// The client's message for which it is sent.
    pub sent_for: SentFor,
    /// The name that the client has by it, unless it fails.
    pub given: Option<Given>,
    /// The name in the client's Parse, where it was sent by another one that is not its own.
    pub again: Option<Box<[u8]>>,
}

impl ParseSent {
    /// One of Sluice's own, of a shared statement.
    pub fn own(statement: Arc<Statement>, sent_for: SentFor) -> Self {
        Self { statement: Some(statement), by: By::Shared, ..Self::unfollowed(sent_for) }
    }

    /// The client's own, of a shared statement.
    pub fn asked(statement: Arc<Statement>, given: Given) -> Self {
        Self { given: Some(given), ..Self::own(statement, SentFor::Parse) }
    }

    /// One that makes nothing which is followed.
    pub fn unfollowed(sent_for: SentFor) -> Self {
        Self { statement: None, by: By::None, sent_for, given: None, again: None }
    }

    /// Whether the client asked for it and gets the answer.
    pub fn is_asked(&self) -> bool {
        self.sent_for == SentFor::Parse
    }
}

/// The client's message for which a Parse is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentFor {
    /// Its Parse: it gets the answer.
    Parse,
    /// A Describe, which tells the parameters' types before all that may fail.
    Describe,
    /// Another one that uses the statement.
    Use,
}

/// The name that a statement is sent by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// None, or one that is not followed.
    None,
    /// Its shared one.
    Shared,
    /// The client's own, which is lent to the server.
    Lent(Box<[u8]>),
}

/// The name that a Parse gives the client, and its failure takes away.
#[derive(Debug)]
pub enum Given {
    /// A name.
    Name(Box<[u8]>),
    /// The unnamed statement, by its [turn](crate::statement::Unnamed::turn): a later one stays. And the one that was
    /// there before, which is there again if the Parse was skipped.
    Unnamed(u32, Option<Unnamed>),
}

/// An answer that Sluice gives by itself, in its place among the server's.
#[derive(Debug)]
pub enum Local {
    /// ParseComplete of a statement that is known; an error before its turn undoes what it gave.
    ParseComplete(Given),
    /// CloseComplete of a shared statement; an error before its turn brings the name back.
    CloseComplete(Option<Taken>),
    /// Some other message, whole; an error before its turn brings the name back that it took.
    Message(Box<[u8]>, Option<Taken>),
}

/// A client's name that was taken away, and what it meant.
pub type Taken = (Box<[u8]>, Prepared);

/// Sluice's own queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Brings the server to a client's settings.
    Settings,
    /// Asks what the session holds.
    Probe,
    /// Stands for the Sync behind statements that are prepared or closed apart from what the client sends.
    Prepare,
    /// Asks which of the names that are lent have statements of the protocol.
    Names,
    /// Takes away what sequences gave to others.
    Sequences,
    /// Ends a transaction that a client left open.
    Rollback,
    /// Removes what a client left behind in the session.
    Reset,
    /// Asks whether DISCARD ALL may have left something in the session, or a new one would have more.
    Remains,
    /// Asks for the function to which clients' addresses are reported.
    FindAddressFunction,
    /// Reports a client's address to it.
    ReportAddress,
}

impl Own {
    /// Whether the server is of use without it.
    pub fn is_optional(self) -> bool {
        match self {
            Self::FindAddressFunction | Self::ReportAddress => true,
            Self::Settings | Self::Probe | Self::Sequences | Self::Rollback | Self::Reset => false,
            Self::Prepare | Self::Names | Self::Remains => false,
        }
    }
}

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
}

impl Expected {
    /// The turn of the unnamed statement that it gives.
    fn unnamed_turn(&self) -> Option<u32> {
        match self.given()? {
            Given::Unnamed(turn, _) => Some(*turn),
            Given::Name(_) => None,
        }
    }

    /// The name that it gives the client.
    fn given(&self) -> Option<&Given> {
        match self {
            Self::Parse(sent) => sent.given.as_ref(),
            Self::Local(local) => match &**local {
                Local::ParseComplete(given) => Some(given),
                _ => None,
            },
            _ => None,
        }
    }

    fn given_mut(&mut self) -> Option<&mut Given> {
        match self {
            Self::Parse(sent) => sent.given.as_mut(),
            Self::Local(local) => match &mut **local {
                Local::ParseComplete(given) => Some(given),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is to a message of Sluice's own that other ones end.
    fn is_of_own_batch(&self) -> bool {
        matches!(self, Self::Switch | Self::OwnClose)
    }

    /// The settings that a Query or a batch resets, which its ReadyForQuery ends.
    fn resets_mut(&mut self) -> Option<&mut Option<Box<Reset>>> {
        match self {
            Self::Query { resets, .. } | Self::Sync(resets) => Some(resets),
            _ => None,
        }
    }

    /// Whether it is to something that has run, or ends a batch that may have.
    fn decides_status(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Execute | Self::Sync(_))
    }

    fn is_resetting(&self) -> bool {
        matches!(self, Self::Query { resets: Some(_), .. } | Self::Sync(Some(_)))
    }

    /// The bytes of a message of Sluice's own.
    fn own_bytes(&self) -> usize {
        match self {
            Self::Local(local) => match &**local {
                Local::Message(bytes, _) => bytes.len(),
                _ => 0,
            },
            _ => 0,
        }
    }

    fn is_named(&self) -> bool {
        match self {
            Self::Parse(sent) => sent.by == By::Shared || matches!(sent.given, Some(Given::Name(_))),
            Self::Evict(_) | Self::Query { clears: true, .. } => true,
            Self::Local(local) => matches!(
                **local,
                Local::ParseComplete(Given::Name(_)) | Local::CloseComplete(Some(_)) | Local::Message(_, Some(_))
            ),
            _ => false,
        }
    }
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
        matches!(own, Own::Settings | Own::Probe | Own::Names | Own::Sequences | Own::Prepare)
    }

    /// Whether something is owed, and is to what puts a client's settings in place.
    pub fn are_for_settings(&self) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Own(Own::Settings | Own::Sequences)))
            && !self.queue.iter().any(|expected| matches!(expected, Expected::Own(Own::Probe | Own::Names)))
    }

    /// Whether any of them is to something that runs, and so may open or end a transaction.
    pub fn runs(&self) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Query { .. } | Expected::Execute))
    }

    /// Whether something is owed beside a BEGIN of the pool's.
    pub fn have_more_than_begin(&self) -> bool {
        self.queue.iter().any(|expected| !matches!(expected, Expected::Begin(_) | Expected::OwnClose))
    }

    /// Whether any of them ends a client's request, with ReadyForQuery.
    pub fn end_requests(&self) -> bool {
        self.queue.iter().any(|expected| matches!(expected, Expected::Query { .. } | Expected::Sync(_)))
    }

    /// The number of those to a ReadyForQuery.
    pub fn requests(&self) -> usize {
        let ends = |expected: &&Expected| {
            matches!(expected, Expected::Query { .. } | Expected::Sync(_) | Expected::OwnSync | Expected::Own(_))
        };
        self.queue.iter().filter(ends).count()
    }

    /// Whether settings are being reset: they are not in place before that is answered.
    pub fn are_resetting(&self) -> bool {
        self.resetting > 0
    }

    /// The settings that the Query or the batch resets that is being answered.
    pub fn resets(&self) -> Option<&Reset> {
        match self.queue.front()? {
            Expected::Query { resets, .. } | Expected::Sync(resets) => resets.as_deref(),
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
            is_before |= matches!(expected, Expected::Sync(_) | Expected::OwnSync);
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
            Expected::Bind(_) | Expected::Describe(..) => {}
            Expected::Execute | Expected::Sync(None) => self.deciding += 1,
            _ => self.count_other(expected),
        }
    }

    fn count_other(&mut self, expected: &Expected) {
        self.named += usize::from(expected.is_named());
        self.resetting += usize::from(expected.is_resetting());
        self.unnamed += usize::from(expected.unnamed_turn().is_some());
        self.own_bytes += expected.own_bytes();
        self.deciding += usize::from(expected.decides_status());
    }

    /// The next one.
    pub fn front(&self) -> Option<&Expected> {
        self.queue.front()
    }

    /// The next one has come.
    pub fn pop(&mut self) -> Option<Expected> {
        let expected = self.queue.pop_front()?;
        match &expected {
            // As in `count`.
            Expected::Bind(_) | Expected::Describe(..) => {}
            Expected::Execute | Expected::Sync(None) => self.deciding -= 1,
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
            None | Some(Expected::Sync(_) | Expected::OwnSync | Expected::Own(_)) => None,
            Some(_) => self.pop(),
        }
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
        replies.push(Expected::Execute);
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
