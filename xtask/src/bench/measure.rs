//! What a turn costs, read from `/proc`: processor time of process trees, memory, and the window they are taken over.
//!
//! Reads only; it knows neither pgbench nor the targets. Processor time is user + system of a whole tree, processes
//! that have ended included (their parent's `cutime` and `cstime`). `/proc/PID/schedstat` gives it in nanoseconds but
//! forgets threads that have ended, `/proc/PID/stat` gives all of it in ticks of 10 ms: the larger of the two is right
//! to within a tick.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use sluice_lab::pgbench::Progress;

/// How often the pool's memory and processor time are looked at during a turn.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// The first report of a run whose clients were connected at once comes after one second.
const SETTLED_AT_S: f64 = 1.2;

/// No tree here is larger (PostgreSQL with 1,100 connections), so a walk can't run away.
const TREE_LIMIT: usize = 4096;

/// The fields of `/proc/PID/stat` that count, in clock ticks (proc(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    own: u64,
    ended_children: u64,
}

/// The command's name is in parentheses and may hold any byte, so fields count from the last `)`.
fn parse_stat(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    // The first field here is the third of proc(5); utime, stime, cutime, cstime are 14 to 17.
    let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat { own: ticks(14)? + ticks(15)?, ended_children: ticks(16)? + ticks(17)? })
}

/// The first figure of `schedstat`: time spent on the processor, ns.
fn parse_schedstat(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

/// `VmRSS` of `/proc/PID/status`, kB.
fn parse_rss_kb(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// The threads of a process; none once it has ended.
fn threads(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.path().to_str().map(str::to_owned)).collect()
}

/// A process and all its descendants that live, itself first.
fn tree(root: u32) -> Vec<u32> {
    let mut pids = vec![root];
    let mut next = 0;
    while next < pids.len() && pids.len() < TREE_LIMIT {
        for thread in threads(pids[next]) {
            let children = fs::read_to_string(format!("{thread}/children")).unwrap_or_default();
            pids.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        next += 1;
    }
    pids
}

/// Processor time of one process and of its children that have ended, ns; zero once it has ended itself.
fn process_cpu_ns(pid: u32, tick_ns: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let Some(stat) = stat.as_deref().and_then(parse_stat) else { return 0 };
    let precise: u64 = threads(pid)
        .iter()
        .filter_map(|thread| parse_schedstat(&fs::read_to_string(format!("{thread}/schedstat")).ok()?))
        .sum();
    precise.max(stat.own * tick_ns) + stat.ended_children * tick_ns
}

/// Processor time of a tree, ns, its ended processes included.
pub(crate) fn tree_cpu_ns(root: u32) -> u64 {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    tree(root).into_iter().map(|pid| process_cpu_ns(pid, tick_ns)).sum()
}

/// Resident memory of a tree, kB.
pub(crate) fn tree_rss_kb(root: u32) -> u64 {
    let rss_kb = |pid: u32| parse_rss_kb(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?);
    tree(root).into_iter().filter_map(rss_kb).sum()
}

/// Says at the start, not after an hour, that the kernel lacks what the figures need.
pub(crate) fn check_kernel() -> Result<()> {
    let pid = std::process::id();
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map(drop)
        .context("this kernel lists no children in /proc (CONFIG_PROC_CHILDREN), so CPU can't be counted")
}

/// Where both trees stood at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    pool_ns: Option<u64>,
    postgres_ns: u64,
}

/// Watches one turn, and says when it is over.
///
/// pgbench counts a run's time (`-T`, and the time in its reports) from before its first connection. So a turn is
/// timed here: the window for processor time opens at the first report after all clients are connected and had a
/// moment to settle, and closes at a report when the turn has lasted its time; then pgbench is told to end. Neither
/// logins nor the end of the connections are in the window.
pub(crate) struct Watch {
    pool: Option<u32>,
    postmaster: u32,
    seconds: f64,
    samples: Vec<(Instant, u64)>,
    rss_kb_peak: u64,
    /// The first report, which comes as soon as a second has passed and all clients are connected.
    first: Option<(Instant, f64)>,
    window: Option<Window>,
}

struct Window {
    begin: Mark,
    begin_elapsed_s: f64,
    end: Option<Mark>,
    /// (seconds covered, transactions a second) of each report in the window.
    reports: Vec<(f64, f64)>,
    last_elapsed_s: f64,
}

/// Whether a turn has lasted its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Over,
}

