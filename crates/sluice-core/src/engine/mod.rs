//! One worker's share of the pool: its clients, its server connections, and what happens between them.
//!
//! A driver reports events; the engine answers with actions on [`Io`]. Nothing here blocks, and nothing here is
//! shared with other workers but the [`Hub`].
//!
//! | file | what it is about |
//! |---|---|
//! | `login` | a client from its first byte to its first ReadyForQuery |
//! | `login_time` | the time that a log-in may take |
//! | `balancers` | clients whose balancer says first where they come from |
//! | `accounts` | what has to be known of a client before it is asked to prove itself |
//! | `rules` | the rule of `pg_hba.conf` that counts for a client |
//! | `input` | a client's bytes: handled as far as that can be done now, and kept |
//! | `frontend` | a client's messages on their way to a server |
//! | `statements` | prepared statements among a client's messages |
//! | `parses` | a client's Parse: answered where the statement is known, shared, or passed on |
//! | `terms` | the terms on which a statement is shared, and what has to be done before it may go to a server |
//! | `apart` | statements whose literals were read by other settings than those in place, prepared again |
//! | `rereading` | statements whose literals PostgreSQL reads anew, under another `search_path` |
//! | `lending` | the names of a client's that a server has while SQL may mean them |
//! | `comings` | clients who come and go, as the log tells of them |
//! | `commands` | commands of a client's that Sluice carries out by itself |
//! | `amending` | Queries to whose texts something was added |
//! | `begin` | a BEGIN that the client was told of before its server |
//! | `shapes` | the shapes of results, as a client was told |
//! | `standing_in` | statements that answer in place of those that a server lacks |
//! | `moving` | another configuration: pools that have gone, and where their clients go on |
//! | `draining` | clients that leave as soon as they have no transaction open, since an operator says so |
//! | `console` | clients of the admin console |
//! | `listing` | the clients and servers of a worker, as the console lists them |
//! | `copying` | COPYs that the server begins to read |
//! | `losing` | blocks that are lost with a cluster's primary |
//! | `client_address` | clients' addresses, reported to servers |
//! | `backend` | a server's messages on their way to a client |
//! | `promotions` | what clients are told of a standby that is promoted |
//! | `reloads` | what a client is told of reloads of the configuration |
//! | `resetting` | what follows where a client resets settings |
//! | `own_answers` | the answers to queries of Sluice's own |
//! | `own_queries` | queries of Sluice's own, which the client sees nothing of |
//! | `notifications` | notifications on their way to a client that listens |
//! | `errors` | a server's errors: what each answers, and what follows from it |
//! | `failing` | queries of Sluice's own that fail: once more, on another server, or the end of the session |
//! | `healing` | a statement that a server calls stale: prepared again, and its batch sent again |
//! | `encrypting` | connections by TLS: clients', servers', and those of cancels |
//! | `opening` | a server connection from connect to its first ReadyForQuery |
//! | `beginnings` | the beginnings of sessions, where their server's own log-in does not tell them |
//! | `sharing` | servers under limits that several pools share |
//! | `keeping` | the contents of a session: settings that follow its client, and what keeps it on its server |
//! | `slow` | requests that take long, for the log |
//! | `sequences` | what sequences gave a client, which `currval` and `lastval` tell |
//! | `waiting` | what a client waits for whose message has not been handled |
//! | `idling` | clients that hold a server and leave it waiting |
//! | `overdue` | requests that take longer than the configuration allows |
//! | `timers` | deadlines, and what is looked at when they come |
//! | `lease` | the lease of a server: acquire, attach, release, put in order |
//! | `causal` | transactions that read at standbys, and find there what was committed before |
//! | `cancel` | CancelRequests, in and out |

