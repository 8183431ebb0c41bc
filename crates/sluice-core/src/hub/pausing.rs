//! Pools that an operator has give out no servers for a while, or has open new ones; databases that let nobody in.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
};

use crate::{ids::ServerRef, time::Time};

use super::{Hub, Pool, lock};

/// The servers that an operator has closed. Their workers are to hear of it.
#[must_use]
#[derive(Debug, Default)]
pub struct CalledIn {
    /// Those that were idle. They are no longer part of their pools.
    pub idle: Vec<ServerRef>,
    /// Those that clients keep and could do without, and their pools.
    pub kept: Vec<(ServerRef, Arc<Pool>)>,
}

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
    /// Has a database's pools give out no servers from now on, or all pools.
    pub fn pause(&self, now: Time, database: Option<&str>) -> CalledIn {
        self.change_paused(now, |paused| match database {
            None => paused.all = true,
            Some(name) => _ = paused.databases.insert(name.to_owned()),
        });
        call_in(now, self.pools_of(database))
    }

    /// Has them do so again, and where all are meant, also those that were paused by their names. `false` where that one was
    /// not paused by its name, or all are; or none at all was.
    pub fn resume(&self, now: Time, database: Option<&str>) -> bool {
        self.change_paused(now, |paused| match database {
            None => {
                let before = std::mem::take(paused);
                before.all || !before.databases.is_empty()
            }
            Some(name) => !paused.all && paused.databases.remove(name),
        })
    }

    /// Undoes one [`pause`](Self::pause), and no other one.
    pub fn take_back_pause(&self, now: Time, database: Option<&str>) {
        self.change_paused(now, |paused| match database {
            None => paused.all = false,
            Some(name) => _ = paused.databases.remove(name),
        });
    }

    /// Whether those pools have servers yet; so may pools that a reload has taken away.
    pub fn have_servers(&self, database: Option<&str>) -> bool {
        let mut pools = self.pools_of(database);
        let is_meant = |pool: &Arc<Pool>| database.is_none_or(|name| pool.database == name);
        pools.extend(lock(&self.retired).iter().filter_map(Weak::upgrade).filter(is_meant));
        pools.iter().any(|pool| pool.state().counts().open > 0)
    }

    /// Has clients end as soon as they have no transaction open, and refuses others; or no longer. The workers are to be
    /// told where it begins, by a [`Mail::Drain`](crate::mail::Mail::Drain) each.
    pub fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Ordering::Release);
    }

    /// Whether that is so.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Has a database let in no clients from now on, or again. Those it has stay.
    pub fn set_disabled(&self, database: &str, is_disabled: bool) {
        let mut disabled = lock(&self.disabled);
        match is_disabled {
            true => _ = disabled.insert(database.to_owned()),
            false => _ = disabled.remove(database),
        }
    }

    /// Whether a database lets in no clients.
    pub fn is_disabled(&self, database: &str) -> bool {
        lock(&self.disabled).contains(database)
    }

    /// The databases that let in no clients.
    pub fn disabled(&self) -> Vec<String> {
        lock(&self.disabled).iter().cloned().collect()
    }

    /// Has the servers of a database's pools, or of all pools, closed when they fall idle.
    pub fn renew(&self, now: Time, database: Option<&str>) -> CalledIn {
        renew(now, self.pools_of(database))
    }

    /// The same of the pools of a role, which may be another one of that name by now.
    pub fn renew_role(&self, now: Time, role: &str) -> CalledIn {
        renew(now, self.pools().into_iter().filter(|pool| pool.upstream.user == role).collect())
    }

    /// Whether the pools of a database give out no servers.
    pub fn is_paused(&self, database: &str) -> bool {
        lock(&self.paused).are_paused(database)
    }

    /// Whether a database was paused by its name, or all were without one.
    pub fn pauses(&self, database: Option<&str>) -> bool {
        let paused = lock(&self.paused);
        database.map_or(paused.all, |name| paused.databases.contains(name))
    }

    /// The databases that were paused by their names.
    pub fn paused(&self) -> Vec<String> {
        lock(&self.paused).databases.iter().cloned().collect()
    }

    fn change_paused<T>(&self, now: Time, change: impl FnOnce(&mut Paused) -> T) -> T {
        // None is made in between.
        let pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let mut paused = lock(&self.paused);
        let done = change(&mut paused);
        for pool in pools.values() {
            pool.state().set_paused(now, paused.are_paused(&pool.database));
        }
        done
    }

    fn pools_of(&self, database: Option<&str>) -> Vec<Arc<Pool>> {
        let is_meant = |pool: &Arc<Pool>| database.is_none_or(|name| pool.database == name);
        self.pools().into_iter().filter(is_meant).collect()
    }
}

fn renew(now: Time, pools: Vec<Arc<Pool>>) -> CalledIn {
    for pool in &pools {
        pool.state().renew(now);
    }
    call_in(now, pools)
}

pub(super) fn call_in(now: Time, pools: Vec<Arc<Pool>>) -> CalledIn {
    let mut called_in = CalledIn::default();
    for pool in pools {
        let (idle, kept) = pool.state().call_in(now);
        called_in.idle.extend(idle);
        called_in.kept.extend(kept.into_iter().map(|server| (server, pool.clone())));
    }
    called_in
}
