//! The connections of the engines under test, in place of a kernel's, and the post between the workers.
//!
//! It holds the engine to its side of [`Io`]: it acts only on connections that are its own and that it has not given
//! up, and forwards only what it has been given.

use std::{collections::VecDeque, ops::Range};

use sluice_core::{
    engine::BACKLOG_HIGH_BYTES,
    hub::{ClientRef, Mail},
    io::{Address, Conn, HandOver, Io, LogEvent, Owner},
    server::Server,
};

use super::peers::Peer;

/// All connections there have been. A number is never given twice.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) links: Vec<Link>,
    /// What waits for each worker.
    pub(super) post: Vec<VecDeque<Parcel>>,
    /// Users whose secrets were asked for.
    pub(super) asked: VecDeque<String>,
    random: u8,
}

/// A connection, and the peer at its other end.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) worker: u16,
    pub(super) owner: Option<Owner>,
    /// Whether it was accepted, and not opened by an engine.
    pub(super) is_accepted: bool,
    pub(super) life: Life,
    /// Whether the peer does not read.
    pub(super) slow: bool,
    /// What the engine has sent and the peer has not looked at.
    pub(super) sent: Vec<u8>,
    /// How many bytes the engine has ever sent.
    pub(super) total: usize,
    pub(super) peer: Peer,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Connecting,
    Open,
    /// On its way to another worker.
    Leaving,
    /// Closed by the engine; the peer's side does not matter any more.
    Closed,
}

#[derive(Debug)]
pub(super) enum Parcel {
    Mail(Mail),
    Server { link: usize, server: Box<Server>, client: ClientRef },
}

impl Net {
    pub(super) fn new(workers: u16) -> Self {
        Self {
            links: Vec::new(),
            post: (0..workers).map(|_| VecDeque::new()).collect(),
            asked: VecDeque::new(),
            random: 0,
        }
    }

    pub(super) fn add(&mut self, worker: u16, owner: Option<Owner>, life: Life) -> Conn {
        let is_accepted = owner.is_none();
        let link =
            Link { worker, owner, is_accepted, life, slow: false, sent: Vec::new(), total: 0, peer: Peer::default() };
        self.links.push(link);
        Conn(self.links.len() as u32 - 1)
    }

    /// The connections for which `choose` holds.
    pub(super) fn select(&self, choose: impl Fn(&Link) -> bool) -> Vec<usize> {
        (0..self.links.len()).filter(|&link| choose(&self.links[link])).collect()
    }
}

impl Link {
    pub(super) fn is_live(&self) -> bool {
        matches!(self.life, Life::Connecting | Life::Open)
    }
}

/// One worker's view of the net, while it handles `chunk`.
pub(super) struct WorkerIo<'a> {
    pub(super) net: &'a mut Net,
    pub(super) worker: u16,
    pub(super) chunk: &'a [u8],
}

impl WorkerIo<'_> {
    fn link(&mut self, conn: Conn) -> &mut Link {
        let link = &mut self.net.links[conn.0 as usize];
        assert!(link.is_live(), "an action on {conn:?}, which the engine has given up: {link:?}");
        assert_eq!(link.worker, self.worker, "an action on another worker's connection");
        link
    }
}

impl Io for WorkerIo<'_> {
    fn forward(&mut self, to: Conn, range: Range<usize>) {
        assert!(range.start < range.end && range.end <= self.chunk.len(), "{range:?} of {}", self.chunk.len());
        let bytes = &self.chunk[range];
        self.send(to, bytes);
    }

    fn send(&mut self, to: Conn, bytes: &[u8]) {
        let link = self.link(to);
        link.sent.extend_from_slice(bytes);
        link.total += bytes.len();
    }

    fn backlog(&self, conn: Conn) -> usize {
        if self.net.links[conn.0 as usize].slow { BACKLOG_HIGH_BYTES + 1 } else { 0 }
    }

    fn pause(&mut self, conn: Conn) {
        self.link(conn);
    }

    fn resume(&mut self, conn: Conn) {
        self.link(conn);
    }

    fn close(&mut self, conn: Conn) {
        let link = self.link(conn);
        link.life = Life::Closed;
        link.owner = None;
    }

    fn connect(&mut self, owner: Owner, _address: &Address) -> Conn {
        let taken = self.net.select(|l| l.is_live() && l.worker == self.worker && l.owner == Some(owner));
        assert_eq!(taken, [0; 0], "{owner:?} has a connection");
        self.net.add(self.worker, Some(owner), Life::Connecting)
    }

    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, HandOver(client): HandOver) {
        let link = self.link(conn);
        assert!(!link.is_accepted, "only servers are handed over");
        link.life = Life::Leaving;
        link.owner = None;
        self.net.post[usize::from(worker)].push_back(Parcel::Server { link: conn.0 as usize, server, client });
    }

    fn mail(&mut self, worker: u16, mail: Mail) {
        self.net.post[usize::from(worker)].push_back(Parcel::Mail(mail));
    }

    fn look_up(&mut self, user: &str) {
        self.net.asked.push_back(user.to_owned());
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.net.random = self.net.random.wrapping_mul(5).wrapping_add(1);
            *byte = self.net.random;
        }
    }

    fn log(&mut self, _event: LogEvent<'_>) {}
}
