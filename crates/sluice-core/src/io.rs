//! What the core wants done. A driver does it, or a simulation.

use std::{net::IpAddr, ops::Range, path::PathBuf};

use crate::{
    hub::Mail,
    ids::{CancelId, ClientId, ServerId},
    server::Server,
};

/// A connection, by the driver's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conn(pub u32);

/// The owner of a connection, by the engine's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A client's.
    Client(ClientId),
    /// A server's.
    Server(ServerId),
    /// One that carries a CancelRequest to a server.
    Cancel(CancelId),
}

/// Where a server listens: nothing left to resolve but a host's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host name or address, and a port.
    Tcp(String, u16),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Where a client came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddress {
    /// A Unix socket.
    Local,
    /// An address and a port.
    Tcp(IpAddr, u16),
}

impl std::fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("[local]"),
            Self::Tcp(ip, port) => write!(f, "{ip}:{port}"),
        }
    }
}

/// The actions of the core. None of them fails at once: a connection that breaks is reported as an event later.
pub trait Io {
    /// Sends a stretch of the chunk that is being handled, without a copy where that pays.
    fn forward(&mut self, to: Conn, range: Range<usize>);

    /// Sends bytes of the core's own.
    fn send(&mut self, to: Conn, bytes: &[u8]);

    /// Bytes given for `conn` that the kernel has not taken yet.
    fn backlog(&self, conn: Conn) -> usize;

    /// Stops reading. What is under way may still arrive.
    fn pause(&mut self, conn: Conn);

    /// Reads again.
    fn resume(&mut self, conn: Conn);

    /// Closes after everything given for it has been sent, in bounded time. No event of it will follow.
    fn close(&mut self, conn: Conn);

    /// Opens a connection. Its end comes as an event: connected, or closed.
    fn connect(&mut self, owner: Owner, address: &Address) -> Conn;

    /// Hands a server's connection to another worker, where it arrives as [`Mail::Server`].
    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, mail: HandOver);

    /// Sends a message to a worker, this one included.
    fn mail(&mut self, worker: u16, mail: Mail);

    /// Asks for a user's secret; the answer goes to [`Secrets::found`](crate::secrets::Secrets::found), and to all who wait for it as
    /// [`Mail::Secret`].
    fn look_up(&mut self, user: &str);

    /// Fills `bytes` with random ones fit for keys.
    fn random(&mut self, bytes: &mut [u8]);

    /// Says something to the operator.
    fn log(&mut self, event: LogEvent<'_>);
}

/// For whom a server is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver(pub crate::hub::ClientRef);

/// An event that an operator should know of. The driver's side words it.
#[derive(Debug, Clone, Copy)]
pub enum LogEvent<'a> {
    /// A client was refused or sent away.
    ClientRefused {
        /// Where it came from.
        peer: PeerAddress,
        /// The error that it got.
        error: &'a sluice_wire::ErrorResponse,
    },
    /// A server can't be reached or refuses the login.
    ConnectFailed {
        /// Where it should be.
        address: &'a Address,
        /// The error that came back.
        error: &'a sluice_wire::ErrorResponse,
    },
    /// A server does not believe the pool when it tells where a client comes from.
    SecretRefused {
        /// Where it is.
        address: &'a Address,
    },
    /// A server connection ended that should not have.
    ServerLost {
        /// Where it was.
        address: &'a Address,
        /// How it ended.
        reason: &'a str,
    },
}
