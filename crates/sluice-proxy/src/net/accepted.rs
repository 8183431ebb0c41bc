//! The outcome of accepting a connection, the same for both drivers.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use sluice_net::Event;

use super::{FILES_SPARE, sockets::Socket};

/// The event to report for a connection that was accepted.
///
/// io_uring accepts all who wait before anyone is asked whether they may be there. The last files that the process may
/// have are not for them, so that meanwhile a server can be connected to, and a file be read. The kernel gives the lowest
/// number that is free, so a high one says that all others are taken.
pub(super) fn taken(socket: OwnedFd) -> Event<Socket> {
    let below = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |most| most.saturating_sub(FILES_SPARE));
    match u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number < below) {
        true => Event::Accepted(Socket(socket)),
        false => Event::AcceptExhausted(Errno::MFILE.into()),
    }
}

/// The event to report where no connection was accepted, if any.
pub(super) fn failed(error: io::Error) -> Option<Event<Socket>> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED | libc::ECANCELED) => None,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Some(Event::AcceptExhausted(error)),
        _ => Some(Event::AcceptFailed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_waited_for() {
        let event = |error| failed(io::Error::from_raw_os_error(error));
        for error in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            assert!(matches!(event(error), Some(Event::AcceptExhausted(_))), "{error}");
        }
        assert!(matches!(event(libc::EPERM), Some(Event::AcceptFailed(_))));
        assert!(event(libc::ECONNABORTED).is_none());
    }
}
