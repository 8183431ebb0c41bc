//! The settings that a batch resets to what its client began with. A text that does so is bound to a portal, and
//! does it when that is run, which may be in a later batch or never.

use std::collections::{BTreeMap, BTreeSet};

use crate::sql::Reset;

/// Portals that are followed at once; what others do counts from their Bind on.
const PORTALS_MAX: usize = 64;

/// The effect on settings of running a portal.
#[derive(Debug)]
enum Act {
    /// It resets these.
    Resets(Reset),
    /// It sets these.
    Sets(BTreeSet<String>),
}

/// The settings that the open batch resets.
#[derive(Debug, Default)]
pub(super) struct BatchResets {
    /// So far.
    resets: Option<Reset>,
    /// Whether a portal was run since they were put in place again.
    is_done: bool,
    portals: BTreeMap<Box<[u8]>, Act>,
}

impl BatchResets {
    /// A portal is bound to a statement that resets these settings, or none: then it sets those.
    pub(super) fn bind(
        &mut self,
        portal: &[u8],
        resets: Option<Reset>,
        sets: impl FnOnce() -> Option<BTreeSet<String>>,
    ) {
        self.close(portal);
        let act = match resets {
            Some(resets) => Some(Act::Resets(resets)),
            None => sets().filter(|names| !names.is_empty()).map(Act::Sets),
        };
        let Some(act) = act else { return };
        if self.portals.len() < PORTALS_MAX {
            self.portals.insert(portal.into(), act);
        } else {
            self.act(&act);
        }
    }

    /// Notes that a portal is about to be run.
    pub(super) fn run(&mut self, portal: &[u8]) {
        // Mostly there is none.
        if !self.portals.is_empty()
            && let Some(act) = self.portals.remove(portal)
        {
            self.act(&act);
        }
        self.is_done = self.resets.is_some();
    }

    fn act(&mut self, act: &Act) {
        self.resets = match (self.resets.take(), act) {
            (before, Act::Resets(resets)) => Reset::both(before, Some(resets)),
            // What a command tag says must not be taken for all.
            (before, Act::Sets(names)) => before.map(|before| before.without(names)),
        };
    }

    /// Those that were reset and not put in place again.
    #[inline]
    pub(super) fn done(&self) -> Option<&Reset> {
        self.resets.as_ref().filter(|_| self.is_done)
    }

    /// They are put in place again for what follows in the batch: nothing is left to be done about them at its end.
    pub(super) fn take_done(&mut self) -> Option<Reset> {
        if !std::mem::take(&mut self.is_done) {
            return None;
        }
        self.resets.replace(Reset::default())
    }

    /// The batch goes on, where its end was taken to have come.
    pub(super) fn add(&mut self, resets: Reset) {
        self.resets = Reset::both(Some(resets), self.resets.take().as_ref());
    }

    /// They were reset before the batch.
    pub(super) fn add_done(&mut self, resets: Reset) {
        self.add(resets);
        self.is_done = true;
    }

    /// The batch ends.
    pub(super) fn take(&mut self) -> Option<Reset> {
        self.is_done = false;
        self.resets.take()
    }

    /// A command tag has told of it: unless a text has shown which, it is all.
    pub(super) fn add_all(&mut self) {
        self.resets.get_or_insert_with(Reset::all);
    }

    /// A portal is closed.
    pub(super) fn close(&mut self, portal: &[u8]) {
        if !self.portals.is_empty() {
            self.portals.remove(portal);
        }
    }

    /// All portals are closed.
    pub(super) fn close_all(&mut self) {
        if !self.portals.is_empty() {
            self.portals.clear();
        }
    }

    /// It has failed.
    pub(super) fn clear(&mut self) {
        self.resets = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{reset, settings_named};

    fn bind(batch: &mut BatchResets, portal: &str, text: &str) {
        batch.bind(portal.as_bytes(), reset(text.as_bytes()), || Some(settings_named(text.as_bytes())));
    }

    #[test]
    fn what_is_bound_counts_when_it_is_run() {
        let mut batch = BatchResets::default();
        bind(&mut batch, "", "reset work_mem");
        assert!(batch.done().is_none() && batch.take().is_none());
        batch.run(b"");
        assert!(batch.done().is_some_and(|resets| resets.covers("work_mem")));
        bind(&mut batch, "a", "set work_mem = 5");
        bind(&mut batch, "b", "reset datestyle");
        batch.run(b"a");
        assert!(batch.done().is_some_and(|resets| !resets.covers("work_mem")));
        bind(&mut batch, "b", "select 1");
        batch.run(b"b");
        assert!(batch.take_done().is_some_and(|resets| !resets.covers("datestyle")), "it is another portal");
        assert!(batch.take_done().is_none());
    }

    #[test]
    fn portals_are_followed_up_to_a_limit() {
        let mut batch = BatchResets::default();
        for number in 0..=PORTALS_MAX {
            bind(&mut batch, &number.to_string(), "reset work_mem");
        }
        assert!(batch.portals.len() == PORTALS_MAX && batch.resets.is_some());
    }
}
