//! Addresses that a program of ours is about to listen on, and logs that it is about to have.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use super::error::ClusterError;
use crate::server::log_file;

/// The address is this machine's, and nobody listens there; `file` has it.
pub(super) fn check_port(address: SocketAddr, what: &str, file: &Path) -> Result<(), ClusterError> {
    let (what, file) = (what.to_owned(), file.to_owned());
    match TcpListener::bind(address).map_err(|error| error.kind()) {
        Err(io::ErrorKind::AddrInUse) => Err(ClusterError::PortInUse { address, what, file }),
        Err(io::ErrorKind::AddrNotAvailable) => Err(ClusterError::NotHere { address, what, file }),
        _ => Ok(()),
    }
}

/// A log is ours, and its program has it open.
pub(super) fn make_log(path: &Path) -> Result<(), ClusterError> {
    log_file::open(path).map(drop).map_err(ClusterError::io("open the log", path))
}
