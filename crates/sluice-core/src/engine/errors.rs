//! Errors of a server: first what one is, by the message that it answers; then what follows from it.
//!
//! In the extended protocol a server skips all behind an error up to the next Sync. What was noted when those messages
//! were sent is undone, and the client's own messages up to its Sync are dropped here.

use std::sync::Arc;

use sluice_wire::{
    BackendKind, ErrorFields, ErrorResponse,
    message::{self, TransactionStatus},
    sqlstate,
};

use crate::{
    client::Waiting,
    client_address::AddressFunction,
    io::Io,
    replies::{By, Called, Expected, Given, LearnFor, Local, Own, ParseSent, SentFor},
    server::OwnError,
    sql::{Begin, Effects},
    statement::{NameTag, Statement, Unnamed, parameter_description},
};

use super::{
    backend::{OutOfStep, ServerRelay, Verdict},
    healing::{is_missing, is_stale},
    standing_in::STAND_IN,
};

/// An error, by the message that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// A query of Sluice's own that may fail.
    OptionalOwn(Own),
    /// A query of Sluice's own that must not.
    Own(Own),
    /// A BEGIN that Sluice has sent for its client.
    Begin(Begin),
    /// The message by which Sluice has provoked it; the client was told of it before.
    Failure,
    /// Nothing, between transactions: it is no concern of a client's.
    Nothing,
    /// A message that brings its own ReadyForQuery, or nothing: the server skips nothing because of it.
    Whole,
    /// A message of a batch, whose rest the server skips.
    Batch,
}

/// The server's state when an error comes.
#[derive(Debug, Clone, Copy)]
struct Standing {
    status: TransactionStatus,
    /// Whether the error ends the connection.
    is_end: bool,
    /// Whether nothing is open on a server that is shared.
    is_at_rest: bool,
    /// Whether the server has refused the BEGIN before what it answers now.
    begin_refused: bool,
    /// Whether a batch is open.
    is_amid_batch: bool,
}

impl Answers {
    fn of(front: Option<&Expected>, standing: Standing) -> Self {
        let Standing { status, is_end, is_at_rest, .. } = standing;
        match front {
            Some(Expected::Own(own)) => {
                // What was set within a transaction that has failed goes with it.
                let goes_anyway = *own == Own::Settings && status == TransactionStatus::Failed;
                if !is_end && (own.is_optional() || goes_anyway) { Self::OptionalOwn(*own) } else { Self::Own(*own) }
            }
            Some(Expected::Begin(begin)) if !is_end => Self::Begin(*begin),
            Some(Expected::Failure) if !is_end => Self::Failure,
            None if is_at_rest => Self::Nothing,
            front => Self::of_client(front, standing.begin_refused, standing.is_amid_batch),
        }
    }

    /// The error is for the client, if there is one.
    fn of_client(front: Option<&Expected>, begin_refused: bool, is_amid_batch: bool) -> Self {
        match front {
            // The Sync that the server skips up to is still to come, whatever comes first.
            _ if begin_refused => Self::Batch,
            // A time-out between two messages of it.
            None if is_amid_batch => Self::Batch,
            None | Some(Expected::Query { .. } | Expected::Sync(_) | Expected::OwnSync(_)) => Self::Whole,
            Some(_) => Self::Batch,
        }
    }
}

/// The error that a client hears when a message of its batch fails.
#[derive(Debug, Clone)]
enum Hears {
    /// The server's own.
    TheServers,
    /// The same, of a shared statement that is of no use any more.
    Stale(Arc<Statement>),
    /// Another one, which the server's was provoked for.
    Instead(Box<ErrorResponse>),
}

impl Hears {
    fn of(failed: Option<&Expected>, body: &[u8], is_end: bool) -> Self {
        match failed {
            Some(Expected::Refused(error)) if !is_end => Self::Instead(error.clone()),
            Some(
                Expected::Bind(Some(Called { statement, .. }), _)
                | Expected::Describe(Some(Called { statement, .. }), _)
                | Expected::Learn(statement, _),
            ) if is_stale(body) => Self::Stale(statement.clone()),
            _ => Self::TheServers,
        }
    }
}

