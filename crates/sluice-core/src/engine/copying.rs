//! A COPY that the server begins to read, with what the client has sent by then, and one that fails: whether the server
//! has read a Sync within it, which it ignores, or behind its failure, which it answers, it does not say. Up to the next
//! answer of another kind both may be so, and where none is due it is asked for one.

use sluice_wire::{
    BackendKind, ErrorResponse, FrontendKind,
    message::{self, SYNC},
    sqlstate,
};

use crate::{
    client::Client,
    ids::{ClientId, ServerId},
    io::Io,
    server::{Preparation, is_of_copy},
};

use super::{
    Engine,
    backend::{OutOfStep, ServerRelay},
    frontend::{ClientRelay, Step, Stop},
    own_queries::NAME,
};

/// Nobody waits with a Sync for the data of a COPY, and sends something else behind it, in earnest.
const LOST: &str = "a COPY has failed, and it is not known which of the messages behind it are skipped";

impl<I: Io> ServerRelay<'_, I> {
    /// The server reads a COPY from now on.
    pub(super) fn copy_in(&mut self) -> Result<(), OutOfStep> {
        if let Some(kind) = self.server.exchange.replies().kept_from_copy() {
            // PostgreSQL would have met it in the midst of the COPY, and have ended the session for that.
            if self.is_client_inside {
                return Err(OutOfStep("a COPY began amid other messages"));
            }
            let mut message = Vec::new();
            message::framed(&mut message, kind, |out| out.extend_from_slice(b"S\0"));
            self.io.send(self.server.conn, &message);
        }
        let ignores_sync = self.server.exchange.begin_copy();
        if ignores_sync && self.client.is_none() {
            // The cancel that is on its way may end the COPY before that Sync is read, which then is not ignored.
            return Err(OutOfStep("a COPY began for a client that is gone"));
        }
        // What it sends for the COPY may have been held.
        self.resumes = true;
        Ok(())
    }

    /// A message comes, perhaps while it is not known whether Syncs are answered.
    #[inline]
    pub(super) fn hear_in_doubt(&mut self, kind: BackendKind) -> Result<(), OutOfStep> {
        match kind {
            BackendKind::ReadyForQuery if self.server.exchange.is_amid_copy() => {
                return Err(OutOfStep("it said that it is ready amid a COPY"));
            }
            _ if !self.server.exchange.is_in_doubt() => {}
            _ if self.server.exchange.is_lost() => return Err(OutOfStep(LOST)),
            // They may come at any time.
            BackendKind::ParameterStatus | BackendKind::NoticeResponse => {}
            BackendKind::ReadyForQuery => {
                if self.server.exchange.expect_ready_in_doubt()
                    && let Some((_, session)) = &mut self.client
                {
                    session.skipping = false;
                }
            }
            _ => self.server.exchange.settle_doubt(),
        }
        Ok(())
    }
}

impl<I: Io> ClientRelay<'_, I> {
    /// A message that the server skips, or does not where it has answered a Sync before: then the session ends.
    pub(super) fn refuse_in_doubt(&self, kind: FrontendKind) -> Option<Step> {
        let is_in_doubt = self.server.as_ref().is_some_and(|server| server.exchange.is_in_doubt());
        let is_idle = is_of_copy(kind) || kind == FrontendKind::Flush;
        (is_in_doubt && !is_idle)
            .then(|| Step::Stop(Stop::Broken(ErrorResponse::fatal(sqlstate::CONNECTION_FAILURE, LOST))))
    }
}

impl Engine {
    /// Asks a server for an answer that comes behind all that may be owed to its client, if that is not known.
    pub(super) fn ask_in_doubt(&mut self, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(server) else { return };
        let is_amid = self.clients.get(client).is_none_or(|client: &Client| client.stream.is_passing());
        if is_amid || server.preparation != Preparation::None || !server.exchange.asks_in_doubt() {
            return;
        }
        self.scratch.clear();
        message::put_statement_message(&mut self.scratch, FrontendKind::Close, NAME);
        self.scratch.extend_from_slice(&SYNC);
        io.send(server.conn, &self.scratch);
    }
}
