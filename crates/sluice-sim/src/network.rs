//! Pipes between peers and workers. A pipe is a socket at the worker's end, and a function call at the peer's.

use std::{cell::RefCell, collections::VecDeque, io, net::Shutdown, rc::Rc, time::Duration};

use sluice_core::ids::ServerRef;
use sluice_core::io::{Address, PeerAddress};
use sluice_net::{LinkId, Socket};

use crate::{Faults, bytes::Bytes};

/// A connection there has been, by its number; none is used twice.
pub type PipeId = usize;

/// Something that must be carried out, at once or later. Each is reported once until it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Bytes of a peer, or its end, are on their way to a worker: [`Network::arrive`].
    Up(PipeId),
    /// Bytes of a worker, or its end, are on their way to a peer: [`Network::deliver`].
    Down(PipeId),
    /// A worker connects to a server: [`Network::end_connect`], or never.
    Connect(PipeId),
    /// There is something for a worker to do: it takes a turn.
    Turn(u16),
    /// A worker has mail: [`Network::ring`].
    Mail(u16),
    /// A worker asks another for a server; nothing has to be done.
    Fetch(ServerRef),
    /// A worker asks for the secret of a user.
    LookUp(String),
    /// A worker has said something to the operator; only where it is listened to.
    Said(u16, String),
}

/// A delivery to a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The worker has closed the connection, and the peer hangs up.
    End,
    /// Nothing.
    Nothing,
}

/// The manner of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// It completes what it was asked for, as io_uring does.
    Completes,
    /// It reports when something may be tried, as epoll does.
    Polls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connect {
    UnderWay,
    Open,
    Failed(io::ErrorKind),
}

/// The end of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    No,
    Clean,
    Reset,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    address: PeerAddress,
    connect: Connect,
    connects_to: Option<Address>,
    /// The connection at the worker that has it, once that has asked for anything.
    link: Option<(u16, LinkId)>,
    /// Bytes that the peer has written and no worker has read.
    pub(crate) up: Bytes,
    /// The lengths of the pieces in which they are read, where that was said.
    pieces: VecDeque<usize>,
    pub(crate) up_end: End,
    up_due: bool,
    /// Bytes that a worker has written and the peer has not read.
    down: Bytes,
    /// Whether the worker's side has ended it.
    down_ended: bool,
    down_due: bool,
    /// Whether the peer has hung up, or is gone.
    peer_gone: bool,
    /// Whether the worker's socket is open.
    is_open: bool,
}

/// An event that a driver has found and not reported.
#[derive(Debug)]
pub(crate) enum Ready {
    Accepted(PipeId),
    Connected(LinkId),
    Readable(LinkId),
    Stop(LinkId),
    Sent(LinkId, io::Result<usize>),
    Writable(LinkId),
    Mail,
}

/// The state of a send.
#[derive(Debug, Default)]
pub(crate) enum Sending {
    #[default]
    No,
    /// The kernel takes these bytes one by one.
    UnderWay { bytes: Vec<u8>, taken: usize },
    /// It waits until there is room.
    AwaitsRoom,
    /// It has ended, and the worker does not know.
    Ended,
}

/// The operations of a driver on a connection.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) pipe: PipeId,
    pub(crate) connecting: bool,
    pub(crate) reading: bool,
    pub(crate) sending: Sending,
}

#[derive(Debug)]
pub(crate) struct DriverState {
    pub(crate) style: Style,
    pub(crate) accepting: bool,
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) watches: Vec<Option<Watch>>,
    pub(crate) turn_due: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) drivers: Vec<DriverState>,
    pub(crate) faults: Faults,
    /// Connects that failed before they began.
    sockets_refused: u64,
    wakes: Vec<Wake>,
    /// The room for bytes on their way to a peer, in bytes.
    room: usize,
    pub(crate) listens: bool,
}

/// All connections of a run. Clones are the same network.
#[derive(Debug, Clone)]
pub struct Network(pub(crate) Rc<RefCell<State>>);

