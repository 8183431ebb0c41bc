//! The lease of a server: a client acquires one, it is attached, and released when it is at rest.

use std::{sync::Arc, time::Duration};

use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{self, SYNC, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Client, Link, PENDING_BYTES_MAX, Phase},
    hub::Pool,
    ids::{ClientId, ClientRef, ServerId, ServerRef},
    io::{Departure, HandOver, Io, LogEvent},
    mail::Mail,
    pauses::Reason,
    pool::{Acquired, IS_IT_RUNNING, PoolState, Purpose, Released, Wants},
    replies::Own,
    server::{Preparation, Role, Server, ServerLogin},
    sql::Effects,
    time::Time,
};

use super::{
    Engine, SETTLE_TIMEOUT, Todo,
    begin::send_begin,
    beginnings::{ask_for_date_styles, keep_reported},
    causal::begin_catching_up,
    client_address::{find_address_function, report_address},
    failing::TRIES_MAX,
    frontend::Parting,
    keeping::{begin_session, idle_holder, is_to_be_followed, put_in_order, put_in_place, request_recall, send_probe},
    losing::loss,
    outcomes::ask_for_outcome,
    own_queries::send_own,
    promotions::ask_whether_promoted,
    resume_server,
    sequences::change_server,
    shutting_down,
    timers::CANCEL_AGAIN,
};

/// The time that a server may go on with what a client asked for before it said goodbye, and with a COMMIT.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

impl Engine {
    /// A client needs a server: it gets one, or waits for it.
    pub(super) fn acquire(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        self.acquire_by(now, id, PoolState::acquire, io);
    }

    fn acquire_by(
        &mut self,
        now: Time,
        id: ClientId,
        how: fn(&mut PoolState, Time, ClientRef, Wants<'_>) -> Acquired,
        io: &mut impl Io,
    ) {
        if self.stopping.is_some() {
            self.refuse_client(now, id, &shutting_down(), io);
            return;
        }
        self.move_client(now, id, io);
        let Some(client) = self.client_ref(id) else { return };
        let is_open = self.is_open(id);
        let purpose = if is_open { Purpose::Work } else { Purpose::LogIn };
        let Some(session) = self.clients[id].session_mut() else { return };
        debug_assert!(!matches!(session.link, Link::Server(_)), "a client has one server at most");
        if session.link != Link::None {
            return;
        }
        let pool = session.pool.clone();
        let (generation, startup, new) = (session.generation(), &session.startup, session.needs_new);
        let until = session.reads.catch_up.filter(|_| session.reads.is_away()).map(|catch_up| catch_up.until);
        let wants = Wants { made: &session.made, generation, startup, new, purpose, until };
        let acquired = how(&mut pool.state(), now, client, wants);
        match acquired {
            Acquired::Server(server) if server.worker == self.worker => {
                session.link = Link::Coming;
                self.attach(now, server.id, client, io);
            }
            Acquired::Server(server) => {
                session.link = Link::Coming;
                io.mail(server.worker, Mail::Fetch(server, client, pool));
            }
            Acquired::Queued(ticket) => {
                session.link = Link::Waiting(ticket);
                session.waits_since.get_or_insert(now);
                self.connect_for(now, &pool, io);
                request_recall(now, &pool, io);
            }
        }
    }

    /// Closes a client's server, where others have made what the client is not to find, and gets it another one.
    pub(super) fn replace_server(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return };
        if let Link::Server(server) = std::mem::replace(&mut session.link, Link::None) {
            if let Some(server) = self.servers.get_mut(server) {
                server.role = Role::Settling { deadline: now + SETTLE_TIMEOUT };
            }
            self.close_server(server, io);
        }
        self.acquire_by(now, id, PoolState::acquire_again, io);
    }

