//! Requests that take longer than the configuration allows: their server is sent a cancel, and where that does not
//! help, the client is sent away, so that nobody waits for ever for a server that does not answer.

use std::time::Duration;

use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::Client,
    ids::ServerId,
    io::Io,
    pauses::Reason,
    server::{Role, Server},
    time::Time,
};

use super::{Engine, timers::Timer};

/// The time that a server has to answer a cancel.
const CANCEL_TIME: Duration = Duration::from_secs(5);

impl Engine {
    /// Something has happened between a server and its client: what it is asked for now has its time.
    pub(super) fn watch_query(&mut self, now: Time, id: ServerId) {
        let Some(limit) = self.snapshot.limits.query_timeout else { return };
        let Some(since) = self.owing_since(now, id) else { return };
        let server = &mut self.servers[id];
        let at = since + limit;
        if server.overdue.cancelled != Some(since) && server.overdue.alarm.set(at) {
            self.timers.push(at, Timer::Query(id, server.serial));
        }
    }

    /// The time since when a server is at its client's request: since it has come, or since the client's last pause
    /// within it. `None` while it waits for the client.
    fn owing_since(&mut self, now: Time, id: ServerId) -> Option<Time> {
        let server = self.servers.get_mut(id)?;
        let Role::Serving(client) = server.role else { return None };
        let client = self.clients.get(client)?;
        if !is_at_work(client, server) {
            server.overdue.since = None;
            return None;
        }
        let turn = *server.overdue.since.get_or_insert(now);
        server.meter.query_since().map(|begun| begun.max(turn))
    }

    /// It is time to look at a server's request.
    pub(super) fn query_due(&mut self, now: Time, at: Time, id: ServerId, serial: u32, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id).filter(|server| server.serial == serial) else { return };
        if !server.overdue.alarm.ring(at) {
            return;
        }
        let Role::Serving(client) = server.role else { return };
        let Some(limit) = self.snapshot.limits.query_timeout else { return };
        let Some(since) = self.owing_since(now, id) else { return };
        let server = &mut self.servers[id];
        if now < since + limit {
            self.watch_query(now, id);
        } else if server.overdue.cancelled == Some(since) {
            self.refuse_client(now, client, &does_not_answer(), io);
            // Nobody else is to wait for it.
            let server = self.servers.get(id).filter(|server| server.serial == serial);
            if server.is_some_and(|server| matches!(server.role, Role::Settling { .. })) {
                self.close_server(id, io);
            }
        } else {
            server.overdue.cancelled = Some(since);
            let again_at = now + CANCEL_TIME;
            if server.overdue.alarm.set(again_at) {
                self.timers.push(again_at, Timer::Query(id, serial));
            }
            self.send_cancel(now, id, io);
        }
    }
}

/// Whether a server has something to do for its client that does not wait for the client to go on.
fn is_at_work(client: &Client, server: &Server) -> bool {
    if server.exchange.is_copying() {
        // One that takes the data waits for the next.
        return client.pauses.has(Reason::Server);
    }
    server.exchange.owes() && !server.exchange.may_keep_answers()
}

/// The error of a request whose outcome is not known: it may be a commit that waits for its standbys.
fn does_not_answer() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        "the server has not answered in time, nor a cancel since",
    )
    .hint("The limit is \"query_timeout\" under [limits] in the pool's configuration.")
}
