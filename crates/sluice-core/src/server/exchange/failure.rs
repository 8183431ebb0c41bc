//! A request that fails: it has one error, up to its ReadyForQuery.

use crate::replies::Expected;

use super::{Batch, Exchange, State};

impl Exchange {
    /// The request that is being answered has failed: it resets nothing but what it has discarded.
    pub fn note_failure(&mut self) {
        self.copy_fails();
        self.turns.fail();
        self.implicit.fail();
        self.void_resets();
    }

    /// All that was skipped is taken out of the queue. Returns whether a Bind was held that can be handled again.
    pub fn skip(&mut self) -> bool {
        // Where a Sync has been sent already, a batch that is open is one behind it, and goes on.
        self.state = match self.state {
            _ if self.replies.is_empty() => State::Skipping,
            State::Skipping => State::Ready(Batch::Runs),
            state => state,
        };
        if matches!(self.replies.front(), None | Some(Expected::Sync(_) | Expected::OwnSync(_))) {
            // What stands behind a Query that was skipped, too.
            self.void_resets();
        }
        self.stop_learning()
    }

    /// The request that is being answered resets nothing but what it has discarded.
    fn void_resets(&mut self) {
        if !self.replies.set_resets(None) {
            self.batch_resets.clear();
        }
        if self.has_discarded {
            self.note_reset_of_all();
        }
    }

    /// The client hears the error of the request that is being answered: it is the only one up to ReadyForQuery.
    pub fn tell_failure(&mut self) {
        self.is_failure_told = true;
    }

    /// Whether it has heard that, and the request's end is to come.
    pub fn is_failure_told(&self) -> bool {
        self.is_failure_told
    }
}
