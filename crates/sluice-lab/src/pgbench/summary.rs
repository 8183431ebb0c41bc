//! pgbench's summary of the whole run, printed at its end.

/// Without the reports by statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Transactions that ended well.
    pub transactions: u64,
    /// Without the time to connect.
    pub tps: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// Its standard deviation.
    pub stddev_ms: f64,
    /// Until all clients were connected.
    pub connect_s: f64,
    /// Transactions that failed for good.
    pub failed: u64,
    /// Attempts made again.
    pub retried: u64,
    /// Transactions that were skipped.
    pub skipped: u64,
}

impl Summary {
    /// From pgbench's standard output; none if it holds no summary.
    pub fn parse(output: &str) -> Option<Self> {
        let after = |label: &str| -> Option<&str> {
            let rest = output.lines().find_map(|line| line.trim().strip_prefix(label))?;
            rest.trim_start_matches([' ', '=', ':']).split([' ', '/']).next()
        };
        let count = |label: &str| after(label).and_then(|count| count.parse().ok()).unwrap_or(0);
        let transactions = after("number of transactions actually processed")?.parse().ok()?;
        // Where all were skipped, there is no latency.
        let latency_ms = |label: &str| match after(label) {
            None if transactions == 0 => Some(0.0),
            latency => latency?.parse().ok(),
        };
        Some(Self {
            transactions,
            tps: after("tps")?.parse().ok()?,
            mean_ms: latency_ms("latency average")?,
            stddev_ms: latency_ms("latency stddev")?,
            connect_s: after("initial connection time")?.parse::<f64>().ok()? / 1000.0,
            failed: count("number of failed transactions"),
            retried: count("total number of retries"),
            skipped: count("number of transactions skipped"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 50
number of clients: 64
maximum number of tries: 3
duration: 10 s
number of transactions actually processed: 291456
number of failed transactions: 12 (0.004%)
number of transactions retried: 5 (0.001%)
total number of retries: 6
number of transactions skipped: 4 (0.001%)
latency average = 2.191 ms
latency stddev = 1.016 ms
initial connection time = 141.520 ms
tps = 29149.502881 (without initial connection time)
";

    #[test]
    fn whole() {
        let expected = Summary {
            transactions: 291_456,
            tps: 29149.502881,
            mean_ms: 2.191,
            stddev_ms: 1.016,
            connect_s: 0.14152,
            failed: 12,
            retried: 6,
            skipped: 4,
        };
        assert_eq!(Summary::parse(OUTPUT), Some(expected));
        assert_eq!(Summary::parse("pgbench (15.18)\n"), None);
    }

    #[test]
    fn all_may_have_been_skipped() {
        let output = OUTPUT.replace("processed: 291456", "processed: 0");
        let output: Vec<&str> = output.lines().filter(|line| !line.starts_with("latency")).collect();
        let summary = Summary::parse(&output.join("\n")).unwrap();
        assert_eq!((summary.transactions, summary.skipped, summary.mean_ms), (0, 4, 0.0));
        assert_eq!(Summary::parse(&OUTPUT.replace("latency average", "?")), None);
    }

    #[test]
    fn a_rate_prints_processed_of_all() {
        let output = OUTPUT.replace("processed: 291456", "processed: 291456/300000");
        assert_eq!(Summary::parse(&output).map(|summary| summary.transactions), Some(291_456));
    }
}
