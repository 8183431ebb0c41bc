//! The connections between simulated clients, workers and servers, and the actions of the engines on them.
//!
//! A pipe carries bytes both ways, in order, cut anywhere and late by chance. It behaves as the real drivers do: what
//! was on its way when reading was paused may still arrive, a server's connection can change hands, a closed one is
//! given up in bounded time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
    time::Duration,
};

use slab::Slab;
use sluice_core::{
    engine::BACKLOG_HIGH_BYTES,
    hub::{ClientRef, Mail},
    io::{Address, Conn, HandOver, Io, LogEvent, Owner},
    server::Server,
    time::Time,
};

use crate::{plan::Plan, rng::Rng};

/// A high backlog is reported when it has fallen to this, in bytes; as in the real drivers.
const BACKLOG_LOW_BYTES: usize = 64 << 10;

/// The most that one read gives, in bytes.
pub(crate) const CHUNK_BYTES_MAX: u64 = 16 << 10;

pub(crate) type PipeId = usize;

/// What happens next.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Bytes of a peer, or its end, reach a worker.
    Up(PipeId),
    /// Bytes of a worker, or its end, reach a peer.
    Down(PipeId),
    Drained(PipeId),
    Connect(PipeId),
    Leave(PipeId),
    Linger(PipeId),
    Mail(u16),
    Tick,
    LookUp(String),
    /// A client goes on.
    Client(usize),
    ClientArrives(usize),
    ClientVanishes(usize),
    ClientCancels(usize),
    /// A server goes on, unless it has been told otherwise since.
    Backend(usize, u32),
    Crash,
    CrashOf(PipeId),
    Reload,
    Stop,
    SchemaChange,
    Nothing,
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Client(usize),
    Canceller,
    Backend(usize),
    /// A connect that has not ended, or never will.
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Connecting,
    Open,
    Closing,
    Leaving,
    Gone,
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) bytes: Vec<u8>,
    scheduled: bool,
    /// Whether the writer has closed it.
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) worker: u16,
    pub(crate) conn: u32,
    pub(crate) owner: Option<Owner>,
    pub(crate) life: Life,
    pub(crate) peer: Peer,
    pub(crate) up: Wire,
    pub(crate) down: Wire,
    pub(crate) paused: bool,
    /// Whether something was on its way when reading was paused.
    under_way: bool,
    pub(crate) peer_gone: bool,
    /// Whether a failed send has shown that the peer is gone.
    broken: bool,
    told: bool,
    high: bool,
    early: Vec<u8>,
    leaving: Option<(u16, Box<Server>, ClientRef)>,
    /// The peer does not read before.
    pub(crate) stalled_until: Time,
}

/// What a worker's mailbox holds.
pub(crate) enum Parcel {
    Mail(Mail),
    Server { pipe: PipeId, server: Box<Server>, client: ClientRef, early: Vec<u8> },
}

/// What a delivery brings to a worker.
pub(crate) enum Arrival {
    Bytes(Owner, Vec<u8>),
    End(Owner),
    Nothing,
}

/// What a delivery brings to a peer.
pub(crate) enum Delivery {
    Bytes(Peer, Vec<u8>),
    End(Peer),
    Nothing,
}

/// All connections, and what is to come.
pub(crate) struct SimIo {
    pub(crate) now: Time,
    seq: u64,
    agenda: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Event>,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) pipes: Vec<Pipe>,
    conns: Vec<Slab<PipeId>>,
    pub(crate) mailboxes: Vec<VecDeque<Parcel>>,
    /// The worker whose engine is being called, and the chunk it was given.
    pub(crate) worker: u16,
    pub(crate) chunk: Vec<u8>,
    pub(crate) tracing: bool,
    pub(crate) backlog_max: usize,
}

