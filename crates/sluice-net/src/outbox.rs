//! The bytes that are still to be sent on a connection: stretches of received buffers, and bytes of Sluice's own.

use std::{collections::VecDeque, io::IoSlice};

use crate::{BufferId, Buffers};

/// Up to this length, bytes are copied to those before them rather than sent as a piece of their own: a memory copy
/// of that size costs less than one more entry in a system call.
const COPY_BYTES_MAX: usize = 2048;

/// Capacity of a fresh piece of Sluice's own bytes.
const OWNED_BYTES: usize = 4096;

/// Pieces sent in one system call, at most.
const PIECES_MAX: usize = 32;

/// Bytes that wait for those behind them, at most: three answers without a body.
const HELD_BYTES_MAX: usize = 15;

/// Part of what is to be sent.
#[derive(Debug)]
enum Piece {
    /// A stretch of a received buffer, with a reference to it.
    Shared { buffer: BufferId, start: u32, end: u32 },
    /// Bytes of Sluice's own.
    Owned(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Shared { start, end, .. } => (end - start) as usize,
            Self::Owned(bytes) => bytes.len(),
        }
    }
}

/// The bytes that wait to be sent on one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Nearly always the only one, so that it needs no memory of its own.
    first: Option<Piece>,
    more: VecDeque<Piece>,
    bytes: usize,
    held: Held,
}

/// A few bytes that are sent with those that come next, and not alone. They stand here, so that a connection which waits
/// for these holds no memory for them.
#[derive(Debug, Default)]
struct Held {
    bytes: [u8; HELD_BYTES_MAX],
    len: u8,
}

/// Emptied pieces of Sluice's own, to be used again.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    const KEPT: usize = 256;

    /// An empty one with room for so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes > OWNED_BYTES {
            return Vec::with_capacity(bytes);
        }
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(OWNED_BYTES))
    }

    /// Keeps one, if it is worth it.
    pub(crate) fn give(&mut self, mut piece: Vec<u8>) {
        if piece.capacity() <= 2 * OWNED_BYTES && self.0.len() < Self::KEPT {
            piece.clear();
            self.0.push(piece);
        }
    }
}

impl Outbox {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes bytes that are to be sent with the next ones; `false` if they can't wait for those.
    pub(crate) fn hold(&mut self, bytes: &[u8]) -> bool {
        let start = usize::from(self.held.len);
        let Some(space) = self.held.bytes.get_mut(start..start + bytes.len()).filter(|_| self.bytes == 0) else {
            return false;
        };
        space.copy_from_slice(bytes);
        self.held.len += bytes.len() as u8;
        true
    }

    /// Adds the bytes that have waited for others; `false` if there are none.
    pub(crate) fn push_held(&mut self, spares: &mut Spares) -> bool {
        let Held { bytes, len } = std::mem::take(&mut self.held);
        // Without any, this would call itself for ever.
        if len > 0 {
            self.push_copy(&bytes[..usize::from(len)], spares);
        }
        len > 0
    }

    /// Adds bytes by copy.
    pub(crate) fn push_copy(&mut self, bytes: &[u8], spares: &mut Spares) {
        if bytes.is_empty() {
            return;
        }
        if self.held.len > 0 {
            self.push_held(spares);
        }
        self.bytes += bytes.len();
        match self.more.back_mut().or(self.first.as_mut()) {
            Some(Piece::Owned(last)) if last.capacity() - last.len() >= bytes.len() => last.extend_from_slice(bytes),
            _ => {
                let mut piece = spares.take(bytes.len());
                piece.extend_from_slice(bytes);
                self.push(Piece::Owned(piece));
            }
        }
    }

