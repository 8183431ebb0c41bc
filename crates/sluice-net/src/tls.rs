//! TLS between a connection's socket and its outbox.

use sluice_tls::{Secured, Session, Side, TlsError};

use crate::{
    Buffers, Flight, LinkKey,
    outbox::{Outbox, Spares},
};

/// A connection's TLS, and what is on its way through it.
#[derive(Debug)]
pub struct Tls {
    /// `None` while a step of its handshake is taken elsewhere.
    session: Option<Session>,
    /// Bytes that have come meanwhile.
    pub(crate) incoming: Vec<u8>,
    /// Bytes that are ready to be sent.
    pub(crate) outgoing: Vec<u8>,
    /// Whether the other side has been told that nothing more will come.
    is_closed: bool,
}

/// A step of a connection's handshake. It takes long enough to keep others waiting, so it is not the worker that takes
/// it: whoever gets it calls [`Handshake::step`], and sends it back.
#[derive(Debug)]
pub struct Handshake {
    pub(crate) link: LinkKey,
    pub(crate) session: Session,
    incoming: Vec<u8>,
    /// The bytes that came behind the handshake already.
    pub(crate) plain: Vec<u8>,
    pub(crate) outgoing: Vec<u8>,
    /// The handshake's result; `None` if it is not over yet.
    pub(crate) outcome: Result<Option<Secured>, TlsError>,
}

impl Handshake {
    /// Takes the step.
    pub fn step(&mut self) {
        let mut incoming = std::mem::take(&mut self.incoming);
        let taken = self.session.take(&mut incoming, &mut self.plain, &mut self.outgoing);
        // Here, since certificates are read for it.
        self.outcome = taken.map(|()| self.session.secured());
    }

    /// The step has panicked: this connection ends, and no other.
    pub fn panicked(&mut self) {
        self.session.fail();
        self.outcome = Err(TlsError::Panicked);
    }
}

impl Tls {
    /// At its beginning; `before` are bytes that go ahead of the handshake in clear.
    pub(crate) fn new(side: Side, before: Vec<u8>, incoming: Vec<u8>) -> Self {
        Self { session: Some(Session::new(side)), incoming, outgoing: before, is_closed: false }
    }

    /// The session once its handshake is over, and where its answers go.
    pub(crate) fn open(&mut self) -> Option<(&mut Session, &mut Vec<u8>)> {
        let session = self.session.as_mut().filter(|session| session.is_open())?;
        Some((session, &mut self.outgoing))
    }

    /// Whether a step of the handshake is being taken.
    pub(crate) fn is_away(&self) -> bool {
        self.session.is_none()
    }

    /// Whether its handshake, or what came behind that, has failed: what comes now is nobody's.
    pub(crate) fn has_failed(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_failed)
    }

    /// The next step of the handshake; `None` where one is being taken, or there is nothing to take one with.
    pub(crate) fn handshake(&mut self, link: LinkKey) -> Option<Handshake> {
        let has_begun = self.session.as_ref()?.has_begun();
        if has_begun && self.incoming.is_empty() {
            return None;
        }
        let session = self.session.take()?;
        let incoming = std::mem::take(&mut self.incoming);
        Some(Handshake { link, session, incoming, plain: Vec::new(), outgoing: Vec::new(), outcome: Ok(None) })
    }

    /// Takes a session back after a step.
    pub(crate) fn give_back(&mut self, session: Session, outgoing: &[u8]) {
        self.session = Some(session);
        self.outgoing.extend_from_slice(outgoing);
    }

    /// Has an open session take what came while the last step of its handshake was taken.
    pub(crate) fn take_rest(&mut self, plain: &mut Vec<u8>) -> Result<(), TlsError> {
        let Some(session) = self.session.as_mut().filter(|session| session.is_open()) else { return Ok(()) };
        session.take(&mut std::mem::take(&mut self.incoming), plain, &mut self.outgoing)
    }

    /// Encrypts what waits to be sent, and what there is to say at the end if this is the last of it.
    pub(crate) fn seal(
        &mut self,
        outbox: &mut Outbox,
        is_last: bool,
        buffers: &mut Buffers,
        spares: &mut Spares,
    ) -> Result<(), TlsError> {
        let Some(session) = self.session.as_mut().filter(|session| session.is_open()) else { return Ok(()) };
        if self.outgoing.capacity() == 0 {
            self.outgoing = spares.take(outbox.len());
        }
        while !outbox.is_empty() {
            let flight = outbox.take_flight();
            let sealed = match flight.single(buffers) {
                Some(bytes) => session.seal(bytes, &mut self.outgoing),
                None => flight.slices(buffers).iter().try_for_each(|slice| session.seal(slice, &mut self.outgoing)),
            };
            flight.land(buffers, spares);
            sealed?;
        }
        if is_last && !std::mem::replace(&mut self.is_closed, true) {
            session.close(&mut self.outgoing);
        }
        Ok(())
    }

    /// Takes out the bytes that are ready to be sent.
    pub(crate) fn take_flight(&mut self) -> Option<Flight> {
        (!self.outgoing.is_empty()).then(|| Flight::of(std::mem::take(&mut self.outgoing)))
    }

    /// Whether the other side has been told what there is to say at the end, or will never be.
    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.is_closed || !self.session.as_ref().is_some_and(Session::is_open)
    }
}
