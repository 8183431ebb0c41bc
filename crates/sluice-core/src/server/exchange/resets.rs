//! The settings that requests reset to what their client began with, from the request to where they are put in place.

use crate::sql::{self, Reset};

use super::Exchange;

impl Exchange {
    /// The settings that the open batch has reset already, and that are about to be put in place again for what
    /// follows in it: that text, if one is known. Behind what discards all, which is a transaction of its own, others may
    /// have to stand alone. With them, whether a query may have run since, behind which a transaction's isolation level
    /// can't be set.
    #[inline]
    pub fn take_done_resets(&mut self, text: &[u8]) -> Option<(Reset, bool)> {
        let stands_alone = self.batch_resets.done()?.may_discard() && !sql::may_follow(text);
        if stands_alone && sql::may_query(text) {
            self.batch_resets.come_late();
        }
        if stands_alone || !self.prepares() { None } else { self.batch_resets.take_done() }
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
        self.has_discarded = true;
        self.note_reset_of_all();
    }
}