    /// Adds a stretch of a buffer: by reference if it is long, or if it will be sent at once (`is_next`). What has to
    /// wait behind something else is copied if it is short, and all is copied when buffers run short: connections
    /// that nobody reads from must not keep the buffers from the others.
    pub(crate) fn push_shared(
        &mut self,
        (buffer, start, end): (BufferId, u32, u32),
        is_next: bool,
        buffers: &mut Buffers,
        spares: &mut Spares,
    ) {
        if self.held.len > 0 {
            self.push_held(spares);
        }
        let len = (end - start) as usize;
        let by_reference = len > COPY_BYTES_MAX || (is_next && self.first.is_none());
        if by_reference && !buffers.are_short() {
            buffers.retain(buffer);
            self.push(Piece::Shared { buffer, start, end });
            self.bytes += len;
        } else {
            self.push_copy(buffers.bytes(buffer, start..end), spares);
        }
    }

    fn push(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.more.push_back(piece),
        }
    }

    /// Takes out what one send can carry.
    pub(crate) fn take_flight(&mut self) -> Flight {
        if self.more.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            return Flight { first: self.first.take(), more: Vec::new(), bytes, sent: 0 };
        }
        let count = self.more.len().min(PIECES_MAX - 1);
        let mut flight = Flight { first: self.first.take(), more: Vec::new(), bytes: 0, sent: 0 };
        flight.more.extend(self.more.drain(..count));
        flight.bytes = flight.pieces().map(Piece::len).sum();
        self.bytes -= flight.bytes;
        self.first = self.more.pop_front();
        if self.more.is_empty() {
            // An idle connection holds no memory here.
            self.more = VecDeque::new();
        }
        flight
    }

    /// Forgets all that waits.
    pub(crate) fn clear(&mut self, buffers: &mut Buffers) {
        for piece in self.first.take().into_iter().chain(std::mem::take(&mut self.more)) {
            if let Piece::Shared { buffer, .. } = piece {
                buffers.release(buffer);
            }
        }
        self.bytes = 0;
        self.held = Held::default();
    }
}

/// The bytes that are being sent: their memory stays as it is until they have been sent, or sending has failed.
#[derive(Debug, Default)]
pub struct Flight {
    first: Option<Piece>,
    more: Vec<Piece>,
    bytes: usize,
    sent: usize,
}

impl Flight {
    /// Of bytes of Sluice's own.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.len(), first: Some(Piece::Owned(bytes)), more: Vec::new(), sent: 0 }
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.more)
    }

    /// Bytes that are not sent yet.
    pub fn left(&self) -> usize {
        self.bytes - self.sent
    }

    /// Notes that so many more bytes are sent; returns whether that is all.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        self.sent = (self.sent + bytes).min(self.bytes);
        self.sent == self.bytes
    }

    /// The one stretch that is left, if there is only one.
    pub fn single<'a>(&'a self, buffers: &'a Buffers) -> Option<&'a [u8]> {
        let piece = self.first.as_ref().filter(|_| self.more.is_empty())?;
        Some(&bytes_of(piece, buffers)[self.sent..])
    }

    /// All stretches that are left.
    pub fn slices<'a>(&'a self, buffers: &'a Buffers) -> Vec<IoSlice<'a>> {
        let mut skip = self.sent;
        let mut slices = Vec::with_capacity(1 + self.more.len());
        for piece in self.pieces() {
            let bytes = bytes_of(piece, buffers);
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            if skipped < bytes.len() {
                slices.push(IoSlice::new(&bytes[skipped..]));
            }
        }
        slices
    }

    /// Gives the memory back.
    pub(crate) fn land(self, buffers: &mut Buffers, spares: &mut Spares) {
        let mut give = |piece| match piece {
            Piece::Shared { buffer, .. } => buffers.release(buffer),
            Piece::Owned(bytes) => spares.give(bytes),
        };
        if let Some(first) = self.first {
            give(first);
        }
        self.more.into_iter().for_each(give);
    }
}

