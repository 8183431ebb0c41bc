//! Session state follows its client: settings go from server to server, and where something can't follow, the client
//! keeps its server (docs/decisions/0014).
//!
//! A transaction of plain statements leaves nothing, and none of this concerns it. Otherwise what the session holds is
//! known when the server has said so, by itself or in answer to a probe, and before that neither the client nor anybody
//! else goes on with that server.

use std::sync::Arc;

use sluice_control::settings::PinPolicy;
use sluice_wire::{ErrorResponse, message, sqlstate};

use crate::{
    client::{Client, Phase, Session},
    customs::Customs,
    holding::Pins,
    hub::Pool,
    ids::{ClientId, ServerId, ServerRef},
    io::Io,
    mail::Mail,
    profile::{self, Profile, Settings},
    replies::Own,
    restoring::restoring,
    server::{Lent, Preparation, Role, Server},
    sql::Reset,
    start::Start,
    time::Time,
};

use super::{
    Engine, Todo,
    draining::drained,
    lending::{ask_for_names, close_lent},
    own_queries::{send_own, send_own_within},
    promotions::note_told,
    reloads::has_heard,
    shutting_down,
};

impl Engine {
    /// A client's transaction has ended, and its server owes nothing.
    pub(super) fn client_at_rest(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let end = match self.stopping {
            Some(_) => Some(shutting_down()),
            None if self.hub.is_draining() => Some(drained()),
            None => self.end_of(&self.servers[server].pool),
        };
        let state = &mut self.servers[server];
        if state.cancels.are_under_way() && (state.own_error.is_some() || needs_own(state)) {
            // It could hit that. What the client sends meanwhile waits.
            state.preparation = Preparation::UnderWay;
            return;
        }
        let was_held = std::mem::take(&mut state.preparation) == Preparation::UnderWay;
        state.asked_until = None;
        if let Some(failed) = state.own_error.take() {
            self.own_failed(now, (client, server), *failed, io);
            return;
        }
        let Some(Client { phase, stream, conn, .. }) = self.clients.get_mut(client) else { return };
        match phase {
            Phase::Open(session) if session.commit.is_some() => self.tell_outcome(now, client, server, io),
            Phase::Open(session) if session.reads.catch_up.is_some() => self.how_far(now, (client, server), io),
            // A client that is still in the middle of what a COPY had no use for must send it to its end.
            Phase::Open(_) if stream.is_passing() => {}
            Phase::Welcome(session, start) if session.lacks_date_style(start) => {
                self.look_for_date_style(now, (client, server), io);
            }
            Phase::Open(_) if state.lent.are_in_doubt() => ask_for_names(state, &mut self.scratch, io),
            Phase::Welcome(..) | Phase::Open(_) if state.needs_probe() => {
                send_probe(now, state, &mut self.scratch, io);
            }
            Phase::Welcome(..) | Phase::Open(_) if end.is_some() => {
                self.detach(now, client, server, io);
                if let Some(error) = end {
                    self.refuse_client(now, client, &error, io);
                }
            }
            Phase::Welcome(..) => {
                // Settings alone tie nobody to a server.
                if state.take_report().is_some() {
                    state.session.hold(state.session.pins());
                }
                note_told(now, state);
                self.welcome_from(client, server, io);
                self.detach(now, client, server, io);
            }
            Phase::Open(session) if state.follows_statements() => {
                session.failures = 0;
                let conn = *conn;
                follow_session(now, state, session);
                let reports = went_back(state, session);
                if !reports.is_empty() {
                    io.send(conn, &reports);
                }
                self.keep_or_detach(now, client, server, io);
                let goes_on = |client: &Client| {
                    // What it has sent meanwhile has waited for this, or for a cancel on its way to the server that it
                    // had.
                    let is_free = client.server().is_none() && !client.unfinished;
                    !client.pending.is_empty() && (was_held || is_free)
                };
                if self.clients.get(client).is_some_and(goes_on) {
                    self.todo.push_back(Todo::Input(client));
                }
            }
            Phase::Open(_) if was_held => self.todo.push_back(Todo::Input(client)),
            _ => {}
        }
    }

