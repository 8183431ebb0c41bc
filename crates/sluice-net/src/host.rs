//! The process around a worker, as [`Net`](crate::Net) needs it.

use std::{collections::VecDeque, io, time::Duration};

use sluice_core::{
    ids::ClientRef,
    io::{Address, Command, LogEvent},
    listing::Listing,
    mail::Mail,
    server::Server,
};

use crate::{Handshake, tls::Tls};

/// A delivery to a worker.
#[derive(Debug)]
pub enum Parcel<S> {
    /// A message for its engine.
    Mail(Mail),
    /// A server connection, with its socket.
    Server {
        /// The socket.
        socket: S,
        /// Its encryption, if it has any.
        tls: Option<Box<Tls>>,
        /// The server.
        server: Box<Server>,
        /// The client that it is for.
        client: ClientRef,
        /// The bytes that the server sent while the connection changed hands.
        early: Vec<u8>,
    },
    /// A client's connection, which was accepted elsewhere.
    Accepted(S),
    /// Accept no connections any more; those that there are go on.
    StopAccepting,
    /// A handshake of one of its connections, of which a step has been taken.
    Handshake(Box<Handshake>),
    /// Somebody wants to know its clients and servers.
    List(Lister),
}

/// Whoever wants to know a worker's clients and servers: what is called with them.
pub struct Lister(pub Box<dyn FnOnce(Listing) + Send>);

impl std::fmt::Debug for Lister {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lister")
    }
}

/// The process around a worker: other workers, the control thread, the log.
pub trait Host {
    /// The connections that it makes.
    type Socket;

    /// The places at which the server of an address may be, those first that are to be tried first; one at least.
    fn places(&mut self, address: &Address) -> Vec<Address>;

    /// Begins to connect to a place.
    fn connect(&mut self, place: &Address) -> io::Result<Self::Socket>;

    /// The time after which a peer that does not answer is considered dead. Sockets come with it.
    fn tcp_user_timeout(&self) -> Duration;

    /// A connect to that place of an address has failed, or was given up.
    fn connect_failed(&mut self, address: &Address, place: &Address);

    /// Sends something to a worker, this one included.
    fn post(&mut self, worker: u16, parcel: Parcel<Self::Socket>);

    /// Takes what has come for this worker.
    fn collect(&mut self) -> VecDeque<Parcel<Self::Socket>>;

    /// Has the step of a handshake taken, and sends it back to this worker.
    fn shake_hands(&mut self, handshake: Box<Handshake>);

    /// Asks the control thread for the name of the system's user at the other end of a Unix socket; `false` if it takes
    /// no more.
    #[must_use]
    fn identify(&mut self, socket: &Self::Socket, client: ClientRef) -> bool;

    /// Asks the control thread for a user's account.
    fn look_up(&mut self, user: &str);

    /// Gives a command of the admin console to the control thread; `false` if it takes no more.
    #[must_use]
    fn command(&mut self, command: Command) -> bool;

    /// Tells the control thread that a client has cancelled its command.
    fn cancel_command(&mut self, client: ClientRef);

    /// Fills `bytes` with random ones fit for keys.
    fn random(&mut self, bytes: &mut [u8]);

    /// Says something to the operator.
    fn log(&mut self, event: LogEvent<'_>);

    /// Says to the operator that a client could not be accepted, and for how long none is to be.
    fn accept_failed(&mut self, error: &io::Error, pause: Option<Duration>);
}
