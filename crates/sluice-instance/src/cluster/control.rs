//! A data directory's control file, by `pg_controldata`: whose data they are, and how far they go.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::ClusterError;
use crate::binaries::Binaries;

/// The contents of the control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Control {
    /// The same in all copies of a PostgreSQL's data.
    pub(super) system: String,
    /// `shut down`, `shut down in recovery`, `in production` or another of PostgreSQL's words.
    pub(super) state: String,
    /// The latest timeline that its log knows of: a server that was promoted just now has no checkpoint on it yet.
    pub(super) timeline: u64,
    /// The place in the log at which the record of the last checkpoint begins.
    pub(super) checkpoint: u64,
    /// The place in the log that recovery has come to at least, on a standby.
    pub(super) recovered: u64,
}

impl Control {
    /// Reads the control file of a data directory that nobody writes.
    pub(super) fn read(binaries: &Binaries, pgdata: &Path) -> Result<Self, ClusterError> {
        let error = |why: String| ClusterError::Control { pgdata: pgdata.to_owned(), why };
        let mut command = Command::new(binaries.dir.join("pg_controldata"));
        let output = command.arg(pgdata).env("LC_ALL", "C").stdin(Stdio::null()).output();
        let output = output.map_err(|source| error(source.to_string()))?;
        if !output.status.success() {
            return Err(error(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let control = Self::parse(&text).ok_or_else(|| error(format!("it printed {text}")))?;
        let entries = pgdata.join("pg_wal").read_dir().map_err(|source| error(format!("pg_wal: {source}")))?;
        let latest = entries.flatten().filter_map(|entry| timeline_of(&entry.file_name().to_string_lossy())).max();
        Ok(Self { timeline: control.timeline.max(latest.unwrap_or(0)), ..control })
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        Some(Self {
            system: value("Database system identifier")?.to_owned(),
            state: value("Database cluster state")?.to_owned(),
            timeline: value("Latest checkpoint's TimeLineID")?.parse().ok()?,
            checkpoint: lsn(value("Latest checkpoint location")?)?,
            recovered: lsn(value("Minimum recovery ending location")?)?,
        })
    }

    /// Whether it was a primary that was shut down in order: nothing of it is anywhere else only.
    pub(super) fn is_whole(&self) -> bool {
        self.state == "shut down"
    }

    /// The place in the log up to which the data are known to go. Those of a server that was not stopped may go further.
    pub(super) fn end(&self) -> u64 {
        self.checkpoint.max(self.recovered)
    }

    /// Whether these data are a copy of `other`'s, and hold nothing that those lack, which were written on since.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        self.system == other.system
            && self.timeline <= other.timeline
            && self.checkpoint <= other.checkpoint
            && self.recovered <= other.checkpoint + CHECKPOINT_RECORD_BYTES_MAX
    }
}

/// The length of a checkpoint's record, with what stands around it: a standby that has received the last record of a
/// leader that was shut down has come to its end.
const CHECKPOINT_RECORD_BYTES_MAX: u64 = 256;

/// The timeline that a file of the log is of, or tells the history of.
fn timeline_of(name: &str) -> Option<u64> {
    let is_log = name.len() == 24 || name.ends_with(".history");
    u64::from_str_radix(name.get(..8)?, 16).ok().filter(|_| is_log)
}

/// `0/16B3740`, as a number.
pub(super) fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

/// The same, as a text.
pub(super) fn lsn_text(place: u64) -> String {
    format!("{:X}/{:X}", place >> 32, place & u64::from(u32::MAX))
}

/// The places of nodes' data directories below an instance's directory, by the number of the node.
pub(super) fn places(root: &Path) -> impl Iterator<Item = PathBuf> {
    (1..=super::state::NODES_MAX).map(move |number| root.join(format!("node{number}/pgdata")))
}

/// The data directories of nodes, as far as there are any.
pub(super) fn of_nodes(binaries: &Binaries, root: &Path) -> Result<Vec<(PathBuf, Control)>, ClusterError> {
    let found = places(root).filter(|pgdata| pgdata.join("PG_VERSION").exists());
    found.map(|pgdata| Control::read(binaries, &pgdata).map(|control| (pgdata, control))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
pg_control version number:            1300
Database system identifier:           7386161718191011121
Database cluster state:               shut down in recovery
Latest checkpoint location:           0/5000060
Latest checkpoint's TimeLineID:       2
Minimum recovery ending location:     1/50000D8
";

    #[test]
    fn control_files() {
        let control = Control::parse(TEXT).unwrap();
        assert_eq!((&*control.system, control.timeline), ("7386161718191011121", 2));
        assert_eq!((control.checkpoint, control.recovered), (0x500_0060, 0x1_0500_00d8));
        assert!(!control.is_whole());
        assert_eq!(Control::parse(&TEXT.replace("0/5000060", "here")), None);
    }

    #[test]
    fn timelines() {
        assert_eq!(timeline_of("00000003.history"), Some(3));
        assert_eq!(timeline_of("0000000A0000000000000001"), Some(10));
        assert_eq!(timeline_of("archive_status"), None);
    }

    #[test]
    fn a_copy_is_behind_what_was_written_on() {
        let copy = Control { recovered: 0, ..Control::parse(TEXT).unwrap() };
        let on = Control { state: "shut down".to_owned(), checkpoint: copy.checkpoint + 1, ..copy.clone() };
        assert!(copy.is_behind(&on) && copy.is_behind(&copy) && !on.is_behind(&copy));
        // It has received the leader's last record, or more than that.
        let recovered = on.checkpoint + 0x78;
        assert!(Control { recovered, ..copy.clone() }.is_behind(&on));
        assert!(!Control { recovered: recovered + 1000, ..copy.clone() }.is_behind(&on));
        assert!(!copy.is_behind(&Control { timeline: 1, ..on.clone() }));
        assert!(!copy.is_behind(&Control { system: "1".to_owned(), ..on }));
    }
}
