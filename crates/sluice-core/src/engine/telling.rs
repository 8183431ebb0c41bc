//! Telling servers where their clients come from: finding out how, at a connection's beginning; calling, at a
//! transaction's; and what comes back (see [`client_address`]).

use sluice_wire::message;

use crate::{
    client_address::{self, Teller},
    io::{Io, LogEvent, PeerAddress},
    profile::Profile,
    replies::{Expected, Own},
    server::Server,
};

use super::backend::{ServerRelay, Verdict};

/// Asks a server how it can be told, where that is wanted and not known.
pub(super) fn find_teller(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    if server.teller != Teller::Unknown {
        return false;
    }
    server.teller = Teller::Off;
    if server.pool.upstream.client_address_secret.is_none() {
        return false;
    }
    scratch.clear();
    message::put_query(scratch, client_address::FIND);
    server.exchange.expect(Expected::Own(Own::FindTeller));
    io.send(server.conn, scratch);
    true
}

/// Tells a server where its new client is, unless it knows.
pub(super) fn tell(server: &mut Server, peer: PeerAddress, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let Some(secret) = &server.pool.upstream.client_address_secret else { return };
    let Some(function) = server.teller.take_call(peer) else { return };
    scratch.clear();
    client_address::put_call(scratch, function, secret, peer);
    server.exchange.expect(Expected::Own(Own::Tell));
    io.send(server.conn, scratch);
}

impl<I: Io> ServerRelay<'_, I> {
    /// A DataRow or FunctionCallResponse of Sluice's own.
    pub(super) fn own_answer(&mut self, body: &[u8]) -> Verdict {
        match self.server.exchange.replies().front() {
            Some(Expected::Own(Own::FindTeller)) => {
                if let Some(oid) = client_address::read_oid(body) {
                    self.server.teller = Teller::Function(oid, None);
                }
            }
            Some(Expected::Own(Own::Look)) => {
                if let Some(row) = client_address::read_text(body) {
                    self.server.session.hear_row(row);
                }
            }
            Some(Expected::Own(Own::Names)) => {
                if let Some(name) = client_address::read_text(body) {
                    self.server.lent.hear(name);
                }
            }
            // True, in one byte.
            Some(Expected::Own(Own::Tell)) if body != [0, 0, 0, 1, 1] => {
                self.server.teller = Teller::Off;
                self.io.log(LogEvent::SecretRefused { address: &self.server.pool.upstream.address });
            }
            _ => {}
        }
        Verdict::Swallow
    }

    /// The server has said which of the names that are lent it has: the others are not the client's any more.
    pub(super) fn conclude_names(&mut self) {
        let gone = self.server.lent.conclude();
        if let Some((_, session)) = self.client.as_mut().filter(|_| self.server.own_error.is_none()) {
            gone.iter().for_each(|name| session.lose(name));
        }
    }

    /// A look has come to its end. Returns whether its answer makes sense.
    pub(super) fn conclude_look(&mut self) -> bool {
        let nothing = Profile::default();
        let start = self.client.as_ref().map_or(&nothing, |(_, session)| &session.start);
        self.server.conclude_look(start)
    }
}
