//! Clients that hold a server and leave it waiting, in the middle of a message or of a transaction, and those that have
//! Sluice collect a message and do not send the rest. Each has its time, and then it is sent away, so that those who
//! wait for a server get this one, and the memory is free. And those without a server: that rest, by their own limit
//! (`idle_session_timeout`; where they have a server, that keeps it) or the configuration's, or that have left a
//! transaction or a batch open of which no server knows.

use std::time::Duration;

use sluice_control::settings::Limits;
use sluice_wire::{
    ErrorResponse,
    message::{FLUSH, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Client, Link, PENDING_BYTES_MAX, Phase},
    ids::{ClientId, ServerId},
    io::Io,
    server::{Role, Server},
    time::Time,
    watch::Undone,
};

use super::{Engine, timers::Timer};

impl Engine {
    /// Something has happened between a server and its client.
    pub(super) fn watch(&mut self, now: Time, server: ServerId) {
        self.watch_query(now, server);
        let Some(server) = self.servers.get(server) else { return };
        let Role::Serving(id) = server.role else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        client.watch.beneath = beneath(client, server);
        match undone(client, server) {
            Some(undone) => client.watch.note(now, undone),
            None => client.watch.undone = None,
        }
        self.look_at(id);
    }

    /// What a client has left undone is looked at when its time is over, if it has one.
    fn look_at(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let limits = &self.snapshot.limits;
        let Some(limit) = client.watch.undone.and_then(|undone| limit_of(limits, undone)) else { return };
        if let Some(at) = client.watch.look_after(limit) {
            self.timers.push(at, Timer::Client(id, client.serial));
        }
        if let Some((at, _)) = beneath_due(client, limits)
            && client.watch.alarm.set(at)
        {
            self.timers.push(at, Timer::Client(id, client.serial));
        }
    }

    /// Other limits may count from now on, for what has been left undone before as well: its time does not begin anew.
    pub(super) fn limits_change(&mut self, now: Time) {
        for id in self.servers.ids(|server| matches!(server.role, Role::Serving(_))) {
            self.watch_query(now, id);
        }
        for id in self.clients.ids(|_| true) {
            self.look_at(id);
            self.watch_rest(id);
        }
    }

    /// Bytes of a client have come that has no server.
    pub(super) fn watch_collected(&mut self, now: Time, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.watch.beneath = None;
        if is_collected(client) {
            client.watch.note(now, Undone::Message);
            self.look_at(id);
        } else {
            client.watch.undone = None;
        }
    }

    /// It is time to look at a client: it is sent away if its time is over.
    pub(super) fn client_due(&mut self, now: Time, at: Time, id: ClientId, serial: u32, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id).filter(|client| client.serial == serial) else { return };
        if !client.watch.alarm.ring(at) {
            return;
        }
        let Some(undone) = client.watch.undone else { return };
        let server = client.server();
        if !client.pauses.is_empty() || (server.is_none() && !is_collected(client)) {
            // It is not its fault that its message does not come.
            client.watch.undone = None;
        }
        let Some(limit) = limit_of(&self.snapshot.limits, undone) else { return };
        let own = (client.watch.since + limit, undone);
        let beneath = beneath_due(client, &self.snapshot.limits);
        let (deadline, undone) = beneath.into_iter().fold(own, |own, it| if it.0 < own.0 { it } else { own });
        if client.watch.undone.is_none() {
            if let Some(server) = server {
                self.watch(now, server);
            }
        } else if now >= deadline {
            match undone {
                Undone::Answers => self.ask_for_answers(id, io),
                _ => self.refuse_client(now, id, &error_of(undone), io),
            }
        } else if client.watch.alarm.set(deadline) {
            self.timers.push(deadline, Timer::Client(id, serial));
        }
    }

    /// A client's server is to send the answers that it has: with the last one its time begins.
    fn ask_for_answers(&mut self, id: ClientId, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.watch.undone = None;
        let server = client.server().and_then(|server| self.servers.get_mut(server));
        if let Some(server) = server
            && server.exchange.may_keep_answers()
            && server.exchange.ask_for_answers()
        {
            io.send(server.conn, &FLUSH);
        }
    }

    /// A client has nothing more to wait for: its own limit for that begins.
    pub(super) fn watch_rest(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some((limit, _)) = rest_limit(client, &self.snapshot.limits) else { return };
        let at = client.rest.deadline(limit);
        if client.rest.alarm.set(at) {
            self.timers.push(at, Timer::Rest(id, client.serial));
        }
    }

    /// It is time to look at a client that rests.
    pub(super) fn rest_due(&mut self, now: Time, at: Time, id: ClientId, serial: u32, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id).filter(|client| client.serial == serial) else { return };
        if !client.rest.alarm.ring(at) {
            return;
        }
        let limit = rest_limit(client, &self.snapshot.limits);
        let due = limit.filter(|(limit, _)| now >= client.rest.deadline(*limit));
        match due {
            Some((_, error)) => self.refuse_client(now, id, &error(), io),
            None => self.watch_rest(id),
        }
    }
}

