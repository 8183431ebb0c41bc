//! A cluster as others find it who do not run it: by its directory, how to ask its nodes and the pool before them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use sluice_control::cluster::Rest;

use super::{
    ADDRESS, Cluster, ClusterError, State,
    patroni::{self, POOLS},
    rest,
    roles::REST_PASSWORD as PASSWORD,
};
use crate::{
    bootstrap::{BootstrapError, Lookup},
    files::{self, Owner},
    secret::Password,
};

/// The name that a pool's console has as a database.
const CONSOLE: &str = "pgbouncer";

/// What has to be known to ask a cluster, and to have it do something.
#[derive(Debug)]
pub struct Known {
    /// Its name, to Patroni and to the pool.
    pub scope: String,
    /// Its nodes' REST APIs.
    pub members: Vec<Rest>,
    /// The password for what changes something; the user is [`rest::USER`].
    pub password: Password,
    /// The file with the consoles of the pools, which is there while one runs.
    pub pools: PathBuf,
}

impl Known {
    /// Reads it; `None` if there is no cluster.
    ///
    /// # Errors
    ///
    /// A file that can't be read, or is not as it was written.
    pub fn read(root: &Path) -> Result<Option<Self>, ClusterError> {
        let Some(state) = State::read(root)? else { return Ok(None) };
        let nodes = state.nodes.iter().enumerate();
        let made = nodes.filter(|(index, _)| root.join(format!("node{}/{}", index + 1, patroni::FILE)).exists());
        let members: Vec<_> = made.map(|(_, ports)| rest::at(SocketAddr::new(ADDRESS, ports.rest))).collect();
        if members.is_empty() {
            return Ok(None);
        }
        let path = root.join(PASSWORD);
        let text = fs::read_to_string(&path).map_err(ClusterError::io("read", &path))?;
        let password = Password::from_file(&text).ok_or(BootstrapError::BadFile { path })?;
        Ok(Some(Self { scope: state.scope, members, password, pools: root.join(POOLS) }))
    }
}

impl Cluster {
    /// Says to whoever asks for it where the console of the pool is that listens there. It is the look-up role's, which
    /// knows all secrets anyway.
    ///
    /// # Errors
    ///
    /// A file that can't be written.
    pub fn tell_pool(&self, listen: SocketAddr, lookup: &Lookup) -> Result<(), ClusterError> {
        let host = match listen.ip() {
            ip if ip.is_unspecified() => ADDRESS,
            ip => ip,
        };
        // Its name and its password need no quoting.
        let console = format!(
            "host={host} port={} user={} password={} dbname={CONSOLE} sslmode=prefer\n",
            listen.port(),
            lookup.user,
            lookup.password.expose()
        );
        let write = |path: PathBuf, owner| {
            files::write_private(&path, console.as_bytes(), owner).map_err(ClusterError::io("write", &path))
        };
        write(self.data_dir.root().join(POOLS), Owner::Us)?;
        self.nodes.iter().try_for_each(|node| write(node.pools_file(), Owner::Postgres(self.data_dir.run_as())))
    }
}
