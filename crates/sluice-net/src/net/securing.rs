//! Connections that are encrypted: from the wish for it, by a handshake whose steps are taken elsewhere, to plain bytes.

use sluice_core::io::{Conn, Loss};
use sluice_tls::{Session, Side, TlsError};

use super::{Net, Notice, live};
use crate::{Chunk, Driver, Handshake, Host, LinkId, LinkKey, link::Life, tls::Tls};

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// Encrypts a connection from now on. `received` has come by it already, and belongs to the handshake.
    pub(super) fn begin_tls(&mut self, conn: Conn, side: Side, received: &[u8]) {
        let Some(link) = live(&mut self.links, conn) else { return };
        debug_assert!(link.tls.is_none(), "{conn:?} is encrypted");
        let key = LinkKey { id: conn.0, serial: link.serial };
        let mut before = Vec::new();
        link.outbox.push_held(&mut self.spares);
        while !link.outbox.is_empty() {
            let flight = link.outbox.take_flight();
            flight.slices(&self.buffers).iter().for_each(|slice| before.extend_from_slice(slice));
            flight.land(&mut self.buffers, &mut self.spares);
        }
        let mut incoming = received.to_vec();
        self.take_received(key, &mut incoming);
        let begins = matches!(side, Side::Client(..)) || !incoming.is_empty();
        if let Some(link) = live(&mut self.links, conn) {
            link.tls = Some(Box::new(Tls::new(side, before, incoming)));
        }
        self.mark(conn.0);
        if begins {
            self.shake_hands(conn.0);
        }
    }

    /// Takes the bytes that have come by a connection and that nobody has heard of.
    pub(super) fn take_received(&mut self, key: LinkKey, bytes: &mut Vec<u8>) {
        for notice in std::mem::take(&mut self.notices) {
            match notice {
                Notice::Received(from, chunk) if from == key => {
                    bytes.extend_from_slice(self.buffers.bytes_of(&chunk));
                    self.drop_chunk(chunk);
                }
                other => self.notices.push_back(other),
            }
        }
    }

    /// Bytes have come by a connection that is encrypted.
    pub(super) fn received_encrypted(&mut self, id: LinkId, mut chunk: Chunk) {
        let Some(link) = self.links.get_mut(id as usize) else { return self.drop_chunk(chunk) };
        let Some(tls) = &mut link.tls else { return };
        if tls.has_failed() || !matches!(link.life, Life::Open | Life::Leaving { .. }) {
            return self.drop_chunk(chunk);
        }
        let Some((session, outgoing)) = tls.open() else {
            tls.incoming.extend_from_slice(self.buffers.bytes_of(&chunk));
            self.drop_chunk(chunk);
            return self.shake_hands(id);
        };
        let mut plain = self.spares.take(chunk.len());
        let taken = session.take(self.buffers.bytes_of_mut(&mut chunk), &mut plain, outgoing);
        self.drop_chunk(chunk);
        self.taken(id, plain, taken);
    }

    /// An open session has taken what came, and this was in it.
    fn taken(&mut self, id: LinkId, plain: Vec<u8>, taken: Result<(), TlsError>) {
        if plain.is_empty() {
            self.spares.give(plain);
        } else {
            self.deliver(id, Chunk::Owned(plain));
        }
        let Some(tls) = self.links.get_mut(id as usize).and_then(|link| link.tls.as_mut()) else { return };
        let is_over = tls.open().is_some_and(|(session, _)| session.is_over());
        if !tls.outgoing.is_empty() {
            self.mark(id);
        }
        match taken {
            Err(error) => self.broken(id, error),
            Ok(()) if is_over => self.lost(id, Loss::Closed),
            Ok(()) => {}
        }
    }

    /// Has the next step of a handshake taken, unless one is.
    fn shake_hands(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let key = LinkKey { id, serial: link.serial };
        let Some(tls) = &mut link.tls else { return };
        if let Some(handshake) = tls.handshake(key) {
            self.host.shake_hands(Box::new(handshake));
        } else if tls.incoming.len() > Session::INCOMING_BYTES_MAX {
            self.broken(id, TlsError::TooLong);
        }
    }

    /// A step of a handshake has been taken.
    pub(crate) fn shook_hands(&mut self, handshake: Handshake) {
        let Handshake { link: LinkKey { id, serial }, session, mut plain, outgoing, outcome, .. } = handshake;
        let Some(link) = self.links.get_mut(id as usize).filter(|link| link.serial == serial) else { return };
        let Some(tls) = &mut link.tls else { return };
        tls.give_back(session, &outgoing);
        if !matches!(link.life, Life::Open) {
            // It has been given up meanwhile.
            return;
        }
        let outcome = outcome.and_then(|secured| tls.take_rest(&mut plain).map(|()| secured));
        self.mark(id);
        match outcome {
            Err(error) => return self.broken(id, error),
            Ok(None) => self.shake_hands(id),
            Ok(Some(secured)) => {
                self.notices.push_back(Notice::Secured(LinkKey { id, serial }, Box::new(secured)));
                self.taken(id, plain, Ok(()));
            }
        }
        self.end_if_over(id);
    }

    /// A connection whose end has come while a step of its handshake was taken ends now, unless there is another one.
    fn end_if_over(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id as usize) else { return };
        if link.ended && !link.tls.as_ref().is_some_and(|tls| tls.is_away()) {
            self.lost(id, Loss::Closed);
        }
    }

    /// A connection can't go on by TLS. The other side is told why as the connection is closed.
    pub(super) fn broken(&mut self, id: LinkId, error: TlsError) {
        self.lost(id, Loss::Tls(error));
    }

    /// Encrypts what waits to be sent on a connection, and sends it with what TLS itself has to say.
    pub(super) fn send_encrypted(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let Some(tls) = &mut link.tls else { return };
        let is_last = matches!(link.life, Life::Closing { .. });
        let sealed = tls.seal(&mut link.outbox, is_last, &mut self.buffers, &mut self.spares);
        link.flight = tls.take_flight();
        if let Err(error) = sealed {
            self.broken(id, error);
        }
        self.send_flight(id);
    }
}
