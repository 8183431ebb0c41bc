//! pgbench's log of transactions, as histograms: of the whole run, and of each second.
//!
//! A line is `client transaction time script epoch µs [lag] [retries]`; a transaction that failed or was skipped has a
//! word for its time. Single lines are not kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use hdrhistogram::Histogram;

use crate::error::Error;

/// Of the files, one a thread.
pub(super) const PREFIX: &str = "log";

/// Significant digits of the run's histogram, and of each second's.
const DIGITS: u8 = 3;
const DIGITS_OF_A_SECOND: u8 = 2;
/// A second that is further away than this was told by a broken clock.
const SECONDS_MAX: f64 = 1e6;

/// Latencies of transactions that ended well.
#[derive(Debug)]
pub struct Latencies {
    all: Histogram<u64>,
    seconds: BTreeMap<u32, Histogram<u64>>,
}

impl Latencies {
    /// Of nothing.
    pub fn none() -> Result<Self, Error> {
        Ok(Self { all: histogram(DIGITS)?, seconds: BTreeMap::new() })
    }

    /// All logs in a directory; seconds count from `begin_unix_s`, and what ended before is left out.
    pub(super) fn read(dir: &Path, begin_unix_s: f64) -> Result<Self, Error> {
        let mut latencies = Self::none()?;
        for entry in fs::read_dir(dir).map_err(Error::file("read", dir))? {
            let path = entry.map_err(Error::file("read", dir))?.path();
            if !is_log(&path) {
                continue;
            }
            let file = File::open(&path).map_err(Error::file("read", &path))?;
            for line in BufReader::new(file).lines() {
                let line = line.map_err(Error::file("read", &path))?;
                if let Some((latency_us, end_unix_s)) = parse_line(&line) {
                    latencies.add(latency_us, end_unix_s - begin_unix_s)?;
                }
            }
        }
        Ok(latencies)
    }

    fn add(&mut self, latency_us: u64, t_s: f64) -> Result<(), Error> {
        if !(0.0..SECONDS_MAX).contains(&t_s) {
            return Ok(());
        }
        record(&mut self.all, latency_us)?;
        let second = match self.seconds.entry(t_s as u32) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(histogram(DIGITS_OF_A_SECOND)?),
        };
        record(second, latency_us)
    }

    /// The latency that `share` of the transactions did not exceed, in ms; none if there were no transactions.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        (!self.all.is_empty()).then(|| ms(self.all.value_at_quantile(share)))
    }

    /// The longest.
    pub fn max_ms(&self) -> Option<f64> {
        (!self.all.is_empty()).then(|| ms(self.all.max()))
    }

    /// The 99th percentile and the longest of those that ended in the seconds whose middles lie in a span.
    pub fn within(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        let mut both: Option<Histogram<u64>> = None;
        for (second, histogram) in &self.seconds {
            let middle_s = f64::from(*second) + 0.5;
            if middle_s < from_s || middle_s >= to_s {
                continue;
            }
            match &mut both {
                None => both = Some(histogram.clone()),
                // Histograms of the same digits that grow by themselves can always be added.
                Some(both) => both.add(histogram).ok()?,
            }
        }
        both.map(|histogram| (ms(histogram.value_at_quantile(0.99)), ms(histogram.max())))
    }
}

/// The begin of the earliest transaction in a directory's logs, in seconds since 1970, as far as they are written.
pub(super) fn first_begin_unix_s(dir: &Path) -> Option<f64> {
    let logs = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_log(path));
    let begins = logs.filter_map(|path| {
        let mut line = String::new();
        BufReader::new(File::open(path).ok()?).read_line(&mut line).ok()?;
        let (latency_us, end_unix_s) = parse_line(line.strip_suffix('\n')?)?;
        Some(end_unix_s - latency_us as f64 / 1e6)
    });
    begins.reduce(f64::min)
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('.')))
}

fn histogram(digits: u8) -> Result<Histogram<u64>, Error> {
    let unreadable = |error: hdrhistogram::CreationError| Error::Server(format!("cannot make a histogram: {error}"));
    let mut histogram = Histogram::new(digits).map_err(unreadable)?;
    histogram.auto(true);
    Ok(histogram)
}

/// Grows the histogram as need be.
fn record(histogram: &mut Histogram<u64>, latency_us: u64) -> Result<(), Error> {
    histogram.record(latency_us).map_err(|error| Error::Server(format!("cannot count a latency: {error}")))
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Latency in µs, and the end in seconds since 1970.
fn parse_line(line: &str) -> Option<(u64, f64)> {
    let mut fields = line.split(' ').skip(2);
    let latency_us = fields.next()?.parse().ok()?;
    let _script = fields.next()?;
    let epoch_s: f64 = fields.next()?.parse().ok()?;
    let us: f64 = fields.next()?.parse().ok()?;
    Some((latency_us, epoch_s + us / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(parse_line("0 199 2241 0 1175850568 500000"), Some((2241, 1_175_850_568.5)));
        assert_eq!(parse_line("0 199 2241 0 1175850568 500000 12 1"), Some((2241, 1_175_850_568.5)));
        assert_eq!(parse_line("0 199 failed 0 1175850568 995598"), None);
        assert_eq!(parse_line("0 199 skipped 0 1175850568 995598"), None);
        assert_eq!(parse_line(""), None);
    }

    #[test]
    fn percentiles_of_the_run_and_of_seconds() {
        let dir = tempfile::tempdir().unwrap();
        let lines: String = (0..1000).map(|n| format!("0 {n} {} 0 {} 250000\n", 1000 + n, 1000 + n / 500)).collect();
        fs::write(dir.path().join("log.77"), lines).unwrap();
        fs::write(dir.path().join("log.77.1"), "1 1 50000 0 1001 750000\n1 2 9 0 999 0\n").unwrap();
        fs::write(dir.path().join("script.sql"), "1 1 1 1 1 1\n").unwrap();
        let latencies = Latencies::read(dir.path(), 1000.0).unwrap();
        assert_eq!(latencies.all.len(), 1001);
        assert!((latencies.quantile_ms(0.5).unwrap() - 1.5).abs() < 0.01);
        assert!((latencies.max_ms().unwrap() - 50.0).abs() < 0.1);
        let (p99_ms, max_ms) = latencies.within(0.0, 1.0).unwrap();
        assert!((p99_ms - 1.495).abs() < 0.03 && max_ms < 1.6, "{p99_ms} {max_ms}");
        assert!(latencies.within(0.0, 2.0).unwrap().1 > 49.0);
        assert_eq!(latencies.within(2.0, 9.0), None);
    }
}
