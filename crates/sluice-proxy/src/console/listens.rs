//! The places that the pool listens on, as the console shows them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The places that the pool listens on.
#[derive(Debug)]
pub(crate) struct Listens {
    addresses: Vec<SocketAddr>,
    /// The folders of Unix sockets.
    dirs: Vec<PathBuf>,
}

impl Listens {
    /// By its addresses, and the paths of its Unix sockets.
    pub(crate) fn new(addresses: Vec<SocketAddr>, sockets: &[&Path]) -> Self {
        let dirs = sockets.iter().filter_map(|socket| Some(socket.parent()?.to_owned()));
        Self { addresses, dirs: dirs.collect() }
    }

    /// The first address's.
    pub(super) fn port(&self) -> Option<u16> {
        Some(self.addresses.first()?.port())
    }

    /// The hosts of all addresses.
    pub(super) fn hosts(&self) -> String {
        let mut hosts: Vec<_> = self.addresses.iter().map(|address| address.ip().to_string()).collect();
        hosts.dedup();
        hosts.join(",")
    }

    /// The folders of all Unix sockets.
    pub(super) fn dirs(&self) -> String {
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        dirs.join(",")
    }
}
