//! The messages that workers send each other.

use std::sync::Arc;

use sluice_wire::ErrorResponse;

use crate::{
    hub::{CalledIn, Pool},
    ids::{ClientId, ClientRef, ServerRef},
    server::Server,
    time::Time,
};

/// A message to a worker.
#[derive(Debug)]
pub enum Mail {
    /// A server, handed over for a client. The driver of the receiving worker has adopted its connection.
    Server(Box<Server>, ClientRef),
    /// The client was given an idle server of yours: hand it over. The pool counts that server until it is found gone.
    Fetch(ServerRef, ClientRef, Arc<Pool>),
    /// The server that was to be fetched is gone.
    FetchFailed(ClientRef),
    /// A client of yours that waited gets an error.
    Refuse(ClientRef, Arc<ErrorResponse>),
    /// An idle server of yours is no longer part of its pool.
    CloseIdle(ServerRef),
    /// Others need a server of that pool, which its client keeps between transactions, or it is to be closed.
    Recall(ServerRef, Arc<Pool>),
    /// A CancelRequest for a client of yours.
    Cancel {
        /// The process id that the request names.
        process_id: u32,
        /// The number of the client that has it.
        client: ClientId,
        /// The key given.
        key: Vec<u8>,
        /// The client that waits until it has been delivered.
        asker: Option<ClientRef>,
    },
    /// The CancelRequest of a client of yours has been delivered.
    Cancelled(ClientRef),
    /// The system's user has been found who is at the other end of a client of yours; `None` if there is none.
    Identified(ClientRef, Option<Box<str>>),
    /// The account has been looked up that a client of yours waits for.
    Secret(ClientRef),
    /// The answer to what a client of yours has asked of the admin console: messages up to ReadyForQuery.
    Answer(ClientRef, Box<[u8]>),
    /// The clients of a database end, whatever they are doing.
    End(Arc<str>),
    /// The pool is drained from now on: clients end as soon as they have no transaction open.
    Drain,
    /// There is another snapshot, which pools are made by already.
    Published,
    /// Stop: no new transaction, and the end at that time.
    Stop(Time),
}

/// The mails about servers that were called in, each with its worker.
pub fn of_called_in(called_in: CalledIn) -> impl Iterator<Item = (u16, Mail)> {
    let CalledIn { idle, kept } = called_in;
    let idle = idle.into_iter().map(|server| (server.worker, Mail::CloseIdle(server)));
    idle.chain(kept.into_iter().map(|(server, pool)| (server.worker, Mail::Recall(server, pool))))
}
