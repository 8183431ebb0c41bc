//! A database's catalogs, as far as they decide what the text of a statement means: a count of their changes, which is
//! part of what a shared statement is known by.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::logins::LogIns;

/// The catalogs of one database; all pools of it share this.
#[derive(Debug, Default)]
pub struct Catalog {
    changes: AtomicU64,
    changing: AtomicU32,
    counted: AtomicU64,
    /// The changes, of those that passed through the pool, which may have altered, replaced or dropped what was there.
    altered: AtomicU64,
    /// Roles are the same in all databases of a server: row security and rights, which plans may hold, go by them.
    log_ins: Arc<LogIns>,
}

impl Catalog {
    /// Those of a database on the server of these log-ins.
    pub fn new(log_ins: Arc<LogIns>) -> Self {
        Self { log_ins, ..Self::default() }
    }

    /// A number that is another one after each change that is known of.
    pub fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire).wrapping_add(self.log_ins.changes())
    }

    /// The number of changes that may have altered, replaced or dropped what was there, as far as they passed through
    /// the pool: what a function has compiled before may fit no more, and PostgreSQL keeps that to the session's end.
    pub fn altered(&self) -> u64 {
        self.altered.load(Ordering::Acquire)
    }

    /// Whether transactions are open that change them: nobody can say then what a text means.
    pub fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0 || self.log_ins.are_changing()
    }

    /// A transaction is about to change them.
    pub fn begin_change(self: &Arc<Self>) -> Change {
        self.changing.fetch_add(1, Ordering::AcqRel);
        Change { catalog: self.clone(), concerns_log_ins: false, alters: false }
    }

    /// A statement that was parsed at that version has proven stale: somebody has changed them unseen.
    pub fn move_on_from(&self, version: u64) {
        let own = version.wrapping_sub(self.log_ins.changes());
        let _ = self.changes.compare_exchange(own, own.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire);
    }

    /// A server has said how many changes it has counted, whoever made them.
    pub fn count(&self, counted: u64) {
        if self.counted.swap(counted, Ordering::AcqRel) != counted {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A transaction that changes catalogs. It has ended, one way or the other, when this is dropped.
#[derive(Debug)]
pub struct Change {
    catalog: Arc<Catalog>,
    /// Whether the log-ins that come later see it, too, and all other databases.
    concerns_log_ins: bool,
    /// It may alter what is there.
    alters: bool,
}

impl Change {
    /// Some of it is done, and more is to come: whoever has seen the catalogs without that has to look again.
    pub fn go_on(&mut self) {
        let mut rest = self.catalog.begin_change();
        if self.concerns_log_ins {
            rest.concerns_log_ins();
        }
        rest.alters = self.alters;
        *self = rest;
    }

    /// It may alter, replace or drop what is there.
    pub fn alters(&mut self) {
        self.alters = true;
    }

    /// It has altered nothing that others can see.
    pub fn alters_nothing(&mut self) {
        self.alters = false;
    }

    /// It is also a change to what log-ins go by.
    pub fn concerns_log_ins(&mut self) {
        if !std::mem::replace(&mut self.concerns_log_ins, true) {
            self.catalog.log_ins.begin_change();
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.concerns_log_ins {
            self.catalog.log_ins.end_change();
        }
        if self.alters {
            self.catalog.altered.fetch_add(1, Ordering::AcqRel);
        }
        self.catalog.changes.fetch_add(1, Ordering::AcqRel);
        self.catalog.changing.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_under_way_until_its_version_is_there() {
        let catalog = Arc::new(Catalog::default());
        let before = catalog.version();
        let change = catalog.begin_change();
        assert!(catalog.is_changing() && catalog.version() == before);
        drop(change);
        assert!(!catalog.is_changing() && catalog.version() != before);
    }

    #[test]
    fn what_alters_nothing_that_is_there_is_no_alteration() {
        let catalog = Arc::new(Catalog::default());
        drop(catalog.begin_change());
        assert_eq!(catalog.altered(), 0);
        let mut change = catalog.begin_change();
        change.alters();
        assert_eq!(catalog.altered(), 0, "it is not done");
        change.go_on();
        assert_eq!(catalog.altered(), 1);
        drop(change);
        assert_eq!(catalog.altered(), 2);
    }

    #[test]
    fn a_change_to_roles_is_one_in_all_databases() {
        let log_ins = Arc::new(LogIns::default());
        let [one, other] = [(); 2].map(|()| Arc::new(Catalog::new(log_ins.clone())));
        let before = other.version();
        drop(one.begin_change());
        assert_eq!(other.version(), before);
        let mut change = one.begin_change();
        change.concerns_log_ins();
        assert!(other.is_changing() && other.version() == before);
        drop(change);
        assert!(!other.is_changing() && other.version() != before);
        // What has proven stale has done so before that.
        other.move_on_from(before);
        assert_eq!(other.version(), before + 1);
        other.move_on_from(before + 1);
        assert_eq!(other.version(), before + 2);
    }

    #[test]
    fn a_count_that_is_known_is_no_change() {
        let catalog = Catalog::default();
        catalog.count(5);
        let before = catalog.version();
        catalog.count(5);
        assert_eq!(catalog.version(), before);
        catalog.count(3);
        assert_ne!(catalog.version(), before);
    }
}
