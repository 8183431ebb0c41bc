//! A server's messages on their way to a client. Rows pass by reference, as many as a chunk holds; what is read is what
//! tells where a transaction ends and what is in place on the server.

use sluice_wire::{
    BackendKind, Frame,
    message::{TransactionStatus, backend},
};

use crate::{
    client::{Phase, Session},
    ids::{ClientRef, ServerId},
    io::{Conn, Io},
    replies::{By, DescribedAs, Expected, LearnFor, Own, ParseSent},
    server::{Preparation, Role, Server},
    shape::Shape,
    sql::Effects,
    statement::{Prepared, Statement},
    stream::Fate,
    time::Time,
};

use super::{BACKLOG_HIGH_BYTES, Engine, Todo, cancel, frontend::send_local};

/// Messages that are read whole are small; a server that announces a larger one is not PostgreSQL.
const WHOLE_BYTES_MAX: usize = 64 << 20;

/// An error that is larger than this passes as it comes, when so much of it has been read: what is acted on stands ahead
/// of its message. PostgreSQL quotes values of any size there.
const ERROR_BYTES_MAX: usize = 1 << 20;
const ERROR_HEAD_BYTES: usize = 64 << 10;

/// The stream of a server's messages makes no sense any more.
pub(super) struct OutOfStep(pub(super) &'static str);

/// One server's bytes on their way.
pub(super) struct ServerRelay<'a, I> {
    pub(super) now: Time,
    pub(super) io: &'a mut I,
    pub(super) server: &'a mut Server,
    /// The client; `None` if nobody is to see what comes.
    pub(super) client: Option<(Conn, &'a mut Session)>,
    /// The process id that the client got in BackendKeyData.
    pub(super) process_id: u32,
    /// Whether a message of the client's has been sent in part.
    pub(super) is_client_inside: bool,
    bytes: &'a [u8],
    shared: bool,
    pos: usize,
    run: usize,
    /// Whether what the client was held for has come.
    pub(super) resumes: bool,
    /// Whether what a cancel was held for has come.
    pub(super) cancels: bool,
    /// Whether no more than the head has come of the message that is being handled.
    pub(super) is_cut: bool,
}

/// Whether the client sees a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Swallow,
}

impl Engine {
    pub(super) fn server_bytes(&mut self, now: Time, id: ServerId, bytes: &[u8], shared: bool, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.pending.is_empty() {
            self.server_input(now, id, bytes, shared, io);
        } else {
            server.pending.extend_from_slice(bytes);
            if server.pending.len() >= server.needed {
                server.needed = 0;
                let whole = std::mem::take(&mut server.pending);
                self.server_input(now, id, &whole, false, io);
            }
        }
        self.check_rest(now, id, io);
    }

