//! The epoll driver: for kernels and containers without io_uring. Level-triggered, one read for each readiness.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{Timespec, epoll},
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendFlags, SocketFlags},
};

use sluice_net::{BufferId, Buffers, Driver, Event, Flight, LinkId};

use super::{BUFFER_BYTES, BUFFERS, System, accepted, sockets::Socket};

/// Events taken from the kernel in one call, at most.
const EVENTS: usize = 256;

const MAILBOX: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 32;

/// The epoll driver.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    listeners: Vec<OwnedFd>,
    mailbox: Option<OwnedFd>,
    free: Vec<BufferId>,
    /// The events that each connection is watched for.
    watched: Vec<Option<Watched>>,
    /// Events that a call has led to at once.
    ready: Vec<Event<Socket>>,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    fd: RawFd,
    connecting: bool,
    reading: bool,
    writing: bool,
}

impl Watched {
    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.reading);
        flags.set(epoll::EventFlags::OUT, self.writing || self.connecting);
        flags
    }
}

impl Epoll {
    fn watched(&self, link: LinkId) -> Option<Watched> {
        self.watched.get(link as usize).copied().flatten()
    }

    /// Changes what a connection is watched for. Closing its socket is what ends the watch for good.
    fn watch(&mut self, link: LinkId, fd: BorrowedFd<'_>, change: impl FnOnce(&mut Watched)) -> io::Result<()> {
        let fresh = Watched { fd: fd.as_raw_fd(), connecting: false, reading: false, writing: false };
        let known = self.watched(link);
        let mut wanted = known.unwrap_or(fresh);
        change(&mut wanted);
        let data = epoll::EventData::new_u64(u64::from(link));
        if known.is_none_or(|w| w.flags() != wanted.flags()) {
            let add = || epoll::add(&self.epoll, fd, data, wanted.flags());
            let modify = || epoll::modify(&self.epoll, fd, data, wanted.flags());
            // Which of the two it takes is known of nearly all.
            match known {
                None => add().or_else(|error| if error == Errno::EXIST { modify() } else { Err(error) })?,
                Some(_) => modify().or_else(|error| if error == Errno::NOENT { add() } else { Err(error) })?,
            }
        }
        let place = link as usize;
        if self.watched.len() <= place {
            self.watched.resize(place + 1, None);
        }
        self.watched[place] = Some(wanted);
        Ok(())
    }

    fn watch_or_end(&mut self, link: LinkId, fd: BorrowedFd<'_>, change: impl FnOnce(&mut Watched)) {
        if let Err(error) = self.watch(link, fd, change) {
            self.ready.push(Event::Ended(link, Some(error)));
        }
    }

    fn poll(&self, timeout: Duration, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn watch_listener(&self, place: usize, listener: &OwnedFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENERS + place as u64);
        Ok(epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE)?)
    }

    fn accept_one(&mut self, listener: usize, out: &mut Vec<Event<Socket>>) {
        let Some(listener) = self.listeners.get(listener) else { return };
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => out.push(accepted::taken(socket)),
            Err(error) => out.extend(accepted::failed(error.into())),
        }
    }

    fn read(&mut self, link: LinkId, fd: RawFd, buffers: &mut Buffers, out: &mut Vec<Event<Socket>>) {
        // With no buffer free, the readiness is reported again once one is.
        let Some(buffer) = self.free.pop() else { return };
        let Some(socket) = borrow(fd) else { return };
        match retry_on_intr(|| rustix::net::recv(socket, &mut *buffers.free_space(buffer), RecvFlags::empty())) {
            Ok((received, _)) if received > 0 => {
                out.push(Event::Received(link, buffers.filled(buffer, received as u32)));
                return;
            }
            Ok(_) => self.end(link, None, out),
            Err(Errno::AGAIN) => {}
            Err(error) => self.end(link, Some(error.into()), out),
        }
        self.free.push(buffer);
    }

    fn end(&mut self, link: LinkId, error: Option<io::Error>, out: &mut Vec<Event<Socket>>) {
        if let Some(watched) = self.watched(link)
            && let Some(fd) = borrow(watched.fd)
        {
            self.watch_or_end(link, fd, |w| w.reading = false);
        }
        out.push(Event::Ended(link, error));
    }

    fn handle(&mut self, link: LinkId, flags: epoll::EventFlags, buffers: &mut Buffers, out: &mut Vec<Event<Socket>>) {
        let Some(watched) = self.watched(link) else { return };
        let Some(fd) = borrow(watched.fd) else { return };
        let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        if watched.connecting && (broken || flags.contains(epoll::EventFlags::OUT)) {
            self.watch_or_end(link, fd, |w| w.connecting = false);
            out.push(Event::Connected(link));
            return;
        }
        if watched.writing && (broken || flags.contains(epoll::EventFlags::OUT)) {
            self.watch_or_end(link, fd, |w| w.writing = false);
            out.push(Event::Writable(link));
        }
        if watched.reading && (broken || flags.contains(epoll::EventFlags::IN)) {
            self.read(link, watched.fd, buffers, out);
        } else if broken && !watched.writing && !watched.reading {
            // Nobody asks now, and the kernel would report it again and again.
            let _ = epoll::delete(&self.epoll, fd);
            self.forget(link);
        }
    }
}

