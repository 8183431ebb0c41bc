//! Transactions that read at standbys, and find there what was committed before (docs/decisions/0032).
//!
//! The choice is made where a transaction needs a server. At a standby, its server is asked how far it has replayed,
//! before anything of the client's goes there; where that takes too long, the transaction goes to the primary.

use std::time::Duration;

use sluice_control::reading::{Causal, Scope};
use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{BindNames, Named, Parse},
    sqlstate,
};

use crate::{
    client::{CatchUp, Client, Link, Phase},
    hub::Pool,
    ids::{ClientId, ServerId},
    io::Io,
    lsn::Lsn,
    replies::Own,
    server::{Preparation, Role, Server},
    sql,
    time::Time,
};

use super::{
    Engine,
    frontend::{ClientRelay, Seen},
    own_queries::send_own,
};

/// The time beyond that, for an answer that is under way.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// Asks how far a standby has replayed.
const HOW_FAR: &str = "SELECT pg_catalog.pg_last_wal_replay_lsn()";

/// The same in a moment. Each statement has a snapshot of its own, so none is in the way of the replay for longer.
const HOW_FAR_IN_A_MOMENT: &str = "SET LOCAL statement_timeout = 0; SELECT pg_catalog.pg_sleep(0.001); \
    SELECT pg_catalog.pg_last_wal_replay_lsn()";

impl Engine {
    /// A client's transaction needs a server: the pool is chosen that it gets it from.
    pub(super) fn choose_node(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return };
        let may_leave = std::mem::take(&mut session.reads.may_leave);
        if session.link != Link::None {
            return;
        }
        session.come_home();
        let Some(causal) = session.pool.causal() else { return };
        let pool = &session.pool;
        if !pool.upstream.is_for_reading {
            if may_leave {
                self.lead_to_standby(now, id, causal);
            }
        } else if pool.upstream.is_standby() {
            // Where no primary is known, there is nobody who could say more.
            let is_known = || !pool.may_lack_commits(now) || self.hub.spare_pool(pool).is_none();
            match pool.acknowledged_end().filter(|_| is_known()) {
                Some(upto) => session.reads.catch_up = Some(CatchUp { upto, until: now + causal.timeout }),
                None => self.take_primary(now, id, io),
            }
        }
    }

    /// Leads a transaction to a standby, if there is one, and it is known what it has to find there. All of a client's go
    /// to the same one as long as there are the same.
    fn lead_to_standby(&mut self, now: Time, id: ClientId, causal: Causal) {
        let Some(Client { phase, serial, .. }) = self.clients.get_mut(id) else { return };
        let Phase::Open(session) = phase else { return };
        let pool = &session.pool;
        let all = match causal.scope {
            Scope::Local => Some(Lsn::START),
            Scope::Global => pool.acknowledged_end().filter(|_| !pool.may_lack_commits(now)),
        };
        let Some(all) = all.filter(|_| !session.reads.has_unknown) else { return };
        let Some(entry) = self.snapshot.database(&pool.database) else { return };
        let Some(turn) = (*serial as usize).checked_rem(entry.readers.len()) else { return };
        let Some(next) = self.hub.pool_at(pool, &entry.readers[turn].address) else { return };
        let upto = all.max(session.reads.written);
        next.log_ins.follow(&pool.log_ins);
        session.go_away(next);
        session.reads.catch_up = Some(CatchUp { upto, until: now + causal.timeout });
    }

    /// Has a client that waits for nothing read at the primary: it is there by itself, unless it is one of those who read
    /// at standbys.
    fn take_primary(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return };
        session.come_home();
        let pool = &session.pool;
        if !pool.upstream.is_for_reading || !pool.upstream.is_standby() {
            return;
        }
        match self.hub.spare_pool(pool) {
            Some(next) => session.go_away(next),
            // There is one wherever there are standbys to read at, unless the configuration is another one by now.
            None => self.refuse_client(now, id, &no_primary(), io),
        }
    }

    /// A client's standby has said how far it has replayed.
    pub(super) fn how_far(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.asked_until = None;
        let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) else { return };
        match session.reads.want_more_than(server.replayed) {
            None => self.take_up(now, client, id, io),
            Some(catch_up) if now < catch_up.until => {
                ask_how_far(server, catch_up, HOW_FAR_IN_A_MOMENT, &mut self.scratch, io);
                self.arm(id);
            }
            Some(_) => self.leave_standby(now, (client, id), io),
        }
    }

    /// A client leaves its standby, which does not come far enough or does not say so, and reads at the primary.
    pub(super) fn leave_standby(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) {
        self.detach(now, client, id, io);
        self.read_at_primary(now, client, io);
    }

    /// The same where its server is of no use any more; `false` if the client does not wait for it to come that far, or has
    /// half a message of it.
    pub(super) fn lose_standby(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) -> bool {
        if self.servers.get(id).is_some_and(|server| server.stream.is_passing()) {
            return false;
        }
        let session = self.clients.get_mut(client).and_then(Client::session_mut);
        let Some(session) = session.filter(|session| session.reads.catch_up.is_some()) else { return false };
        session.link = Link::None;
        if let Some(server) = self.servers.get_mut(id) {
            server.role = Role::Settling { deadline: now };
        }
        self.close_server(id, io);
        self.read_at_primary(now, client, io);
        true
    }

    fn read_at_primary(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        self.take_primary(now, id, io);
        self.acquire(now, id, io);
    }

    /// A client that waits in a pool that is not its own gets an error there: it goes on at the primary, if it is not
    /// there. Returns whether it does.
    pub(super) fn refused_at_standby(&mut self, now: Time, id: ClientId, io: &mut impl Io) -> bool {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return false };
        if !session.reads.is_away() || !session.pool.upstream.is_standby() {
            return false;
        }
        session.link = Link::None;
        self.read_at_primary(now, id, io);
        true
    }

    /// A client is in a pool that is not its own, for a transaction. Where it waits there and that is retired, it goes to the
    /// primary.
    pub(super) fn leave_retired(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return };
        if !session.pool.is_retired() {
            return;
        }
        match session.link {
            Link::Waiting(ticket) if session.pool.state().leave(ticket) => {
                session.link = Link::None;
                self.read_at_primary(now, id, io);
            }
            // It is about to wait, and will be looked at again; or a server is on its way to it, or an error.
            Link::None | Link::Waiting(_) | Link::Coming | Link::Server(_) => {}
        }
    }
}

