//! The cost of a turn: processor time of process trees, memory, and the window they are taken over.
//!
//! Reads `/proc` only; it knows nothing of the targets.

use std::time::{Duration, Instant};

use crate::{
    pgbench::{Moment, Progress, Summary},
    proc::{tree_cpu_exact_s, tree_rss_kb},
};

/// The first report of a run whose clients were connected at once comes after one second.
const SETTLED_AT_S: f64 = 1.2;

/// The processor time of both trees at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    pool_s: Option<f64>,
    postgres_s: Option<f64>,
}

/// Watches one turn.
///
/// The window for processor time opens at the first report after all clients are connected and had a moment to settle,
/// or had none in a turn that is too short, and closes when the turn has lasted its time. Neither log-ins nor the end of
/// the connections are in the window.
pub(super) struct Watch {
    pool: Option<u32>,
    /// Of all nodes.
    postmasters: Vec<u32>,
    /// The pool's processor time, in seconds.
    samples: Vec<(Instant, f64)>,
    rss_kb_peak: u64,
    /// The first report, which comes as soon as a second has passed and all clients are connected.
    first: Option<(Instant, f64)>,
    window: Option<Window>,
}

struct Window {
    /// Whether clients had a moment before it.
    is_settled: bool,
    begin: Mark,
    end: Option<Mark>,
    /// (seconds covered, transactions a second) of each report in the window.
    reports: Vec<(f64, f64)>,
    last_elapsed_s: f64,
}

/// The cost of a turn, where it could be measured.
#[derive(Debug, Default)]
pub(super) struct Cost {
    pub(super) pool_cpu_us_per_tx: Option<f64>,
    pub(super) postgres_cpu_us_per_tx: Option<f64>,
    pub(super) rss_kb: Option<u64>,
    /// The pool's processor time from pgbench's start until all its clients were connected, µs for all of them.
    pub(super) login_cpu_us: Option<f64>,
}

impl Watch {
    /// Starts to watch; call it just before pgbench starts.
    pub(super) fn new(pool: Option<u32>, postmasters: Vec<u32>) -> Self {
        let mut watch = Self { pool, postmasters, samples: Vec::new(), rss_kb_peak: 0, first: None, window: None };
        watch.sample();
        watch
    }

    /// Sees what happens.
    pub(super) fn see(&mut self, moment: &Moment) {
        match moment {
            Moment::Started(_) | Moment::Ended(_) => {}
            Moment::Tick => self.sample(),
            Moment::Report(report) => self.progress(report),
            Moment::Ending => {
                if let Some(window) = &mut self.window {
                    window.end = Some(mark(self.pool, &self.postmasters));
                }
            }
        }
    }

    /// Looks at the pool only: PostgreSQL may be a thousand processes, and to walk them so often would show in the
    /// figures.
    fn sample(&mut self) {
        if let Some(pool) = self.pool {
            self.samples.push((Instant::now(), tree_cpu_exact_s(pool)));
            self.rss_kb_peak = self.rss_kb_peak.max(tree_rss_kb(pool));
        }
    }

    fn progress(&mut self, report: &Progress) {
        self.first.get_or_insert((Instant::now(), report.elapsed_s));
        let is_whole = |window: &Window| report.elapsed_s - window.last_elapsed_s > 1.0 - 0.15;
        match &mut self.window {
            Some(window) if window.is_settled || !is_whole(window) => {
                window.reports.push((report.elapsed_s - window.last_elapsed_s, report.tps));
                window.last_elapsed_s = report.elapsed_s;
            }
            window => {
                *window = Some(Window {
                    // A first report on time had most of its second for transactions; a late one came right after the
                    // last log-in.
                    is_settled: window.is_some() || report.elapsed_s < SETTLED_AT_S,
                    begin: mark(self.pool, &self.postmasters),
                    end: None,
                    reports: Vec::new(),
                    last_elapsed_s: report.elapsed_s,
                });
            }
        }
    }

    /// The cost, once pgbench has said how long it took to connect, and how much was done in all.
    pub(super) fn finish(self, summary: &Summary) -> Cost {
        let mut cost = Cost { rss_kb: self.pool.map(|_| self.rss_kb_peak), ..Cost::default() };
        cost.login_cpu_us = self.login_cpu_us(summary.connect_s);
        let Some(Window { begin, end: Some(end), reports, .. }) = self.window else { return cost };
        let tps = mean_rate(&reports).unwrap_or(summary.tps);
        if tps <= 0.0 {
            return cost;
        }
        // Rates over the wall clock between the two readings, so a reading that came late does no harm.
        let transactions = (end.at - begin.at).as_secs_f64() * tps;
        let us_per_tx = |begin_s: f64, end_s: f64| (end_s - begin_s).max(0.0) * 1e6 / transactions;
        let of = |side: fn(&Mark) -> Option<f64>| Some(us_per_tx(side(&begin)?, side(&end)?));
        cost.postgres_cpu_us_per_tx = of(|mark| mark.postgres_s);
        cost.pool_cpu_us_per_tx = of(|mark| mark.pool_s);
        cost
    }

