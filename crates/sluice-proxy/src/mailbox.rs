//! The workers' mailboxes, with an eventfd each for a bell.

use std::{io, os::fd::OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::net::sockets::Socket;

/// The mailboxes of all workers.
pub(crate) type Mailboxes = sluice_net::Mailboxes<Socket, Bell>;

/// A delivery to a worker.
pub(crate) type Parcel = sluice_net::Parcel<Socket>;

/// The eventfd that wakes a worker.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// The descriptor that a worker watches to hear it.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

impl sluice_net::Bell for Bell {
    fn ring(&self) {
        // It fails only when the counter is full, and then the bell rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Mailboxes for that many workers.
pub(crate) fn mailboxes(workers: u16) -> io::Result<Mailboxes> {
    let bell = || Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
    Ok(Mailboxes::new((0..workers).map(|_| bell()).collect::<io::Result<Vec<_>>>()?))
}