impl SimIo {
    pub(crate) fn new(seed: u64, plan: Plan, tracing: bool) -> Self {
        let workers = usize::from(plan.workers);
        Self {
            now: Time(0),
            seq: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            rng: Rng::new(seed ^ 0xabcd),
            plan,
            pipes: Vec::new(),
            conns: (0..workers).map(|_| Slab::new()).collect(),
            mailboxes: (0..workers).map(|_| VecDeque::new()).collect(),
            worker: 0,
            chunk: Vec::new(),
            tracing,
            backlog_max: 0,
        }
    }

    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if self.tracing {
            println!("{:>12.3} ms  {}", self.now.0 as f64 / 1000.0, line());
        }
    }

    pub(crate) fn at(&mut self, time: Time, event: Event) {
        self.seq += 1;
        self.events.push(event);
        self.agenda.push(Reverse((time, self.seq, self.events.len() - 1)));
    }

    pub(crate) fn after(&mut self, micros: u64, event: Event) {
        self.at(self.now + Duration::from_micros(micros), event);
    }

    /// A moment on the network: short mostly, long at times.
    pub(crate) fn moment(&mut self) -> u64 {
        match self.rng.below(20) {
            0..10 => self.rng.below(60),
            10..19 => self.rng.below(600),
            _ => self.rng.below(self.plan.delay_micros_max),
        }
    }

    /// The next event, to which the clock is put forward.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((time, _, event)) = self.agenda.pop()?;
        self.now = time;
        Some(std::mem::replace(&mut self.events[event], Event::Nothing))
    }

    /// A new connection of a client to a worker.
    pub(crate) fn open_client(&mut self, worker: u16, peer: Peer) -> (PipeId, Conn) {
        let pipe = self.pipes.len();
        let conn = self.conns[usize::from(worker)].insert(pipe) as u32;
        self.pipes.push(Pipe::new(worker, conn, peer, Life::Open));
        (pipe, Conn(conn))
    }

    fn pipe_of(&self, conn: Conn) -> PipeId {
        *self.conns[usize::from(self.worker)].get(conn.0 as usize).expect("the engine uses a connection that is gone")
    }

    /// Who is at the other end of a worker's connection.
    pub(crate) fn peer_of(&self, worker: usize, conn: Conn) -> Option<Peer> {
        Some(self.pipes[*self.conns[worker].get(conn.0 as usize)?].peer)
    }

    fn free(&mut self, pipe: PipeId) {
        let Pipe { worker, conn, life, .. } = &mut self.pipes[pipe];
        if *life != Life::Gone {
            *life = Life::Gone;
            self.conns[usize::from(*worker)].remove(*conn as usize);
        }
    }

    pub(crate) fn wake_up(&mut self, pipe: PipeId) {
        let moment = self.moment();
        if !std::mem::replace(&mut self.pipes[pipe].up.scheduled, true) {
            self.after(moment, Event::Up(pipe));
        }
    }

    pub(crate) fn wake_down(&mut self, pipe: PipeId) {
        let moment = self.moment();
        if !std::mem::replace(&mut self.pipes[pipe].down.scheduled, true) {
            let stall = self.pipes[pipe].stalled_until.since(self.now).as_micros() as u64;
            self.after(moment + stall, Event::Down(pipe));
        }
    }

    /// A peer writes.
    pub(crate) fn write_up(&mut self, pipe: PipeId, bytes: &[u8]) {
        if !self.pipes[pipe].peer_gone {
            self.pipes[pipe].up.bytes.extend_from_slice(bytes);
            self.wake_up(pipe);
        }
    }

    /// A peer is gone; with `lossy`, what it has written last may be lost.
    pub(crate) fn close_up(&mut self, pipe: PipeId, lossy: bool) {
        if std::mem::replace(&mut self.pipes[pipe].peer_gone, true) {
            return;
        }
        if lossy {
            let kept = self.rng.index(self.pipes[pipe].up.bytes.len() + 1);
            self.pipes[pipe].up.bytes.truncate(kept);
        }
        self.pipes[pipe].up.ended = true;
        self.pipes[pipe].down.bytes.clear();
        self.wake_up(pipe);
        self.wake_down(pipe);
    }

    fn cut(&mut self, available: usize) -> usize {
        let most = (available as u64).min(CHUNK_BYTES_MAX);
        let cut = match self.plan.cut_percent {
            percent if !self.rng.percent(percent) => most,
            _ if available > 2000 => self.rng.range(most / 4, most),
            _ if self.rng.percent(50) => self.rng.range(1, most.min(9)),
            _ => self.rng.range(1, most),
        };
        cut as usize
    }

    /// Something of a peer reaches its worker.
    pub(crate) fn arrive(&mut self, pipe: PipeId) -> Arrival {
        let cut = match self.pipes[pipe].up.bytes.len() {
            0 => 0,
            available => self.cut(available),
        };
        let it = &mut self.pipes[pipe];
        it.up.scheduled = false;
        match it.life {
            Life::Connecting => return Arrival::Nothing,
            Life::Closing | Life::Gone => {
                it.up.bytes.clear();
                if it.peer_gone && it.life == Life::Closing {
                    self.free(pipe);
                }
                return Arrival::Nothing;
            }
            // Already in the mail: what comes waits for the new worker.
            Life::Leaving if it.leaving.is_none() => return Arrival::Nothing,
            Life::Leaving => {
                it.early.extend(it.up.bytes.drain(..cut));
                return Arrival::Nothing;
            }
            Life::Open => {}
        }
        let Some(owner) = it.owner else { return Arrival::Nothing };
        if it.told || it.paused && !it.under_way && !it.broken {
            return Arrival::Nothing;
        }
        it.under_way = false;
        if it.broken || cut == 0 {
            if it.broken || it.up.ended {
                it.told = true;
                return Arrival::End(owner);
            }
            return Arrival::Nothing;
        }
        let bytes: Vec<u8> = it.up.bytes.drain(..cut).collect();
        if !it.up.bytes.is_empty() || it.up.ended {
            self.wake_up(pipe);
        }
        Arrival::Bytes(owner, bytes)
    }

    /// Something of a worker reaches its peer.
    pub(crate) fn deliver(&mut self, pipe: PipeId) -> Delivery {
        let it = &mut self.pipes[pipe];
        it.down.scheduled = false;
        if it.stalled_until > self.now {
            self.wake_down(pipe);
            return Delivery::Nothing;
        }
        if it.life == Life::Connecting {
            return Delivery::Nothing;
        }
        let delivery = if it.down.bytes.is_empty() {
            if !it.down.ended {
                if it.life == Life::Leaving {
                    self.leave_soon(pipe);
                }
                return Delivery::Nothing;
            }
            self.end_down(pipe)
        } else {
            let available = it.down.bytes.len();
            let cut = self.cut(available);
            let it = &mut self.pipes[pipe];
            let bytes: Vec<u8> = it.down.bytes.drain(..cut).collect();
            Delivery::Bytes(it.peer, bytes)
        };
        let it = &mut self.pipes[pipe];
        if it.high && it.down.bytes.len() <= BACKLOG_LOW_BYTES {
            it.high = false;
            let moment = self.moment();
            self.after(moment, Event::Drained(pipe));
        }
        let it = &self.pipes[pipe];
        if !it.down.bytes.is_empty() || it.down.ended && it.life == Life::Closing {
            self.wake_down(pipe);
        } else if it.life == Life::Leaving {
            self.leave_soon(pipe);
        }
        delivery
    }

    /// The peer learns that the worker has closed.
    pub(crate) fn end_down(&mut self, pipe: PipeId) -> Delivery {
        let it = &mut self.pipes[pipe];
        if it.life == Life::Gone {
            return Delivery::Nothing;
        }
        let (peer, gone) = (it.peer, std::mem::replace(&mut it.peer_gone, true));
        it.down.bytes.clear();
        self.free(pipe);
        if gone { Delivery::Nothing } else { Delivery::End(peer) }
    }

    fn leave_soon(&mut self, pipe: PipeId) {
        let moment = self.moment();
        self.after(moment, Event::Leave(pipe));
    }

    /// A connection that is changing hands goes into the mail.
    pub(crate) fn leave(&mut self, pipe: PipeId) {
        let it = &mut self.pipes[pipe];
        if it.life != Life::Leaving || !it.down.bytes.is_empty() {
            return;
        }
        let Some((worker, server, client)) = it.leaving.take() else { return };
        let early = std::mem::take(&mut it.early);
        let (from, conn) = (it.worker, it.conn);
        self.conns[usize::from(from)].remove(conn as usize);
        self.post(worker, Parcel::Server { pipe, server, client, early });
    }

    /// The connection has arrived at its new worker.
    pub(crate) fn take_over(&mut self, pipe: PipeId, worker: u16) -> Conn {
        let conn = self.conns[usize::from(worker)].insert(pipe) as u32;
        let it = &mut self.pipes[pipe];
        (it.worker, it.conn, it.life, it.owner) = (worker, conn, Life::Open, None);
        (it.paused, it.told, it.broken) = (false, false, false);
        Conn(conn)
    }

    pub(crate) fn post(&mut self, worker: u16, parcel: Parcel) {
        self.mailboxes[usize::from(worker)].push_back(parcel);
        let moment = self.moment();
        self.after(moment, Event::Mail(worker));
    }
}

