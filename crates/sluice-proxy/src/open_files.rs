//! The number of files that the process may have open, held against the limits of a configuration.

use sluice_config::Config;
use sluice_core::admission::{SOCKET_STRANGERS_MAX, STRANGERS_MAX};
use thiserror::Error;

/// Files that the process has open besides connections, at most.
const FILES_OTHER: u64 = 64;

/// The process may not have as many files open as the limits demand.
#[derive(Debug, Error)]
#[error(
    "the limits allow {wanted} connections, and this process may have only {allowed} files open\n  raise the limit (ulimit -n {needed}, or LimitNOFILE={needed}), or lower \"clients\" under [limits]"
)]
pub struct OpenFiles {
    /// Clients and servers.
    wanted: u64,
    /// The hard limit.
    allowed: u64,
    /// The limit that is needed.
    needed: u64,
}

/// Raises the soft limit on open files to the hard one, and checks that it is enough.
pub(crate) fn check_open_files(config: &Config) -> Result<(), OpenFiles> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let connections = [config.limits.clients, STRANGERS_MAX, SOCKET_STRANGERS_MAX, config.limits.servers];
    let wanted = connections.map(u64::from).iter().sum::<u64>();
    let needed = wanted + FILES_OTHER;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
    match getrlimit(Resource::Nofile).current {
        Some(allowed) if allowed < needed => Err(OpenFiles { wanted, allowed, needed }),
        _ => Ok(()),
    }
}
