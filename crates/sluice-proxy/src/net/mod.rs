//! Connections: how bytes get from the kernel to the engine and back.
//!
//! A [`Driver`] knows the system interface (io_uring or epoll) and nothing else; [`Net`] keeps what both need: the
//! connections, what is still to be sent, and when a connection may end. No protocol is known here.

mod buffers;
pub(crate) mod epoll;
mod links;
mod outbox;
pub(crate) mod sockets;
pub(crate) mod uring;

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

pub(crate) use buffers::{Buffers, Chunk};
pub(crate) use links::{Net, Notice};
pub(crate) use outbox::Flight;

/// A connection, by its place in [`Net`].
pub(crate) type LinkId = u32;

/// What a driver has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client has connected.
    Accepted(OwnedFd),
    /// A connection could not be accepted; accepting goes on.
    AcceptFailed(io::Error),
    /// A connect has ended, well or not: the socket knows.
    Connected(LinkId),
    /// Bytes have come.
    Received(LinkId, Chunk),
    /// Nothing more will come.
    Ended(LinkId, Option<io::Error>),
    /// Reading stopped as it was asked to.
    Stopped(LinkId),
    /// A send has ended.
    Sent(LinkId, io::Result<usize>),
    /// A send that found the socket full may be tried again.
    Writable(LinkId),
    /// There is mail.
    Mail,
}

/// A system interface that moves bytes. All of it for one thread.
pub(crate) trait Driver: Sized {
    /// Its name, as in the configuration.
    const NAME: &'static str;

    /// Sets it up, with its buffers.
    fn new() -> io::Result<(Self, Buffers)>;

    /// Accepts connections from now on.
    fn accept(&mut self, listener: OwnedFd) -> io::Result<()>;

    /// Accepts none any more.
    fn stop_accepting(&mut self);

    /// Reports [`Event::Mail`] whenever `mailbox`, an eventfd, was written to.
    fn watch_mailbox(&mut self, mailbox: OwnedFd) -> io::Result<()>;

    /// Reports [`Event::Connected`] when the socket's connect has ended.
    fn await_connect(&mut self, link: LinkId, fd: BorrowedFd<'_>);

    /// Reads from now on, until [`Event::Ended`] or [`Event::Stopped`].
    fn start_reading(&mut self, link: LinkId, fd: BorrowedFd<'_>);

    /// Ends reading; [`Event::Stopped`] or [`Event::Ended`] follows, and there may be bytes before it.
    fn stop_reading(&mut self, link: LinkId, fd: BorrowedFd<'_>);

    /// The connection is closed: its number may mean another one from now on.
    fn forget(&mut self, link: LinkId);

    /// Sends what `flight` holds. A result now, or [`Event::Sent`] or [`Event::Writable`] later. The driver may use
    /// the memory behind `flight` until then.
    fn send(
        &mut self,
        link: LinkId,
        fd: BorrowedFd<'_>,
        flight: &mut Flight,
        buffers: &Buffers,
    ) -> Option<io::Result<usize>>;

    /// Waits for events, at most for `timeout`, and appends them. For the first `spin` of it it does not sleep.
    fn wait(
        &mut self,
        timeout: Duration,
        spin: Duration,
        buffers: &mut Buffers,
        events: &mut Vec<Event>,
    ) -> io::Result<()>;
}
