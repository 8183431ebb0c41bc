//! What a session holds follows its client: settings from server to server, and where something can't follow, the client
//! keeps its server (docs/decisions/0014).
//!
//! A transaction of plain statements leaves nothing, and none of this concerns it. Otherwise what the session holds is
//! known when the server has said so, by itself or in answer to a look, and before that neither the client nor anybody
//! else goes on with that server.

use std::{collections::BTreeSet, sync::Arc};

use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Client, Phase, Session},
    customs::Customs,
    holding::{Holding, Pins},
    hub::{Pinned, Pool},
    ids::{ClientId, ServerId, ServerRef},
    io::Io,
    mail::Mail,
    profile::{self, Profile, Settings},
    replies::Own,
    server::{Preparation, Role, Server},
    settings::{PinPolicy, PoolMode},
    sql::{Effects, Reset},
    start::Start,
    time::Time,
};

use super::{Engine, Todo, lease::send_own, shutting_down};

impl Engine {
    /// A client's transaction has ended, and its server owes nothing.
    pub(super) fn client_at_rest(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let state = &mut self.servers[server];
        if state.cancels.are_under_way() && self.clients.get(client).is_some_and(|client| needs_own(state, client)) {
            // It could hit that. What the client sends meanwhile waits.
            state.preparation = Preparation::UnderWay;
            return;
        }
        let was_held = std::mem::take(&mut state.preparation) == Preparation::UnderWay;
        if let Some(error) = state.own_error.take() {
            self.refuse_client(now, client, &error, io);
            return;
        }
        let Some(Client { phase, stream, .. }) = self.clients.get_mut(client) else { return };
        match phase {
            // A client that is still in the middle of what a COPY had no use for must send it to its end.
            Phase::Open(_) if stream.is_passing() => {}
            Phase::Welcome(..) | Phase::Open(_) if state.needs_look() => {
                send_look(now, state, &mut self.scratch, io);
            }
            Phase::Welcome(..) => {
                if let Some(Holding { profile, made, .. }) = state.news.take() {
                    state.made.add(made.iter().map(String::as_str));
                    state.profile = profile;
                    state.effects = Effects::empty();
                }
                self.welcome_from(client, server, io);
                self.detach(now, client, server, io);
            }
            Phase::Open(_) if self.stopping.is_some() => {
                self.detach(now, client, server, io);
                self.refuse_client(now, client, &shutting_down(), io);
            }
            Phase::Open(session) if session.pool.settings.mode == PoolMode::Transaction => {
                // Part of a message, which it has not sent to its end, waits for nothing here.
                let has_waited = was_held || state.news.is_some();
                take_news(now, state, session);
                self.keep_or_detach(now, client, server, io);
                // What it has sent meanwhile has waited for this.
                if has_waited && self.clients.get(client).is_some_and(|client| !client.pending.is_empty()) {
                    self.todo.push_back(Todo::Input(client));
                }
            }
            Phase::Open(session) => {
                // It may have discarded all, also what it began with.
                put_in_place(state, &session.profile, &session.made, &mut self.scratch, io);
                if was_held {
                    self.todo.push_back(Todo::Input(client));
                }
            }
            _ => {}
        }
    }

    /// Others need a server that its client could do without, if it does nothing there now. Otherwise it is theirs when it
    /// comes to rest, and another one may be had before.
    pub(super) fn recall(&mut self, now: Time, reference: ServerRef, pool: &Arc<Pool>, io: &mut impl Io) {
        match self.servers.get_mut(reference.id) {
            Some(server) if server.serial == reference.serial && may_be_recalled(server) => {
                let client = match server.role {
                    Role::Serving(client) => self.clients.get(client).and_then(Client::session),
                    _ => None,
                };
                if let Some(asks_until) = client.and_then(|session| session.asks_until()).filter(|at| now < *at) {
                    server.recall_at = Some(asks_until);
                    self.arm(reference.id);
                    return request_recall(pool, io);
                }
                server.pins = Pins::empty();
                if let Role::Serving(client) = server.role {
                    self.detach(now, client, reference.id, io);
                }
            }
            _ => request_recall(pool, io),
        }
    }

