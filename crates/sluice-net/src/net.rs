//! The connections of a worker, and the actions of the engine on them.

use std::{collections::VecDeque, io, net::Shutdown, time::Duration};

use slab::Slab;
use sluice_core::{
    engine::BACKLOG_HIGH_BYTES,
    io::{Address, Command, Conn, HandOver, Io, LogEvent, Owner, PeerAddress},
    mail::Mail,
    server::Server,
    time::Time,
};

use crate::{
    Buffers, Chunk, Driver, Event, Host, LinkId, Parcel, Socket,
    link::{Life, Link},
    outbox::Spares,
};

/// A backlog that was above the engine's limit is reported when it has fallen to this, in bytes.
const BACKLOG_LOW_BYTES: usize = 64 << 10;

/// Time limit for a connection that is being closed: to send the rest, and for its peer to hang up.
const LINGER: Duration = Duration::from_secs(2);

/// The interval at which connections are looked at whose end is overdue.
const LEFTOVERS_INTERVAL: Duration = Duration::from_millis(100);

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
    /// A connection has ended.
    Closed(LinkKey, String),
    /// A high backlog has been sent.
    Drained(LinkKey),
    /// There is mail.
    Mail,
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
    /// Connections that are being closed, oldest first.
    closing: Vec<LinkId>,
    /// The next time that these are looked at.
    next_tick: Option<Time>,
    /// The chunk that is being handled.
    current: Option<Chunk>,
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
            closing: Vec::new(),
            next_tick: None,
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
        let (buffer, len) = (chunk.buffer, chunk.len);
        self.current = Some(chunk);
        let bytes = self.buffers.bytes(buffer, 0..len);
        #[allow(unsafe_code)]
        // SAFETY: the reference that `current` holds keeps the buffer from being written to until it is released
        // below; the memory itself lives as long as `self`.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        handle(self, bytes);
        self.current = None;
        self.buffers.release(buffer);
    }

    /// Tells whose a connection is.
    pub fn set_owner(&mut self, conn: Conn, owner: Owner) {
        if let Some(link) = self.links.get_mut(conn.0 as usize) {
            link.owner = Some(owner);
            link.wants_bytes = true;
        }
        self.read(conn.0);
    }

    /// Takes over a connection from another worker.
    pub fn adopt(&mut self, socket: D::Socket) -> Conn {
        Conn(self.insert(Some(socket), None, Life::Open).id)
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
        self.next_tick
    }

    /// Ends the lives that have taken too long.
    pub fn tick(&mut self) {
        if self.next_tick.is_none_or(|at| self.now < at) {
            return;
        }
        self.next_tick = None;
        let closing = std::mem::take(&mut self.closing);
        for id in closing {
            match self.links.get(id as usize).map(|link| &link.life) {
                Some(&Life::Closing { deadline, .. }) if self.now < deadline => self.await_end(id, deadline),
                Some(Life::Closing { .. }) => self.finish(id),
                _ => {}
            }
        }
        // All of them are looked at each time, so not at each one's own.
        self.next_tick = self.next_tick.map(|at| at.max(self.now + LEFTOVERS_INTERVAL));
    }

    /// Looks at a closing connection at that time, if it is still there.
    fn await_end(&mut self, id: LinkId, at: Time) {
        self.closing.push(id);
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }

    fn event(&mut self, event: Event<D::Socket>) {
        match event {
            Event::Accepted(socket) => {
                let peer = socket.peer();
                let conn = self.adopt(socket);
                self.notices.push_back(Notice::Accepted(conn, peer));
            }
            Event::AcceptFailed(error) => self.host.accept_failed(&error),
            Event::Connected(id) => self.connect_ended(id),
            Event::Received(id, chunk) => self.received(id, chunk),
            Event::Ended(id, error) => {
                if let Some(link) = self.links.get_mut(id as usize) {
                    link.reading = false;
                    link.wants_bytes = false;
                    link.ended = true;
                    self.lost(id, error.as_ref());
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

    fn connect_ended(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        link.awaits_connect = false;
        if !matches!(link.life, Life::Connecting) {
            self.advance(id);
            return;
        }
        let Some(socket) = &link.socket else { return };
        match socket.connect_result() {
            Ok(()) => {
                link.life = Life::Open;
                link.wants_bytes = true;
                self.notices.extend(self.key(id).map(Notice::Connected));
                self.read(id);
            }
            Err(error) => self.lost(id, Some(&error)),
        }
    }

    fn received(&mut self, id: LinkId, chunk: Chunk) {
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
            Life::Leaving { early, .. } => {
                early.extend_from_slice(self.buffers.bytes(chunk.buffer, 0..chunk.len));
            }
            Life::Connecting | Life::Closing { .. } => {}
        }
        self.buffers.discard(chunk);
    }

    /// A connection has ended by itself.
    fn lost(&mut self, id: LinkId, error: Option<&io::Error>) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Open | Life::Connecting = &link.life {
            let key = LinkKey { id, serial: link.serial };
            let reason = error.map_or_else(|| "the other side closed the connection".to_owned(), io::Error::to_string);
            self.notices.push_back(Notice::Closed(key, reason));
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
            if link.flight.is_none() && !link.outbox.is_empty() && !matches!(link.life, Life::Connecting) {
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
                self.lost(id, Some(&error));
            } else {
                link.shutdown(Shutdown::Write);
            }
            self.advance(id);
            return;
        }
        let is_done = link.outbox.is_empty();
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

    /// Moves a connection on that is closing or leaving.
    fn advance(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let sent = link.flight.is_none() && link.outbox.is_empty();
        match &link.life {
            Life::Closing { finished: false, .. } if sent => {
                if link.ended {
                    self.finish(id);
                } else {
                    // The peer reads what was sent, then hangs up; closing at once could take it back unread.
                    link.shutdown(Shutdown::Write);
                }
            }
            Life::Closing { finished: true, .. } if link.is_quiet() => self.remove(id),
            Life::Leaving { .. } if sent && link.is_quiet() => self.leave(id),
            _ => {}
        }
    }

    /// Ends a closing connection: whatever is still under way comes to its end now.
    fn finish(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Closing { finished, .. } = &mut link.life {
            *finished = true;
        }
        link.outbox.clear(&mut self.buffers);
        if link.is_quiet() {
            self.remove(id);
        } else {
            link.shutdown(Shutdown::Both);
            self.await_end(id, self.now + LEFTOVERS_INTERVAL);
        }
    }

    fn remove(&mut self, id: LinkId) {
        let mut link = self.links.remove(id as usize);
        link.outbox.clear(&mut self.buffers);
        self.driver.forget(id);
    }

    fn leave(&mut self, id: LinkId) {
        let link = self.links.remove(id as usize);
        self.driver.forget(id);
        if let (Life::Leaving { worker, server, client, early }, Some(socket)) = (link.life, link.socket) {
            self.host.post(worker, Parcel::Server { socket, server, client, early });
        }
    }
}

/// The connection that the engine acts on; it may do so until it has closed it or handed it over.
fn live<S: Socket>(links: &mut Slab<Link<S>>, conn: Conn) -> Option<&mut Link<S>> {
    let link = links.get_mut(conn.0 as usize);
    debug_assert!(link.as_ref().is_some_and(|link| link.is_live()), "an action on {conn:?}, which was given up");
    link
}

impl<D: Driver, H: Host<Socket = D::Socket>> Io for Net<D, H> {
    fn forward(&mut self, to: Conn, range: std::ops::Range<usize>) {
        let Some(chunk) = &self.current else { return };
        debug_assert!(range.start < range.end && range.end <= chunk.len as usize, "{range:?} of {} bytes", chunk.len);
        let Some(link) = live(&mut self.links, to) else { return };
        let stretch = (chunk.buffer, range.start as u32, range.end as u32);
        link.outbox.push_shared(stretch, link.flight.is_none(), &mut self.buffers, &mut self.spares);
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
        let Some(link) = live(&mut self.links, conn) else { return };
        link.owner = None;
        let deadline = self.now + LINGER;
        link.life = Life::Closing { deadline, finished: false };
        // Reading goes on, to notice when the peer hangs up.
        link.wants_bytes = true;
        if link.ended {
            link.outbox.clear(&mut self.buffers);
        } else if link.outbox.push_held(&mut self.spares) {
            self.mark(conn.0);
        }
        self.await_end(conn.0, deadline);
        self.read(conn.0);
        self.advance(conn.0);
    }

    fn connect(&mut self, owner: Owner, address: &Address) -> Conn {
        let (socket, error) = match self.host.connect(address) {
            Ok(socket) => (Some(socket), None),
            Err(error) => (None, Some(error)),
        };
        let LinkKey { id, serial } = self.insert(socket, Some(owner), Life::Connecting);
        let link = &mut self.links[id as usize];
        if let Some(socket) = &link.socket {
            link.awaits_connect = true;
            self.driver.await_connect(id, socket);
        }
        if let Some(error) = error {
            // Told like any other end, in its turn.
            self.notices.push_back(Notice::Closed(LinkKey { id, serial }, error.to_string()));
        }
        Conn(id)
    }

    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, HandOver(client): HandOver) {
        let Some(link) = live(&mut self.links, conn) else { return };
        let key = LinkKey { id: conn.0, serial: link.serial };
        // What has come from it and has not been handled goes with it.
        let mut early = Vec::new();
        for notice in std::mem::take(&mut self.notices) {
            match notice {
                Notice::Received(from, chunk) if from == key => {
                    early.extend_from_slice(self.buffers.bytes(chunk.buffer, 0..chunk.len));
                    self.buffers.discard(chunk);
                }
                other => self.notices.push_back(other),
            }
        }
        link.owner = None;
        link.wants_bytes = false;
        link.life = Life::Leaving { worker, server, client, early };
        if let (true, Some(socket)) = (link.reading, &link.socket) {
            self.driver.stop_reading(conn.0, socket);
        }
        self.advance(conn.0);
    }

    fn mail(&mut self, worker: u16, mail: Mail) {
        self.host.post(worker, Parcel::Mail(mail));
    }

    fn look_up(&mut self, user: &str) {
        self.host.look_up(user);
    }

    fn command(&mut self, command: Command) -> bool {
        self.host.command(command)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.host.random(bytes);
    }

    fn log(&mut self, event: LogEvent<'_>) {
        self.host.log(event);
    }
}
