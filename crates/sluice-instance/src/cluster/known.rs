//! A cluster as others find it who do not run it: by its directory, how to ask its nodes and the pool before them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::SystemTime,
};

use sluice_control::cluster::Rest;
use sluice_tls::ClientTls;

use super::{
    ADDRESS, Cluster, ClusterError, State, etcd,
    etcd_api::{EtcdClient, SERVICE},
    host::{certificates, members, state::HostState},
    patroni::{self, POOLS},
    resize,
    rest::{self, Api},
    roles::REST_PASSWORD as PASSWORD,
    tls::TlsFiles,
    votes::Votes,
};
use crate::{
    bootstrap::{BootstrapError, Lookup},
    data_dir::HOST,
    files::{self, Owner},
    secret::Password,
};

/// The name that a pool's console has as a database.
const CONSOLE: &str = "pgbouncer";

/// All that one has to know in order to ask a cluster, and to have it do something.
#[derive(Debug)]
pub struct Known {
    /// Its name, to Patroni and to the pool.
    pub scope: String,
    /// Its nodes' REST APIs.
    pub members: Vec<Rest>,
    /// The certificate to show them, of a host among several; None: they are asked in clear.
    pub tls: Option<Arc<ClientTls>>,
    /// The password for what changes something, where no certificate is wanted for it; the user is [`USER`](super::rest::USER).
    pub password: Option<Password>,
    /// The data directories that are here, by the names of their nodes.
    pub data: Vec<(String, PathBuf)>,
    /// The file with the consoles of the pools, which is there while one runs.
    pub pools: PathBuf,
    /// Warnings of certificates of this host that end soon.
    pub certificates: Vec<String>,
    /// Those of them that have ended: nobody answers this host then.
    pub expired: Vec<String>,
    /// The way to ask etcd itself, where its members are known here.
    pub etcd: Option<KnownEtcd>,
}

/// The members of etcd, as they are asked whether they are a majority.
#[derive(Debug)]
pub enum KnownEtcd {
    /// All on this machine.
    Here(Box<EtcdHere>),
    /// One on each host.
    Hosts(Box<EtcdHosts>),
}

/// Members of etcd on this machine.
#[derive(Debug)]
pub struct EtcdHere {
    /// The addresses of their health.
    health: Vec<SocketAddr>,
    /// None without their certificate, which they show only who runs them.
    client: Option<EtcdClient>,
}

/// The client of members of etcd on several hosts.
#[derive(Debug)]
pub struct EtcdHosts {
    client: EtcdClient,
    /// Where the members answer, by this host's file.
    known: Vec<SocketAddr>,
}

impl KnownEtcd {
    /// Whether etcd has a majority now: one of its members answers what it could not answer without. Takes some seconds
    /// where it has none.
    pub fn has_majority(&self) -> bool {
        match self {
            Self::Here(etcd) => thread::scope(|scope| {
                let asked: Vec<_> =
                    etcd.health.iter().map(|health| scope.spawn(|| etcd::is_healthy(*health))).collect();
                asked.into_iter().any(|thread| thread.join().unwrap_or(false))
            }),
            Self::Hosts(etcd) => etcd.client.value("/sluice/majority").is_ok(),
        }
    }

    /// The votes of a cluster, as etcd has them now; none where it can't be asked, or has none.
    pub fn votes(&self, scope: &str) -> Option<Votes> {
        let client = match self {
            Self::Here(etcd) => etcd.client.as_ref()?,
            Self::Hosts(etcd) => &etcd.client,
        };
        Votes::parse(&client.value(&format!("{SERVICE}{scope}/sync")).ok()??)
    }

    /// Faults of its membership, each with the remedy: members that are missing, do not answer, or are too many. None where
    /// etcd does not say.
    pub fn doubts(&self) -> Vec<String> {
        match self {
            Self::Here(_) => Vec::new(),
            Self::Hosts(etcd) => match etcd.client.members() {
                Ok(members) => members::doubts(&members, &etcd.known, &etcd.client.silent()),
                Err(_) => Vec::new(),
            },
        }
    }
}

impl Known {
    /// Reads it; `None` if there is no cluster.
    ///
    /// # Errors
    ///
    /// A file that can't be read, or is not as it was written.
    pub fn read(root: &Path) -> Result<Option<Self>, ClusterError> {
        if let Some(host) = HostState::read(root)? {
            let files = certificates::copies(root);
            let tls = rest::client_tls(&files)
                .map_err(|error| ClusterError::BadFile { path: files.cert.clone(), why: error.to_string() })?;
            let etcd = EtcdClient::new(host.etcd.clone(), &files)
                .map_err(|error| ClusterError::BadFile { path: files.cert.clone(), why: error.to_string() })?;
            let etcd = EtcdHosts { client: etcd, known: host.etcd };
            let etcd = (!etcd.known.is_empty()).then(|| KnownEtcd::Hosts(Box::new(etcd)));
            let encrypted = |address: &SocketAddr| Rest { is_encrypted: true, ..Api::default().at(*address) };
            return Ok(Some(Self {
                scope: host.cluster,
                members: host.patroni.iter().map(encrypted).collect(),
                tls: Some(Arc::new(tls)),
                password: None,
                data: vec![(host.name, root.join(HOST).join("pgdata"))],
                pools: root.join(POOLS),
                certificates: certificates::ends(&files, SystemTime::now()),
                expired: certificates::expired(&files, SystemTime::now()),
                etcd,
            }));
        }
        let Some(state) = State::read(root)?.filter(|_| !resize::is_one(root)) else { return Ok(None) };
        let nodes = state.nodes.iter().enumerate().map(|(index, ports)| (format!("node{}", index + 1), ports));
        let made: Vec<_> = nodes.filter(|(name, _)| root.join(name).join(patroni::FILE).exists()).collect();
        let at = |rest: u16| Api::default().at(SocketAddr::new(ADDRESS, rest));
        let members: Vec<_> = made.iter().map(|(_, ports)| at(ports.rest)).collect();
        let data = made.into_iter().map(|(name, _)| (name.clone(), root.join(name).join("pgdata"))).collect();
        if members.is_empty() {
            return Ok(None);
        }
        let path = root.join(PASSWORD);
        let text = fs::read_to_string(&path).map_err(ClusterError::io("read", &path))?;
        let password = Some(Password::from_file(&text).ok_or(BootstrapError::BadFile { path })?);
        let at = |port: u16| SocketAddr::new(ADDRESS, port);
        let health = state.etcd.iter().map(|ports| at(ports.health)).collect();
        let clients = state.etcd.iter().map(|ports| at(ports.client)).collect();
        let client = EtcdClient::new(clients, &TlsFiles::here(root)).ok();
        let etcd = Some(KnownEtcd::Here(Box::new(EtcdHere { health, client })));
        let (scope, pools, certificates, expired) = (state.scope, root.join(POOLS), Vec::new(), Vec::new());
        Ok(Some(Self { scope, members, tls: None, password, data, pools, certificates, expired, etcd }))
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
