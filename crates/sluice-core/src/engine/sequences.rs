//! Sequences: `currval` and `lastval` tell a client what they gave it as long as it has the server that it used them
//! on, and never what they gave others there (docs/decisions/0014).
//!
//! Most clients use sequences and never ask. So a client keeps its server for that only in a pool where somebody has
//! asked, and gives it up to others that wait, but not in the moment after a use: who asks at all does so at once.

use std::sync::atomic::Ordering;

use crate::{
    client::Session,
    ids::ClientRef,
    io::Io,
    replies::Own,
    server::{Preparation, Server},
    sql::Effects,
};

use super::{
    frontend::{ClientRelay, Step, Stop},
    own_queries::send_own_within,
};

const FORGET: &str = "DISCARD SEQUENCES";

impl<I: Io> ClientRelay<'_, I> {
    /// A statement is about to be sent that may ask for what sequences gave: what they gave to others is nothing that
    /// this client may be told. Returns a step where that has to be waited for.
    pub(super) fn forget_others_sequences(&mut self, effects: Effects) -> Option<Step> {
        let asks = effects.intersects(Effects::READS_SEQUENCE);
        let server = self.server.as_deref_mut()?;
        if asks {
            server.pool.reads_sequences.store(true, Ordering::Relaxed);
            self.session.asks_for_sequences();
        }
        // So may whatever a text can't be trusted not to do. What the client itself has used last must not be lost.
        let may_ask = asks || (effects.intersects(Effects::STATE) && effects.intersects(Effects::USES_SEQUENCE));
        let user = self.session.sequence_user(self.this);
        if !may_ask || !server.sequences.are_last_used_by_another(user) || !server.exchange.prepares() {
            return None;
        }
        if server.exchange.has_open_batch() {
            if server.exchange.replies().end_requests() {
                // Whether this stands in a block, and in one that has failed, is open.
                return Some(self.wait_for_answers());
            }
            // Behind it the batch is one of several statements, in which some can't run; a query can, and in a block
            // none could that can't then.
            if asks || server.exchange.begins_in_block() {
                server.sequences.forget_within();
                self.put_own(Some(FORGET));
            }
            return None;
        }
        if server.exchange.owes() {
            server.exchange.await_answers();
        } else if !server.cancels.are_under_way() {
            // Of a COPY that has failed, the last data may stand before this.
            self.flush();
            let server = self.server.as_deref_mut()?;
            forget(server, self.scratch, self.io);
        }
        Some(Step::Stop(Stop::Hold))
    }

    /// The same before a Parse that would begin a batch.
    pub(super) fn forget_before_batch(&mut self, effects: Effects) -> Option<Step> {
        let is_closed = self.server.as_ref().is_some_and(|server| !server.exchange.has_open_batch());
        if is_closed { self.forget_others_sequences(effects) } else { None }
    }

    /// Notes what is about to be sent and may use a sequence, or have the session forget what it used.
    pub(super) fn note_sequences(&mut self, effects: Effects) {
        if effects.intersects(Effects::FORGETS_SEQUENCES) {
            self.session.forget_sequences();
        }
        let Some(server) = self.server.as_deref_mut().filter(|_| effects.intersects(Effects::USES_SEQUENCE)) else {
            return;
        };
        let user = self.session.uses_sequence(self.this, &server.sequences);
        match effects.intersects(Effects::STATE) {
            true => server.sequences.use_perhaps_by(user),
            false => server.sequences.use_by(user),
        }
    }
}

/// A client has got a server: where clients are known to ask, that forgets what others used. The client's own uses of
/// another server are lost: better none than others'.
pub(super) fn change_server(
    server: &mut Server,
    session: &mut Session,
    client: ClientRef,
    scratch: &mut Vec<u8>,
    io: &mut impl Io,
) {
    session.forget_server();
    let user = session.sequence_user(client);
    if server.sequences.are_used_by_others(user) && server.pool.reads_sequences.load(Ordering::Relaxed) {
        forget(server, scratch, io);
    }
}

fn forget(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    server.sequences.forget();
    send_own_within(server, scratch, Own::Sequences, &[FORGET.to_owned()], io);
    server.preparation = Preparation::UnderWay;
}
