//! One connection of a worker.
//!
//! Its life: connecting (a server's only), open, then either closing (what was given for it is still sent, in bounded
//! time) or leaving for another worker. Its socket is closed when no operation on it is under way.

use std::net::Shutdown;

use sluice_core::{ids::ClientRef, io::Owner, server::Server, time::Time};

use crate::{Flight, Socket, attempt::Attempt, outbox::Outbox, tls::Tls};

/// The state of a connection's life.
#[derive(Debug)]
pub(crate) enum Life {
    Connecting(Box<Attempt>),
    Open,
    /// Nobody hears of it any more; what waits is sent, then it is closed.
    Closing {
        deadline: Time,
        finished: bool,
    },
    /// It goes to another worker as soon as nothing is under way.
    Leaving {
        worker: u16,
        server: Box<Server>,
        client: ClientRef,
        early: Vec<u8>,
    },
}

#[derive(Debug)]
pub(crate) struct Link<S> {
    /// `None` where a connect failed before there was one, or before the next one.
    pub(crate) socket: Option<S>,
    pub(crate) serial: u32,
    pub(crate) owner: Option<Owner>,
    pub(crate) life: Life,
    /// The bytes that wait to be sent, as they were given.
    pub(crate) outbox: Outbox,
    /// Its encryption, if it has any.
    pub(crate) tls: Option<Box<Tls>>,
    pub(crate) flight: Option<Flight>,
    /// Whether the driver reads, or has been asked to stop and has not yet.
    pub(crate) reading: bool,
    /// Whether it should.
    pub(crate) wants_bytes: bool,
    /// Whether the driver watches for the end of the connect.
    pub(crate) awaits_connect: bool,
    /// The time at which the last connect began.
    pub(crate) connecting_since: Time,
    /// Whether the backlog was above the limit.
    pub(crate) high: bool,
    pub(crate) dirty: bool,
    /// Whether nothing more will come.
    pub(crate) ended: bool,
    /// Whether it is among those that may not have taken all yet that they were sent.
    pub(crate) is_awaited: bool,
    /// Since when its peer has no room for that.
    pub(crate) stall: Option<Box<Stall>>,
}

/// A peer that has no room for what it is sent.
#[derive(Debug)]
pub(crate) struct Stall {
    /// The time at which this was seen first.
    pub(crate) since: Time,
    /// The bytes that it had taken until then.
    pub(crate) taken_bytes: u64,
}

impl<S: Socket> Link<S> {
    pub(crate) fn new(socket: Option<S>, serial: u32, owner: Option<Owner>, life: Life) -> Self {
        Self {
            ended: socket.is_none(),
            socket,
            serial,
            owner,
            life,
            outbox: Outbox::default(),
            tls: None,
            flight: None,
            reading: false,
            wants_bytes: false,
            awaits_connect: false,
            connecting_since: Time::default(),
            high: false,
            dirty: false,
            is_awaited: false,
            stall: None,
        }
    }

    pub(crate) fn backlog(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.outgoing.len());
        self.outbox.len() + sealed + self.flight.as_ref().map_or(0, Flight::left)
    }

    /// Whether nothing is left to send.
    pub(crate) fn has_sent_all(&self) -> bool {
        let is_closing = matches!(self.life, Life::Closing { .. });
        let has_sealed = |tls: &Tls| !tls.outgoing.is_empty() || (is_closing && !self.ended && !tls.has_said_goodbye());
        self.flight.is_none() && self.outbox.is_empty() && !self.tls.as_deref().is_some_and(has_sealed)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        if let Some(socket) = &self.socket {
            socket.shutdown(how);
        }
    }

    /// Whether the engine may act on it.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life, Life::Connecting(_) | Life::Open)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        !self.reading && !self.awaits_connect && self.flight.is_none()
    }
}
