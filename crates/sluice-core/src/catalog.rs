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
}

impl Catalog {
    /// A number that is another one after each change that is known of.
    pub fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether transactions are open that change them: nobody can say then what a text means.
    pub fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
    }

    /// A transaction is about to change them.
    pub fn begin_change(self: &Arc<Self>) -> Change {
        self.changing.fetch_add(1, Ordering::AcqRel);
        Change { catalog: self.clone(), log_ins: None }
    }

    /// A statement that was parsed at that version has proven stale: somebody has changed them unseen.
    pub fn move_on_from(&self, version: u64) {
        let _ = self.changes.compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Acquire);
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
    /// The log-ins that come later see it, too.
    log_ins: Option<Arc<LogIns>>,
}

impl Change {
    /// It is also a change to what log-ins go by.
    pub fn concerns(&mut self, log_ins: &Arc<LogIns>) {
        self.log_ins = Some(log_ins.clone());
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(log_ins) = &self.log_ins {
            log_ins.change();
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
