//! Several nodes of the laboratory's own: PostgreSQL with Patroni and etcd on this machine, as `sluice up --nodes` makes
//! them, with relays between them where a distance is emulated.
//!
//! Only PostgreSQL's streams go by the relays: what a commit waits for. Patroni and etcd talk to each other as they do
//! without.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_config::FileServer;
use sluice_instance::{
    DataDir, DataDirSpec, Endpoint, Host, Silent, Tuning,
    cluster::{Cluster, ClusterSpec, Environment},
};

use crate::{connect::Access, error::Error, process::Interrupt, relay::Relay};

/// Time limit for a start, which is a copy for each node.
const START_MAX: Duration = Duration::from_secs(180);
/// Time limit for all nodes to be in their places.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit for a standby to have replayed all.
const REPLAY_MAX: Duration = Duration::from_secs(120);
/// The setting that Patroni takes from the cluster's configuration only.
const CONNECTIONS: &str = "max_connections";
/// As `sluice up` has it; no pool stands before them here.
const POOL_SIZE: u32 = 20;
const POLL: Duration = Duration::from_millis(50);

/// The number of nodes, and the distance between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes: one, two or three.
    pub count: usize,
    /// The round trip between them that is emulated; none: whatever it is on one machine.
    pub round_trip: Option<Duration>,
}

/// The nodes. Dropping them stops all.
pub struct Nodes {
    // Before the relays, which would only have standbys look for their primary.
    cluster: Cluster,
    /// One before each node, once a distance was asked for.
    relays: Vec<Relay>,
    /// Whether the nodes reach each other by them.
    is_relayed: bool,
    leader: usize,
}

/// The order for a start.
#[derive(Clone, Debug)]
pub struct Order {
    /// Nodes: two or three.
    pub count: usize,
    /// The first node's data directory, with the programs.
    pub data_dir: DataDirSpec,
    /// The Python environment in which Patroni runs.
    pub environment: Environment,
}

impl Nodes {
    /// Starts them, and waits until each standby streams and commits are waited for as they are to be.
    pub fn start(order: &Order, settings: &BTreeMap<String, String>) -> Result<Self, Error> {
        let environment = order.environment.clone();
        let tuning = tuning(settings);
        let own = settings.iter().filter(|(name, _)| *name != CONNECTIONS);
        let spec = ClusterSpec {
            scope: format!("bench{}", order.count),
            settings: own.map(|(name, value)| (name.clone(), value.clone())).collect(),
            start_timeout: START_MAX,
            ports_from: ports_from(order.count),
            ..ClusterSpec::new(order.count, order.data_dir.clone(), environment, tuning)
        };
        let cluster = Cluster::start(spec, Arc::new(Silent)).map_err(Error::server)?;
        let mut nodes = Self { cluster, relays: Vec::new(), is_relayed: false, leader: 0 };
        nodes.settle()?;
        Ok(nodes)
    }

    /// Waits until all nodes are in their places, and finds the primary.
    pub fn settle(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + READY_MAX;
        self.cluster.wait_ready(deadline).map_err(Error::server)?;
        self.leader = self.cluster.wait_leader(deadline).map_err(Error::server)?;
        Ok(())
    }

    /// Puts them so far from each other.
    pub fn place(&mut self, round_trip: Option<Duration>) -> Result<(), Error> {
        if round_trip.is_some() && self.relays.is_empty() {
            let relays = self.direct().into_iter().map(Relay::start).collect::<Result<_, _>>();
            self.relays = relays.map_err(Error::io("start a relay between nodes"))?;
        }
        for relay in &self.relays {
            relay.set_delay(round_trip.unwrap_or_default() / 2);
        }
        if self.is_relayed != round_trip.is_some() {
            let addresses = match round_trip {
                Some(_) => self.relays.iter().map(Relay::address).collect(),
                None => self.direct(),
            };
            self.cluster.route(&addresses, Instant::now() + READY_MAX).map_err(Error::server)?;
            self.is_relayed = round_trip.is_some();
            self.settle()?;
        }
        Ok(())
    }

