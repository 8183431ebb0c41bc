//! Workers moved on by hand: whatever can happen happens at once, but for what the user holds back.

use std::{collections::VecDeque, io, rc::Rc, sync::Arc, time::Duration};

use sluice_core::{
    Engine,
    hub::Hub,
    io::{Conn, Io, Owner, PeerAddress},
    mail::Mail,
    time::Time,
};
use sluice_net::Parcel;

use crate::{
    Delivery, Faults, Network, PipeId, Rng, SimDriver, SimHost, SimMailboxes, SimSocket, SimWorker, Style, Wake,
};

/// The other side of a connection: a client, or a server.
#[derive(Debug, Default)]
pub struct Side {
    /// Bytes that it was sent and nobody has looked at.
    pub heard: Vec<u8>,
    /// The number of bytes that it was ever sent.
    pub total: usize,
    /// Whether it reads what it is sent.
    pub reads: bool,
    /// Whether the worker has closed the connection.
    pub ended: bool,
    /// Whether it has connected, and was not connected to.
    pub is_client: bool,
}

/// Workers, and the sides that they talk to.
pub struct Lockstep {
    network: Network,
    mailboxes: Rc<SimMailboxes>,
    workers: Vec<SimWorker>,
    now: Time,
    sides: Vec<Side>,
    /// Connects of workers that have not ended.
    connecting: Vec<PipeId>,
    /// Workers with mail that they have not been told of.
    mail: Vec<bool>,
    holds_mail: bool,
    /// Whether a new side reads what it is sent.
    reads: bool,
    /// Users whose secrets were asked for.
    pub asked: VecDeque<String>,
    /// Servers that went from one worker to another.
    pub handed_over: usize,
}

impl Lockstep {
    /// One worker for each style of driver, with so many buffers of that size each. A side that does not read is sent
    /// `room` bytes.
    pub fn new(hub: &Arc<Hub>, styles: &[Style], (count, size): (u16, usize), room: usize) -> Self {
        let network = Network::new(styles, room, Faults::none());
        let mailboxes = SimHost::mailboxes(&network, styles.len() as u16);
        let worker = |number: u16| {
            let (driver, buffers) = SimDriver::new(&network, number, count, size);
            let host = SimHost::new(&network, number, &mailboxes, Rng::new(u64::from(number)));
            SimWorker::new(Engine::new(number, hub.clone()), driver, buffers, host)
        };
        Self {
            workers: (0..styles.len() as u16).map(worker).collect(),
            mail: vec![false; styles.len()],
            network,
            mailboxes,
            now: Time(0),
            sides: Vec::new(),
            connecting: Vec::new(),
            holds_mail: false,
            reads: true,
            asked: VecDeque::new(),
            handed_over: 0,
        }
    }

    /// Mail waits for [`read_mail`](Self::read_mail) from now on.
    #[must_use]
    pub fn holding_mail(self) -> Self {
        Self { holds_mail: true, ..self }
    }

