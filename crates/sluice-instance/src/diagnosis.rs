//! The likely cause and its remedy, from the end of a log or of a program's output.
//!
//! The messages are PostgreSQL's own, in English: Sluice starts its programs with `LC_ALL=C.UTF-8`, and the data
//! directory's `lc_messages` is C or C.UTF-8.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::disk;

/// The part of a log's end that is read, in bytes.
const TAIL_BYTES: u64 = 8 * 1024;
/// The part of it that is shown, in lines.
const TAIL_LINES: usize = 20;
/// The part of one line that is shown, in characters.
const LINE_CHARS_MAX: usize = 400;
/// The reasons that are shown why a configuration file is not taken, in lines.
const REASON_LINES_MAX: usize = 2;

/// A cause that was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnosis {
    /// The disk, or the user's quota, is full.
    DiskFull,
    /// The TCP address is taken.
    AddressInUse,
    /// `postgresql.conf` or another configuration file can't be read.
    BadConfiguration,
    /// Shared memory, semaphores or memory are short.
    OutOfMemory,
    /// Processes of an earlier server still run.
    StillInUse,
    /// PostgreSQL's user may not read or write its files.
    Permission,
    /// The primary's rules reject this host.
    NotAdmitted,
}

impl Diagnosis {
    /// Recognises the cause in the last lines of a log; the last line that says anything wins.
    pub fn of(text: &str) -> Option<Self> {
        text.lines().rev().find_map(Self::of_line)
    }

    fn of_line(line: &str) -> Option<Self> {
        // By libpq, of the server that was asked: a server's own log says the same of its clients.
        if line.contains("connection to server")
            && (line.contains("pg_hba.conf rejects") || line.contains("no pg_hba.conf entry"))
        {
            return Some(Self::NotAdmitted);
        }
        const TABLE: [(&str, Diagnosis); 13] = [
            ("No space left on device", Diagnosis::DiskFull),
            // PostgreSQL's hint after a write that fell short.
            ("Check free disk space", Diagnosis::DiskFull),
            ("Disk quota exceeded", Diagnosis::DiskFull),
            ("could not bind", Diagnosis::AddressInUse),
            ("Address already in use", Diagnosis::AddressInUse),
            ("contains errors", Diagnosis::BadConfiguration),
            ("unrecognized configuration parameter", Diagnosis::BadConfiguration),
            ("invalid value for parameter", Diagnosis::BadConfiguration),
            ("could not load pg_hba.conf", Diagnosis::BadConfiguration),
            ("is still in use", Diagnosis::StillInUse),
            ("Cannot allocate memory", Diagnosis::OutOfMemory),
            ("could not create semaphores", Diagnosis::OutOfMemory),
            ("Permission denied", Diagnosis::Permission),
        ];
        TABLE.iter().find(|(text, _)| line.contains(text)).map(|(_, diagnosis)| *diagnosis)
    }

    /// The remedy, as a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::DiskFull => "the disk is full: make room, or move the data (--data DIR, or data in node.toml)",
            Self::AddressInUse => "the address is in use: stop who uses it, or choose another port",
            Self::BadConfiguration => "PostgreSQL's configuration has an error: the lines above name file and setting",
            Self::OutOfMemory => "memory is short: lower shared_buffers in postgresql.conf, or free some",
            Self::StillInUse => "processes of an earlier PostgreSQL still use this directory: end them",
            Self::NotAdmitted => {
                "the primary's rules do not name this host: put its [[member]] into the files of all hosts, and then, there, \
                 systemctl reload sluice-node"
            }
            Self::Permission => "PostgreSQL's user may not use a file: correct its owner and mode",
        }
    }
}

/// The end of a log, and the cause if it was recognised; shown below an error's first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The last lines.
    pub text: String,
    /// The cause.
    pub diagnosis: Option<Diagnosis>,
}

impl Tail {
    /// Of a program's output.
    pub(crate) fn of(output: &str) -> Self {
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let text = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        Self { diagnosis: Diagnosis::of(&text), text }
    }

    /// Of a log file, from `start` on: what came before is not about this start.
    pub(crate) fn of_file(path: &Path, start: u64) -> Self {
        let output =
            read_end(path, start, TAIL_BYTES).unwrap_or_else(|error| format!("(the log can't be read: {error})"));
        let tail = Self::of(&output);
        // A log that is on the full disk itself has lost the message.
        let full = disk::free_bytes(path).is_ok_and(|free| free < disk::FULL_BYTES);
        Self { diagnosis: tail.diagnosis.or(full.then_some(Diagnosis::DiskFull)), ..tail }
    }

