//! The addresses that a server listens on.

use std::{net::SocketAddr, path::PathBuf};

use sluice_config::FileServer;

/// The addresses that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The folder of the Unix socket.
    pub socket_dir: PathBuf,
    /// The port: in the socket's name, and by TCP.
    pub port: u16,
    /// The TCP address, if it listens by TCP.
    pub tcp: Option<SocketAddr>,
}

impl Endpoint {
    /// The same as a pool on this host is told.
    pub fn for_pool(&self) -> FileServer {
        FileServer::Socket { dir: self.socket_dir.clone(), port: self.port }
    }
}
