//! The uses of sequences that a session remembers: `currval` and `lastval` tell of them, whosever they were.

use crate::ids::ClientRef;

/// A client as the user of sequences, which is another one each time that what they gave it before is not for it to be
/// told any more: it has discarded that, or used sequences on another server since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceUser {
    /// The client.
    pub client: ClientRef,
    /// The number of times that this has been so.
    pub times: u32,
}

/// The clients that may have used sequences in a server's session.
#[derive(Debug, Default)]
pub struct Sequences {
    users: Users,
    /// Whether the session remembers a use, if the server says so.
    reported: Option<bool>,
    /// Whether a batch that has not ended is to have it forget what it remembers.
    forgets: bool,
    /// Whether the last user's first use is not known to have come about.
    is_open: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Users {
    #[default]
    Nobody,
    This(SequenceUser),
    /// Of whom this one is the last.
    Several(SequenceUser),
    /// Of whom nobody knows which is the last.
    Unknown,
}

impl Sequences {
    /// A client runs what may use one.
    pub fn use_by(&mut self, user: SequenceUser) {
        self.is_open |= !self.were_last_used_by(user);
        let is_alone = !self.are_used() || self.users == Users::This(user);
        self.users = if is_alone { Users::This(user) } else { Users::Several(user) };
    }

    /// A client runs a function that may use one, and mostly does not.
    pub fn use_perhaps_by(&mut self, user: SequenceUser) {
        if self.are_last_used_by_another(user) {
            self.users = Users::Unknown;
        } else {
            self.use_by(user);
        }
    }

    /// The server has said whether its session remembers any use.
    pub fn report(&mut self, is_used: bool) {
        self.reported = Some(is_used);
    }

    /// Whether the session may remember a use.
    pub fn are_used(&self) -> bool {
        self.users != Users::Nobody && self.reported != Some(false)
    }

    /// Whether it was this one that may have used one last.
    pub fn were_last_used_by(&self, user: SequenceUser) -> bool {
        self.users == Users::This(user) || self.users == Users::Several(user)
    }

    /// Whether the session may remember somebody else's use.
    pub fn are_used_by_others(&self, user: SequenceUser) -> bool {
        self.are_used() && self.users != Users::This(user)
    }

    /// Whether the session may remember somebody else's use, and none of this client's behind it.
    pub fn are_last_used_by_another(&self, user: SequenceUser) -> bool {
        self.are_used() && !self.were_last_used_by(user)
    }

    /// The session is to remember none any more, by a part of the batch that is open: nobody knows what it remembers if
    /// that fails.
    pub fn forget_within(&mut self) {
        self.forget();
        self.forgets = true;
    }

    /// A request has failed: nobody knows whether what it was to use was used.
    pub fn fail(&mut self) {
        if self.is_open && matches!(self.users, Users::Several(_)) {
            self.users = Users::Unknown;
        }
    }

    /// All that was asked for is done.
    pub fn settle(&mut self) {
        self.is_open = false;
    }

    /// A batch has ended, and failed or not.
    pub fn end_batch(&mut self, has_failed: bool) {
        if std::mem::take(&mut self.forgets) && has_failed {
            self.users = Users::Unknown;
        }
    }

    /// The session remembers none any more.
    pub fn forget(&mut self) {
        self.users = Users::Nobody;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClientId;

    #[test]
    fn uses_are_somebodys_until_they_are_forgotten() {
        let client = |id| ClientRef { worker: 0, id: ClientId(id), serial: 1 };
        let [a, b] = [1, 2].map(|id| SequenceUser { client: client(id), times: 0 });
        let mut sequences = Sequences::default();
        assert!(!sequences.are_used_by_others(a));
        sequences.use_by(a);
        assert!(!sequences.are_used_by_others(a) && sequences.are_used_by_others(b));
        sequences.use_by(b);
        assert!(sequences.are_used_by_others(a) && sequences.are_used_by_others(b));
        assert!(sequences.are_last_used_by_another(a) && !sequences.are_last_used_by_another(b));
        sequences.use_perhaps_by(b);
        assert!(!sequences.are_last_used_by_another(b), "the last one is its own either way");
        sequences.use_perhaps_by(a);
        assert!(sequences.are_last_used_by_another(a) && sequences.are_last_used_by_another(b));
        sequences.report(false);
        assert!(!sequences.are_used() && !sequences.are_used_by_others(a));
        // What was none of anybody's is none of others'.
        sequences.use_by(b);
        sequences.report(true);
        assert!(!sequences.are_used_by_others(b) && sequences.are_used_by_others(a));
        sequences.forget();
        sequences.use_by(a);
        assert!(sequences.are_used() && !sequences.are_used_by_others(a));
        for has_failed in [false, true] {
            sequences.forget_within();
            sequences.end_batch(has_failed);
            assert_eq!(sequences.are_last_used_by_another(a), has_failed);
        }
    }
}
