//! A client's messages on their way to a server. Bytes that need no change pass by reference; only headers are read.

use sluice_control::settings::PoolMode;
use sluice_wire::{
    ErrorResponse, Frame, FrontendKind,
    message::{FLUSH, PARSE_COMPLETE, SYNC, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Session, Waiting},
    hub::Hub,
    ids::ClientRef,
    io::{Conn, Io},
    replies::{Expected, Local},
    server::{Admission, Server},
    stream::{Fate, Stream},
    time::Time,
};

use super::{
    BACKLOG_HIGH_BYTES,
    broken::{broken_frame, ends_session, never_prepared, unknown_message},
};

/// The messages within which a Sync comes soon, as in a statement's Parse, Bind, Describe, Execute and Sync: for each
/// Parse that is answered here, they are looked at again.
const SOON_MESSAGES: usize = 8;

/// A larger Query passes as it comes, and is taken for one that may do anything, in bytes; but not where only its text
/// can tell what it does.
const WHOLE_QUERY_BYTES_MAX: usize = 32 << 10;

/// The reason why the handling of a client's bytes stopped.
pub(super) enum Stop {
    /// All is handled, or what is left is part of a message.
    Done,
    /// The next message needs a server.
    NeedServer,
    /// The server is busy with something that must end first.
    Hold,
    /// The server has what this client must not find there: it needs another one.
    NeedOther,
    /// The client does not read what it is answered.
    Unread,
    /// The client says goodbye.
    Terminate,
    /// The client broke the protocol, or a limit.
    Broken(ErrorResponse),
}

/// A client's way to leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// It said goodbye: what it asked for before that is done, as PostgreSQL does it.
    Goodbye,
    /// It is gone or sent away: nobody waits for what it asked for.
    Gone,
}

/// One client's bytes on their way.
pub(super) struct ClientRelay<'a, I> {
    pub(super) io: &'a mut I,
    pub(super) client: Conn,
    /// The client's reference.
    pub(super) this: ClientRef,
    pub(super) session: &'a mut Session,
    pub(super) server: Option<&'a mut Server>,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) hub: &'a Hub,
    pub(super) message_bytes_max: usize,
    pub(super) now: Time,
    pub(super) stream: &'a mut Stream,
    pub(super) needed: &'a mut usize,
    pub(super) bytes: &'a [u8],
    /// Whether `bytes` is the driver's chunk, so that stretches of it can be forwarded by reference.
    pub(super) shared: bool,
    pub(super) pos: usize,
    /// The beginning of the stretch that passes unchanged and has not been forwarded yet.
    pub(super) run: usize,
    /// The kind of the last message that was handled; with a server, those of a COPY belong to what has begun it.
    pub(super) last: Option<FrontendKind>,
}

/// The outcome for one message.
pub(super) enum Step {
    /// It is handled.
    Next,
    /// More of it must come first: that many bytes of it, if that is known.
    Incomplete(usize),
    /// See [`Stop`].
    Stop(Stop),
}

/// A message, as far as it has come.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) kind: FrontendKind,
    pub(super) total: usize,
    /// The body, as far as it has come.
    pub(super) body: &'a [u8],
}

impl Seen<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.body.len() + 5 == self.total
    }

    /// Whether the rest of this message should come first: a Query or Parse may become a command about prepared
    /// statements, and its effects are only known when all of it is.
    pub(super) fn is_to_come_whole(&self) -> bool {
        !self.is_whole() && self.total <= WHOLE_QUERY_BYTES_MAX
    }
}

impl<'a, I: Io> ClientRelay<'a, I> {
    pub(super) fn run(&mut self) -> Stop {
        while self.pos < self.bytes.len() {
            if self.io.backlog(self.client) > BACKLOG_HIGH_BYTES {
                self.flush();
                return Stop::Unread;
            }
            let step = match self.stream.next(&self.bytes[self.pos..]) {
                Err(error) => self.end_behind_answers(Stop::Broken(broken_frame(error))),
                Ok(Frame::Short) => break,
                Ok(Frame::Rest(bytes)) => {
                    self.rest(bytes);
                    continue;
                }
                Ok(Frame::Message { tag, total, here }) => {
                    let body = &self.bytes[self.pos + 5..self.pos + here];
                    self.message(Seen { kind: tag.into(), total, body })
                }
            };
            match step {
                Step::Next => {}
                Step::Incomplete(bytes) => {
                    *self.needed = bytes;
                    break;
                }
                Step::Stop(stop) => {
                    self.flush();
                    return stop;
                }
            }
        }
        self.flush();
        Stop::Done
    }