    fn server_input(&mut self, now: Time, id: ServerId, bytes: &[u8], shared: bool, io: &mut impl Io) {
        let mut pos = 0;
        if matches!(self.servers[id].role, Role::Opening { .. }) {
            match self.login_input(now, id, bytes, io) {
                Some(used) => pos = used,
                None => return,
            }
            let server = &mut self.servers[id];
            if matches!(server.role, Role::Opening { .. }) {
                server.pending.extend_from_slice(&bytes[pos..]);
                return;
            }
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        let owner = match server.role {
            Role::Serving(client) => Some(client),
            _ => None,
        };
        let (mut is_client_inside, mut process_id) = (false, 0);
        let client = owner.and_then(|id| Some((id, self.clients.get_mut(id)?))).and_then(|(id, client)| {
            let conn = client.conn;
            process_id = cancel::process_id(ClientRef { worker: self.worker, id, serial: client.serial });
            is_client_inside = client.stream.is_passing();
            match &mut client.phase {
                Phase::Open(session) => Some((conn, &mut **session)),
                _ => None,
            }
        });
        let mut relay = ServerRelay {
            now,
            io,
            server,
            client,
            process_id,
            is_client_inside,
            bytes,
            shared,
            pos,
            run: pos,
            resumes: false,
            cancels: false,
            is_cut: false,
        };
        let outcome = relay.run();
        let (pos, resumes, cancels) = (relay.pos, relay.resumes, relay.cancels);
        if let Some((conn, _)) = relay.client
            && relay.io.backlog(conn) > BACKLOG_HIGH_BYTES
            && !relay.server.paused
        {
            relay.server.paused = true;
            relay.io.pause(relay.server.conn);
        }
        match outcome {
            Ok(()) => server.pending.extend_from_slice(&bytes[pos..]),
            Err(OutOfStep(reason)) => self.server_closed(now, id, reason, io),
        }
        if cancels {
            self.todo.push_back(Todo::Cancel(id, owner));
        }
        if let Some(owner) = owner.filter(|_| resumes) {
            self.todo.push_back(Todo::Input(owner));
        }
    }
}

impl<I: Io> ServerRelay<'_, I> {
    fn run(&mut self) -> Result<(), OutOfStep> {
        while self.pos < self.bytes.len() {
            match self.server.stream.next(&self.bytes[self.pos..]) {
                Err(_) => return Err(OutOfStep("it sent a message of an impossible length")),
                Ok(Frame::Short) => break,
                Ok(Frame::Rest(bytes)) => {
                    self.rest(bytes);
                    // The client may have been held until what came unasked has come whole.
                    self.resumes |= !self.server.exchange.owes() && !self.server.stream.is_inside();
                }
                // Rows are most of what comes, and tell nothing.
                Ok(Frame::Message { tag: backend::DATA_ROW, total, here }) if self.passes_rows() => {
                    self.dispose(Verdict::Pass, total, here);
                }
                Ok(Frame::Message { tag, total, here }) => {
                    let kind = BackendKind::from(tag);
                    let fails = matches!(kind, BackendKind::ErrorResponse | BackendKind::NoticeResponse);
                    let passes = fails && total > ERROR_BYTES_MAX && here >= ERROR_HEAD_BYTES;
                    if here < total && !passes && (is_read_whole(kind) || self.is_read_here(kind)) {
                        if total > WHOLE_BYTES_MAX && !fails {
                            return Err(OutOfStep("it sent a message of an impossible length"));
                        }
                        // Not for each chunk that comes.
                        self.server.needed = if fails && total > ERROR_BYTES_MAX { ERROR_HEAD_BYTES } else { total };
                        break;
                    }
                    self.is_cut = here < total;
                    let body = &self.bytes[self.pos + 5..self.pos + here];
                    let verdict = self.message(kind, body).inspect_err(|_| self.flush())?;
                    self.dispose(verdict, total, here);
                    self.send_settled();
                    self.resumes |= self.server.exchange.ends_wait();
                }
            }
        }
        self.flush();
        Ok(())
    }

    /// Whether a row is for the client, and nothing else has to be done about it.
    fn passes_rows(&mut self) -> bool {
        !self.is_own() && !self.server.exchange.replay().is_healing()
    }

    fn rest(&mut self, bytes: usize) {
        if self.server.stream.handle_rest(bytes) == Fate::Dropped {
            self.flush();
            self.pos += bytes;
            self.run = self.pos;
        } else {
            self.pos += bytes;
        }
    }

    fn dispose(&mut self, verdict: Verdict, total: usize, here: usize) {
        // Where nobody hears the beginning, nobody hears the rest: the next client may come in the midst of it.
        let drops = matches!(verdict, Verdict::Swallow) || self.client.is_none();
        let fate = if drops { Fate::Dropped } else { Fate::Passed };
        self.server.stream.handle(fate, total, here);
        if drops {
            self.flush();
            self.pos += here;
            self.run = self.pos;
        } else {
            self.pos += here;
        }
    }

    #[inline]
    pub(super) fn flush(&mut self) {
        if self.run < self.pos {
            self.forward();
        }
    }

    fn forward(&mut self) {
        let range = self.run..self.pos;
        self.run = self.pos;
        let Some((conn, _)) = &self.client else { return };
        self.server.pool.traffic.sent(range.len());
        if self.shared {
            self.io.forward(*conn, range);
        } else {
            self.io.send(*conn, &self.bytes[range]);
        }
    }

    /// Gives the client what Sluice itself answers at this place.
    fn send_settled(&mut self) {
        while let Some(settled) = self.server.exchange.answered_here() {
            if let Expected::Local(local) = settled {
                self.flush();
                if let Some((conn, _)) = &self.client {
                    send_local(self.io, *conn, &local);
                }
            }
        }
    }

