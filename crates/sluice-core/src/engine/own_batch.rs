//! Statements of Sluice's own in the midst of a client's transaction, by the extended protocol: a Query would take the
//! client's unnamed portal and statement away.

use sluice_wire::{
    FrontendKind,
    message::{self, SYNC, TransactionStatus},
};

use crate::{
    io::Io,
    replies::{Expected, Own},
    server::{Exchange, Server},
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
        put_statement(scratch, exchange, NAME, sql);
    }
    scratch.extend_from_slice(&SYNC);
    exchange.expect(Expected::Own(own));
    io.send(server.conn, scratch);
}

/// Appends a statement by that name, for which its portal has the same: Close of what one before it has left there by
/// failing, then Parse, Bind, Execute, and Close of both.
pub(super) fn put_statement(out: &mut Vec<u8>, exchange: &mut Exchange, name: &[u8], sql: &str) {
    message::put_statement_message(out, FrontendKind::Close, name);
    message::put_parse(out, name, sql, &[]);
    message::put_bind(out, name, name, &[]);
    message::put_execute(out, name, 0);
    message::put_portal_message(out, FrontendKind::Close, name);
    message::put_statement_message(out, FrontendKind::Close, name);
    exchange.expect(Expected::OwnClose);
    (0..3).for_each(|_| exchange.expect(Expected::Switch));
    (0..2).for_each(|_| exchange.expect(Expected::OwnClose));
}