    fn rest(&mut self, bytes: usize) {
        if self.stream.handle_rest(bytes) == Fate::Dropped {
            self.flush();
            self.pos += bytes;
            self.run = self.pos;
        } else {
            self.pos += bytes;
        }
        let is_whole = !self.stream.is_inside();
        if is_whole && self.server.as_mut().is_some_and(|server| server.exchange.take_sync_that_follows()) {
            self.scratch.clear();
            self.scratch.extend_from_slice(&SYNC);
            self.send_scratch();
        }
    }

    fn message(&mut self, seen: Seen<'a>) -> Step {
        let is_copying = self.server.as_ref().is_some_and(|server| server.exchange.is_copying());
        if let Some(error) = ends_session(seen.kind, seen.total, is_copying) {
            return self.end_behind_answers(Stop::Broken(error));
        }
        if seen.kind == FrontendKind::Terminate {
            return self.end_behind_answers(Stop::Terminate);
        }
        if self.session.next == Waiting::Failed && is_of_batch(seen.kind) {
            self.session.skip_batch();
        }
        if self.server.as_ref().is_some_and(|server| server.exchange.is_in_doubt()) {
            // Whether it is skipped, too, is to be seen.
            return Step::Stop(Stop::Hold);
        }
        if self.session.skipping && seen.kind != FrontendKind::Sync {
            self.drop_message(seen);
            return Step::Next;
        }
        match &self.server {
            None if self.is_transaction_mode() => {
                let step = self.unattached(seen);
                match step {
                    Step::Next => self.last = Some(seen.kind),
                    Step::Stop(Stop::NeedServer) => self.note_first(seen),
                    _ => {}
                }
                step
            }
            None => Step::Stop(Stop::NeedServer),
            Some(server) => match server.admission(seen.kind) {
                Admission::Later => Step::Stop(Stop::Hold),
                Admission::AfterAnswers => self.wait_for_answers(),
                Admission::Now if !self.fits(seen) => Step::Stop(Stop::NeedOther),
                Admission::Now => {
                    if let Some(error) = self.check_at_standby(seen) {
                        return Step::Stop(Stop::Broken(error));
                    }
                    let step = self.attached(seen);
                    if matches!(step, Step::Next) && !is_of_copy(seen.kind) {
                        self.last = Some(seen.kind);
                    }
                    step
                }
            },
        }
    }

    /// A goodbye, or what PostgreSQL ends the session for: what came before is answered first.
    fn end_behind_answers(&mut self, stop: Stop) -> Step {
        let is_goodbye = matches!(stop, Stop::Terminate);
        let owes = self.server.as_ref().is_some_and(|server| {
            let exchange = &server.exchange;
            // What no Sync has asked for stays unsent behind a goodbye.
            let owes = if is_goodbye { exchange.replies().end_requests() } else { exchange.owes() };
            owes && !exchange.is_copying()
        });
        self.flush();
        if owes { self.wait_for_answers() } else { Step::Stop(stop) }
    }

    /// Without a server: what can be answered is, all else has to wait for one.
    fn unattached(&mut self, seen: Seen<'a>) -> Step {
        // What a failed transaction refuses is PostgreSQL's to say.
        let has_failed = self.session.status() == TransactionStatus::Failed;
        if seen.is_to_come_whole() && is_of_statements(seen.kind) {
            // Its beginning is not to take a server from others.
            return Step::Incomplete(seen.total);
        }
        if self.answer_lost(seen) {
            return Step::Next;
        }
        match seen.kind {
            FrontendKind::Parse
            | FrontendKind::Bind
            | FrontendKind::Describe
            | FrontendKind::Execute
            | FrontendKind::Close
                if !has_failed =>
            {
                self.statement_without_server(seen)
            }
            FrontendKind::Query => self.query_without_server(seen),
            FrontendKind::Parse
            | FrontendKind::Bind
            | FrontendKind::Describe
            | FrontendKind::Execute
            | FrontendKind::Close => Step::Stop(Stop::NeedServer),
            FrontendKind::FunctionCall if self.drop_failed(seen) => Step::Next,
            FrontendKind::FunctionCall => Step::Stop(Stop::NeedServer),
            // Malformed, which is PostgreSQL's to say.
            FrontendKind::Sync | FrontendKind::Flush if seen.total != SYNC.len() => Step::Stop(Stop::NeedServer),
            FrontendKind::Sync => {
                self.sync_without_server(seen);
                Step::Next
            }
            // As PostgreSQL does outside of a COPY, and with nothing to flush.
            FrontendKind::Flush | FrontendKind::CopyData | FrontendKind::CopyDone | FrontendKind::CopyFail => {
                self.drop_message(seen);
                Step::Next
            }
            kind @ (FrontendKind::Password | FrontendKind::Terminate | FrontendKind::Unknown(_)) => {
                Step::Stop(Stop::Broken(unknown_message(kind)))
            }
        }
    }