    /// Acts on a message; returns whether the client sees it. `body` is whole if [`is_read_whole`].
    fn message(&mut self, kind: BackendKind, body: &[u8]) -> Result<Verdict, OutOfStep> {
        if kind == BackendKind::NotificationResponse {
            return Ok(self.notification(body));
        }
        if self.server.exchange.replay().is_healing() {
            return self.while_healing(kind, body);
        }
        if let Some(verdict) = self.hear_amid_copies(kind, body)? {
            return Ok(verdict);
        }
        match kind {
            BackendKind::DataRow | BackendKind::FunctionCallResponse => {
                Ok(if self.is_own() { self.own_answer(body) } else { Verdict::Pass })
            }
            BackendKind::CopyData | BackendKind::CopyDone => Ok(self.unless_own()),
            BackendKind::CommandComplete => Ok(self.command_complete(body)),
            BackendKind::ReadyForQuery => self.ready_for_query(body),
            BackendKind::ErrorResponse => self.error(body),
            BackendKind::ParseComplete => self.parse_complete(),
            BackendKind::BindComplete => {
                self.note_well();
                match self.server.exchange.answered() {
                    Some(Expected::Bind(called, portal)) => {
                        self.server.running.bind(called.map(|called| called.statement), portal);
                        Ok(Verdict::Pass)
                    }
                    Some(Expected::BindStandIn(_)) => Ok(Verdict::Pass),
                    Some(Expected::Begin(_) | Expected::Switch) => Ok(Verdict::Swallow),
                    _ => Err(OutOfStep("it sent BindComplete out of turn")),
                }
            }
            BackendKind::CloseComplete => match self.server.exchange.answered() {
                Some(Expected::Close(lent)) => {
                    if let (Some((_, session)), Some(name)) = (&mut self.client, lent) {
                        session.lose(&name);
                        self.server.lent.doubt();
                    }
                    Ok(Verdict::Pass)
                }
                Some(Expected::Evict(_) | Expected::OwnClose) => Ok(Verdict::Swallow),
                _ => Err(OutOfStep("it sent CloseComplete out of turn")),
            },
            BackendKind::RowDescription | BackendKind::NoData => Ok(self.described(kind, body)),
            BackendKind::ParameterDescription => Ok(self.parameters_described(body)),
            BackendKind::EmptyQueryResponse | BackendKind::PortalSuspended => {
                // The owner shows before it has been taken out of the queue.
                let verdict = self.unless_own();
                self.executed((kind == BackendKind::EmptyQueryResponse).then_some(b""));
                Ok(verdict)
            }
            BackendKind::CopyInResponse | BackendKind::CopyBothResponse => {
                self.copy_in()?;
                Ok(self.unless_own())
            }
            BackendKind::ParameterStatus => Ok(self.parameter_status(body)),
            BackendKind::NoticeResponse => Ok(self.notice(body)),
            _ => Ok(self.unless_own()),
        }
    }

    /// A remark on a Parse is for those who send it. It may depend on the time and the session that it is made in, so
    /// the next one has to come from a server, too.
    fn notice(&mut self, body: &[u8]) -> Verdict {
        match self.server.exchange.replies().front() {
            Some(Expected::Parse(sent)) => {
                if let Some(statement) = &sent.statement {
                    statement.remark();
                }
                if sent.is_asked() { Verdict::Pass } else { Verdict::Swallow }
            }
            // A warning that the wait for standbys has been cancelled, say: then nobody knows how safe it is.
            Some(Expected::Own(Own::Outcome)) => {
                self.server.outcome = None;
                Verdict::Swallow
            }
            _ if self.is_own() => Verdict::Swallow,
            _ => self.in_clients_places(BackendKind::NoticeResponse, body),
        }
    }

    pub(super) fn unless_own(&self) -> Verdict {
        if self.is_own() { Verdict::Swallow } else { Verdict::Pass }
    }

    /// Whether a message is read because of what it answers.
    fn is_read_here(&self, kind: BackendKind) -> bool {
        match kind {
            BackendKind::RowDescription => {
                matches!(
                    self.server.exchange.replies().front(),
                    Some(Expected::Describe(_, Some(_)) | Expected::Learn(..))
                )
            }
            BackendKind::ParameterDescription => {
                matches!(
                    self.server.exchange.replies().front(),
                    Some(Expected::Describe(Some(_), _) | Expected::Learn(..))
                )
            }
            BackendKind::DataRow | BackendKind::FunctionCallResponse => self.is_own(),
            BackendKind::NoticeResponse => self.server.exchange.replies().amended().is_some(),
            _ => false,
        }
    }

