//! Clients' addresses on their way to servers: the function for them is looked for at a connection's beginning, and
//! called at a transaction's.

use crate::{
    client_address::{self, AddressFunction},
    io::{Io, PeerAddress},
    replies::{Expected, Own},
    server::Server,
};

use super::own_queries::send_own;

/// Looks for a server's function for clients' addresses, where that is wanted and not known.
pub(super) fn find_address_function(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    if server.address_function != AddressFunction::Unknown {
        return false;
    }
    server.address_function = AddressFunction::None;
    if server.pool.upstream.client_address_secret.is_none() {
        return false;
    }
    send_own(server, scratch, Own::FindAddressFunction, client_address::FIND, io);
    true
}

/// Reports the address of a server's new client, unless it was the last one.
pub(super) fn report_address(server: &mut Server, peer: PeerAddress, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let Some(secret) = &server.pool.upstream.client_address_secret else { return };
    let Some(function) = server.address_function.take_call(peer) else { return };
    scratch.clear();
    client_address::put_call(scratch, function, secret.0.as_bytes(), peer);
    server.exchange.expect(Expected::Own(Own::ReportAddress));
    io.send(server.conn, scratch);
}
