//! Queries of Sluice's own that fail: what a client's settings need is done again, on another server if need be. Where
//! that does not help, the session ends, before anything of it has run under other settings than its own.

use sluice_wire::{ErrorResponse, message::TransactionStatus, sqlstate};

use crate::{
    client::{Client, Phase},
    ids::{ClientId, ServerId},
    io::Io,
    profile::{Profile, Way},
    replies::Own,
    server::OwnError,
    time::Time,
};

use super::{
    Engine, SETTLE_TIMEOUT,
    keeping::{begin_session, put_in_place, send_probe},
    outcomes::no_answer,
};

/// Such queries in a row, where the failure may pass: a time-out, a cancel, a server that is lost.
pub(super) const TRIES_MAX: u8 = 10;

impl Engine {
    /// A query of Sluice's own has failed on a client's server, which owes nothing now.
    pub(super) fn own_failed(
        &mut self,
        now: Time,
        (client, server): (ClientId, ServerId),
        failed: OwnError,
        io: &mut impl Io,
    ) {
        let OwnError { own, error } = failed;
        if own == Own::Replayed {
            self.leave_standby(now, (client, server), io);
            return;
        }
        let passes = may_pass(&error);
        let state = &self.servers[server];
        let is_shared = state.follows_statements() && state.kept.is_none();
        if state.exchange.reported_status() == TransactionStatus::Idle {
            if own == Own::Settings
                && !passes
                && self.is_refused_there(server, &error)
                && self.try_new(now, client, server, io)
            {
                return;
            }
            let state = &mut self.servers[server];
            match own {
                Own::Settings => {
                    // Where others' settings can't be reset one by one, they can as a whole. A server that its
                    // client keeps may have some that only others can bring back.
                    let way = if is_shared { Way::Anew } else { Way::Untimed };
                    state.session.go_back(way);
                    let has_others = is_shared && !state.session.profile().settings().is_empty();
                    let tries = if passes { TRIES_MAX } else { u8::from(has_others) };
                    if self.try_again(client, tries) {
                        self.put_in_place_again(client, server, io);
                        self.limit_settings(now, server);
                        return;
                    }
                    if self.is_open(client) && !passes && self.try_new(now, client, server, io) {
                        return;
                    }
                }
                Own::Probe if passes && self.try_again(client, TRIES_MAX) => {
                    send_probe(now, &mut self.servers[server], &mut self.scratch, io);
                    return;
                }
                Own::Sequences | Own::Outcome if is_shared && passes && self.try_again(client, TRIES_MAX) => {
                    self.replace_server(now, client, io);
                    return;
                }
                _ => {}
            }
        }
        let error = self.in_own_words(client, own, error);
        self.refuse_client(now, client, &error, io);
    }

    /// The same within a transaction, which is lost.
    pub(super) fn own_failed_within(&mut self, now: Time, (client, server): (ClientId, ServerId), io: &mut impl Io) {
        let failed = self.servers.get_mut(server).and_then(|server| server.own_error.take());
        if let Some(failed) = failed {
            self.own_failed(now, (client, server), *failed, io);
        }
    }

    /// What puts a client's settings in place has its time, if it is under way.
    pub(super) fn limit_settings(&mut self, now: Time, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.exchange.replies().are_for_settings() && server.follows_statements() {
            server.asked_until = Some(now + SETTLE_TIMEOUT);
            self.arm(id);
        }
    }

    /// A server has not answered in time what it was asked for its client's sake.
    pub(super) fn asked_overdue(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.asked_until = None;
        let is_for_settings = server.exchange.replies().are_for_settings();
        self.cancel_own(now, id, io);
        if !is_for_settings {
            if !self.lose_standby(now, (client, id), io) {
                self.refuse_client(now, client, &no_answer(), io);
            }
            return;
        }
        // Something holds it up that another one may be free of.
        let has_run = self.is_open(client) && !self.servers[id].is_replaceable();
        if !has_run && self.try_again(client, TRIES_MAX) {
            self.replace_server(now, client, io);
        } else {
            self.refuse_client(now, client, &held_up(has_run), io);
        }
    }

