//! `cluster.json`: what a cluster has to find again at its next start. Its ports, first of all: they are in the keys
//! that its nodes keep in etcd.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, TcpListener},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::ClusterError;
use crate::files::{self, Owner, if_there};

/// The file's name in the instance's directory.
pub(crate) const NAME: &str = "cluster.json";

/// The nodes that ports are kept for, however many there are now.
pub(super) const NODES_MAX: usize = 3;

/// Ports in a row that are tried before the search is given up.
const TRIED_MAX: u16 = 2000;

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The cluster's name, in etcd and to Patroni.
    pub(super) scope: String,
    /// Tells this cluster's members of etcd from another one's.
    pub(super) token: String,
    /// Whether etcd has it: until then the first node is alone, and its data count.
    pub(super) is_formed: bool,
    /// For each node.
    pub(super) nodes: Vec<NodePorts>,
    /// For each member of etcd.
    pub(super) etcd: Vec<MemberPorts>,
}

/// A node's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodePorts {
    pub(super) postgres: u16,
    pub(super) rest: u16,
}

/// A member's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberPorts {
    /// The port for Patroni.
    pub(super) client: u16,
    /// The port for the other members.
    pub(super) peer: u16,
    /// The port of its health.
    pub(super) health: u16,
}

impl State {
    /// Reads the file; `None` if there is none.
    pub(super) fn read(root: &Path) -> Result<Option<Self>, ClusterError> {
        let path = root.join(NAME);
        let text = if_there(fs::read_to_string(&path)).map_err(ClusterError::io("read", &path))?;
        let Some(text) = text else { return Ok(None) };
        let bad = |why: String| ClusterError::BadFile { path: path.clone(), why };
        let state: Self = serde_json::from_str(&text).map_err(|error| {
            bad(format!("{error}\nput back what sluice had written there: the nodes find each other by it"))
        })?;
        if state.nodes.len() < NODES_MAX || state.etcd.len() < NODES_MAX {
            return Err(bad(format!("ports for {NODES_MAX} nodes and {NODES_MAX} members of etcd are needed")));
        }
        Ok(Some(state))
    }

    /// A new cluster, with free ports from `first` on.
    pub(super) fn new(scope: &str, token: String, ip: IpAddr, first: u16) -> Result<Self, ClusterError> {
        let needed = 5 * NODES_MAX;
        let last = first.saturating_add(TRIED_MAX);
        // All are held until the last is found, so that none is taken twice.
        let held: Vec<(u16, TcpListener)> = (first..last)
            .filter_map(|port| Some((port, TcpListener::bind(SocketAddr::new(ip, port)).ok()?)))
            .take(needed)
            .collect();
        let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
        let [postgres, rest, client, peer, health] =
            [0, 1, 2, 3, 4].map(|kind| ports.iter().skip(kind * NODES_MAX).copied());
        if ports.len() < needed {
            return Err(ClusterError::NoPorts { first, needed });
        }
        let nodes = postgres.zip(rest).map(|(postgres, rest)| NodePorts { postgres, rest });
        let members = client.zip(peer).zip(health);
        let members = members.map(|((client, peer), health)| MemberPorts { client, peer, health });
        Ok(Self {
            scope: scope.to_owned(),
            token,
            is_formed: false,
            nodes: nodes.take(NODES_MAX).collect(),
            etcd: members.take(NODES_MAX).collect(),
        })
    }

    pub(super) fn write(&self, root: &Path) -> Result<(), ClusterError> {
        let path = root.join(NAME);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        text.and_then(|text| files::write_private(&path, format!("{text}\n").as_bytes(), Owner::Us))
            .map_err(ClusterError::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_free_and_found_again() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let taken = TcpListener::bind((ip, 0)).unwrap();
        let first = taken.local_addr().unwrap().port().min(60_000);
        let state = State::new("main", "token".to_owned(), ip, first).unwrap();
        let nodes = state.nodes.iter().flat_map(|node| [node.postgres, node.rest]);
        let all: BTreeSet<u16> =
            nodes.chain(state.etcd.iter().flat_map(|one| [one.client, one.peer, one.health])).collect();
        assert_eq!(all.len(), 15);
        assert!(all.iter().all(|port| TcpListener::bind((ip, *port)).is_ok()), "{all:?}");

        let dir = tempfile::tempdir().unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), None);
        state.write(dir.path()).unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), Some(state));
        fs::write(dir.path().join(NAME), "{").unwrap();
        assert!(State::read(dir.path()).unwrap_err().to_string().contains("put back"));
    }
}
