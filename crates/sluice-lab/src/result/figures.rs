//! The figures of one turn.

use serde::{Deserialize, Serialize};

/// A whole turn. Latencies are those of transactions as the client saw them; with a rate, from when each was due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds for which all clients were connected and at work.
    pub seconds: f64,
    /// Transactions that ended well in that time.
    pub transactions: u64,
    /// Transactions a second.
    pub tps: f64,
    /// The same without the first and the last tenth of the time, while connections open and close.
    pub tps_trimmed: Option<f64>,
    /// Statements a second, BEGIN and END included.
    pub qps: Option<f64>,
    /// Mean latency.
    pub mean_ms: f64,
    /// Its standard deviation.
    pub stddev_ms: f64,
    /// Half of the transactions took no longer. Of a part that is logged, none may be known.
    pub p50_ms: Option<f64>,
    /// 90 %.
    pub p90_ms: Option<f64>,
    /// 99 %.
    pub p99_ms: Option<f64>,
    /// 99.9 %.
    pub p99_9_ms: Option<f64>,
    /// The longest one, where all were logged.
    pub max_ms: Option<f64>,
    /// Mean time of a transaction's statements without BEGIN and END.
    pub sql_ms: Option<f64>,
    /// Mean time of BEGIN.
    pub begin_ms: Option<f64>,
    /// Mean time of END.
    pub end_ms: Option<f64>,
    /// Time until all clients were connected.
    pub open_s: f64,
    /// Time from the end until the server had none of their connections left; none where connections are shared.
    pub close_s: Option<f64>,
    /// Transactions that failed for good.
    pub failed: u64,
    /// Attempts made again after a serialization failure or a deadlock.
    pub retried: u64,
    /// Transactions that were not begun, since they were too late already. They count as lost.
    pub skipped: u64,
    /// PostgreSQL's processor time a transaction, µs.
    pub postgres_cpu_us_per_tx: Option<f64>,
    /// The pool's.
    pub pool_cpu_us_per_tx: Option<f64>,
    /// The pool's for a client's log-in, µs, where there were many.
    pub pool_cpu_us_per_login: Option<f64>,
    /// The pool's memory at its highest, kB.
    pub pool_rss_kb: Option<u64>,
    /// A flood's connections a second, where there was one.
    pub flood_per_s: Option<f64>,
    /// Those of them that were not answered as they would be without a flood, in percent.
    pub flood_failed_percent: Option<f64>,
    /// The time within which half of the others were answered, where they wait for that.
    pub flood_p50_ms: Option<f64>,
    /// 99 %.
    pub flood_p99_ms: Option<f64>,
    /// The sampler's share of the machine's processor time, in percent.
    pub sampler_cpu_percent: Option<f64>,
}

/// One statement of a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatementFigures {
    /// The script that it stands in.
    pub script: String,
    /// As written, on one line.
    pub text: String,
    /// Mean latency.
    pub mean_ms: f64,
    /// Failures.
    pub failed: u64,
}
