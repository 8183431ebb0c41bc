//! CancelRequests. One that comes names a client of the pool; one that goes out names a server, over a connection of
//! its own, and that server goes to nobody else until the request has been delivered.

use sluice_wire::{ErrorResponse, Frame, FrontendKind, startup};
use subtle::ConstantTimeEq;

use crate::{
    client::{Link, Phase},
    ids::{CancelId, ClientId, ClientRef, ServerId},
    io::{Conn, Io, Owner},
    mail::Mail,
    server::{Role, Server},
    stream::Fate,
    time::Time,
};

use super::{Engine, SETTLE_TIMEOUT, Todo, timers::Timer};

/// `query_canceled`.
const QUERY_CANCELED: &str = "57014";

/// The lowest process id of a client: above all that Linux gives to processes (PID_MAX_LIMIT), so that it is no
/// server's, whatever a client does with it.
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
    /// The client that asked for it, and is told that it has been delivered by the end of its connection.
    asker: Option<ClientRef>,
}

/// The process id that a client gets in BackendKeyData.
pub(super) fn process_id(client: ClientRef) -> u32 {
    let turn = client.serial % (1 << TURN_BITS);
    let index = client.id.0 % (1 << INDEX_BITS);
    PROCESS_ID_MIN + ((u32::from(client.worker) << TURN_BITS | turn) << INDEX_BITS | index)
}

impl Engine {
    /// A CancelRequest has come: it goes to the worker whose client it names.
    ///
    /// As with PostgreSQL, the connection that it came by ends when it has been delivered. Clients wait for that, so
    /// that it can't hit what they run next.
    pub(super) fn cancel_requested(
        &mut self,
        now: Time,
        process_id: u32,
        key: Vec<u8>,
        from: ClientId,
        io: &mut impl Io,
    ) {
        let Some(asker) = self.clients.get_mut(from) else { return };
        asker.phase = Phase::Asker;
        let asker = ClientRef { worker: self.worker, id: from, serial: asker.serial };
        let code = process_id.checked_sub(PROCESS_ID_MIN);
        let place = code.map(|code| ((code >> (INDEX_BITS + TURN_BITS)) as u16, ClientId(code % (1 << INDEX_BITS))));
        match place {
            Some((worker, client)) if worker == self.worker => self.cancel_client(now, client, &key, Some(asker), io),
            Some((worker, client)) if worker < self.hub.workers => {
                io.mail(worker, Mail::Cancel { client, key, asker: Some(asker) });
            }
            _ => self.drop_client(now, from, io),
        }
    }

    /// A CancelRequest has been delivered, or there was nothing to cancel.
    pub(super) fn cancel_answered(&mut self, now: Time, asker: ClientRef, io: &mut impl Io) {
        if asker.worker != self.worker {
            io.mail(asker.worker, Mail::Cancelled(asker));
        } else if self.is_current(asker) {
            self.drop_client(now, asker.id, io);
        }
    }

    /// Cancels what a client is running, or is waiting to run, for somebody who waits for that.
    pub(super) fn cancel_client(
        &mut self,
        now: Time,
        id: ClientId,
        key: &[u8],
        asker: Option<ClientRef>,
        io: &mut impl Io,
    ) {
        let sent = self.cancel_running(now, id, key, io);
        if let Some(canceller) = sent.and_then(|id| self.cancels.get_mut(id)) {
            canceller.asker = asker;
        } else if let Some(asker) = asker {
            self.cancel_answered(now, asker, io);
        }
    }

