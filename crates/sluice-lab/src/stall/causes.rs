//! The rules that name a stall's causes, each with the figures that speak for it.
//!
//! A rule sees the samples inside one stall and those outside of all stalls. It names its cause only if the figures
//! inside pass a threshold of its own *and* differ from those outside: what was there all the time explains no stall.
//! Rules know nothing of each other; several may be right, as when a checkpoint's writes use up an I/O limit.

use super::{Cause, Evidence, Finding, Stall};
use crate::{
    result::{Checkpoint, Samples},
    sample::metrics,
};

/// Circumstances that a rule may know besides the samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// Requests a second that the instance's class allows, reads and writes each.
    pub iops_max: Option<f64>,
    /// Processors of the machine.
    pub cores: f64,
}

/// The share of active sessions that has to wait for one thing to blame it.
const WAIT_SHARE_MIN: f64 = 0.4;
/// Most of them.
const MOST_SHARE: f64 = 0.5;
/// The factor by which a share has to be larger inside a stall than outside.
const TIMES_OUTSIDE: f64 = 2.0;
/// The strength of waits: they explain less than a limit that stops sessions all the same.
const WAITS_STRENGTH: f64 = 0.9;
/// A limit that is used up.
const LIMIT_STRENGTH: f64 = 0.95;
/// The factor by which the number of sessions has to be larger.
const SESSIONS_TIMES: f64 = 3.0;
/// Sessions tell what they counted at most once a second, and only between transactions.
const COUNTED_LATE_S: f64 = 2.0;
/// Full-page images a commit, at least.
const IMAGES_MIN: f64 = 0.05;
/// Full-page images a commit, inside against outside.
const IMAGES_TIMES: f64 = 2.0;
/// Bytes of log a commit, likewise.
const BYTES_TIMES: f64 = 1.5;
/// Of an I/O limit, as used up.
const CAP_SHARE: f64 = 0.85;
/// A disk that is busy for so much of the time has no requests to spare, in percent.
const DISK_BUSY_PERCENT: f64 = 95.0;
/// Periods in which a group was throttled, in percent.
const THROTTLED_PERCENT: f64 = 25.0;
/// The share of the machine's processors that others have to have taken more than outside.
const TAKEN_SHARE: f64 = 0.3;
/// Others that had much before took more if they have so much now, so much of it more, and ours less than half of what
/// they had.
const MOSTLY_TAKEN_SHARE: f64 = 0.7;
const MORE_TAKEN_SHARE: f64 = 0.15;
/// Active sessions inside, as a share of those outside, below which nobody asked.
const ASKED_SHARE: f64 = 0.3;
/// Sessions at work, in the mean, that looks can tell from none.
const BUSY_SESSIONS: f64 = 0.5;
/// On a machine that is less idle, in percent, the client may not have been let to ask.
const IDLE_PERCENT: f64 = 15.0;
/// It may have been, if the machine was hardly more idle before: by less than that.
const AS_IDLE_PERCENT: f64 = 5.0;

/// Names the causes of each stall, strongest first.
pub fn attribute(stalls: &mut [Stall], samples: &Samples, circumstances: Circumstances) {
    let spans: Vec<Stall> = stalls.to_vec();
    for stall in stalls {
        let view = View { samples, stall: &stall.clone(), all: &spans, circumstances };
        let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule(&view)).collect();
        findings.sort_by(|a, b| b.strength.total_cmp(&a.strength));
        if findings.is_empty() {
            findings.push(view.unknown());
        }
        stall.findings = findings;
    }
}

type Rule = fn(&View<'_>) -> Option<Finding>;

const RULES: [Rule; 11] = [
    lock_waits,
    replica_waits,
    wal_sync,
    sleep,
    checkpoint_writes,
    full_page_images,
    io_cap,
    cpu_throttling,
    cpu_taken,
    autovacuum,
    client,
];

/// The samples, seen from one stall.
struct View<'a> {
    samples: &'a Samples,
    stall: &'a Stall,
    all: &'a [Stall],
    circumstances: Circumstances,
}

/// A figure inside the stall and outside of all stalls.
#[derive(Clone, Copy)]
struct Pair {
    inside: f64,
    outside: Option<f64>,
}

impl Pair {
    fn outside_or_zero(self) -> f64 {
        self.outside.unwrap_or(0.0)
    }