    fn attached(&mut self, seen: Seen<'a>) -> Step {
        let now = self.now;
        let is_away = self.session.reads.is_away();
        let server = self.server();
        if is_away && server.may_be_done_at_standby() {
            // What follows a block that has ended there is the primary's.
            return self.wait_for_answers();
        }
        server.is_in_use = true;
        server.meter.begin(now);
        if !server.exchange.owes() {
            server.running.go_on(now);
        }
        let is_noted = server.pool.slow.is_set();
        let step = match self.prepares_in_vain() {
            true => Step::Stop(Stop::Broken(never_prepared())),
            false => self.attached_now(seen),
        };
        // One that waits comes again.
        if matches!(step, Step::Next) {
            self.session.preparations = 0;
            if is_noted {
                self.note_request(seen);
            }
        }
        step
    }

    fn attached_now(&mut self, seen: Seen<'a>) -> Step {
        if let Some(step) = self.pass_amid_copy(seen) {
            return step;
        }
        match seen.kind {
            FrontendKind::Parse
            | FrontendKind::Bind
            | FrontendKind::Describe
            | FrontendKind::Execute
            | FrontendKind::Close => {
                if self.is_transaction_mode() {
                    self.statement(seen)
                } else {
                    self.statement_as_it_is(seen)
                }
            }
            FrontendKind::Query => self.query(seen),
            FrontendKind::FunctionCall => self.function_call(seen),
            FrontendKind::Sync => self.sync(seen),
            FrontendKind::Flush => self.flush_message(seen),
            FrontendKind::CopyData => {
                self.pass(seen);
                Step::Next
            }
            FrontendKind::CopyDone | FrontendKind::CopyFail => {
                self.server().exchange.end_copy();
                self.pass(seen);
                Step::Next
            }
            kind @ (FrontendKind::Password | FrontendKind::Terminate | FrontendKind::Unknown(_)) => {
                Step::Stop(Stop::Broken(unknown_message(kind)))
            }
        }
    }

    /// The message waits until all that is owed has come.
    pub(super) fn wait_for_answers(&mut self) -> Step {
        self.flush();
        let server = self.server();
        if server.exchange.await_answers() {
            let conn = server.conn;
            self.io.send(conn, &FLUSH);
        }
        Step::Stop(Stop::Hold)
    }

    /// A Flush behind a batch that only prepares and describes becomes a Sync of Sluice's own: the client may leave
    /// its own Sync for much later (asyncpg does), and the server is not to wait for it.
    fn flush_message(&mut self, seen: Seen<'a>) -> Step {
        let follows = self.is_transaction_mode();
        let server = self.server();
        if seen.total != FLUSH.len() {
            // Within a COPY, PostgreSQL takes it for a Flush all the same, and ignores it. Behind one that has failed,
            // of which nothing has come yet, it would have the server skip what comes next.
            if server.exchange.is_copying() {
                self.drop_message(seen);
                return Step::Next;
            }
            let is_open = server.exchange.may_have_copy_ahead();
            return if is_open { self.wait_for_answers() } else { self.pass_malformed(seen) };
        }
        if !follows || !server.exchange.only_prepares() {
            self.pass(seen);
            return Step::Next;
        }
        self.drop_message(seen);
        self.scratch.clear();
        self.send_own_sync(None);
        Step::Next
    }

