//! The figures of a turn as named columns: what tables, files and comparisons have in common.

use crate::result::Figures;

/// A figure, by the name that it has in files, and what people read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// As in [`Figures`].
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// Its unit; empty where the title says it.
    pub(crate) unit: &'static str,
    /// Takes it.
    pub(crate) of: fn(&Figures) -> Option<f64>,
}

/// The shortest latency that pgbench's log tells from none, in milliseconds.
const RESOLUTION_MS: f64 = 0.001;

impl Column {
    /// Whether it is a latency from pgbench's log, and that one is shorter than the log can tell.
    pub(crate) fn is_below_resolution(&self, value: f64) -> bool {
        let from_log = [P50, P90, P99, P99_9, MAX];
        value < RESOLUTION_MS && from_log.iter().any(|it| it.name == self.name)
    }
}

/// A latency that is shorter than pgbench's log can tell.
pub(crate) fn below_resolution() -> String {
    format!("<{RESOLUTION_MS}")
}

/// Columns, each a constant and in one list.
macro_rules! columns {
    ($($constant:ident = $name:literal, $title:literal, $unit:literal, $of:expr;)*) => {
        $(pub(crate) const $constant: Column = Column { name: $name, title: $title, unit: $unit, of: $of };)*

        /// All of them, in the order of [`Figures`].
        pub(crate) const ALL: &[Column] = &[$($constant),*];
    };
}

columns! {
    SECONDS = "seconds", "time", "s", |figures| Some(figures.seconds);
    TRANSACTIONS = "transactions", "transactions", "", |figures| Some(figures.transactions as f64);
    TPS = "tps", "tps", "", |figures| Some(figures.tps);
    TPS_TRIMMED = "tps_trimmed", "trimmed", "tps", |figures| figures.tps_trimmed;
    QPS = "qps", "qps", "", |figures| figures.qps;
    MEAN = "mean_ms", "mean", "ms", |figures| Some(figures.mean_ms);
    STDDEV = "stddev_ms", "stddev", "ms", |figures| Some(figures.stddev_ms);
    P50 = "p50_ms", "p50", "ms", |figures| figures.p50_ms;
    P90 = "p90_ms", "p90", "ms", |figures| figures.p90_ms;
    P99 = "p99_ms", "p99", "ms", |figures| figures.p99_ms;
    P99_9 = "p99_9_ms", "p99.9", "ms", |figures| figures.p99_9_ms;
    MAX = "max_ms", "max", "ms", |figures| figures.max_ms;
    SQL = "sql_ms", "SQL inside", "ms", |figures| figures.sql_ms;
    BEGIN = "begin_ms", "BEGIN", "ms", |figures| figures.begin_ms;
    END = "end_ms", "END", "ms", |figures| figures.end_ms;
    OPEN = "open_s", "open all", "s", |figures| Some(figures.open_s);
    CLOSE = "close_s", "close all", "s", |figures| figures.close_s;
    FAILED = "failed", "failed", "", |figures| Some(figures.failed as f64);
    RETRIED = "retried", "retried", "", |figures| Some(figures.retried as f64);
    SKIPPED = "skipped", "skipped", "", |figures| Some(figures.skipped as f64);
    POSTGRES_CPU = "postgres_cpu_us_per_tx", "PostgreSQL CPU", "µs/tx", |figures| figures.postgres_cpu_us_per_tx;
    POOL_CPU = "pool_cpu_us_per_tx", "pool CPU", "µs/tx", |figures| figures.pool_cpu_us_per_tx;
    POOL_LOGIN_CPU = "pool_cpu_us_per_login", "pool CPU", "µs/log-in", |figures| figures.pool_cpu_us_per_login;
    POOL_RSS = "pool_rss_kb", "pool memory", "kB", |figures| figures.pool_rss_kb.map(|kb| kb as f64);
    FLOOD = "flood_per_s", "flood", "connections/s", |figures| figures.flood_per_s;
    FLOOD_FAILED = "flood_failed_percent", "flood failed", "%", |figures| figures.flood_failed_percent;
    FLOOD_P50 = "flood_p50_ms", "flood answered, half", "ms", |figures| figures.flood_p50_ms;
    FLOOD_P99 = "flood_p99_ms", "flood answered, 99 %", "ms", |figures| figures.flood_p99_ms;
    SAMPLER_CPU = "sampler_cpu_percent", "sampler CPU", "%", |figures| figures.sampler_cpu_percent;
}

/// PostgreSQL's processor time and the pool's together.
pub(crate) const CPU: Column = Column {
    name: "cpu_us_per_tx",
    title: "CPU",
    unit: "µs/tx",
    of: |figures| Some(figures.postgres_cpu_us_per_tx? + figures.pool_cpu_us_per_tx.unwrap_or(0.0)),
};

/// The pool's processor time as a share of PostgreSQL's in the same turn: where the machine's speed drifts between turns,
/// it moves both.
pub(crate) const POOL_SHARE: Column = Column {
    name: "pool_cpu_share",
    title: "pool CPU",
    unit: "of PostgreSQL's",
    of: |figures| Some(figures.pool_cpu_us_per_tx? / figures.postgres_cpu_us_per_tx.filter(|cpu| *cpu > 0.0)?),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_the_log_have_a_resolution() {
        assert!(P50.is_below_resolution(0.0) && MAX.is_below_resolution(0.0));
        assert!(!P50.is_below_resolution(0.001) && !MEAN.is_below_resolution(0.0) && !FAILED.is_below_resolution(0.0));
        assert_eq!(below_resolution(), "<0.001");
    }

    #[test]
    fn every_figure_has_its_column() {
        let figures = serde_json::to_value(Figures::default()).expect("JSON");
        let mut fields: Vec<&str> = figures.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut names: Vec<&str> = ALL.iter().map(|column| column.name).collect();
        fields.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, fields);
    }
}