impl Network {
    /// A network for workers with drivers of these manners. A peer that does not read is sent `room` bytes.
    pub fn new(styles: &[Style], room: usize, faults: Faults) -> Self {
        let driver = |style: &Style| DriverState {
            style: *style,
            accepting: true,
            ready: VecDeque::new(),
            watches: Vec::new(),
            turn_due: false,
        };
        let drivers = styles.iter().map(driver).collect();
        let state =
            State { pipes: Vec::new(), drivers, faults, sockets_refused: 0, wakes: Vec::new(), room, listens: false };
        Self(Rc::new(RefCell::new(state)))
    }

    /// Reports what workers say to the operator as well.
    pub fn listen(&self) {
        self.0.borrow_mut().listens = true;
    }

    /// Changes what goes wrong.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.borrow_mut().faults);
    }

    /// Takes what must be carried out.
    pub fn take_wakes(&self) -> Vec<Wake> {
        std::mem::take(&mut self.0.borrow_mut().wakes)
    }

    /// A peer connects to a worker; `None` if that accepts nobody any more.
    pub fn open(&self, worker: u16, address: PeerAddress) -> Option<PipeId> {
        let mut state = self.0.borrow_mut();
        if !state.drivers[usize::from(worker)].accepting {
            return None;
        }
        let pipe = state.add(address, Connect::Open);
        state.report(worker, Ready::Accepted(pipe));
        Some(pipe)
    }

    /// Whether a worker's connect waits for its end.
    pub fn is_connecting(&self, pipe: PipeId) -> bool {
        let state = self.0.borrow();
        let pipe = &state.pipes[pipe];
        pipe.is_open && pipe.connect == Connect::UnderWay
    }

    /// A connect ends; if it fails, with that error.
    pub fn end_connect(&self, pipe: PipeId, failure: Option<io::ErrorKind>) {
        self.0.borrow_mut().end_connect(pipe, failure.map_or(Connect::Open, Connect::Failed));
    }

    /// A peer writes.
    pub fn write(&self, pipe: PipeId, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        let it = &mut state.pipes[pipe];
        if !it.peer_gone && it.is_open {
            it.up.push(bytes);
            state.wake_up(pipe);
        }
    }

    /// A peer writes something that is read by itself.
    pub fn write_piece(&self, pipe: PipeId, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.borrow_mut().pipes[pipe].pieces.push_back(bytes.len());
            self.write(pipe, bytes);
        }
    }

    /// A peer is gone; with `lossy`, the last that it has written may be lost.
    pub fn hang_up(&self, pipe: PipeId, lossy: bool) {
        let mut state = self.0.borrow_mut();
        let State { pipes, faults, .. } = &mut *state;
        let it = &mut pipes[pipe];
        if std::mem::replace(&mut it.peer_gone, true) {
            return;
        }
        if lossy {
            it.up.truncate(faults.rng.index(it.up.len() + 1));
        }
        let reset = lossy && faults.rng.percent(50);
        it.up_end = if reset { End::Reset } else { End::Clean };
        it.down.clear();
        state.wake_up(pipe);
        state.go_on_sending(pipe);
    }

    /// Bytes of a peer, or its end, reach the worker's socket.
    pub fn arrive(&self, pipe: PipeId) {
        let mut state = self.0.borrow_mut();
        state.pipes[pipe].up_due = false;
        if let Some((worker, link)) = state.pipes[pipe].link
            && state.watch(worker, link).is_some_and(|watch| watch.reading)
        {
            state.report(worker, Ready::Readable(link));
        }
    }

    /// Bytes of a worker, or its end, reach the peer.
    pub fn deliver(&self, pipe: PipeId) -> Delivery {
        let mut state = self.0.borrow_mut();
        let State { pipes, faults, .. } = &mut *state;
        let it = &mut pipes[pipe];
        it.down_due = false;
        if it.down.is_empty() {
            if !it.down_ended || it.peer_gone {
                return Delivery::Nothing;
            }
            it.peer_gone = true;
            if it.up_end == End::No {
                it.up_end = End::Clean;
            }
            state.wake_up(pipe);
            return Delivery::End;
        }
        let cut = faults.cut(it.down.len());
        let bytes = it.down.take(cut).to_vec();
        if !it.down.is_empty() || it.down_ended {
            state.wake_down(pipe);
        }
        state.go_on_sending(pipe);
        Delivery::Bytes(bytes)
    }

    /// A worker learns that it has mail.
    pub fn ring(&self, worker: u16) {
        self.0.borrow_mut().report(worker, Ready::Mail);
    }

    /// The place that a worker has connected to by that pipe.
    pub fn place(&self, pipe: PipeId) -> Option<Address> {
        self.0.borrow().pipes[pipe].connects_to.clone()
    }

    /// Bytes of a peer that no worker has read.
    pub fn unread(&self, pipe: PipeId) -> usize {
        self.0.borrow().pipes[pipe].up.len()
    }

    /// Bytes that were sent to a peer and that it has not read.
    pub fn undelivered(&self, pipe: PipeId) -> usize {
        self.0.borrow().pipes[pipe].down.len()
    }

    /// Whether the worker's socket is open.
    pub fn is_open(&self, pipe: PipeId) -> bool {
        self.0.borrow().pipes[pipe].is_open
    }

    /// Whether the peer is there.
    pub fn has_peer(&self, pipe: PipeId) -> bool {
        !self.0.borrow().pipes[pipe].peer_gone
    }

    /// Whether the worker reads from it.
    pub fn is_read(&self, pipe: PipeId) -> bool {
        let state = self.0.borrow();
        let link = state.pipes[pipe].link;
        link.and_then(|(worker, link)| state.watch(worker, link)).is_some_and(|watch| watch.reading)
    }

    /// The number of connections so far.
    pub fn pipes(&self) -> usize {
        self.0.borrow().pipes.len()
    }

    /// Sockets of workers that are open.
    pub fn open_sockets(&self) -> usize {
        self.0.borrow().pipes.iter().filter(|pipe| pipe.is_open).count()
    }

    /// Connects of workers that failed before they began.
    pub fn sockets_refused(&self) -> u64 {
        self.0.borrow().sockets_refused
    }

    /// A connect of a worker begins; `None` if it fails before that.
    pub(crate) fn begin_connect(&self, place: &Address) -> io::Result<SimSocket> {
        let mut state = self.0.borrow_mut();
        let percent = state.faults.no_socket_percent;
        if state.faults.happens(percent) {
            state.sockets_refused += 1;
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let pipe = state.add(PeerAddress::Local, Connect::UnderWay);
        state.pipes[pipe].connects_to = Some(place.clone());
        Ok(SimSocket { network: self.clone(), pipe })
    }

    pub(crate) fn wake(&self, wake: Wake) {
        self.0.borrow_mut().wakes.push(wake);
    }
}

