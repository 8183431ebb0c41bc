//! The beginnings of sessions, where their server's own log-in does not tell them: the configuration's `DateStyle`, which
//! completes the client's, and the values that the client was told when it logged in, before its role or its database
//! got other defaults.

use std::sync::Arc;

use crate::{
    client::{Phase, Session},
    date_style::DateStyle,
    ids::{ClientId, ServerId},
    io::Io,
    profile::{Profile, Settings},
    replies::Own,
    server::{Server, value_in_messages},
    sql::Effects,
    start::{Start, StartupParameters},
    statement::Statement,
    time::Time,
};

use super::{Engine, keeping::begin_session, own_queries::send_own, reloads::NOT_SET};

/// Whether a role or a database, whichever it is, has a `DateStyle` of its own.
const HAS_DATE_STYLES: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting d, \
    pg_catalog.unnest(d.setconfig) e(s) WHERE pg_catalog.starts_with(pg_catalog.lower(e.s),'datestyle='))";

/// Asks a server whether what it began with is the configuration's `DateStyle`, if that has to be known.
pub(super) fn ask_for_date_styles(server: &mut Server, start: &Start, scratch: &mut Vec<u8>, io: &mut impl Io) {
    if start.leaves_date_style_open() && !server.pool.log_ins.all_begin_as_configured() {
        send_own(server, scratch, Own::DateStyles, HAS_DATE_STYLES, io);
    }
}

impl Engine {
    /// Has another server opened in place of the one that a client has got to log in, which reports the configuration's
    /// `DateStyle`: nothing else tells it to whoever is no superuser. Another client may have had one meanwhile.
    pub(super) fn look_for_date_style(&mut self, now: Time, (client, server): (ClientId, ServerId), io: &mut impl Io) {
        let (Some(state), Some(server)) = (self.clients.get_mut(client), self.servers.get_mut(server)) else { return };
        let Phase::Welcome(session, start) = &mut state.phase else { return };
        let configured = session.pool.log_ins.date_style();
        if configured.is_some() {
            *start = std::mem::take(start).completed(configured);
            begin_session(server, start, &mut self.scratch, io);
            return;
        }
        session.startup = StartupParameters::of_date_style();
        self.replace_server(now, client, io);
    }

    /// Such a server has come: the client goes on with another one.
    pub(super) fn note_date_style(&mut self, now: Time, client: ClientId, server: ServerId, io: &mut impl Io) {
        let (Some(state), Some(server)) = (self.clients.get_mut(client), self.servers.get(server)) else {
            return;
        };
        let Phase::Welcome(session, start) = &mut state.phase else { return };
        session.startup = StartupParameters::NONE;
        let log_ins = &session.pool.log_ins;
        match server.parameters.get("DateStyle").and_then(DateStyle::read) {
            Some(configured) => {
                log_ins.learn_date_style(configured);
                *start = std::mem::take(start).completed(Some(configured));
            }
            // One of a version to come: what it is completed from is the server's own.
            None => log_ins.begin_as_configured(log_ins.generation()),
        }
        self.replace_server(now, client, io);
    }
}

/// A client that had logged in before gets a server which begins with other defaults: what it was told of parameters
/// stays, as if it had asked for it at its log-in. What a reload of the configuration changes counts for all, and since
/// one, nobody knows which of both it is.
pub(super) fn keep_reported(session: &mut Session, server: &Server) {
    let is_newer = server.opened.generation > session.generation();
    if !is_newer || session.told_at != session.pool.log_ins.reloads() {
        return;
    }
    let reported = server.parameters.logged_in_with().filter(|(name, _)| !NOT_SET.contains(name));
    let differing = reported.filter_map(|(name, value)| {
        let told = value_in_messages(&session.told, name)?;
        let name = name.to_ascii_lowercase();
        (told != value && told.is_ascii() && session.start.get(&name).is_none()).then(|| (name, told.as_bytes().into()))
    });
    let kept = Profile::new(differing.collect::<Settings>());
    if kept.settings().is_empty() {
        return;
    }
    session.start = kept.with(session.start.clone());
    session.profile = kept.with(session.profile.clone());
    keep_literals(session, &kept);
}

/// The literals of the client's named statements were read by what it logged in with.
fn keep_literals(session: &mut Session, kept: &Profile) {
    let (pool, context) = (session.pool.clone(), session.profile.context());
    let mut read: Vec<Arc<Statement>> = Vec::new();
    for prepared in session.names.iter_mut().flat_map(|names| names.values_mut()) {
        let statement = &prepared.statement;
        if statement.effects.intersects(Effects::LITERAL) && statement.terms.is_some() {
            let profile = kept.with(statement.profile.clone());
            prepared.statement = pool.statements.reread(statement, &profile, Some(context));
            read.push(prepared.statement.clone());
        }
    }
    read.iter().for_each(|statement| session.note_named(statement));
}
