//! The delivery of what was sent by TCP, as the kernel tells (`TCP_INFO`, tcp(7)).

#![allow(unsafe_code, reason = "the kernel is handed memory by address; each block says why it fits")]

use std::{
    mem::{offset_of, size_of},
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

use sluice_net::Delivery;

/// Asks the kernel. It knows nothing of a Unix socket.
pub(super) fn of(socket: BorrowedFd<'_>) -> Delivery {
    // SAFETY: it consists of numbers, for which zero is one.
    let mut info = unsafe { std::mem::zeroed::<libc::tcp_info>() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes `length` bytes at most, and says how many; all that is there is numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Delivery::Complete;
    }
    // Since Linux 5.4. One that has no room may have had some for what it then did not keep.
    let has_window = length as usize >= offset_of!(libc::tcp_info, tcpi_snd_wnd) + size_of::<u32>();
    let has_no_room = has_window && info.tcpi_snd_wnd == 0;
    match (info.tcpi_unacked, info.tcpi_notsent_bytes) {
        (0, 0) => Delivery::Complete,
        (1.., _) if !has_no_room => Delivery::UnderWay,
        _ => Delivery::Unread {
            taken_bytes: info.tcpi_bytes_acked,
            silent: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        },
    }
}
