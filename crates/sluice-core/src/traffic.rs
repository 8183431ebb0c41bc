//! The work that a pool's servers have done for its clients: counts that only grow.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::time::Time;

/// A pool's counts.
#[derive(Debug, Default)]
pub struct Traffic {
    transactions: AtomicU64,
    queries: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    transaction_micros: AtomicU64,
    query_micros: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Transactions that have ended.
    pub transactions: u64,
    /// Queries and batches that have been answered.
    pub queries: u64,
    /// Bytes that clients have sent.
    pub received_bytes: u64,
    /// Bytes that servers have answered.
    pub sent_bytes: u64,
    /// The time that transactions had a server, idle in them or not.
    pub transaction_time: Duration,
    /// The time from a query's first message to the end of its answer.
    pub query_time: Duration,
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
            transactions: get(&self.transactions),
            queries: get(&self.queries),
            received_bytes: get(&self.received_bytes),
            sent_bytes: get(&self.sent_bytes),
            transaction_time: Duration::from_micros(get(&self.transaction_micros)),
            query_time: Duration::from_micros(get(&self.query_micros)),
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
        self.transactions += other.transactions;
        self.queries += other.queries;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.transaction_time += other.transaction_time;
        self.query_time += other.query_time;
    }
}

impl Meter {
    /// Something of the client's goes to the server.
    pub fn begin(&mut self, now: Time) {
        self.transaction.get_or_insert(now);
        self.query.get_or_insert(now);
    }

    /// A query or a batch has been answered; `is_over` says whether that ended the transaction as well.
    pub fn end(&mut self, now: Time, is_over: bool, traffic: &Traffic) {
        let Some(since) = self.query.take() else { return };
        traffic.queries.fetch_add(1, Ordering::Relaxed);
        traffic.query_micros.fetch_add(now.since(since).as_micros() as u64, Ordering::Relaxed);
        if let Some(since) = self.transaction.take_if(|_| is_over) {
            traffic.transactions.fetch_add(1, Ordering::Relaxed);
            traffic.transaction_micros.fetch_add(now.since(since).as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// The client has left its server in the midst of something, which counts for nothing.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_queries_and_pauses() {
        let (traffic, mut meter) = (Traffic::default(), Meter::default());
        meter.begin(Time(1_000));
        meter.begin(Time(1_100));
        meter.end(Time(1_300), false, &traffic);
        meter.begin(Time(5_000));
        meter.end(Time(5_050), true, &traffic);
        meter.end(Time(9_000), true, &traffic);
        let counted = traffic.counted();
        assert_eq!((counted.transactions, counted.queries), (1, 2));
        assert_eq!(counted.transaction_time, Duration::from_micros(4_050));
        assert_eq!(counted.query_time, Duration::from_micros(350));
    }
}
