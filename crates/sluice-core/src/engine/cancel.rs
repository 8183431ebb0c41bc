//! CancelRequests. One that comes names a client of the pool; one that goes out names a server, over a connection of
//! its own, and that server goes to nobody else until the request has been delivered.

use std::{sync::Arc, time::Duration};

use sluice_tls::ClientTls;
use sluice_wire::{ErrorResponse, Frame, FrontendKind, sqlstate, startup};
use subtle::ConstantTimeEq;

use crate::{
    client::{Client, Link, Phase},
    ids::{CancelId, ClientId, ClientRef, ServerId},
    io::{Conn, Departure, Io, Owner},
    mail::Mail,
    server::{Role, Server},
    stream::Fate,
    time::Time,
};

use super::{Engine, SETTLE_TIMEOUT, Todo, timers::Timer};

/// The lowest process id of a client: above all that Linux gives to processes (PID_MAX_LIMIT), so that it is no
/// server's, whatever a client does with it.
const PROCESS_ID_MIN: u32 = (1 << 22) + 1;

/// Bits of a process id that are the client's number: there are a million of them at most.
const INDEX_BITS: u32 = 20;

/// Bits of a process id that tell a client from the last ones of its number. The others are its worker's.
const TURN_BITS: u32 = 4;

/// The time from when a client's query has been sent behind what Sluice itself did to a cancel that has waited for that:
/// PostgreSQL ignores a cancel that finds the server still without a query.
const HELD_TIME: Duration = Duration::from_millis(2);

/// A CancelRequest on its way to a server.
#[derive(Debug)]
pub(super) struct Canceller {
    /// Its connection; `None` until its time has come.
    pub(super) conn: Option<Conn>,
    /// The encryption that the connection is to have and does not have yet, and the server's host.
    pub(super) tls: Option<(Arc<ClientTls>, Box<str>)>,
    /// For which server; `None` once that is gone, and where it is for another process.
    server: Option<ServerId>,
    request: Vec<u8>,
    deadline: Time,
    /// The clients that asked for it, and are told that it has been delivered by the end of their connections.
    askers: Vec<ClientRef>,
}

/// The fate of a cancel for a server.
pub(super) enum Asked {
    /// It is on its way.
    Sent(CancelId),
    /// It waits there until what Sluice itself does is done.
    Held(ServerId),
}

/// The process id that a client gets in BackendKeyData.
pub(super) fn process_id(client: ClientRef) -> u32 {
    let turn = client.serial % (1 << TURN_BITS);
    let index = client.id.0 % (1 << INDEX_BITS);
    PROCESS_ID_MIN + ((u32::from(client.worker) << TURN_BITS | turn) << INDEX_BITS | index)
}

