//! Queries of Sluice's own: the client sees nothing of them. In the midst of its transaction they go by the extended
//! protocol, since a Query would take its unnamed portal and statement away.

use sluice_wire::{
    FrontendKind,
    message::{self, SYNC, TransactionStatus},
};

use crate::{
    io::Io,
    replies::{Expected, Own},
    server::{Exchange, Server},
};

/// The name of the statement and of its portal.
pub(super) const NAME: &[u8] = b"sluice_own";

/// Put before a query that takes a snapshot. It takes none itself, and says nothing where more stands in its Query.
const AT_USUAL_LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// Sends a query. One that takes a snapshot goes by the usual level, mostly: by the session's own it might be refused
/// (SERIALIZABLE at a standby), or wait for as long as others like (SERIALIZABLE READ ONLY DEFERRABLE). That a part of
/// the query would reset the level does not help: its transaction has begun by then.
pub(super) fn send_own(server: &mut Server, scratch: &mut Vec<u8>, own: Own, sql: &str, io: &mut impl Io) {
    scratch.clear();
    let is_block = server.exchange.reported_status() != TransactionStatus::Idle;
    if own.goes_by_usual_level() && !is_block && server.may_withhold_snapshots() {
        message::put_query(scratch, &[AT_USUAL_LEVEL, sql].concat());
    } else {
        message::put_query(scratch, sql);
    }
    server.exchange.expect(Expected::Own(own));
    server.statements.set_unnamed(None);
    io.send(server.conn, scratch);
}

/// Sends statements, each of one command: as part of the client's batch, if one is open, and otherwise as a batch of
/// their own. Outside of a transaction, where nothing of the client's can be lost, a Query is shorter. Returns whether a
/// ReadyForQuery comes for them.
pub(super) fn send_own_within(
    server: &mut Server,
    scratch: &mut Vec<u8>,
    own: Own,
    sql: &[String],
    io: &mut impl Io,
) -> bool {
    let is_idle = server.exchange.reported_status() == TransactionStatus::Idle && server.exchange.replies().are_own();
    let exchange = &mut server.exchange;
    let is_within = exchange.has_open_batch();
    if is_idle && !is_within {
        send_own(server, scratch, own, &sql.concat(), io);
        return true;
    }
    scratch.clear();
    for sql in sql {
        put_statement(scratch, exchange, NAME, sql);
    }
    if !is_within {
        scratch.extend_from_slice(&SYNC);
        exchange.expect(Expected::Own(own));
    }
    io.send(server.conn, scratch);
    !is_within
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
