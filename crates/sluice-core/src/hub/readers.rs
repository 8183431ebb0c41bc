//! Pools of readers: one for each node that they may go to. A client has its place at one of them, so that it does not
//! see time go backwards from one transaction to the next, and leaves it only where that node will not do any more, or
//! another one has come that is to have its share.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasher,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use foldhash::quality::FixedState;
use sluice_control::{
    Database, Snapshot,
    address::Address,
    reading::{Node, Reading},
};
use sluice_wire::{ErrorResponse, sqlstate};

use super::{Hub, Key, Pool, lock};

/// The versions of primaries' catalogs that standbys replay, by cluster and database, and the looks at nodes since.
pub(super) type Replays = HashMap<(Arc<str>, String), (u64, u32)>;

/// The clients of a pool that are to go on with another one.
#[derive(Debug, Default)]
pub(super) struct Leaving(AtomicU32);

/// Looks at nodes after which a change of the primary's catalogs is no news any more, however far standbys are.
const LOOKS_MAX: u32 = 3600;

/// All of them, and those that come.
const ALL: u32 = u32::MAX;

impl Leaving {
    /// All of them are to, from now on.
    pub(super) fn retire(&self) {
        self.0.store(ALL, Ordering::Release);
    }

    pub(super) fn are_all(&self) -> bool {
        self.0.load(Ordering::Acquire) == ALL
    }

    /// Whether anybody is to.
    pub(super) fn is_anybody(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// So many of them are to.
    fn set(&self, count: u32) {
        let less = |before| (before != ALL).then_some(count.min(ALL - 1));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// One of them goes, if that many have not gone yet.
    pub(super) fn take_one(&self) -> bool {
        let one_less = |before: u32| if before == ALL { Some(ALL) } else { before.checked_sub(1) };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }
}

impl Pool {
    /// Its clients, within one or two: each server, each client and each client's pin has a reference, and so has the hub.
    fn clients(self: &Arc<Self>) -> u32 {
        let counts = self.state().counts();
        (Arc::strong_count(self) as u32).saturating_sub(1 + counts.open + counts.pinned)
    }

    /// Whether it has readers, and nobody knows where they could go.
    fn seeks_readers_node(&self) -> bool {
        matches!(self.upstream.address, Address::Readers(_))
    }

    fn seeks_primary(&self) -> bool {
        matches!(self.upstream.address, Address::Primary(_))
    }
}

/// The address of the pool that a client of a database gets: of those for readers, that with the fewest of its clients,
/// and of several such the one that has waited for longest.
pub(super) fn place(pools: &BTreeMap<Key, Arc<Pool>>, entry: &Database, database: &str) -> Address {
    if entry.reading.is_none() {
        return entry.address.clone();
    }
    let mut addresses = entry.places();
    if addresses.len() == 1 {
        return addresses.remove(0);
    }
    let first = (database.to_owned(), String::new(), Address::Unix(PathBuf::new()));
    let its: Vec<_> = pools.range(first..).take_while(|((name, ..), _)| name == database).collect();
    // Clients that come and go at once would all find the same pool with the fewest.
    let clients_and_turn = |address: &Address| {
        let there = its.iter().filter(|((_, _, at), _)| at == address);
        there.fold((0, 0), |(clients, turn), (_, pool)| {
            (clients + pool.clients(), pool.placed.load(Ordering::Relaxed).max(turn))
        })
    };
    // So that databases with few clients do not all go to the same node.
    let lot = |address: &Address| FixedState::default().hash_one((database, address));
    // There is always one.
    addresses.into_iter().min_by_key(|it| (clients_and_turn(it), lot(it))).unwrap_or_else(|| entry.address.clone())
}

/// The share of clients that leave pools of readers where other nodes have come.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The rest that has not made up a whole client yet.
    rest: u32,
}

impl Shares {
    /// A pool goes on. Where nodes have come to its database, so many of its clients go on there as is their share.
    pub(super) fn go_on(&mut self, pool: &Arc<Pool>, entry: &Database, before: &Snapshot) {
        if entry.reading.is_none() {
            return;
        }
        let come = came(entry, before.database(&pool.database), Database::places).len() as u32;
        if come == 0 {
            return;
        }
        let all = entry.readers.len() as u32;
        self.rest += pool.clients() * come;
        pool.leaving.set(self.rest / all);
        self.rest %= all;
    }
}

/// The addresses that a database has, and had not.
pub(super) fn came(
    entry: &Database,
    before: Option<&Arc<Database>>,
    addresses: fn(&Database) -> Vec<Address>,
) -> Vec<Address> {
    let known = before.map(|before| addresses(before)).unwrap_or_default();
    addresses(entry).into_iter().filter(|address| !known.contains(address)).collect()
}

impl Hub {
    /// The nodes of a cluster have been looked at: those who wait for one may hear why there is none.
    pub fn tell_nodes(&self, cluster: &Arc<str>, nodes: Arc<[Node]>) {
        self.replay_catalogs(cluster, &nodes);
        lock(&self.nodes).insert(cluster.clone(), nodes);
        for pool in self.pools().iter().filter(|pool| pool.upstream.cluster.as_ref() == Some(cluster)) {
            self.tell_why_nowhere(pool);
        }
    }

