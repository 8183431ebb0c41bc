//! The transaction of a batch that a Query or a FunctionCall stands amid. From PostgreSQL 18 on it goes on behind that, and
//! the server says so as it does of a block (`TBLOCK_IMPLICIT_INPROGRESS`); before, that ended it.
//!
//! A query of the pool's own would end it, and so none is sent: settings that were reset in it are put in place again
//! when it has ended.

use crate::sql::Reset;

/// The state of such a transaction.
#[derive(Debug, Default)]
pub(super) struct Implicit {
    is_open: bool,
    /// The settings that were reset in it.
    put_off: Option<Reset>,
}

impl Implicit {
    /// Whether one is open.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The server has told whether it is open behind a request that resets these settings: with the end, what was reset
    /// before is among them.
    pub(super) fn told(&mut self, is_open: bool, resets: &mut Option<Box<Reset>>) {
        self.is_open = is_open;
        if !is_open && let Some(before) = self.put_off.take() {
            *resets = Reset::both(Some(before), resets.as_deref()).map(Into::into);
        }
    }

    /// These settings were reset in it.
    pub(super) fn put_off(&mut self, resets: &Reset) {
        self.put_off = Reset::both(self.put_off.take(), Some(resets));
    }

    /// It is rolled back.
    pub(super) fn fail(&mut self) {
        self.put_off = None;
    }
}
