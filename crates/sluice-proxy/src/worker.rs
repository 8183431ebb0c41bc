//! A worker: one thread, one driver, one engine.

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{Engine, hub::Hub, time::Time};

use crate::{
    mailbox::{Mailboxes, Parcel},
    net::{Driver, Net, Notice},
    pace::Pace,
    resolver::Resolver,
};

/// How often the engine looks at what time has brought.
const TICK: Duration = Duration::from_millis(100);

/// What a worker starts with.
pub(crate) struct Setup {
    pub(crate) number: u16,
    pub(crate) hub: Arc<Hub>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) listeners: Vec<OwnedFd>,
    /// When the service started: time zero of the core.
    pub(crate) epoch: Instant,
}

/// A worker on its thread.
pub(crate) struct Worker<D> {
    number: u16,
    engine: Engine,
    net: Net<D>,
    mailboxes: Arc<Mailboxes>,
    epoch: Instant,
    stopping: bool,
}

impl<D: Driver> Worker<D> {
    /// To be called on the thread that will run it.
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let mut net = Net::<D>::new(setup.mailboxes.clone(), setup.resolver)?;
        net.driver().watch_mailbox(setup.mailboxes.bell(setup.number)?)?;
        for listener in setup.listeners {
            net.driver().accept(listener)?;
        }
        Ok(Self {
            number: setup.number,
            engine: Engine::new(setup.number, setup.hub),
            net,
            mailboxes: setup.mailboxes,
            epoch: setup.epoch,
            stopping: false,
        })
    }

    /// Runs until the engine has nothing left after a [`sluice_core::hub::Mail::Stop`].
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut notices = Vec::new();
        let start = Instant::now();
        let mut next_tick = start + TICK;
        let mut pace = Pace::new(start);
        loop {
            let before = Instant::now();
            let timeout = next_tick.saturating_duration_since(before);
            self.net.turn(timeout, pace.spin(before, self.engine.serving(2)), &mut notices)?;
            let instant = Instant::now();
            pace.woke(instant, notices.len());
            let now = self.time(instant);
            for notice in notices.drain(..) {
                self.handle(now, notice);
            }
            if instant >= next_tick {
                next_tick = instant + TICK;
                self.net.tick();
                self.engine.tick(now, &mut self.net);
                if self.engine.is_finished() && self.net.is_empty() {
                    return Ok(());
                }
            }
        }
    }

    fn time(&self, instant: Instant) -> Time {
        Time(instant.duration_since(self.epoch).as_micros() as u64)
    }

    fn handle(&mut self, now: Time, notice: Notice) {
        let Self { engine, net, .. } = self;
        match notice {
            Notice::Accepted(conn, peer) => {
                if let Some(owner) = engine.accepted(now, conn, peer, net) {
                    net.set_owner(conn, owner);
                }
            }
            Notice::Connected(key) => {
                if let Some(owner) = net.owner(key) {
                    engine.connected(now, owner, net);
                }
            }
            Notice::Received(key, chunk) => match net.owner(key) {
                Some(owner) => net.with_chunk(chunk, |net, bytes| engine.received(now, owner, bytes, net)),
                None => net.drop_chunk(chunk),
            },
            Notice::Closed(key, reason) => {
                if let Some(owner) = net.owner(key) {
                    engine.closed(now, owner, &reason, net);
                }
            }
            Notice::Drained(key) => {
                if let Some(owner) = net.owner(key) {
                    engine.drained(now, owner, net);
                }
            }
            Notice::Mail => self.read_mail(now),
        }
    }

    fn read_mail(&mut self, now: Time) {
        for parcel in self.mailboxes.take(self.number) {
            match parcel {
                Parcel::Mail(mail) => {
                    if matches!(mail, sluice_core::hub::Mail::Stop(_)) && !self.stopping {
                        self.stopping = true;
                        self.net.driver().stop_accepting();
                    }
                    self.engine.mail(now, mail, &mut self.net);
                }
                Parcel::Server { socket, mut server, client, early } => {
                    let conn = self.net.adopt(socket);
                    server.conn = conn;
                    let Some(owner) = self.engine.adopt(now, server, client, &early, &mut self.net) else { continue };
                    self.net.set_owner(conn, owner);
                }
            }
        }
    }
}
