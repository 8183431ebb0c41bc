//! The pool's configuration for an instance's server: written at each start, read by the pool as any other.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use sluice_config::{LOOKUP_CACHE, LookupConfig, Secret, ServerFile};

use crate::{
    bootstrap::Lookup,
    files::{self, Owner},
    server::Endpoint,
};

/// The contents of the file.
#[derive(Debug, Clone)]
pub struct PoolFile {
    /// The addresses that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// The server's endpoint.
    pub endpoint: Endpoint,
    /// The file with the secret by which the server believes where clients are, if it does.
    pub client_address_secret_file: Option<PathBuf>,
    /// The look-up of the clients' secrets.
    pub lookup: Lookup,
    /// Servers for each (database, user).
    pub pool_size: u32,
    /// Time limit for a client's wait for a server; none is the pool's default.
    pub wait_timeout: Option<Duration>,
    /// The interval at which its figures are written to its log; none is never.
    pub stats_period: Option<Duration>,
    /// Servers in all.
    pub servers_max: u32,
    /// Clients in all.
    pub clients_max: u32,
}

impl PoolFile {
    /// Writes it, readable by this process's user only: it has a password.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::write_private(path, self.to_toml()?.as_bytes(), Owner::Us)
    }

    fn to_toml(&self) -> io::Result<String> {
        let Lookup { user, password, database, query } = &self.lookup;
        let file = ServerFile {
            comment: &[
                "Written by `sluice up` at each start: changes made here are lost.",
                "To run the pool by a configuration of your own, copy this file and use `sluice serve -c FILE`.",
            ],
            listen: self.listen.clone(),
            stats_period: self.stats_period,
            clients_max: self.clients_max,
            servers_max: self.servers_max,
            lookup: LookupConfig {
                user: user.clone(),
                password: Some(Secret(password.expose().to_owned())),
                database: database.clone(),
                query: query.clone(),
                cache: LOOKUP_CACHE,
            },
            socket_dir: self.endpoint.socket_dir.clone(),
            port: self.endpoint.port,
            client_address_secret_file: self.client_address_secret_file.clone(),
            pool_size: self.pool_size,
            wait_timeout: self.wait_timeout,
        };
        file.to_toml()
    }
}
