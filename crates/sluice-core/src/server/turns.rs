//! The status of the transaction as what was sent makes it, of which a server tells at the end of a batch alone. Behind an
//! error nothing of a batch is run: whatever is run at all is run behind what was sent before it.

use std::collections::BTreeMap;

use sluice_wire::message::TransactionStatus;

use crate::sql::Ending;

/// Portals that are followed at once.
const PORTALS_MAX: usize = 64;

/// The turn that running a portal gives to the transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The status behind it, if it begins or ends a block.
    pub leads_to: Option<TransactionStatus>,
    /// What it does to a block that is open.
    pub ends: Ending,
}

impl Turn {
    /// The one that a portal may give of which nothing is known.
    pub const UNKNOWN: Self = Self { leads_to: None, ends: Ending::Open };
}

/// The turns that what was sent gives to the transaction.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The status behind the last portal that was run of those that begin or end a block.
    last: Option<TransactionStatus>,
    /// The number of requests whose end was still to come when that was sent, and is now.
    behind: usize,
    /// The portals that give one when they are run.
    portals: BTreeMap<Box<[u8]>, Turn>,
    /// Whether there may be others: there are more of them than are followed.
    has_others: bool,
    /// Whether one of them that may end a block was closed, or another one bound in its place. Behind an error that was
    /// skipped, and a savepoint may have kept it.
    has_closed: bool,
}

impl Turns {
    /// A portal is bound to a statement that gives that turn.
    pub(super) fn bind(&mut self, portal: &[u8], turn: Turn) {
        self.close(portal);
        if turn == Turn::default() {
            return;
        }
        if self.portals.len() < PORTALS_MAX {
            self.portals.insert(portal.into(), turn);
        } else {
            self.has_others = true;
        }
    }

    /// The turn that running that portal gives.
    pub(super) fn of(&self, portal: &[u8]) -> Turn {
        match self.portals.get(portal) {
            Some(turn) => *turn,
            None if self.has_others => Turn::UNKNOWN,
            None => Turn::default(),
        }
    }

    /// Notes that this portal is about to be run, behind so many requests that are not answered; returns what that does
    /// to a block.
    pub(super) fn run(&mut self, portal: &[u8], behind: impl FnOnce() -> usize) -> Ending {
        // Mostly there is none.
        if self.portals.is_empty() && !self.has_others {
            return Ending::None;
        }
        let turn = self.of(portal);
        self.lead_to(turn.leads_to, behind);
        turn.ends
    }

    /// A request has been sent to its end. What its portals come to in a later one is not known for certain: an error in
    /// between takes them away.
    pub(super) fn end_request(&mut self) {
        for turn in self.portals.values_mut() {
            turn.ends = turn.ends.known_if(false);
        }
    }

    /// The status that it has led to, unless the server has told it since.
    pub(super) fn last(&self) -> Option<TransactionStatus> {
        self.last
    }

    /// A portal is closed.
    pub(super) fn close(&mut self, portal: &[u8]) {
        // Mostly there is none.
        if !self.portals.is_empty() {
            let closed = self.portals.remove(portal);
            self.has_closed |= closed.is_some_and(|turn| turn.ends != Ending::None);
        }
    }

    /// All portals are closed.
    pub(super) fn close_all(&mut self) {
        if !self.portals.is_empty() {
            self.portals.clear();
        }
        (self.has_others, self.has_closed) = (false, false);
    }

    /// Notes that what is sent leads to that status, if to any.
    pub(super) fn lead_to(&mut self, status: Option<TransactionStatus>, behind: impl FnOnce() -> usize) {
        if status.is_some() {
            (self.last, self.behind) = (status, behind());
        }
    }

    /// A request has been answered.
    pub(super) fn answered(&mut self) {
        self.behind = self.behind.saturating_sub(1);
    }

    /// The request that is being answered has failed: it has led to nothing.
    pub(super) fn fail(&mut self) {
        self.has_others |= self.has_closed;
        if self.behind == 0 {
            self.forget();
        }
    }

    /// The server has told the status.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(leads_to: TransactionStatus, ends: Ending) -> Turn {
        Turn { leads_to: Some(leads_to), ends }
    }

    #[test]
    fn the_last_portal_that_was_run_decides() {
        let mut turns = Turns::default();
        turns.bind(b"", turn(TransactionStatus::Idle, Ending::Commit));
        assert_eq!(turns.last(), None, "it has not been run");
        assert_eq!(turns.run(b"", || 0), Ending::Commit);
        turns.bind(b"", Turn::default());
        assert_eq!(turns.run(b"", || 0), Ending::None);
        assert_eq!(turns.last(), Some(TransactionStatus::Idle));
        turns.bind(b"a", turn(TransactionStatus::InTransaction, Ending::Open));
        assert_eq!(turns.run(b"a", || 1), Ending::Open);
        assert_eq!(turns.last(), Some(TransactionStatus::InTransaction));
        turns.fail();
        assert_eq!(turns.last(), Some(TransactionStatus::InTransaction), "it was another request");
        turns.answered();
        turns.fail();
        assert_eq!(turns.last(), None);
    }

    #[test]
    fn what_a_portal_does_is_known_in_its_own_request() {
        let mut turns = Turns::default();
        turns.bind(b"a", turn(TransactionStatus::Idle, Ending::Commit));
        turns.end_request();
        assert_eq!(turns.run(b"a", || 0), Ending::Open);
        assert_eq!(turns.last(), Some(TransactionStatus::Idle));
    }

    #[test]
    fn one_that_is_not_followed_may_be_anything() {
        let mut turns = Turns::default();
        for at in 0..=PORTALS_MAX {
            turns.bind(at.to_string().as_bytes(), turn(TransactionStatus::Idle, Ending::Commit));
        }
        assert_eq!(turns.run(b"0", || 0), Ending::Commit);
        assert_eq!(turns.run(PORTALS_MAX.to_string().as_bytes(), || 0), Ending::Open);
        turns.close_all();
        assert_eq!(turns.run(PORTALS_MAX.to_string().as_bytes(), || 0), Ending::None);
    }
}
