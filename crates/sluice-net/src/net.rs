//! The connections of a worker, and the actions of the engine on them.

mod accepting;
mod arrivals;
mod connecting;
mod ending;
mod securing;

pub use ending::LINGERING_MAX;

use std::{collections::VecDeque, io, net::Shutdown, rc::Rc, time::Duration};

use slab::Slab;
use sluice_core::{
    engine::BACKLOG_HIGH_BYTES,
    ids::ClientRef,
    io::{Address, Command, Conn, HandOver, Io, LogEvent, Loss, Owner, PeerAddress},
    mail::Mail,
    server::Server,
    time::Time,
};
use sluice_tls::{Secured, Side};

use self::{accepting::Accepting, arrivals::Arrivals, ending::Ending};
use crate::{
    BufferId, Buffers, Chunk, Driver, Event, Host, LinkId, Parcel, Socket,
    attempt::Attempt,
    link::{Life, Link},
    outbox::Spares,
    tls::Tls,
};

/// A backlog that was above the engine's limit is reported when it has fallen to this, in bytes.
const BACKLOG_LOW_BYTES: usize = 64 << 10;

/// Time limit for a connection that is being closed: to send the rest, and for its peer to hang up.
const LINGER: Duration = Duration::from_secs(2);

/// The same of one that has not been sent all yet: a client that is slow to read gets what a server said before it was
/// lost, and why that is all.
const UNSENT_LINGER: Duration = Duration::from_secs(10);

/// A connection, and not a later one that got its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkKey {
    id: LinkId,
    serial: u32,
}

/// An event for the engine.
#[derive(Debug)]
pub enum Notice {
    /// A client has connected.
    Accepted(Conn, PeerAddress),
    /// A connect has succeeded.
    Connected(LinkKey),
    /// Bytes have come.
    Received(LinkKey, Chunk),
    /// A connection is encrypted.
    Secured(LinkKey, Box<Secured>),
    /// A connection has ended.
    Closed(LinkKey, Loss),
    /// A high backlog has been sent.
    Drained(LinkKey),
    /// There is mail.
    Mail,
}

/// The chunk that is being handled.
#[derive(Debug)]
enum Current {
    /// The first `len` bytes of a buffer.
    Shared { buffer: BufferId, len: u32 },
    /// Those that came encrypted.
    Owned(Rc<Vec<u8>>),
}

