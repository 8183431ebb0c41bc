//! How long a client has left something undone that its server waits for.

use std::time::Duration;

use crate::time::Time;

/// So many bytes of a message begin its time anew: a large one may take as long as the network needs, while one that
/// comes byte by byte does not hold a server for ever.
const PROGRESS_BYTES: usize = 64 << 10;

/// The thing that a client has left undone while its server waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// A message has not come whole.
    Message,
    /// A transaction, batch or COPY is open, and it says nothing.
    Transaction,
}

/// The note about that in a client.
#[derive(Debug, Default)]
pub struct Watch {
    /// It, if there is any.
    pub(crate) undone: Option<Undone>,
    /// Since when.
    pub(crate) since: Time,
    /// Bytes that have come since.
    bytes: usize,
    /// When it is looked at.
    pub(crate) look_at: Option<Time>,
}

impl Watch {
    /// Bytes of the client have come.
    pub(crate) fn heard(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Notes what the client has left undone now; gives the time at which to look at it, if that is not noted yet.
    pub(crate) fn note(&mut self, now: Time, undone: Undone, limit: Duration) -> Option<Time> {
        let goes_on = self.undone == Some(undone) && undone == Undone::Message && self.bytes < PROGRESS_BYTES;
        if !goes_on {
            *self = Self { undone: Some(undone), since: now, bytes: 0, look_at: self.look_at };
        }
        let deadline = self.since + limit;
        if self.look_at.is_some_and(|at| at <= deadline) {
            return None;
        }
        self.look_at = Some(deadline);
        self.look_at
    }
}