mod accounts;
mod amending;
mod apart;
mod backend;
mod balancers;
mod begin;
mod beginnings;
mod broken;
mod cancel;
mod causal;
mod client_address;
mod comings;
mod commands;
mod console;
mod copying;
mod draining;
mod encrypting;
mod errors;
mod failing;
mod frontend;
mod healing;
mod idling;
mod input;
mod keeping;
mod lease;
mod lending;
mod listing;
mod login;
mod login_time;
mod losing;
mod moving;
mod notifications;
mod opening;
mod outcomes;
mod overdue;
mod own_answers;
mod own_queries;
mod parameters;
mod parses;
mod promotions;
mod reloads;
mod rereading;
mod resetting;
mod rules;
mod sequences;
mod shapes;
mod sharing;
mod slow;
mod standing_in;
mod statements;
mod terms;
mod timers;
mod waiting;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use sluice_control::Snapshot;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    admission::Connected,
    alarm::Alarm,
    client::{Client, Phase},
    hub::Hub,
    ids::{CancelId, ClientId, ClientRef, ServerId, ServerRef, Slots},
    io::{Conn, Departure, Io, LogEvent, Loss, Owner, PeerAddress},
    mail::Mail,
    pauses::Reason,
    server::{Role, Server},
    time::Time,
    watch::Overdue,
};

pub use cancel::client_of;

use cancel::Canceller;
use frontend::Parting;
use timers::Timers;

/// Above this many bytes that the kernel has not taken, the sender of them is not read from.
pub const BACKLOG_HIGH_BYTES: usize = 256 << 10;

/// The time that a server whose client is gone may take to come to rest, and a cancel to be delivered.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// No event leaves so many steps, however many clients there are: a test fails that would go on for ever.
const STEPS_MAX: usize = 1_000_000;

/// One worker's share of the pool.
#[derive(Debug)]
pub struct Engine {
    worker: u16,
    hub: Arc<Hub>,
    /// The snapshot that it goes by.
    snapshot: Arc<Snapshot>,
    clients: Slots<ClientId, Client>,
    servers: Slots<ServerId, Server>,
    cancels: Slots<CancelId, Canceller>,
    serial: u32,
    /// Clients in the order in which their log-ins began, with that time, until they are logged in or too late.
    logins: VecDeque<(Time, ClientRef)>,
    timers: Timers,
    /// Work that an event has left to do: done before the event's call returns.
    todo: VecDeque<Todo>,
    /// The time at which the last client is sent away, once the service is stopping.
    stopping: Option<Time>,
    /// A buffer in which messages are put together; empty between uses.
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Todo {
    /// A server without a client: bring it to rest, or to its next client.
    Settle(ServerId),
    /// A client whose bytes may be handled now.
    Input(ClientId),
    /// A client without a server whose pool is retired.
    Move(ClientId),
    /// A server for whose client a cancel has waited: it is for what that client has sent, if it has the server still.
    Cancel(ServerId, Option<ClientId>),
    /// One that asked for a cancel that there is nothing for any more.
    Cancelled(ClientRef),
}

impl Engine {
    /// The engine of worker number `worker`.
    pub fn new(worker: u16, hub: Arc<Hub>) -> Self {
        Self {
            worker,
            snapshot: hub.snapshot(),
            hub,
            clients: Slots::default(),
            servers: Slots::default(),
            cancels: Slots::default(),
            serial: 0,
            logins: VecDeque::new(),
            timers: Timers::default(),
            todo: VecDeque::new(),
            stopping: None,
            scratch: Vec::new(),
        }
    }

    /// A client has connected.
    pub fn accepted(&mut self, now: Time, conn: Conn, peer: PeerAddress, io: &mut impl Io) -> Option<Owner> {
        let is_balancer = self.snapshot.is_balancer(peer);
        let connected = match self.admit_connection(peer, is_balancer) {
            Ok(connected) => connected,
            Err(error) => {
                io.log(LogEvent::ClientRefused { peer, who: None, rule: None, error: &error });
                io.send(conn, &error.to_bytes());
                io.close(conn);
                return None;
            }
        };
        let serial = self.next_serial();
        let mut client = Client::new(conn, serial, peer, now);
        client.connected = connected;
        if is_balancer {
            client.phase = Phase::Header;
        }
        let id = self.clients.insert(client);
        let client = ClientRef { worker: self.worker, id, serial };
        self.begin_login_time(now, client);
        Some(Owner::Client(id))
    }

    /// Counts a connection in, unless there are as many as may be.
    fn admit_connection(&self, peer: PeerAddress, is_balancer: bool) -> Result<Option<Connected>, ErrorResponse> {
        if self.is_finished() {
            return Err(no_more_clients());
        }
        let connected = match is_balancer {
            true => self.hub.admit_balancer().map(Some),
            false => self.hub.admit_address(peer),
        };
        let connected = connected.map_err(|full| login::too_many(full, "", ""))?;
        if !self.hub.admit_connection() {
            return Err(too_many_clients());
        }
        Ok(connected)
    }