/// A descriptor that is known by number. The connection's owner, `Net`, closes it only after the last event for it.
#[allow(unsafe_code)]
fn borrow<'a>(fd: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: `Net` keeps a connection's socket open for as long as the driver watches it, and tells the driver of a
    // new socket under the same number before any event of it is handled.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

impl System for Epoll {
    const NAME: &'static str = "epoll";

    fn new() -> io::Result<(Self, Buffers)> {
        let driver = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS),
            listeners: Vec::new(),
            mailbox: None,
            free: (0..BUFFERS).rev().collect(),
            watched: Vec::new(),
            ready: Vec::new(),
        };
        Ok((driver, Buffers::new(BUFFERS, BUFFER_BYTES)))
    }

    fn accept(&mut self, listener: OwnedFd) -> io::Result<()> {
        self.watch_listener(self.listeners.len(), &listener)?;
        self.listeners.push(listener);
        Ok(())
    }

    fn watch_mailbox(&mut self, mailbox: OwnedFd) -> io::Result<()> {
        epoll::add(&self.epoll, &mailbox, epoll::EventData::new_u64(MAILBOX), epoll::EventFlags::IN)?;
        self.mailbox = Some(mailbox);
        Ok(())
    }
}

impl Driver for Epoll {
    type Socket = Socket;

    fn stop_accepting(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = epoll::delete(&self.epoll, &listener);
        }
    }

    fn pause_accepting(&mut self) {
        for listener in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener);
        }
    }

    fn resume_accepting(&mut self) {
        for (place, listener) in self.listeners.iter().enumerate() {
            match self.watch_listener(place, listener) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                    // The kernel has no memory for it. Behind another pause all of them are watched again.
                    self.ready.push(Event::AcceptExhausted(error));
                }
                _ => {}
            }
        }
    }

    fn await_connect(&mut self, link: LinkId, socket: &Socket) {
        self.watch_or_end(link, socket.0.as_fd(), |w| w.connecting = true);
    }

    fn start_reading(&mut self, link: LinkId, socket: &Socket) {
        self.watch_or_end(link, socket.0.as_fd(), |w| w.reading = true);
    }

    fn stop_reading(&mut self, link: LinkId, socket: &Socket) {
        self.watch_or_end(link, socket.0.as_fd(), |w| w.reading = false);
        self.ready.push(Event::Stopped(link));
    }

    fn forget(&mut self, link: LinkId) {
        if let Some(watched) = self.watched.get_mut(link as usize) {
            *watched = None;
        }
    }

    fn send(
        &mut self,
        link: LinkId,
        socket: &Socket,
        flight: &mut Flight,
        buffers: &Buffers,
    ) -> Option<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL;
        let sent = retry_on_intr(|| match flight.single(buffers) {
            Some(bytes) => rustix::net::send(&socket.0, bytes, flags),
            None => {
                let mut control = rustix::net::SendAncillaryBuffer::default();
                rustix::net::sendmsg(&socket.0, &flight.slices(buffers), &mut control, flags)
            }
        });
        match sent {
            Err(Errno::AGAIN) => {
                self.watch_or_end(link, socket.0.as_fd(), |w| w.writing = true);
                None
            }
            other => Some(other.map_err(io::Error::from)),
        }
    }

    fn wait(
        &mut self,
        timeout: Duration,
        spin: Duration,
        buffers: &mut Buffers,
        out: &mut Vec<Event<Socket>>,
    ) -> io::Result<()> {
        self.free.extend(std::iter::from_fn(|| buffers.take_returned()));
        out.append(&mut self.ready);
        let timeout = if out.is_empty() { timeout } else { Duration::ZERO };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        if !timeout.is_zero() && !spin.is_zero() {
            let start = Instant::now();
            while events.is_empty() && start.elapsed() < spin {
                self.poll(Duration::ZERO, &mut events)?;
                // The kernel likes to wake a peer on the processor of who wrote to it: let it run.
                std::thread::yield_now();
            }
        }
        if events.is_empty() {
            self.poll(timeout, &mut events)?;
        }
        for event in &events {
            match event.data.u64() {
                MAILBOX => {
                    if let Some(mailbox) = &self.mailbox {
                        let _ = rustix::io::read(mailbox.as_fd(), &mut [0; 8]);
                    }
                    out.push(Event::Mail);
                }
                data if data >= LISTENERS => self.accept_one((data - LISTENERS) as usize, out),
                link => self.handle(link as LinkId, event.flags, buffers, out),
            }
        }
        self.events = events;
        Ok(())
    }
}