/// What a turn cost, where it could be measured.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    pub(crate) pool_cpu_us_per_tx: Option<f64>,
    pub(crate) postgres_cpu_us_per_tx: Option<f64>,
    pub(crate) rss_kb: Option<f64>,
    /// The pool's processor time from pgbench's start until all its clients were connected, µs for all of them.
    pub(crate) login_cpu_us: Option<f64>,
}

impl Watch {
    /// Starts to watch a turn of `seconds`; call it just before pgbench starts.
    pub(crate) fn new(pool: Option<u32>, postmaster: u32, seconds: u32) -> Self {
        let mut watch = Self {
            pool,
            postmaster,
            seconds: f64::from(seconds),
            samples: Vec::new(),
            rss_kb_peak: 0,
            first: None,
            window: None,
        };
        watch.sample();
        watch
    }

    /// To be called every [`SAMPLE_EVERY`]. Looks at the pool only: PostgreSQL may be a thousand processes, and to
    /// walk them so often would show in the figures.
    pub(crate) fn sample(&mut self) {
        if let Some(pool) = self.pool {
            self.samples.push((Instant::now(), tree_cpu_ns(pool)));
            self.rss_kb_peak = self.rss_kb_peak.max(tree_rss_kb(pool));
        }
    }

    /// To be called when pgbench prints a report.
    pub(crate) fn progress(&mut self, report: &Progress) -> Phase {
        let (_, first_elapsed_s) = *self.first.get_or_insert((Instant::now(), report.elapsed_s));
        if let Some(window) = &mut self.window {
            window.reports.push((report.elapsed_s - window.last_elapsed_s, report.tps));
            window.last_elapsed_s = report.elapsed_s;
            // The second before the window is part of the turn. Reports have tenths of a second.
            if report.elapsed_s - window.begin_elapsed_s < self.seconds - 1.0 - 0.05 {
                return Phase::Running;
            }
            window.end = Some(mark(self.pool, self.postmaster));
            return Phase::Over;
        }
        // A first report on time had most of its second for transactions; a late one came right after the last login.
        if first_elapsed_s < SETTLED_AT_S || report.elapsed_s - first_elapsed_s > 1.0 - 0.15 {
            self.window = Some(Window {
                begin: mark(self.pool, self.postmaster),
                begin_elapsed_s: report.elapsed_s,
                end: None,
                reports: Vec::new(),
                last_elapsed_s: report.elapsed_s,
            });
        }
        Phase::Running
    }

    /// The cost, once pgbench has said how long it took to connect.
    pub(crate) fn finish(self, connect_s: f64) -> Cost {
        let mut cost = Cost { rss_kb: self.pool.map(|_| self.rss_kb_peak as f64), ..Cost::default() };
        cost.login_cpu_us = self.login_cpu_us(connect_s);
        let Some(Window { begin, end: Some(end), reports, .. }) = self.window else { return cost };
        let Some(tps) = mean_rate(&reports) else { return cost };
        // Rates over the wall clock between the two readings, so a reading that came late does no harm.
        let transactions = (end.at - begin.at).as_secs_f64() * tps;
        let us_per_tx = |begin_ns: u64, end_ns: u64| end_ns.saturating_sub(begin_ns) as f64 / 1e3 / transactions;
        cost.postgres_cpu_us_per_tx = Some(us_per_tx(begin.postgres_ns, end.postgres_ns));
        cost.pool_cpu_us_per_tx = begin.pool_ns.zip(end.pool_ns).map(|(begin_ns, end_ns)| us_per_tx(begin_ns, end_ns));
        cost
    }

    fn login_cpu_us(&self, connect_s: f64) -> Option<f64> {
        let (first_at, first_elapsed_s) = self.first?;
        let started_at = first_at.checked_sub(Duration::try_from_secs_f64(first_elapsed_s).ok()?)?;
        let connected_at = started_at + Duration::try_from_secs_f64(connect_s).ok()?;
        let (_, before_ns) = self.samples.first()?;
        let ns = interpolate(&self.samples, connected_at)?;
        Some((ns - *before_ns as f64).max(0.0) / 1e3)
    }
}

fn mark(pool: Option<u32>, postmaster: u32) -> Mark {
    Mark { at: Instant::now(), pool_ns: pool.map(tree_cpu_ns), postgres_ns: tree_cpu_ns(postmaster) }
}

/// The mean of rates over the spans they held; none if nothing happened.
fn mean_rate(spans: &[(f64, f64)]) -> Option<f64> {
    let total_s: f64 = spans.iter().map(|(span_s, _)| span_s).sum();
    let events: f64 = spans.iter().map(|(span_s, rate)| span_s * rate).sum();
    (total_s > 0.0 && events > 0.0).then(|| events / total_s)
}

