//! The way to the server of a pool.

use std::sync::Arc;

use sluice_control::{Database, Secret as Hidden, address::Address};
use sluice_tls::ClientTls;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::pool::PoolState;

/// The way to the server of a pool, and to log in there.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its address.
    pub address: Address,
    /// The cluster whose primary it was when this was made; `None`: it is one server.
    pub cluster: Option<Arc<str>>,
    /// The encryption on the way to it, if any is wanted.
    pub tls: Option<Arc<ClientTls>>,
    /// The database's name there.
    pub dbname: String,
    /// The role's name there.
    pub user: String,
    /// The password, if one is configured.
    pub password: Option<Hidden>,
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

    /// Whether it is known where it is.
    pub fn is_known(&self) -> bool {
        !matches!(self.address, Address::Primary(_))
    }

    /// The one of a role, where clients name a database that the configuration has this entry for.
    pub(super) fn new(entry: &Database, database: &str, role: &str) -> Self {
        Self {
            address: entry.address.clone(),
            cluster: entry.cluster.clone(),
            tls: entry.tls.clone(),
            dbname: entry.dbname_for(database).to_owned(),
            user: role.to_owned(),
            password: entry.password.clone(),
            client_address_secret: entry.client_address_secret.clone(),
        }
    }
}
