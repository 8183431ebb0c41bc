//! The figures of a process, as one value: whoever shows or logs it reads this, and nothing else.

use std::{sync::Arc, time::Duration};

use sluice_control::{
    Database, Snapshot,
    address::Address,
    cluster::Standing,
    reading::{Node, Reading},
    settings::PoolMode,
};

use crate::{
    holding::PinCounts,
    hub::{Hub, Pool},
    pool::Counts,
    time::Time,
    traffic::Counted,
};

/// The figures of a process.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The version of the configuration's snapshot.
    pub version: u64,
    /// Connections that are clients', or may become so.
    pub connections: u32,
    /// Clients that have said who they are.
    pub clients: u32,
    /// Server connections.
    pub servers: u32,
    /// Each pool that is of any account: those where nobody is and no server has ever been are left out.
    pub pools: Vec<PoolFigures>,
    /// The nodes of clusters that have readers.
    pub nodes: Vec<NodeFigures>,
}

/// The figures of a node.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    /// Its cluster.
    pub cluster: Arc<str>,
    /// The node, as it was seen last.
    pub node: Node,
    /// The databases, as they are configured, whose readers go there.
    pub databases: Vec<String>,
    /// The reason why those of another database do not.
    pub unfit: Option<String>,
    /// Readers that have their place there.
    pub clients: u32,
    /// Servers that they have, or that are being put in order.
    pub active: u32,
    /// Their servers that are idle.
    pub idle: u32,
}

/// The figures of a pool.
#[derive(Debug, Clone)]
pub struct PoolFigures {
    /// The database, as clients call it.
    pub database: String,
    /// The role on the server.
    pub role: String,
    /// The server's address.
    pub address: Address,
    /// Whether it is one of a database's pools for readers, of which there is one for each node.
    pub is_for_reading: bool,
    /// The time for which a client keeps a server.
    pub mode: PoolMode,
    /// Clients that are logged in; within one or two of the truth while servers are handed on.
    pub clients: u32,
    /// Servers and waiters.
    pub counts: Counts,
    /// The clients that keep servers between transactions, by reasons.
    pub pins: PinCounts,
    /// The time that the client which comes next has waited.
    pub longest_wait: Duration,
    /// The work done since the start.
    pub traffic: Counted,
}

impl PoolFigures {
    /// Servers that clients have, or that are being put in order.
    pub fn active(&self) -> u32 {
        self.counts.open - self.counts.idle - self.counts.connecting
    }
}

impl Hub {
    /// The figures of now.
    pub fn figures(&self, now: Time) -> Figures {
        let pools: Vec<_> = self.pools().iter().filter_map(|pool| figures_of(pool, now)).collect();
        Figures {
            version: self.snapshot().version,
            connections: self.connections(),
            clients: self.clients(),
            servers: self.servers(),
            nodes: self.node_figures(&pools),
            pools,
        }
    }

    fn node_figures(&self, pools: &[PoolFigures]) -> Vec<NodeFigures> {
        let snapshot = self.snapshot();
        let seen =
            snapshot.clusters.iter().filter_map(|standing| Some((standing, self.nodes(&standing.cluster.name)?)));
        let figures = |(standing, nodes): (&Standing, Arc<[Node]>)| {
            nodes.iter().map(|node| figures_of_node(&snapshot, standing, node, pools)).collect::<Vec<_>>()
        };
        seen.flat_map(figures).collect()
    }
}

fn figures_of_node(snapshot: &Snapshot, standing: &Standing, node: &Node, pools: &[PoolFigures]) -> NodeFigures {
    let name = &standing.cluster.name;
    let reading = |it: &Database| it.reading.as_ref().or(it.read_only.as_ref()).cloned();
    let of_cluster = snapshot.databases.iter().filter(|it| it.cluster.as_ref() == Some(name));
    let (here, others): (Vec<_>, Vec<_>) =
        of_cluster.filter(|it| reading(it).is_some()).partition(|it| it.reader(&node.address).is_some());
    let unfit = |reading: Reading| reading.judge(node, standing.primary.as_ref(), false).err();
    let unfit = others.iter().find_map(|it| unfit(reading(it)?));
    let mut figures = NodeFigures {
        cluster: name.clone(),
        node: node.clone(),
        databases: here.iter().map(|it| it.name.clone().unwrap_or_else(|| "*".to_owned())).collect(),
        unfit: unfit.map(|unfit| unfit.to_string()),
        clients: 0,
        active: 0,
        idle: 0,
    };
    for pool in pools.iter().filter(|pool| pool.is_for_reading && pool.address == node.address) {
        figures.clients += pool.clients;
        figures.active += pool.active();
        figures.idle += pool.counts.idle;
    }
    figures
}

/// `None` where nobody is and no server has ever been: a client has named a database that does not exist, perhaps.
fn figures_of(pool: &Arc<Pool>, now: Time) -> Option<PoolFigures> {
    let (counts, pins, longest_wait, has_connected) = {
        let state = pool.state();
        (state.counts(), state.pins(), state.longest_wait(now), state.has_connected())
    };
    // Each server, each client and each client's pin has a reference, and so have the hub and the caller.
    let references = Arc::strong_count(pool) as u32;
    let clients = references.saturating_sub(2 + counts.open + counts.pinned).max(counts.waiting);
    (has_connected || clients > 0 || counts.open > 0).then(|| PoolFigures {
        database: pool.database.clone(),
        role: pool.upstream.user.clone(),
        address: pool.upstream.address.clone(),
        is_for_reading: pool.upstream.is_for_reading || pool.upstream.is_standby(),
        mode: pool.sharing.mode,
        clients,
        counts,
        pins,
        longest_wait,
        traffic: pool.traffic.counted(),
    })
}
