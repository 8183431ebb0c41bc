//! Events in the life of a server, as values: the caller decides how to show them.
//!
//! Each event reads as one line of English by `Display`.

use std::{fmt, path::PathBuf, process::ExitStatus, time::Duration};

use crate::{class::ClassReport, stop_mode::StopMode};

/// Something worth telling. Steps that take long come with a beginning and an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The data directory does not exist yet; `initdb` starts.
    Creating {
        /// The directory's path.
        pgdata: PathBuf,
    },
    /// `initdb` has finished.
    Created {
        /// The time that `initdb` took.
        took: Duration,
    },
    /// An earlier run was interrupted; what it left is removed.
    RemovedLeftover {
        /// The path that was removed.
        path: PathBuf,
    },
    /// `postmaster.pid` names a process that is gone, or that is not this PostgreSQL.
    StalePidFile {
        /// The process it names.
        pid: i32,
    },
    /// A PostgreSQL of an earlier run is still shutting down.
    WaitingForEarlier {
        /// Its process.
        pid: i32,
    },
    /// Server processes whose postmaster died were ended, so that a new one can start.
    EndedOrphans {
        /// The number of processes.
        count: usize,
    },
    /// The limits of the instance's class, enforced or not; told at the first start, and whenever that has changed.
    Class {
        /// Each limit.
        report: ClassReport,
    },
    /// A postmaster was started; it is not ready yet.
    Starting {
        /// Its process.
        pid: u32,
    },
    /// Still not ready; told about once a second.
    StillStarting {
        /// Since the start.
        waited: Duration,
        /// The last line of PostgreSQL's log, which says what it is doing.
        last_log_line: Option<String>,
    },
    /// PostgreSQL accepts connections.
    Ready {
        /// Its process.
        pid: u32,
        /// From the start to here.
        took: Duration,
    },
    /// The postmaster ended though nobody asked it to.
    Crashed {
        /// The exit status.
        status: ExitStatus,
    },
    /// It will be started again.
    Restarting {
        /// After this long.
        delay: Duration,
        /// Quick failures in a row so far.
        failures: u32,
    },
    /// Starting it again did not work; the next attempt may.
    RestartFailed {
        /// The error, with the log's end.
        error: String,
    },
    /// It failed too often in a row and stays down.
    GaveUp {
        /// Quick failures in a row.
        failures: u32,
        /// The time that it would have had to run between two of them for the row to end.
        stable_after: Duration,
        /// The reason, with the log's end.
        error: String,
    },
    /// The environment for Patroni does not exist yet; its packages are fetched.
    MakingEnvironment {
        /// Its folder.
        path: PathBuf,
    },
    /// It has been made.
    MadeEnvironment {
        /// The time that it took.
        took: Duration,
    },
    /// Programs of an earlier run have ended, or were ended.
    EndedEarlier {
        /// The number of programs.
        count: usize,
    },
    /// A program of a cluster was started: a member of etcd, or a node's Patroni.
    ProgramStarted {
        /// `etcd1`, `node2`.
        name: String,
        /// Its process.
        pid: u32,
    },
    /// It ended though nobody asked it to, and will be started again.
    ProgramEnded {
        /// `etcd1`, `node2`.
        name: String,
        /// Its end, in words.
        how: String,
        /// The wait before it is started again.
        delay: Duration,
    },
    /// The data directory of an instance was moved, because it has another number of nodes now.
    Resized {
        /// Its old place.
        from: PathBuf,
        /// Its new one.
        to: PathBuf,
    },
    /// A node's old data were removed, which were a copy of what is there.
    RemovedCopy {
        /// The data directory.
        path: PathBuf,
    },
    /// A node's copy was removed that had been interrupted.
    RemovedHalfCopy {
        /// The data directory.
        path: PathBuf,
    },
    /// The survivors of a primary that is gone have ended its lease: Patroni elects another one.
    EndedLease {
        /// The node whose request it was.
        node: String,
        /// The leader.
        leader: String,
    },
    /// A cluster is not where it should be yet.
    ClusterWaiting {
        /// The time so far.
        waited: Duration,
        /// The nodes, with role and state.
        members: String,
    },
    /// A cluster has a leader and all of its nodes, or at least those without which it acknowledges no commit.
    ClusterReady {
        /// The nodes, with role and state.
        members: String,
        /// The time that the start took.
        took: Duration,
    },
    /// The members of etcd have changed what a host's is to them.
    EtcdChanged {
        /// The host.
        name: String,
        /// The change.
        what: &'static str,
    },
    /// A host waits for something.
    HostWaiting {
        /// The time so far.
        waited: Duration,
        /// For what, and what may help.
        why: String,
    },
    /// A host has its place in the cluster.
    HostReady {
        /// The host.
        name: String,
        /// `primary`, `replica` or `witness`.
        role: String,
        /// The time that the start took.
        took: Duration,
    },
    /// A shutdown was asked for.
    Stopping {
        /// The mode of the shutdown.
        mode: StopMode,
    },
    /// The postmaster has ended on request.
    Stopped {
        /// The time that the stop took.
        took: Duration,
        /// The status of one that did not shut down in order.
        failed: Option<ExitStatus>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creating { pgdata } => write!(f, "creating the data directory {}", pgdata.display()),
            Self::Created { took } => write!(f, "created the data directory in {:.1} s", took.as_secs_f64()),
            Self::RemovedLeftover { path } => {
                write!(f, "removed what an interrupted run had left in {}", path.display())
            }
            Self::StalePidFile { pid } => {
                write!(f, "PostgreSQL was not shut down properly (postmaster.pid names process {pid}, which is gone)")
            }
            Self::WaitingForEarlier { pid } => {
                write!(f, "waiting for the PostgreSQL of an earlier run (process {pid}) to end")
            }
            Self::EndedOrphans { count } => write!(f, "ended {count} PostgreSQL processes that had lost their parent"),
            Self::Class { report } => {
                write!(f, "{report}")?;
                report.remedies().iter().try_for_each(|remedy| write!(f, "; {remedy}"))
            }
            Self::Starting { pid } => write!(f, "starting PostgreSQL (process {pid})"),
            Self::StillStarting { waited, last_log_line } => {
                write!(f, "PostgreSQL is not ready after {} s", waited.as_secs())?;
                last_log_line.as_ref().map_or(Ok(()), |line| write!(f, "; its log says: {line}"))
            }
            Self::Ready { pid, took } => {
                write!(f, "PostgreSQL is ready (process {pid}, {:.1} s)", took.as_secs_f64())
            }
            Self::Crashed { status } => write!(f, "PostgreSQL ended by itself ({status})"),
            Self::Restarting { delay, failures } if delay.is_zero() => {
                write!(f, "starting PostgreSQL again (failure {failures})")
            }
            Self::Restarting { delay, failures } => {
                write!(f, "starting PostgreSQL again in {:.1} s (failure {failures})", delay.as_secs_f64())
            }
            Self::RestartFailed { error } => write!(f, "PostgreSQL could not be started again: {error}"),
            Self::GaveUp { failures: 1, error, .. } => write!(f, "PostgreSQL failed and stays down: {error}"),
            Self::GaveUp { failures, stable_after, error } => {
                let seconds = stable_after.as_secs();
                write!(
                    f,
                    "PostgreSQL failed {failures} times without having run for {seconds} s in between, and stays down: {error}"
                )
            }
            Self::MakingEnvironment { path } => {
                write!(f, "fetching Patroni's packages for {} (once)", path.display())
            }
            Self::MadeEnvironment { took } => write!(f, "Patroni's packages are there ({:.1} s)", took.as_secs_f64()),
            Self::EndedEarlier { count } => write!(f, "{count} programs of an earlier run have ended"),
            Self::ProgramStarted { name, pid } => write!(f, "starting {name} (process {pid})"),
            Self::ProgramEnded { name, how, delay } => {
                write!(f, "{name} ended by itself ({how}); starting it again in {:.1} s", delay.as_secs_f64())
            }
            Self::Resized { from, to } => write!(f, "moved the data from {} to {}", from.display(), to.display()),
            Self::RemovedCopy { path } => write!(f, "removed the old copy of the data in {}", path.display()),
            Self::RemovedHalfCopy { path } => {
                write!(f, "removed the copy of the data in {}, which had not come to its end", path.display())
            }
            Self::EndedLease { node, leader } => {
                write!(f, "{leader} is gone, as all standbys agree: {node} has ended its lease")
            }
            Self::ClusterWaiting { waited, members } => {
                write!(f, "the cluster is not ready after {} s: {members}", waited.as_secs())
            }
            Self::ClusterReady { members, took } => {
                write!(f, "the cluster is ready ({:.1} s): {members}", took.as_secs_f64())
            }
            Self::EtcdChanged { name, what } => write!(f, "etcd's member {name} is {what}"),
            Self::HostWaiting { waited, why } => write!(f, "waiting for {} s: {why}", waited.as_secs()),
            Self::HostReady { name, role, took } => {
                write!(f, "{name} has its place in the cluster, as {role} ({:.1} s)", took.as_secs_f64())
            }
            Self::Stopping { mode } => write!(f, "stopping PostgreSQL ({mode} shutdown)"),
            Self::Stopped { took, failed: None } => write!(f, "PostgreSQL has stopped ({:.1} s)", took.as_secs_f64()),
            Self::Stopped { took, failed: Some(status) } => {
                write!(f, "PostgreSQL has stopped, but not in order ({status}, {:.1} s)", took.as_secs_f64())
            }
        }
    }
}

/// An observer of events. It is called from the caller's thread and from the keeper's, and must return soon.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Observer for F {
    fn event(&self, event: Event) {
        self(event);
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&self, _event: Event) {}
}
