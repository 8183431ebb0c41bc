//! The system interface under a worker, as [`Net`](crate::Net) needs it.

use std::{io, net::Shutdown, time::Duration};

use sluice_core::io::PeerAddress;

use crate::{Buffers, Chunk, Flight};

/// A connection, by its place in [`Net`](crate::Net).
pub type LinkId = u32;

/// An event that a driver reports.
#[derive(Debug)]
pub enum Event<S> {
    /// A client has connected.
    Accepted(S),
    /// A connection could not be accepted; accepting goes on.
    AcceptFailed(io::Error),
    /// The system has no means for another connection: trying again at once fails in the same way.
    AcceptExhausted(io::Error),
    /// A connect has ended, well or not: the socket knows.
    Connected(LinkId),
    /// Bytes have come.
    Received(LinkId, Chunk),
    /// Nothing more will come.
    Ended(LinkId, Option<io::Error>),
    /// Reading stopped as it was asked to, or by itself.
    Stopped(LinkId),
    /// A send has ended.
    Sent(LinkId, io::Result<usize>),
    /// A send that found the socket full may be tried again.
    Writable(LinkId),
    /// There is mail.
    Mail,
}

/// The delivery of what a socket has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The peer has taken all of it, as the kernel says, or there is no telling.
    Complete,
    /// Some of it is under way.
    UnderWay,
    /// The peer has no room for the rest of it.
    Unread {
        /// The bytes that it has taken since it is connected.
        taken_bytes: u64,
        /// The time since it answered last.
        silent: Duration,
    },
}

/// A socket. Dropping it closes the connection.
pub trait Socket {
    /// Ends one direction or both; one that is not connected any more has them ended already.
    fn shutdown(&self, how: Shutdown);

    /// The outcome of its connect.
    fn connect_result(&self) -> io::Result<()>;

    /// The delivery of what was sent.
    fn delivery(&self) -> Delivery;

    /// Sets the time after which the kernel ends the connection if its peer does not answer, or has no room.
    fn set_user_timeout(&self, time: Duration);

    /// The address of the other side; an error where there is none any more.
    fn peer(&self) -> io::Result<PeerAddress>;

    /// The address of this side; one that is in memory only has none.
    fn local(&self) -> io::Result<PeerAddress> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A system interface that moves bytes. All of it for one thread.
///
/// A socket that is being connected, read from or sent to stays open until the driver has reported the end of that.
pub trait Driver {
    /// Its connections.
    type Socket: Socket;

    /// Accepts no connections any more.
    fn stop_accepting(&mut self);

    /// Accepts no connections until [`resume_accepting`](Self::resume_accepting). A few may still be reported.
    fn pause_accepting(&mut self);

    /// Accepts connections again, unless it is to accept none any more.
    fn resume_accepting(&mut self);

    /// Reports [`Event::Connected`] when the socket's connect has ended.
    fn await_connect(&mut self, link: LinkId, socket: &Self::Socket);

    /// Reads from now on, until [`Event::Ended`] or [`Event::Stopped`].
    fn start_reading(&mut self, link: LinkId, socket: &Self::Socket);

    /// Ends reading; [`Event::Stopped`] or [`Event::Ended`] follows, and there may be bytes before it.
    fn stop_reading(&mut self, link: LinkId, socket: &Self::Socket);

    /// The connection is closed: its number may mean another one from now on.
    fn forget(&mut self, link: LinkId);

    /// Sends what `flight` holds. A result now, or [`Event::Sent`] or [`Event::Writable`] later. The driver may use
    /// the memory behind `flight` until then.
    fn send(
        &mut self,
        link: LinkId,
        socket: &Self::Socket,
        flight: &mut Flight,
        buffers: &Buffers,
    ) -> Option<io::Result<usize>>;

    /// Waits for events, at most for `timeout`, and appends them. For the first `spin` of it it does not sleep.
    fn wait(
        &mut self,
        timeout: Duration,
        spin: Duration,
        buffers: &mut Buffers,
        events: &mut Vec<Event<Self::Socket>>,
    ) -> io::Result<()>;
}
