//! Causal reads: the commits that clients of this process have been told of, and so have to find at a standby.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use sluice_control::{Database, reading::Causal};

use crate::lsn::Lsn;

use super::{Hub, Pool, lock};

/// The commits of a cluster that clients of this process have been told of.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The end of the last one in the log.
    end: AtomicU64,
    /// Whether that takes in those before this process began: the primary's log has been looked at since.
    is_complete: AtomicBool,
    /// Whether there may be others: a server does not say where its commits are.
    has_unknown: AtomicBool,
}

/// The acknowledged commits of each cluster.
pub(super) type AcknowledgedByCluster = Mutex<HashMap<Arc<str>, Arc<Acknowledged>>>;

impl Acknowledged {
    /// A commit has been acknowledged that ends there.
    pub fn note(&self, end: Lsn) {
        self.end.fetch_max(end.0, Ordering::AcqRel);
    }

    /// Commits may be acknowledged of which nobody says where they are. Returns whether that is news.
    pub fn note_unknown(&self) -> bool {
        !self.has_unknown.swap(true, Ordering::AcqRel)
    }

    /// The place in the log up to which all of them are; `None` if nobody can say.
    pub fn end(&self) -> Option<Lsn> {
        let is_known = self.is_complete.load(Ordering::Acquire) && !self.has_unknown.load(Ordering::Acquire);
        is_known.then(|| Lsn(self.end.load(Ordering::Acquire)))
    }
}

/// The versions of its primary's that a standby's pool goes by.
#[derive(Debug)]
pub(super) struct Replayed {
    catalogs: AtomicU64,
    log_ins: AtomicU64,
}

impl Default for Replayed {
    fn default() -> Self {
        let [catalogs, log_ins] = [(); 2].map(|()| AtomicU64::new(NONE));
        Self { catalogs, log_ins }
    }
}

/// No version.
const NONE: u64 = u64::MAX;

/// Notes a version; whether there was another one.
fn is_news(known: &AtomicU64, version: u64) -> bool {
    ![NONE, version].contains(&known.swap(version, Ordering::AcqRel))
}

impl Hub {
    /// The pool at the primary for a transaction of a client of readers'; `None` if none is known.
    pub fn spare_pool(&self, pool: &Pool) -> Option<Arc<Pool>> {
        let find = || {
            let spare = self.snapshot().database(&pool.database)?.spare.clone()?;
            self.pool_at(pool, &spare)
        };
        // Another one may have become the primary in between.
        find().or_else(find)
    }

    /// The log of a cluster's primary went as far as that when it was looked at.
    pub fn tell_log(&self, cluster: &Arc<str>, end: Lsn) {
        let acknowledged = self.acknowledged_of(cluster);
        acknowledged.note(end);
        acknowledged.is_complete.store(true, Ordering::Release);
    }

    fn acknowledged_of(&self, cluster: &Arc<str>) -> Arc<Acknowledged> {
        lock(&self.acknowledged).entry(cluster.clone()).or_default().clone()
    }

    /// The commits of a database's cluster, if anybody has to find them.
    pub(super) fn acknowledged_for(&self, entry: &Database) -> Option<Arc<Acknowledged>> {
        entry.cluster.as_ref().filter(|_| entry.reports_commits).map(|cluster| self.acknowledged_of(cluster))
    }
}

impl Pool {
    /// The commits that its clients' transactions are to find at a standby.
    pub fn causal(&self) -> Option<Causal> {
        self.entry.causal
    }

    /// Whether transactions that its clients begin as read-only may be led to a standby.
    pub fn leads_read_only(&self) -> bool {
        self.entry.read_only.is_some()
    }

    /// Counts changes of its primary's catalogs here, where a standby has replayed those that are known.
    pub fn replay_catalogs_of(&self, primary: &Self) {
        // Others may have been here before the first of its clients: the catalogs are theirs as well.
        let version = primary.catalog.version();
        if self.replayed.catalogs.swap(version, Ordering::AcqRel) != version {
            drop(self.catalog.begin_change());
        }
    }

    /// The same for what log-ins go by: connections that were opened before are not for clients that come now.
    pub fn replay_log_ins_of(&self, primary: &Self) {
        if is_news(&self.replayed.log_ins, primary.log_ins.changes()) {
            self.log_ins.begin_change();
            self.log_ins.end_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_known_once_the_log_has_been_looked_at() {
        let acknowledged = Acknowledged::default();
        acknowledged.note(Lsn(9));
        assert_eq!(acknowledged.end(), None, "others may have been told of later ones before");
        acknowledged.is_complete.store(true, Ordering::Release);
        acknowledged.note(Lsn(7));
        assert_eq!(acknowledged.end(), Some(Lsn(9)));
        assert!(acknowledged.note_unknown() && !acknowledged.note_unknown());
        assert_eq!(acknowledged.end(), None);
    }
}
