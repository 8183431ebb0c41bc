//! Words for the terminal and for the log. Whoever reads them may have gone, or have stopped reading, and the disk that
//! takes them may be full: that is no reason to end or to wait, least of all for a pool with clients.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// As much as a pipe that can be written to takes without a wait (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// The time that a log's reader has for the lines before. One that has not read them then is not waited for again until
/// it has.
const PATIENCE: Duration = Duration::from_millis(100);

/// A line on standard output, as by `println!`.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(std::io::stdout().lock(), format_args!($($words)*)) };
}

/// A line on standard error, as by `eprintln!`.
macro_rules! say_aside {
    ($($words:tt)*) => { $crate::say::line(std::io::stderr().lock(), format_args!($($words)*)) };
}

/// Writes a line, if that can be.
pub(crate) fn line(mut to: impl Write, words: std::fmt::Arguments<'_>) {
    let _ = writeln!(to, "{words}");
}

/// Standard error for the log: a line that can't be written is lost, and nothing else.
#[derive(Debug)]
pub(crate) struct Log;

/// Whether the last line was lost.
static LOST: Mutex<bool> = Mutex::new(false);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One line after the other: what can be written is for one of them.
        let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if *lost { Duration::ZERO } else { PATIENCE };
        *lost = bytes.chunks(PIECE_BYTES).any(|piece| write_within(piece, patience).is_err());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes so much if that can be done without a longer wait.
fn write_within(piece: &[u8], patience: Duration) -> io::Result<()> {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut ready, Timespec::try_from(patience).ok().as_ref())?;
    if !ready[0].revents().contains(PollFlags::OUT) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    stderr.lock().write_all(piece)
}
