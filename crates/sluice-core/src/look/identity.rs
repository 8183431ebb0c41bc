//! The users whom a session works as, where it has given up those that its client began with.
//!
//! No query tells `SET ROLE NONE` from `RESET ROLE`: the server does not know what the client began with, and lists
//! neither `role` nor `session_authorization` among its settings. What texts say does. Where neither they do, a function
//! has done it, and the client goes back to what it began with, by which it may do less.

use std::collections::BTreeSet;

use crate::{
    holding::Holding,
    profile::{Profile, ROLE, SESSION_AUTHORIZATION},
    sql::Reset,
};

use super::Circumstances;

/// The texts' word on `role` and `session_authorization` since the last look.
#[derive(Debug, Default)]
pub(super) struct Identity {
    set: BTreeSet<&'static str>,
    taken_back: BTreeSet<&'static str>,
}

impl Identity {
    /// Notes a text; these settings it names in SET.
    pub(super) fn note_text(&mut self, text: &[u8], named: &BTreeSet<String>) {
        let may_set_any = text.windows(10).any(|word| word.eq_ignore_ascii_case(b"set_config"));
        let names = [ROLE, SESSION_AUTHORIZATION].into_iter();
        self.set.extend(names.filter(|name| may_set_any || named.contains(*name)));
    }

    /// Notes settings that the client has taken back. It waits for the look that comes behind them.
    pub(super) fn note_resets(&mut self, resets: &Reset) {
        let names = [ROLE, SESSION_AUTHORIZATION].into_iter();
        self.taken_back.extend(names.filter(|name| resets.covers(name) || !resets.is_read()));
    }

    /// Adds what the session has set to what the server has by itself, where its client began with something else.
    pub(super) fn complete(self, holding: Holding, asked: Circumstances<'_>, start: &Profile) -> Holding {
        let is_left = |name: &str, own: &str| {
            let began_elsewhere = start.get(name).is_some_and(|start| start != own.as_bytes());
            began_elsewhere
                && holding.profile.get(name).is_none()
                && !self.taken_back.contains(name)
                && (self.set.contains(name) || asked.profile.get(name) == Some(own.as_bytes()))
        };
        let users = [(ROLE, "none"), (SESSION_AUTHORIZATION, asked.user)];
        let left: Vec<_> = users.into_iter().filter(|(name, own)| is_left(name, own)).collect();
        if left.is_empty() {
            return holding;
        }
        let mut settings = holding.profile.settings().clone();
        settings.extend(left.into_iter().map(|(name, own)| (name.to_owned(), own.as_bytes().into())));
        holding.with(settings)
    }
}
