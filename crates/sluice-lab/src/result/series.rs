//! Series on a turn's time axis: seconds since all of its clients were connected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// pgbench's figures for one second of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// The end of the span that this is about.
    pub t_s: f64,
    /// Its length.
    pub span_s: f64,
    /// Transactions a second.
    pub tps: f64,
    /// Mean latency of those that ended in it; zero if none did.
    pub mean_ms: f64,
    /// Its standard deviation.
    pub stddev_ms: f64,
    /// 99 % took no longer, where the single latencies are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// The longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
    /// Transactions that failed.
    #[serde(default)]
    pub failed: u64,
    /// Transactions that were skipped.
    #[serde(default)]
    pub skipped: u64,
}

/// The samples, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The moments, in seconds.
    pub t_s: Vec<f64>,
    /// Descriptions of the columns: of those in use, not of all that exist.
    pub metrics: BTreeMap<String, Metric>,
    /// A value a moment; none where there was none.
    pub columns: BTreeMap<String, Vec<Option<f64>>>,
    /// Checkpoints that overlap the turn, where the server's log could be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// Reasons why something that could have been sampled is missing.
    pub missing: Vec<String>,
}

/// A checkpoint, as the server's log tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The trigger, in PostgreSQL's words: "time", "wal", "immediate force wait".
    pub reason: String,
    /// Its begin.
    pub from_s: f64,
    /// Its end; none if it went on beyond the turn.
    pub to_s: Option<f64>,
    /// Buffers that it wrote.
    pub buffers: Option<u64>,
    /// Time spent on writing them, spread as `checkpoint_completion_target` says.
    pub write_s: Option<f64>,
    /// Time spent on having files synced.
    pub sync_s: Option<f64>,
    /// The longest of the files.
    pub longest_sync_s: Option<f64>,
}

impl Checkpoint {
    /// Whether it was under way at some moment between two.
    pub fn overlaps(&self, from_s: f64, to_s: f64) -> bool {
        self.from_s <= to_s && self.to_s.is_none_or(|end_s| end_s >= from_s)
    }
}

/// The description of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// For people.
    pub title: String,
    /// "sessions", "MB/s", "%".
    pub unit: String,
    /// Its source: a view, a file.
    pub source: String,
}

impl Samples {
    /// The values of a column, with their moments; none if there is no such column.
    pub fn points(&self, column: &str) -> impl Iterator<Item = (f64, f64)> + '_ {
        let values = self.columns.get(column).map_or(&[][..], Vec::as_slice);
        self.t_s.iter().zip(values).filter_map(|(t_s, value)| Some((*t_s, (*value)?)))
    }

    /// The mean of a column over the moments that `when` accepts.
    pub fn mean(&self, column: &str, when: impl Fn(f64) -> bool) -> Option<f64> {
        crate::stats::mean(self.points(column).filter(|(t_s, _)| when(*t_s)).map(|(_, value)| value))
    }

    /// Adds a value; moments before it without one hold none.
    pub fn put(&mut self, column: &str, value: f64) {
        let moments = self.t_s.len();
        let values = self.columns.entry(column.to_owned()).or_default();
        values.resize(moments.saturating_sub(1), None);
        values.push(Some(value));
    }

    /// Makes all columns as long as there are moments.
    pub fn even_out(&mut self) {
        let moments = self.t_s.len();
        for values in self.columns.values_mut() {
            values.resize(moments, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_and_end_when_they_like() {
        let mut samples = Samples::default();
        samples.t_s.push(1.0);
        samples.put("a", 10.0);
        samples.t_s.push(2.0);
        samples.put("b", 5.0);
        samples.t_s.push(3.0);
        samples.put("a", 30.0);
        samples.even_out();
        assert_eq!(samples.columns["a"], [Some(10.0), None, Some(30.0)]);
        assert_eq!(samples.columns["b"], [None, Some(5.0), None]);
        assert_eq!(samples.points("a").collect::<Vec<_>>(), [(1.0, 10.0), (3.0, 30.0)]);
        assert_eq!(samples.mean("a", |t_s| t_s > 1.5), Some(30.0));
        assert_eq!(samples.mean("c", |_| true), None);
    }
}