/// The connections of a worker.
pub struct Net<D: Driver, H> {
    // Dropped first: while the driver lives, the kernel may write to the buffers.
    driver: D,
    buffers: Buffers,
    host: H,
    now: Time,
    links: Slab<Link<D::Socket>>,
    serial: u32,
    spares: Spares,
    /// Connections with something to send.
    dirty: Vec<LinkId>,
    ending: Ending,
    accepting: Accepting,
    arrivals: Arrivals,
    /// The chunk that is being handled.
    current: Option<Current>,
    events: Vec<Event<D::Socket>>,
    notices: VecDeque<Notice>,
}

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// No connections yet. The driver receives into `buffers`.
    pub fn new(driver: D, buffers: Buffers, host: H) -> Self {
        Self {
            driver,
            buffers,
            host,
            now: Time::default(),
            links: Slab::new(),
            serial: 0,
            spares: Spares::default(),
            dirty: Vec::new(),
            ending: Ending::default(),
            accepting: Accepting::default(),
            arrivals: Arrivals::default(),
            current: None,
            events: Vec::new(),
            notices: VecDeque::new(),
        }
    }

    /// Puts its clock forward.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Sends what is to be sent, and waits for something to happen. For the first `spin` of the waiting it does not
    /// sleep. Returns how many notices there are.
    pub fn turn(&mut self, timeout: Duration, spin: Duration) -> io::Result<usize> {
        self.send_dirty();
        let timeout = if self.notices.is_empty() { timeout } else { Duration::ZERO };
        let mut events = std::mem::take(&mut self.events);
        self.driver.wait(timeout, spin, &mut self.buffers, &mut events)?;
        for event in events.drain(..) {
            self.event(event);
        }
        self.events = events;
        // Only now: what the last turn gave for those that it closed has been sent.
        self.end_beyond_limit();
        Ok(self.notices.len())
    }

    /// The next thing that the engine should hear.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Takes the worker's mail.
    pub fn collect(&mut self) -> VecDeque<Parcel<D::Socket>> {
        self.host.collect()
    }

    /// Accepts no connections any more.
    pub fn stop_accepting(&mut self) {
        self.driver.stop_accepting();
    }

    /// The bytes of a chunk, while `handle` runs.
    pub fn with_chunk(&mut self, chunk: Chunk, handle: impl FnOnce(&mut Self, &[u8])) {
        match chunk {
            Chunk::Shared { buffer, len } => {
                self.current = Some(Current::Shared { buffer, len });
                let bytes = self.buffers.bytes(buffer, 0..len);
                #[allow(unsafe_code)]
                // SAFETY: the reference that the chunk holds keeps the buffer from being written to until it is
                // released below; the memory itself lives as long as `self`.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
                handle(self, bytes);
                self.current = None;
                self.buffers.release(buffer);
            }
            Chunk::Owned(bytes) => {
                let bytes = Rc::new(bytes);
                self.current = Some(Current::Owned(bytes.clone()));
                handle(self, &bytes);
                self.current = None;
                Rc::into_inner(bytes).into_iter().for_each(|bytes| self.spares.give(bytes));
            }
        }
    }

    /// Tells whose a connection is.
    pub fn set_owner(&mut self, conn: Conn, owner: Owner) {
        if let Some(link) = self.links.get_mut(conn.0 as usize) {
            link.owner = Some(owner);
            link.wants_bytes = true;
        }
        self.read(conn.0);
    }

    /// Takes over a connection, a new one or another worker's.
    pub fn adopt(&mut self, socket: D::Socket, tls: Option<Box<Tls>>) -> Conn {
        let LinkKey { id, .. } = self.insert(Some(socket), None, Life::Open);
        self.links[id as usize].tls = tls;
        Conn(id)
    }

    /// The owner of a connection, unless it has been given up since.
    pub fn owner(&self, key: LinkKey) -> Option<Owner> {
        self.links.get(key.id as usize).filter(|link| link.serial == key.serial)?.owner
    }

    /// Gives back a chunk that nobody wants any more.
    pub fn drop_chunk(&mut self, chunk: Chunk) {
        self.buffers.discard(chunk);
    }

    fn insert(&mut self, socket: Option<D::Socket>, owner: Option<Owner>, life: Life) -> LinkKey {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        LinkKey { id: self.links.insert(Link::new(socket, serial, owner, life)) as u32, serial }
    }

    fn key(&self, id: LinkId) -> Option<LinkKey> {
        let link = self.links.get(id as usize).filter(|link| link.owner.is_some())?;
        Some(LinkKey { id, serial: link.serial })
    }

    /// All connections: whose each is, if the engine has not given it up, and its socket, if there is one.
    pub fn connections(&self) -> impl Iterator<Item = (Conn, Option<Owner>, Option<&D::Socket>)> {
        self.links.iter().map(|(id, link)| (Conn(id as u32), link.owner, link.socket.as_ref()))
    }

    /// The socket of a connection.
    pub fn socket(&self, conn: Conn) -> Option<&D::Socket> {
        self.links.get(conn.0 as usize)?.socket.as_ref()
    }

    /// The bytes that are still to be sent on a connection: those that the kernel has not taken.
    pub fn unsent_bytes(&self, conn: Conn) -> u64 {
        self.links.get(conn.0 as usize).map_or(0, |link| link.backlog() as u64)
    }

    /// The buffers that bytes are received into.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Whether there is something to do that no event of the driver will show.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.notices.is_empty()
    }

    /// Whether there is no connection at all.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The time when [`tick`](Self::tick) has something to do next; `None` if nothing.
    pub fn next_timeout(&self) -> Option<Time> {
        Time::first_of([self.ending.at, self.accepting.at(), self.arrivals.at])
    }

    /// Does what time has brought.
    pub fn tick(&mut self) {
        self.end_overdue();
        self.accept_again();
        self.look_at_arrivals();
    }

    fn event(&mut self, event: Event<D::Socket>) {
        match event {
            Event::Accepted(socket) => {
                // It came and went: of nobody known, and so nobody's.
                let Ok(peer) = socket.peer() else { return };
                let conn = self.adopt(socket, None);
                self.notices.push_back(Notice::Accepted(conn, peer));
            }
            Event::AcceptFailed(error) => self.host.accept_failed(&error, None),
            Event::AcceptExhausted(error) => self.pause_accepting(&error),
            Event::Connected(id) => self.connect_ended(id),
            Event::Received(id, chunk) => self.received(id, chunk),
            Event::Ended(id, error) => {
                if let Some(link) = self.links.get_mut(id as usize) {
                    link.reading = false;
                    link.wants_bytes = false;
                    link.ended = true;
                    // What has come before may be in the hands of those who take the step of a handshake.
                    if !link.tls.as_ref().is_some_and(|tls| tls.is_away()) {
                        self.lost(id, loss(error.as_ref()));
                    }
                }
            }
            Event::Stopped(id) => {
                if let Some(link) = self.links.get_mut(id as usize) {
                    link.reading = false;
                    self.read(id);
                    self.advance(id);
                }
            }
            Event::Sent(id, result) => self.sent(id, result),
            Event::Writable(id) => self.send_flight(id),
            Event::Mail => self.notices.push_back(Notice::Mail),
        }
    }

    fn received(&mut self, id: LinkId, chunk: Chunk) {
        match self.links.get(id as usize) {
            Some(link) if link.tls.is_some() => self.received_encrypted(id, chunk),
            _ => self.deliver(id, chunk),
        }
    }

    /// Passes on what has come by a connection, in plain bytes.
    fn deliver(&mut self, id: LinkId, chunk: Chunk) {
        let Some(link) = self.links.get_mut(id as usize) else {
            self.buffers.discard(chunk);
            return;
        };
        match &mut link.life {
            // The connection's owner may become known only when the notices before this one have been handled.
            Life::Open => {
                let key = LinkKey { id, serial: link.serial };
                self.notices.push_back(Notice::Received(key, chunk));
                return;
            }
            Life::Leaving { early, .. } => early.extend_from_slice(self.buffers.bytes_of(&chunk)),
            Life::Connecting(_) | Life::Closing { .. } => {}
        }
        self.buffers.discard(chunk);
    }

    /// A connection has ended by itself.
    fn lost(&mut self, id: LinkId, loss: Loss) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Open | Life::Connecting(_) = &link.life {
            let key = LinkKey { id, serial: link.serial };
            self.notices.push_back(Notice::Closed(key, loss));
        }
        self.advance(id);
    }

    fn read(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let open = matches!(link.life, Life::Open | Life::Closing { finished: false, .. });
        if open && link.wants_bytes && !link.reading && !link.ended {
            let Some(socket) = &link.socket else { return };
            link.reading = true;
            self.driver.start_reading(id, socket);
        }
    }

    fn send_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(link) = self.links.get_mut(id as usize) else { continue };
            link.dirty = false;
            if link.flight.is_some() || matches!(link.life, Life::Connecting(_)) {
                continue;
            }
            if link.tls.is_some() {
                self.send_encrypted(id);
            } else if !link.outbox.is_empty() {
                link.flight = Some(link.outbox.take_flight());
                self.send_flight(id);
            }
        }
        // What was marked meanwhile (a send that completed at once leaves more to send) is kept.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    fn send_flight(&mut self, id: LinkId) {
        self.await_arrival(id);
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let (Some(flight), Some(socket)) = (&mut link.flight, &link.socket) else { return };
        if let Some(result) = self.driver.send(id, socket, flight, &self.buffers) {
            self.sent(id, result);
        }
    }

    fn sent(&mut self, id: LinkId, result: io::Result<usize>) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let Some(mut flight) = link.flight.take() else { return };
        let error = match result {
            Ok(bytes) if bytes > 0 && !flight.advance(bytes) => {
                link.flight = Some(flight);
                self.send_flight(id);
                return;
            }
            Ok(0) if flight.left() > 0 => Some(io::ErrorKind::WriteZero.into()),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        flight.land(&mut self.buffers, &mut self.spares);
        if let Some(error) = error {
            link.outbox.clear(&mut self.buffers);
            // A peer that closed may have sent its reason first; reading finds out.
            if !link.reading || link.ended {
                link.ended = true;
                self.lost(id, loss(Some(&error)));
            } else {
                link.shutdown(Shutdown::Write);
            }
            self.advance(id);
            return;
        }
        let is_done = link.has_sent_all();
        if is_done && !link.high && matches!(link.life, Life::Open) {
            // As it is nearly always.
            return;
        }
        if !is_done {
            self.mark(id);
        }
        self.check_drained(id);
        self.advance(id);
    }

    fn check_drained(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if link.high && link.backlog() <= BACKLOG_LOW_BYTES {
            link.high = false;
            let open = matches!(link.life, Life::Open);
            self.notices.extend(self.key(id).filter(|_| open).map(Notice::Drained));
        }
    }

    fn mark(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if link.backlog() > BACKLOG_HIGH_BYTES {
            link.high = true;
        }
        if !std::mem::replace(&mut link.dirty, true) {
            self.dirty.push(id);
        }
    }
}