/// The value at a moment between samples that rise with time; none outside them.
fn interpolate(samples: &[(Instant, u64)], at: Instant) -> Option<f64> {
    let after = samples.iter().position(|(time, _)| *time >= at)?;
    let (before_at, before) = *samples.get(after.checked_sub(1)?)?;
    let (after_at, value) = samples[after];
    let share = (at - before_at).as_secs_f64() / (after_at - before_at).as_secs_f64().max(f64::EPSILON);
    Some(before as f64 + share * (value as f64 - before as f64))
}

/// The value that `share` of the sorted values do not exceed (nearest rank).
pub(crate) fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_any_command_name() {
        let stat = "7459 (a) b (c) S 1 5521 5521 0 -1 4194560 1 2 3 4 150 25 1000 200 20 0 1 0 5127 232521728";
        assert_eq!(parse_stat(stat), Some(Stat { own: 175, ended_children: 1200 }));
        assert_eq!(parse_stat("7459 (cut S 1 2"), None);
        assert_eq!(parse_stat("7459 (short) S 1 2"), None);
    }

    #[test]
    fn schedstat_and_rss() {
        assert_eq!(parse_schedstat("379800 48675 2\n"), Some(379_800));
        assert_eq!(parse_rss_kb("Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t    812 kB\n"), Some(812));
        assert_eq!(parse_rss_kb("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn own_tree_is_counted() {
        let child = std::process::Command::new("sleep").arg("100").spawn();
        let mut child = child.unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        let before = tree_cpu_ns(std::process::id());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {}
        assert!(tree_cpu_ns(std::process::id()) > before);
        assert!(tree_rss_kb(std::process::id()) > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process_cpu_ns(u32::MAX, 1), 0);
    }

    #[test]
    fn percentiles() {
        let values: Vec<u32> = (1..=200).collect();
        for (share, expected) in [(0.5, 100), (0.99, 198), (1.0, 200), (0.0, 1)] {
            assert_eq!(percentile(&values, share), Some(expected));
        }
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }

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
        let samples = [(at(0), 0), (at(200), 100), (at(400), 300)];
        assert_eq!(interpolate(&samples, at(300)), Some(200.0));
        assert_eq!(interpolate(&samples, at(500)), None);
    }

    fn progress(elapsed_s: f64) -> Progress {
        Progress { elapsed_s, tps: 10.0, mean_ms: 1.0, stddev_ms: 0.1, failed: 0, skipped: 0 }
    }

    fn phases(seconds: u32, elapsed_s: &[f64]) -> (Vec<Phase>, Watch) {
        let own = std::process::id();
        let mut watch = Watch::new(Some(own), own, seconds);
        let phases = elapsed_s.iter().map(|elapsed_s| watch.progress(&progress(*elapsed_s)));
        (phases.collect(), watch)
    }

    #[test]
    fn a_turn_lasts_its_time_from_when_all_are_connected() {
        use Phase::{Over, Running};
        assert_eq!(phases(2, &[1.0, 2.0]).0, [Running, Over]);
        assert_eq!(phases(4, &[1.1, 2.0, 3.0, 4.1]).0, [Running, Running, Running, Over]);
        // Connected after 8.3 s: a moment to settle, then the window.
        assert_eq!(phases(3, &[8.3, 9.0, 10.0, 11.0, 12.0]).0, [Running, Running, Running, Running, Over]);
    }

    #[test]
    fn costs_come_from_the_window_only() {
        let (_, mut watch) = phases(2, &[1.0, 2.0]);
        assert_eq!(watch.window.as_ref().map(|window| window.reports.clone()), Some(vec![(1.0, 10.0)]));
        if let Some(Window { begin, end: Some(end), .. }) = &mut watch.window {
            end.at = begin.at + Duration::from_secs(1);
            end.pool_ns = begin.pool_ns.map(|ns| ns + 5_000_000);
            end.postgres_ns = begin.postgres_ns + 20_000_000;
        }
        let cost = watch.finish(0.1);
        assert_eq!(cost.pool_cpu_us_per_tx.map(f64::round), Some(500.0));
        assert_eq!(cost.postgres_cpu_us_per_tx.map(f64::round), Some(2000.0));
    }

    #[test]
    fn a_turn_without_reports_costs_nothing_known() {
        let cost = phases(3, &[]).1.finish(0.01);
        assert!(cost.pool_cpu_us_per_tx.is_none() && cost.login_cpu_us.is_none());
        assert!(cost.rss_kb.is_some_and(|rss_kb| rss_kb > 0.0));
    }
}
