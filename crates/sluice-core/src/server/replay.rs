//! The beginning of a transaction, kept until the server shows that its statement is not stale.

use std::sync::Arc;

use crate::statement::{Open, Statement, StatementId};

/// The size of a batch that is kept, at most, in bytes.
pub const REPLAY_BYTES_MAX: usize = 16 << 10;

/// The messages that are sent again if the shared statement that they use first proves stale.
#[derive(Debug, Default)]
pub struct Replay {
    state: State,
    /// The messages, up to and with a Sync.
    bytes: Vec<u8>,
    /// The statement they use first.
    statement: Option<Arc<Statement>>,
    /// The things about it that the client may find otherwise than they were.
    open: Open,
    /// The parameters' types of the statement. Its server describes them ahead of looking whether it is stale: the
    /// client is told when that has been seen.
    parameters: Option<Box<[u8]>>,
    /// The version of the catalogs by which a statement was parsed that has been replaced, if it is open whether they
    /// have changed since.
    doubted: Option<u64>,
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
    /// The statement was stale: at the next ReadyForQuery that is done, and the batch sent again.
    Healing(Remedy),
}

/// What is done about a statement that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The server has lost it: it is prepared there as it was.
    Again,
    /// Other catalogs than those of now decided what it means: one that is parsed now takes its place.
    Anew,
}

impl Replay {
    /// Keeps what is sent from now on, which uses that statement first.
    pub fn begin(&mut self, statement: Arc<Statement>, open: Open) {
        *self = Self {
            state: State::Open,
            statement: Some(statement),
            open,
            ..Self::with(std::mem::take(&mut self.bytes))
        };
    }

    /// Keeps nothing, with room for what is to be kept.
    fn with(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes, ..Self::default() }
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
        self.doubted = None;
        held
    }

    /// Whether what is being kept uses that statement first, and can hold so many bytes more: what follows in it is sent
    /// again with that.
    pub fn has_room(&self, statement: StatementId, bytes: usize) -> bool {
        self.state == State::Open && self.is_of(statement) && self.bytes.len() + bytes <= REPLAY_BYTES_MAX
    }

    fn is_of(&self, statement: StatementId) -> bool {
        self.statement.as_ref().is_some_and(|own| own.id == statement)
    }

    /// The parameters of that statement are described; returns whether the client is to be told later.
    pub fn hold_parameters(&mut self, statement: StatementId, types: &[u8]) -> bool {
        let holds = matches!(self.state, State::Open | State::Whole) && self.is_of(statement);
        self.parameters = holds.then(|| types.into());
        holds
    }

    /// The parameters' types that were held back.
    pub fn take_parameters(&mut self) -> Option<Box<[u8]>> {
        self.parameters.take()
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
        matches!(self.state, State::Healing(_))
    }

    /// The batch will be sent again, if it is whole and `failed` is the statement that it uses first. `remedy` says what
    /// helps, by what the client may find otherwise.
    pub fn heal(&mut self, failed: StatementId, remedy: impl Fn(Open) -> Option<Remedy>) -> bool {
        let remedy = remedy(self.open).filter(|_| self.state == State::Whole && self.is_of(failed));
        if let Some(remedy) = remedy {
            self.state = State::Healing(remedy);
        }
        remedy.is_some()
    }

    /// The statement that was stale, what is to be done about it and the batch to send again, at the ReadyForQuery.
    pub fn take(&mut self) -> Option<(Arc<Statement>, Remedy, Vec<u8>)> {
        let State::Healing(remedy) = self.state else { return None };
        self.state = State::Off;
        Some((self.statement.clone()?, remedy, std::mem::take(&mut self.bytes)))
    }

    /// If what is sent again goes well, the catalogs have changed since that version.
    pub fn doubt(&mut self, version: u64) {
        self.doubted = Some(version);
    }

    /// It has gone well: the version of the catalogs that is over.
    pub fn take_doubted(&mut self) -> Option<u64> {
        self.doubted.take()
    }
}