    fn described(&mut self, kind: BackendKind, body: &[u8]) -> Verdict {
        if let Some(types) = self.server.exchange.replay().take_parameters() {
            self.note_types(&types);
            self.send_parameters(&types);
        }
        self.note_well();
        let shape = || if kind == BackendKind::NoData { Shape::none() } else { Shape::of(body) };
        match self.server.exchange.replies().front() {
            Some(Expected::Describe(..)) => {
                if let Some(Expected::Describe(Some(called), Some(described_as))) = self.server.exchange.answered() {
                    self.learn(&called.statement, shape(), Some(&described_as));
                }
                Verdict::Pass
            }
            Some(Expected::Learn(..)) => {
                match self.server.exchange.answered() {
                    Some(Expected::Learn(statement, LearnFor::Parse(described_as))) => {
                        self.learn(&statement, shape(), Some(&described_as));
                    }
                    Some(Expected::Learn(statement, LearnFor::Describe | LearnFor::Use)) => {
                        self.learn(&statement, shape(), None);
                        // The Bind that waits may be handled again.
                        self.resumes |= self.server.exchange.stop_learning();
                        if let Some((_, session)) = &mut self.client {
                            session.learnt = true;
                        }
                    }
                    _ => {}
                }
                Verdict::Swallow
            }
            _ => self.unless_own(),
        }
    }

    /// The server has described the result of a statement.
    fn learn(&mut self, statement: &Statement, shape: Shape, described_as: Option<&DescribedAs>) {
        self.server.statements.set_shape(statement.id, shape);
        statement.set_shape(shape);
        if let Some(terms) = statement.terms
            && statement.shape() != Some(shape)
            && !statement.effects.intersects(Effects::SESSION)
        {
            // Nobody has told of that.
            self.server.pool.catalog.move_on_from(terms.catalog);
        }
        if let (Some((_, session)), Some(described_as)) = (&mut self.client, described_as) {
            session.note_shape(&described_as.0, statement.id, Some(shape));
        }
    }

    /// The client's Execute has been answered, with that command tag, or with none: there are more rows.
    fn executed(&mut self, tag: Option<&[u8]>) {
        self.server.exchange.copied();
        self.server.exchange.has_run();
        self.server.session.has_run();
        if let Some(Expected::Execute { portal, rows_max }) = self.server.exchange.replies().front() {
            let (portal, rows_max) = (*portal, *rows_max);
            self.server.exchange.answered();
            let Server { running, meter, .. } = &mut *self.server;
            match tag {
                Some(tag) => running.end(self.now, meter, portal, tag),
                None => running.suspend(self.now, meter, portal, rows_max),
            }
        }
    }

    fn command_complete(&mut self, body: &[u8]) -> Verdict {
        match self.server.exchange.replies().front() {
            Some(Expected::Own(_)) => return Verdict::Swallow,
            Some(Expected::Switch) => {
                self.server.exchange.answered();
                return Verdict::Swallow;
            }
            Some(Expected::Begin(_)) => {
                self.complete_begin();
                return Verdict::Swallow;
            }
            _ => {}
        }
        let tag = body.strip_suffix(b"\0").unwrap_or(body);
        if !self.server.exchange.complete(tag) {
            return Verdict::Swallow;
        }
        let is_amended = self.server.exchange.replies().amended().is_some();
        self.executed(Some(tag));
        if matches!(tag, b"COMMIT" | b"ROLLBACK" | b"PREPARE TRANSACTION") {
            self.server.exchange.has_ended();
        }
        // Nearly all of them are SELECT, INSERT, UPDATE, BEGIN or COMMIT.
        if !matches!(tag.first(), Some(b'S' | b'R' | b'L' | b'P' | b'D' | b'C')) || tag.starts_with(b"SELECT") {
            return Verdict::Pass;
        }
        if matches!(tag, b"RESET" | b"DISCARD ALL") && self.server.follows_statements() {
            // Where the text did not show which: that of a long Query.
            match tag {
                b"RESET" if is_amended => {}
                b"RESET" => self.server.exchange.note_reset_of_all(),
                _ => self.server.exchange.discards_all(),
            }
        }
        if tag == b"CLOSE CURSOR ALL"
            && let Some((_, session)) = &mut self.client
        {
            // Portals as well.
            session.portal = None;
        }
        if !matches!(tag, b"DEALLOCATE ALL" | b"DISCARD ALL") {
            return Verdict::Pass;
        }
        // An unnamed one stays; where a Query has brought this, it was gone before.
        self.server.statements.clear_named();
        if tag == b"DISCARD ALL" {
            self.server.session.discard_settings();
        }
        if let Some((_, session)) = &mut self.client {
            session.names = None;
        }
        Verdict::Pass
    }

    /// A query or a batch of the client's has been answered.
    fn end_metered(&mut self, status: TransactionStatus) {
        let is_over = status == TransactionStatus::Idle;
        self.log_if_slow();
        let goes_on = self.server.exchange.replies().have_clients();
        self.server.meter.end(self.now, is_over, goes_on, &self.server.pool.traffic);
    }