    /// The last line that tells of an error, with the remedy where it is known; that alone, where the disk is full and has
    /// taken no such line any more.
    ///
    /// Early in a first start, errors that end with it are left out.
    pub(crate) fn last_error(&self, is_early: bool) -> Option<String> {
        const ERRORS: [&str; 5] = ["ERROR", "FATAL", "PANIC", "CRITICAL", "error:"];
        // Patroni asks a server that is coming up until it is there.
        const NONE: [&str; 2] = ["is starting up", "not yet accepting connections"];
        // Roles and slots are asked for before the primary has made them, and Patroni says that a second time.
        const SUMMARIES: [&str; 2] = ["Can not fetch local timeline and lsn", "Error when fetching backup"];
        let is_passing = |line: &str| {
            let names = ["role \"sluice_", "replication slot \""].iter().any(|it| line.contains(it));
            names && line.contains("\" does not exist") || SUMMARIES.iter().any(|it| line.contains(it))
        };
        let is_error = |line: &&str| {
            ERRORS.iter().any(|it| line.contains(it))
                && !NONE.iter().any(|it| line.contains(it))
                && !(is_early && is_passing(line))
        };
        // The cause may come before what follows from it.
        let is_cause = |line: &&str| self.diagnosis.is_some() && Diagnosis::of_line(line) == self.diagnosis;
        let lines = || self.text.lines().rev();
        let Some(line) = lines().find(is_cause).or_else(|| lines().find(is_error)) else {
            return self.diagnosis.filter(|it| *it == Diagnosis::DiskFull).map(|full| full.remedy().to_owned());
        };
        let line: String = line.trim().chars().take(LINE_CHARS_MAX).collect();
        let line = match self.diagnosis {
            Some(Diagnosis::BadConfiguration) => self.reasons() + &line,
            _ => line,
        };
        Some(self.diagnosis.map_or_else(|| line.clone(), |cause| format!("{line}\n{}", cause.remedy())))
    }

    /// The lines before the one by which PostgreSQL does not take a configuration file: they name file, line and fault.
    fn reasons(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_end =
            |line: &&str| line.contains("FATAL") && Diagnosis::of_line(line) == Some(Diagnosis::BadConfiguration);
        let Some(end) = lines.iter().rposition(is_end) else { return String::new() };
        let is_reason = |line: &&&str| line.contains("LOG:") || line.contains("CONTEXT:");
        let count = lines[..end].iter().rev().take(REASON_LINES_MAX).take_while(is_reason).count();
        lines[end - count..end]
            .iter()
            .map(|line| line.trim().chars().take(LINE_CHARS_MAX).chain(['\n']).collect::<String>())
            .collect()
    }

    /// The last line without time stamp and process.
    pub(crate) fn last_message(&self) -> Option<String> {
        let line = self.text.lines().last()?;
        Some(line.split_once("] ").map_or(line, |(_, message)| message).trim().to_owned())
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.text.lines() {
            write!(f, "\n  | {line}")?;
        }
        self.diagnosis.map_or(Ok(()), |diagnosis| write!(f, "\n{}", diagnosis.remedy()))
    }
}

