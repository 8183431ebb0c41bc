//! The settings that a session has given up, where its client began with them: the users whom it works as, and custom
//! settings that are empty.
//!
//! No query tells `SET ROLE NONE` from `RESET ROLE`: the server does not know what the client began with, and lists
//! neither `role` nor `session_authorization` among its settings. What texts say does. Where neither they do, a function
//! has done it, and the client goes back to what it began with, by which it may do less.
//!
//! Nor does one tell `SET app.tenant = ''` from `RESET app.tenant`. There it is the empty string unless a text has taken
//! the setting back: that is what functions do, and by which they may do less.

use std::collections::BTreeSet;

use crate::{
    holding::Holding,
    profile::{Profile, ROLE, SESSION_AUTHORIZATION},
    sql::{self, Reset},
};

use super::Circumstances;

/// The texts' word on such settings since the last probe.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// The users that they set.
    set: BTreeSet<&'static str>,
    /// The settings that they reset.
    resets: Option<Reset>,
    /// Whether one may reset any setting (`set_config(…, NULL, …)`).
    may_take_any: bool,
}

impl GivenUp {
    /// Notes a text; these settings it names in SET.
    pub(super) fn note_text(&mut self, text: &[u8], named: &BTreeSet<String>) {
        let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        let may_set_any = has(b"set_config");
        let names = [ROLE, SESSION_AUTHORIZATION].into_iter();
        self.set.extend(names.filter(|name| may_set_any || named.contains(*name)));
        self.may_take_any |= sql::may_set_null(text);
    }

    /// Notes settings that the client has reset. It waits for the probe that comes behind them.
    pub(super) fn note_resets(&mut self, resets: &Reset) {
        self.resets = Reset::both(self.resets.take(), Some(resets));
    }

    /// Adds what the session has set to what the server has by itself, where its client began with something else.
    pub(super) fn complete(self, holding: Holding, asked: Circumstances<'_>, start: &Profile) -> Holding {
        let is_left = |name: &str, own: &[u8]| {
            let began_elsewhere = start.get(name).is_some_and(|start| start != own);
            let is_reset = || self.resets.as_ref().is_some_and(|back| back.covers(name) || !back.is_read());
            began_elsewhere && holding.profile.get(name).is_none() && !is_reset()
        };
        let is_set = |name: &str, own: &[u8]| self.set.contains(name) || asked.profile.get(name) == Some(own);
        let users = [(ROLE, "none".as_bytes()), (SESSION_AUTHORIZATION, asked.user.as_bytes())];
        let users = users.into_iter().filter(|(name, own)| is_left(name, own) && is_set(name, own));
        let customs = holding.made.iter().map(|name| (name.as_str(), &b""[..]));
        let customs = customs.filter(|(name, own)| !self.may_take_any && is_left(name, own));
        let left: Vec<_> = users.chain(customs).map(|(name, own)| (name.to_owned(), own.into())).collect();
        if left.is_empty() {
            return holding;
        }
        let mut settings = holding.profile.settings().clone();
        settings.extend(left);
        holding.with(settings)
    }
}