    fn ready_for_query(&mut self, body: &[u8]) -> Result<Verdict, OutOfStep> {
        let status = body.first().and_then(|b| TransactionStatus::from_byte(*b).ok());
        let status = status.ok_or(OutOfStep("it sent an unknown transaction status"))?;
        // A block that is open now is another one than before.
        let (is_idle, has_ended) = (status == TransactionStatus::Idle, self.server.exchange.has_ended_block());
        if is_idle || has_ended {
            self.server.mark = None;
            self.server.running.leave();
        }
        let answered = self.server.exchange.ready(self.now, status);
        let is_clients = matches!(answered, Some(Expected::Query { .. } | Expected::Sync(_)));
        let goes_on = if is_idle { self.server.exchange.owes() } else { has_ended };
        if is_clients && goes_on {
            self.server.goes_on_unfollowed();
        }
        if is_idle {
            self.server.parameters.end_block();
        }
        self.server.sequences.end_batch(false);
        if !self.server.exchange.owes() {
            self.server.sequences.settle();
        }
        self.server.session.answers.forget();
        let Server { session, exchange, .. } = &mut *self.server;
        session.answered(status == TransactionStatus::Idle, || exchange.replies().requests());
        if let Some(
            Expected::Query { resets: Some(resets), .. }
            | Expected::Sync(Some(resets))
            | Expected::OwnSync(Some(resets)),
        ) = &answered
        {
            self.after_reset(resets, status);
        }
        if status == TransactionStatus::Failed && matches!(answered, Some(Expected::Query { .. } | Expected::Sync(_))) {
            self.report_undone();
        }
        if is_clients {
            self.report_reload(status);
            self.send_reports();
        }
        match answered {
            Some(Expected::Own(own)) => {
                if own == Own::Reset && self.server.own_error.is_none() {
                    self.server.session.discarded();
                }
                if own == Own::Probe && self.server.own_error.is_none() && !self.conclude_probe() {
                    return Err(OutOfStep("it did not say what its session holds"));
                }
                if own == Own::Names {
                    self.conclude_names();
                }
                if self.server.preparation == Preparation::UnderWay && !self.server.exchange.replies().is_own_next() {
                    match own {
                        // Nothing of the client's goes to a server that is not what it takes it for.
                        _ if self.server.own_error.is_some() => {}
                        // What a server was asked is acted on before the client goes on.
                        Own::Probe | Own::Names | Own::Outcome | Own::Replayed => {}
                        _ => {
                            self.server.preparation = Preparation::Done;
                            self.resumes = true;
                        }
                    }
                }
                self.cancels |= self.server.cancels.release();
                Ok(Verdict::Swallow)
            }
            Some(Expected::Query { .. }) => {
                self.end_metered(status);
                Ok(Verdict::Pass)
            }
            Some(Expected::Sync(_)) => {
                self.end_metered(status);
                Ok(self.ready_after_sync())
            }
            Some(Expected::OwnSync(_)) => {
                self.resumes = true;
                self.transaction_fails();
                Ok(Verdict::Swallow)
            }
            _ => Err(OutOfStep("it sent ReadyForQuery out of turn")),
        }
    }

    fn parse_complete(&mut self) -> Result<Verdict, OutOfStep> {
        match self.server.exchange.answered() {
            Some(Expected::Parse(sent)) => {
                let asked = sent.is_asked();
                let ParseSent { statement, by, infers, .. } = *sent;
                if let Some(statement) = &statement {
                    statement.note_parsed();
                }
                // With the types that clients were told, it would be accepted whatever its parameters' are now.
                if let Some(statement) = statement.as_ref().filter(|statement| infers || !statement.infers_types) {
                    statement.accept(self.now);
                }
                if let (Some((_, session)), By::Lent(name), Some(statement)) = (&mut self.client, by, statement)
                    && asked
                {
                    session.note_named(&statement);
                    session.names.get_or_insert_default().insert(name, Prepared::new(statement, self.now));
                }
                Ok(if asked { Verdict::Pass } else { Verdict::Swallow })
            }
            Some(Expected::Begin(_) | Expected::Switch) => Ok(Verdict::Swallow),
            _ => Err(OutOfStep("it sent ParseComplete out of turn")),
        }
    }
}

/// Messages that are read, not only passed on.
fn is_read_whole(kind: BackendKind) -> bool {
    matches!(
        kind,
        BackendKind::ReadyForQuery
            | BackendKind::ErrorResponse
            | BackendKind::ParameterStatus
            | BackendKind::CommandComplete
            | BackendKind::NotificationResponse
    )
}
