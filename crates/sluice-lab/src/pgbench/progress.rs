//! pgbench's output on standard error while it runs: reports, and complaints.

use crate::error::Error;

/// Error messages kept of a run; 16,000 clients would say the same 16,000 times.
const COMPLAINTS_KEPT: usize = 3;

/// One line of `-P 1`. None comes before all clients are connected.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Since just before the first client connected.
    pub elapsed_s: f64,
    /// Since the line before.
    pub tps: f64,
    /// Of transactions that ended since.
    pub mean_ms: f64,
    /// Its standard deviation.
    pub stddev_ms: f64,
    /// Transactions that failed since.
    pub failed: u64,
    /// Transactions that were skipped since.
    pub skipped: u64,
}

impl Progress {
    /// `progress: 9.0 s, 29149.5 tps, lat 2.191 ms stddev 1.016, 0 failed, lag 0.1 ms, 3 skipped, 0 retried, …`
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("progress: ")?.split(", ");
        let elapsed_s = parts.next()?.strip_suffix(" s")?.trim().parse().ok()?;
        let tps = parts.next()?.strip_suffix(" tps")?.trim().parse().ok()?;
        let (mean, stddev) = parts.next()?.strip_prefix("lat ")?.split_once(" ms stddev ")?;
        let mut report = Self {
            elapsed_s,
            tps,
            // "-nan" in versions that divide by no transactions.
            mean_ms: finite(mean),
            stddev_ms: finite(stddev),
            failed: 0,
            skipped: 0,
        };
        for part in parts {
            match part.rsplit_once(' ') {
                Some((count, "failed")) => report.failed = count.trim().parse().ok()?,
                Some((count, "skipped")) => report.skipped = count.trim().parse().ok()?,
                _ => {}
            }
        }
        Some(report)
    }
}

fn finite(number: &str) -> f64 {
    number.trim().parse().ok().filter(|number: &f64| number.is_finite()).unwrap_or(0.0)
}

/// Lines from pgbench that are no reports.
#[derive(Default)]
pub struct Complaints {
    aborted: u32,
    lines: Vec<String>,
}

impl Complaints {
    /// Takes a line that is no report.
    pub fn hear(&mut self, line: String) {
        self.aborted += u32::from(is_aborted_client(&line));
        let noise = line.trim().is_empty() || line.starts_with("pgbench (") || line.starts_with("progress:");
        if !noise && self.lines.len() < COMPLAINTS_KEPT {
            self.lines.push(line);
        }
    }

    /// Whether clients gave up.
    pub fn any_aborted(&self) -> bool {
        self.aborted > 0
    }

    /// A line about all of it; empty if it said nothing.
    pub fn describe(&self, clients: u32) -> String {
        let said = self.lines.join(" | ");
        if self.aborted > 0 { format!("{} of {clients} clients aborted: {said}", self.aborted) } else { said }
    }

    /// The error, with what pgbench said before it.
    pub(super) fn explain(&self, error: Error, clients: u32) -> Error {
        match (error, self.describe(clients)) {
            (Error::TimedOut { what, limit }, said) if !said.is_empty() => {
                Error::TimedOut { what: format!("{what} ({said})"), limit }
            }
            (error, _) => error,
        }
    }
}

/// `client 5 aborted in command 1 (SQL) of script 0; …`, whatever stands before.
fn is_aborted_client(line: &str) -> bool {
    line.split_once("client ")
        .is_some_and(|(_, rest)| rest.split_once(" aborted").is_some_and(|(number, _)| number.parse::<u32>().is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports() {
        let line = "progress: 9.0 s, 29149.5 tps, lat 2.191 ms stddev 1.016, 2 failed";
        let expected =
            Progress { elapsed_s: 9.0, tps: 29149.5, mean_ms: 2.191, stddev_ms: 1.016, failed: 2, skipped: 0 };
        assert_eq!(Progress::parse(line), Some(expected));
        let line = "progress: 3.0 s, 10.0 tps, lat 1.0 ms stddev 0.1, 0 failed, lag 0.5 ms, 7 skipped, 1 retried";
        assert_eq!(Progress::parse(line).map(|report| report.skipped), Some(7));
        let idle = "progress: 1.0 s, 0.0 tps, lat -nan ms stddev -nan, 0 failed";
        assert_eq!(Progress::parse(idle).map(|report| report.mean_ms), Some(0.0));
        assert_eq!(Progress::parse("pgbench: error: progress: 1.0 s, "), None);
    }

    #[test]
    fn aborted_clients_are_counted_and_a_few_quoted() {
        let mut complaints = Complaints::default();
        for client in 0..9 {
            complaints.hear(format!("pgbench: error: client {client} aborted in command 0 (SQL) of script 0; no"));
        }
        complaints.hear("pgbench: error: client script 1 aborted".to_owned());
        assert_eq!((complaints.aborted, complaints.lines.len()), (9, COMPLAINTS_KEPT));
        assert!(complaints.describe(64).starts_with("9 of 64 clients aborted: pgbench: error: client 0"));
        assert_eq!(Complaints::default().describe(64), "");
    }
}
