//! Errors of a cluster's start. The fault is the machine's or the configuration's.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use super::environment::EnvironmentError;
use crate::{bootstrap::BootstrapError, data_dir::DataDirError, diagnosis::Tail};

/// The end of a program's log.
#[derive(Debug)]
pub struct LogEnd {
    /// The log.
    pub log: PathBuf,
    /// Its end.
    pub tail: Tail,
}

fn ends(logs: &[LogEnd]) -> String {
    logs.iter().map(|LogEnd { log, tail }| format!("\nthe end of {}:{tail}", log.display())).collect()
}

/// Reasons why a cluster did not start; each message ends with a program's own words or with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Patroni can't be had.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The roles can't be made.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// etcd is not installed.
    #[error(
        "two and three nodes need etcd, and there is none in /usr/bin or on PATH\n\
         install it (Debian, Ubuntu: apt-get install etcd-server; its service is not needed: systemctl disable --now etcd)"
    )]
    NoEtcd,
    /// etcd is too old to join others.
    #[error("{} is not etcd 3.4 or later: it says {said:?}\ninstall a later one (Debian 12 has 3.4)", program.display())]
    OldEtcd {
        /// The program.
        program: PathBuf,
        /// Its words.
        said: String,
    },
    /// Something else listens on a port that this cluster has.
    #[error(
        "{address} is in use, where {what} has to listen\n\
         stop the program that has it (ss -ltnp 'sport = :{}' names it), or change the port in {}",
        address.port(), file.display()
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
        /// Whose it is.
        what: String,
        /// The file that has the ports.
        file: PathBuf,
    },
    /// An address of another machine.
    #[error(
        "{} is no address of this machine, where {what} has to listen\n\
         ip address shows those that it has; change the address in {}, or give this machine that one",
        address.ip(), file.display()
    )]
    NotHere {
        /// The address.
        address: SocketAddr,
        /// Whose it is.
        what: String,
        /// The file that has the address.
        file: PathBuf,
    },
    /// No room for so many ports.
    #[error("no free ports from {first} on: the cluster needs {needed}")]
    NoPorts {
        /// The first that was tried.
        first: u16,
        /// The number that is needed.
        needed: usize,
    },
    /// Too few members of etcd for a majority.
    #[error(
        "etcd has no majority after {} s: {healthy} of {members} members answer{}\n\
         where their data are lost, sluice up --nodes 1 keeps the last leader's, and then there can be several nodes again",
        waited.as_secs(), ends(logs)
    )]
    NoMajority {
        /// Members that answer.
        healthy: usize,
        /// Members in all.
        members: usize,
        /// The time that they were given.
        waited: Duration,
        /// Of those that do not answer.
        logs: Vec<LogEnd>,
    },
    /// A host's member of etcd does not come up.
    #[error("etcd does not come up; {} says:\n{said}\n{remedy}", log.display())]
    EtcdFails {
        /// Its log.
        log: PathBuf,
        /// The last errors there.
        said: String,
        /// The remedy.
        remedy: String,
    },
    /// A host's data are of another cluster.
    #[error(
        "{} has data of another PostgreSQL (system identifier {found}) than cluster {cluster} ({expected})\n\
         move that folder away: this host then gets a copy of the primary's data",
        pgdata.display()
    )]
    ForeignData {
        /// The data directory.
        pgdata: PathBuf,
        /// Its identifier.
        found: String,
        /// The cluster.
        cluster: String,
        /// The cluster's.
        expected: String,
    },
    /// A host's data hold what the cluster's lack.
    #[error(
        "{} goes further than the data of cluster {cluster}: it is on timeline {timeline}, and {primary}, has not written \
         what it has\n\
         look at it: it was written to outside of the cluster. Move the folder away, and this host gets a copy of the \
         primary's data",
        pgdata.display()
    )]
    FurtherData {
        /// The data directory.
        pgdata: PathBuf,
        /// Its timeline.
        timeline: u64,
        /// The cluster.
        cluster: String,
        /// The primary, with its timeline.
        primary: String,
    },
    /// A host's data left a timeline elsewhere in the log than the cluster did.
    #[error(
        "{} has another history than cluster {cluster}: it left timeline {left} at another place, and is on timeline \
         {timeline} now\n\
         look at it: it was promoted outside of the cluster, or by a failover that no other node heard of. Move the folder \
         away, and this host gets a copy of the primary's data",
        pgdata.display()
    )]
    PartedData {
        /// The data directory.
        pgdata: PathBuf,
        /// Its timeline.
        timeline: u64,
        /// The last timeline that both were on.
        left: u64,
        /// The cluster.
        cluster: String,
    },
    /// A host's data hold what those lacked that a cluster was begun again with.
    #[error(
        "{} goes further than the data that cluster {cluster} was begun again with (sluice node init --again on another \
         host): it is on timeline {timeline}, and {primary} {left}\n\
         what these data have more may have been acknowledged, and nothing of them is changed. If they are those that are \
         wanted: stop all hosts, move etcd away on all of them, and sluice node init --again here. To give up what only they \
         have: move the folder away, and this host gets a copy of the primary's data",
        pgdata.display()
    )]
    AheadOfBeginning {
        /// The data directory.
        pgdata: PathBuf,
        /// Its timeline.
        timeline: u64,
        /// The cluster.
        cluster: String,
        /// The primary.
        primary: String,
        /// Words for the place at which the primary left that timeline.
        left: String,
    },
    /// Another major version than the other nodes'.
    #[error(
        "{node} is PostgreSQL {theirs}, and {} is PostgreSQL {ours}\n\
         name the programs of PostgreSQL {theirs} with pg_bin in {} (Debian, Ubuntu: /usr/lib/postgresql/{theirs}/bin, \
         from the package postgresql-{theirs})",
        dir.display(), file.display()
    )]
    OtherVersion {
        /// One of them.
        node: String,
        /// Its major version.
        theirs: u32,
        /// The folder of the programs here.
        dir: PathBuf,
        /// Their version.
        ours: String,
        /// The host's file.
        file: PathBuf,
    },
    /// Somebody has asked for the end of a start.
    #[error("interrupted while starting")]
    GivenUp,
    /// Not all nodes are where they should be.
    #[error("the cluster was not ready after {} s ({said}){}", waited.as_secs(), ends(logs))]
    NotReady {
        /// The time that it was given.
        waited: Duration,
        /// The last words of the nodes.
        said: String,
        /// Of the nodes that are missing.
        logs: Vec<LogEnd>,
    },
    /// A node's data are of another cluster.
    #[error(
        "{} has data of another PostgreSQL (system identifier {found}) than {} ({expected})\n\
         move the folder away that does not belong here: its node then gets a copy of the leader's data",
        pgdata.display(), other.display()
    )]
    OtherSystem {
        /// The data directory.
        pgdata: PathBuf,
        /// Its identifier.
        found: String,
        /// The data directory that it was compared with.
        other: PathBuf,
        /// The identifier that it should have.
        expected: String,
    },
    /// A node's old data may hold what the instance's lack.
    #[error(
        "{} is no mere copy of {}: it goes further in its log, or is on a later timeline\n\
         look at it, and move the folder away: the node then gets a copy of the leader's data",
        pgdata.display(), other.display()
    )]
    NoCopy {
        /// The node's data directory.
        pgdata: PathBuf,
        /// The instance's.
        other: PathBuf,
    },
    /// No node is shown to have everything.
    #[error(
        "the nodes of {} were not stopped in order, and no one of them is shown to have everything:\n  {said}\n\
         start all of them once more (sluice up --nodes {}) and stop them with Ctrl-C",
        root.display(), (*nodes).max(2)
    )]
    NotWhole {
        /// The instance's directory.
        root: PathBuf,
        /// Each node with its state.
        said: String,
        /// The number of nodes with data.
        nodes: usize,
    },
    /// PostgreSQL would not start on its data as one node.
    #[error(
        "as one node, PostgreSQL would not start on {}: {lack}\n\
         nothing is moved: set {remedy} at the end of {} (and see that no ALTER SYSTEM sets it lower), or \
         start several nodes once more and remove what needs it",
        pgdata.display(), file.display()
    )]
    Needs {
        /// The data directory.
        pgdata: PathBuf,
        /// The setting, its value by the server's files, and what needs more.
        lack: String,
        /// The setting as it would do.
        remedy: String,
        /// The server's own file.
        file: PathBuf,
    },
    /// `pg_controldata` does not say what it should.
    #[error(
        "pg_controldata can't read {}: {why}\n\
         if the data of another node, or host, are whole: move this folder away, and it is copied anew from there",
        pgdata.display()
    )]
    Control {
        /// The data directory.
        pgdata: PathBuf,
        /// Its words.
        why: String,
    },
    /// A file of the cluster's own can't be understood.
    #[error("{}: {why}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The fault in it, and the remedy.
        why: String,
    },
    /// A file, thread or process could not be made.
    #[error("cannot {what} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The action that failed, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "\nrun this as root, or as the user that runs sluice",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "\nthe disk is full: make room",
        _ => "",
    }
}

impl ClusterError {
    pub(super) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