    /// A connection that the engine asked for is open.
    pub fn connected(&mut self, _now: Time, owner: Owner, io: &mut impl Io) {
        match owner {
            Owner::Client(_) => {}
            Owner::Server(id) => self.server_connected(id, io),
            Owner::Cancel(id) => self.cancel_connected(id, io),
        }
    }

    /// Bytes have come. They are the chunk that [`Io::forward`] speaks of.
    pub fn received(&mut self, now: Time, owner: Owner, bytes: &[u8], io: &mut impl Io) {
        match owner {
            Owner::Client(id) => self.client_bytes(now, id, bytes, io),
            Owner::Server(id) => self.server_bytes(now, id, bytes, true, io),
            Owner::Cancel(id) => self.cancel_bytes(now, id, bytes, io),
        }
        self.work(now, io);
    }

    /// A connection is gone: its end was reached, or it broke.
    pub fn closed(&mut self, now: Time, owner: Owner, loss: &Loss, io: &mut impl Io) {
        match owner {
            Owner::Client(id) => {
                self.note_handshake_failed(id, loss, io);
                let says_goodbye = self.clients.get(id).is_some_and(Client::says_goodbye);
                match says_goodbye {
                    true => self.part_from(now, id, Parting::Goodbye, Departure::Goodbye, io),
                    false => self.drop_client(now, id, Departure::Lost(loss), io),
                }
            }
            Owner::Server(id) => match loss {
                Loss::Tls(error) if self.is_opening(id) => self.server_unsecured(now, id, error, io),
                loss => self.server_closed(now, id, &loss.to_string(), io),
            },
            Owner::Cancel(id) => self.cancel_closed(now, id, io),
        }
        self.work(now, io);
    }

    /// A connection whose backlog was high has been read from.
    pub fn drained(&mut self, now: Time, owner: Owner, io: &mut impl Io) {
        match owner {
            Owner::Client(id) => self.client_drained(id, io),
            Owner::Server(id) => {
                if let Some(Server { role: Role::Serving(client), .. }) = self.servers.get(id)
                    && let Some(client) = self.clients.get_mut(*client)
                {
                    client.resume(Reason::Server, io);
                }
            }
            Owner::Cancel(_) => {}
        }
        self.work(now, io);
    }

    /// A client has read what it was sent: its server is heard again, and so is what it has sent itself.
    fn client_drained(&mut self, id: ClientId, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.pauses.has(Reason::Unread) {
            client.resume(Reason::Unread, io);
            self.todo.push_back(Todo::Input(id));
        }
        if let Some(server) = client.server().and_then(|s| self.servers.get_mut(s)) {
            resume_server(server, io);
        }
    }

    /// A message of another worker has come.
    pub fn mail(&mut self, now: Time, mail: Mail, io: &mut impl Io) {
        match mail {
            Mail::Server(server, client) => {
                self.adopt(now, server, client, &[], io);
            }
            Mail::Fetch(server, client, pool) => self.give_away(now, server, client, &pool, io),
            Mail::FetchFailed(client) => self.fetch_failed(now, client, io),
            Mail::Refuse(client, error) => {
                if self.is_current(client) && !self.refused_at_standby(now, client.id, io) {
                    self.refuse_client(now, client.id, &error, io);
                }
            }
            Mail::CloseIdle(server) => self.close_idle(server, io),
            Mail::Recall(server, pool) => self.recall(now, server, &pool, io),
            Mail::Cancel { process_id, client, key, asker } => {
                self.cancel_client(now, (process_id, client), key, asker, io);
            }
            Mail::Cancelled(asker) => self.cancel_answered(now, asker, io),
            Mail::Identified(client, user) => self.identified(now, client, user, io),
            Mail::Secret(client) => self.account_found(now, client, io),
            Mail::Answer(client, answer) => self.command_answered(client, &answer, io),
            Mail::End(database) => self.end_clients(now, &database, io),
            Mail::Published => self.published(now, io),
            Mail::Drain => self.drain(now, io),
            Mail::Stop(deadline) => self.stop(now, deadline, io),
        }
        self.work(now, io);
    }

