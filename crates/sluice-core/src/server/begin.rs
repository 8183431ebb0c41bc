//! A BEGIN on its way to a server, where the client was told of it before.

use std::time::Duration;

use crate::{sql::Begin, time::Time};

/// The time for which a BEGIN that was sent with a statement may be taken to be at work. Nothing is heard of it before
/// that statement says something, and a cancel that hit it would cost the client its connection.
const BEGIN_TIME: Duration = Duration::from_millis(50);

/// The BEGIN that a client was told of before its server, as far as it has come there.
#[derive(Debug, Clone, Copy)]
pub struct EarlyBegin {
    state: State,
    /// The time of the last one, whether its client was told before or is told by the server.
    sent_at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is none that is not answered, or the client has not been told either.
    Known,
    /// It is sent.
    Sent,
    /// It is sent, and a Sync or Query behind it: nothing else may be before it is answered.
    Followed,
    /// It was refused, and the client has been told.
    Refused {
        /// The client's BEGIN.
        begin: Begin,
        /// Whether the Sync is sent up to which the server skips: what comes behind it would run, but outside of the
        /// transaction.
        followed: bool,
    },
}

impl EarlyBegin {
    /// None, at that time.
    pub fn none(now: Time) -> Self {
        Self { state: State::Known, sent_at: now }
    }

    /// The server is sent a BEGIN that its client was told of.
    pub fn announce(&mut self) {
        debug_assert_eq!(self.state, State::Known, "a transaction begins once");
        self.state = State::Sent;
    }

    /// A BEGIN is sent, whether its client was told of it or not.
    pub fn send(&mut self, now: Time) {
        self.sent_at = now;
    }

    /// A Sync or Query is being sent.
    pub fn follow(&mut self) {
        self.state = match self.state {
            State::Sent => State::Followed,
            State::Refused { begin, .. } => State::Refused { begin, followed: true },
            state => state,
        };
    }

    /// Whether nothing else may be sent now.
    pub fn holds(self) -> bool {
        matches!(self.state, State::Followed | State::Refused { followed: true, .. })
    }

    /// The time up to which a cancel might hit the BEGIN itself.
    pub fn at_work_until(self) -> Time {
        self.sent_at + BEGIN_TIME
    }

    /// The server has answered it; returns whether the client was held until then.
    pub fn complete(&mut self) -> bool {
        let held = self.holds();
        self.state = State::Known;
        held
    }

    /// The server has refused it; `false` if the client has not been told of it yet.
    pub fn refuse(&mut self, begin: Begin) -> bool {
        if self.state == State::Known {
            return false;
        }
        self.state = State::Refused { begin, followed: self.holds() };
        true
    }

    /// Whether the server has refused it, and its batch has not ended.
    pub fn is_refused(self) -> bool {
        matches!(self.state, State::Refused { .. })
    }

    /// The BEGIN that was refused, once its batch has ended.
    pub fn take_refused(&mut self) -> Option<Begin> {
        let State::Refused { begin, .. } = self.state else { return None };
        self.state = State::Known;
        Some(begin)
    }
}
