//! A pool's standing with those that it shares limits with.

use std::time::Duration;

use crate::{budget::Shared, time::Time};

/// The least time between two looks for room among the servers of others: each goes over all pools.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// The time for which a pool is asked to give up a server: who needs it still asks again.
const ASKED_FOR: Duration = Duration::from_secs(1);

/// A pool's standing with those that it shares limits with.
#[derive(Debug, Default)]
pub struct Share {
    /// The limit that has kept it from opening a server last, and the time of that.
    missed: Option<(Shared, Time)>,
    /// The time up to which the next server that falls free is to be given up for another pool.
    asked_until: Time,
}

impl Share {
    /// Whether room is to be looked for among other pools' servers, now that this limit is reached.
    pub fn looks_for_room(&mut self, now: Time, limit: &Shared) -> bool {
        if self.missed.as_ref().is_some_and(|(_, at)| now.since(*at) < LOOKS_EVERY) {
            return false;
        }
        self.missed = Some((limit.clone(), now));
        true
    }

    /// There was room for another server.
    pub fn has_room(&mut self) {
        self.missed = None;
    }

    /// The limit that keeps it from opening a server.
    pub fn missed(&self) -> Option<&Shared> {
        self.missed.as_ref().map(|(limit, _)| limit)
    }

    /// It has more than its share: the next server that falls free is for another pool.
    pub fn ask(&mut self, now: Time) {
        self.asked_until = now + ASKED_FOR;
    }

    /// Others have all they asked for.
    pub fn no_longer_ask(&mut self) {
        self.asked_until = Time(0);
    }

    /// Whether a server is to be given up.
    pub fn is_asked_for(&self, now: Time) -> bool {
        now < self.asked_until
    }

    /// The same of one that has fallen free.
    pub fn gives_up(&mut self, now: Time) -> bool {
        let gives_up = self.is_asked_for(now);
        self.no_longer_ask();
        gives_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_given_up_once() {
        let mut share = Share::default();
        assert!(!share.gives_up(Time(5)));
        share.ask(Time(5));
        assert!(share.is_asked_for(Time(6)));
        assert_eq!([share.gives_up(Time(7)), share.gives_up(Time(8))], [true, false]);
        share.ask(Time(10));
        assert!(!share.gives_up(Time(10) + ASKED_FOR), "nobody has asked again");
    }

    #[test]
    fn room_is_looked_for_now_and_then() {
        let mut share = Share::default();
        let looks = [0, 9_999, 10_000, 10_001].map(|at| share.looks_for_room(Time(at), &Shared::Process));
        assert_eq!(looks, [true, false, true, false]);
        assert_eq!(share.missed(), Some(&Shared::Process));
        share.has_room();
        assert_eq!(share.missed(), None);
        assert!(share.looks_for_room(Time(10_002), &Shared::Process));
    }
}