pub(crate) fn read_end(path: &Path, start: u64, bytes_max: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(bytes_max)).min(length)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes() {
        for (text, expected) in [
            ("PANIC:  could not write to file \"x\": No space left on device", Some(Diagnosis::DiskFull)),
            (
                "initdb: error: could not write file \"x\": No space left on device\ninitdb: removing",
                Some(Diagnosis::DiskFull),
            ),
            ("LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use", Some(Diagnosis::AddressInUse)),
            ("FATAL:  configuration file \"postgresql.conf\" contains errors", Some(Diagnosis::BadConfiguration)),
            ("FATAL:  could not map anonymous shared memory: Cannot allocate memory", Some(Diagnosis::OutOfMemory)),
            (
                "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use\nHINT:  Terminate",
                Some(Diagnosis::StillInUse),
            ),
            (
                "ERROR:  could not write block 27 in file \"x\": wrote only 4096 of 8192 bytes\nHINT:  Check free disk space.",
                Some(Diagnosis::DiskFull),
            ),
            ("LOG:  database system was shut down", None),
            ("", None),
        ] {
            assert_eq!(Diagnosis::of(text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_error_is_the_cause_where_it_is_known() {
        let full = "pg_basebackup: error: could not write to file \"x\": No space left on device\n\
                    2026-11-26 22:00:00,1 ERROR: Error creating replica using method basebackup: exited with code=1\n\
                    2026-11-26 22:00:01,1 INFO: trying to bootstrap from leader 'a'";
        let error = Tail::of(full).last_error(false).unwrap();
        assert!(error.starts_with("pg_basebackup: error") && error.contains("\nthe disk is full"), "{error}");
        let rejected = "pg_basebackup: error: connection to server at \"10.0.0.1\", port 5432 failed: FATAL:  pg_hba.conf rejects \
                        replication connection for host \"10.0.0.4\", user \"sluice_replication\", SSL encryption\n\
                        2026-11-27 20:00:00,1 ERROR: Error when fetching backup: pg_basebackup exited with code=1";
        let error = Tail::of(rejected).last_error(false).unwrap();
        assert!(error.contains("pg_hba.conf rejects") && error.contains("systemctl reload sluice-node"), "{error}");
        let of_a_client = "FATAL:  no pg_hba.conf entry for host \"10.0.0.7\"\nERROR: two";
        assert_eq!(Tail::of(of_a_client).last_error(false).as_deref(), Some("ERROR: two"));
        let mistyped = "LOG:  starting PostgreSQL 15.15\nLOG:  invalid authentication method \"scram-sha-265\"\n\
                        CONTEXT:  line 14 of configuration file \"/x/pg_hba.conf\"\nFATAL:  could not load pg_hba.conf\n\
                        LOG:  database system is shut down";
        let error = Tail::of(mistyped).last_error(false).unwrap();
        assert!(
            error.starts_with("LOG:  invalid authentication method \"scram-sha-265\"\nCONTEXT:  line 14 "),
            "{error}"
        );
        assert!(error.contains("\nFATAL:  could not load pg_hba.conf\n"), "{error}");
        let other = "ERROR: one\nERROR: two\nFATAL:  the database system is starting up\nINFO: three";
        assert_eq!(Tail::of(other).last_error(false).as_deref(), Some("ERROR: two"));
        assert_eq!(Tail::of("INFO: all is well").last_error(false), None);
    }

    #[test]
    fn errors_of_an_ordinary_first_start_are_left_out_early() {
        for passing in [
            "sluice_replication@[unknown] FATAL:  role \"sluice_replication\" does not exist\n\
             2026-11-28 12:56:24,996 ERROR: Can not fetch local timeline and lsn from replication connection\n\
             psycopg2.OperationalError: connection to server failed: FATAL:  role \"sluice_replication\" does not exist",
            "pg_basebackup: error: connection to server failed: FATAL:  role \"sluice_replication\" does not exist\n\
             2026-11-28 03:36:03,125 ERROR: Error when fetching backup: pg_basebackup exited with code=1",
            "FATAL:  could not start WAL streaming: ERROR:  replication slot \"node4\" does not exist",
        ] {
            assert_eq!(Tail::of(passing).last_error(true), None, "{passing}");
            assert_eq!(Tail::of(passing).last_error(false).as_deref(), passing.lines().last(), "{passing}");
            let tail = Tail::of(&format!("ERROR: one\n{passing}"));
            assert_eq!(tail.last_error(true).as_deref(), Some("ERROR: one"), "{passing}");
        }
    }

    #[test]
    fn a_log_that_was_cut_off_by_a_full_disk_tells_the_remedy() {
        let cut_off = Tail { diagnosis: Some(Diagnosis::DiskFull), ..Tail::of("INFO: all is well") };
        assert_eq!(cut_off.last_error(false).as_deref(), Some(Diagnosis::DiskFull.remedy()));
    }

    #[test]
    fn the_end_of_a_file_from_this_start_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let old = "No space left on device\n";
        let new: String = (0..100).map(|i| format!("2026-11-20 23:00:00.000 UTC [77] LOG:  line {i}\n")).collect();
        std::fs::write(&path, format!("{old}{new}")).unwrap();

        let tail = Tail::of_file(&path, old.len() as u64);
        assert_eq!(tail.text.lines().count(), TAIL_LINES);
        assert_eq!(tail.last_message().as_deref(), Some("LOG:  line 99"));
        assert_eq!(tail.diagnosis, None);
        assert_eq!(Tail::of_file(&path, 1 << 40).text, "");
        assert!(Tail::of_file(&dir.path().join("none"), 0).text.contains("can't be read"));
    }
}
