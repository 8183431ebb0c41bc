//! The system interfaces under a worker: sockets, and the drivers that move their bytes.

mod accepted;
mod delivery;
pub(crate) mod epoll;
pub(crate) mod passed;
pub(crate) mod sockets;
pub(crate) mod uring;

use std::{io, os::fd::OwnedFd};

use sluice_net::{Buffers, Driver};

use sockets::Socket;

/// The size of a buffer: larger than a page of rows, small enough that a few hundred of them do not matter.
const BUFFER_BYTES: usize = 16 << 10;

/// Buffers of a worker; received and not yet sent on are 8 MiB at most. A power of two, as io_uring's ring wants it.
const BUFFERS: u16 = 512;

/// The last files that the process may have, which no client's connection is.
pub(crate) const FILES_SPARE: u64 = 64;

/// A driver as the service sets it up.
pub(crate) trait System: Driver<Socket = Socket> + Sized {
    /// Its name, as in the configuration.
    const NAME: &'static str;

    /// Sets it up, with its buffers.
    fn new() -> io::Result<(Self, Buffers)>;

    /// Accepts connections from now on.
    fn accept(&mut self, listener: OwnedFd) -> io::Result<()>;

    /// Reports [`Event::Mail`](sluice_net::Event::Mail) whenever `mailbox`, an eventfd, was written to.
    fn watch_mailbox(&mut self, mailbox: OwnedFd) -> io::Result<()>;
}
