//! The reasons why a client is not read from. Several may hold at once: it is read from again when none is left.

/// A reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its server does not take what it sends.
    Server,
    /// It does not read what it is sent: what else it asks for would be answered into memory.
    Unread,
    /// As much is kept for it as may be, and must be handled first.
    Pending,
}

/// The reasons that hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pauses(u8);

impl Pauses {
    /// Whether that one holds.
    pub fn has(self, reason: Reason) -> bool {
        self.0 & bit(reason) != 0
    }

    /// One more; `true` if reading must stop now.
    #[must_use]
    pub fn add(&mut self, reason: Reason) -> bool {
        let was_empty = self.is_empty();
        self.0 |= bit(reason);
        was_empty
    }

    /// Removes a reason; `true` if reading may go on now.
    #[must_use]
    pub fn remove(&mut self, reason: Reason) -> bool {
        let had_it = self.has(reason);
        self.0 &= !bit(reason);
        had_it && self.is_empty()
    }

    /// Whether none holds.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bit(reason: Reason) -> u8 {
    1 << reason as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_goes_on_when_the_last_reason_is_gone() {
        let mut pauses = Pauses::default();
        assert!(!pauses.remove(Reason::Server), "it was never stopped");
        assert!(pauses.add(Reason::Server));
        assert!(!pauses.add(Reason::Unread) && !pauses.add(Reason::Server));
        assert!(!pauses.remove(Reason::Server) && !pauses.remove(Reason::Pending));
        assert!(pauses.has(Reason::Unread) && !pauses.has(Reason::Server));
        assert!(pauses.remove(Reason::Unread) && pauses.is_empty());
    }
}
