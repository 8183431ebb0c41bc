//! Causal reads: the commits that clients of this process have been told of, and so have to find at a standby.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sluice_control::{Database, reading::Causal};

use crate::{lsn::Lsn, time::Time};

use super::{Hub, Pool, lock};

/// The time after a look at the primary's log for which it counts as what others have committed. There is a look each
/// second, and it takes a few where nodes do not answer.
const LOOK_AGE_MAX: Duration = Duration::from_secs(5);

/// The commits of a cluster that clients of this process have been told of.
#[derive(Debug)]
pub struct Acknowledged {
    /// The end of the last one in the log.
    end: AtomicU64,
    /// The time of the last look at the primary's log; [`NEVER`] before the first one, which takes in what was committed
    /// before this process began.
    looked_at: AtomicU64,
    /// Whether there may be others: a server does not say where its commits are.
    has_unknown: AtomicBool,
}

/// No time.
const NEVER: u64 = u64::MAX;

impl Default for Acknowledged {
    fn default() -> Self {
        Self { end: AtomicU64::default(), looked_at: AtomicU64::new(NEVER), has_unknown: AtomicBool::default() }
    }
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
        let is_known = self.looked_at.load(Ordering::Acquire) != NEVER && !self.has_unknown.load(Ordering::Acquire);
        is_known.then(|| Lsn(self.end.load(Ordering::Acquire)))
    }

    /// The primary's log went as far as that now.
    fn look(&self, now: Time, end: Lsn) {
        self.note(end);
        self.looked_at.store(now.0, Ordering::Release);
    }

    /// Whether others may have committed long ago what is not known here: nobody has been able to look since.
    pub fn is_old(&self, now: Time) -> bool {
        now.since(Time(self.looked_at.load(Ordering::Acquire).min(now.0))) >= LOOK_AGE_MAX
    }
}

/// The version of its primary's catalogs that a standby's pool goes by.
#[derive(Debug)]
pub(super) struct Replayed {
    catalogs: AtomicU64,
}

impl Default for Replayed {
    fn default() -> Self {
        Self { catalogs: AtomicU64::new(NONE) }
    }
}

/// No version.
const NONE: u64 = u64::MAX;

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

    /// The log of a cluster's primary goes as far as that.
    pub fn tell_log(&self, now: Time, cluster: &Arc<str>, end: Lsn) {
        self.acknowledged_of(cluster).look(now, end);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_known_once_the_log_has_been_looked_at() {
        let acknowledged = Acknowledged::default();
        acknowledged.note(Lsn(9));
        assert_eq!(acknowledged.end(), None, "others may have been told of later ones before");
        let now = Time(1_000_000);
        acknowledged.look(now, Lsn(7));
        assert_eq!((acknowledged.end(), acknowledged.is_old(now)), (Some(Lsn(9)), false));
        assert!(acknowledged.is_old(now + LOOK_AGE_MAX), "others may have been told of later ones since");
        assert!(acknowledged.note_unknown() && !acknowledged.note_unknown());
        assert_eq!(acknowledged.end(), None);
    }
}
