//! The settings that a session has given up, where its client began with them: the users whom it works as, and custom
//! settings that are empty, or as its role has them.
//!
//! No query tells `SET ROLE NONE` from `RESET ROLE`: the server does not know what the client began with, and lists
//! neither `role` nor `session_authorization` among its settings. What texts say does. Where neither they do, a function
//! has done it, and the client goes back to what it began with, by which it may do less.
//!
//! Nor does one tell `SET app.tenant = ''` from `RESET app.tenant`, or where the role has a value of it
//! (`ALTER ROLE … SET`), a SET to that. There it is this value unless a text has taken the setting back: that is what
//! functions do, and by which they may do less.

use std::collections::BTreeSet;

use crate::{
    holding::Holding,
    profile::{Profile, ROLE, SESSION_AUTHORIZATION},
    sql::{self, Reset},
};

use super::{Circumstances, beginnings::Beginnings};

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
        let may_set_any = sql::has_word(text, b"set_config");
        let names = [ROLE, SESSION_AUTHORIZATION].into_iter();
        self.set.extend(names.filter(|name| may_set_any || named.contains(*name)));
        self.note_users(sql::users_set_by_code(text));
        self.may_take_any |= sql::may_set_null(text);
    }

    /// Notes users that code sets.
    pub(super) fn note_users(&mut self, set: BTreeSet<&'static str>) {
        self.set.extend(set);
    }

    /// Notes settings that the client has reset. It waits for the probe that comes behind them.
    pub(super) fn note_resets(&mut self, resets: &Reset) {
        self.resets = Reset::both(self.resets.take(), Some(resets));
    }

    /// Gives what the session has set itself, where its client began with something else than the server.
    pub(super) fn complete(
        self,
        holding: Holding,
        asked: Circumstances<'_>,
        begun: &Beginnings,
        start: &Profile,
    ) -> Holding {
        let began_elsewhere = |name: &str, own: &[u8]| start.get(name).is_some_and(|start| start != own);
        let is_reset = |name: &str| self.resets.as_ref().is_some_and(|back| back.covers(name) || !back.is_read());
        let is_left = |name: &str, own: &[u8]| {
            began_elsewhere(name, own) && holding.profile.get(name).is_none() && !is_reset(name)
        };
        let is_set = |name: &str, own: &[u8]| self.set.contains(name) || asked.profile.get(name) == Some(own);
        let users = [(ROLE, "none".as_bytes()), (SESSION_AUTHORIZATION, asked.user.as_bytes())];
        let users = users.into_iter().filter(|(name, own)| is_left(name, own) && is_set(name, own));
        let customs = holding.made.iter().map(|name| (name.as_str(), &b""[..]));
        let customs = customs.filter(|(name, own)| !self.may_take_any && is_left(name, own));
        let left: Vec<_> = users.chain(customs).map(|(name, own)| (name.to_owned(), own.into())).collect();
        // What is as the server has it, and was taken back, is the server's.
        let is_back = |name: &str, own: &[u8]| {
            began_elsewhere(name, own)
                && holding.profile.get(name) == Some(own)
                && (self.may_take_any || is_reset(name))
        };
        let back: Vec<_> = begun.customs().filter(|(name, own)| is_back(name, own)).map(|(name, _)| name).collect();
        if left.is_empty() && back.is_empty() {
            return holding;
        }
        let mut settings = holding.profile.settings().clone();
        settings.extend(left);
        settings.retain(|name, _| !back.contains(&name.as_str()));
        holding.with(settings)
    }
}
