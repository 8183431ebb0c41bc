//! Pools that an operator has give out no servers for a while, or has open new ones.

use std::{collections::BTreeSet, sync::PoisonError};

use crate::time::Time;

use super::{Hub, lock};

/// The databases whose pools an operator has paused.
#[derive(Debug, Default)]
pub(super) struct Paused {
    all: bool,
    databases: BTreeSet<String>,
}

impl Paused {
    pub(super) fn are_paused(&self, database: &str) -> bool {
        self.all || self.databases.contains(database)
    }
}

impl Hub {
    /// Has a database's pools give out no servers from now on, or all pools; or has them do so again.
    pub fn set_paused(&self, now: Time, database: Option<&str>, paused: bool) {
        // None is made in between.
        let pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = lock(&self.paused);
        match database {
            None => *all = Paused { all: paused, databases: BTreeSet::new() },
            Some(name) if paused => _ = all.databases.insert(name.to_owned()),
            Some(name) => _ = all.databases.remove(name),
        }
        for pool in pools.values().filter(|pool| database.is_none_or(|name| pool.database == name)) {
            pool.state().set_paused(now, all.are_paused(&pool.database));
        }
    }

    /// Whether the pools of a database give out no servers.
    pub fn is_paused(&self, database: &str) -> bool {
        lock(&self.paused).are_paused(database)
    }

    /// Has the servers of a database's pools, or of all pools, closed when they fall idle.
    pub fn renew(&self, now: Time, database: Option<&str>) {
        for pool in self.pools().iter().filter(|pool| database.is_none_or(|name| pool.database == name)) {
            pool.state().renew(now);
        }
    }
}