impl Pipe {
    /// Reads what comes next, at most as much as there is space for.
    pub(crate) fn read(&mut self, space: &mut [u8]) -> usize {
        let mut len = space.len().min(self.up.len());
        if let Some(piece) = self.pieces.front_mut() {
            len = len.min(*piece);
            *piece -= len;
            if *piece == 0 {
                self.pieces.pop_front();
            }
        }
        space[..len].copy_from_slice(self.up.take(len));
        len
    }
}

impl State {
    fn add(&mut self, address: PeerAddress, connect: Connect) -> PipeId {
        self.pipes.push(Pipe {
            address,
            connect,
            connects_to: None,
            link: None,
            up: Bytes::default(),
            pieces: VecDeque::new(),
            up_end: End::No,
            up_due: false,
            down: Bytes::default(),
            down_ended: false,
            down_due: false,
            peer_gone: false,
            is_open: true,
        });
        self.pipes.len() - 1
    }

    pub(crate) fn watch(&self, worker: u16, link: LinkId) -> Option<&Watch> {
        self.drivers[usize::from(worker)].watches.get(link as usize)?.as_ref()
    }

    pub(crate) fn watch_mut(&mut self, worker: u16, link: LinkId) -> Option<&mut Watch> {
        self.drivers[usize::from(worker)].watches.get_mut(link as usize)?.as_mut()
    }