    /// Whether settings may have been refused because of what others did on that server: `temp_buffers` stays what it
    /// is to the end of a process that has used a temporary table, and a library that was loaded has its own opinion of
    /// the settings that begin with its name.
    fn is_refused_there(&self, server: ServerId, error: &ErrorResponse) -> bool {
        const BUFFERS: &str = "temp_buffers";
        let session = &self.servers[server].session;
        let has_buffers = |profile: &Profile| profile.get(BUFFERS).is_some();
        // The one that was to be put in place, and the one that was there.
        let buffers = Some(BUFFERS).filter(|_| has_buffers(session.profile()) || has_buffers(session.former()));
        session.profile().customs().chain(buffers).any(|name| error.message.contains(name))
    }

    /// Gets a client a server that nobody has had, where its own has been others' before: what they have loaded or used
    /// there does not concern it, and PostgreSQL's word on its settings is that of a session of its own.
    fn try_new(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) -> bool {
        let state = &self.servers[server];
        let is_others = state.follows_statements() && state.kept.is_none() && state.opened.has_served;
        // Behind a RESET of its own there is more than settings.
        let has_run = self.is_open(client) && !state.session.effects().is_empty();
        if !is_others || has_run || !self.try_again(client, TRIES_MAX) {
            return false;
        }
        if let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) {
            session.needs_new = true;
        }
        self.replace_server(now, client, io);
        true
    }

    /// Whether what has failed may be tried once more, of so many times.
    pub(super) fn try_again(&mut self, client: ClientId, times: u8) -> bool {
        let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) else { return false };
        session.failures = session.failures.saturating_add(1);
        session.failures <= times
    }

    /// Resets the count of failures, since the settings for a client have been put in place.
    pub(super) fn settings_are_in_place(&mut self, client: ClientId) {
        if let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) {
            session.failures = 0;
        }
    }

    fn put_in_place_again(&mut self, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(state) = self.servers.get_mut(server) else { return };
        match self.clients.get(client).map(|client| &client.phase) {
            Some(Phase::Welcome(_, start)) => begin_session(state, start, &mut self.scratch, io),
            Some(Phase::Open(session)) => {
                put_in_place(state, &session.profile, &session.made, &mut self.scratch, io);
            }
            _ => {}
        }
    }

    /// The end of a session, of which PostgreSQL gives the reason.
    fn in_own_words(&self, client: ClientId, own: Own, error: ErrorResponse) -> ErrorResponse {
        let is_open = self.is_open(client);
        if own == Own::Settings && &*error.code == "42501" && error.message.contains("set_config") {
            return error.hint(
                "The pool puts the settings of its clients in place by that function: \
                 GRANT EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) to the role.",
            );
        }
        if own != Own::Settings || !is_open || error.hint.is_some() {
            // A client that logs in is told PostgreSQL's view of the settings that were asked for.
            return error;
        }
        error.hint(
            "A setting of this session could not be put in place on the server that came next. \
             Nothing has run there; connect again.",
        )
    }
}

/// The error of a client whose settings no server has put in place in time, or not the one where something of the
/// client's has run.
fn held_up(has_run: bool) -> ErrorResponse {
    let hint = match has_run {
        true => "What the session held there is gone; connect again.",
        false => "Nothing has run there; connect again.",
    };
    let error = "the server has not put the session's settings in place in time";
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error).hint(hint)
}

/// Whether the same may succeed a moment later.
fn may_pass(error: &ErrorResponse) -> bool {
    let code = &*error.code;
    // From 18 on, PostgreSQL loses step where a Query follows an Execute without a Sync, and is in step again with the
    // error for what comes next.
    let was_out_of_step = code == "XX000" && error.message.contains("unexpected state STARTED");
    // A lack of resources (53), and a transaction that another one has ended (40).
    was_out_of_step
        || matches!(code, sqlstate::QUERY_CANCELED | "55P03")
        || ["53", "40"].iter().any(|class| code.starts_with(class))
}