    fn login_cpu_us(&self, connect_s: f64) -> Option<f64> {
        let (first_at, first_elapsed_s) = self.first?;
        let started_at = first_at.checked_sub(Duration::try_from_secs_f64(first_elapsed_s).ok()?)?;
        let connected_at = started_at + Duration::try_from_secs_f64(connect_s).ok()?;
        let (_, before_s) = self.samples.first()?;
        let used_s = interpolate(&self.samples, connected_at)? - before_s;
        Some(used_s.max(0.0) * 1e6)
    }
}

fn mark(pool: Option<u32>, postmasters: &[u32]) -> Mark {
    let postgres_s = postmasters.iter().map(|postmaster| tree_cpu_exact_s(*postmaster)).sum();
    Mark {
        at: Instant::now(),
        pool_s: pool.map(tree_cpu_exact_s),
        postgres_s: (!postmasters.is_empty()).then_some(postgres_s),
    }
}

/// The mean of rates over the spans they held; none if nothing happened.
fn mean_rate(spans: &[(f64, f64)]) -> Option<f64> {
    let total_s: f64 = spans.iter().map(|(span_s, _)| span_s).sum();
    let events: f64 = spans.iter().map(|(span_s, rate)| span_s * rate).sum();
    (total_s > 0.0 && events > 0.0).then(|| events / total_s)
}

/// The value at a moment between samples that rise with time; none outside them.
fn interpolate(samples: &[(Instant, f64)], at: Instant) -> Option<f64> {
    let after = samples.iter().position(|(time, _)| *time >= at)?;
    let (before_at, before) = *samples.get(after.checked_sub(1)?)?;
    let (after_at, value) = samples[after];
    let share = (at - before_at).as_secs_f64() / (after_at - before_at).as_secs_f64().max(f64::EPSILON);
    Some(before + share * (value - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_weighted_by_their_spans() {
        assert_eq!(mean_rate(&[(1.0, 100.0), (3.0, 200.0)]), Some(175.0));
        assert_eq!(mean_rate(&[(1.0, 0.0)]), None);
        assert_eq!(mean_rate(&[]), None);
    }

    #[test]
    fn values_between_samples() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let samples = [(at(0), 0.0), (at(200), 100.0), (at(400), 300.0)];
        assert_eq!(interpolate(&samples, at(300)), Some(200.0));
        assert_eq!(interpolate(&samples, at(500)), None);
    }

    /// A turn with reports at these moments, and its end behind the last.
    fn watched(elapsed_s: &[f64]) -> Watch {
        let own = std::process::id();
        let mut watch = Watch::new(Some(own), vec![own]);
        for elapsed_s in elapsed_s {
            let report =
                Progress { elapsed_s: *elapsed_s, tps: 10.0, mean_ms: 1.0, stddev_ms: 0.1, failed: 0, skipped: 0 };
            watch.see(&Moment::Report(report));
        }
        watch.see(&Moment::Ending);
        watch
    }

    fn summary(tps: f64) -> Summary {
        let text =
            format!("number of transactions actually processed: 0\ninitial connection time = 10 ms\ntps = {tps}\n");
        Summary::parse(&text).expect("a summary")
    }

    #[test]
    fn the_window_opens_when_all_are_connected_and_settled() {
        let spans = |elapsed_s: &[f64]| watched(elapsed_s).window.map(|window| window.reports.len());
        assert_eq!(spans(&[1.0, 2.0, 3.0]), Some(2));
        assert_eq!(spans(&[1.1, 2.0]), Some(1));
        // Connected after 8.3 s: a moment to settle, then the window.
        assert_eq!(spans(&[8.3, 9.0]), Some(1));
        assert_eq!(spans(&[8.3, 9.0, 10.0, 11.0]), Some(1));
    }

    #[test]
    fn costs_come_from_the_window_only() {
        let mut watch = watched(&[1.0, 2.0]);
        assert_eq!(watch.window.as_ref().map(|window| window.reports.clone()), Some(vec![(1.0, 10.0)]));
        if let Some(Window { begin, end: Some(end), .. }) = &mut watch.window {
            end.at = begin.at + Duration::from_secs(1);
            end.pool_s = begin.pool_s.map(|used_s| used_s + 0.005);
            end.postgres_s = begin.postgres_s.map(|used_s| used_s + 0.02);
        }
        let cost = watch.finish(&summary(10.0));
        assert_eq!(cost.pool_cpu_us_per_tx.map(f64::round), Some(500.0));
        assert_eq!(cost.postgres_cpu_us_per_tx.map(f64::round), Some(2000.0));
    }

    #[test]
    fn a_turn_without_reports_costs_nothing_known() {
        let cost = watched(&[]).finish(&summary(0.0));
        assert!(cost.pool_cpu_us_per_tx.is_none() && cost.login_cpu_us.is_none());
        assert!(cost.rss_kb.is_some_and(|rss_kb| rss_kb > 0));
    }
}
