//! The way to the server of a pool.

use std::sync::Arc;

use sluice_control::{Database, Secret as Hidden, address::Address, cluster::NotPrimary, server_auth::ServerAuth};
use sluice_tls::ClientTls;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::pool::PoolState;

/// The role that a cluster's node has to have for a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// It is out of recovery.
    Primary,
    /// It is in recovery.
    Standby,
}

/// The way to the server of a pool, and to log in there.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its address.
    pub address: Address,
    /// The cluster that it is a node of; `None`: it is one server.
    pub cluster: Option<Arc<str>>,
    /// The role that it had there when this was made, and has to have.
    pub node_role: Option<NodeRole>,
    /// Whether its sessions are for reading: their transactions are read-only unless they say otherwise.
    pub is_for_reading: bool,
    /// Whether its sessions are to say where their commits end in the log.
    pub reports_commits: bool,
    /// The encryption on the way to it, if any is wanted.
    pub tls: Option<Arc<ClientTls>>,
    /// The database's name there.
    pub dbname: String,
    /// The role's name there.
    pub user: String,
    /// The password, if one is configured.
    pub password: Option<Hidden>,
    /// The ways in which the server may have the pool log in.
    pub server_auth: ServerAuth,
    /// By which the server believes where a client comes from; `None`: it is not told.
    pub client_address_secret: Option<Hidden>,
}

impl Upstream {
    /// The state of a pool of that entry's that leads there.
    pub(super) fn new_state(&self, entry: &Database) -> PoolState {
        if self.is_known() {
            return PoolState::new(entry.pool.clone());
        }
        let error = ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, format!("{} is not known", self.address)).hint(
            "Either it has none now, or no member of it can be asked: the pool's log says what its members answer.",
        );
        PoolState::nowhere(entry.pool.clone(), error)
    }

    /// The error for those who wait where a node has other data than its cluster's primary had there.
    pub(super) fn withdrawn(&self, by: &NotPrimary) -> ErrorResponse {
        ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, format!("{} is not known any more", self.address))
            .detail(by.to_string())
            .hint("Where clients are to work with the data that it has now, restart the pool.")
    }

    /// Whether it is known where it is.
    pub fn is_known(&self) -> bool {
        !matches!(self.address, Address::Primary(_) | Address::Readers(_))
    }

    /// Whether it leads to a standby.
    pub fn is_standby(&self) -> bool {
        self.node_role == Some(NodeRole::Standby)
    }

    /// The one of a role, where clients name a database that the configuration has this entry for.
    pub(super) fn new(entry: &Database, database: &str, role: &str, address: Address) -> Self {
        let is_for_reading = entry.reading.is_some();
        let is_primary = entry.is_primary(&address).unwrap_or(!is_for_reading);
        let node_role = if is_primary { NodeRole::Primary } else { NodeRole::Standby };
        Self {
            address,
            node_role: entry.cluster.as_ref().map(|_| node_role),
            is_for_reading,
            reports_commits: entry.reports_commits && is_primary,
            cluster: entry.cluster.clone(),
            tls: entry.tls.clone(),
            dbname: entry.dbname_for(database).to_owned(),
            user: role.to_owned(),
            password: entry.password.clone(),
            server_auth: entry.server_auth,
            client_address_secret: entry.client_address_secret.clone(),
        }
    }
}
