//! A pool that is drained: clients leave as soon as they have no transaction open, and others are refused, until an
//! operator has it go on. And a database that is disabled, where only the latter is so.

use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Client, Link},
    io::Io,
    server::Role,
    time::Time,
};

use super::Engine;

impl Engine {
    /// Sees that an operator has nothing against clients who come to that database. The console is always open.
    pub(super) fn check_open(&self, database: &str) -> Result<(), ErrorResponse> {
        if self.is_console(database) {
            return Ok(());
        }
        if self.hub.is_draining() {
            return Err(draining());
        }
        match self.hub.is_disabled(database) {
            true => Err(disabled(database)),
            false => Ok(()),
        }
    }

    /// Ends the clients that have no transaction open now; the others end by themselves.
    pub(super) fn drain(&mut self, now: Time, io: &mut impl Io) {
        let has_none = |client: &Client| client.session().is_some_and(|session| session.link == Link::None);
        for id in self.clients.ids(has_none) {
            self.refuse_client(now, id, &drained(), io);
        }
        for id in self.servers.ids(|server| matches!(server.role, Role::Serving(_)) && server.is_at_rest()) {
            self.check_rest(now, id, io);
        }
    }
}

/// The error that those get who come while the pool is drained.
fn draining() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, "the connection pool is being drained")
        .hint("An administrator has given it the command DRAIN; RESUME ends that.")
}

/// The error that those get who come to a database that is disabled, in PgBouncer's words, with the SQLSTATE that
/// PostgreSQL has for one that takes no connections.
fn disabled(database: &str) -> ErrorResponse {
    let error = format!("database \"{database}\" is disabled");
    ErrorResponse::fatal(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, error)
        .hint("An administrator has given the command DISABLE; ENABLE ends that.")
}

/// The error that clients get when it is.
pub(super) fn drained() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::ADMIN_SHUTDOWN,
        "terminating connection because the connection pool is being drained",
    )
}
