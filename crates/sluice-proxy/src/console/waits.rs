//! What commands wait for that several sessions may have given: a PAUSE, a DRAIN or a HOLD, and the same once more while the
//! first one waits. A cancel takes it back only where nobody else waits for it, and none was done with it before.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What such a command has set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Setting {
    /// The pause of a database, or of all.
    Pause(Option<String>),
    Drain,
    /// The hold of a cluster.
    Hold(Arc<str>),
}

/// The commands that wait, by what they have set.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<BTreeMap<Setting, Waiting>>);

#[derive(Debug, Clone, Copy)]
struct Waiting {
    count: usize,
    /// Whether a command that no longer waits has set it as well: no cancel takes that back.
    is_kept: bool,
}

impl Waits {
    /// A command begins to wait for what it is about to set, which may be set already.
    pub(super) fn join(&self, setting: &Setting, is_set: bool) {
        let mut waits = self.lock();
        let waiting = waits.entry(setting.clone()).or_insert(Waiting { count: 0, is_kept: is_set });
        waiting.count += 1;
        // Where others still wait, and it is not set, somebody has ended it, and they have yet to notice.
        waiting.is_kept &= is_set;
    }

    /// Has what is set stay so, whoever cancels.
    pub(super) fn keep(&self, setting: &Setting) {
        if let Some(waiting) = self.lock().get_mut(setting) {
            waiting.is_kept = true;
        }
    }

    /// A command no longer waits. Returns whether nobody has what it has set any more, if it is cancelled.
    pub(super) fn leave(&self, setting: &Setting) -> bool {
        let mut waits = self.lock();
        let Some(waiting) = waits.get_mut(setting) else { return false };
        waiting.count -= 1;
        if waiting.count > 0 {
            return false;
        }
        let is_kept = waiting.is_kept;
        waits.remove(setting);
        !is_kept
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Setting, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Setting = Setting::Pause(None);

    #[test]
    fn the_last_one_that_is_cancelled_takes_it_back() {
        let waits = Waits::default();
        waits.join(&ALL, false);
        waits.join(&ALL, true);
        waits.join(&Setting::Drain, false);
        assert!(!waits.leave(&ALL) && waits.leave(&ALL) && waits.leave(&Setting::Drain));
        assert!(waits.lock().is_empty());
    }

    #[test]
    fn what_was_set_before_or_is_done_is_not_taken_back() {
        let waits = Waits::default();
        waits.join(&ALL, true);
        assert!(!waits.leave(&ALL), "it was set before");
        waits.join(&ALL, false);
        waits.join(&ALL, true);
        waits.keep(&ALL);
        assert!(!waits.leave(&ALL) && !waits.leave(&ALL), "one of them was done");
    }

    #[test]
    fn what_is_set_anew_is_taken_back_though_it_was_kept_before() {
        let waits = Waits::default();
        waits.join(&ALL, true);
        // Somebody has ended it meanwhile.
        waits.join(&ALL, false);
        assert!(!waits.leave(&ALL) && waits.leave(&ALL));
    }
}
