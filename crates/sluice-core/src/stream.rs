//! One direction of a connection: where its stream of messages stands, cut at any byte, and whether the message that is
//! passing goes on to the peer.

use sluice_wire::{Frame, FrameError, Framer};

/// A stream of messages, each of which is passed on or dropped.
#[derive(Debug, Default)]
pub struct Stream {
    framer: Framer,
    fate: Fate,
}

/// The fate of a message, of which more may come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on to the peer.
    #[default]
    Passed,
    /// It is kept from the peer.
    Dropped,
}

impl Stream {
    /// See [`Framer::next`].
    pub fn next(&self, input: &[u8]) -> Result<Frame, FrameError> {
        self.framer.next(input)
    }

    /// A message of `total` bytes is handled like that, of which `here` have come.
    pub fn handle(&mut self, fate: Fate, total: usize, here: usize) {
        self.framer.pass(total, here);
        self.fate = fate;
    }

    /// More bytes of it have come; returns its fate.
    pub fn handle_rest(&mut self, bytes: usize) -> Fate {
        self.framer.pass_rest(bytes);
        self.fate
    }

    /// Whether more is to come of the last message.
    pub fn is_inside(&self) -> bool {
        self.framer.is_inside()
    }

    /// Whether the peer has got a part of a message, and more is to come.
    pub fn is_passing(&self) -> bool {
        self.framer.is_inside() && self.fate == Fate::Passed
    }
}
