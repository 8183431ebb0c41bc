//! Samples: what the server and the machine did while a turn ran.
//!
//! A thread of its own looks once a second, or as often as it is told: at PostgreSQL by a connection of its own, at
//! the machine by `/proc` and the control groups. The machine is looked at in each period; who is asked and does not
//! answer in it is left out of its moment. What a server's version, the machine or the rights do not offer is left out
//! and named; nothing is guessed. The sampler's own cost is measured.

mod asked;
mod group;
mod host;
mod log;
pub mod metrics;
mod pool;
mod postgres;

use std::{
    iter,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ::postgres::Client;

use self::{asked::Asked, host::Host, log::Log, pool::Pool, postgres::Server};
pub use self::{log::LINE_PREFIX, pool::CONSOLE};
use crate::{
    clock,
    connect::Access,
    error::Error,
    proc,
    result::{Checkpoint, Samples},
};

/// Samples a second, at most.
pub const HZ_MAX: u32 = 10;
/// Time limit for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The things to sample.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The way to connect to PostgreSQL itself, as somebody who may see all sessions.
    pub access: Access,
    /// The postmaster, if it runs on this machine.
    pub postmaster: Option<u32>,
    /// The pool before it, likewise.
    pub pool: Option<u32>,
    /// The pool's admin console, if it has one.
    pub pool_console: Option<Access>,
    /// The data directory, for the disk below.
    pub data_dir: Option<PathBuf>,
    /// The server's log, whose lines begin as [`LINE_PREFIX`] says.
    pub log: Option<PathBuf>,
}

/// A running sampler.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: JoinHandle<Recording>,
    log: Option<Log>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// pgbench's process, once it runs; 0 before.
    pgbench: AtomicU32,
}

/// One column's value at one moment.
pub(crate) type Value = (String, f64);

/// The recorded samples, by the wall clock.
#[derive(Default)]
struct Recording {
    moments: Vec<(f64, Vec<Value>)>,
    missing: Vec<String>,
    own_cpu_s: f64,
    elapsed_s: f64,
}

impl Sampler {
    /// Connects, and begins to look, every `period`.
    pub fn start(subject: &Subject, period: Duration) -> Result<Self, Error> {
        let mut server = Server::connect(&subject.access)?;
        let log = subject.log.as_deref().map(Log::from_now).transpose();
        let log = log.map_err(Error::io("open the server's log"))?;
        let host = Host::new(subject, server.backend_pid());
        let pool = subject.pool_console.as_ref().map(Pool::new);
        let mut missing = server.missing();
        missing.extend(host.missing());
        missing.extend(pool.iter().filter_map(Pool::missing));
        let mut asked = vec![Asked::start("PostgreSQL's views", move || server.sample())?];
        if let Some(mut pool) = pool {
            asked.push(Asked::start("the pool's own figures", move || pool.sample())?);
        }
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let recording = Recording { missing, ..Recording::default() };
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || recording.record(asked, host, &of_thread, period))
            .map_err(Error::io("start the sampler's thread"))?;
        Ok(Self { shared, thread, log })
    }

    /// Tells it whom the load comes from.
    pub fn pgbench_is(&self, pid: u32) {
        self.shared.pgbench.store(pid, Ordering::Relaxed);
    }

    /// Ends it, and puts what it saw on the axis of a turn that began at `begin_unix_s` and lasted for `seconds`.
    /// Returns also the processor time that it took, its backend's included, in percent of all processors'.
    pub fn finish(self, begin_unix_s: f64, seconds: f64) -> (Samples, f64) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let checkpoints = self.log.as_ref().map(Log::checkpoints);
        // A panic was reported by its thread.
        let recording = self.thread.join().unwrap_or_default();
        let percent = 100.0 * recording.own_cpu_s / recording.elapsed_s.max(0.001) / f64::from(proc::cores());
        let mut samples = recording.on_axis(begin_unix_s, seconds);
        match checkpoints {
            Some(Ok(checkpoints)) => put_checkpoints(&mut samples, checkpoints, begin_unix_s, seconds),
            Some(Err(error)) => samples.missing.push(format!("checkpoints from the server's log: {error}")),
            None => samples
                .missing
                .push("checkpoints from the server's log: it is not the laboratory's, or as set".to_owned()),
        }
        (samples, percent)
    }
}

impl Recording {
    /// Looks until it is told to stop.
    fn record(mut self, mut asked: Vec<Asked>, mut host: Host, shared: &Shared, period: Duration) -> Self {
        let begin = Instant::now();
        let own_cpu_s = proc::thread_cpu_s();
        let backend_cpu_s = host.backend_cpu_s();
        let mut next = begin;
        while !shared.stop.load(Ordering::Relaxed) {
            next += period;
            asked.iter_mut().for_each(Asked::ask);
            // First, so that its looks are a period apart: rates over a few milliseconds would say nothing.
            let pgbench = Some(shared.pgbench.load(Ordering::Relaxed)).filter(|pid| *pid != 0);
            let mut values = host.sample(pgbench);
            let unix_s = clock::unix_s();
            values.extend(asked.iter_mut().flat_map(|one| one.answer(next)));
            self.moments.push((unix_s, values));
            while Instant::now() < next && !shared.stop.load(Ordering::Relaxed) {
                thread::sleep((next - Instant::now()).min(Duration::from_millis(50)));
            }
            // A tick that took too long is not made up for.
            next = next.max(Instant::now());
        }
        self.missing.extend(asked.iter().filter_map(Asked::missing));
        self.elapsed_s = begin.elapsed().as_secs_f64();
        let backend_s = host.backend_cpu_s().zip(backend_cpu_s).map_or(0.0, |(after, before)| after - before);
        let asked_s: f64 = asked.iter().map(Asked::cpu_s).sum();
        asked.into_iter().for_each(Asked::end);
        self.own_cpu_s = proc::thread_cpu_s() - own_cpu_s + asked_s + backend_s;
        self
    }