    fn sync(&mut self, seen: Seen<'a>) -> Step {
        let follows = self.is_transaction_mode();
        if self.may_end_portal() {
            return self.wait_for_answers();
        }
        self.session.end_batch();
        let is_copying = self.server().exchange.is_copying();
        if !is_copying {
            self.end_portal();
        }
        let server = self.server();
        if follows && server.is_settled() && seen.total == SYNC.len() {
            // All of the batch was answered here.
            let status = server.exchange.reported_status();
            self.drop_message(seen);
            self.send_ready(status);
            return Step::Next;
        }
        if is_copying {
            // A server that reads a COPY ignores it, if that has not failed before: the batch is as open as before.
            self.server().exchange.ignore_sync();
            self.pass(seen);
            return Step::Next;
        }
        let resets = server.exchange.take_resets();
        server.exchange.expect(Expected::Sync(resets.map(Into::into)));
        self.pass(seen);
        self.flush();
        self.server().exchange.replay().seal();
        Step::Next
    }

    /// Answers the end of a request whose messages were all answered here, or skipped.
    pub(super) fn send_ready(&mut self, status: TransactionStatus) {
        let reports = self.session.reports.take();
        if !reports.is_empty() {
            self.io.send(self.client, &reports);
        }
        self.io.send(self.client, &status.ready_for_query());
    }

    /// Whether answers that are still to come decide if a portal of Sluice's own is there, or may be run: what runs may
    /// close all, and a block before this batch may have failed.
    pub(super) fn may_lack_portal(&self) -> bool {
        self.session.portal.is_some()
            && self.server.as_ref().is_some_and(|server| {
                let exchange = &server.exchange;
                (exchange.replies().runs() || exchange.replies().end_requests()) && !exchange.is_copying()
            })
    }

    /// Whether they decide if the end of a request ends it, too.
    pub(super) fn may_end_portal(&self) -> bool {
        // A block that begins ahead of it may be refused.
        let is_in_block = |server: &Server| server.exchange.expected_status() != TransactionStatus::Idle;
        self.may_lack_portal() && !self.server.as_deref().is_some_and(is_in_block)
    }

    /// Ends the unnamed portal, as a request's end does outside of a block (PostgreSQL documentation, 55.2.3).
    pub(super) fn end_portal(&mut self) {
        if self.session.portal.is_none() {
            return;
        }
        let inside = match &self.server {
            Some(server) => server.exchange.expects_block(),
            None => self.session.begun.is_some(),
        };
        if !inside {
            self.session.portal = None;
        }
    }

    pub(super) fn is_transaction_mode(&self) -> bool {
        self.session.pool.sharing.mode == PoolMode::Transaction
    }

    /// The server; to be called only where there is one.
    pub(super) fn server(&mut self) -> &mut Server {
        self.server.as_deref_mut().expect("the caller has seen that there is a server")
    }

    pub(super) fn pass_expecting(&mut self, seen: Seen<'a>, expected: Expected) -> Step {
        self.server().exchange.expect(expected);
        self.pass(seen);
        Step::Next
    }

    /// Lets a message through that makes no sense: the server says so.
    pub(super) fn pass_malformed(&mut self, seen: Seen<'a>) -> Step {
        self.pass_expecting(seen, Expected::Fault)
    }

    /// Whether a Sync is among so many messages from this one on, before any Flush.
    fn has_sync_within(&self, messages: usize) -> bool {
        has_sync(self.coming().take(messages))
    }

