//! The number of files that the process may have open, held against the limits of a configuration.

use sluice_config::Config;
use sluice_core::admission::{SOCKET_STRANGERS_MAX, STRANGERS_MAX};
use sluice_net::LINGERING_MAX;
use thiserror::Error;

use crate::{http, net::FILES_SPARE, resolver, worker::default_workers};

/// Files that the process has open besides connections and those of its workers, at most.
const FILES_OTHER: u64 = 64;

/// Files of a worker: its driver's, and its mailbox twice.
const FILES_OF_WORKER: u64 = 3;

/// The process may not have as many files open as the limits demand.
#[derive(Debug, Error)]
#[error(
    "the limits allow {wanted} connections, and this process may have only {allowed} files open\n  raise the limit (ulimit -n {needed}, or LimitNOFILE={needed}), or lower \"clients\" under [limits]"
)]
pub struct OpenFiles {
    /// Clients, servers, those who have not logged in, and those who are sent away.
    wanted: u64,
    /// The hard limit.
    allowed: u64,
    /// The limit that is needed.
    needed: u64,
}

/// Raises the soft limit on open files to the hard one, and checks that it is enough.
pub(crate) fn check_open_files(config: &Config) -> Result<(), OpenFiles> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (wanted, needed) = needed(config);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some() && limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    match getrlimit(Resource::Nofile).current {
        Some(allowed) if allowed < needed => Err(OpenFiles { wanted, allowed, needed }),
        _ => Ok(()),
    }
}

/// The connections that there may be, and the files that the process needs for them and for all the rest.
fn needed(config: &Config) -> (u64, u64) {
    let workers = u64::from(config.workers.unwrap_or_else(default_workers));
    let connections = [config.limits.clients, STRANGERS_MAX, SOCKET_STRANGERS_MAX, config.limits.servers];
    let wanted = connections.map(u64::from).iter().sum::<u64>() + workers * LINGERING_MAX as u64;
    let listeners = (config.listen.len() + usize::from(config.unix_socket_dir.is_some())) as u64;
    // Systemd may pass sockets for it that are not in the configuration.
    let http = (config.http_listen.len() + http::CONNECTIONS_MAX) as u64;
    let look_ups = resolver::AT_ONCE as u64;
    // Each worker has each listening socket once more.
    let others = listeners + workers * (FILES_OF_WORKER + listeners) + http + look_ups + FILES_OTHER + FILES_SPARE;
    (wanted, wanted + others)
}
