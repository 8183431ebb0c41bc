//! The clients and servers of a worker at one moment, one by one: what the console lists.

use crate::{
    ids::{ClientRef, Conn, ServerRef},
    io::{Address, PeerAddress},
    time::Time,
};

/// The clients and servers of a worker.
#[derive(Debug, Default)]
pub struct Listing {
    /// Clients that have proven who they are.
    pub clients: Vec<ListedClient>,
    /// Server connections.
    pub servers: Vec<ListedServer>,
}

/// A client.
#[derive(Debug)]
pub struct ListedClient {
    /// Its number.
    pub client: ClientRef,
    /// The process number that it was told, by which it cancels.
    pub process_id: u32,
    /// Its user.
    pub user: String,
    /// Its database, as it says it.
    pub database: String,
    /// Its `application_name`; empty if it has said none.
    pub application_name: String,
    /// Its connection.
    pub conn: Conn,
    /// Its address.
    pub peer: PeerAddress,
    /// This side's address, if whoever has the socket has looked.
    pub local: Option<PeerAddress>,
    /// The time at which it connected.
    pub connected_at: Time,
    /// The time of its last request.
    pub request_at: Time,
    /// The time since which it waits for a server.
    pub waits_since: Option<Time>,
    /// The server it has.
    pub server: Option<ServerRef>,
    /// The bytes that are still to be sent to it, if whoever has the socket has looked.
    pub unsent_bytes: u64,
    /// The encryption of its connection.
    pub encryption: Option<Encryption>,
}

/// A server connection.
#[derive(Debug)]
pub struct ListedServer {
    /// Its number.
    pub server: ServerRef,
    /// The number of its process, once it has told it.
    pub process_id: Option<u32>,
    /// The role as which it is logged in.
    pub role: String,
    /// Its database, as clients say it.
    pub database: String,
    /// Its connection.
    pub conn: Conn,
    /// Its address.
    pub address: Address,
    /// This side's address, if whoever has the socket has looked.
    pub local: Option<PeerAddress>,
    /// The `application_name` of the client that has it; empty if nobody has.
    pub application_name: String,
    /// Its state.
    pub state: ServerState,
    /// The time at which it was opened.
    pub opened_at: Time,
    /// The time at which something was asked of it last.
    pub request_at: Time,
    /// The client that has it.
    pub client: Option<ClientRef>,
    /// Whether that one has something under way there, or a transaction open.
    pub is_busy: bool,
    /// Whether it is closed when its client lets it go.
    pub is_worn: bool,
    /// Whether it is so because of what an operator or a reload has said.
    pub is_called_in: bool,
    /// The bytes that are still to be sent to it, if whoever has the socket has looked.
    pub unsent_bytes: u64,
    /// The encryption of its connection.
    pub encryption: Option<Encryption>,
}

/// A server's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It is being opened.
    Opening,
    /// It is free.
    Idle,
    /// A client has it.
    Active,
    /// It is being put in order for the next one.
    Settling,
}

/// A connection's encryption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// The protocol's version.
    pub version: &'static str,
    /// The cipher suite.
    pub cipher: String,
}
