//! Another snapshot: pools that it does not have any more, or has otherwise, are left. What is idle there is closed,
//! and what is under way ends there; clients go on with the pool that has come in the place of theirs, or end where
//! there is none.

use std::sync::Arc;

use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Client, Link},
    hub::{NodeRole, Pool, Upstream},
    ids::ClientId,
    io::Io,
    server::Role,
    time::Time,
};

use super::Engine;

impl Engine {
    /// Goes by the hub's snapshot from now on.
    pub(super) fn published(&mut self, now: Time, io: &mut impl Io) {
        self.snapshot = self.hub.snapshot();
        for id in self.servers.ids(|server| server.pool.is_retired()) {
            if let Some(reason) = self.failed_over(&self.servers[id].pool) {
                // What it said from now on might be true on that node only.
                self.server_closed(now, id, reason, io);
                continue;
            }
            match self.servers[id].role {
                Role::Idle | Role::Opening { .. } => self.close_server(id, io),
                // Its client keeps it, and may be doing nothing with it.
                Role::Serving(_) if self.end_of(&self.servers[id].pool).is_some() => self.check_rest(now, id, io),
                Role::Serving(_) => self.recall_here(now, id, io),
                Role::Settling { .. } => {}
            }
        }
        self.limits_change(now);
        // In the order in which they have waited.
        let mut left: Vec<_> = self.clients.ids(is_left).into_iter().map(|id| (self.ticket(id), id)).collect();
        left.sort_by_key(|(ticket, _)| *ticket);
        for (_, client) in left {
            self.move_client(now, client, io);
        }
    }

    /// Ends the clients of a database, whatever they are doing.
    pub(super) fn end_clients(&mut self, now: Time, database: &str, io: &mut impl Io) {
        for id in self.clients.ids(|client| client.session().is_some_and(|it| it.pool.database == database)) {
            let error = ErrorResponse::fatal(sqlstate::ADMIN_SHUTDOWN, TERMINATED).routine("ProcessInterrupts");
            self.refuse_client(now, id, &error, io);
        }
    }

    fn ticket(&self, id: ClientId) -> Option<crate::queue::Ticket> {
        match self.clients.get(id)?.session()?.link {
            Link::Waiting(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Moves a client without a server to the pool that has come in the place of its own, or ends it.
    pub(super) fn move_client(&mut self, now: Time, id: ClientId, io: &mut impl Io) {
        let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) else { return };
        if session.reads.is_away() {
            self.leave_retired(now, id, io);
            return;
        }
        // Others are to have it where it has nothing under way.
        let is_let_go = || session.link == Link::None && session.pool.lets_go();
        if !session.pool.is_retired() && !is_let_go() {
            return;
        }
        let waits = match session.link {
            Link::None => false,
            Link::Waiting(ticket) => {
                if !session.pool.state().leave(ticket) {
                    // A server is on its way to it, or an error.
                    return;
                }
                session.link = Link::None;
                true
            }
            Link::Coming | Link::Server(_) => return,
        };
        match self.hub.successor(&session.pool) {
            Some(next) if Arc::ptr_eq(&next, &session.pool) => {}
            Some(next) => {
                session.move_to(next);
                if waits {
                    self.acquire(now, id, io);
                }
            }
            None => {
                let error = database_gone(&session.pool);
                self.refuse_client(now, id, &error, io);
            }
        }
    }

    /// The reason why that pool leads to where its cluster's primary has been, and is no longer; `None`: it does not.
    fn failed_over(&self, pool: &Pool) -> Option<&'static str> {
        let database = self.snapshot.database(&pool.database)?;
        let Upstream { cluster, address, node_role, .. } = &pool.upstream;
        let cluster = cluster.as_ref().filter(|_| *cluster == database.cluster)?;
        // What a standby says is true of a moment before, whatever becomes of it.
        if *node_role != Some(NodeRole::Primary) {
            return None;
        }
        let standing = self.snapshot.clusters.iter().find(|it| it.cluster.name == *cluster);
        let is_elsewhere = match standing.and_then(|it| it.primary.as_ref()) {
            Some(primary) => primary.address != *address,
            None if standing.is_some_and(|it| it.withdrawn.is_some()) => return Some("the primary has other data now"),
            None => database.reading.is_none() && database.address != *address,
        };
        is_elsewhere.then_some("the primary is elsewhere now")
    }

    /// The reason why a client of that pool ends as soon as it has no transaction open, if there is one.
    pub(super) fn end_of(&self, pool: &Pool) -> Option<ErrorResponse> {
        let is_over = pool.is_retired() && self.hub.successor(pool).is_none();
        is_over.then(|| database_gone(pool))
    }
}

/// Whether a client is without a server and may have to leave its pool.
fn is_left(client: &Client) -> bool {
    client.session().is_some_and(|session| session.pool.has_leaving() && !matches!(session.link, Link::Server(_)))
}

/// PostgreSQL's words for a session that is ended.
const TERMINATED: &str = "terminating connection due to administrator command";

fn database_gone(pool: &Pool) -> ErrorResponse {
    let detail = format!(
        "The database \"{}\" has been removed from the pool's configuration, or is another one.",
        pool.database
    );
    ErrorResponse::fatal(sqlstate::ADMIN_SHUTDOWN, TERMINATED).routine("ProcessInterrupts").detail(detail)
}