    /// Takes over a server from another worker; its connection is `server.conn`, and its number is returned if it is
    /// still there when this call ends. `early` has come from it while it changed hands: no client's concern.
    pub fn adopt(
        &mut self,
        now: Time,
        server: Box<Server>,
        client: ClientRef,
        early: &[u8],
        io: &mut impl Io,
    ) -> Option<Owner> {
        let serial = self.next_serial();
        // The pool has given it away, and counts it as in use.
        let role = Role::Settling { deadline: now + SETTLE_TIMEOUT };
        let id = self.servers.insert(Server {
            serial,
            role,
            alarm: Alarm::default(),
            overdue: Overdue::default(),
            ..*server
        });
        if !early.is_empty() {
            self.server_bytes(now, id, early, false, io);
        }
        if self.servers.get(id).is_some_and(|server| server.serial == serial) {
            self.attach(now, id, client, io);
        } else {
            self.fetch_failed(now, client, io);
        }
        self.work(now, io);
        // Without its client it may have been closed or handed on, and its number given to another.
        let here = self.servers.get(id).is_some_and(|server| server.serial == serial);
        here.then_some(Owner::Server(id))
    }

    /// Time has passed: to be called at [`next_timeout`](Self::next_timeout), and of no effect before.
    pub fn tick(&mut self, now: Time, io: &mut impl Io) {
        self.expire_logins(now, io);
        self.expire(now, io);
        if self.worker == 0 && self.timers.tends(now) {
            self.hub.expire_holds(now);
            self.tend_pools(now, io);
            self.hub.forget_unused_pools(now);
        }
        if self.stopping.is_some_and(|deadline| now >= deadline) {
            self.send_all_away(now, |_| true, io);
            for id in self.servers.ids(|_| true) {
                self.close_server(id, io);
            }
        }
        self.work(now, io);
        self.assert_timers();
    }

    /// Whether a stopping engine has nothing left.
    pub fn is_finished(&self) -> bool {
        self.stopping.is_some() && self.clients.is_empty() && self.servers.is_empty()
    }

    /// The number of servers of this worker in use; counted up to `limit`.
    pub fn serving(&self, limit: usize) -> usize {
        self.servers.iter().filter(|(_, server)| matches!(server.role, Role::Serving(_))).take(limit).count()
    }

    /// The servers of this worker that are free, for tests.
    pub fn idle(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().map(|(_, server)| server).filter(|server| matches!(server.role, Role::Idle))
    }

    /// Clients and servers of this worker, for tests and figures.
    pub fn counts(&self) -> (usize, usize) {
        (self.clients.len(), self.servers.len())
    }

    /// Does what the event has left to do. Each step may leave more; all of them end, since each either uses up a
    /// client's bytes or moves a server nearer to rest.
    fn work(&mut self, now: Time, io: &mut impl Io) {
        let mut steps = 0;
        while let Some(todo) = self.todo.pop_front() {
            steps += 1;
            debug_assert!(steps < STEPS_MAX, "one event leaves work without end: {todo:?}");
            match todo {
                Todo::Settle(server) => {
                    self.settle(now, server, io);
                    self.arm(server);
                }
                Todo::Input(client) => self.resume_input(now, client, io),
                Todo::Move(client) => self.move_client(now, client, io),
                // What the client has sent goes first.
                Todo::Cancel(..) if self.todo.iter().any(|todo| !matches!(todo, Todo::Cancel(..))) => {
                    self.todo.push_back(todo);
                }
                Todo::Cancel(server, client) => self.send_held_cancel(now, server, client, io),
                Todo::Cancelled(asker) => self.cancel_answered(now, asker, io),
            }
        }
        self.end_strangers(now, io);
        self.assert_waits();
    }

    fn client_ref(&self, id: ClientId) -> Option<ClientRef> {
        let client = self.clients.get(id)?;
        Some(ClientRef { worker: self.worker, id, serial: client.serial })
    }

    fn server_ref(&self, id: ServerId) -> Option<ServerRef> {
        let server = self.servers.get(id)?;
        Some(ServerRef { worker: self.worker, id, serial: server.serial })
    }

