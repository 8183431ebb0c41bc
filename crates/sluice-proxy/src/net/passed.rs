//! Descriptors that this process was started with (sd_listen_fds(3)): they come as numbers, and become owned here.

#![allow(unsafe_code, reason = "a descriptor comes as a number; the block says why it is ours")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// The first of them; the others follow it.
pub(crate) const FIRST: RawFd = 3;

/// Takes the descriptor of that number, if it is open; what this process starts does not get it by itself.
///
/// To be called once for each number that LISTEN_FDS gives, before this process opens anything.
pub(crate) fn take(number: RawFd) -> Option<OwnedFd> {
    if number < FIRST {
        return None;
    }
    // SAFETY: the number is one of those that whoever started this process says are for it, so nothing of this process
    // has it, and each is taken once. One that is not open is only looked at.
    unsafe {
        fcntl_setfd(BorrowedFd::borrow_raw(number), FdFlags::CLOEXEC).ok()?;
        Some(OwnedFd::from_raw_fd(number))
    }
}