    /// The driver's operations on a connection, which it learns of now if it has not heard of it before.
    pub(crate) fn watch_of(&mut self, worker: u16, link: LinkId, pipe: PipeId) -> &mut Watch {
        self.pipes[pipe].link = Some((worker, link));
        let watches = &mut self.drivers[usize::from(worker)].watches;
        let place = link as usize;
        if watches.len() <= place {
            watches.resize_with(place + 1, || None);
        }
        let fresh = || Watch { pipe, connecting: false, reading: false, sending: Sending::No };
        let watch = watches[place].get_or_insert_with(fresh);
        assert_eq!(watch.pipe, pipe, "a connection's number is used again, and the driver was not told");
        watch
    }

    pub(crate) fn forget(&mut self, worker: u16, link: LinkId) {
        let watches = &mut self.drivers[usize::from(worker)].watches;
        let Some(watch) = watches.get_mut(link as usize).and_then(Option::take) else { return };
        let is_quiet = !watch.connecting && !watch.reading && matches!(watch.sending, Sending::No);
        assert!(is_quiet, "a connection is given up while something on it is under way: {watch:?}");
        self.pipes[watch.pipe].link = None;
    }

    /// The driver has something to report.
    pub(crate) fn report(&mut self, worker: u16, ready: Ready) {
        let driver = &mut self.drivers[usize::from(worker)];
        driver.ready.push_back(ready);
        self.turn(worker);
    }

    pub(crate) fn turn(&mut self, worker: u16) {
        if !std::mem::replace(&mut self.drivers[usize::from(worker)].turn_due, true) {
            self.wakes.push(Wake::Turn(worker));
        }
    }

    pub(crate) fn wake_up(&mut self, pipe: PipeId) {
        if !std::mem::replace(&mut self.pipes[pipe].up_due, true) {
            self.wakes.push(Wake::Up(pipe));
        }
    }

    fn wake_down(&mut self, pipe: PipeId) {
        if !std::mem::replace(&mut self.pipes[pipe].down_due, true) {
            self.wakes.push(Wake::Down(pipe));
        }
    }

    pub(crate) fn await_connect(&mut self, worker: u16, link: LinkId, pipe: PipeId) {
        self.watch_of(worker, link, pipe).connecting = true;
        self.wakes.push(Wake::Connect(pipe));
    }

    fn end_connect(&mut self, pipe: PipeId, connect: Connect) {
        self.pipes[pipe].connect = connect;
        if let Some((worker, link)) = self.pipes[pipe].link {
            self.report(worker, Ready::Connected(link));
        }
    }

    /// Whether bytes can't be sent any more.
    fn is_broken(&self, pipe: PipeId) -> bool {
        self.pipes[pipe].peer_gone || self.pipes[pipe].down_ended
    }

    /// Takes what there is room for of `bytes`.
    pub(crate) fn take(&mut self, pipe: PipeId, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken(pipe) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let it = &mut self.pipes[pipe];
        let mut taken = bytes.len().min(self.room.saturating_sub(it.down.len()));
        let percent = self.faults.short_send_percent;
        if taken > 0 && self.faults.happens(percent) {
            taken = self.faults.rng.range(1, taken as u64) as usize;
        }
        it.down.push(&bytes[..taken]);
        if taken > 0 {
            self.wake_down(pipe);
        }
        Ok(taken)
    }