    /// Others need a server that its client could do without, if it does nothing there now. Otherwise it is theirs when
    /// it comes to rest, and another one may be had before.
    pub(super) fn recall(&mut self, now: Time, reference: ServerRef, pool: &Arc<Pool>, io: &mut impl Io) {
        let server = self.servers.get_mut(reference.id).filter(|server| server.serial == reference.serial);
        let held = server.and_then(|server| Some((idle_holder(server)?, server)));
        // It may be in the midst of data for a COPY that has failed.
        let is_amid = |client| self.clients.get(client).is_some_and(|client| client.stream.is_passing());
        let Some((client, server)) = held.filter(|(client, _)| !is_amid(*client)) else {
            return request_recall(now, pool, io);
        };
        let asks_until = self.clients.get(client).and_then(Client::session).and_then(Session::asks_until);
        if let Some(at) = asks_until.filter(|at| now < *at) {
            server.set_recall(Some(at));
            self.arm(reference.id);
            return request_recall(now, pool, io);
        }
        self.let_go(now, client, reference.id, io);
    }

    /// The same for a server of this worker's, whose pool wants it back.
    pub(super) fn recall_here(&mut self, now: Time, server: ServerId, io: &mut impl Io) {
        let Some(reference) = self.server_ref(server) else { return };
        let pool = self.servers[server].pool.clone();
        self.recall(now, reference, &pool, io);
    }

    /// The client keeps its server, if what its session holds can't follow it.
    fn keep_or_detach(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let Some(reference) = self.server_ref(server) else { return };
        let Some(session) = self.clients.get(client).and_then(Client::session) else { return };
        let state = &mut self.servers[server];
        let pins = if session.reads.is_away() { state.session.known_pins() } else { state.session.pins() };
        if session.reads.is_away() && pins.is_empty() {
            // Nobody gets the server where a statement that has failed may have left something.
            self.detach(now, client, server, io);
            return;
        }
        let recall_at = session.asks_until().filter(|at| pins.are_soft() && now < *at);
        let gives_way = || pins.are_soft() && recall_at.is_none() && state.pool.wants_back(now, &state.opened);
        if pins.is_empty() || gives_way() {
            self.let_go(now, client, server, io);
        } else if !session.reads.is_away() && state.keep(reference, recall_at) {
            put_in_place(state, &session.profile, &session.made, &mut self.scratch, io);
            self.arm(server);
            self.begin_begun(now, client, server, io);
        } else if pins.are_soft() {
            // Without its server the client is told that it has used no sequence, which many never ask.
            self.let_go(now, client, server, io);
        } else {
            let error = if session.reads.is_away() { held_elsewhere(state) } else { refusal(state) };
            self.refuse_client(now, client, &error, io);
        }
    }

    /// The client does without its server, and without what tied it there.
    pub(super) fn let_go(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        if let Some(server) = self.servers.get_mut(server) {
            server.session.unpin();
        }
        self.detach(now, client, server, io);
    }
}

/// Asks for a server back that its client could do without, if clients wait and there is one.
pub(super) fn request_recall(now: Time, pool: &Arc<Pool>, io: &mut impl Io) {
    let recalled = pool.state().recall(now);
    if let Some(server) = recalled {
        io.mail(server.worker, Mail::Recall(server, pool.clone()));
    }
}

/// The client that a server is kept for, if it does nothing there now and could do without it.
pub(super) fn idle_holder(server: &Server) -> Option<ClientId> {
    let Role::Serving(client) = server.role else { return None };
    let is_free = server.is_at_rest() && server.preparation == Preparation::None && server.kept.is_some();
    // What it did last may have left something that it has not been asked for.
    (is_free && !server.is_to_be_asked() && !server.session.pins().are_lasting()).then_some(client)
}

