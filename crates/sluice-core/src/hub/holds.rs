//! Clusters whose clients are held: their primary is about to be another one, or to be restarted, and nobody is to be in
//! the midst of a transaction when it ends. Like a pause, but of all databases of a cluster, and it ends by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use sluice_control::Snapshot;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::time::Time;

use super::{CalledIn, Hub, Key, Pool, lock, pausing::call_in};

/// A hold that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The time at which it began.
    pub since: Time,
    /// The time at which it ends at the latest: whoever asked for it may have died.
    pub until: Time,
}

/// The way in which a hold has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Another primary has come, or the same node has been promoted again, or is at another address.
    Changed,
    /// The primary has been restarted.
    Restarted,
    /// Whoever asked for it has said so.
    Released,
    /// Its time was over.
    Expired,
}

/// The holds of a process, by the names of clusters.
#[derive(Debug, Default)]
pub(super) struct Holds {
    under_way: BTreeMap<Arc<str>, Hold>,
    /// The last one of each, once it is over.
    over: BTreeMap<Arc<str>, Held>,
}

impl Hub {
    /// Has the pools of a cluster's primary give out no servers from now on, until that time at most; again while they do so, it
    /// may be longer. The snapshot is to have that cluster.
    pub fn hold(&self, now: Time, cluster: &Arc<str>, until: Time) -> CalledIn {
        // None is made in between.
        let pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let mut holds = lock(&self.holds);
        let hold = holds.under_way.entry(cluster.clone()).or_insert(Hold { since: now, until });
        hold.until = hold.until.max(until);
        let held: Vec<_> = pools.values().filter(|pool| is_of(pool, cluster)).cloned().collect();
        for pool in &held {
            pool.state().hold(reason(cluster));
        }
        drop((holds, pools));
        call_in(now, held)
    }

    /// Ends a hold; `false` if there is none.
    pub fn end_hold(&self, cluster: &str, how: Held) -> bool {
        let pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        self.end_hold_of(cluster, how, &pools)
    }

    /// The hold of a cluster that is under way.
    pub fn hold_of(&self, cluster: &str) -> Option<Hold> {
        lock(&self.holds).under_way.get(cluster).copied()
    }

    /// The end of a cluster's last hold.
    pub fn last_hold_of(&self, cluster: &str) -> Option<Held> {
        lock(&self.holds).over.get(cluster).copied()
    }

    /// The pools that lead to a cluster's primary.
    pub fn pools_of_cluster(&self, cluster: &str) -> Vec<Arc<Pool>> {
        self.pools().into_iter().filter(|pool| is_of(pool, cluster)).collect()
    }

    /// Ends the holds whose time is over.
    pub(crate) fn expire_holds(&self, now: Time) {
        let is_due = |(_, hold): &(&Arc<str>, &Hold)| now >= hold.until;
        let due: Vec<_> = lock(&self.holds).under_way.iter().filter(is_due).map(|(name, _)| name.clone()).collect();
        for cluster in due {
            self.end_hold(&cluster, Held::Expired);
        }
    }

    /// Ends the holds of those clusters that have another primary than before.
    pub(super) fn end_holds_of_changed(&self, before: &Snapshot, after: &Snapshot, pools: &BTreeMap<Key, Arc<Pool>>) {
        for standing in after.clusters.iter().filter(|standing| standing.primary.is_some()) {
            let name = &standing.cluster.name;
            let known = before.clusters.iter().find(|known| known.cluster.name == *name);
            if known.is_none_or(|known| known.primary != standing.primary) {
                self.end_hold_of(name, Held::Changed, pools);
            }
        }
    }

    /// Holds a pool that has just been made, if its cluster's are held.
    pub(super) fn hold_new(&self, pool: &Pool) {
        let Some(cluster) = &pool.upstream.cluster else { return };
        if is_of(pool, cluster) && lock(&self.holds).under_way.contains_key(cluster) {
            pool.state().hold(reason(cluster));
        }
    }

    fn end_hold_of(&self, cluster: &str, how: Held, pools: &BTreeMap<Key, Arc<Pool>>) -> bool {
        let mut holds = lock(&self.holds);
        let Some((name, _)) = holds.under_way.remove_entry(cluster) else { return false };
        holds.over.insert(name, how);
        for pool in pools.values().filter(|pool| is_of(pool, cluster)) {
            pool.state().release_hold();
        }
        true
    }
}

fn is_of(pool: &Pool, cluster: &str) -> bool {
    // Standbys do not change hands.
    pool.upstream.cluster.as_deref() == Some(cluster) && !pool.upstream.is_standby()
}

/// The error for those who have waited for too long.
fn reason(cluster: &str) -> Arc<ErrorResponse> {
    let error = format!("the primary of cluster \"{cluster}\" is changing hands");
    Arc::new(
        ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)
            .hint("Clients are held meanwhile: the pool's SHOW CLUSTERS tells for how long. Try again."),
    )
}
