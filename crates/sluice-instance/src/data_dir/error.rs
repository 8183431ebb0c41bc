//! Errors of an instance's directory. The fault is the configuration's or the machine's, never a client's.
//! `sluice up` is told its directory by `--data`, `sluice node` by `data` in its file.

use std::{io, path::PathBuf};

use crate::{binaries::Binaries, diagnosis::Tail};

/// Reasons why an instance's directory can't be used; each message ends with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A file or folder can't be made, read or written.
    #[error("cannot {what} {}: {source}{}", path.display(), remedy(what, source))]
    Io {
        /// The action that failed, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another Sluice uses it. Trying again helps once that one has stopped.
    #[error(
        "another sluice uses {}{}\nstop that one first, or choose another directory (--data DIR, or data in node.toml)",
        path.display(),
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The other one's process.
        pid: Option<u32>,
    },
    /// PostgreSQL's user can't get there.
    #[error(
        "user {user} cannot enter {} on the way to {}\n\
         run chmod o+x {}, choose a directory elsewhere, as /var/lib/sluice (--data DIR, or data in node.toml), or \
         another user (--run-as USER, or run_as in node.toml)",
        at.display(), path.display(), at.display()
    )]
    Blocked {
        /// The user that runs PostgreSQL.
        user: String,
        /// The first part of the path that stops it.
        at: PathBuf,
        /// The directory that it has to reach.
        path: PathBuf,
    },
    /// The directory is PostgreSQL's own, not an instance's.
    #[error(
        "{} is a PostgreSQL data directory itself; sluice keeps PostgreSQL's files in a folder pgdata within its own\n\
         choose another directory (--data DIR, or data in node.toml), or put the pool before that server with sluice serve",
        path.display()
    )]
    IsPgData {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has files of something else.
    #[error(
        "{} is not empty, and was not made by sluice\n\
         choose an empty or a new directory (--data DIR, or data in node.toml)",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// There are no data, but the passwords of an earlier instance.
    #[error(
        "{} has no data, but an earlier instance has left {left} beside it\n\
         if its data are on another disk, mount that; if they are gone, and a new database is wanted, remove {left} \
         from {}, or choose another directory (--data DIR)",
        pgdata.display(), root.display()
    )]
    DataGone {
        /// The folder that should have the data.
        pgdata: PathBuf,
        /// The instance's directory.
        root: PathBuf,
        /// The names of the files there that show that there were some.
        left: String,
    },
    /// There are files where the data directory should be.
    #[error(
        "{} is not empty, and is no PostgreSQL data directory (no PG_VERSION)\n\
         move it away, or choose another directory (--data DIR, or data in node.toml)",
        path.display()
    )]
    NotPgData {
        /// The folder.
        path: PathBuf,
    },
    /// The data are of another major version.
    #[error(
        "{} has data of PostgreSQL {found}, but {} is PostgreSQL {}\n\
         name PostgreSQL {found}'s programs (--pg-bin DIR, or pg_bin in node.toml; Debian, Ubuntu: /usr/lib/postgresql/{found}/bin \
         by apt-get install postgresql-{found}, from PostgreSQL's own packages where the distribution has none){}",
        path.display(), binaries.dir.display(), binaries.version, upgrade(found, binaries.version.major)
    )]
    WrongMajor {
        /// PostgreSQL's data directory.
        path: PathBuf,
        /// The version in its `PG_VERSION`.
        found: String,
        /// The programs that were found.
        binaries: Box<Binaries>,
    },
    /// The data belong to somebody else.
    #[error(
        "{} belongs to user {owner}, but PostgreSQL would run as {user}\n{}give the files to {user}: chown -R {user} {}",
        path.display(), name_owner(owner), path.display()
    )]
    WrongOwner {
        /// PostgreSQL's data directory.
        path: PathBuf,
        /// Its owner, by name or number.
        owner: String,
        /// The user that runs PostgreSQL.
        user: String,
    },
    /// The directory is that of several nodes.
    #[error("{} has the data of several nodes; start it with --nodes 3 (or 2)", path.display())]
    IsCluster {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is that of a host among several.
    #[error("{} has the data of a host of a cluster: sluice node starts it", path.display())]
    IsHost {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has the data of one node, and the host joins a cluster.
    #[error(
        "{} has the data of a single node (sluice up), which are not those of the cluster\n\
         move its folder pgdata away: this host then gets a copy of the cluster's data; or begin a cluster with them, \
         by sluice node init",
        path.display()
    )]
    IsOne {
        /// The directory.
        path: PathBuf,
    },
    /// Data both where one node has them and where the first of several does.
    #[error(
        "there are data directories in {} and in {}, and only one can be this instance's\n\
         move the one away that is not wanted",
        one.display(), other.display()
    )]
    TwoPgData {
        /// The place where one node has it.
        one: PathBuf,
        /// The place where the first of several has it.
        other: PathBuf,
    },
    /// A PostgreSQL runs on data that have to be moved.
    #[error(
        "a PostgreSQL (process {pid}) runs on {}, which has to be moved\nstop it first: kill -INT {pid}",
        path.display()
    )]
    Running {
        /// Its postmaster.
        pid: i32,
        /// The data directory.
        path: PathBuf,
    },
    /// Too little room to create one.
    #[error(
        "{} has {} MB free; a new data directory needs {} MB\nmake room, or choose another disk (--data DIR, or data in node.toml)",
        path.display(), free_bytes >> 20, needed_bytes >> 20
    )]
    DiskFull {
        /// The directory.
        path: PathBuf,
        /// Room that an ordinary user may still fill there, in bytes.
        free_bytes: u64,
        /// Room that is needed, in bytes.
        needed_bytes: u64,
    },
    /// `initdb` failed; nothing of it is left.
    #[error("initdb failed ({how}); its last words:{tail}")]
    InitDb {
        /// Its end, in words: a status, or a signal.
        how: String,
        /// The end of its output.
        tail: Tail,
    },
}

impl DataDirError {
    pub(crate) fn io(what: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }
}

fn remedy(what: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "\nit is not a directory: choose another one (--data DIR, or data in node.toml)"
        }
        // The way there was made, so the file system takes no folders, as /proc.
        io::ErrorKind::NotFound if what == "create" => {
            "\nno directory can be made there: choose another one (--data DIR, or data in node.toml)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "\nchoose a directory that you can write to (--data DIR, or data in node.toml)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nthe disk is full: make room, or choose another disk (--data DIR, or data in node.toml)"
        }
        io::ErrorKind::NotADirectory => {
            "\na part of this path is a file: choose another directory (--data DIR, or data in node.toml)"
        }
        _ => "",
    }
}

/// Another remedy, where PostgreSQL can run as the owner: it refuses to as root.
fn name_owner(owner: &str) -> String {
    match owner {
        "root" => String::new(),
        owner => format!("name that user (--run-as {owner}, or run_as in node.toml), or "),
    }
}

/// Another remedy, where data are older than the programs: there is no way back.
fn upgrade(found: &str, major: u32) -> String {
    let is_older = found.parse::<f64>().is_ok_and(|found| found < f64::from(major));
    if is_older { format!(", or move the data to {major} with pg_upgrade") } else { String::new() }
}
