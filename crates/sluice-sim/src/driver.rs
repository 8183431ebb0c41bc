//! The driver of a simulated worker.
//!
//! It keeps to the contract of [`Driver`] as loosely as the real ones may: bytes come cut anywhere, some still after
//! reading was to stop, reading stops by itself, sends end short or late. And it holds [`Net`](sluice_net::Net) to its
//! side: one send at a time, and no connection given up while something on it is under way.

use std::{io, time::Duration};

use sluice_net::{BufferId, Buffers, Driver, Event, Flight, LinkId};

use crate::{
    Network, PipeId, SimSocket, Style,
    network::{End, Ready, Sending, State},
};

/// A worker's share of the network.
#[derive(Debug)]
pub struct SimDriver {
    network: Network,
    worker: u16,
    free: Vec<BufferId>,
    /// Whether nobody is to be accepted for now.
    is_paused: bool,
    /// Connections that could not be accepted, and wait.
    waiting: Vec<PipeId>,
}

impl SimDriver {
    /// The driver of a worker, which receives into so many buffers of that size.
    pub fn new(network: &Network, worker: u16, count: u16, size: usize) -> (Self, Buffers) {
        let free = (0..count).rev().collect();
        let driver = Self { network: network.clone(), worker, free, is_paused: false, waiting: Vec::new() };
        (driver, Buffers::new(count, size))
    }
}

impl Driver for SimDriver {
    type Socket = SimSocket;

    fn stop_accepting(&mut self) {
        self.network.0.borrow_mut().drivers[usize::from(self.worker)].accepting = false;
        // Whoever waits was accepted just before.
        self.is_paused = false;
        self.report_waiting();
    }

    fn pause_accepting(&mut self) {
        self.is_paused = true;
    }

    fn resume_accepting(&mut self) {
        self.is_paused = false;
        self.report_waiting();
    }

    fn await_connect(&mut self, link: LinkId, socket: &SimSocket) {
        self.network.0.borrow_mut().await_connect(self.worker, link, socket.pipe());
    }

    fn start_reading(&mut self, link: LinkId, socket: &SimSocket) {
        let state = &mut *self.network.0.borrow_mut();
        let watch = state.watch_of(self.worker, link, socket.pipe());
        assert!(!watch.reading, "a connection is read from twice");
        watch.reading = true;
        let pipe = &state.pipes[socket.pipe()];
        if !pipe.up.is_empty() || pipe.up_end != End::No {
            state.wake_up(socket.pipe());
        }
    }

    fn stop_reading(&mut self, link: LinkId, socket: &SimSocket) {
        let state = &mut *self.network.0.borrow_mut();
        state.watch_of(self.worker, link, socket.pipe());
        state.report(self.worker, Ready::Stop(link));
    }

    fn forget(&mut self, link: LinkId) {
        self.network.0.borrow_mut().forget(self.worker, link);
    }

    fn send(
        &mut self,
        link: LinkId,
        socket: &SimSocket,
        flight: &mut Flight,
        buffers: &Buffers,
    ) -> Option<io::Result<usize>> {
        let state = &mut *self.network.0.borrow_mut();
        let watch = state.watch_of(self.worker, link, socket.pipe());
        assert!(matches!(watch.sending, Sending::No), "a connection has two sends under way");
        let bytes: Vec<u8> = match flight.single(buffers) {
            Some(bytes) => bytes.to_vec(),
            None => flight.slices(buffers).iter().map(|slice| &**slice).collect::<Vec<_>>().concat(),
        };
        assert!(!bytes.is_empty(), "nothing is sent");
        match state.drivers[usize::from(self.worker)].style {
            Style::Completes => {
                state.set_sending(self.worker, link, Sending::UnderWay { bytes, taken: 0 });
                state.go_on_sending(socket.pipe());
                None
            }
            Style::Polls => match state.take(socket.pipe(), &bytes) {
                Ok(0) => {
                    state.set_sending(self.worker, link, Sending::AwaitsRoom);
                    None
                }
                other => Some(other),
            },
        }
    }

