//! CancelRequests. One that comes names a client of the pool; one that goes out names a server, over a connection of
//! its own, and that server goes to nobody else until the request has been delivered.

use sluice_wire::{ErrorResponse, Frame, FrontendKind, startup};
use subtle::ConstantTimeEq;

use crate::{
    client::{Link, Phase},
    ids::{CancelId, ClientId, ClientRef, ServerId},
    io::{Conn, Io, Owner},
    mail::Mail,
    server::Role,
    time::Time,
};

use super::{Engine, SETTLE_TIMEOUT, Todo, timers::Timer};

/// `query_canceled`.
const QUERY_CANCELED: &str = "57014";

/// The lowest process id of a client: above all that Linux gives to processes (PID_MAX_LIMIT), so that it is no server's,
/// whatever a client does with it.
const PROCESS_ID_MIN: u32 = (1 << 22) + 1;

/// Bits of a process id that are the client's number: there are a million of them at most.
const INDEX_BITS: u32 = 20;

/// Bits of a process id that tell a client from the last ones of its number. The others are its worker's.
const TURN_BITS: u32 = 4;

/// A CancelRequest on its way to a server.
#[derive(Debug)]
pub(super) struct Canceller {
    conn: Conn,
    /// For which server; `None` once that is gone.
    server: Option<ServerId>,
    request: Vec<u8>,
    deadline: Time,
}

/// The process id that a client gets in BackendKeyData.
pub(super) fn process_id(client: ClientRef) -> u32 {
    let turn = client.serial % (1 << TURN_BITS);
    let index = client.id.0 % (1 << INDEX_BITS);
    PROCESS_ID_MIN + ((u32::from(client.worker) << TURN_BITS | turn) << INDEX_BITS | index)
}

impl Engine {
    /// A CancelRequest has come: it goes to the worker whose client it names.
    pub(super) fn cancel_requested(&mut self, now: Time, process_id: u32, key: Vec<u8>, io: &mut impl Io) {
        let Some(code) = process_id.checked_sub(PROCESS_ID_MIN) else { return };
        let worker = (code >> (INDEX_BITS + TURN_BITS)) as u16;
        let client = ClientId(code % (1 << INDEX_BITS));
        if worker == self.worker {
            self.cancel_client(now, client, &key, io);
        } else if worker < self.hub.workers {
            io.mail(worker, Mail::Cancel { client, key });
        }
    }

    /// Cancels what a client is running, or is waiting to run.
    pub(super) fn cancel_client(&mut self, now: Time, id: ClientId, key: &[u8], io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.key.is_empty() || !bool::from(client.key.ct_eq(key)) {
            return;
        }
        let Phase::Open(session) = &mut client.phase else { return };
        match session.link {
            Link::Server(server) => self.send_cancel(now, server, io),
            Link::Waiting(ticket) => {
                // The query has not begun: it is taken out of what the client has sent.
                let Some(end) = first_query(&client.pending) else { return };
                if !session.pool.state().leave(ticket) {
                    return;
                }
                session.link = Link::None;
                client.pending.drain(..end);
                let error = ErrorResponse::error(QUERY_CANCELED, "canceling statement due to user request");
                io.send(client.conn, &error.to_bytes());
                if let Some(begun) = &mut session.begun {
                    begun.failed = true;
                }
                io.send(client.conn, &session.status().ready_for_query());
                self.todo.push_back(Todo::Input(id));
            }
            Link::None | Link::Coming => {}
        }
    }

    /// Sends a CancelRequest to a server that is running something.
    pub(super) fn send_cancel(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some((process_id, key)) = &server.key else { return };
        if !server.exchange.owes() && !server.exchange.has_open_batch() {
            return;
        }
        if server.cancels.hold(server.exchange.shields(now)) {
            self.arm(id);
            return;
        }
        let mut request = Vec::new();
        startup::put_cancel(&mut request, *process_id, key);
        server.cancels.sent();
        let conn = io.connect(Owner::Cancel(self.cancels.next_id()), &server.pool.upstream.address);
        let deadline = now + SETTLE_TIMEOUT;
        let cancel = self.cancels.insert(Canceller { conn, server: Some(id), request, deadline });
        self.timers.push(deadline, Timer::Cancel(cancel));
    }

    pub(super) fn cancel_connected(&mut self, id: CancelId, io: &mut impl Io) {
        if let Some(canceller) = self.cancels.get(id) {
            io.send(canceller.conn, &canceller.request);
        }
    }

    /// PostgreSQL closes the connection once it has passed the cancel on.
    pub(super) fn cancel_closed(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        let Some(canceller) = self.cancels.remove(id) else { return };
        io.close(canceller.conn);
        let Some(id) = canceller.server else { return };
        let Some(server) = self.servers.get_mut(id) else { return };
        server.cancels.delivered();
        if server.cancels.are_under_way() {
            return;
        }
        match server.role {
            Role::Settling { .. } => self.todo.push_back(Todo::Settle(id)),
            // What Sluice itself has to do there has waited for that.
            Role::Serving(client) => {
                self.check_rest(now, id, io);
                self.todo.push_back(Todo::Input(client));
            }
            Role::Opening { .. } | Role::Idle => {}
        }
    }

    /// A cancel that could not be delivered in time may still be: its server can't be trusted with another query.
    pub(super) fn cancel_due(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        if self.cancels.get(id).is_none_or(|canceller| now < canceller.deadline) {
            // It has been delivered, and this is another one.
            return;
        }
        let Some(canceller) = self.cancels.remove(id) else { return };
        io.close(canceller.conn);
        if let Some(server) = canceller.server {
            self.server_closed(now, server, "a cancel request could not be delivered", io);
        }
    }

    pub(super) fn forget_cancels(&mut self, server: ServerId) {
        for canceller in self.cancels.values_mut() {
            if canceller.server == Some(server) {
                canceller.server = None;
            }
        }
    }
}

/// Where the first query in `pending` ends: at the end of a Query, or of the Sync behind a batch.
fn first_query(pending: &[u8]) -> Option<usize> {
    let framer = sluice_wire::Framer::default();
    let mut at = 0;
    while at < pending.len() {
        let Ok(Frame::Message { tag, total, here }) = framer.next(&pending[at..]) else { return None };
        if here < total {
            return None;
        }
        at += total;
        if matches!(FrontendKind::from(tag), FrontendKind::Query | FrontendKind::FunctionCall | FrontendKind::Sync) {
            return Some(at);
        }
    }
    None
}
