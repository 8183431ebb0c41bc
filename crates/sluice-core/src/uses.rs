//! The uses of shared statements: how often each was run, how long that took, and how many rows it gave or changed.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A statement's counts, which only grow.
#[derive(Debug, Default)]
pub struct Uses {
    calls: AtomicU64,
    rows: AtomicU64,
    micros: AtomicU64,
    waited_micros: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The times that it was run to an end.
    pub calls: u64,
    /// Rows that it gave or changed.
    pub rows: u64,
    /// The time that servers took for it, with the way there and back.
    pub time: Duration,
    /// The time that clients waited for a server to run it on: those whose first statement it was there.
    pub waited: Duration,
}

impl Uses {
    /// The counts now.
    pub fn used(&self) -> Used {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Used {
            calls: get(&self.calls),
            rows: get(&self.rows),
            time: Duration::from_micros(get(&self.micros)),
            waited: Duration::from_micros(get(&self.waited_micros)),
        }
    }

    /// It was run once more.
    pub fn count(&self, rows: u64, time: Duration, waited: Duration) {
        let add = |count: &AtomicU64, more: u64| _ = count.fetch_add(more, Ordering::Relaxed);
        add(&self.calls, 1);
        add(&self.rows, rows);
        add(&self.micros, time.as_micros() as u64);
        if !waited.is_zero() {
            add(&self.waited_micros, waited.as_micros() as u64);
        }
    }
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.rows += other.rows;
        self.time += other.time;
        self.waited += other.waited;
    }
}