    /// Gives a server of this worker to a client of this worker. A client that has gone leaves it to the next one.
    pub(super) fn attach(&mut self, now: Time, id: ServerId, client: ClientRef, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let taker = self.clients.get_mut(client.id).filter(|c| c.serial == client.serial);
        let taken = taker.and_then(|client| {
            let start = match &mut client.phase {
                Phase::Welcome(session, start) => {
                    *start = std::mem::take(start).completed(session.pool.log_ins.date_style());
                    Some(start.clone())
                }
                _ => None,
            };
            Some((client.peer, start, client.session_mut()?))
        });
        let Some((peer, start, session)) = taken else {
            server.role = Role::Settling { deadline: now + SETTLE_TIMEOUT };
            self.todo.push_back(Todo::Settle(id));
            return;
        };
        debug_assert!(!matches!(server.role, Role::Serving(_) | Role::Opening { .. }), "one server serves one client");
        debug_assert!(server.kept.is_none(), "a client that has gone keeps no server");
        session.link = Link::Server(id);
        server.role = Role::Serving(client.id);
        server.is_in_use = false;
        server.asked_until = None;
        server.meter.forget();
        let waited = session.waits_since.take().map_or(Duration::ZERO, |since| now.since(since));
        server.running.begin(waited);
        server.request.taken_by(peer, waited);
        server.taken_by(client, session.role_set_at);
        let is_foreign = session.begun.is_some() && !session.made.cover(server.session.made());
        let is_outdated = server.is_outdated(now);
        let suits = server.opened.suits(session.generation(), &session.startup, session.needs_new);
        if is_foreign || is_outdated || !suits {
            self.replace_server(now, client.id, io);
            return;
        }
        keep_reported(session, server);
        session.goes_by(server.opened.generation);
        session.reads.has_unknown |= server.says_no_commits();
        if !server.follows_statements() {
            report_address(server, peer, &mut self.scratch, io);
            self.welcome_to(client.id, id, io);
            self.todo.push_back(Todo::Input(client.id));
            return;
        }
        if let Some(commit) = &session.commit {
            ask_for_outcome(now, server, commit, &mut self.scratch, io);
            self.arm(id);
            return;
        }
        if let Some(catch_up) = session.reads.want_more_than(server.replayed) {
            begin_catching_up(server, catch_up, &mut self.scratch, io);
            self.arm(id);
            return;
        }
        if let Some(start) = start {
            if !server.opened.startup.is_empty() {
                self.note_date_style(now, client.id, id, io);
                return;
            }
            ask_for_date_styles(server, &start, &mut self.scratch, io);
            begin_session(server, &start, &mut self.scratch, io);
            ask_whether_promoted(now, server, &mut self.scratch, io);
            self.limit_settings(now, id);
            self.begin_begun(now, client.id, id, io);
            self.todo.push_back(Todo::Input(client.id));
            return;
        }
        self.take_up(now, client.id, id, io);
    }

    /// A client's transaction may go to its server, once its settings are in place there.
    pub(super) fn take_up(&mut self, now: Time, id: ClientId, server: ServerId, io: &mut impl Io) {
        let (Some(client), Some(state)) = (self.clients.get_mut(id), self.servers.get_mut(server)) else { return };
        let (reference, peer) = (ClientRef { worker: self.worker, id, serial: client.serial }, client.peer);
        let Some(session) = client.session_mut() else { return };
        session.has_caught_up();
        put_in_place(state, &session.profile, &session.made, &mut self.scratch, io);
        change_server(state, session, reference, &mut self.scratch, io);
        report_address(state, peer, &mut self.scratch, io);
        self.limit_settings(now, server);
        self.begin_begun(now, id, server, io);
        self.todo.push_back(Todo::Input(id));
    }

