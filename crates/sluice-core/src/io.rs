//! The actions of the core. A driver carries them out, or a simulation.

use std::{ops::Range, time::Duration};

use sluice_control::access::Rights;
use sluice_tls::{Side, TlsError};
use thiserror::Error;

pub use sluice_control::address::{Address, PeerAddress};

use crate::{ids::ClientRef, mail::Mail, server::Server};

pub use crate::ids::{Conn, Owner};

/// The actions of the core. None of them fails at once: a connection that breaks is reported as an event later.
pub trait Io {
    /// Sends a stretch of the chunk that is being handled, without a copy where that pays.
    fn forward(&mut self, to: Conn, range: Range<usize>);

    /// Sends bytes of the core's own.
    fn send(&mut self, to: Conn, bytes: &[u8]);

    /// The same of a few bytes that may wait for what is given for `to` next, which is about to come: they are not worth
    /// a send of their own.
    fn send_with_next(&mut self, to: Conn, bytes: &[u8]);

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

    /// Encrypts a connection from now on: what was given for it before goes in clear, and `received` has come by it already
    /// and begins the handshake. How that ends comes as an event: [`Engine::secured`](crate::Engine::secured), or its
    /// end. Nothing may be given for it before.
    fn secure(&mut self, conn: Conn, side: Side, received: &[u8]);

    /// Hands a server's connection to another worker, where it arrives as [`Mail::Server`].
    fn hand_over(&mut self, conn: Conn, worker: u16, server: Box<Server>, mail: HandOver);

    /// Sends a message to a worker, this one included.
    fn mail(&mut self, worker: u16, mail: Mail);

    /// Asks for a user's account; the answer goes to [`Secrets::found`](crate::secrets::Secrets::found), and to all who
    /// wait for it as [`Mail::Secret`].
    fn look_up(&mut self, user: &str);

    /// Asks for the name of the system's user at the other end of a Unix socket; the answer comes as
    /// [`Mail::Identified`]. `false` if so many are asked for that no more can be.
    #[must_use]
    fn identify(&mut self, conn: Conn, client: ClientRef) -> bool;

    /// Gives a command of the admin console to the control thread, which answers by [`Mail::Answer`]; `false` if it has so
    /// many to carry out that it takes no more.
    #[must_use]
    fn command(&mut self, command: Command) -> bool;

    /// Says that a client of the console has cancelled what it waits for.
    fn cancel_command(&mut self, client: ClientRef);

    /// Fills `bytes` with random ones fit for keys.
    fn random(&mut self, bytes: &mut [u8]);

    /// Says something to the operator.
    fn log(&mut self, event: LogEvent<'_>);
}

/// A command of a client of the admin console.
#[derive(Debug)]
pub struct Command {
    /// The client.
    pub client: ClientRef,
    /// Its user.
    pub user: Box<str>,
    /// Its rights.
    pub rights: Rights,
    /// The text of its Query.
    pub text: String,
}

/// For whom a server is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver(pub ClientRef);

/// The reason why a connection is gone.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Loss {
    /// The other side has closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// The system's reason.
    #[error("{0}")]
    Broken(String),
    /// TLS can't go on.
    #[error("TLS: {0}")]
    Tls(TlsError),
}

/// The reason why a client is gone.
#[derive(Debug, Clone, Copy, Error)]
pub enum Departure<'a> {
    /// It said that it goes.
    #[error("it said goodbye")]
    Goodbye,
    /// Its connection has ended.
    #[error("{0}")]
    Lost(&'a Loss),
    /// It was sent away with an error.
    #[error("sent away: {}", .0.message)]
    SentAway(&'a sluice_wire::ErrorResponse),
    /// Its server's connection has ended, and the server's own words have reached it.
    #[error("its server has ended the session")]
    Ended,
}

/// A client that has proven who it is.
#[derive(Debug, Clone)]
pub struct KnownClient<'a> {
    /// The database, as it calls it.
    pub database: &'a str,
    /// Its user.
    pub user: &'a str,
    /// Its address.
    pub peer: PeerAddress,
    /// The version of its TLS, if it has any.
    pub tls: Option<&'a str>,
    /// Its `application_name`; empty if it has said none.
    pub application_name: String,
}

/// An event that an operator should know of. The driver's side words it.
#[derive(Debug, Clone, Copy)]
pub enum LogEvent<'a> {
    /// A client was refused or sent away.
    ClientRefused {
        /// Its address.
        peer: PeerAddress,
        /// Its user and its database, as far as it has said.
        who: Option<(&'a str, &'a str)>,
        /// The place of the rule that it was to log in by, if it had not done so.
        rule: Option<&'a sluice_hba::Place>,
        /// The error that it got.
        error: &'a sluice_wire::ErrorResponse,
    },
    /// A client has logged in.
    ClientLoggedIn(&'a KnownClient<'a>),
    /// A client that had logged in is gone.
    ClientGone {
        /// The client.
        client: &'a KnownClient<'a>,
        /// The reason.
        reason: Departure<'a>,
        /// The time since it connected.
        age: Duration,
    },
    /// A balancer does not say as it should where a client comes from.
    HeaderRefused {
        /// The balancer's address.
        peer: PeerAddress,
        /// The fault of what it has sent in place of that.
        error: sluice_wire::proxy::ProxyError,
    },
    /// A client that was to be encrypted is not.
    HandshakeFailed {
        /// Its address.
        peer: PeerAddress,
        /// The end of its connection.
        loss: &'a Loss,
    },
    /// A server can't be reached or refuses the login.
    ConnectFailed {
        /// The server's address.
        address: &'a Address,
        /// The error that came back.
        error: &'a sluice_wire::ErrorResponse,
    },
    /// A server does not believe the pool when it tells where a client comes from.
    SecretRefused {
        /// The server's address.
        address: &'a Address,
    },
    /// A server's extension says of its session what this pool can't read.
    ReportUnreadable {
        /// The server's address.
        address: &'a Address,
        /// The report.
        report: &'a str,
    },
    /// A server does not say where commits end in the log, and readers are to find them.
    CommitsUnreported {
        /// The server's address.
        address: &'a Address,
    },
    /// A request has taken long.
    SlowRequest {
        /// The database, as clients call it.
        database: &'a str,
        /// The role on its server.
        role: &'a str,
        /// The time since the server was sent it.
        took: Duration,
        /// The request, whose it was, and how long its client has waited for the server.
        request: &'a crate::slow::Request,
    },
    /// A server connection ended that should not have.
    ServerLost {
        /// The server's address.
        address: &'a Address,
        /// The reason.
        reason: &'a str,
    },
}