/// The reason why a connection is gone, by the system's error, if there was one.
fn loss(error: Option<&io::Error>) -> Loss {
    error.map_or(Loss::Closed, |error| Loss::Broken(error.to_string()))
}

/// The connection that the engine acts on; it may do so until it has closed it or handed it over.
fn live<S: Socket>(links: &mut Slab<Link<S>>, conn: Conn) -> Option<&mut Link<S>> {
    let link = links.get_mut(conn.0 as usize);
    debug_assert!(link.as_ref().is_some_and(|link| link.is_live()), "an action on {conn:?}, which was given up");
    link
}

impl<D: Driver, H: Host<Socket = D::Socket>> Io for Net<D, H> {
    fn forward(&mut self, to: Conn, range: std::ops::Range<usize>) {
        let Some(link) = live(&mut self.links, to) else { return };
        match &self.current {
            None => return,
            Some(Current::Owned(bytes)) => link.outbox.push_copy(&bytes[range], &mut self.spares),
            Some(Current::Shared { buffer, len }) => {
                debug_assert!(range.start < range.end && range.end <= *len as usize, "{range:?} of {len} bytes");
                let stretch = (*buffer, range.start as u32, range.end as u32);
                link.outbox.push_shared(stretch, link.flight.is_none(), &mut self.buffers, &mut self.spares);
            }
        }
        self.mark(to.0);
    }