    /// The addresses at which their PostgreSQL servers listen.
    fn direct(&self) -> Vec<SocketAddr> {
        self.cluster.nodes().iter().map(|node| node.postgres).collect()
    }

    /// The address at which the standbys reach the primary.
    pub fn way(&self) -> SocketAddr {
        match self.relays.get(self.leader).filter(|_| self.is_relayed) {
            Some(relay) => relay.address(),
            None => self.cluster.nodes()[self.leader].postgres,
        }
    }

    /// An error unless the primary is the one of before, and commits are still waited for on as many standbys as there
    /// are: otherwise what was measured is not what it is called.
    pub fn check(&self) -> Result<(), Error> {
        let members = self.cluster.look();
        let leader = &self.cluster.nodes()[self.leader].name;
        if members.leader() == Some(leader) && members.synchronous() + 1 >= self.cluster.nodes().len() {
            return Ok(());
        }
        Err(Error::Server(format!(
            "the nodes did not stay in their places during the turn: {leader} was the primary, and now {members}"
        )))
    }

    /// Waits until the standbys have replayed all that the primary has written so far.
    pub fn wait_replayed(&self, access: &Access, interrupt: &Interrupt) -> Result<(), Error> {
        let mut client = access.connect().map_err(Error::sql("connect to the primary"))?;
        let row = client.query_one("SELECT pg_catalog.pg_current_wal_lsn()::text", &[]);
        let written: String = row.map_err(Error::sql("ask the primary how far it has written"))?.get(0);
        let query = "SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE replay_lsn >= $1::text::pg_lsn";
        let (begin, standbys) = (Instant::now(), self.cluster.nodes().len() - 1);
        loop {
            let row = client.query_one(query, &[&written]).map_err(Error::sql("ask how far standbys are"))?;
            if usize::try_from(row.get::<_, i64>(0)).is_ok_and(|count| count >= standbys) {
                return Ok(());
            }
            if begin.elapsed() >= REPLAY_MAX {
                return Err(Error::TimedOut { what: "the standbys' replay".to_owned(), limit: REPLAY_MAX });
            }
            interrupt.sleep(POLL)?;
        }
    }

    /// The first node's data directory, with the roles' passwords.
    pub fn data_dir(&self) -> &DataDir {
        self.cluster.data_dir()
    }

    /// The primary's.
    pub fn endpoint(&self) -> Endpoint {
        self.cluster.endpoint(self.leader)
    }

    /// The same as a pool is told: to follow the nodes, or where this one is.
    pub fn for_pool(&self, follows: bool) -> FileServer {
        if follows { self.cluster.for_pool() } else { FileServer::Tcp(self.cluster.nodes()[self.leader].postgres) }
    }

    /// The primary's data directory.
    pub fn pgdata(&self) -> &Path {
        &self.cluster.nodes()[self.leader].pgdata
    }

    /// The log of the primary and its Patroni.
    pub fn log(&self) -> PathBuf {
        self.cluster.nodes()[self.leader].log.clone()
    }

    /// The postmasters, the primary's first.
    pub fn postmasters(&self) -> Vec<u32> {
        let others = (0..self.cluster.nodes().len()).filter(|node| *node != self.leader);
        std::iter::once(self.leader).chain(others).filter_map(|node| self.cluster.postmaster_pid(node)).collect()
    }
}

/// The settings that a server of one node is started with as well: `sluice.conf`, where `settings` says nothing.
pub(crate) fn tuning(settings: &BTreeMap<String, String>) -> Tuning {
    let tuning = Tuning::new(Host::current(), POOL_SIZE);
    let connections = settings.get(CONNECTIONS).and_then(|text| text.parse().ok());
    Tuning { connections: connections.unwrap_or(tuning.connections), ..tuning }
}

/// The port from which free ones are searched: most likely another than that of other runs, or other nodes of this one.
fn ports_from(count: usize) -> u16 {
    let process = u16::try_from(std::process::id() % 200).unwrap_or_default();
    let nodes = u16::try_from(count).unwrap_or_default();
    10_000 + process * 60 + nodes * 20
}
