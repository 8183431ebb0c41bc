//! The boundaries of messages in a stream that is cut at any byte.
//!
//! A [`Framer`] copies nothing: it looks at headers and says what each stretch of the input is. A message that must
//! be seen whole and is not yet all there is left to the caller to keep and to show again with more behind it.

use thiserror::Error;

/// Type byte and length word.
pub const HEADER_BYTES: usize = 5;

/// The largest message PostgreSQL itself accepts (`PQ_LARGE_MESSAGE_LIMIT`), in bytes without the type byte.
pub const MESSAGE_BYTES_MAX: u32 = 0x3fff_ffff;

/// A length that no message can have: the stream is not PostgreSQL's protocol, or has lost its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("message of type {tag:#04x} states an impossible length of {length} bytes")]
pub struct FrameError {
    /// The message's type byte.
    pub tag: u8,
    /// The length as stated.
    pub length: u32,
}

/// The next stretch of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A message begins here. `total` is its whole length with the header, `here` how much of it the input holds.
    Message {
        /// The type byte.
        tag: u8,
        /// Header and body, in bytes.
        total: usize,
        /// The number of these bytes that the input holds.
        here: usize,
    },
    /// More of a message that began earlier and was let through: this many bytes of the input belong to it.
    Rest(usize),
    /// Fewer bytes than a header.
    Short,
}

/// The place in a stream of messages.
#[derive(Debug, Default, Clone, Copy)]
pub struct Framer {
    rest: u32,
}

impl Framer {
    /// The first stretch of `input`, which is not empty.
    pub fn next(&self, input: &[u8]) -> Result<Frame, FrameError> {
        if self.rest > 0 {
            return Ok(Frame::Rest((self.rest as usize).min(input.len())));
        }
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(Frame::Short) };
        let tag = header[0];
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(FrameError { tag, length });
        }
        let total = length as usize + 1;
        Ok(Frame::Message { tag, total, here: total.min(input.len()) })
    }

    /// Takes `here` of `total` bytes of a message as passed on; what is missing will come as [`Frame::Rest`].
    pub fn pass(&mut self, total: usize, here: usize) {
        debug_assert!(here <= total && total - here <= MESSAGE_BYTES_MAX as usize + 1);
        self.rest = (total - here) as u32;
    }

    /// Takes `bytes` of a [`Frame::Rest`] as passed on.
    pub fn pass_rest(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.rest as usize);
        self.rest -= bytes as u32;
    }

    /// Whether the stream stands inside a message that was let through in part.
    pub fn is_inside(&self) -> bool {
        self.rest > 0
    }
}
