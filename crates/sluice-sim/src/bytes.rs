//! Bytes in a row: put in at one end, and taken out at the other.

/// A queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    all: Vec<u8>,
    /// Bytes at the beginning that have been taken.
    taken: usize,
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.taken > self.all.len() / 2 {
            self.all.drain(..self.taken);
            self.taken = 0;
        }
        self.all.extend_from_slice(bytes);
    }

    /// The first of them; `len` is not more than there are.
    pub(crate) fn take(&mut self, len: usize) -> &[u8] {
        self.taken += len;
        &self.all[self.taken - len..self.taken]
    }

    /// Forgets all but the first.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.all.truncate(self.taken + len);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