    fn is_times_outside(self, times: f64) -> bool {
        self.inside >= times * self.outside_or_zero()
    }

    /// As evidence, by the words of a column.
    fn evidence(self, column: &str) -> Evidence {
        let metric = metrics::describe(column);
        Evidence { what: metric.title, unit: metric.unit, inside: self.inside, outside: self.outside }
    }
}

/// Moments that a rule compares.
#[derive(Clone, Copy)]
enum Span {
    /// The stall's.
    Inside,
    /// The stall's, and those right behind it, in which sessions tell what they did inside.
    UntilCounted,
    /// Those of no stall, nor right behind one.
    Outside,
}

/// The samples of a span.
#[derive(Clone, Copy)]
struct Side<'a> {
    view: &'a View<'a>,
    span: Span,
}

impl Side<'_> {
    fn covers(&self, t_s: f64) -> bool {
        let until_counted = |stall: &Stall| t_s > stall.from_s && t_s <= stall.to_s + COUNTED_LATE_S;
        match self.span {
            Span::Inside => self.view.stall.covers(t_s),
            Span::UntilCounted => until_counted(self.view.stall),
            Span::Outside => !self.view.all.iter().any(until_counted),
        }
    }

    fn mean(&self, column: &str) -> Option<f64> {
        self.view.samples.mean(column, |t_s| self.covers(t_s))
    }

    /// Of a column that counts sessions: where a value is missing though the server was looked at, it counted nobody.
    fn mean_count(&self, column: &str) -> Option<f64> {
        let samples = self.view.samples;
        let moments = samples.points(metrics::ACTIVE).filter(|(t_s, _)| self.covers(*t_s)).count();
        let sum: f64 = samples.points(column).filter(|(t_s, _)| self.covers(*t_s)).map(|(_, value)| value).sum();
        (moments > 0).then(|| sum / moments as f64)
    }

    /// A rate by commit, over the whole span: single moments may have none.
    fn per_commit(&self, column: &str, unit: f64) -> Option<f64> {
        let commits = self.mean(metrics::COMMITS).filter(|commits| *commits > 0.0)?;
        Some(self.mean(column)? * unit / commits)
    }

    /// The number of sessions that these columns count.
    fn sessions(&self, columns: &[&str]) -> Option<f64> {
        columns.iter().map(|column| self.mean_count(column)).sum()
    }

    /// The share of active sessions that these columns count.
    fn share_of_active(&self, columns: &[&str]) -> Option<f64> {
        let active = self.mean_count(metrics::ACTIVE).filter(|active| *active >= BUSY_SESSIONS)?;
        Some(self.sessions(columns)? / active)
    }
}