    /// New sides do not read before they are told to.
    #[must_use]
    pub fn unread(self) -> Self {
        Self { reads: false, ..self }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The workers.
    pub fn workers(&self) -> &[SimWorker] {
        &self.workers
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// All sides there have been, by the numbers of their connections.
    pub fn sides(&self) -> &[Side] {
        &self.sides
    }

    /// A side.
    pub fn side(&mut self, pipe: PipeId) -> &mut Side {
        let reads = self.reads;
        while self.sides.len() <= pipe {
            self.sides.push(Side { reads, ..Side::default() });
        }
        &mut self.sides[pipe]
    }

    /// The place of a connection: its worker, its number there, and its owner.
    pub fn place(&self, pipe: PipeId) -> Option<(u16, Conn, Owner)> {
        let here =
            |(_, _, socket): &(Conn, Option<Owner>, Option<&SimSocket>)| socket.is_some_and(|s| s.pipe() == pipe);
        self.workers.iter().enumerate().find_map(|(worker, it)| {
            let (conn, owner, _) = it.net().connections().find(here)?;
            Some((worker as u16, conn, owner?))
        })
    }

    /// Bytes for a side that it has not read.
    pub fn unread_by(&self, pipe: PipeId) -> usize {
        let waiting =
            self.place(pipe).map_or(0, |(worker, conn, _)| self.workers[usize::from(worker)].net().backlog(conn));
        waiting + self.network.undelivered(pipe)
    }

    /// A client connects; `None` if nobody accepts it.
    pub fn open(&mut self, worker: u16, address: PeerAddress) -> Option<PipeId> {
        let pipe = self.network.open(worker, address)?;
        self.side(pipe).is_client = true;
        self.run();
        Some(pipe)
    }

    /// The connects of workers that have not ended.
    pub fn connecting(&mut self) -> Vec<PipeId> {
        let network = &self.network;
        self.connecting.retain(|pipe| network.is_connecting(*pipe));
        self.connecting.clone()
    }

    /// A connect succeeds.
    pub fn connect(&mut self, pipe: PipeId) {
        self.connecting.retain(|other| *other != pipe);
        self.side(pipe);
        self.network.end_connect(pipe, None);
        self.run();
    }

    /// A connect fails.
    pub fn refuse(&mut self, pipe: PipeId) {
        self.connecting.retain(|other| *other != pipe);
        self.network.end_connect(pipe, Some(io::ErrorKind::ConnectionRefused));
        self.run();
    }

    /// A side says something: each piece is read by itself, and all before anything is done about them.
    pub fn say(&mut self, pipe: PipeId, pieces: &[&[u8]]) {
        for piece in pieces {
            self.network.write_piece(pipe, piece);
            self.network.arrive(pipe);
        }
        self.run();
    }

    /// A side hangs up.
    pub fn hang_up(&mut self, pipe: PipeId) {
        self.network.hang_up(pipe, false);
        self.run();
    }

    /// A side reads what it is sent from now on, or does not.
    pub fn set_reads(&mut self, pipe: PipeId, reads: bool) {
        self.side(pipe).reads = reads;
        if reads {
            self.deliver(pipe);
            self.run();
        }
    }

    /// A letter for a worker.
    pub fn post(&mut self, worker: u16, mail: Mail) {
        self.mailboxes.send(worker, Parcel::Mail(mail));
        self.run();
    }

    /// A worker reads the mail that was held back.
    pub fn read_mail(&mut self, worker: u16) {
        if std::mem::take(&mut self.mail[usize::from(worker)]) {
            let is_server = |parcel: &Parcel<SimSocket>| matches!(parcel, Parcel::Server { .. });
            let before = self.mailboxes.count(is_server);
            self.network.ring(worker);
            self.run();
            self.handed_over += before.saturating_sub(self.mailboxes.count(is_server));
        }
    }

    /// Whether any mail waits.
    pub fn has_mail(&self) -> bool {
        self.mailboxes.count(|_| true) > 0
    }

    /// Time passes, with a tick at its end.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for worker in 0..self.workers.len() {
            if self.workers[worker].next_timeout().is_some_and(|at| at <= self.now) {
                self.workers[worker].tick(self.now);
            }
            self.turn(worker as u16);
        }
        self.run();
    }

    /// Carries out all that there is.
    pub fn run(&mut self) {
        loop {
            let wakes = self.network.take_wakes();
            if wakes.is_empty() {
                return;
            }
            for wake in wakes {
                match wake {
                    Wake::Up(pipe) => self.network.arrive(pipe),
                    Wake::Down(pipe) => self.deliver(pipe),
                    Wake::Connect(pipe) => self.connecting.push(pipe),
                    Wake::Turn(worker) => self.turn(worker),
                    Wake::Mail(worker) if self.holds_mail => self.mail[usize::from(worker)] = true,
                    Wake::Mail(worker) => self.network.ring(worker),
                    Wake::LookUp(user) => self.asked.push_back(user),
                    Wake::Fetch(_) | Wake::Said(..) => {}
                }
            }
        }
    }

    fn turn(&mut self, worker: u16) {
        let worker = &mut self.workers[usize::from(worker)];
        loop {
            worker.wait(Duration::ZERO, Duration::ZERO).expect("the driver never fails");
            while worker.step(self.now) {}
            if !worker.net().has_work() {
                return;
            }
        }
    }

    fn deliver(&mut self, pipe: PipeId) {
        if !self.side(pipe).reads {
            return;
        }
        match self.network.deliver(pipe) {
            Delivery::Bytes(bytes) => {
                let side = self.side(pipe);
                side.total += bytes.len();
                side.heard.extend(bytes);
            }
            Delivery::End => self.side(pipe).ended = true,
            Delivery::Nothing => {}
        }
    }
}
