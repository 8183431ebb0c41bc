//! The time for which a client has left something undone that its server waits for, that since its last request, and
//! that for which a server has not answered one.

use std::time::Duration;

use crate::{alarm::Alarm, time::Time};

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
    /// The same, and the server may have answers that nothing has asked it for, so that it does not show whether it is
    /// done.
    Answers,
    /// No transaction is open, and it says nothing, though it keeps its server.
    Session,
}

/// The note about that in a client.
#[derive(Debug, Default)]
pub struct Watch {
    /// It, if there is any.
    pub(crate) undone: Option<Undone>,
    /// Since when.
    pub(crate) since: Time,
    /// What a message that has not come whole does not end, as it does not in PostgreSQL, and since when.
    pub(crate) beneath: Option<(Undone, Time)>,
    /// Bytes that have come since.
    bytes: usize,
    /// The time at which it is looked at.
    pub(crate) alarm: Alarm,
}

impl Watch {
    /// Bytes of the client have come.
    pub(crate) fn heard(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Notes what the client has left undone now, whether that has a limit or may get one.
    pub(crate) fn note(&mut self, now: Time, undone: Undone) {
        let goes_on = self.undone == Some(undone) && undone == Undone::Message && self.bytes < PROGRESS_BYTES;
        if !goes_on {
            (self.undone, self.since, self.bytes) = (Some(undone), now, 0);
        }
    }

    /// Gives the time at which to look at what is noted, if that is not set yet.
    pub(crate) fn look_after(&mut self, limit: Duration) -> Option<Time> {
        let deadline = self.since + limit;
        self.alarm.set(deadline).then_some(deadline)
    }
}

/// The note of a client's last request, by which the limits of a client that has no server are kept.
#[derive(Debug, Default)]
pub struct Rest {
    /// Since when nothing has come or gone.
    since: Time,
    /// The state of its last request.
    request: Request,
    /// The time at which it is looked at.
    pub(crate) alarm: Alarm,
}

/// The state of a client's request, by its last message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// It has asked to hear that the server is ready.
    #[default]
    Ended,
    /// It owes a Sync: before that it does not rest.
    Open,
}

impl Rest {
    /// Something has come from the client, or gone to it.
    pub(crate) fn note(&mut self, now: Time, request: Request) {
        (self.since, self.request) = (now, request);
    }

    /// Something has gone to the client, whatever the state of its request.
    pub(crate) fn go_on(&mut self, now: Time) {
        self.since = now;
    }

    /// The time at which something has come or gone last.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// Whether it owes a Sync.
    pub(crate) fn is_open(&self) -> bool {
        self.request == Request::Open
    }

    /// The end of a rest of that length.
    pub(crate) fn deadline(&self, limit: Duration) -> Time {
        self.since + limit
    }
}

/// A server's note of the request that it is answering, which may have a limit.
#[derive(Debug, Default)]
pub struct Overdue {
    /// The time at which it is looked at.
    pub(crate) alarm: Alarm,
    /// The time since when it is its turn, and not its client's.
    pub(crate) since: Option<Time>,
    /// The request that it has been sent a cancel for, by the time from which it counts.
    pub(crate) cancelled: Option<Time>,
}