    /// Begins on a client's server what the client was told has begun: not before its messages may follow, since
    /// should the server refuse, they are what that is an answer to.
    pub(super) fn begin_begun(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) else { return };
        let Some(server) = self.servers.get_mut(server) else { return };
        if server.preparation == Preparation::None
            && let Some(begun) = session.begun.take()
        {
            // Only its ROLLBACK goes to a server.
            session.is_lost = false;
            session.loses_batch = false;
            server.exchange.begin().announce();
            send_begin(now, server, &mut self.scratch, begun, io);
        }
    }

    /// An idle server of this worker was given to a client of another.
    pub(super) fn give_away(
        &mut self,
        now: Time,
        server: ServerRef,
        client: ClientRef,
        pool: &Arc<Pool>,
        io: &mut impl Io,
    ) {
        if !self.is_idle(server) {
            // It went while the message was on its way, when the pool had no idle server of that name to count out.
            pool.state().lost();
            io.mail(client.worker, Mail::FetchFailed(client));
            self.connect_for(now, pool, io);
            return;
        }
        self.hand_over(server.id, client, io);
    }

    fn hand_over(&mut self, id: ServerId, client: ClientRef, io: &mut impl Io) {
        let Some(server) = self.servers.remove(id).map(Box::new) else { return };
        server.assert_free();
        io.hand_over(server.conn, client.worker, server, HandOver(client));
    }

    /// The server that a client was to get is gone: it asks again.
    pub(super) fn fetch_failed(&mut self, now: Time, client: ClientRef, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(client.id).filter(|c| c.serial == client.serial) else {
            return;
        };
        let Some(session) = session.session_mut() else { return };
        if matches!(session.link, Link::Coming | Link::Waiting(_)) {
            session.link = Link::None;
            self.acquire(now, client.id, io);
        }
    }

    /// Called when a server's bytes have been handled: if its client's transaction has ended, it is the next one's.
    pub(super) fn check_rest(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        self.watch(now, id);
        let Some(server) = self.servers.get(id) else { return };
        self.assert_link(id, server);
        if let Role::Serving(client) = server.role
            && server.exchange.is_in_doubt()
        {
            return self.ask_in_doubt(client, id, io);
        }
        if !server.is_at_rest() {
            if let Role::Serving(client) = server.role
                && server.own_error.is_some()
                && server.is_settled()
            {
                self.own_failed_within(now, (client, id), io);
                return;
            }
            if matches!(server.role, Role::Settling { .. }) {
                if server.is_settled() {
                    self.todo.push_back(Todo::Settle(id));
                } else {
                    self.arm(id);
                }
            }
            return;
        }
        match server.role {
            Role::Serving(client) => self.client_at_rest(now, client, id, io),
            Role::Settling { .. } => self.todo.push_back(Todo::Settle(id)),
            Role::Opening { .. } | Role::Idle => {}
        }
    }

    pub(super) fn detach(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        if let Some(server) = self.servers.get(server) {
            debug_assert!(server.is_at_rest(), "a client leaves its server when nothing is open there");
            debug_assert!(!server.exchange.may_be_in_doubt(), "who would get it next would wait for answers");
        }
        if let Some(state) = self.clients.get_mut(client) {
            // The server has taken all it was sent.
            state.resume(Reason::Server, io);
            state.rest.go_on(now);
            if let Some(session) = state.session_mut() {
                session.link = Link::None;
                session.former = Vec::new();
                session.needs_new = false;
                session.come_home();
                if session.pool.has_leaving() {
                    self.todo.push_back(Todo::Move(client));
                }
            }
        }
        self.watch_rest(client);
        if let Some(server) = self.servers.get_mut(server) {
            server.role = Role::Settling { deadline: now + SETTLE_TIMEOUT };
            server.kept = None;
            server.opened.has_served = true;
        }
        self.todo.push_back(Todo::Settle(server));
    }

    /// A server that serves a client is the one that this client has.
    fn assert_link(&self, id: ServerId, server: &Server) {
        if let Role::Serving(client) = server.role {
            let link = self.clients.get(client).and_then(Client::session).map(|session| session.link);
            debug_assert_eq!(link, Some(Link::Server(id)), "a server serves the client that has it");
        }
    }

    /// A client is gone: what it had or waited for goes back.
    pub(super) fn leave_lease(&mut self, now: Time, client: &Client, parting: Parting, io: &mut impl Io) {
        let Some(session) = client.session() else { return };
        match session.link {
            // One that is being given away at this moment finds nobody, and goes to the next.
            Link::None | Link::Coming => {}
            Link::Waiting(ticket) => {
                session.pool.state().leave(ticket);
            }
            Link::Server(server) => {
                if let Some(server) = self.servers.get_mut(server) {
                    server.meter.abandon(now, &server.pool.traffic);
                }
                let cut = client.stream.is_passing();
                self.abandon(now, server, cut, parting, io);
            }
        }
    }

    /// A client has left its server in the middle of something. The server ends what it was at and rolls back; one
    /// that was sent half a message can't be brought back in step.
    fn abandon(&mut self, now: Time, id: ServerId, cut: bool, parting: Parting, io: &mut impl Io) {
        if cut {
            self.close_server(id, io);
            return;
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        // A cancel could roll back what its client has committed.
        let may_finish = parting == Parting::Goodbye || server.exchange.may_owe_commit();
        let patience = if may_finish { FINISH_TIMEOUT } else { Duration::ZERO };
        if server.exchange.may_be_in_doubt() {
            // How often it says that it is ready, nobody knows.
            self.close_server(id, io);
            return;
        }
        server.role = Role::Settling { deadline: now + patience + SETTLE_TIMEOUT };
        server.preparation = Preparation::None;
        server.kept = None;
        server.opened.has_served = true;
        if !server.follows_statements() {
            server.session.add_effects(Effects::ANYTHING);
        }
        resume_server(server, io);
        self.scratch.clear();
        let farewell = server.exchange.abandon();
        if farewell.copy_fail {
            // It may be about to read a COPY, which a cancel does not end. Outside of one this is ignored.
            message::framed(&mut self.scratch, FrontendKind::CopyFail, |out| {
                message::put_cstr(out, b"the client has gone");
            });
        }
        if farewell.failure {
            // What ran since the last Sync is rolled back, as it is when PostgreSQL's own client goes.
            message::put_failure(&mut self.scratch);
        }
        if farewell.sync {
            // A COPY swallows the client's own.
            self.scratch.extend_from_slice(&SYNC);
        }
        if !self.scratch.is_empty() {
            io.send(server.conn, &self.scratch);
        }
        if server.is_settled() {
            self.todo.push_back(Todo::Settle(id));
        } else {
            server.cancels.repeat_at(now + patience + CANCEL_AGAIN);
            // A COPY ends by itself. A cancel could end it before it has read a Sync that it would ignore.
            if !farewell.copies && patience.is_zero() {
                self.send_cancel(now, id, io);
            }
            self.arm(id);
        }
    }

    /// Brings a server without a client to rest, and then to its next client.
    pub(super) fn settle(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if !matches!(server.role, Role::Settling { .. }) || !server.is_settled() {
            return;
        }
        if server.own_error.take().is_some() || server.pool.is_retired() {
            // A server that can't be put in order is of no use, and nobody uses one of a pool that has gone.
            let pool = server.pool.clone();
            self.close_server(id, io);
            self.connect_for(now, &pool, io);
            return;
        }
        if server.cancels.are_under_way() {
            // Whatever is sent now, it could hit.
            return;
        }
        if server.exchange.take_copy_read() {
            send_own(server, &mut self.scratch, Own::AfterCopy, "", io);
            return;
        }
        if server.exchange.reported_status() != TransactionStatus::Idle {
            send_own(server, &mut self.scratch, Own::Rollback, "ROLLBACK", io);
            return;
        }
        if server.session.has_unknown_beginning() {
            send_probe(now, server, &mut self.scratch, io);
            server.preparation = Preparation::None;
            return;
        }
        server.session.begin_as_told();
        if put_in_order(server, &mut self.scratch, io) {
            return;
        }
        if server.session.is_spent() || server.is_worn || server.is_outdated(now) {
            let pool = server.pool.clone();
            self.close_server(id, io);
            self.connect_for(now, &pool, io);
            return;
        }
        if find_address_function(server, &mut self.scratch, io) {
            return;
        }
        resume_server(server, io);
        if self.stopping.is_some() {
            self.close_server(id, io);
            return;
        }
        self.release(now, id, io);
    }

    fn release(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let Some(reference) = self.server_ref(id) else { return };
        let server = &mut self.servers[id];
        server.assert_free();
        server.parameters.forget_told();
        server.role = Role::Idle;
        let is_over = server.pool.budgets.are_shrinking();
        let (opened, made) = (server.opened.clone(), server.session.made());
        let released = server.pool.state().release(now, reference, opened, made, is_over);
        match released {
            Released::Idle => {}
            Released::To(client) if client.worker == self.worker => self.attach(now, id, client, io),
            Released::To(client) => self.hand_over(id, client, io),
            Released::Close => {
                let pool = server.pool.clone();
                self.discard_server(id, io);
                self.connect_for(now, &pool, io);
            }
            Released::GivenUp => {
                self.discard_server(id, io);
                self.connect_for_waiters(now, io);
            }
        }
    }

    /// Closes a server that the pool still counts.
    pub(super) fn close_server(&mut self, id: ServerId, io: &mut impl Io) {
        let (Some(server), Some(reference)) = (self.servers.get(id), self.server_ref(id)) else {
            return;
        };
        match server.role {
            // One that has just been given to another worker's client is counted out when that message comes.
            Role::Idle => {
                server.pool.state().lost_idle(reference);
            }
            Role::Opening { .. } => server.pool.state().unreserve(&server.opened.startup),
            Role::Serving(_) | Role::Settling { .. } => server.pool.state().lost(),
        }
        self.discard_server(id, io);
    }

    /// Closes a server that the pool does not count any more.
    fn discard_server(&mut self, id: ServerId, io: &mut impl Io) {
        let Some(mut server) = self.servers.remove(id) else { return };
        server.pool.budgets.give_back();
        self.forget_cancels(id, &mut server);
        // Behind half a message of a client's, it would be taken for the rest of it.
        // And before the StartupMessage, for one that is broken.
        let has_begun = !matches!(server.role, Role::Opening { login: ServerLogin::Connecting, .. });
        if has_begun && !matches!(server.role, Role::Serving(_)) {
            io.send(server.conn, &message::TERMINATE);
        }
        io.close(server.conn);
    }

    /// An idle server is no longer part of its pool.
    pub(super) fn close_idle(&mut self, server: ServerRef, io: &mut impl Io) {
        if self.is_idle(server) {
            self.discard_server(server.id, io);
        }
    }

    /// A server's connection is gone.
    pub(super) fn server_closed(&mut self, now: Time, id: ServerId, reason: &str, io: &mut impl Io) {
        if self.servers.get(id).is_some_and(is_to_be_followed) {
            // It counts, whatever has become of the server since.
            self.check_rest(now, id, io);
        }
        if let Some(client) = self.servers.get(id).and_then(idle_holder) {
            // It goes on with another one.
            self.let_go(now, client, id, io);
        }
        let Some(server) = self.servers.get(id) else { return };
        let pool = server.pool.clone();
        let address = &pool.upstream.address;
        match server.role {
            Role::Opening { .. } => {
                let error = ErrorResponse::fatal(
                    sqlstate::CANNOT_CONNECT,
                    format!("could not connect to the server at {address}: {reason}"),
                )
                .hint(IS_IT_RUNNING);
                self.open_failed(now, id, error, io);
                return;
            }
            Role::Serving(client) => {
                io.log(LogEvent::ServerLost { address, reason });
                if self.lose_standby(now, (client, id), io) {
                    pool.forget_welcomes();
                    return;
                }
                if self.lose_block(now, (client, id), io) || self.lose_commit(now, (client, id), io) {
                    pool.forget_welcomes();
                    return;
                }
                let Some(server) = self.servers.get(id) else { return };
                // Nothing of a client's has run there that is still logging in.
                let is_logging_in = server.follows_statements() && !self.is_open(client);
                let is_asked = self.clients.get(client).and_then(Client::session).is_some_and(|it| it.commit.is_some());
                // Inside half a message, whatever is said next would pass for the rest of it.
                let is_cut = server.stream.is_passing();
                let is_replaceable = !is_cut && (is_logging_in || is_asked || server.is_replaceable());
                let says_nothing = server.said_why || is_cut;
                let error = loss(server, reason);
                if is_replaceable && self.try_again(client, TRIES_MAX) {
                    self.replace_server(now, client, io);
                    pool.forget_welcomes();
                    return;
                }
                self.close_server(id, io);
                if let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) {
                    session.link = Link::None;
                }
                if says_nothing {
                    self.drop_client(now, client, Departure::Ended, io);
                } else {
                    self.refuse_client(now, client, &error, io);
                }
            }
            Role::Idle | Role::Settling { .. } => {
                io.log(LogEvent::ServerLost { address, reason });
                self.close_server(id, io);
            }
        }
        // It may have gone because the server restarts with other settings.
        pool.forget_welcomes();
        self.connect_for(now, &pool, io);
    }

    /// Handles what a client has sent while it had to wait.
    pub(super) fn resume_input(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.session().is_some_and(|session| matches!(session.link, Link::Waiting(_) | Link::Coming)) {
            // It goes on when it has its server.
            return;
        }
        let server = client.server();
        if let Some(at) = server
            && let Some(server) = self.servers.get_mut(at)
            && server.preparation == Preparation::Done
        {
            (server.preparation, server.asked_until) = (Preparation::None, None);
            self.settings_are_in_place(id);
            self.begin_begun(now, id, at, io);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.pending.is_empty() && !client.pauses.has(Reason::Unread) {
            let bytes = std::mem::take(&mut client.pending);
            self.client_input(now, id, &bytes, false, io);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.unfinished || client.pending.len() <= PENDING_BYTES_MAX {
            client.resume(Reason::Pending, io);
        }
        if let Some(server) = server {
            self.check_rest(now, server, io);
        }
    }
}
