//! The agenda of a run, on virtual time. An event that the network wakes up is carried out a moment later.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use sluice_core::{ids::ServerRef, time::Time};
use sluice_sim::{Faults, Network, Rng, Style, Wake};

use crate::plan::Plan;

pub(crate) use sluice_sim::PipeId;

/// The next event.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Bytes of a peer, or its end, reach a worker.
    Up(PipeId),
    /// Bytes of a worker, or its end, reach a peer.
    Down(PipeId),
    Connect(PipeId),
    /// A worker does what there is to do.
    Turn(u16),
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
    CrashOf(ServerRef),
    /// A server process dies, if it is still there.
    CrashSoon(usize),
    Reload,
    /// The pool is configured otherwise.
    Configure,
    /// An operator has the pool pause, or open other servers.
    Operate,
    /// The pause is over.
    Resume,
    Stop,
    SchemaChange,
    Nothing,
}

/// The peer at the other end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Client(usize),
    Canceller,
    Backend(usize),
    /// A connect that has not ended, or never will.
    Nobody,
}

/// The agenda, and the network on which its events happen.
pub(crate) struct SimIo {
    pub(crate) now: Time,
    seq: u64,
    agenda: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Event>,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) network: Network,
    peers: Vec<Peer>,
    /// Until when each peer does not read.
    stalled: Vec<Time>,
    pub(crate) tracing: bool,
}

impl SimIo {
    pub(crate) fn new(seed: u64, plan: Plan, tracing: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xabcd);
        let styles: Vec<Style> = (0..plan.workers).map(|_| rng.pick(&[Style::Completes, Style::Polls])).collect();
        let faults = Faults {
            rng: Rng::new(seed ^ 0xfa17),
            cut_percent: plan.cut_percent,
            short_send_percent: rng.pick(&[0, 5, 30]),
            late_percent: 50,
            stop_percent: rng.pick(&[0, 5]),
            no_socket_percent: if plan.connect_trouble { rng.pick(&[0, 20]) } else { 0 },
            no_accept_percent: if plan.connect_trouble { 5 } else { 0 },
        };
        let network = Network::new(&styles, plan.room_bytes, faults);
        if tracing {
            network.listen();
        }
        Self {
            now: Time(0),
            seq: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            rng,
            plan,
            network,
            peers: Vec::new(),
            stalled: Vec::new(),
            tracing,
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
        self.plan_wakes();
        let Reverse((time, _, event)) = self.agenda.pop()?;
        self.now = time;
        Some(std::mem::replace(&mut self.events[event], Event::Nothing))
    }

    /// Puts what the network has woken up on the agenda.
    fn plan_wakes(&mut self) {
        for wake in self.network.take_wakes() {
            // Said only where there is a trace: a run with one must be the same run.
            if let Wake::Said(worker, what) = wake {
                self.trace(|| format!("worker {worker} says {what}"));
                continue;
            }
            let moment = self.moment();
            match wake {
                Wake::Up(pipe) => self.after(moment, Event::Up(pipe)),
                Wake::Down(pipe) => {
                    let stall = self.stall_of(pipe).since(self.now).as_micros() as u64;
                    self.after(moment + stall, Event::Down(pipe));
                }
                Wake::Connect(pipe) => self.after(moment, Event::Connect(pipe)),
                Wake::Turn(worker) => {
                    let busy = self.rng.below(20);
                    self.after(busy, Event::Turn(worker));
                }
                Wake::Mail(worker) => self.after(moment, Event::Mail(worker)),
                // A server that is given away and dies before the letter comes.
                Wake::Fetch(server) if self.plan.crashes > 0 && self.rng.percent(10) => {
                    self.after(moment, Event::CrashOf(server));
                }
                Wake::Fetch(_) => {}
                Wake::LookUp(user) => self.after(2 * moment, Event::LookUp(user)),
                Wake::Said(..) => {}
            }
        }
    }

    /// The peer at the other end.
    pub(crate) fn peer(&self, pipe: PipeId) -> Peer {
        self.peers.get(pipe).copied().unwrap_or(Peer::Nobody)
    }

    pub(crate) fn set_peer(&mut self, pipe: PipeId, peer: Peer) {
        let known = self.peers.len().max(pipe + 1);
        self.peers.resize(known, Peer::Nobody);
        self.peers[pipe] = peer;
    }

    /// A peer does not read before that time.
    pub(crate) fn stall(&mut self, pipe: PipeId, until: Time) {
        let known = self.stalled.len().max(pipe + 1);
        self.stalled.resize(known, Time(0));
        self.stalled[pipe] = until;
    }

    pub(crate) fn stall_of(&self, pipe: PipeId) -> Time {
        self.stalled.get(pipe).copied().unwrap_or_default()
    }

    /// A peer writes.
    pub(crate) fn write_up(&mut self, pipe: PipeId, bytes: &[u8]) {
        self.network.write(pipe, bytes);
    }

    /// A peer is gone; with `lossy`, what it has written last may be lost.
    pub(crate) fn close_up(&mut self, pipe: PipeId, lossy: bool) {
        self.network.hang_up(pipe, lossy);
    }
}
