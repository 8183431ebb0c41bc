//! A request that fails: it has one error, up to its ReadyForQuery.

use super::Exchange;

impl Exchange {
    /// The request that is being answered has failed: it resets nothing but what it has discarded.
    pub fn note_failure(&mut self) {
        self.copy_fails();
        self.turns.fail();
        self.implicit.fail();
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
