//! A worker on its thread: what moves it on is the driver, and the clock.

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{Engine, hub::Hub, time::Time};

use crate::{host::Host, net::System, pace::Pace, pulse::Turns};

/// The longest sleep of a worker with nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Time limit for the driver to stop, once its worker has nothing left to do.
const STOP_TIME: Duration = Duration::from_millis(100);

/// The number of workers where the configuration has none. Half of the cores: PostgreSQL, on the same host or not, needs far
/// more than the pool.
pub(crate) fn default_workers() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores / 2).clamp(1, 64) as u16
}

/// The parts that a worker starts with.
pub(crate) struct Setup {
    pub(crate) hub: Arc<Hub>,
    pub(crate) host: Host,
    pub(crate) listeners: Vec<OwnedFd>,
    /// The start of the service: time zero of the core.
    pub(crate) epoch: Instant,
    /// The count of its turns.
    pub(crate) turns: Turns,
}

/// A worker on its thread.
pub(crate) struct Worker<D: System> {
    inner: sluice_net::Worker<D, Host>,
    epoch: Instant,
    turns: Turns,
}

impl<D: System> Worker<D> {
    /// To be called on the thread that will run it.
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let Setup { hub, host, listeners, epoch, turns } = setup;
        let (mut driver, buffers) = D::new()?;
        driver.watch_mailbox(host.mailboxes.bell(host.worker).watch()?)?;
        for listener in listeners {
            driver.accept(listener)?;
        }
        let engine = Engine::new(host.worker, hub);
        Ok(Self { inner: sluice_net::Worker::new(engine, driver, buffers, host), epoch, turns })
    }

    /// Runs until it has nothing left after a [`sluice_core::mail::Mail::Stop`].
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut pace = Pace::new(Instant::now());
        loop {
            let before = Instant::now();
            let timeout = self.timeout(before);
            let notices = self.inner.wait(timeout, pace.spin(before, self.inner.engine().serving(2)))?;
            let instant = Instant::now();
            pace.woke(instant, notices);
            let now = self.time(instant);
            while self.inner.step(now) {}
            if self.inner.next_timeout().is_some_and(|at| now >= at) {
                self.inner.tick(now);
            }
            if self.inner.is_finished() {
                // The driver still carries out what it was asked for last: to accept nobody any more.
                self.inner.wait(STOP_TIME, Duration::ZERO)?;
                return Ok(());
            }
            self.turns.count();
        }
    }

    /// The time until there is something to do, unless something happens before.
    fn timeout(&self, instant: Instant) -> Duration {
        let now = self.time(instant);
        self.inner.next_timeout().map_or(SLEEP_MAX, |at| at.since(now).min(SLEEP_MAX))
    }

    fn time(&self, instant: Instant) -> Time {
        Time(instant.duration_since(self.epoch).as_micros() as u64)
    }
}
