//! The beginning of a transaction, kept until the server shows that its statement is not stale.

use std::sync::Arc;

use crate::statement::{Statement, StatementId};

/// The size of a batch that is kept, at most, in bytes.
const REPLAY_BYTES_MAX: usize = 16 << 10;

/// The messages that are sent again if the shared statement that they use first proves stale.
#[derive(Debug, Default)]
pub struct Replay {
    state: State,
    /// The messages, up to and with a Sync.
    bytes: Vec<u8>,
    /// The statement they use first.
    statement: Option<Arc<Statement>>,
    /// Whether another shape of the result would be no surprise to the client.
    shape_free: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is kept.
    #[default]
    Off,
    /// The batch is being kept, and its Sync has not come.
    Open,
    /// The batch is whole, and nothing came after it.
    Whole,
    /// The statement was stale: at the next ReadyForQuery it is prepared again, and the batch sent again.
    Healing,
}

impl Replay {
    /// Keeps what is sent from now on, which uses that statement first.
    pub fn begin(&mut self, statement: Arc<Statement>, shape_free: bool) {
        self.bytes.clear();
        self.statement = Some(statement);
        self.shape_free = shape_free;
        self.state = State::Open;
    }

    /// Bytes are sent.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.pass_by();
        if self.state != State::Open {
            return;
        }
        if self.bytes.len() + bytes.len() > REPLAY_BYTES_MAX {
            self.state = State::Off;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Something follows the batch that is not kept.
    pub fn pass_by(&mut self) {
        if self.state == State::Whole {
            self.state = State::Off;
        }
    }

    /// The batch's Sync is sent.
    pub fn seal(&mut self) {
        if self.state == State::Open {
            self.state = State::Whole;
        }
    }

    /// The statement is not stale, or nothing can be done about it; returns whether the client was held for that.
    pub fn stop(&mut self) -> bool {
        let held = self.awaits_answer();
        self.state = State::Off;
        held
    }

    /// Whether nothing may follow now.
    pub fn holds(&self) -> bool {
        self.is_healing() || self.awaits_answer()
    }

    /// Whether nothing may follow before the server has shown that an unnamed statement is not stale: the client's own
    /// Parse would not have been.
    fn awaits_answer(&self) -> bool {
        self.state == State::Whole && self.statement.as_ref().is_some_and(|statement| statement.is_unnamed())
    }

    /// Whether the batch is sent again at the next ReadyForQuery.
    pub fn is_healing(&self) -> bool {
        self.state == State::Healing
    }

    /// The batch will be sent again, if it is whole and `failed` is the statement that it uses first. `helps` says
    /// whether that is of use, by whether another shape of the result is no surprise to the client.
    pub fn heal(&mut self, failed: StatementId, helps: impl Fn(bool) -> bool) -> bool {
        let is_first = self.statement.as_ref().is_some_and(|statement| statement.id == failed);
        let possible = self.state == State::Whole && is_first && helps(self.shape_free);
        if possible {
            self.state = State::Healing;
        }
        possible
    }

    /// The statement that was stale and the batch to send again, at the ReadyForQuery.
    pub fn take(&mut self) -> Option<(Arc<Statement>, &[u8])> {
        debug_assert!(self.is_healing(), "only a stale statement's batch is sent again");
        self.state = State::Off;
        Some((self.statement.take()?, &self.bytes))
    }
}
