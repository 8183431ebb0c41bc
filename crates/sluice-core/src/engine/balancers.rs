//! Clients that come through a balancer, which says by the PROXY protocol where they come from before they say anything.
//!
//! Who is a balancer is decided when a connection is accepted, by its own address: a header of anybody else is a
//! malformed startup packet.

use sluice_wire::proxy;

use crate::{
    client::Phase,
    ids::ClientId,
    io::{Departure, Io, LogEvent, Loss, PeerAddress},
    time::Time,
};

use super::{Engine, login::too_many};

impl Engine {
    /// Handles a PROXY header at the beginning of `bytes`; returns how many bytes it took. `None`: the client is gone.
    pub(super) fn header_input(&mut self, now: Time, id: ClientId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        let client = self.clients.get_mut(id)?;
        match proxy::read(bytes) {
            Ok(None) => Some(0),
            Ok(Some(header)) => {
                if let Some(source) = header.source {
                    client.peer = PeerAddress::Tcp(source.ip().to_canonical(), source.port());
                }
                client.phase = Phase::Startup;
                let located = client.connected.as_mut().map_or(Ok(()), |it| self.hub.locate(it, client.peer));
                if let Err(full) = located {
                    self.refuse_client(now, id, &too_many(full, "", ""), io);
                    return None;
                }
                Some(header.bytes)
            }
            Err(error) => {
                io.log(LogEvent::HeaderRefused { peer: client.peer, error });
                // Whoever speaks there need not know PostgreSQL's protocol, and a client behind it is told by the end.
                self.drop_client(now, id, Departure::Lost(&Loss::Closed), io);
                None
            }
        }
    }
}