/// A limit, and the error for it.
type Limit = (Duration, fn() -> ErrorResponse);

/// The limit that a client comes under that has no server, and wants none: for what it has left open, or else for doing
/// nothing, its own or the configuration's.
fn rest_limit(client: &Client, limits: &Limits) -> Option<Limit> {
    let Phase::Open(session) = &client.phase else { return None };
    if session.link != Link::None {
        return None;
    }
    if session.begun.is_some() || client.rest.is_open() {
        return Some((limits.idle_transaction_timeout?, idle_in_transaction));
    }
    let own = session.profile.limits().idle_session.map(|limit| (limit, idle_session as fn() -> ErrorResponse));
    let common = limits.idle_client_timeout.map(|limit| (limit, idle_client as fn() -> ErrorResponse));
    own.into_iter().chain(common).min_by_key(|(limit, _)| *limit)
}

/// The same for the configuration's limit.
fn idle_client() -> ErrorResponse {
    idle_session().hint("The limit is \"idle_client_timeout\" under [limits] in the pool's configuration.")
}

/// PostgreSQL's own words for it.
fn idle_session() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout")
        .routine("ProcessInterrupts")
}

/// The time after which a server that nothing has asked for its answers is asked for them.
const ANSWERS_TIME: Duration = Duration::from_secs(1);

/// Whether Sluice holds a good part of a message that a client has not sent to its end.
fn is_collected(client: &Client) -> bool {
    client.unfinished && client.pending.len() > PENDING_BYTES_MAX
}

/// The thing that a client has left undone while its server has nothing else to do.
fn undone(client: &Client, server: &Server) -> Option<Undone> {
    if !matches!(client.phase, Phase::Open(_)) {
        return None;
    }
    if client.unfinished {
        return Some(Undone::Message);
    }
    // One that reads a COPY owes its end, and waits all the same.
    let owes = server.exchange.owes() && !server.exchange.is_copying();
    let says_nothing = !server.stream.is_inside() && client.pending.is_empty();
    if owes && says_nothing && server.exchange.may_keep_answers() {
        return Some(Undone::Answers);
    }
    let is_quiet = !owes && says_nothing;
    let is_open = server.exchange.reported_status() != TransactionStatus::Idle || !server.exchange.is_closed();
    is_quiet.then_some(if is_open { Undone::Transaction } else { Undone::Session })
}

/// What a client has left undone beside a message that has not come whole, and since when: what it was idle in stays as
/// it is until there is a whole one.
fn beneath(client: &Client, server: &Server) -> Option<(Undone, Time)> {
    let exchange = &server.exchange;
    // A query that is passed on as it comes is owed an answer already.
    let owes_it_only = client.stream.is_inside() && exchange.replies().client_requests() == 1;
    let is_answered = !exchange.owes() || owes_it_only;
    if !client.unfinished || server.stream.is_inside() || !exchange.is_closed() || !is_answered {
        return None;
    }
    Some(match exchange.reported_status() {
        TransactionStatus::Idle => (Undone::Session, exchange.ready_at().max(client.rest.since())),
        _ => (Undone::Transaction, exchange.ready_at()),
    })
}

/// The time by which that has to have come to its end.
fn beneath_due(client: &Client, limits: &Limits) -> Option<(Time, Undone)> {
    let (undone, since) = client.watch.beneath?;
    Some((since + limit_of(limits, undone)?, undone))
}

fn limit_of(limits: &Limits, undone: Undone) -> Option<Duration> {
    match undone {
        Undone::Message => Some(limits.client_message_timeout),
        Undone::Transaction => limits.idle_transaction_timeout,
        Undone::Answers => limits.idle_transaction_timeout.map(|limit| limit.min(ANSWERS_TIME)),
        Undone::Session => limits.idle_client_timeout,
    }
}

/// PostgreSQL's own words for it.
fn error_of(undone: Undone) -> ErrorResponse {
    match undone {
        Undone::Message => ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, "incomplete message from client")
            .hint("The limit is \"client_message_timeout\" under [limits] in the pool's configuration."),
        Undone::Transaction | Undone::Answers => idle_in_transaction(),
        Undone::Session => idle_client(),
    }
}

fn idle_in_transaction() -> ErrorResponse {
    let message = "terminating connection due to idle-in-transaction timeout";
    ErrorResponse::fatal(sqlstate::IDLE_IN_TRANSACTION_TIMEOUT, message)
        .routine("ProcessInterrupts")
        .hint("The limit is \"idle_transaction_timeout\" under [limits] in the pool's configuration.")
}