/// Whether an error ends the connection.
pub(super) fn is_end(error: &[u8]) -> bool {
    matches!(ErrorFields(error).get(b'V'), Some(b"FATAL" | b"PANIC"))
}

/// Whether an error says that the server, or this process of its, was told to end.
fn is_shutdown(error: &[u8]) -> bool {
    matches!(ErrorFields(error).get(b'C'), Some(b"57P01" | b"57P02"))
}

/// Whether a time-out, or somebody's cancel, has ended a query.
fn is_timed_out(error: &[u8]) -> bool {
    ErrorFields(error).get(b'C') == Some(sqlstate::QUERY_CANCELED.as_bytes())
}

impl<I: Io> ServerRelay<'_, I> {
    /// An ErrorResponse has come.
    pub(super) fn error(&mut self, body: &[u8]) -> Result<Verdict, OutOfStep> {
        let is_end = is_end(body);
        if is_end && is_shutdown(body) && self.client.is_some() && self.server.outlasts_loss() {
            // When the connection has ended, the client hears what that means for it.
            return Ok(Verdict::Swallow);
        }
        let exchange = &mut self.server.exchange;
        exchange.stop_copying();
        exchange.fail_own_batch();
        let begin_refused = exchange.begin().is_refused();
        let standing = Standing {
            status: exchange.reported_status(),
            is_end,
            // The end of a server that its client keeps is that of the session.
            is_at_rest: self.server.follows_statements()
                && (self.server.is_at_rest() || self.server.is_ready())
                && !self.server.session.told_pins().are_lasting(),
            begin_refused,
            is_amid_batch: self.server.exchange.has_open_batch(),
        };
        let mut answers = Answers::of(self.server.exchange.replies().front(), standing);
        if let Answers::Begin(begin) = answers {
            if let Some(verdict) = self.begin_refused(begin) {
                return Ok(verdict);
            }
            let begin_refused = self.server.exchange.begin().is_refused();
            answers = Answers::of_client(
                self.server.exchange.replies().front(),
                begin_refused,
                self.server.exchange.has_open_batch(),
            );
        }
        Ok(match answers {
            Answers::OptionalOwn(own) => {
                if own == Own::ReportAddress {
                    // The function was there before: it may be again, as another one.
                    self.server.address_function = AddressFunction::Unknown;
                    self.server.is_worn |= self.server.shows_client;
                }
                Verdict::Swallow
            }
            Answers::Own(Own::Probe) if !is_end && self.server.session.probe_fails(is_timed_out(body)) => {
                Verdict::Swallow
            }
            Answers::Own(own) => {
                let error = ErrorResponse::from_body(body);
                // Settings can be put in place again. Where something else has failed as well, that counts.
                if own != Own::Settings || self.server.own_error.is_none() {
                    self.server.own_error = Some(Box::new(OwnError { own, error }));
                }
                if !matches!(own, Own::Settings | Own::Sequences) {
                    self.server.session.add_effects(Effects::STATE);
                }
                Verdict::Swallow
            }
            Answers::Failure => {
                self.server.exchange.answered();
                Verdict::Swallow
            }
            // Nobody gets it any more, though the connection's end may be a while in coming.
            // Nor is the next message to go there.
            Answers::Nothing
                if is_end && (self.client.is_none() || self.server.kept.is_some() || self.server.is_ready()) =>
            {
                // What stands before it in the same bytes is its client's.
                self.flush();
                return Err(OutOfStep("it has ended the session"));
            }
            Answers::Nothing => Verdict::Swallow,
            // ReadyForQuery follows, or the end of the connection.
            Answers::Whole => {
                self.note_failure(is_end);
                if !is_end {
                    self.server.exchange.tell_failure();
                }
                self.in_clients_places(BackendKind::ErrorResponse, body)
            }
            Answers::Batch | Answers::Begin(_) => {
                self.note_failure(is_end);
                self.batch_error(body, is_end)
            }
        })
    }

    /// A client's request has failed.
    fn note_failure(&mut self, is_end: bool) {
        self.server.said_why |= is_end && self.client.is_some();
        self.server.sequences.fail();
        // Nothing is reset where that fails, and what was is again what it was before.
        self.resumes |= self.server.exchange.replies().are_resetting();
        self.server.exchange.note_failure();
    }

    /// A message of a batch has failed, and the server skips what is behind it.
    fn batch_error(&mut self, body: &[u8], is_end: bool) -> Verdict {
        if !is_end && self.begin_healing(body) {
            return Verdict::Swallow;
        }
        if !is_end {
            self.server.exchange.tell_failure();
        }
        self.server.sequences.end_batch(true);
        let is_told = self.tell_parameters();
        let failed = self.server.exchange.answered();
        let hears = Hears::of(failed.as_ref(), body, is_end);
        // Where it is not the statement's name that tells: a client may know one by several.
        let name = match &failed {
            Some(Expected::Parse(sent)) => sent.again.clone(),
            Some(Expected::BindStandIn(name)) => Some(name.clone()),
            _ => None,
        };
        if !is_end && !is_told {
            self.describe_parameters(failed.as_ref(), body);
        }
        self.resumes |= self.server.exchange.replay().stop();
        let bound = match &failed {
            Some(Expected::Bind(Some(called), _)) => Some(called.by),
            _ => None,
        };
        let is_unread = failed.as_ref().is_some_and(|failed| is_unread(body, failed));
        self.undo_batch(failed, is_unread);
        let verdict = match hears {
            Hears::TheServers => self.in_clients_words(body, name.as_deref(), bound),
            Hears::Stale(statement) => {
                // Only now: a message that was skipped may have been the one to prepare it again.
                self.drop_stale(&statement, body);
                self.in_clients_words(body, None, bound)
            }
            Hears::Instead(error) => {
                self.flush();
                if let Some((conn, _)) = &self.client {
                    self.io.send(*conn, &error.to_bytes());
                }
                Verdict::Swallow
            }
        };
        self.resumes |= self.server.exchange.skip();
        // Behind a Sync of the client's own a new batch has begun, behind one of Sluice's the old one goes on.
        let ends = match self.server.exchange.replies().front() {
            Some(Expected::Own(_)) => self.query_fails(),
            front => matches!(front, Some(Expected::Sync(_))),
        };
        if let Some((_, session)) = &mut self.client {
            session.skipping = !ends;
            if !ends && self.server.exchange.expected_status() == TransactionStatus::Idle {
                // What it had bound went with the transaction; in a block it is there up to its end.
                session.portal = None;
            }
            session.learnt = false;
            session.renewed = false;
        }
        verdict
    }

    /// A Query waits for what has failed, if there is one: the client hears that error for it. Returns whether there is
    /// one.
    pub(super) fn query_fails(&mut self) -> bool {
        let session = self.client.as_mut().map(|(_, session)| session);
        let next = session.map(|session| &mut session.next).filter(|next| **next == Waiting::ForNames);
        next.map(|next| *next = Waiting::Failed).is_some()
    }

    /// Undoes what was noted of a message that has failed, and of those that the server skips because of it. One
    /// that is unread has left everything as it was, too.
    fn undo_batch(&mut self, failed: Option<Expected>, is_unread: bool) {
        // Backwards, since a later one may have built on an earlier one: a name closed and given again.
        let mut undone: Vec<Expected> = failed.into_iter().collect();
        undone.extend(std::iter::from_fn(|| self.server.exchange.skipped()));
        for (place, expected) in undone.into_iter().enumerate().rev() {
            self.undo(expected, place > 0 || is_unread);
        }
    }

    /// An error names a statement as the server knows it: the client gets it with its own name for it, which is `known`
    /// where a stand-in was used, and the one that it has `bound`, if it has that still.
    fn in_clients_words(&mut self, body: &[u8], known: Option<&[u8]>, bound: Option<NameTag>) -> Verdict {
        let on_server = if known.is_some() { STAND_IN } else { &*self.server.pool.name_prefix };
        let quoted = [b"\"", on_server].concat();
        let start = body.windows(quoted.len()).position(|window| window == quoted).filter(|_| !self.is_cut);
        let Some(start) = start else { return Verdict::Pass };
        let name = body[start + 1..].split(|b| *b == b'"').next().unwrap_or_default();
        let Some((conn, session)) = &self.client else { return Verdict::Pass };
        let Some(own) = known.or_else(|| session.name_of(name, bound)).or(bound.map(|_| &b""[..])) else {
            return Verdict::Pass;
        };
        let words = [&body[..start + 1], own, &body[start + 1 + name.len()..]].concat();
        let conn = *conn;
        let mut message = Vec::with_capacity(words.len() + 5);
        message::framed(&mut message, BackendKind::ErrorResponse, |out| out.extend_from_slice(&words));
        self.flush();
        self.io.send(conn, &message);
        Verdict::Swallow
    }

    fn correct_unnamed(&mut self, corrected: Option<(u32, Option<Unnamed>)>) {
        if let Some((turn, before)) = corrected {
            self.server.exchange.correct_unnamed(turn, before.as_ref());
        }
    }

    /// Tells the client of the parameters of a statement, where something of Sluice's own has failed for a Describe:
    /// that would have described them before it found what has failed.
    fn describe_parameters(&mut self, failed: Option<&Expected>, error: &[u8]) {
        let described = match failed {
            Some(Expected::Parse(sent)) if sent.sent_for == SentFor::Describe => match &sent.statement {
                Some(described) => described,
                None => return,
            },
            Some(Expected::Learn(described, LearnFor::Describe)) => described,
            Some(Expected::Learn(described, _)) if self.is_described_next(described) => described,
            _ => return,
        };
        // This is found before.
        let is_before = is_missing(error) || is_of_failed_transaction(error);
        let Some(types) = described.known_types().filter(|_| !is_before) else { return };
        self.send_parameters(&types);
    }

    /// Sends the client a ParameterDescription.
    pub(super) fn send_parameters(&mut self, types: &[u8]) {
        self.flush();
        if let Some((conn, _)) = &self.client {
            self.io.send(*conn, &parameter_description(types));
        }
    }

    fn is_described_next(&self, statement: &Statement) -> bool {
        let next = self.server.exchange.replies().front();
        matches!(next, Some(Expected::Describe(Some(next), _)) if next.statement.id == statement.id)
    }

    /// Undoes what was noted when a message was sent that the server has refused or skipped.
    fn undo(&mut self, expected: Expected, was_skipped: bool) {
        match expected {
            Expected::Parse(sent) => self.undo_parse(*sent, was_skipped),
            Expected::Evict(gone) => self.server.statements.keep_stale(gone),
            Expected::Local(local) => self.undo_local(*local),
            _ => {}
        }
    }

    fn undo_parse(&mut self, sent: ParseSent, was_skipped: bool) {
        let ParseSent { statement: Some(statement), by, sent_for, given, .. } = sent else { return };
        match by {
            By::Shared => {
                self.server.statements.refused(statement.id);
                statement.refuse();
            }
            // Behind the client's own Parse the server may have another one by that name.
            By::Lent(name) if sent_for != SentFor::Parse => self.server.lent.remove(&name),
            By::Lent(_) => {}
            By::None => self.server.statements.set_unnamed(None),
        }
        self.take_back(given, was_skipped);
    }

    fn undo_local(&mut self, local: Local) {
        match local {
            Local::ParseComplete(given) => self.take_back(Some(given), true),
            Local::CloseComplete(Some((name, prepared))) | Local::Message(_, Some((name, prepared))) => {
                // What the pool has closed by itself was not lent, and a Parse behind that has not lent it either.
                self.server.lent.remove(&name);
                if let Some((_, session)) = &mut self.client {
                    session.names.get_or_insert_default().entry(name).or_insert(prepared);
                }
            }
            _ => {}
        }
    }

    /// Takes back what a Parse gave the client.
    fn take_back(&mut self, given: Option<Given>, was_skipped: bool) {
        if let (Some((_, session)), Some(given)) = (&mut self.client, given) {
            let corrected = session.undo_parse(given, was_skipped);
            self.correct_unnamed(corrected);
        }
    }
}