fn bytes_of<'a>(piece: &'a Piece, buffers: &'a Buffers) -> &'a [u8] {
    match piece {
        Piece::Shared { buffer, start, end } => buffers.bytes(*buffer, *start..*end),
        Piece::Owned(bytes) => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFERS: u16 = 512;

    #[test]
    fn connections_that_are_not_read_leave_buffers_to_the_others() {
        let (mut buffers, mut spares) = (Buffers::new(BUFFERS, 16 << 10), Spares::default());
        let mut stuck: Vec<Outbox> = Vec::new();
        for buffer in 0..BUFFERS {
            buffers.filled(buffer, 4096);
            let mut outbox = Outbox::default();
            outbox.push_shared((buffer, 0, 4096), true, &mut buffers, &mut spares);
            buffers.release(buffer);
            stuck.push(outbox);
        }
        let free = std::iter::from_fn(|| buffers.take_returned()).count();
        assert!(free >= usize::from(BUFFERS) / 5, "{free}");
        assert!(stuck.iter().all(|outbox| outbox.len() == 4096));
    }

    #[test]
    fn what_is_too_much_for_one_send_follows_in_order() {
        let (mut buffers, mut spares, mut outbox) =
            (Buffers::new(BUFFERS, 16 << 10), Spares::default(), Outbox::default());
        let mut sent = Vec::new();
        let all: Vec<u8> = (0..3 * PIECES_MAX as u8).collect();
        for byte in &all {
            // Each is a piece of its own.
            outbox.push_copy(&[*byte; OWNED_BYTES], &mut spares);
        }
        while !outbox.is_empty() {
            let mut flight = outbox.take_flight();
            assert!(flight.slices(&buffers).len() <= PIECES_MAX);
            sent.extend(flight.slices(&buffers).iter().map(|slice| slice[0]));
            flight.advance(flight.left());
            flight.land(&mut buffers, &mut spares);
        }
        assert_eq!((sent, outbox.len()), (all, 0));
    }

    #[test]
    fn what_is_held_goes_before_what_comes_next() {
        let (mut buffers, mut spares, mut outbox) =
            (Buffers::new(BUFFERS, 16 << 10), Spares::default(), Outbox::default());
        assert!(outbox.hold(&[1; 5]) && outbox.hold(&[2; 5]) && outbox.is_empty());
        assert!(!outbox.hold(&[3; 6]), "there is no room for it");
        outbox.push_copy(&[3; 6], &mut spares);
        assert!(!outbox.hold(&[4]), "what comes before it is sent already");
        let mut flight = outbox.take_flight();
        assert_eq!(flight.single(&buffers), Some(&[[1; 5].as_slice(), &[2; 5], &[3; 6]].concat()[..]));
        flight.advance(16);
        flight.land(&mut buffers, &mut spares);
        assert!(outbox.hold(&[5]) && outbox.push_held(&mut spares) && !outbox.push_held(&mut spares));
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn short_stretches_join_what_is_before_them_and_long_ones_pass_by_reference() {
        let (mut buffers, mut spares, mut outbox) =
            (Buffers::new(BUFFERS, 16 << 10), Spares::default(), Outbox::default());
        buffers.free_space(0)[..4].copy_from_slice(b"abcd");
        buffers.filled(0, 4);
        outbox.push_shared((0, 0, 2), true, &mut buffers, &mut spares);
        outbox.push_copy(b"-", &mut spares);
        outbox.push_shared((0, 2, 4), true, &mut buffers, &mut spares);
        assert_eq!((outbox.len(), outbox.more.len()), (5, 1));
        let mut flight = outbox.take_flight();
        assert!(outbox.is_empty() && flight.single(&buffers).is_none());
        assert!(!flight.advance(1));
        let left: Vec<u8> = flight.slices(&buffers).iter().flat_map(|s| s.to_vec()).collect();
        assert_eq!((left.as_slice(), flight.left()), (&b"b-cd"[..], 4));
        assert!(flight.advance(4));
        flight.land(&mut buffers, &mut spares);
        assert!(!buffers.has_returned());
        buffers.release(0);
        assert!(buffers.has_returned());
    }
}