impl Pipe {
    fn new(worker: u16, conn: u32, peer: Peer, life: Life) -> Self {
        Self {
            worker,
            conn,
            owner: None,
            life,
            peer,
            up: Wire::default(),
            down: Wire::default(),
            paused: false,
            under_way: false,
            peer_gone: false,
            broken: false,
            told: false,
            high: false,
            early: Vec::new(),
            leaving: None,
            stalled_until: Time(0),
        }
    }
}

impl Io for SimIo {
    fn forward(&mut self, to: Conn, range: Range<usize>) {
        let bytes = self.chunk[range].to_vec();
        self.send(to, &bytes);
    }

    fn send(&mut self, to: Conn, bytes: &[u8]) {
        let pipe = self.pipe_of(to);
        let it = &mut self.pipes[pipe];
        assert!(matches!(it.life, Life::Open | Life::Connecting), "the engine sends on a connection it has closed");
        if it.peer_gone {
            // A send that fails shows it, even where nothing is read.
            it.broken |= it.paused;
            self.wake_up(pipe);
            return;
        }
        it.down.bytes.extend_from_slice(bytes);
        it.high |= it.down.bytes.len() > BACKLOG_HIGH_BYTES;
        self.backlog_max = self.backlog_max.max(it.down.bytes.len());
        self.wake_down(pipe);
    }