    /// The catalogs of standbys change by replay, a moment after their primary's, and no standby tells of it. So what has
    /// changed there counts as a change here, at each look at the nodes until all of them are shown to have it.
    fn replay_catalogs(&self, cluster: &Arc<str>, nodes: &[Node]) {
        let snapshot = self.snapshot();
        let standing = snapshot.clusters.iter().find(|it| it.cluster.name == *cluster);
        let Some(primary) = standing.and_then(|it| it.primary.as_ref()) else { return };
        let standbys: Vec<_> = nodes.iter().filter_map(|node| Some((&node.address, node.state.standby()?))).collect();
        let furthest = standbys.iter().map(|(_, it)| it.lag.time.unwrap_or(Duration::MAX)).max().unwrap_or_default();
        let catalogs = lock(&self.catalogs);
        let mut replays = lock(&self.replays);
        for ((_, dbname), catalog) in catalogs.iter().filter(|((address, _), _)| *address == primary.address) {
            let version = catalog.version();
            let key = (cluster.clone(), dbname.clone());
            let (known, looks) = replays.entry(key).or_insert((version, LOOKS_MAX));
            if *known != version {
                (*known, *looks) = (version, 0);
            }
            // They are a second apart.
            if *looks >= LOOKS_MAX || (*looks > 2 && furthest < Duration::from_secs(u64::from(*looks - 1))) {
                *looks = LOOKS_MAX;
                continue;
            }
            *looks += 1;
            for (address, _) in &standbys {
                if let Some(catalog) = catalogs.get(&((*address).clone(), dbname.clone())) {
                    drop(catalog.begin_change());
                }
            }
        }
    }

    /// The nodes of a cluster, as they were seen last.
    pub fn nodes(&self, cluster: &str) -> Option<Arc<[Node]>> {
        lock(&self.nodes).get(cluster).cloned()
    }

    /// Has a pool say why no node will do for its readers, or for others its cluster's primary, where that is so.
    pub(super) fn tell_why_nowhere(&self, pool: &Pool) {
        let snapshot = self.snapshot();
        let cluster = pool.upstream.cluster.as_ref();
        let standing = snapshot.clusters.iter().find(|it| Some(&it.cluster.name) == cluster);
        if let Some(withdrawn) = standing.and_then(|it| it.withdrawn.as_ref()).filter(|_| pool.seeks_primary()) {
            pool.state().set_nowhere(pool.upstream.withdrawn(&withdrawn.by));
        }
        if let Some(reading) = pool.entry.reading.as_ref().filter(|_| pool.seeks_readers_node()) {
            let error = self.no_reader(pool, reading);
            pool.state().set_nowhere(error);
        }
    }

    fn no_reader(&self, pool: &Pool, reading: &Reading) -> ErrorResponse {
        let cluster = pool.upstream.cluster.as_deref().unwrap_or_default();
        let nodes = self.nodes(cluster).unwrap_or_default();
        let snapshot = self.snapshot();
        let standing = snapshot.clusters.iter().find(|it| *it.cluster.name == *cluster);
        let reasons = reading.reasons(&nodes, standing.and_then(|it| it.primary.as_ref()));
        let error = format!("no node of cluster \"{cluster}\" will do for readers of \"{}\"", pool.database);
        ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)
            .detail(reasons)
            .hint(
                "SHOW NODES at the pool's admin console tells more. With target_session_attrs = \"prefer-standby\", readers \
                 go to the primary where there is no standby.",
            )
    }
}
