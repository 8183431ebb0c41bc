//! The work that a pool's servers have done for its clients: counts that only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    histogram::{Histogram, Times},
    time::Time,
};

/// A pool's counts.
#[derive(Debug, Default)]
pub struct Traffic {
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    transactions: Histogram,
    queries: Histogram,
}

/// The counts at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that clients have sent.
    pub received_bytes: u64,
    /// Bytes that servers have answered, but for what the pool has asked itself.
    pub sent_bytes: u64,
    /// Transactions that have ended, be it that their client is gone, by the times that they had a server, idle in them or
    /// not.
    pub transactions: Times,
    /// Queries and batches that have been answered, by the times from the first message to the end of the answer.
    pub queries: Times,
}

/// The work that a server's client is in the midst of.
#[derive(Debug, Default)]
pub struct Meter {
    transaction: Option<Time>,
    query: Option<Time>,
}

impl Traffic {
    /// The counts now.
    pub fn counted(&self) -> Counted {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            received_bytes: get(&self.received_bytes),
            sent_bytes: get(&self.sent_bytes),
            transactions: self.transactions.times(),
            queries: self.queries.times(),
        }
    }

    /// A client has sent so many bytes.
    pub fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A server has answered a client with so many bytes.
    pub fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl std::ops::AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.transactions += other.transactions;
        self.queries += other.queries;
    }
}

impl Meter {
    /// Something of the client's goes to the server.
    pub fn begin(&mut self, now: Time) {
        self.transaction.get_or_insert(now);
        self.query.get_or_insert(now);
    }

    /// A query or a batch has been answered; `is_over` says whether that ended the transaction as well, and `goes_on`
    /// whether the client has sent more already, which begins now.
    pub fn end(&mut self, now: Time, is_over: bool, goes_on: bool, traffic: &Traffic) {
        let Some(since) = self.query.take() else { return };
        traffic.queries.count(now.since(since));
        if let Some(since) = self.transaction.take_if(|_| is_over) {
            traffic.transactions.count(now.since(since));
        }
        if goes_on {
            self.begin(now);
        }
    }

    /// The time at which the query or batch began that is under way.
    pub fn query_since(&self) -> Option<Time> {
        self.query
    }

    /// The client is gone, or sent away: what it had open ends, unanswered.
    pub fn abandon(&mut self, now: Time, traffic: &Traffic) {
        if let Some(since) = std::mem::take(self).transaction {
            traffic.transactions.count(now.since(since));
        }
    }

    /// What the server's last client had begun counts for nothing.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_transaction_has_queries_and_pauses() {
        let (traffic, mut meter) = (Traffic::default(), Meter::default());
        meter.begin(Time(1_000));
        meter.begin(Time(1_100));
        meter.end(Time(1_300), false, false, &traffic);
        meter.begin(Time(5_000));
        meter.end(Time(5_050), true, false, &traffic);
        meter.end(Time(9_000), true, false, &traffic);
        let counted = traffic.counted();
        assert_eq!((counted.transactions.count(), counted.queries.count()), (1, 2));
        assert_eq!(counted.transactions.sum, Duration::from_micros(4_050));
        assert_eq!(counted.queries.sum, Duration::from_micros(350));
    }

    #[test]
    fn a_transaction_that_its_client_leaves_open_has_had_its_time() {
        let (traffic, mut meter) = (Traffic::default(), Meter::default());
        meter.begin(Time(1_000));
        meter.end(Time(1_300), false, false, &traffic);
        meter.abandon(Time(9_000), &traffic);
        meter.abandon(Time(9_500), &traffic);
        meter.begin(Time(10_000));
        meter.abandon(Time(10_500), &traffic);
        let counted = traffic.counted();
        assert_eq!((counted.transactions.count(), counted.queries.count()), (2, 1));
        assert_eq!(counted.transactions.sum, Duration::from_micros(8_500));
    }
}
