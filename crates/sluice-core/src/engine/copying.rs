//! COPYs that the server reads: what goes to it meanwhile, and the question for what it owes behind one that has failed,
//! where it may have read a Sync before that or behind it.

use sluice_wire::{
    BackendKind, ErrorFields, FrontendKind,
    message::{self, SYNC, TransactionStatus},
    sqlstate,
};

use crate::{
    client::Client,
    ids::{ClientId, ServerId},
    io::Io,
    server::{InDoubt, Preparation, is_of_copy},
};

use super::{
    Engine,
    backend::{OutOfStep, ServerRelay, Verdict},
    errors::is_end,
    frontend::{ClientRelay, Seen, Step},
    own_queries::NAME,
};

const LOST: &str = "a COPY has failed, and it is not known which of the messages after it are skipped";

impl<I: Io> ServerRelay<'_, I> {
    /// The server reads a COPY from now on.
    pub(super) fn copy_in(&mut self) -> Result<(), OutOfStep> {
        if !self.server.exchange.begin_copy() {
            return Err(OutOfStep("a COPY began amid other messages"));
        }
        if self.server.exchange.has_sync_within_copy() && self.client.is_none() {
            // The cancel that is on its way may end the COPY before that Sync is read, which then is not ignored.
            return Err(OutOfStep("a COPY began for a client that is gone"));
        }
        // What it sends for the COPY may have been held.
        self.resumes = true;
        Ok(())
    }

    /// A message comes, perhaps amid a COPY, or while it is not known what the server owes. Returns a verdict where
    /// nothing else is to be done with it.
    #[inline]
    pub(super) fn hear_amid_copies(&mut self, kind: BackendKind, body: &[u8]) -> Result<Option<Verdict>, OutOfStep> {
        let exchange = &self.server.exchange;
        let is_telling = matches!(kind, BackendKind::ParameterStatus | BackendKind::NoticeResponse);
        if is_telling || !exchange.is_amid_copies() {
            // They may come at any time.
            return Ok(None);
        }
        if exchange.has_lost_copy() {
            return if is_of_lost_copy(kind, body) { Ok(None) } else { Err(OutOfStep(LOST)) };
        }
        if exchange.is_in_doubt() {
            return self.hear_in_doubt(kind, body);
        }
        match kind {
            BackendKind::ReadyForQuery => Err(OutOfStep("it said that it is ready amid a COPY")),
            _ => Ok(None),
        }
    }

    fn hear_in_doubt(&mut self, kind: BackendKind, body: &[u8]) -> Result<Option<Verdict>, OutOfStep> {
        match kind {
            BackendKind::ReadyForQuery => {
                let status = body.first().and_then(|byte| TransactionStatus::from_byte(*byte).ok());
                let status = status.ok_or(OutOfStep("it sent an unknown transaction status"))?;
                match self.server.exchange.ready_in_doubt(self.now, status) {
                    InDoubt::Certain => return Ok(None),
                    InDoubt::Counted => {}
                    InDoubt::Last => {
                        let Self { server, now, .. } = self;
                        server.sequences.end_batch(false);
                        server.sequences.settle();
                        server.session.answers.forget();
                        server.session.answered(status == TransactionStatus::Idle, || 0);
                        let is_over = status == TransactionStatus::Idle;
                        server.meter.end(*now, is_over, server.exchange.replies().have_clients(), &server.pool.traffic);
                        self.transaction_fails();
                        self.resumes = true;
                    }
                }
                Ok(Some(Verdict::Swallow))
            }
            BackendKind::CloseComplete => {
                let answered = self.server.exchange.count_in_doubt().ok_or(OutOfStep(LOST))?;
                let ready = self.server.exchange.reported_status().ready_for_query();
                self.flush();
                if let Some((conn, session)) = &mut self.client {
                    // What the client's Sync has ended is not skipped any more.
                    session.skipping &= answered == 0;
                    (0..answered).for_each(|_| self.io.send(*conn, &ready));
                }
                Ok(Some(Verdict::Swallow))
            }
            // The end of the session.
            BackendKind::ErrorResponse if is_end(body) => Ok(None),
            _ => Err(OutOfStep(LOST)),
        }
    }
}

/// Whether a message is one of those by which PostgreSQL ends the session for what came in the midst of a COPY.
fn is_of_lost_copy(kind: BackendKind, body: &[u8]) -> bool {
    let is_violation = || ErrorFields(body).get(b'C') == Some(sqlstate::PROTOCOL_VIOLATION.as_bytes());
    kind == BackendKind::ErrorResponse && (is_end(body) || is_violation())
}

impl<'a, I: Io> ClientRelay<'a, I> {
    /// A message that comes in the midst of a COPY and does not belong there, if this is one: the server gets it as it
    /// is, and nothing behind it. PostgreSQL ends the session for it.
    pub(super) fn pass_amid_copy(&mut self, seen: Seen<'a>) -> Option<Step> {
        let belongs = is_of_copy(seen.kind) || matches!(seen.kind, FrontendKind::Sync | FrontendKind::Flush);
        if belongs || !self.server().exchange.is_copying() {
            return None;
        }
        self.server().exchange.lose_copy();
        self.pass(seen);
        Some(Step::Next)
    }
}

impl Engine {
    /// Asks a server what it owes behind a COPY that has failed.
    pub(super) fn ask_in_doubt(&mut self, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(server) else { return };
        let is_amid = self.clients.get(client).is_none_or(|client: &Client| client.stream.is_passing());
        if is_amid || server.preparation != Preparation::None || !server.exchange.asks_in_doubt() {
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&SYNC);
        message::put_statement_message(&mut self.scratch, FrontendKind::Close, NAME);
        self.scratch.extend_from_slice(&SYNC);
        io.send(server.conn, &self.scratch);
    }
}
