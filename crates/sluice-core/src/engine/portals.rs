//! Names of unnamed cursors, which PL/pgSQL gives and each server counts for itself: `<unnamed portal 3>`. A client that
//! fetches by them is given none twice, since its driver may know a statement by its text, with the columns that it had.

use crate::{
    client::Session,
    io::Io,
    replies::Own,
    server::{Preparation, Server},
    sql::{self, Effects},
};

use super::{frontend::ClientRelay, own_queries::send_own};

/// The cursors that a server is made to count at once, at most. Each takes it some 20 µs.
const RAISED_MAX: u32 = 10_000;

impl<I: Io> ClientRelay<'_, I> {
    /// Notes the unnamed cursors that a text names which is about to be sent.
    pub(super) fn note_portals(&mut self, effects: Effects, text: &[u8]) {
        let Some(number) = effects.intersects(Effects::SESSION).then(|| sql::unnamed_portal(text)).flatten() else {
            return;
        };
        self.session.portals_named = self.session.portals_named.max(number);
        if let Some(server) = self.server.as_deref_mut() {
            server.portals_counted = server.portals_counted.max(number);
        }
    }
}

/// A client has got a server: that counts on from where the client has been.
pub(super) fn count_on(server: &mut Server, session: &mut Session, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let missing = session.portals_named.saturating_sub(server.portals_counted);
    if missing == 0 {
        return;
    }
    if missing > RAISED_MAX {
        // What it named as long ago, no driver remembers.
        session.portals_named = server.portals_counted;
        return;
    }
    server.portals_counted = session.portals_named;
    // It opens a cursor for each row. Nothing is to end it, or to compile it.
    let sql = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SET LOCAL statement_timeout = 0;SET LOCAL jit = off;\
         SELECT pg_catalog.count(*) FROM (SELECT pg_catalog.ts_stat('SELECT NULL::pg_catalog.tsvector') \
         FROM pg_catalog.generate_series(1,{missing})) s"
    );
    send_own(server, scratch, Own::Sequences, &sql, io);
    server.preparation = Preparation::UnderWay;
}