/// Whether an error says that the transaction has failed before.
fn is_of_failed_transaction(error: &[u8]) -> bool {
    ErrorFields(error).get(b'C') == Some(sqlstate::IN_FAILED_TRANSACTION.as_bytes())
}

/// Whether a Parse has failed because of its encoding, before PostgreSQL looked at anything else (`pq_getmsgstring`):
/// what was there before is still there. An escape in the text may bring the same error later.
fn is_unread(body: &[u8], failed: &Expected) -> bool {
    let Expected::Parse(sent) = failed else { return false };
    let Some(statement) = &sent.statement else { return false };
    let is_of_encoding = matches!(ErrorFields(body).get(b'C'), Some(b"22021" | b"22P05"));
    is_of_encoding && !statement.query().contains(&b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        replies::Portal,
        sql::{Command, command},
    };

    fn begin() -> Begin {
        match command(b"BEGIN") {
            Some(Command::Begin(begin)) => begin,
            _ => panic!("BEGIN begins"),
        }
    }

    const OPEN: Standing = Standing {
        status: TransactionStatus::Idle,
        is_end: false,
        is_at_rest: false,
        begin_refused: false,
        is_amid_batch: false,
    };

    #[test]
    fn an_error_is_known_by_what_it_answers() {
        let ends = Standing { is_end: true, ..OPEN };
        let failed = Standing { status: TransactionStatus::Failed, ..OPEN };
        let rests = Standing { is_at_rest: true, ..OPEN };
        let refused = Standing { begin_refused: true, ..OPEN };
        let amid = Standing { is_amid_batch: true, ..OPEN };
        let query = || Expected::Query { clears: false, resets: None, amended: None, is_amid: false };
        let cases = [
            (None, OPEN, Answers::Whole),
            (None, rests, Answers::Nothing),
            (None, refused, Answers::Batch),
            (None, amid, Answers::Batch),
            (Some(query()), OPEN, Answers::Whole),
            (Some(query()), rests, Answers::Whole),
            (Some(query()), refused, Answers::Batch),
            (Some(Expected::Sync(None)), OPEN, Answers::Whole),
            (Some(Expected::OwnSync(None)), OPEN, Answers::Whole),
            (Some(Expected::OwnSync(None)), refused, Answers::Batch),
            (Some(Expected::Execute { portal: Portal::Unnamed, rows_max: 0 }), OPEN, Answers::Batch),
            (Some(Expected::Bind(None, Portal::Unnamed)), ends, Answers::Batch),
            (Some(Expected::Fault), OPEN, Answers::Batch),
            (Some(Expected::Switch), OPEN, Answers::Batch),
            (Some(Expected::Begin(begin())), OPEN, Answers::Begin(begin())),
            (Some(Expected::Begin(begin())), ends, Answers::Batch),
            (Some(Expected::Failure), OPEN, Answers::Failure),
            (Some(Expected::Failure), ends, Answers::Batch),
            (Some(Expected::Own(Own::ReportAddress)), OPEN, Answers::OptionalOwn(Own::ReportAddress)),
            (Some(Expected::Own(Own::FindAddressFunction)), OPEN, Answers::OptionalOwn(Own::FindAddressFunction)),
            (Some(Expected::Own(Own::ReportAddress)), ends, Answers::Own(Own::ReportAddress)),
            (Some(Expected::Own(Own::Settings)), OPEN, Answers::Own(Own::Settings)),
            (Some(Expected::Own(Own::Settings)), failed, Answers::OptionalOwn(Own::Settings)),
            (Some(Expected::Own(Own::Probe)), failed, Answers::Own(Own::Probe)),
            (Some(Expected::Own(Own::Reset)), rests, Answers::Own(Own::Reset)),
        ];
        for (front, standing, expected) in cases {
            assert_eq!(Answers::of(front.as_ref(), standing), expected, "{front:?}, {standing:?}");
        }
    }

    #[test]
    fn an_error_that_was_provoked_gives_way_to_the_one_it_was_provoked_for() {
        let refused = Expected::Refused(Box::new(ErrorResponse::error("26000", "no such statement")));
        let body = b"SERROR\0VERROR\0C26000\0Mprepared statement does not exist\0\0";
        assert!(matches!(Hears::of(Some(&refused), body, false), Hears::Instead(error) if error.code == "26000"));
        assert!(matches!(Hears::of(Some(&refused), body, true), Hears::TheServers));
        assert!(matches!(Hears::of(Some(&Expected::Bind(None, Portal::Unnamed)), body, false), Hears::TheServers));
    }
}
