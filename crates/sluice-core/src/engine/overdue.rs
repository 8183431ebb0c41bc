//! Requests that take longer than the configuration allows: their server is sent a cancel, and where that does not
//! help, the client is sent away, so that nobody waits for ever for a server that does not answer.

use std::time::Duration;

use sluice_wire::{ErrorResponse, sqlstate};

use crate::{ids::ServerId, io::Io, server::Role, time::Time};

use super::{Engine, timers::Timer};

/// The time that a server has to answer a cancel.
const CANCEL_TIME: Duration = Duration::from_secs(5);

impl Engine {
    /// Something has happened between a server and its client: what it is asked for now has its time.
    pub(super) fn watch_query(&mut self, id: ServerId) {
        let Some(limit) = self.snapshot.limits.query_timeout else { return };
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(since) = server.meter.query_since() else { return };
        let at = since + limit;
        if server.overdue.cancelled != Some(since) && server.overdue.alarm.set(at) {
            self.timers.push(at, Timer::Query(id, server.serial));
        }
    }

    /// It is time to look at a server's request.
    pub(super) fn query_due(&mut self, now: Time, at: Time, id: ServerId, serial: u32, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id).filter(|server| server.serial == serial) else { return };
        if !server.overdue.alarm.ring(at) {
            return;
        }
        let (&Role::Serving(client), Some(since)) = (&server.role, server.meter.query_since()) else { return };
        let Some(limit) = self.snapshot.limits.query_timeout else { return };
        if now < since + limit {
            self.watch_query(id);
        } else if server.overdue.cancelled == Some(since) {
            self.refuse_client(now, client, &does_not_answer(), io);
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

/// The error of a request whose outcome is not known: it may be a commit that waits for its standbys.
fn does_not_answer() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        "the server has not answered in time, nor a cancel since",
    )
    .hint("The limit is \"query_timeout\" under [limits] in the pool's configuration.")
}
