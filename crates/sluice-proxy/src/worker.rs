//! A worker on its thread: what moves it on is the driver, and the clock.

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{Engine, hub::Hub, time::Time};

use crate::{host::Host, net::System, pace::Pace};

/// How often the engine looks at what time has brought.
const TICK: Duration = Duration::from_millis(100);

/// What a worker starts with.
pub(crate) struct Setup {
    pub(crate) hub: Arc<Hub>,
    pub(crate) host: Host,
    pub(crate) listeners: Vec<OwnedFd>,
    /// When the service started: time zero of the core.
    pub(crate) epoch: Instant,
}

/// A worker on its thread.
pub(crate) struct Worker<D: System> {
    inner: sluice_net::Worker<D, Host>,
    epoch: Instant,
}

impl<D: System> Worker<D> {
    /// To be called on the thread that will run it.
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let Setup { hub, host, listeners, epoch } = setup;
        let (mut driver, buffers) = D::new()?;
        driver.watch_mailbox(host.mailboxes.bell(host.worker).watch()?)?;
        for listener in listeners {
            driver.accept(listener)?;
        }
        let engine = Engine::new(host.worker, hub);
        Ok(Self { inner: sluice_net::Worker::new(engine, driver, buffers, host), epoch })
    }

    /// Runs until it has nothing left after a [`sluice_core::hub::Mail::Stop`].
    pub(crate) fn run(mut self) -> io::Result<()> {
        let start = Instant::now();
        let mut next_tick = start + TICK;
        let mut pace = Pace::new(start);
        loop {
            let before = Instant::now();
            let timeout = next_tick.saturating_duration_since(before);
            let notices = self.inner.wait(timeout, pace.spin(before, self.inner.engine().serving(2)))?;
            let instant = Instant::now();
            pace.woke(instant, notices);
            let now = Time(instant.duration_since(self.epoch).as_micros() as u64);
            while self.inner.step(now) {}
            if instant >= next_tick {
                next_tick = instant + TICK;
                self.inner.tick(now);
                if self.inner.is_finished() {
                    return Ok(());
                }
            }
        }
    }
}
