//! Statements of Sluice's own in the midst of a client's transaction, by the extended protocol: a Query would take the
//! client's unnamed portal and statement away.

use sluice_wire::{
    FrontendKind,
    message::{self, SYNC, TransactionStatus},
};

use crate::{
    io::Io,
    replies::{Expected, Own},
    server::Server,
};

use super::lease::send_own;

/// The name of the statement and of its portal.
const NAME: &[u8] = b"sluice_own";

/// Sends statements, each of one command, as one batch where a transaction is open, and as a Query otherwise.
pub(super) fn send_own_within(server: &mut Server, scratch: &mut Vec<u8>, own: Own, sql: &[String], io: &mut impl Io) {
    let exchange = &mut server.exchange;
    let may_be_batch = exchange.status() == TransactionStatus::InTransaction && !exchange.has_open_batch();
    if !may_be_batch || exchange.owes() {
        send_own(server, scratch, own, &sql.concat(), io);
        return;
    }
    scratch.clear();
    for sql in sql {
        message::put_parse(scratch, NAME, sql, &[]);
        message::put_bind(scratch, NAME, NAME, &[]);
        message::put_execute(scratch, NAME, 0);
        message::put_portal_message(scratch, FrontendKind::Close, NAME);
        message::put_statement_message(scratch, FrontendKind::Close, NAME);
        (0..3).for_each(|_| exchange.expect(Expected::Switch));
        (0..2).for_each(|_| exchange.expect(Expected::OwnClose));
    }
    scratch.extend_from_slice(&SYNC);
    exchange.expect(Expected::Own(own));
    io.send(server.conn, scratch);
}