/// The worker and the number of the client that a process id of [`process_id`]'s stands for; `None` if it is none.
pub fn client_of(process_id: u32) -> Option<(u16, ClientId)> {
    let code = process_id.checked_sub(PROCESS_ID_MIN)?;
    Some(((code >> (INDEX_BITS + TURN_BITS)) as u16, ClientId(code % (1 << INDEX_BITS))))
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
        match client_of(process_id) {
            Some((worker, client)) if worker == self.worker => {
                self.cancel_client(now, (process_id, client), key, Some(asker), io);
            }
            Some((worker, client)) if worker < self.hub.workers => {
                io.mail(worker, Mail::Cancel { process_id, client, key, asker: Some(asker) });
            }
            _ => self.cancel_elsewhere(now, process_id, &key, Some(asker), io),
        }
    }

    /// A CancelRequest has been delivered, or there was nothing to cancel.
    pub(super) fn cancel_answered(&mut self, now: Time, asker: ClientRef, io: &mut impl Io) {
        if asker.worker != self.worker {
            io.mail(asker.worker, Mail::Cancelled(asker));
        } else if self.is_current(asker) {
            self.drop_client(now, asker.id, Departure::Goodbye, io);
        }
    }

    /// Cancels what a client is running, or is waiting to run, for somebody who waits for that.
    pub(super) fn cancel_client(
        &mut self,
        now: Time,
        (process_id, id): (u32, ClientId),
        key: Vec<u8>,
        asker: Option<ClientRef>,
        io: &mut impl Io,
    ) {
        let is_its = |client: &Client| !client.key.is_empty() && bool::from(client.key.ct_eq(&key));
        if !self.clients.get(id).is_some_and(is_its) {
            return self.cancel_elsewhere(now, process_id, &key, asker, io);
        }
        let asked = self.cancel_running(now, id, io);
        self.have_wait(asked, asker);
    }

    /// Has those who asked for a cancel wait until it is delivered.
    fn have_wait(&mut self, asked: Option<Asked>, askers: impl IntoIterator<Item = ClientRef>) {
        let waiting = match asked {
            Some(Asked::Sent(id)) => self.cancels.get_mut(id).map(|canceller| &mut canceller.askers),
            Some(Asked::Held(id)) => self.servers.get_mut(id).map(|server| &mut server.cancels.askers),
            None => None,
        };
        match waiting {
            Some(waiting) => waiting.extend(askers),
            None => self.todo.extend(askers.into_iter().map(Todo::Cancelled)),
        }
    }

    /// No client here has that process id and that key: one of the process may have them that this one took over from,
    /// and such a client finds nobody but us at the address that it knows.
    fn cancel_elsewhere(&mut self, now: Time, process_id: u32, key: &[u8], asker: Option<ClientRef>, io: &mut impl Io) {
        let hub = self.hub.clone();
        let Some(address) = &hub.predecessor else {
            if let Some(asker) = asker {
                self.cancel_answered(now, asker, io);
            }
            return;
        };
        let mut request = Vec::new();
        startup::put_cancel(&mut request, process_id, key);
        let (deadline, askers) = (now + SETTLE_TIMEOUT, asker.into_iter().collect());
        let canceller = Canceller { conn: None, tls: None, server: None, request, deadline, askers };
        let id = self.cancels.insert(canceller);
        self.cancels[id].conn = Some(io.connect(Owner::Cancel(id), address));
        self.timers.push(deadline, Timer::Cancel(id));
    }

    /// Gives its fate, if it is for a server.
    fn cancel_running(&mut self, now: Time, id: ClientId, io: &mut impl Io) -> Option<Asked> {
        let worker = self.worker;
        let client = self.clients.get_mut(id)?;
        let session = match &mut client.phase {
            Phase::Open(session) => session,
            Phase::Console(console) => {
                if console.waits {
                    io.cancel_command(ClientRef { worker, id, serial: client.serial });
                }
                return None;
            }
            _ => return None,
        };
        if session.commit.is_some() {
            // What it waits for is done or not.
            return None;
        }
        // It does not leave one in the midst of a message that it has the beginning of.
        let stays = |id| self.servers.get(id).is_some_and(|server: &Server| server.stream.is_passing());
        match session.link {
            Link::Server(id) if session.reads.catch_up.is_none() || stays(id) => {
                // Where nothing but Sluice's own runs, it is for what the client has sent meanwhile, and nothing later.
                let has_sent =
                    |server: &Server| server.exchange.replies().have_clients() || server.exchange.has_open_batch();
                let is_for_something = !client.pending.is_empty() || self.servers.get(id).is_some_and(has_sent);
                return is_for_something.then(|| self.send_cancel(now, id, io)).flatten();
            }
            Link::Waiting(_) | Link::Coming | Link::Server(_) => {
                // The query has not begun: it is taken out of what the client has sent. A server that is on its way by
                // then finds what the client sends next, or nothing, and goes back.
                let mut is_coming = session.link == Link::Coming;
                let request = first_request(&client.pending);
                if request.bytes == 0 {
                    return None;
                }
                match session.link {
                    Link::Server(id) => {
                        if let Some(server) = self.servers.get_mut(id) {
                            server.stop_catching_up(now + SETTLE_TIMEOUT);
                            self.todo.push_back(Todo::Settle(id));
                        }
                    }
                    Link::Waiting(ticket) => is_coming = !session.pool.state().leave(ticket),
                    Link::None | Link::Coming => {}
                }
                if !is_coming {
                    session.link = Link::None;
                    session.come_home();
                }
                let here = request.bytes.min(client.pending.len());
                client.pending.drain(..here);
                if here < request.bytes {
                    // Its rest is dropped as it comes.
                    client.stream.handle(Fate::Dropped, request.bytes, here);
                }
                let error = ErrorResponse::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request");
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
            Link::None => {}
        }
        None
    }

    /// Sends a CancelRequest to a server that is running something, unless it must wait.
    pub(super) fn send_cancel(&mut self, now: Time, id: ServerId, io: &mut impl Io) -> Option<Asked> {
        let server = self.servers.get_mut(id)?;
        if !has_something(server) {
            return None;
        }
        if server.cancels.hold(server.exchange.shields(now)) {
            self.arm(id);
            return Some(Asked::Held(id));
        }
        let cancel = self.new_cancel(id, now)?;
        self.start_cancel(now, cancel, io);
        Some(Asked::Sent(cancel))
    }

    /// Cancels what Sluice itself has asked of a server that is about to be given up: PostgreSQL does not look at a
    /// connection while it waits for something else, so its process would stay for as long as that takes.
    pub(super) fn cancel_own(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        if let Some(cancel) = self.new_cancel(id, now) {
            self.start_cancel(now, cancel, io);
        }
    }

    /// A CancelRequest that nothing is sent of yet. Its server goes to nobody else from now on.
    fn new_cancel(&mut self, id: ServerId, due: Time) -> Option<CancelId> {
        let server = self.servers.get_mut(id)?;
        let (process_id, key) = server.key.as_ref()?;
        let mut request = Vec::new();
        startup::put_cancel(&mut request, *process_id, key);
        server.cancels.sent();
        let askers = std::mem::take(&mut server.cancels.askers);
        let tls = self.cancel_encryption(id);
        Some(self.cancels.insert(Canceller { conn: None, tls, server: Some(id), request, deadline: due, askers }))
    }

    fn start_cancel(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        let Some(canceller) = self.cancels.get_mut(id) else { return };
        let Some(server) = canceller.server.and_then(|server| self.servers.get(server)) else { return };
        canceller.conn = Some(io.connect(Owner::Cancel(id), &server.pool.upstream.address));
        canceller.deadline = now + SETTLE_TIMEOUT;
        self.timers.push(canceller.deadline, Timer::Cancel(id));
    }

    /// Sends a server the CancelRequest that has waited for what Sluice itself did there. Where its client, if there was
    /// one, has it no more, what that has sent meanwhile is cancelled wherever it is.
    pub(super) fn send_held_cancel(&mut self, now: Time, id: ServerId, client: Option<ClientId>, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let is_held_by = match server.role {
            Role::Serving(holder) => Some(holder),
            _ => None,
        };
        if is_held_by != client || !has_something(server) {
            let askers = std::mem::take(&mut server.cancels.askers);
            let asked = client.filter(|_| is_held_by != client).and_then(|id| self.cancel_running(now, id, io));
            self.have_wait(asked, askers);
        } else if client.is_none() {
            self.send_cancel(now, id, io);
        } else if let Some(cancel) = self.new_cancel(id, now + HELD_TIME) {
            self.timers.push(now + HELD_TIME, Timer::Cancel(cancel));
        }
    }

    /// The connection of a CancelRequest is open, or encrypted.
    pub(super) fn cancel_connected(&mut self, id: CancelId, io: &mut impl Io) {
        if let Some(Canceller { conn: Some(conn), tls, request, .. }) = self.cancels.get(id) {
            match tls {
                Some(_) => io.send(*conn, &startup::SSL_REQUEST_PACKET),
                None => io.send(*conn, request),
            }
        }
    }

    /// PostgreSQL closes the connection once it has passed the cancel on. The same where there is nothing to cancel any
    /// more.
    pub(super) fn cancel_closed(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        let Some(id) = self.remove_cancel(now, id, io) else { return };
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

    /// Gives its server, if that is still there.
    fn remove_cancel(&mut self, now: Time, id: CancelId, io: &mut impl Io) -> Option<ServerId> {
        let canceller = self.cancels.remove(id)?;
        if let Some(conn) = canceller.conn {
            io.close(conn);
        }
        for asker in canceller.askers {
            self.cancel_answered(now, asker, io);
        }
        canceller.server
    }

    /// It is time to send a cancel, or one could not be delivered in time. That may still be: its server can't be trusted
    /// with another query.
    pub(super) fn cancel_due(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        let Some(canceller) = self.cancels.get_mut(id).filter(|canceller| now >= canceller.deadline) else {
            // It has been delivered, and this is another one.
            return;
        };
        if canceller.conn.is_some() {
            return self.cancel_undelivered(now, id, io);
        }
        match canceller.server.and_then(|server| self.servers.get(server)).filter(|server| has_something(server)) {
            None => self.cancel_closed(now, id, io),
            Some(server) if server.exchange.shields(now) => {
                canceller.deadline = now + HELD_TIME;
                self.timers.push(canceller.deadline, Timer::Cancel(id));
            }
            Some(_) => self.start_cancel(now, id, io),
        }
    }

    /// A cancel could not be delivered, or nobody knows: its server can't be trusted with another query.
    pub(super) fn cancel_undelivered(&mut self, now: Time, id: CancelId, io: &mut impl Io) {
        if let Some(server) = self.remove_cancel(now, id, io) {
            self.server_closed(now, server, "a cancel request could not be delivered", io);
        }
    }

    /// Forgets the cancels of a server that is gone: nothing more is to be cancelled there.
    pub(super) fn forget_cancels(&mut self, id: ServerId, server: &mut Server) {
        for canceller in self.cancels.values_mut() {
            if canceller.server == Some(id) {
                canceller.server = None;
            }
        }
        let askers = std::mem::take(&mut server.cancels.askers);
        self.todo.extend(askers.into_iter().map(Todo::Cancelled));
    }
}

/// Whether a server has something to do that a cancel could be for.
fn has_something(server: &Server) -> bool {
    server.key.is_some() && (server.exchange.owes() || server.exchange.has_open_batch())
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
