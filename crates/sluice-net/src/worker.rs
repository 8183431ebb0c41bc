//! A worker: one engine, and the connections that it decides about.

use std::{collections::VecDeque, io, time::Duration};

use sluice_core::{
    Engine,
    io::{Conn, PeerAddress},
    listing::Listing,
    time::Time,
};

use crate::{Buffers, Driver, Host, Net, Notice, Parcel, Socket};

/// A worker. Its owner lends it a thread and a clock.
pub struct Worker<D: Driver, H> {
    engine: Engine,
    net: Net<D, H>,
    /// Notices of this turn that have not been handled.
    notices: usize,
    /// Mail that has been taken and not been handled.
    parcels: VecDeque<Parcel<D::Socket>>,
    /// Whether it accepts no connections any more.
    has_closed: bool,
}

impl<D: Driver, H: Host<Socket = D::Socket>> Worker<D, H> {
    /// A worker whose driver receives into `buffers`.
    pub fn new(engine: Engine, driver: D, buffers: Buffers, host: H) -> Self {
        let net = Net::new(driver, buffers, host);
        Self { engine, net, notices: 0, parcels: VecDeque::new(), has_closed: false }
    }

    /// Sends what there is to send, and waits for something to happen, at most for `timeout`, without sleep for the
    /// first `spin` of it. Returns how many notices there are for [`step`](Self::step).
    pub fn wait(&mut self, timeout: Duration, spin: Duration) -> io::Result<usize> {
        self.notices = self.net.turn(timeout, spin)?;
        Ok(self.notices)
    }

    /// Handles one thing that has happened; `false` if there is none left in this turn.
    pub fn step(&mut self, now: Time) -> bool {
        self.net.set_now(now);
        if let Some(parcel) = self.parcels.pop_front() {
            self.open(now, parcel);
            return true;
        }
        if self.notices == 0 {
            return false;
        }
        self.notices -= 1;
        if let Some(notice) = self.net.next_notice() {
            self.handle(now, notice);
        }
        true
    }

    /// The time when [`tick`](Self::tick) has something to do next, unless something else happens before; `None` if
    /// nothing.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.engine.is_finished() && !self.has_closed {
            // Those who come are told so up to the end, and this is left to do then.
            return Some(Time(0));
        }
        Time::first_of([self.net.next_timeout(), self.engine.next_timeout()])
    }

    /// Does what time has brought: to be called at [`next_timeout`](Self::next_timeout), and of no effect before.
    pub fn tick(&mut self, now: Time) {
        self.net.set_now(now);
        self.net.tick();
        self.engine.tick(now, &mut self.net);
        if self.engine.is_finished() {
            self.stop_accepting();
        }
    }

    /// Whether it was told to stop, and has nothing left.
    pub fn is_finished(&self) -> bool {
        self.has_closed && self.engine.is_finished() && self.net.is_empty()
    }

    /// The decisions.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The connections.
    pub fn net(&self) -> &Net<D, H> {
        &self.net
    }

    fn handle(&mut self, now: Time, notice: Notice) {
        let Self { engine, net, .. } = self;
        match notice {
            Notice::Accepted(conn, peer) => self.accepted(now, conn, peer),
            Notice::Connected(key) => {
                if let Some(owner) = net.owner(key) {
                    engine.connected(now, owner, net);
                }
            }
            Notice::Received(key, chunk) => match net.owner(key) {
                Some(owner) => net.with_chunk(chunk, |net, bytes| engine.received(now, owner, bytes, net)),
                None => net.drop_chunk(chunk),
            },
            Notice::Secured(key, secured) => {
                if let Some(owner) = net.owner(key) {
                    engine.secured(now, owner, *secured, net);
                }
            }
            Notice::Closed(key, loss) => {
                if let Some(owner) = net.owner(key) {
                    engine.closed(now, owner, &loss, net);
                }
            }
            Notice::Drained(key) => {
                if let Some(owner) = net.owner(key) {
                    engine.drained(now, owner, net);
                }
            }
            Notice::Mail => self.parcels = net.collect(),
        }
    }

    fn open(&mut self, now: Time, parcel: Parcel<D::Socket>) {
        match parcel {
            Parcel::Mail(mail) => self.engine.mail(now, mail, &mut self.net),
            Parcel::Accepted(socket) => {
                // It came and went.
                let Ok(peer) = socket.peer() else { return };
                let conn = self.net.adopt(socket, None);
                self.accepted(now, conn, peer);
            }
            Parcel::StopAccepting => self.stop_accepting(),
            Parcel::Handshake(handshake) => self.net.shook_hands(*handshake),
            Parcel::List(lister) => (lister.0)(self.listing(now)),
            Parcel::Server { socket, tls, mut server, client, early } => {
                let conn = self.net.adopt(socket, tls);
                server.conn = conn;
                if let Some(owner) = self.engine.adopt(now, server, client, &early, &mut self.net) {
                    self.net.set_owner(conn, owner);
                }
            }
        }
    }

    /// Its clients and servers of now, with what their sockets know.
    fn listing(&self, now: Time) -> Listing {
        let mut listing = self.engine.listing(now);
        let local = |conn| self.net.socket(conn)?.local().ok();
        for client in &mut listing.clients {
            (client.local, client.unsent_bytes) = (local(client.conn), self.net.unsent_bytes(client.conn));
        }
        for server in &mut listing.servers {
            (server.local, server.unsent_bytes) = (local(server.conn), self.net.unsent_bytes(server.conn));
        }
        listing
    }

    fn accepted(&mut self, now: Time, conn: Conn, peer: PeerAddress) {
        if let Some(owner) = self.engine.accepted(now, conn, peer, &mut self.net) {
            self.net.set_owner(conn, owner);
        }
    }

    fn stop_accepting(&mut self) {
        if !std::mem::replace(&mut self.has_closed, true) {
            self.net.stop_accepting();
        }
    }
}