fn no_primary() -> ErrorResponse {
    let error = "the standby has not replayed yet what the transaction has to find, and no primary is known";
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)
}

/// Asks a client's server how far it has replayed.
pub(super) fn begin_catching_up(server: &mut Server, catch_up: CatchUp, scratch: &mut Vec<u8>, io: &mut impl Io) {
    ask_how_far(server, catch_up, HOW_FAR, scratch, io);
}

fn ask_how_far(server: &mut Server, catch_up: CatchUp, sql: &str, scratch: &mut Vec<u8>, io: &mut impl Io) {
    server.asked_until = Some(catch_up.until + ANSWER_TIME);
    send_own(server, scratch, Own::Replayed, sql, io);
    server.preparation = Preparation::UnderWay;
}

impl Pool {
    /// The place in the log that a standby has to have replayed where all is to be found that this process's clients were
    /// told of; `None` if nobody can say.
    fn acknowledged_end(&self) -> Option<Lsn> {
        self.acknowledged.as_ref()?.end()
    }

    /// Whether others may have committed long ago what is not known here.
    fn may_lack_commits(&self, now: Time) -> bool {
        self.acknowledged.as_ref().is_some_and(|acknowledged| acknowledged.is_old(now))
    }
}

impl<'a, I: Io> ClientRelay<'a, I> {
    /// The first message of a transaction needs a server: notes whether that may be a standby's.
    pub(super) fn note_first(&mut self, seen: Seen<'a>) {
        if self.session.pool.leads_read_only() {
            self.session.reads.may_leave = self.may_leave(seen);
        }
    }

    /// A Parse is answered without a server: notes whether it would have taken a snapshot.
    pub(super) fn note_parse(&mut self, query: &[u8]) {
        if self.session.pool.leads_read_only()
            && let Some(begun) = &mut self.session.begun
        {
            begun.has_parsed |= sql::is_the_same_at_standby(query);
        }
    }

    /// A block that was begun as read-only, and whose first statement is a query that takes a snapshot: from then on
    /// PostgreSQL answers at a standby what it answers at a primary, also to SET TRANSACTION.
    fn may_leave(&self, seen: Seen<'a>) -> bool {
        let Some(begun) = self.session.begun.filter(|begun| !begun.failed && begun.begin.is_read_only()) else {
            return false;
        };
        let profile = &self.session.profile;
        // A standby knows no SERIALIZABLE. A role that is set may be another one by the same name meanwhile.
        let default = profile.get("default_transaction_isolation");
        let is_serializable = !begun.begin.has_isolation() && default.is_some_and(|level| !level.starts_with(b"re"));
        let has_role = ["role", "session_authorization"].iter().any(|name| profile.get(name).is_some());
        // To describe a statement takes no snapshot.
        let has_snapshot = begun.has_parsed || seen.kind != FrontendKind::Describe;
        !is_serializable && !has_role && has_snapshot && self.has_text(seen, sql::is_the_same_at_standby)
    }

    /// A statement of a transaction that was led to a standby is about to go there. An advisory lock would be one of that
    /// server alone, and keep nobody away who takes it at the primary.
    pub(super) fn check_at_standby(&self, seen: Seen<'a>) -> Option<ErrorResponse> {
        if !self.session.reads.is_away() || !self.session.pool.upstream.is_standby() {
            return None;
        }
        // PostgreSQL refuses it in a block that has failed, unless its own text ends that block first.
        let has_failed = self.server.as_deref().is_some_and(Server::has_failed_block);
        let may_run = |text: &[u8]| !has_failed || text.contains(&b';');
        let names = |text: &[u8]| text.windows(ADVISORY.len()).any(|part| part.eq_ignore_ascii_case(ADVISORY));
        let locks = |text: &[u8]| may_run(text) && names(text);
        self.has_text(seen, locks).then(|| {
            let error =
                "an advisory lock in a transaction that was led to a standby would be one of that standby alone";
            ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, error).hint(
                "Begin this transaction without READ ONLY, or set \"read_only_transactions\" of the database in the \
                 pool's configuration to \"primary\".",
            )
        })
    }

    /// Whether a message is about a statement with such a text.
    fn has_text(&self, seen: Seen<'a>, is_meant: impl FnOnce(&[u8]) -> bool) -> bool {
        match seen.kind {
            FrontendKind::Query => seen.body.strip_suffix(b"\0").filter(|_| seen.is_whole()).is_some_and(is_meant),
            FrontendKind::Parse => Parse::read(seen.body).is_ok_and(|parse| is_meant(parse.query)),
            FrontendKind::Describe => match Named::read(seen.body, "Describe") {
                Ok(Named::Statement(name)) => self.statement_named(name).is_some_and(|it| is_meant(it.query())),
                _ => false,
            },
            FrontendKind::Bind => {
                let statement = BindNames::read(seen.body).and_then(|names| self.statement_named(names.statement));
                statement.is_some_and(|statement| is_meant(statement.query()))
            }
            _ => false,
        }
    }
}

const ADVISORY: &[u8] = b"advisory";
