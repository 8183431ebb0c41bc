//! Checkpoints, as the server's log tells them.
//!
//! Source: PostgreSQL's documentation, `log_checkpoints` and `log_line_prefix`. The lines are read once, behind a
//! turn; they have to begin as [`LINE_PREFIX`] says, with the wall clock in seconds.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use crate::result::Checkpoint;

/// `log_line_prefix` of servers whose log is read.
pub const LINE_PREFIX: &str = "%n [%p] ";

/// A log, from some moment on.
pub(super) struct Log {
    path: PathBuf,
    /// The length that the log had at that moment, in bytes.
    begin: u64,
}

impl Log {
    /// From now on.
    pub(super) fn from_now(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), begin: fs::metadata(path)?.len() })
    }

    /// The checkpoints that began since, on the wall clock. A log that was put aside meanwhile begins anew.
    pub(super) fn checkpoints(&self) -> io::Result<Vec<Checkpoint>> {
        let mut file = File::open(&self.path)?;
        let begin = if file.metadata()?.len() < self.begin { 0 } else { self.begin };
        file.seek(SeekFrom::Start(begin))?;
        let mut checkpoints = Vec::new();
        for line in BufReader::new(file).split(b'\n') {
            hear(&String::from_utf8_lossy(&line?), &mut checkpoints);
        }
        Ok(checkpoints)
    }
}

/// Notes what a line says of a checkpoint. One that was under way before has no begin here, but tells how long it took.
fn hear(line: &str, checkpoints: &mut Vec<Checkpoint>) {
    let Some((unix_s, message)) = message(line) else { return };
    if let Some(reason) = message.strip_prefix("checkpoint starting: ") {
        let reason = reason.trim().to_owned();
        checkpoints.push(Checkpoint { reason, from_s: unix_s, ..Checkpoint::default() });
    } else if let Some(told) = message.strip_prefix("checkpoint complete: ") {
        let open = checkpoints.pop_if(|checkpoint| checkpoint.to_s.is_none());
        let took_s = number_behind(told, "total=").unwrap_or(0.0);
        let open = open.unwrap_or_else(|| Checkpoint {
            reason: "begun before".to_owned(),
            from_s: unix_s - took_s,
            ..Checkpoint::default()
        });
        checkpoints.push(Checkpoint {
            to_s: Some(unix_s),
            buffers: number_behind(told, "wrote ").map(|buffers| buffers as u64),
            write_s: number_behind(told, "write="),
            sync_s: number_behind(told, "sync="),
            longest_sync_s: number_behind(told, "longest="),
            ..open
        });
    }
}

/// The time of a line, and what the server says in it.
fn message(line: &str) -> Option<(f64, &str)> {
    let unix_s = line.split_once(' ')?.0.parse().ok()?;
    Some((unix_s, line.split_once("LOG:  ")?.1))
}

/// `119.815` of `…; write=119.815 s, …`.
fn number_behind(text: &str, key: &str) -> Option<f64> {
    let behind = text.split_once(key)?.1;
    behind.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &str = "\
1763770000.125 [77] LOG:  checkpoint starting: time
1763770001.000 [80] ERROR:  relation \"checkpoint complete: wrote\" does not exist
1763770120.500 [77] LOG:  checkpoint complete: wrote 9223 buffers (28.1%), wrote 4 SLRU buffers; 0 WAL file(s) added, \
0 removed, 7 recycled; write=119.815 s, sync=0.012 s, total=120.375 s; sync files=13, longest=0.006 s, average=0.001 s; \
distance=230000 kB, estimate=230000 kB; lsn=0/7B0C7E8, redo lsn=0/55E2B20
1763770130.000 [77] LOG:  checkpoint starting: immediate force wait
";

    fn parse(text: &str) -> Vec<Checkpoint> {
        let mut checkpoints = Vec::new();
        text.lines().for_each(|line| hear(line, &mut checkpoints));
        checkpoints
    }

    #[test]
    fn one_that_began_before() {
        let complete = TEXT.lines().nth(2).unwrap();
        let [whole] = &parse(complete)[..] else { panic!("{:?}", parse(complete)) };
        assert_eq!((whole.from_s, whole.to_s, whole.buffers), (1763770000.125, Some(1763770120.5), Some(9223)));
    }

    #[test]
    fn what_checkpoints_say() {
        let [whole, open] = &parse(TEXT)[..] else { panic!("{:?}", parse(TEXT)) };
        assert_eq!((whole.reason.as_str(), whole.from_s, whole.to_s), ("time", 1763770000.125, Some(1763770120.5)));
        assert_eq!((whole.buffers, whole.write_s), (Some(9223), Some(119.815)));
        assert_eq!((whole.sync_s, whole.longest_sync_s), (Some(0.012), Some(0.006)));
        assert_eq!((open.reason.as_str(), open.to_s, open.buffers), ("immediate force wait", None, None));
        assert_eq!(parse("2026-01-01 00:00:00 UTC LOG:  checkpoint starting: time\nnone\n"), []);
    }

    #[test]
    fn only_what_was_written_since() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(TEXT.as_bytes()).unwrap();
        let log = Log::from_now(file.path()).unwrap();
        assert_eq!(log.checkpoints().unwrap(), []);
        file.write_all(b"1763770200.0 [77] LOG:  checkpoint starting: wal\n").unwrap();
        assert_eq!(log.checkpoints().unwrap()[0].reason, "wal");
    }
}