    /// Whether that server is here, and idle.
    fn is_idle(&self, server: ServerRef) -> bool {
        let here = self.servers.get(server.id);
        here.is_some_and(|s| s.serial == server.serial && matches!(s.role, Role::Idle))
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    fn is_current(&self, client: ClientRef) -> bool {
        self.clients.get(client.id).is_some_and(|c| c.serial == client.serial)
    }

    /// Sends a client away with an error.
    fn refuse_client(&mut self, now: Time, id: ClientId, error: &ErrorResponse, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let lost_commit = client.session_mut().and_then(|session| session.commit.take());
        let unknown = lost_commit.map(|_| outcomes::unknown().detail(error.message.to_string()));
        let error = unknown.as_ref().unwrap_or(error);
        let client = &self.clients[id];
        let (who, rule) = (self.who(client), client.rule.as_deref());
        io.log(LogEvent::ClientRefused { peer: client.peer, who, rule, error });
        // Whatever the pool calls it, the client's connection ends here.
        let fatal = ErrorResponse { severity: sluice_wire::Severity::Fatal, ..error.clone() };
        let server = client.server().and_then(|s| self.servers.get(s));
        // Who is behind a balancer may not speak the protocol, who cancels hears nothing, and behind half a message of a
        // server's, it would be taken for the rest of it.
        if !matches!(client.phase, Phase::Header | Phase::Asker)
            && !server.is_some_and(|server| server.stream.is_passing())
        {
            io.send(client.conn, &fatal.to_bytes());
        }
        self.drop_client(now, id, Departure::SentAway(error), io);
    }

    /// Forgets a client, and sees that its server, if it has one, is put in order.
    fn drop_client(&mut self, now: Time, id: ClientId, reason: Departure<'_>, io: &mut impl Io) {
        self.part_from(now, id, Parting::Gone, reason, io);
    }

    fn part_from(&mut self, now: Time, id: ClientId, parting: Parting, reason: Departure<'_>, io: &mut impl Io) {
        let Some(client) = self.clients.remove(id) else { return };
        self.log_gone(now, &client, reason, io);
        io.close(client.conn);
        self.hub.dismiss_connection();
        if let Phase::Account(wish) = &client.phase {
            let gone = ClientRef { worker: self.worker, id, serial: client.serial };
            self.hub.secrets.no_longer_waits(&wish.user, gone);
        }
        self.leave_lease(now, &client, parting, io);
    }

    fn stop(&mut self, now: Time, deadline: Time, io: &mut impl Io) {
        self.stopping = Some(deadline);
        self.send_all_away(now, |client| client.server().is_none() && !is_stranger(client), io);
        // Sessions that have a server for themselves and do nothing with it.
        for id in self.servers.ids(|server| matches!(server.role, Role::Serving(_)) && server.is_at_rest()) {
            self.check_rest(now, id, io);
        }
        for id in self.servers.ids(|server| matches!(server.role, Role::Idle | Role::Opening { .. })) {
            self.close_server(id, io);
        }
    }

    /// Those who have not said what they want keep nobody waiting: a stopping engine ends when it has nobody else.
    fn end_strangers(&mut self, now: Time, io: &mut impl Io) {
        let has_others = || !self.servers.is_empty() || self.clients.iter().any(|(_, client)| !is_stranger(client));
        if self.stopping.is_none() || has_others() {
            return;
        }
        for id in self.clients.ids(|_| true) {
            self.refuse_client(now, id, &no_more_clients(), io);
        }
    }

    fn send_all_away(&mut self, now: Time, which: impl Fn(&Client) -> bool, io: &mut impl Io) {
        for id in self.clients.ids(which) {
            self.refuse_client(now, id, &shutting_down(), io);
        }
    }
}

/// More clients come than may be there at once.
fn too_many_clients() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
        .routine("InitProcess")
        .hint("Raise \"clients\" under [limits] in the pool's configuration.")
}

/// Whether a client has not said yet who it wants to be.
fn is_stranger(client: &Client) -> bool {
    matches!(client.phase, Phase::Header | Phase::Startup)
}

/// The error that those get who come when the service stops.
fn no_more_clients() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, "the connection pool is shutting down")
        .routine("ProcessStartupPacket")
}

/// The error that clients get when the service stops.
fn shutting_down() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::ADMIN_SHUTDOWN,
        "terminating connection because the connection pool is shutting down",
    )
}

fn resume_server(server: &mut Server, io: &mut impl Io) {
    if std::mem::take(&mut server.paused) {
        io.resume(server.conn);
    }
}
