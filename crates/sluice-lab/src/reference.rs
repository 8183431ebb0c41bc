//! The reference figures: what users of a managed PostgreSQL reported, shipped as CSV files in `reference/`.
//!
//! Read-only data, part of the program; that all of it can be read is a test's matter.

use serde::{Deserialize, de::DeserializeOwned};

use crate::result::Second;

/// A step of the concurrency ladder (TPC-B, scale 5000, prepared).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LadderStep {
    /// "logged" or "unlogged" (the latter with `synchronous_commit = off`).
    pub tables: String,
    /// "community", or "builtin_pool" with a pool inside the server.
    pub server: String,
    /// pgbench's clients.
    pub connections: u32,
    /// Transactions a second.
    pub tps: f64,
    /// The same without head and tail.
    pub tps_trimmed: Option<f64>,
    /// Mean time of a transaction.
    pub tx_ms: Option<f64>,
    /// Mean time of the SQL inside.
    pub sql_ms: Option<f64>,
    /// Standard deviation of the transaction's time.
    pub tx_stddev_ms: Option<f64>,
    /// Time to open all connections.
    pub open_all_s: Option<f64>,
    /// Time to close them.
    pub close_all_s: Option<f64>,
}

/// A statement's mean at 16,384 connections.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct StatementMean {
    /// The statement's purpose.
    pub statement: String,
    /// Without a pool.
    pub community_ms: f64,
    /// With a pool inside the server.
    pub builtin_pool_ms: f64,
}

/// A workload on synchronous nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SyncStep {
    /// "read_only", "write_only", "read_mostly", "write_mostly".
    pub workload: String,
    /// Two or three.
    pub nodes: u32,
    /// Transactions a second.
    pub tps: f64,
    /// Statements in each.
    pub statements_per_tx: u32,
    /// Statements a second.
    pub qps: f64,
    /// Mean time of a transaction.
    pub latency_ms: f64,
    /// Its standard deviation.
    pub latency_stddev_ms: f64,
    /// Mean time of its commit.
    pub commit_ms: Option<f64>,
}

/// A line of pgbench's progress in the session-log test.
#[derive(Deserialize)]
struct ProgressLine {
    t_s: f64,
    tps: f64,
    latency_ms: f64,
    latency_stddev_ms: f64,
}

/// The session-log test, 16 clients: 2401 tps in all, with its stalls.
pub fn session_log_with_update() -> Vec<Second> {
    seconds(include_str!("../reference/session_log_with_update.csv"))
}

/// The same without its update: 3671 tps.
pub fn session_log_without_update() -> Vec<Second> {
    seconds(include_str!("../reference/session_log_without_update.csv"))
}

/// TPC-B at 64 to 16,384 connections.
pub fn tpcb_ladder() -> Vec<LadderStep> {
    rows(include_str!("../reference/tpcb_ladder.csv"))
}

/// TPC-B's statements at 16,384 connections.
pub fn tpcb_statements() -> Vec<StatementMean> {
    rows(include_str!("../reference/tpcb_statement_ms_16384.csv"))
}

/// Four workloads on two and three nodes.
pub fn sync_matrix() -> Vec<SyncStep> {
    rows(include_str!("../reference/sync_matrix.csv"))
}

fn seconds(text: &str) -> Vec<Second> {
    let mut last_s = 0.0;
    let lines = rows::<ProgressLine>(text).into_iter();
    lines
        .map(|line| {
            let span_s = line.t_s - last_s;
            last_s = line.t_s;
            Second {
                t_s: line.t_s,
                span_s,
                tps: line.tps,
                mean_ms: line.latency_ms,
                stddev_ms: line.latency_stddev_ms,
                ..Second::default()
            }
        })
        .collect()
}

fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    // The files are part of the program, and a test counts their rows.
    reader.deserialize().map_while(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read() {
        let lines = |text: &str| text.lines().count() - 1;
        assert_eq!(session_log_with_update().len(), lines(include_str!("../reference/session_log_with_update.csv")));
        assert_eq!(
            session_log_without_update().len(),
            lines(include_str!("../reference/session_log_without_update.csv"))
        );
        assert_eq!(tpcb_ladder().len(), lines(include_str!("../reference/tpcb_ladder.csv")));
        assert_eq!(tpcb_statements().len(), lines(include_str!("../reference/tpcb_statement_ms_16384.csv")));
        assert_eq!(sync_matrix().len(), lines(include_str!("../reference/sync_matrix.csv")));
    }

    #[test]
    fn the_reports_headline() {
        let step = |server: &str| {
            tpcb_ladder()
                .into_iter()
                .find(|step| step.tables == "logged" && step.server == server && step.connections == 16384)
        };
        assert_eq!(step("community").map(|step| step.tps_trimmed.unwrap_or(step.tps)), Some(10020.0));
        assert_eq!(step("builtin_pool").map(|step| step.tps_trimmed.unwrap_or(step.tps)), Some(29499.0));
    }
}