    fn wait(
        &mut self,
        _timeout: Duration,
        _spin: Duration,
        buffers: &mut Buffers,
        events: &mut Vec<Event<SimSocket>>,
    ) -> io::Result<()> {
        self.free.extend(std::iter::from_fn(|| buffers.take_returned()));
        let network = self.network.clone();
        let state = &mut *network.0.borrow_mut();
        let driver = &mut state.drivers[usize::from(self.worker)];
        driver.turn_due = false;
        for ready in std::mem::take(&mut driver.ready) {
            self.handle(ready, state, buffers, events);
        }
        Ok(())
    }
}

impl SimDriver {
    fn handle(&mut self, ready: Ready, state: &mut State, buffers: &mut Buffers, events: &mut Vec<Event<SimSocket>>) {
        match ready {
            Ready::Accepted(pipe) => self.accept(pipe, state, events),
            Ready::Connected(link) => {
                if let Some(watch) = state.watch_mut(self.worker, link)
                    && std::mem::take(&mut watch.connecting)
                {
                    events.push(Event::Connected(link));
                }
            }
            Ready::Readable(link) => self.read(link, state, buffers, events),
            Ready::Stop(link) => {
                let late = state.faults.late_percent;
                if state.faults.happens(late) {
                    self.read(link, state, buffers, events);
                }
                self.stop(link, state, events);
            }
            Ready::Sent(link, result) => {
                state.set_sending(self.worker, link, Sending::No);
                events.push(Event::Sent(link, result));
            }
            Ready::Writable(link) => events.push(Event::Writable(link)),
            Ready::Mail => events.push(Event::Mail),
        }
    }

    fn accept(&mut self, pipe: PipeId, state: &mut State, events: &mut Vec<Event<SimSocket>>) {
        let fails = state.drivers[usize::from(self.worker)].accepting && state.faults.fails_to_accept();
        if fails {
            events.push(Event::AcceptExhausted(io::ErrorKind::OutOfMemory.into()));
        }
        match fails || self.is_paused {
            true => self.waiting.push(pipe),
            false => events.push(Event::Accepted(SimSocket::new(&self.network, pipe))),
        }
    }

    fn report_waiting(&mut self) {
        let state = &mut *self.network.0.borrow_mut();
        for pipe in self.waiting.drain(..) {
            state.report(self.worker, Ready::Accepted(pipe));
        }
    }

    fn stop(&mut self, link: LinkId, state: &mut State, events: &mut Vec<Event<SimSocket>>) {
        if let Some(watch) = state.watch_mut(self.worker, link)
            && std::mem::take(&mut watch.reading)
        {
            events.push(Event::Stopped(link));
        }
    }

    fn read(&mut self, link: LinkId, state: &mut State, buffers: &mut Buffers, events: &mut Vec<Event<SimSocket>>) {
        let style = state.drivers[usize::from(self.worker)].style;
        let Some(watch) = state.watch_mut(self.worker, link).filter(|watch| watch.reading) else { return };
        let pipe = watch.pipe;
        let (up, end) = (&state.pipes[pipe].up, state.pipes[pipe].up_end);
        if up.is_empty() {
            let error = match end {
                End::No => return,
                End::Clean => None,
                End::Reset => Some(io::ErrorKind::ConnectionReset.into()),
            };
            if let Some(watch) = state.watch_mut(self.worker, link) {
                watch.reading = false;
            }
            events.push(Event::Ended(link, error));
            return;
        }
        let Some(buffer) = self.free.pop() else {
            match style {
                Style::Completes => self.stop(link, state, events),
                Style::Polls => state.report(self.worker, Ready::Readable(link)),
            }
            return;
        };
        let space = buffers.free_space(buffer);
        let len = state.faults.cut(up.len().min(space.len()));
        let len = state.pipes[pipe].read(&mut space[..len]);
        events.push(Event::Received(link, buffers.filled(buffer, len as u32)));
        let stop = state.faults.stop_percent;
        if style == Style::Completes && state.faults.happens(stop) {
            self.stop(link, state, events);
        } else if !state.pipes[pipe].up.is_empty() || end != End::No {
            state.wake_up(pipe);
        }
    }
}