    /// The client keeps its server, if what its session holds can't follow it.
    fn keep_or_detach(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(reference) = self.server_ref(server) else { return };
        let state = &mut self.servers[server];
        let is_soft = state.pins.are_soft();
        let asks_until = self.clients.get(client).and_then(Client::session).and_then(Session::asks_until);
        state.recall_at = asks_until.filter(|at| is_soft && now < *at);
        if state.pins.is_empty() || (is_soft && state.recall_at.is_none() && state.pool.state().is_short()) {
            state.pins = Pins::empty();
            self.detach(now, client, server, io);
            return;
        }
        let Some(session) = self.clients.get(client).and_then(Client::session) else { return };
        match &state.pinned {
            Some(pinned) if !pinned.set_pins(state.pins) => state.pinned = None,
            None if state.pool.settings.pins == PinPolicy::Pin => {
                state.pinned = Pinned::take(&state.pool, reference, state.pins);
            }
            _ => {}
        }
        if state.pinned.is_none() && is_soft {
            // Without its server the client is told that it has used no sequence, which many never ask.
            state.pins = Pins::empty();
            self.detach(now, client, server, io);
            return;
        }
        if state.pinned.is_none() {
            let error = refusal(state);
            self.refuse_client(now, client, &error, io);
            return;
        }
        put_in_place(state, &session.profile, &session.made, &mut self.scratch, io);
        self.arm(server);
        self.begin_begun(now, client, server, io);
    }
}

/// Asks for a server back that its client could do without, if clients wait and there is one.
pub(super) fn request_recall(pool: &Arc<Pool>, io: &mut impl Io) {
    let recalled = pool.state().recall();
    if let Some(server) = recalled {
        io.mail(server.worker, Mail::Recall(server, pool.clone()));
    }
}

/// Whether a server is kept for a client that does nothing there now, and could do without it.
pub(super) fn may_be_recalled(server: &Server) -> bool {
    let is_free = server.is_at_rest() && server.preparation == Preparation::None && server.pinned.is_some();
    is_free && matches!(server.role, Role::Serving(_)) && !server.pins.are_lasting()
}

/// Whether a server needs a query of Sluice's own before its client's next transaction.
fn needs_own(server: &Server, client: &Client) -> bool {
    let Some(session) = client.session() else { return false };
    match server.pool.settings.mode {
        PoolMode::Transaction => server.needs_look() || server.news.is_some() || !server.pins.is_empty(),
        PoolMode::Session => server.profile != session.profile,
    }
}

/// Acts on what the server has said that the session holds.
fn take_news(now: Time, server: &mut Server, session: &mut Session) {
    server.statements.retire_tainted();
    let unseen = until_its_end(server) | session.note_effects(now, server.effects, server.sequences.are_used());
    let before = server.pins - Pins::SOFT;
    server.effects = Effects::empty();
    let Some(Holding { pins, profile, made, statements }) = server.news.take() else {
        server.pins = before | unseen;
        return;
    };
    statements.into_iter().for_each(|statements| server.statements.compare(statements));
    // That a sequence was used matters to those alone who ask for it later.
    server.pins = (pins - Pins::SEQUENCE) | unseen;
    server.made.add(made.iter().map(String::as_str));
    session.made.add(server.made.names());
    server.profile = profile;
    session.profile = with_start(&server.profile, &session.start);
}

/// The pins that last until the session's process ends.
fn until_its_end(server: &Server) -> Pins {
    let mut pins = server.pins & Pins::SPENT;
    if server.effects.intersects(Effects::SEED) {
        pins |= Pins::SEED;
    }
    if server.effects.intersects(Effects::UNSEEN) {
        pins |= Pins::LIBRARY;
    }
    pins
}

/// What the client began with is what RESET goes back to, and the server's own default is not.
fn with_start(profile: &Profile, start: &Profile) -> Profile {
    let missing: Settings = start
        .settings()
        .iter()
        .filter(|(name, _)| profile.get(name).is_none())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if missing.is_empty() {
        return if profile == start { start.clone() } else { profile.clone() };
    }
    let mut settings = profile.settings().clone();
    settings.extend(missing);
    let profile = Profile::new(settings);
    if profile == *start { start.clone() } else { profile }
}

