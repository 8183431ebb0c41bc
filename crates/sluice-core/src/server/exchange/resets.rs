//! The settings that requests reset to what their client began with, from the request to where they are put in place.

use crate::sql::{self, Reset};

use super::Exchange;

impl Exchange {
    /// The settings that the open batch has reset already, and that are about to be put in place again for what
    /// follows in it: that text, if one is known.
    #[inline]
    pub fn take_done_resets(&mut self, text: &[u8]) -> Option<Reset> {
        // Where nobody has read which, that text may have to stand alone.
        let stands_alone = self.batch_resets.done()?.may_discard() && !sql::may_follow(text);
        if stands_alone || !self.prepares() { None } else { self.batch_resets.take_done() }
    }

    /// Whether the open batch may have discarded all, and settings have to be put in place again.
    #[inline]
    pub fn may_be_behind_discard(&self) -> bool {
        self.batch_resets.done().is_some_and(Reset::may_discard)
    }

    /// Whether it has, and nothing has run since: it stands between two transactions.
    pub fn is_behind_discard(&self) -> bool {
        self.is_behind_discard
    }

    /// Settings that were reset are put in place again ahead of the client's next message, for which the one that is
    /// passing stands in the way.
    pub fn restore_behind_message(&mut self, resets: Reset) {
        self.batch_resets.add_done(resets);
    }

    /// The settings that the open batch resets, which now ends.
    pub fn take_resets(&mut self) -> Option<Reset> {
        self.batch_resets.take()
    }

    /// The request that is being answered resets settings: all of them, unless its text has shown which.
    pub fn note_reset_of_all(&mut self) {
        if !self.replies.set_resets(Some(Reset::all())) {
            self.batch_resets.add_all();
        }
    }

    /// The request that is being answered has discarded all.
    pub fn discards_all(&mut self) {
        (self.has_discarded, self.is_behind_discard) = (true, true);
        self.note_reset_of_all();
    }
}
