//! Pools are made on first use, by the snapshot.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use sluice_control::{Database, Snapshot, address::Address};

use crate::{registry::Registry, statement::name_prefix, time::Time};

use super::{Hub, IN_USE, Key, NoPool, Pool, lock, readers};

impl Hub {
    /// The pool of a database and a user who is known to be one, made on first use.
    pub fn pool(&self, database: &str, user: &str) -> Result<Arc<Pool>, NoPool> {
        self.pool_within(database, user, None, true)
    }

    /// The pool by which clients of another one go to another node for a transaction; `None` if the configuration has
    /// none there any more.
    pub fn pool_at(&self, pool: &Pool, address: &Address) -> Option<Arc<Pool>> {
        let there = self.pool_within(&pool.database, &pool.upstream.user, Some(address), false).ok()?;
        if !there.state().has_connected() {
            there.login().take_over(&pool.login());
        }
        Some(there)
    }

    /// `address`: at that one, if it is one of the database's. `is_limited`: not where there are as many as may be, and
    /// all are in use.
    fn pool_within(
        &self,
        database: &str,
        user: &str,
        address: Option<&Address>,
        is_limited: bool,
    ) -> Result<Arc<Pool>, NoPool> {
        let place = |pools: &BTreeMap<Key, Arc<Pool>>, entry: &Database| match address {
            None => Ok(readers::place(pools, entry, database)),
            Some(address) if entry.addresses().contains(address) => Ok(address.clone()),
            Some(_) => Err(NoPool::NoDatabase),
        };
        let snapshot = self.snapshot();
        let entry = snapshot.database(database).ok_or(NoPool::NoDatabase)?;
        {
            let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
            let address = place(&pools, entry)?;
            let key = (database.to_owned(), entry.role_for(user).to_owned(), address);
            if let Some(pool) = pools.get(&key) {
                pool.unused_since.store(IN_USE, Ordering::Relaxed);
                self.note_placed(pool);
                return Ok(pool.clone());
            }
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        // None can come in between now.
        let snapshot = self.snapshot();
        let entry = snapshot.database(database).ok_or(NoPool::NoDatabase)?;
        let address = place(&pools, entry)?;
        let key = (database.to_owned(), entry.role_for(user).to_owned(), address.clone());
        let pools_max = snapshot.limits.pools as usize;
        if !pools.contains_key(&key) && pools.len() >= pools_max && !give_up_unused(&mut pools) && is_limited {
            return Err(NoPool::TooMany);
        }
        let made = || {
            let pool = self.make_pool(&snapshot, database, entry, (entry.role_for(user), address));
            pool.know_listed(&snapshot.access);
            self.tell_why_nowhere(&pool);
            Arc::new(pool)
        };
        let pool = pools.entry(key).or_insert_with(made).clone();
        if lock(&self.paused).are_paused(database) {
            pool.state().set_paused(Time(0), true);
        }
        self.hold_new(&pool);
        self.note_placed(&pool);
        Ok(pool)
    }

    /// A client gets its place in a pool, and the next one perhaps in another.
    fn note_placed(&self, pool: &Pool) {
        if pool.entry.reading.is_some() {
            pool.placed.store(self.placed.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn make_pool(
        &self,
        snapshot: &Snapshot,
        database: &str,
        entry: &Arc<Database>,
        (role, address): (&str, Address),
    ) -> Pool {
        let pools_max = snapshot.limits.pools as usize;
        let log_ins = self.log_ins(&address, pools_max);
        let catalog = self.catalog(&address, entry.dbname_for(database), &log_ins, pools_max);
        let budgets = self.budgets_of(snapshot, database, &address, role);
        let prefix = name_prefix(self.nonces.statements);
        let statements = Registry::new(&prefix, self.statements.clone());
        let acknowledged = self.acknowledged_for(entry);
        let statements = (statements, prefix);
        Pool::new(database, (role, address), entry.clone(), (catalog, log_ins), acknowledged, budgets, statements)
    }

    /// The pool that clients of a retired one go on with, however many there are; `None` if the configuration has none
    /// whose clients see no difference.
    pub fn successor(&self, pool: &Pool) -> Option<Arc<Pool>> {
        let next = self.pool_within(&pool.database, &pool.upstream.user, None, false).ok()?;
        if !next.entry.continues(&pool.entry, &pool.database) {
            return None;
        }
        if std::ptr::eq(&*next, pool) {
            // A client that was to be let go has its place here after all.
            return Some(next);
        }
        let was_asked = pool.reads_sequences.load(Ordering::Relaxed);
        next.reads_sequences.fetch_or(was_asked, Ordering::Relaxed);
        next.login().take_over(&pool.login());
        Some(next)
    }
}

/// Makes room for a pool, by the one that has not been used for longest; `false` if all are in use.
fn give_up_unused(pools: &mut BTreeMap<Key, Arc<Pool>>) -> bool {
    let unused = pools.iter().filter(|(_, pool)| !pool.is_used());
    let oldest = unused.min_by_key(|(_, pool)| pool.unused_since.load(Ordering::Relaxed));
    let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
    pools.remove(&key);
    true
}
