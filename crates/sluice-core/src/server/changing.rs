//! The change to the catalogs that a server's client is making: under way from the moment in which it is sent until the
//! request that makes it has been answered outside of a transaction.

use std::sync::Arc;

use crate::{
    catalog::{Catalog, Change},
    sql::Effects,
};

/// A change that is under way, or none.
#[derive(Debug, Default)]
pub(super) struct Changing(Option<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    change: Change,
    /// The requests before the last one that makes it which are not answered: it is done or undone with that one's own
    /// answer.
    behind: usize,
    /// The server has told since then that catalogs have changed: with the extension, that of a temporary table does not
    /// count.
    is_counted: bool,
}

impl Changing {
    /// Whether there is one.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// A text that may have these effects is about to be sent, behind so many requests that are not answered.
    pub(super) fn note(&mut self, effects: Effects, catalog: &Arc<Catalog>, behind: impl FnOnce() -> usize) {
        if effects.intersects(Effects::CATALOG) {
            let begun = || UnderWay { change: catalog.begin_change(), behind: 0, is_counted: false };
            let under_way = self.0.get_or_insert_with(begun);
            under_way.behind = behind();
            if effects.intersects(Effects::LOG_INS) {
                under_way.change.concerns_log_ins();
            }
            if effects.intersects(Effects::ALTERS) {
                under_way.change.alters();
            }
        }
    }

    /// The server has told that catalogs have changed.
    pub(super) fn count(&mut self) {
        if let Some(under_way) = &mut self.0 {
            under_way.is_counted = true;
        }
    }

    /// A request has been answered, and so many have not; `is_over` says whether no transaction is open. Then what was
    /// done is done or undone, but for what was sent behind that request. `counts` says whether the server tells when
    /// catalogs have changed.
    pub(super) fn answered(&mut self, is_over: bool, counts: bool, left: impl Fn() -> usize) {
        let Some(under_way) = &mut self.0 else { return };
        let is_last = under_way.behind == 0 || left() == 0;
        under_way.behind = under_way.behind.saturating_sub(1);
        match (is_over, is_last) {
            (false, _) => {}
            (true, true) => {
                if counts && !under_way.is_counted {
                    under_way.change.alters_nothing();
                }
                self.0 = None;
            }
            (true, false) => under_way.change.go_on(),
        }
    }
}