/// Whether what a server has done for its client, or has said of its session, is known and has not been acted on.
pub(super) fn is_to_be_followed(server: &Server) -> bool {
    let has_news = server.session.has_report() || !server.session.effects().is_empty();
    let is_its = matches!(server.role, Role::Serving(_)) && server.follows_statements() && server.is_at_rest();
    is_its && has_news && !server.is_to_be_asked()
}

/// Whether a server needs a query of Sluice's own before its client's next transaction.
fn needs_own(server: &Server) -> bool {
    server.follows_statements()
        && (server.is_to_be_asked() || server.session.has_report() || !server.session.pins().is_empty())
}

/// A client's transaction has ended: what the server has said of its session is the client's from now on.
fn follow_session(now: Time, server: &mut Server, session: &mut Session) {
    server.statements.retire_tainted();
    let own = session.note_effects(now, server.session.effects(), server.sequences.are_used());
    let report = server.take_report();
    if server.parameters.take_reload(server.session.profile()) {
        server.pool.reloaded();
    }
    match report {
        None => server.session.hold((server.session.pins() - Pins::SOFT) | own),
        Some(pins) => {
            server.session.hold(pins | own);
            if server.is_in_use {
                session.made.add(server.session.made().names());
            }
            let profile = with_start(server.session.profile(), &session.start);
            if profile::role_differs(&session.profile, &profile) {
                session.role_set_at = server.pool.log_ins.changes();
            }
            session.profile = profile;
        }
    }
    has_heard(session, server);
}

/// ParameterStatus messages for the settings that have gone back to what the client began with, though no text has shown
/// that, and of which the server has reported its own defaults.
fn went_back(server: &mut Server, session: &Session) -> Vec<u8> {
    let mut out = Vec::new();
    let profile = server.session.profile();
    if profile.is(&session.start) || missing(profile, &session.start).next().is_none() {
        return out;
    }
    let reported: Vec<String> = server.parameters.iter().map(|(name, _)| name.to_owned()).collect();
    for name in reported {
        if server.session.profile().get(&name.to_ascii_lowercase()).is_none()
            && let Some(start) = session.start_reported(&name)
            && server.parameters.told(&name) != Some(start)
        {
            message::put_parameter_status(&mut out, &name, start);
            server.parameters.tell(&name, start);
        }
    }
    out
}

/// The settings that a client began with, and a profile lacks.
fn missing<'a>(profile: &'a Profile, start: &'a Profile) -> impl Iterator<Item = (&'a String, &'a Box<[u8]>)> {
    start.settings().iter().filter(|(name, _)| profile.get(name).is_none())
}

/// A profile with the settings that the client began with: RESET goes back to those, and not to the server's own
/// defaults.
fn with_start(profile: &Profile, start: &Profile) -> Profile {
    let missing: Settings = missing(profile, start).map(|(name, value)| (name.clone(), value.clone())).collect();
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
    if let Some(sql) = server.session.bring_to(profile, made) {
        send_own(server, scratch, Own::Settings, &sql, io);
        server.preparation = Preparation::UnderWay;
    }
}

/// Brings back what a client began with, where it has reset settings in the midst of its transaction.
pub(super) fn restore(server: &mut Server, start: &Profile, resets: &Reset, io: &mut impl Io) {
    let sql = restoring(start, resets);
    if !sql.is_empty() && send_own_within(server, &mut Vec::new(), Own::Settings, &sql, io) {
        server.preparation = Preparation::UnderWay;
    }
}

/// Brings a server to the settings that a client starts with.
pub(super) fn begin_session(server: &mut Server, start: &Start, scratch: &mut Vec<u8>, io: &mut impl Io) {
    if let Some(sql) = server.session.begin(start) {
        send_own(server, scratch, Own::Settings, &sql, io);
    }
}

/// Asks a server what its session holds.
pub(super) fn send_probe(now: Time, server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let sql = server.ask(now);
    send_own(server, scratch, Own::Probe, &sql, io);
    server.preparation = Preparation::UnderWay;
}