/// Brings a server to a client's settings, if it is not there. The client's messages wait until that is done: under
/// other settings they might mean something else.
pub(super) fn put_in_place(
    server: &mut Server,
    profile: &Profile,
    made: &Customs,
    scratch: &mut Vec<u8>,
    io: &mut impl Io,
) {
    let mut sql = profile::transition(&server.profile, profile).unwrap_or_default();
    if !server.made.cover(made) {
        profile::make(&mut sql, made.names().filter(|name| !server.made.has(name) && profile.get(name).is_none()));
        server.made.add(made.names());
    }
    server.made.add(profile.customs());
    if !sql.is_empty() {
        send_own(server, scratch, Own::Settings, &sql, io);
        server.preparation = Preparation::UnderWay;
    }
    server.profile = profile.clone();
}

/// Brings back what a client began with, where it has taken settings back in the midst of its transaction.
pub(super) fn restore(server: &mut Server, start: &Profile, resets: &Reset, io: &mut impl Io) {
    let settings = start.settings().iter().filter(|(name, _)| resets.covers(name));
    let back = Profile::new(settings.map(|(name, value)| (name.clone(), value.clone())).collect());
    let sql = match resets.is_read() {
        true => profile::transition(&Profile::default(), &back),
        false => profile::fill(&back),
    };
    if let Some(sql) = sql {
        send_own(server, &mut Vec::new(), Own::Settings, &sql, io);
        server.preparation = Preparation::UnderWay;
    }
}

/// Brings a server to the settings that a client starts with, as the client wrote them: on top of the server's own
/// defaults and one after another, since one setting may keep a part of what was there before (`DateStyle`).
pub(super) fn begin_session(server: &mut Server, start: &Start, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let clear = profile::transition(&server.profile, &Profile::default());
    let set = start.sql();
    let sets = set.is_some();
    if clear.is_some() || sets {
        send_own(server, scratch, Own::Settings, &(clear.unwrap_or_default() + &set.unwrap_or_default()), io);
        if server.reports {
            // It will say nothing if that brings it to where it was.
            let (pins, profile) = (server.pins, server.profile.clone());
            server.news = Some(Holding { pins, profile, made: BTreeSet::new(), statements: None });
        }
    }
    if sets {
        // PostgreSQL has the last word on what they say.
        server.effects.insert(Effects::STATE);
    }
    let profile = start.profile();
    server.made.add(profile.customs());
    server.profile = profile;
}

/// Asks a server what its session holds.
fn send_look(now: Time, server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let sql = server.ask(now);
    send_own(server, scratch, Own::Look, &sql, io);
    server.preparation = Preparation::UnderWay;
}

/// Takes away what a client has left in the session that nobody else is to find; `false` if there is nothing.
pub(super) fn put_in_order(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    server.statements.retire_tainted();
    let unseen = until_its_end(server);
    if server.reports && server.follows_statements() {
        server.effects = Effects::empty();
        if let Some(Holding { pins, profile, made, statements }) = server.news.take() {
            statements.into_iter().for_each(|statements| server.statements.compare(statements));
            server.made.add(made.iter().map(String::as_str));
            server.pins = pins - Pins::SEQUENCE;
            server.profile = profile;
        }
    }
    server.pins |= unseen;
    if server.is_spent() {
        return false;
    }
    if server.effects.intersects(Effects::STATE) || !server.pins.is_empty() {
        server.pins = Pins::empty();
        // Nobody has asked which custom settings are there: their names stay.
        let customs = server.look.abandon();
        server.made.add(customs.iter().map(String::as_str));
        server.statements.clear();
        server.profile = Profile::default();
        server.sequences.forget();
        send_own(server, scratch, Own::Reset, "DISCARD ALL", io);
        return true;
    }
    if let Some(profile) = server.profile.at_rest() {
        put_in_place(server, &profile, &Customs::default(), scratch, io);
        server.preparation = Preparation::None;
        return true;
    }
    false
}

fn refusal(server: &Server) -> ErrorResponse {
    let held = server.pins;
    if server.pool.settings.pins == PinPolicy::Refuse {
        return ErrorResponse::fatal(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("the session holds what it can't share its server with: {held}"),
        )
        .hint("This pool's \"pins\" is \"refuse\". Connect to PostgreSQL itself, or by a pool in session mode.");
    }
    ErrorResponse::fatal(
        sqlstate::TOO_MANY_CONNECTIONS,
        format!("the session holds what it can't share its server with ({held}), and too many others do"),
    )
    .hint("Raise \"pinned_max\" or \"size\" of this pool, or connect by a pool in session mode.")
}