    /// The messages from this one on, as far as they have come whole.
    pub(super) fn coming(&self) -> impl Iterator<Item = Seen<'a>> {
        let mut rest = &self.bytes[self.pos..];
        std::iter::from_fn(move || {
            let (&[tag, a, b, c, d], _) = rest.split_first_chunk::<5>()?;
            let total = 1_usize.saturating_add(u32::from_be_bytes([a, b, c, d]) as usize);
            let body = rest.get(5..total)?;
            rest = &rest[total..];
            Some(Seen { kind: tag.into(), total, body })
        })
    }

    /// Lets a message through as it is, as far as it has come.
    pub(super) fn pass(&mut self, seen: Seen<'a>) {
        let here = seen.body.len() + 5;
        if let Some(server) = &mut self.server {
            server.exchange.replay().pass_by();
        }
        self.stream.handle(Fate::Passed, seen.total, here);
        self.pos += here;
    }

    /// Keeps a message from the server.
    pub(super) fn drop_message(&mut self, seen: Seen<'a>) {
        self.flush();
        let here = seen.body.len() + 5;
        self.stream.handle(Fate::Dropped, seen.total, here);
        self.pos += here;
        self.run = self.pos;
    }

    /// Takes the first `bytes` of a message's body out of what passes; the rest of the message passes.
    pub(super) fn replace_head(&mut self, seen: Seen<'a>, bytes: usize) {
        self.flush();
        self.stream.handle(Fate::Passed, seen.total, seen.body.len() + 5);
        self.run = self.pos + 5 + bytes;
        self.pos += 5 + seen.body.len();
    }

    /// Forwards the stretch that passes unchanged.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.run < self.pos {
            self.forward();
        }
    }

    fn forward(&mut self) {
        let range = self.run..self.pos;
        self.run = self.pos;
        let Some(server) = &mut self.server else { return };
        server.exchange.replay().keep(&self.bytes[range.clone()]);
        if self.shared {
            self.io.forward(server.conn, range);
        } else {
            self.io.send(server.conn, &self.bytes[range]);
        }
    }

    /// Sends what stands in `scratch` to the server, in its place among what passes.
    pub(super) fn send_scratch(&mut self) {
        self.flush();
        let Some(server) = &mut self.server else { return };
        server.exchange.replay().keep(self.scratch);
        self.io.send(server.conn, self.scratch);
        self.scratch.clear();
    }

    /// Gives the client an answer of Sluice's own, when those before it have come.
    pub(super) fn answer(&mut self, local: Local) {
        if let Some(server) = &mut self.server
            && server.exchange.owes()
        {
            server.exchange.expect(Expected::Local(local.into()));
        } else if matches!(local, Local::ParseComplete(_)) && self.has_sync_within(SOON_MESSAGES) {
            // PostgreSQL keeps it up to the Sync as well.
            self.io.send_with_next(self.client, &PARSE_COMPLETE);
        } else {
            send_local(self.io, self.client, &local);
        }
    }

    /// A message that must be seen whole and is not, or is too large for that.
    pub(super) fn incomplete(&self, seen: Seen<'_>) -> Step {
        if seen.total <= self.message_bytes_max {
            return Step::Incomplete(seen.total);
        }
        let error = ErrorResponse::fatal(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("a message of {} bytes is larger than the pool's limit of {}", seen.total, self.message_bytes_max),
        )
        .hint(
            "Raise \"rewritten_message\" under [limits] in the pool's configuration, or send the data as a parameter.",
        );
        Step::Stop(Stop::Broken(error))
    }
}

/// Whether a message is about statements, or runs something.
fn is_of_statements(kind: FrontendKind) -> bool {
    use FrontendKind::{Bind, Close, Describe, Execute, FunctionCall, Parse, Query};
    matches!(kind, Parse | Bind | Describe | Execute | Close | Query | FunctionCall)
}

/// Whether a message is one of those that end with a Sync.
pub(super) fn is_of_batch(kind: FrontendKind) -> bool {
    !matches!(kind, FrontendKind::Query | FrontendKind::FunctionCall)
}

/// Whether a Sync is among these messages, before any Flush.
pub(super) fn has_sync<'a>(mut messages: impl Iterator<Item = Seen<'a>>) -> bool {
    let ends = |seen: &Seen<'_>| matches!(seen.kind, FrontendKind::Sync | FrontendKind::Flush);
    messages.find(ends).is_some_and(|seen| seen.kind == FrontendKind::Sync)
}

fn is_of_copy(kind: FrontendKind) -> bool {
    matches!(kind, FrontendKind::CopyData | FrontendKind::CopyDone | FrontendKind::CopyFail)
}

/// Sends an answer of Sluice's own.
pub(super) fn send_local(io: &mut impl Io, client: Conn, local: &Local) {
    match local {
        Local::ParseComplete(_) => io.send(client, &PARSE_COMPLETE),
        Local::CloseComplete(_) => io.send(client, &sluice_wire::message::CLOSE_COMPLETE),
        Local::Message(bytes, _) => io.send(client, bytes),
    }
}
