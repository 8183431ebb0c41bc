//! How a server is asked what its session holds, and hears itself answer.

use crate::{
    customs::Customs,
    hub::Pool,
    probe::{Circumstances, Seen},
    profile::Profile,
    sql::{Effects, Reset},
    time::Time,
};

use super::ServerSession;

impl ServerSession {
    /// The query that asks what it holds.
    ///
    /// A server that says so by itself does at the end of a transaction, which closing something by the protocol is not:
    /// so it gets an empty one.
    pub fn ask(&mut self, now: Time, pool: &Pool) -> String {
        if self.reports {
            return String::new();
        }
        self.report = None;
        self.probe.ask(now, circumstances(pool, &self.profile, &self.made))
    }

    /// Its client has reset settings, for longer than a transaction.
    pub fn note_resets(&mut self, resets: &Reset) {
        if !self.reports {
            self.probe.note_resets(resets);
        }
    }

    /// A row of the answer.
    pub fn hear_row(&mut self, row: &str) {
        self.probe.hear(row);
    }

    /// The answer has come whole; `start` is what its client began with. Returns whether it makes sense.
    pub fn conclude_probe(&mut self, start: &Profile, pool: &Pool) -> bool {
        if self.reports {
            // It says nothing where it holds what it held.
            if self.report.is_none() {
                self.report = Some(self.held());
            }
            self.has_closed = false;
            return true;
        }
        match self.probe.conclude(circumstances(pool, &self.profile, &self.made), start) {
            Seen::Holding(holding) => {
                self.has_closed = false;
                if self.may_have_called && self.probe.has_languages() {
                    self.effects.insert(Effects::SPENDS_SERVER);
                }
                // Their names stay, whoever acts on the rest.
                self.add_made(holding.made.iter().map(String::as_str).chain(holding.profile.customs()));
                self.report = Some(holding);
            }
            Seen::Again => debug_assert!(self.is_unknown(), "what nobody takes for unknown is not asked again"),
            Seen::Nothing => return false,
        }
        true
    }

    /// A probe has failed; returns whether another one can make that good.
    pub fn probe_fails(&mut self, is_timed_out: bool) -> bool {
        self.probe.fails(is_timed_out, &self.profile)
    }
}

fn circumstances<'a>(pool: &'a Pool, profile: &'a Profile, made: &'a Customs) -> Circumstances<'a> {
    Circumstances { catalog: pool.catalog.version(), user: &pool.upstream.user, profile, made }
}