    fn backlog(&self, conn: Conn) -> usize {
        self.pipes[self.pipe_of(conn)].down.bytes.len()
    }

    fn pause(&mut self, conn: Conn) {
        let pipe = self.pipe_of(conn);
        let it = &mut self.pipes[pipe];
        it.paused = true;
        it.under_way = it.up.scheduled;
    }

    fn resume(&mut self, conn: Conn) {
        let pipe = self.pipe_of(conn);
        self.pipes[pipe].paused = false;
        self.wake_up(pipe);
    }

    fn close(&mut self, conn: Conn) {
        let pipe = self.pipe_of(conn);
        let it = &mut self.pipes[pipe];
        assert!(matches!(it.life, Life::Open | Life::Connecting), "the engine closes a connection twice");
        it.owner = None;
        it.up.bytes.clear();
        it.down.ended = true;
        if it.peer_gone || it.peer == Peer::Nobody {
            self.free(pipe);
            return;
        }
        it.life = Life::Closing;
        self.wake_down(pipe);
        self.after(2_000_000, Event::Linger(pipe));
    }

    fn connect(&mut self, owner: Owner, _: &Address) -> Conn {
        let pipe = self.pipes.len();
        let conn = self.conns[usize::from(self.worker)].insert(pipe) as u32;
        self.pipes.push(Pipe::new(self.worker, conn, Peer::Nobody, Life::Connecting));
        self.pipes[pipe].owner = Some(owner);
        let moment = self.moment();
        self.after(moment, Event::Connect(pipe));
        Conn(conn)
    }

    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, HandOver(client): HandOver) {
        let pipe = self.pipe_of(conn);
        let it = &mut self.pipes[pipe];
        assert_eq!(it.life, Life::Open, "the engine hands over a connection it does not have");
        (it.life, it.owner) = (Life::Leaving, None);
        it.leaving = Some((worker, server, client));
        if it.down.bytes.is_empty() {
            self.leave_soon(pipe);
        }
    }

    fn mail(&mut self, worker: u16, mail: Mail) {
        if let Mail::Fetch(server, ..) = &mail
            && self.plan.crashes > 0
            && self.rng.percent(10)
        {
            // A server that is given away and dies before the letter comes.
            let owner = Some(Owner::Server(server.id));
            let found = self.pipes.iter().position(|p| p.life == Life::Open && p.worker == worker && p.owner == owner);
            let moment = self.moment();
            if let Some(pipe) = found {
                self.after(moment, Event::CrashOf(pipe));
            }
        }
        self.post(worker, Parcel::Mail(mail));
    }

    fn look_up(&mut self, user: &str) {
        let delay = 2 * self.moment();
        self.after(delay, Event::LookUp(user.to_owned()));
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|b| *b = self.rng.next() as u8);
    }

    fn log(&mut self, event: LogEvent<'_>) {
        self.trace(|| format!("worker {} says {event:?}", self.worker));
    }
}