    /// The kernel takes what it has room for of a send that is under way.
    pub(crate) fn go_on_sending(&mut self, pipe: PipeId) {
        let Some((worker, link)) = self.pipes[pipe].link else { return };
        let Some(watch) = self.watch_mut(worker, link) else { return };
        match std::mem::take(&mut watch.sending) {
            Sending::AwaitsRoom => {
                watch.sending = Sending::AwaitsRoom;
                let has_room = self.pipes[pipe].down.len() < self.room || self.is_broken(pipe);
                if has_room && let Some(watch) = self.watch_mut(worker, link) {
                    watch.sending = Sending::No;
                    self.report(worker, Ready::Writable(link));
                }
            }
            Sending::UnderWay { bytes, taken } => {
                let result = self.take(pipe, &bytes[taken..]);
                let ended = match result {
                    // What was sent before counts first.
                    Err(_) if taken > 0 => Some(Ok(taken)),
                    Err(error) => Some(Err(error)),
                    Ok(more) if taken + more == bytes.len() => Some(Ok(bytes.len())),
                    // The kernel goes on by itself, unless something interrupts it.
                    Ok(more) if self.faults.happens(self.faults.short_send_percent) && taken + more > 0 => {
                        Some(Ok(taken + more))
                    }
                    Ok(more) => {
                        let sending = Sending::UnderWay { bytes, taken: taken + more };
                        self.set_sending(worker, link, sending);
                        None
                    }
                };
                if let Some(result) = ended {
                    self.set_sending(worker, link, Sending::Ended);
                    self.report(worker, Ready::Sent(link, result));
                }
            }
            other => watch.sending = other,
        }
    }

    pub(crate) fn set_sending(&mut self, worker: u16, link: LinkId, sending: Sending) {
        if let Some(watch) = self.watch_mut(worker, link) {
            watch.sending = sending;
        }
    }

    fn shutdown(&mut self, pipe: PipeId, how: Shutdown) {
        let it = &mut self.pipes[pipe];
        if it.connect == Connect::UnderWay {
            return self.end_connect(pipe, Connect::Failed(io::ErrorKind::ConnectionAborted));
        }
        if how != Shutdown::Read {
            it.down_ended = true;
        }
        if how != Shutdown::Write && it.up_end == End::No {
            it.up_end = End::Clean;
            self.wake_up(pipe);
        }
        self.wake_down(pipe);
        self.go_on_sending(pipe);
    }

    fn close(&mut self, pipe: PipeId) {
        let it = &mut self.pipes[pipe];
        (it.is_open, it.link) = (false, None);
        if !it.up.is_empty() {
            // Closing with bytes unread resets the connection, and takes back a part of what was sent.
            it.up.clear();
            it.down.truncate(self.faults.rng.index(it.down.len() + 1));
        }
        it.down_ended = true;
        if !it.peer_gone && it.connect == Connect::Open {
            self.wake_down(pipe);
        }
    }
}

/// A worker's socket.
#[derive(Debug)]
pub struct SimSocket {
    network: Network,
    pipe: PipeId,
}

impl SimSocket {
    pub(crate) fn new(network: &Network, pipe: PipeId) -> Self {
        Self { network: network.clone(), pipe }
    }

    /// Its number on the network.
    pub fn pipe(&self) -> PipeId {
        self.pipe
    }
}

impl Socket for SimSocket {
    fn shutdown(&self, how: Shutdown) {
        self.network.0.borrow_mut().shutdown(self.pipe, how);
    }

    fn connect_result(&self) -> io::Result<()> {
        match self.network.0.borrow().pipes[self.pipe].connect {
            Connect::Failed(kind) => Err(kind.into()),
            Connect::Open => Ok(()),
            Connect::UnderWay => panic!("a connect is asked for its result before it has one"),
        }
    }

    /// Nothing is lost here without both sides being told.
    fn delivery(&self) -> sluice_net::Delivery {
        sluice_net::Delivery::Complete
    }

    fn set_user_timeout(&self, _: Duration) {}

    fn peer(&self) -> io::Result<PeerAddress> {
        Ok(self.network.0.borrow().pipes[self.pipe].address)
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        self.network.0.borrow_mut().close(self.pipe);
    }
}