impl View<'_> {
    fn side(&self, span: Span) -> Side<'_> {
        Side { view: self, span }
    }

    fn inside(&self, column: &str) -> Option<f64> {
        self.side(Span::Inside).mean(column)
    }

    /// A figure of the stall, and of what is ordinary.
    fn compare(&self, figure: impl Fn(Side<'_>) -> Option<f64>) -> Option<Pair> {
        self.compare_with(Span::Inside, figure)
    }

    fn compare_with(&self, span: Span, figure: impl Fn(Side<'_>) -> Option<f64>) -> Option<Pair> {
        Some(Pair { inside: figure(self.side(span))?, outside: figure(self.side(Span::Outside)) })
    }

    fn pair(&self, column: &str) -> Option<Pair> {
        self.compare(|side| side.mean(column))
    }

    /// A share as evidence, in percent.
    fn percent(&self, what: &str, pair: Pair) -> Evidence {
        Evidence {
            what: what.to_owned(),
            unit: "%".to_owned(),
            inside: 100.0 * pair.inside,
            outside: pair.outside.map(|share| 100.0 * share),
        }
    }

    /// Columns as evidence, as far as they exist.
    fn evidence(&self, columns: &[&str]) -> Vec<Evidence> {
        columns.iter().filter_map(|column| Some(self.pair(column)?.evidence(column))).collect()
    }

    /// Evidence from the log about checkpoints that were under way.
    fn checkpoints(&self) -> Vec<Evidence> {
        let inside = |one: &&Checkpoint| one.overlaps(self.stall.from_s, self.stall.to_s);
        let evidence = |one: &Checkpoint| {
            let what = format!("buffers written by the checkpoint of second {:.0} ({})", one.from_s, one.reason);
            Some(Evidence { what, unit: "buffers".to_owned(), inside: one.buffers? as f64, outside: None })
        };
        self.samples.checkpoints.iter().filter(inside).filter_map(evidence).collect()
    }

    fn unknown(&self) -> Finding {
        let evidence = self.evidence(&[metrics::ACTIVE, metrics::ON_CPU, metrics::CPU_IDLE, metrics::PRESSURE_IO]);
        Finding { cause: Cause::Unknown, strength: 0.0, evidence, confirmation: None }
    }

    /// The rule of causes that show as what active sessions wait for: a much larger share of them, or many more, or,
    /// where most wait anyway, half as many that do not, as with commits before a slow disk.
    fn waits(&self, cause: Cause, what: &str, columns: &[&str], also: &[&str]) -> Option<Finding> {
        let share = self.compare(|side| side.share_of_active(columns))?;
        let sessions = self.compare(|side| side.sessions(columns))?;
        let others_are_fewer = (1.0 - share.inside) * TIMES_OUTSIDE <= 1.0 - share.outside_or_zero();
        let differs = share.is_times_outside(TIMES_OUTSIDE)
            || sessions.is_times_outside(SESSIONS_TIMES)
            || (share.outside_or_zero() >= MOST_SHARE && others_are_fewer);
        let is_cause = share.inside >= WAIT_SHARE_MIN && differs;
        is_cause.then(|| {
            finding(
                cause,
                WAITS_STRENGTH * share.inside,
                [vec![self.percent(what, share)], self.evidence(also)].concat(),
            )
        })
    }
}

fn finding(cause: Cause, strength: f64, evidence: Vec<Evidence>) -> Finding {
    Finding { cause, strength: strength.clamp(0.0, 1.0), evidence, confirmation: None }
}

fn lock_waits(view: &View<'_>) -> Option<Finding> {
    view.waits(
        Cause::LockWaits,
        "active sessions that wait for a lock",
        &["wait.Lock"],
        &[metrics::BLOCKED, metrics::IDLE_IN_TRANSACTION],
    )
}

fn replica_waits(view: &View<'_>) -> Option<Finding> {
    let columns = ["event.IPC.SyncRep"];
    let what = "active sessions that wait for a standby";
    view.waits(Cause::ReplicaWaits, what, &columns, &[metrics::REPLICA_LAG])
}

/// PostgreSQL 17 spells these events anew.
fn wal_sync(view: &View<'_>) -> Option<Finding> {
    let columns =
        ["event.IO.WALSync", "event.IO.WalSync", "event.IO.WALWrite", "event.IO.WalWrite", "event.LWLock.WALWrite"];
    let what = "active sessions that wait for the write-ahead log";
    view.waits(Cause::WalSync, what, &columns, &[metrics::WAL_BYTES, metrics::DISK_WRITES, metrics::DISK_BUSY])
}

fn sleep(view: &View<'_>) -> Option<Finding> {
    view.waits(Cause::Sleep, "active sessions that sleep", &["event.Timeout.PgSleep"], &[])
}

/// A checkpoint runs, and sessions wait for input and output more than before it, or the disk writes more.
fn checkpoint_writes(view: &View<'_>) -> Option<Finding> {
    let running = view.pair(metrics::CHECKPOINT)?;
    if running.inside < 0.5 || !running.is_times_outside(1.5) {
        return None;
    }
    let io = ["wait.IO", "event.LWLock.WALWrite", "event.LWLock.BufferContent"];
    let waits = view.compare(|side| side.share_of_active(&io));
    let waits = waits.filter(|share| share.inside >= 0.2 && share.is_times_outside(1.5));
    let pressure = view.pair(metrics::PRESSURE_IO).filter(|share| share.inside >= 20.0 && share.is_times_outside(1.5));
    if waits.is_none() && pressure.is_none() {
        return None;
    }
    let waiting_share = waits.map_or(0.0, |share| share.inside).max(pressure.map_or(0.0, |share| share.inside / 100.0));
    let waiting = waits.map(|share| view.percent("active sessions that wait for input and output", share));
    let columns = [
        metrics::CHECKPOINT,
        metrics::CHECKPOINT_BUFFERS,
        metrics::DISK_WRITES,
        metrics::DISK_BUSY,
        metrics::PRESSURE_IO,
    ];
    let evidence = waiting.into_iter().chain(view.checkpoints()).chain(view.evidence(&columns));
    Some(finding(Cause::CheckpointWrites, WAITS_STRENGTH * waiting_share, evidence.collect()))
}

/// The share of the write-ahead log that images of pages of 8 kB make up says how much they explain. Inside alone they
/// show where sessions commit often; where a commit takes longer than the stall, they are counted behind it.
fn full_page_images(view: &View<'_>) -> Option<Finding> {
    let per_commit = |span| {
        let images = view.compare_with(span, |side| side.per_commit(metrics::WAL_IMAGES, 1.0))?;
        let bytes = view.compare_with(span, |side| side.per_commit(metrics::WAL_BYTES, 1e6))?;
        // Images are counted when a session says so; the log's own length tells whether they were written then.
        let are_more = images.is_times_outside(IMAGES_TIMES) && bytes.is_times_outside(BYTES_TIMES);
        (images.inside >= IMAGES_MIN && are_more).then_some((images, bytes))
    };
    let (images, bytes) = per_commit(Span::Inside).or_else(|| per_commit(Span::UntilCounted))?;
    let share = if bytes.inside > 0.0 { (images.inside * 8192.0 / bytes.inside).min(1.0) } else { 0.0 };
    // More log alone stops nobody; it does where writing is what is scarce.
    let busy = view.inside(metrics::PRESSURE_IO).map_or(0.5, |percent| (percent / 50.0).clamp(0.2, 1.0));
    let per_commit = [images.evidence(metrics::WAL_IMAGES_PER_TX), bytes.evidence(metrics::WAL_BYTES_PER_TX)];
    let evidence = per_commit.into_iter().chain(view.evidence(&[metrics::WAL_IMAGES, metrics::WAL_BYTES]));
    Some(finding(Cause::FullPageImages, 0.8 * share * busy, evidence.collect()))
}

fn io_cap(view: &View<'_>) -> Option<Finding> {
    let columns = [
        metrics::GROUP_READS,
        metrics::GROUP_WRITES,
        metrics::DISK_READS,
        metrics::DISK_WRITES,
        metrics::DISK_BUSY,
        metrics::PRESSURE_IO,
    ];
    if let Some(iops_max) = view.circumstances.iops_max {
        let (used, column) =
            [(metrics::GROUP_READS, metrics::DISK_READS), (metrics::GROUP_WRITES, metrics::DISK_WRITES)]
                .into_iter()
                .filter_map(|(group, disk)| {
                    let column = if view.inside(group).is_some() { group } else { disk };
                    Some((view.pair(column)?, column))
                })
                .max_by(|(a, _), (b, _)| a.inside.total_cmp(&b.inside))?;
        let share = used.inside / iops_max;
        let is_cause = share >= CAP_SHARE && used.outside_or_zero() < CAP_SHARE * iops_max;
        let cap = Evidence {
            what: format!("of the {iops_max:.0} requests a second that are allowed, used ({column})"),
            unit: "%".to_owned(),
            inside: 100.0 * share,
            outside: used.outside.map(|requests| 100.0 * requests / iops_max),
        };
        return is_cause.then(|| finding(Cause::IoCap, LIMIT_STRENGTH, [vec![cap], view.evidence(&columns)].concat()));
    }
    let busy = view.pair(metrics::DISK_BUSY)?;
    let is_cause = busy.inside >= DISK_BUSY_PERCENT && busy.outside_or_zero() < 0.8 * DISK_BUSY_PERCENT;
    is_cause.then(|| finding(Cause::IoCap, 0.5, view.evidence(&columns)))
}

fn cpu_throttling(view: &View<'_>) -> Option<Finding> {
    let throttled = view.pair(metrics::THROTTLED)?;
    let is_cause = throttled.inside >= THROTTLED_PERCENT && throttled.is_times_outside(1.5);
    let columns = [metrics::THROTTLED, metrics::CPU_POSTGRES, metrics::ON_CPU];
    is_cause.then(|| finding(Cause::CpuThrottling, LIMIT_STRENGTH, view.evidence(&columns)))
}

/// By other processes of the machine, or by the host that it runs on.
fn cpu_taken(view: &View<'_>) -> Option<Finding> {
    let cores = view.circumstances.cores.max(1.0);
    let taken = view.compare(|side| {
        let others = side.mean(metrics::CPU_OTHERS)?;
        Some(others / cores + side.mean(metrics::CPU_STEAL).unwrap_or(0.0) / 100.0)
    })?;
    let (inside, outside) = (taken.inside, taken.outside_or_zero());
    let ours = view.pair(metrics::CPU_POSTGRES);
    let lost_half = ours.is_some_and(|ours| ours.outside.is_some_and(|outside| ours.inside < 0.5 * outside));
    let is_starved = inside >= MOSTLY_TAKEN_SHARE && inside - outside >= MORE_TAKEN_SHARE && lost_half;
    let is_cause = inside - outside >= TAKEN_SHARE || is_starved;
    let columns = [metrics::CPU_OTHERS, metrics::CPU_STEAL, metrics::CPU_POSTGRES, metrics::PRESSURE_CPU];
    // Sessions without a processor wait for all kinds of things: for others that have none either.
    let strength = if is_starved { LIMIT_STRENGTH } else { inside.min(WAITS_STRENGTH) };
    is_cause.then(|| finding(Cause::CpuTaken, strength, view.evidence(&columns)))
}

/// Circumstantial: a worker was there and was not before. What it did shows in the other rules.
fn autovacuum(view: &View<'_>) -> Option<Finding> {
    let workers = view.pair(metrics::AUTOVACUUM)?;
    let is_cause = workers.inside >= 0.5 && workers.is_times_outside(TIMES_OUTSIDE);
    let columns = [
        metrics::AUTOVACUUM,
        metrics::VACUUM_READS,
        metrics::VACUUM_WRITES,
        metrics::DISK_READS,
        metrics::DISK_WRITES,
        metrics::WAL_BYTES,
    ];
    is_cause.then(|| finding(Cause::Autovacuum, 0.3, view.evidence(&columns)))
}

/// The server's sessions had nothing to do, and did before. Under a light load hardly any is ever seen at work; then
/// pgbench's own time tells.
fn client(view: &View<'_>) -> Option<Finding> {
    let active = view.pair(metrics::ACTIVE)?;
    let is_busy = |sessions: f64| sessions >= BUSY_SESSIONS;
    let asked = match active.outside {
        Some(outside) if is_busy(outside) => active,
        _ if is_busy(active.inside) => return None,
        _ => view.pair(metrics::CPU_PGBENCH)?,
    };
    let share = asked.inside / asked.outside.filter(|outside| *outside > 0.0)?;
    // A processor that waits for a disk has nothing else to do. Linux counts a wait in io_uring as one, a pool's as well.
    let idle =
        view.compare(|side| Some(side.mean(metrics::CPU_IDLE)? + side.mean(metrics::CPU_IO_WAIT).unwrap_or(0.0)));
    let was_as_busy = |idle: &Pair| {
        idle.outside.is_some_and(|outside| outside - idle.inside < AS_IDLE_PERCENT) && cpu_taken(view).is_none()
    };
    let was_free_to_ask = idle.is_none_or(|idle| idle.inside >= IDLE_PERCENT || was_as_busy(&idle));
    let columns =
        [metrics::ACTIVE, metrics::IDLE_IN_TRANSACTION, metrics::CPU_PGBENCH, metrics::CPU_IDLE, metrics::CPU_IO_WAIT];
    let is_cause = share <= ASKED_SHARE && was_free_to_ask;
    is_cause.then(|| finding(Cause::Client, 1.0 - share, view.evidence(&columns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of 20 s whose stall is from second 10 to 14; columns as (name, outside, inside).
    fn causes(columns: &[(&str, f64, f64)]) -> Vec<Cause> {
        let circumstances = Circumstances { iops_max: Some(400.0), cores: 2.0 };
        causes_in(columns, circumstances)
    }

    fn causes_in(columns: &[(&str, f64, f64)], circumstances: Circumstances) -> Vec<Cause> {
        let mut samples = Samples::default();
        for second in 1..=20 {
            samples.t_s.push(f64::from(second));
            for (column, outside, inside) in columns {
                let is_inside = (11..=14).contains(&second);
                samples.put(column, if is_inside { *inside } else { *outside });
            }
        }
        causes_of(&samples, circumstances)
    }

    fn causes_of(samples: &Samples, circumstances: Circumstances) -> Vec<Cause> {
        let mut stalls =
            [Stall { from_s: 10.0, to_s: 14.0, tps: 10.0, ordinary_tps: 100.0, max_ms: None, findings: Vec::new() }];
        attribute(&mut stalls, samples, circumstances);
        stalls[0].findings.iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn what_sessions_wait_for() {
        let of = |event: &str| causes(&[(metrics::ACTIVE, 8.0, 16.0), (event, 0.5, 15.0)]);
        assert_eq!(of("wait.Lock"), [Cause::LockWaits]);
        assert_eq!(of("event.IPC.SyncRep"), [Cause::ReplicaWaits]);
        assert_eq!(of("event.IO.WALSync"), [Cause::WalSync]);
        assert_eq!(of("event.IO.WalSync"), [Cause::WalSync]);
        assert_eq!(of("event.Timeout.PgSleep"), [Cause::Sleep]);
        assert_eq!(of("event.IO.DataFileRead"), [Cause::Unknown]);
    }

    #[test]
    fn a_commit_waits_for_the_log_anyway() {
        let waits = |active: (f64, f64), sync: (f64, f64)| {
            causes(&[(metrics::ACTIVE, active.0, active.1), ("event.IO.WALSync", sync.0, sync.1)])
        };
        // With a rate, more sessions wait; without one, all of them do.
        assert_eq!(waits((1.0, 8.0), (0.7, 7.8)), [Cause::WalSync]);
        assert_eq!(waits((16.0, 16.0), (11.0, 15.8)), [Cause::WalSync]);
        assert_eq!(waits((16.0, 16.0), (11.0, 12.0)), [Cause::Unknown]);
    }

    #[test]
    fn what_was_there_all_the_time_explains_nothing() {
        assert_eq!(causes(&[(metrics::ACTIVE, 16.0, 16.0), ("wait.Lock", 12.0, 13.0)]), [Cause::Unknown]);
        assert_eq!(causes(&[(metrics::THROTTLED, 90.0, 95.0)]), [Cause::Unknown]);
        assert_eq!(causes(&[(metrics::GROUP_WRITES, 399.0, 400.0)]), [Cause::Unknown]);
    }

    #[test]
    fn a_checkpoint_that_uses_the_limit_up() {
        let found = causes(&[
            (metrics::ACTIVE, 4.0, 16.0),
            ("wait.IO", 0.2, 11.0),
            (metrics::CHECKPOINT, 0.0, 1.0),
            (metrics::GROUP_WRITES, 120.0, 398.0),
            (metrics::COMMITS, 1000.0, 170.0),
            (metrics::WAL_IMAGES, 10.0, 200.0),
            (metrics::WAL_BYTES, 1.0, 2.0),
        ]);
        assert_eq!(found, [Cause::IoCap, Cause::CheckpointWrites, Cause::FullPageImages]);
    }

    #[test]
    fn images_that_were_counted_late_explain_nothing() {
        let of = |mb_per_s: f64| {
            let log = (metrics::WAL_BYTES, 0.45, mb_per_s);
            causes(&[(metrics::COMMITS, 80.0, 13.0), (metrics::WAL_IMAGES, 52.0, 428.0), log])
        };
        assert_eq!(of(0.05), [Cause::Unknown]);
        assert_eq!(of(4.0), [Cause::FullPageImages]);
        assert_eq!(causes(&[(metrics::COMMITS, 80.0, 0.0), (metrics::WAL_IMAGES, 52.0, 428.0)]), [Cause::Unknown]);
    }

    /// Sessions that stand still in the log count what they wrote when they go on.
    #[test]
    fn images_that_are_counted_behind_the_stall_explain_it() {
        let of = |bytes_inside: f64| {
            let mut samples = Samples::default();
            for second in 1..=20 {
                let (commits, images, bytes) = match second {
                    11..=14 => (10.0, 0.0, bytes_inside),
                    15 => (200.0, 2000.0, 0.5),
                    _ => (100.0, 1.0, 0.5),
                };
                samples.t_s.push(f64::from(second));
                samples.put(metrics::COMMITS, commits);
                samples.put(metrics::WAL_IMAGES, images);
                samples.put(metrics::WAL_BYTES, bytes);
            }
            causes_of(&samples, Circumstances::default())
        };
        assert_eq!(of(3.0), [Cause::FullPageImages]);
        assert_eq!(of(0.05), [Cause::Unknown]);
    }

    #[test]
    fn processors() {
        assert_eq!(causes(&[(metrics::THROTTLED, 2.0, 80.0)]), [Cause::CpuThrottling]);
        let starved = [(metrics::THROTTLED, 2.0, 60.0), (metrics::ACTIVE, 1.0, 8.0), ("event.IO.WALSync", 0.7, 8.0)];
        assert_eq!(causes(&starved), [Cause::CpuThrottling, Cause::WalSync]);
        assert_eq!(causes(&[(metrics::CPU_OTHERS, 0.1, 1.4)]), [Cause::CpuTaken]);
        assert_eq!(causes(&[(metrics::CPU_OTHERS, 0.1, 0.1), (metrics::CPU_STEAL, 1.0, 60.0)]), [Cause::CpuTaken]);
        assert_eq!(causes(&[(metrics::CPU_OTHERS, 0.1, 0.5)]), [Cause::Unknown]);
        let more = [(metrics::CPU_OTHERS, 1.2, 1.7), (metrics::CPU_POSTGRES, 0.6, 0.1)];
        assert_eq!(causes(&more), [Cause::CpuTaken]);
        // A machine that is busy all the time stops nobody in particular, though whoever waits for a lock needs little.
        let busy = [(metrics::CPU_OTHERS, 1.78, 1.93), (metrics::CPU_POSTGRES, 0.6, 0.1)];
        assert_eq!(causes(&busy), [Cause::Unknown]);
        let queued = [(metrics::ACTIVE, 1.0, 2.0), ("event.LWLock.WALWrite", 0.5, 2.0)];
        assert_eq!(causes(&[&more[..], &queued[..]].concat()), [Cause::CpuTaken, Cause::WalSync]);
    }

    #[test]
    fn a_disk_without_a_known_limit() {
        let found = causes_in(&[(metrics::DISK_BUSY, 20.0, 99.0)], Circumstances { iops_max: None, cores: 2.0 });
        assert_eq!(found, [Cause::IoCap]);
    }

    #[test]
    fn others() {
        assert_eq!(causes(&[(metrics::AUTOVACUUM, 0.0, 1.0)]), [Cause::Autovacuum]);
        assert_eq!(causes(&[(metrics::ACTIVE, 12.0, 0.2)]), [Cause::Client]);
        assert_eq!(causes(&[(metrics::ACTIVE, 12.0, 0.2), (metrics::CPU_IDLE, 10.0, 2.0)]), [Cause::Unknown]);
        let waits = [(metrics::ACTIVE, 12.0, 0.2), (metrics::CPU_IDLE, 1.0, 0.0), (metrics::CPU_IO_WAIT, 9.0, 98.0)];
        assert_eq!(causes(&waits), [Cause::Client], "a wait for a disk, or in io_uring, is no work");
        let busy = [(metrics::ACTIVE, 12.0, 0.2), (metrics::CPU_IDLE, 0.1, 0.0)];
        assert_eq!(causes(&busy), [Cause::Client], "others need the processors before, too");
        let taken = [&busy[..], &[(metrics::CPU_OTHERS, 0.1, 1.9)]].concat();
        assert_eq!(causes(&taken), [Cause::CpuTaken]);
        assert_eq!(causes(&[(metrics::ACTIVE, 0.2, 0.0), (metrics::CPU_PGBENCH, 0.1, 0.001)]), [Cause::Client]);
        assert_eq!(causes(&[(metrics::ACTIVE, 0.2, 8.0), (metrics::CPU_PGBENCH, 0.1, 0.001)]), [Cause::Unknown]);
        assert_eq!(causes(&[]), [Cause::Unknown]);
    }

    #[test]
    fn evidence_has_both_sides() {
        let mut samples = Samples::default();
        for (t_s, waiting) in [(1.0, 0.0), (2.0, 4.0)] {
            samples.t_s.push(t_s);
            samples.put(metrics::ACTIVE, 4.0);
            samples.put("wait.Lock", waiting);
        }
        let mut stalls =
            [Stall { from_s: 1.0, to_s: 2.0, tps: 0.0, ordinary_tps: 9.0, max_ms: None, findings: Vec::new() }];
        attribute(&mut stalls, &samples, Circumstances::default());
        let evidence = &stalls[0].findings[0].evidence[0];
        assert_eq!((evidence.inside, evidence.outside), (100.0, Some(0.0)));
    }
}