    fn on_axis(self, begin_unix_s: f64, seconds: f64) -> Samples {
        let mut samples = Samples { missing: self.missing, ..Samples::default() };
        for (unix_s, values) in self.moments {
            let t_s = unix_s - begin_unix_s;
            // A value is about the time before it; the first second is still of the turn.
            if t_s <= 0.05 || t_s > seconds + 0.5 {
                continue;
            }
            samples.t_s.push(round(t_s));
            for (column, value) in values {
                samples.put(&column, round(value));
            }
        }
        samples.even_out();
        samples.metrics = samples.columns.keys().map(|column| (column.clone(), metrics::describe(column))).collect();
        samples
    }
}

/// A session of the sampler's own.
fn connect(access: &Access) -> Result<Client, ::postgres::Error> {
    access.named("sluice-lab sampler", CONNECT_MAX).connect()
}

/// The log's checkpoints on the turn's axis. They say better than any look when one was under way.
fn put_checkpoints(samples: &mut Samples, checkpoints: Vec<Checkpoint>, begin_unix_s: f64, seconds: f64) {
    let on_axis = |checkpoint: Checkpoint| Checkpoint {
        from_s: round(checkpoint.from_s - begin_unix_s),
        to_s: checkpoint.to_s.map(|to_s| round(to_s - begin_unix_s)),
        ..checkpoint
    };
    samples.checkpoints = checkpoints.into_iter().map(on_axis).filter(|one| one.overlaps(0.0, seconds)).collect();
    let runs = |(before_s, t_s): (f64, f64)| samples.checkpoints.iter().any(|one| one.overlaps(before_s, t_s));
    let moments = samples.t_s.iter().copied();
    let spans = iter::once(0.0).chain(moments.clone()).zip(moments);
    let column = spans.map(|span| Some(f64::from(u8::from(runs(span))))).collect();
    samples.columns.insert(metrics::CHECKPOINT.to_owned(), column);
}

/// To the millisecond.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Turns counters into rates between two looks.
#[derive(Default)]
pub(crate) struct Rates {
    last: Option<(Instant, std::collections::HashMap<String, f64>)>,
}

/// The rise of each counter since the last look, and the time between; nothing at the first look. A counter that
/// fell was reset, and is left out once.
pub(crate) struct Rise {
    pub(crate) seconds: f64,
    by_counter: std::collections::HashMap<String, f64>,
}

impl Rates {
    pub(crate) fn rise(&mut self, at: Instant, counters: Vec<Value>) -> Option<Rise> {
        let now: std::collections::HashMap<String, f64> = counters.into_iter().collect();
        let rise = self.last.as_ref().and_then(|(then, last)| {
            let seconds = at.duration_since(*then).as_secs_f64();
            let by_counter = now.iter().filter_map(|(name, value)| {
                let rise = value - last.get(name)?;
                (rise >= 0.0).then(|| (name.clone(), rise))
            });
            (seconds > 0.0).then(|| Rise { seconds, by_counter: by_counter.collect() })
        });
        self.last = Some((at, now));
        rise
    }
}

impl Rise {
    /// By how much.
    pub(crate) fn of(&self, counter: &str) -> Option<f64> {
        self.by_counter.get(counter).copied()
    }

    /// A second.
    pub(crate) fn rate(&self, counter: &str) -> Option<f64> {
        Some(self.of(counter)? / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates() {
        let begin = Instant::now();
        let mut rates = Rates::default();
        let look = |value: f64| vec![("a".to_owned(), value)];
        assert!(rates.rise(begin, look(10.0)).is_none());
        let rise = rates.rise(begin + Duration::from_secs(2), look(16.0)).unwrap();
        assert_eq!((rise.rate("a"), rise.of("a"), rise.rate("b")), (Some(3.0), Some(6.0), None));
        let reset = rates.rise(begin + Duration::from_secs(3), look(1.0)).unwrap();
        assert_eq!(reset.rate("a"), None);
    }

    #[test]
    fn checkpoints_of_the_log_are_put_on_the_axis() {
        let mut samples = Samples { t_s: vec![1.0, 2.0, 3.0, 4.0], ..Samples::default() };
        let checkpoint = |from_s: f64, to_s: Option<f64>| Checkpoint { from_s, to_s, ..Checkpoint::default() };
        let told = vec![checkpoint(90.0, Some(95.0)), checkpoint(101.2, Some(101.9)), checkpoint(103.5, None)];
        put_checkpoints(&mut samples, told, 100.0, 4.0);
        assert_eq!(samples.checkpoints, [checkpoint(1.2, Some(1.9)), checkpoint(3.5, None)]);
        assert_eq!(samples.columns[metrics::CHECKPOINT], [0.0, 1.0, 0.0, 1.0].map(Some));
    }

    #[test]
    fn what_lies_outside_of_the_turn_is_left_out() {
        let moment = |unix_s: f64| (unix_s, vec![(metrics::ACTIVE.to_owned(), unix_s)]);
        let recording = Recording {
            moments: [99.0, 100.5, 101.5, 110.2, 111.5].map(moment).into_iter().collect(),
            ..Recording::default()
        };
        let samples = recording.on_axis(100.0, 10.0);
        assert_eq!(samples.t_s, [0.5, 1.5, 10.2]);
        assert_eq!(samples.metrics[metrics::ACTIVE].title, "active sessions");
    }
}
