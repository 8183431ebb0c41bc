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

/// Standard error for the log: a line that can't be written is lost, and nothing else. The next one that can says so.
#[derive(Debug)]
pub(crate) struct Log;

/// The number of lines that were lost since one was written.
static LOST: Mutex<u64> = Mutex::new(0);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One line after the other: what can be written is for one of them.
        let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if *lost > 0 { Duration::ZERO } else { PATIENCE };
        let mut write = |piece: &[u8]| write_within(piece, patience);
        write_or_count(&mut lost, bytes, &mut write);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line, and before it how many were lost, or counts it among these.
fn write_or_count(lost: &mut u64, line: &[u8], write: &mut dyn FnMut(&[u8]) -> io::Result<()>) {
    if *lost > 0 {
        let said = lost_lines(*lost, &String::from_utf8_lossy(line));
        if write(said.as_bytes()).is_err() {
            *lost += 1;
            return;
        }
        *lost = 0;
    }
    if line.chunks(PIECE_BYTES).any(|piece| write(piece).is_err()) {
        *lost = 1;
    }
}

/// The line that says how many were lost, with the time and in the format of the one behind it.
fn lost_lines(lost: u64, next: &str) -> String {
    const JSON: &str = "{\"timestamp\":\"";
    let words = match lost {
        1 => "1 line of the log was lost: it could not be written".to_owned(),
        _ => format!("{lost} lines of the log were lost: they could not be written"),
    };
    let time = |text: &str, end: char| text.split(end).next().unwrap_or_default().to_owned();
    match next.strip_prefix(JSON) {
        Some(rest) => {
            let time = time(rest, '"');
            format!("{JSON}{time}\",\"level\":\"WARN\",\"message\":\"{words}\",\"target\":\"sluice\"}}\n")
        }
        None => format!("{}  WARN {words}\n", time(next, ' ')),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_lines_are_counted_and_said() {
        let (mut lost, mut written) = (0, Vec::new());
        let mut log = |line: &str, is_open: bool| {
            write_or_count(&mut lost, line.as_bytes(), &mut |piece| match is_open {
                true => written.write_all(piece),
                false => Err(io::ErrorKind::WouldBlock.into()),
            });
        };
        let json = "{\"timestamp\":\"T4\",\"level\":\"INFO\"}\n";
        for (line, is_open) in
            [("T1 a\n", true), ("T2 b\n", false), ("T2 c\n", false), ("T3 d\n", true), ("T3 e\n", true)]
        {
            log(line, is_open);
        }
        log(json, false);
        log(json, true);
        let expected = [
            "T1 a\nT3  WARN 2 lines of the log were lost: they could not be written\nT3 d\nT3 e\n",
            "{\"timestamp\":\"T4\",\"level\":\"WARN\",\"message\":\"1 line of the log was lost: ",
            "it could not be written\",\"target\":\"sluice\"}\n",
            json,
        ];
        let expected = expected.concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