    fn send(&mut self, to: Conn, bytes: &[u8]) {
        let Some(link) = live(&mut self.links, to) else { return };
        link.outbox.push_copy(bytes, &mut self.spares);
        self.mark(to.0);
    }

    fn send_with_next(&mut self, to: Conn, bytes: &[u8]) {
        let Some(link) = live(&mut self.links, to) else { return };
        if !link.outbox.hold(bytes) {
            self.send(to, bytes);
        }
    }

    fn backlog(&self, conn: Conn) -> usize {
        self.links.get(conn.0 as usize).map_or(0, Link::backlog)
    }

    fn pause(&mut self, conn: Conn) {
        let Some(link) = live(&mut self.links, conn) else { return };
        link.wants_bytes = false;
        if let (true, Some(socket)) = (link.reading, &link.socket) {
            self.driver.stop_reading(conn.0, socket);
        }
    }

    fn resume(&mut self, conn: Conn) {
        if let Some(link) = live(&mut self.links, conn) {
            link.wants_bytes = true;
        }
        self.read(conn.0);
    }

    fn close(&mut self, conn: Conn) {
        self.connect_is_given_up(conn.0);
        let Some(link) = live(&mut self.links, conn) else { return };
        link.owner = None;
        let deadline = self.now + if link.has_sent_all() { LINGER } else { UNSENT_LINGER };
        // Reading goes on, to notice when the peer hangs up.
        link.wants_bytes = true;
        // In the middle of a handshake nothing can be said.
        if link.ended || link.tls.as_mut().is_some_and(|tls| tls.open().is_none()) {
            link.outbox.clear(&mut self.buffers);
        }
        if !link.ended && (link.outbox.push_held(&mut self.spares) || link.tls.is_some()) {
            self.mark(conn.0);
        }
        self.await_end(conn, deadline);
        self.read(conn.0);
        self.advance(conn.0);
    }

    fn connect(&mut self, owner: Owner, address: &Address) -> Conn {
        let attempt = Box::new(Attempt::to(address, self.host.places(address)));
        let LinkKey { id, .. } = self.insert(None, Some(owner), Life::Connecting(attempt));
        if !self.connect_to_next(id) {
            self.connect_fails(id);
        }
        Conn(id)
    }

    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, HandOver(client): HandOver) {
        let Some(link) = live(&mut self.links, conn) else { return };
        let key = LinkKey { id: conn.0, serial: link.serial };
        // What has come from it and has not been handled goes with it.
        let mut early = Vec::new();
        self.take_received(key, &mut early);
        let Some(link) = live(&mut self.links, conn) else { return };
        link.owner = None;
        link.wants_bytes = false;
        link.life = Life::Leaving { worker, server, client, early };
        if let (true, Some(socket)) = (link.reading, &link.socket) {
            self.driver.stop_reading(conn.0, socket);
        }
        self.advance(conn.0);
    }

    fn secure(&mut self, conn: Conn, side: Side, received: &[u8]) {
        self.begin_tls(conn, side, received);
    }

    fn mail(&mut self, worker: u16, mail: Mail) {
        self.host.post(worker, Parcel::Mail(mail));
    }

    fn look_up(&mut self, user: &str) {
        self.host.look_up(user);
    }

    fn identify(&mut self, conn: Conn, client: ClientRef) -> bool {
        let socket = live(&mut self.links, conn).and_then(|link| link.socket.as_ref());
        socket.is_some_and(|socket| self.host.identify(socket, client))
    }

    fn command(&mut self, command: Command) -> bool {
        self.host.command(command)
    }

    fn cancel_command(&mut self, client: ClientRef) {
        self.host.cancel_command(client);
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.host.random(bytes);
    }

    fn log(&mut self, event: LogEvent<'_>) {
        self.host.log(event);
    }
}