    /// Gives the request that is on its way to a server.
    fn cancel_running(&mut self, now: Time, id: ClientId, key: &[u8], io: &mut impl Io) -> Option<CancelId> {
        let client = self.clients.get_mut(id)?;
        if client.key.is_empty() || !bool::from(client.key.ct_eq(key)) {
            return None;
        }
        let Phase::Open(session) = &mut client.phase else { return None };
        match session.link {
            Link::Server(id) => {
                // Where nothing but Sluice's own runs, it is for what the client has sent meanwhile, and nothing later.
                let has_sent =
                    |server: &Server| server.exchange.replies().have_clients() || server.exchange.has_open_batch();
                let is_for_something = !client.pending.is_empty() || self.servers.get(id).is_some_and(has_sent);
                return is_for_something.then(|| self.send_cancel(now, id, io)).flatten();
            }
            Link::Waiting(ticket) => {
                // The query has not begun: it is taken out of what the client has sent.
                let request = first_request(&client.pending);
                if request.bytes == 0 || !session.pool.state().leave(ticket) {
                    return None;
                }
                session.link = Link::None;
                let here = request.bytes.min(client.pending.len());
                client.pending.drain(..here);
                if here < request.bytes {
                    // Its rest is dropped as it comes.
                    client.stream.handle(Fate::Dropped, request.bytes, here);
                }
                let error = ErrorResponse::error(QUERY_CANCELED, "canceling statement due to user request");
                io.send(client.conn, &error.to_bytes());
                if let Some(begun) = &mut session.begun {
                    begun.failed = true;
                }
                match request.has_end {
                    true => io.send(client.conn, &session.status().ready_for_query()),
                    false => session.skipping = true,
                }
                self.todo.push_back(Todo::Input(id));
            }
            Link::None | Link::Coming => {}
        }
        None
    }

    /// Sends a CancelRequest to a server that is running something, unless it must wait.
    pub(super) fn send_cancel(&mut self, now: Time, id: ServerId, io: &mut impl Io) -> Option<CancelId> {
        let server = self.servers.get_mut(id)?;
        let (process_id, key) = server.key.as_ref()?;
        if !server.exchange.owes() && !server.exchange.has_open_batch() {
            return None;
        }
        if server.cancels.hold(server.exchange.shields(now)) {
            self.arm(id);
            return None;
        }
        let mut request = Vec::new();
        startup::put_cancel(&mut request, *process_id, key);
        server.cancels.sent();
        let conn = io.connect(Owner::Cancel(self.cancels.next_id()), &server.pool.upstream.address);
        let deadline = now + SETTLE_TIMEOUT;
        let cancel = self.cancels.insert(Canceller { conn, server: Some(id), request, deadline, asker: None });
        self.timers.push(deadline, Timer::Cancel(cancel));
        Some(cancel)
    }

    /// Sends a server the CancelRequest that has waited for what Sluice itself did there, unless its client, if there was
    /// one, has it no more.
    pub(super) fn send_held_cancel(&mut self, now: Time, id: ServerId, client: Option<ClientId>, io: &mut impl Io) {
        let holder = self.servers.get(id).and_then(|server| match server.role {
            Role::Serving(client) => Some(client),
            _ => None,
        });
        if holder == client {
            self.send_cancel(now, id, io);
        }
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
        if let Some(asker) = canceller.asker {
            self.cancel_answered(now, asker, io);
        }
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
        if let Some(asker) = canceller.asker {
            self.cancel_answered(now, asker, io);
        }
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

/// A request that has not been handled.
struct Request {
    /// The bytes of its messages, as far as these have come whole.
    bytes: usize,
    /// Whether its end is among them, which ReadyForQuery answers.
    has_end: bool,
}

/// The first request in `pending`: a Query, or a batch up to its Sync. Of a message that has not come whole it takes all.
fn first_request(pending: &[u8]) -> Request {
    let framer = sluice_wire::Framer::default();
    let mut bytes = 0;
    while let Some(Ok(Frame::Message { tag, total, here })) = pending.get(bytes..).map(|rest| framer.next(rest)) {
        if here < total && bytes > 0 {
            break;
        }
        bytes += total;
        if matches!(FrontendKind::from(tag), FrontendKind::Query | FrontendKind::FunctionCall | FrontendKind::Sync) {
            return Request { bytes, has_end: true };
        }
        if here < total {
            break;
        }
    }
    Request { bytes, has_end: false }
}