/// Takes away what a client has left in the session that nobody else is to find; `false` if there is nothing.
pub(super) fn put_in_order(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    if !server.follows_statements() {
        return put_in_order_behind_session(server, scratch, io);
    }
    server.statements.retire_tainted();
    if server.session.reports() {
        let reported = server.take_report();
        server.session.hold(reported.unwrap_or(server.session.pins()));
    } else {
        server.session.hold_unknown();
    }
    if server.session.is_spent() {
        return false;
    }
    if server.session.is_left_over() {
        server.session.discard();
        server.statements.clear();
        server.lent = Lent::default();
        server.sequences.forget();
        discard_all(server, scratch, io);
        return true;
    }
    if close_lent(server, scratch, io) {
        return true;
    }
    if let Some(profile) = server.session.profile().at_rest() {
        put_in_place(server, &profile, &Customs::default(), scratch, io);
        server.preparation = Preparation::None;
        return true;
    }
    false
}

/// The same where the client has had the server for all of its session: DISCARD ALL brings it back to how it began,
/// unless it may have left what that does not take away.
fn put_in_order_behind_session(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    let reported = server.take_report();
    server.session.hold_behind_session(reported.unwrap_or_default());
    if !server.session.is_left_over() {
        return false;
    }
    if !server.opened.startup.can_come_again() {
        server.session.spend();
    }
    if server.session.is_spent() {
        return false;
    }
    server.session.discard();
    discard_all(server, scratch, io);
    let login_triggers = server.has_login_triggers().then_some(HAS_LOGIN_TRIGGERS);
    let functions = (!server.session.reports()).then_some(HAS_FUNCTIONS);
    let questions: Vec<_> = login_triggers.into_iter().chain(functions).collect();
    if !questions.is_empty() {
        send_own(server, scratch, Own::Remains, &format!("SELECT {}", questions.join(" OR ")), io);
    }
    true
}

/// Resets all that a client has left. DISCARD ALL takes a snapshot, and stands alone in its query: where the level at
/// which its transaction begins is the client's, that is set before, and reset with all else.
fn discard_all(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    if server.may_withhold_snapshots() {
        send_own(server, scratch, Own::Reset, "SET default_transaction_isolation = 'read committed'", io);
    }
    send_own(server, scratch, Own::Reset, "DISCARD ALL", io);
}

/// Whether a log-in to the database runs a trigger: each session is to have that, so that none can begin where another
/// one has ended.
const HAS_LOGIN_TRIGGERS: &str = "(SELECT dathasloginevt FROM pg_catalog.pg_database \
    WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";

/// Whether there are functions in the database that are not PostgreSQL's own. A trigger, a policy, a view, a default or
/// an operator may have called them, which no text shows, and what they have left nobody knows.
const HAS_FUNCTIONS: &str = "EXISTS (SELECT FROM pg_catalog.pg_proc \
    WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid)";

/// The error of a client whose transaction has left something on a server that it was to have for that alone.
fn held_elsewhere(server: &Server) -> ErrorResponse {
    let held = server.session.known_pins().in_words();
    let error = format!("the session holds {held} on the server to which its transaction was led");
    ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, error).hint(
        "Where transactions read at another node than their session's, they can't leave anything there: see \
         \"read_only_transactions\" and \"causal_reads\" in the pool's configuration.",
    )
}

fn refusal(server: &Server) -> ErrorResponse {
    let held = server.session.pins().in_words();
    if server.pool.sharing.pins == PinPolicy::Refuse {
        return ErrorResponse::fatal(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("the session holds {held}, so it would need a server of its own"),
        )
        .hint("This pool's \"pins\" is \"refuse\". Connect to PostgreSQL itself, or by a pool in session mode.");
    }
    ErrorResponse::fatal(
        sqlstate::TOO_MANY_CONNECTIONS,
        format!(
            "the session holds {held}, so it needs a server of its own, and too many other sessions already have one"
        ),
    )
    .hint("Raise \"pinned_max\" or \"size\" of this pool, or connect by a pool in session mode.")
}
