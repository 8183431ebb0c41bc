//! The session on a server, as far as the pool follows it: the settings in place, what else may be there, and what ties
//! a client to it.
//!
//! Between two reports of the server, [`Effects`] say what the session may hold besides what is known. A report counts
//! from the moment in which it is acted on, which is when its client's transaction has ended.

mod asking;
mod customs;
mod functions;

use std::collections::BTreeSet;

use crate::{
    customs::Customs,
    holding::{Holding, Pins, Prepared},
    hub::Pool,
    probe::{Probe, is_of_library},
    profile::{self, Profile, ROLE, SESSION_AUTHORIZATION, Way},
    sql::{self, Effects},
    start::Start,
};

use functions::Functions;

use super::{changing::Changing, question::Answers};

/// The session on a server.
#[derive(Debug, Default)]
pub struct ServerSession {
    /// The settings in place.
    profile: Profile,
    /// Those that were in place before a query that is to change them, which may fail.
    former: Profile,
    /// The knowledge by which the next such query is made.
    way: Way,
    /// The custom settings that there are, or may be.
    made: Customs,
    /// Those of them that there may not be: nobody has asked, or what was to make them has failed.
    unsure: BTreeSet<String>,
    /// The effects that it may have had since it was last known what the session holds.
    effects: Effects,
    /// Of the effects that texts show and nothing takes back: those of the request that is under way, and those of requests
    /// of which a part has succeeded.
    under_way: Effects,
    done: Effects,
    /// The pins that tie its client to it.
    pins: Pins,
    /// Those of them that are there because of statements that have failed: nobody else is to have the server, but its
    /// client takes them for nothing.
    tried: Pins,
    /// The state that it held when it had logged in, by itself.
    beginning: Beginning,
    /// Whether it logged in as a superuser.
    is_superusers: bool,
    /// Whether the server says by itself what it holds, since it has Sluice's extension.
    reports: bool,
    /// The last report of what it holds, until that is acted on.
    report: Option<Holding>,
    /// The functions that it has called, and that are not PostgreSQL's own.
    pub functions: Functions,
    /// Some may have been called since it was last known what it holds, where the server does not say so.
    may_have_called: bool,
    /// The probes of it, where the server says nothing by itself.
    probe: Probe,
    /// Whether the protocol may have closed a cursor or a statement since it was last known what it holds.
    has_closed: bool,
    /// The change to the catalogs that its client is making.
    changing: Changing,
    /// Its answers about its settings, in the midst of a batch.
    pub answers: Answers,
}

/// The state that a session holds when it has logged in, before any client has had it: a trigger of PostgreSQL's may
/// have set something (17 and later). To a client that is no part of what it does itself.
#[derive(Debug, Default)]
enum Beginning {
    /// Nobody knows.
    #[default]
    Unknown,
    /// These settings, and these custom ones.
    Known(Profile, Customs),
}

impl ServerSession {
    /// One that begins after so many alterations of the catalogs.
    pub fn new(altered: u64) -> Self {
        Self { functions: Functions::none(altered), ..Self::default() }
    }

    /// The settings in place.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The settings that were in place before those that are being put there.
    pub fn former(&self) -> &Profile {
        &self.former
    }

    /// The custom settings that there are, or may be, set or not.
    pub fn made(&self) -> &Customs {
        &self.made
    }

    /// The pins that tie its client to it.
    pub fn pins(&self) -> Pins {
        self.pins
    }

    /// Those that its client knows of: what has failed has left nothing.
    pub fn known_pins(&self) -> Pins {
        self.pins - self.tried
    }

    /// The same by what it has told, whether that has been acted on or not.
    pub fn told_pins(&self) -> Pins {
        self.report.as_ref().map_or(self.pins, |report| report.pins)
    }

    /// The effects that it may have had since it was last known what it holds.
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// Whether the server says by itself what it holds.
    pub fn reports(&self) -> bool {
        self.reports
    }

    /// Whether a report has come that has not been acted on.
    pub fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Whether it may hold something, or no longer, that nothing but a probe can tell of.
    pub fn is_unknown(&self) -> bool {
        let may_hold = !self.reports && self.report.is_none() && self.may_have_left_something();
        let reported = self.report.as_ref().map_or(Pins::empty(), |report| report.pins);
        let may_hold_less = self.has_closed && (self.pins | reported).intersects(Pins::CURSOR | Pins::PREPARE);
        may_hold || may_hold_less
    }

    /// Whether it logged in as a superuser, who may set everything.
    pub fn note_superuser(&mut self, is_superusers: bool) {
        self.is_superusers = is_superusers;
    }

    /// Whether it is known under which settings and by which catalogs the next statement is parsed.
    pub fn is_plain(&self) -> bool {
        !self.effects.intersects(Effects::STATE | Effects::CONTEXT | Effects::CATALOG)
            && !self.pins.intersects(Pins::TEMPORARY | Pins::SETTINGS)
    }

    /// Whether it is known which settings are in place.
    pub fn knows_settings(&self) -> bool {
        !self.effects.intersects(Effects::STATE | Effects::CONTEXT) && !self.pins.intersects(Pins::SETTINGS)
    }

    /// Whether its client is changing the catalogs.
    pub fn is_changing_catalogs(&self) -> bool {
        self.changing.is_under_way()
    }

    /// Whether it holds what only its end takes away.
    pub fn is_spent(&self) -> bool {
        self.pins.intersects(Pins::SPENT)
    }

    /// It may have had these effects.
    pub fn add_effects(&mut self, effects: Effects) {
        self.may_have_called |= effects.contains(Effects::ANYTHING);
        self.effects.insert(effects);
    }

    /// The protocol is about to close a portal, or a statement that the pool has not prepared: it may be a cursor's, or
    /// one of SQL's PREPARE.
    pub fn expect_close(&mut self) {
        self.has_closed = true;
    }

    /// A text is about to be sent that may have these effects.
    pub fn expect_text(&mut self, effects: Effects, text: &[u8], pool: &Pool, behind: impl FnOnce() -> usize) {
        self.changing.note(effects, &pool.catalog, behind);
        self.effects.insert(effects);
        self.under_way.insert(effects & (Effects::STATE | Effects::SEED | Effects::SPENDS_SERVER));
        if self.reports {
            return;
        }
        self.may_have_called |= self.functions.note_text(effects, text);
        if functions::may_name_language(text) {
            self.effects.insert(Effects::SPENDS_SERVER);
        }
        if effects.intersects(Effects::STATE) {
            self.probe.note_text(text);
        }
        if effects.intersects(Effects::UNPROBEABLE) {
            self.effects.insert(Effects::SPENDS_SERVER);
        }
    }

    /// A client that has the server for all of its session is about to send a text that may have these effects. What
    /// DISCARD ALL may not take away ends with the server.
    pub fn expect_for_session(&mut self, effects: Effects, text: &[u8], pool: &Pool, behind: impl FnOnce() -> usize) {
        self.changing.note(effects, &pool.catalog, behind);
        if !self.effects.intersects(Effects::SPENDS_SERVER) && sql::may_outlast_discard(effects, text) {
            self.effects.insert(Effects::SPENDS_SERVER);
        }
    }

    /// Whether it is to be asked what it holds by itself.
    pub fn has_unknown_beginning(&self) -> bool {
        matches!(self.beginning, Beginning::Unknown) && self.report.is_none()
    }

    /// It has logged in, and no client has had it: what it has said that it holds is there by itself.
    pub fn begin_as_told(&mut self) {
        if !matches!(self.beginning, Beginning::Unknown) {
            return;
        }
        let mut customs = Customs::default();
        if let Some(Holding { pins, profile, made, .. }) = self.report.take() {
            customs.add(made.iter().map(String::as_str));
            self.pins = pins - Pins::SEQUENCE;
            self.profile = profile;
        }
        self.beginning = Beginning::Known(self.profile.clone(), customs);
    }

    /// The settings that it has by itself.
    pub fn own_profile(&self) -> Option<&Profile> {
        match &self.beginning {
            Beginning::Known(profile, _) => Some(profile),
            Beginning::Unknown => None,
        }
    }

    /// It has told that catalogs have changed.
    pub fn count_change(&mut self) {
        self.changing.count();
    }

    /// A request has been answered, and so many have not; `is_over` says whether no transaction is open.
    pub fn answered(&mut self, is_over: bool, left: impl Fn() -> usize) {
        self.changing.answered(is_over, self.reports, &left);
        if left() == 0 {
            self.under_way = Effects::empty();
        }
    }

    /// A part of the request that is being answered has succeeded.
    pub fn has_run(&mut self) {
        self.done.insert(self.under_way);
    }

    /// The server has said by itself what it holds; `None` is a report that can't be read. A newer extension may know
    /// of things that the pool does not: they end with the server.
    pub fn hear_report(&mut self, report: Option<Holding>) {
        self.reports = true;
        if report.as_ref().is_some_and(|report| report.ran_functions) {
            self.functions.have_run();
        }
        if report.is_none() {
            self.pins.insert(Pins::UNKNOWN);
        }
        self.report = report.or_else(|| Some(Holding::unknown(self.profile.clone())));
    }

    /// Acts on the report, if there is one: what it says is in place from now on. Where it leaves out the settings, those
    /// of before count: were they taken to be gone, they would be put in place again over what its client has set. Gives
    /// the pins that it tells of, and its word on the prepared statements.
    pub fn take_report(&mut self) -> Option<(Pins, Option<Prepared>)> {
        let Holding { pins, profile, made, statements, .. } = self.report.take()?;
        self.add_made(made.iter().map(String::as_str));
        self.add_made(profile.customs());
        if !pins.intersects(Pins::SETTINGS) {
            self.profile = profile;
        }
        // The use of a sequence matters only to those who ask for it later.
        Some((pins - Pins::SEQUENCE, statements))
    }

    /// It is known what it holds: these pins, and those that last until its process ends.
    pub fn hold(&mut self, pins: Pins) {
        // Behind what may be anything, a seed may be that one's as well.
        let is_certain = self.done.intersects(Effects::STATE);
        self.tried = if is_certain { Pins::empty() } else { spent_by(self.effects) - spent_by(self.done) - self.pins };
        self.done = Effects::empty();
        self.pins = pins | self.until_its_end();
        let is_beyond = !self.is_superusers && self.profile.is_privileged();
        self.pins.set(Pins::PRIVILEGED, is_beyond);
        self.effects = Effects::empty();
        (self.has_closed, self.may_have_called) = (false, false);
    }

    /// Nobody will know what it holds. What DISCARD ALL does not take away ties it to its client.
    pub fn hold_unknown(&mut self) {
        self.pins.insert(self.until_its_end());
    }

    /// The session of a client has ended, if it has had one, which had it for all of that; it has told of these pins.
    /// What DISCARD ALL does not take away ties it to that client.
    pub fn hold_behind_session(&mut self, reported: Pins) {
        self.hold_unknown();
        self.pins.insert(reported & Pins::SPENT);
        if self.may_have_left_something() && (self.functions.may_have_run() || !self.made.is_empty()) {
            self.spend();
        }
    }

    /// Nobody else is to have it.
    pub fn spend(&mut self) {
        self.pins.insert(Pins::LIBRARY);
    }

    /// The pins that last until its process ends.
    fn until_its_end(&self) -> Pins {
        (self.pins & Pins::SPENT) | spent_by(self.effects)
    }

    /// Its client does without what ties it to the session.
    pub fn unpin(&mut self) {
        self.pins = Pins::empty();
    }

    /// The SQL that brings it to a client's settings, those that it has made without a value among them; `None` where
    /// it is there. It counts as there from now on.
    pub fn bring_to(&mut self, profile: &Profile, made: &Customs) -> Option<String> {
        if self.profile.is(profile) && self.way != Way::Anew && self.has_made(made) {
            return None;
        }
        let change = profile::transition(&self.profile, profile, self.way);
        if change.is_none() && self.has_made(made) {
            // The same settings, mostly in the very same place from now on: they are compared each time.
            self.profile = profile.clone();
            return None;
        }
        let mut sql = change.unwrap_or_default();
        if !self.has_made(made) {
            // What a library brings it brings with a value.
            let is_there = |name: &str| self.made.has(name) && !self.unsure.contains(name);
            let is_bare = |name: &&str| !is_there(name) && profile.get(name).is_none() && !is_of_library(name);
            profile::make(&mut sql, made.names().filter(is_bare));
            self.add_made(made.names());
        }
        self.add_made(profile.customs());
        self.go_to(profile.clone());
        (!sql.is_empty()).then_some(sql)
    }

    /// Whether a setting is another one by what was put in place last, or may be.
    pub fn has_put_in_place(&self, name: &str) -> bool {
        [&self.profile, &self.former].iter().any(|profile| profile.get(name).is_some())
    }

    /// The role that is set, if one is, may be another than the one that is called so now.
    pub fn doubt_role(&mut self) {
        if [ROLE, SESSION_AUTHORIZATION].iter().any(|name| self.profile.get(name).is_some()) {
            self.way = Way::Anew;
        }
    }

    /// These settings are about to be put in place.
    fn go_to(&mut self, profile: Profile) {
        self.former = std::mem::replace(&mut self.profile, profile);
        if self.way == Way::Anew {
            self.way = Way::Untimed;
        }
    }

    /// The query has failed that was to put settings in place: those of before are there, as PostgreSQL undoes all of
    /// it. The next one goes that way.
    pub fn go_back(&mut self, way: Way) {
        self.profile = std::mem::take(&mut self.former);
        self.way = way;
        // It may have made custom settings or not: their names stay, whatever is undone.
        self.unsure.extend(self.made.names().map(str::to_owned));
    }

    /// The SQL that brings it to the settings that a client starts with, as the client wrote them: on top of the
    /// server's own defaults and one after another, since one setting may keep a part of what was there before
    /// (`DateStyle`). `None` where there is nothing to do. It counts as there from now on.
    pub fn begin(&mut self, start: &Start) -> Option<String> {
        let own = self.own_profile().cloned().unwrap_or_default();
        let clear = profile::transition(&self.profile, &own, self.way);
        let set = start.sql();
        if set.is_some() {
            // PostgreSQL has the last word on what they say.
            self.effects.insert(Effects::STATE);
        }
        if start.sows() {
            // To see whether it is a valid one. No client is to have it.
            self.effects.insert(Effects::SEED);
        }
        let sql = match (clear, set) {
            (Some(clear), Some(set)) => Some(clear + &set),
            (clear, set) => clear.or(set),
        };
        if sql.is_some() && self.reports {
            // It will say nothing if that brings it to where it was.
            self.report = Some(self.held());
        }
        let profile = own.with(start.profile());
        self.add_made(profile.customs());
        self.go_to(profile);
        sql
    }

    /// The holding that was last known of it.
    fn held(&self) -> Holding {
        let pins = self.pins - Pins::SOFT;
        Holding { pins, profile: self.profile.clone(), made: BTreeSet::new(), statements: None, ran_functions: false }
    }

    /// Whether a client has left something there that nobody else is to find.
    pub fn is_left_over(&self) -> bool {
        self.may_have_left_something() || !self.pins.is_empty()
    }

    /// Whether it may hold something more since then.
    pub fn may_have_left_something(&self) -> bool {
        self.effects.intersects(Effects::STATE | Effects::CUSTOM)
    }

    /// DISCARD ALL is about to take away all that it holds.
    pub fn discard(&mut self) {
        self.pins = Pins::empty();
        // The names of custom settings stay, whether nobody has asked for them or nobody has acted on the answer.
        let customs = self.probe.abandon();
        self.may_have_made(customs);
        if let Some(Holding { profile, made, .. }) = self.report.take() {
            self.add_made(made.iter().map(String::as_str).chain(profile.customs()));
        }
        self.profile = Profile::default();
    }

    /// DISCARD ALL has taken all away.
    pub fn discarded(&mut self) {
        self.effects = Effects::empty();
        self.report = None;
    }

    /// Its client has discarded the settings.
    pub fn discard_settings(&mut self) {
        self.profile = Profile::default();
    }
}

/// The pins that such effects leave until the process ends.
fn spent_by(effects: Effects) -> Pins {
    let mut pins = Pins::empty();
    pins.set(Pins::SEED, effects.intersects(Effects::SEED));
    pins.set(Pins::LIBRARY, effects.intersects(Effects::SPENDS_SERVER));
    pins
}

#[cfg(test)]
mod tests {
    use sluice_wire::startup::{ProtocolVersion, SessionRequest};

    use crate::sql::CustomNames;

    use super::*;

    fn holding(report: &str) -> Holding {
        Holding::read(report).expect("it is well-formed")
    }

    fn start(name: &str, value: &str) -> Start {
        let parameters = vec![(name.to_owned(), value.to_owned())];
        Start::of(&SessionRequest { version: ProtocolVersion::V3_0, parameters }).expect("it is valid")
    }

    #[test]
    fn a_report_counts_when_it_is_acted_on() {
        let mut session = ServerSession::default();
        session.add_effects(Effects::STATE);
        assert!(session.is_unknown() && !session.is_plain());
        session.hear_report(Some(holding("pins=temp,sequence set=6765716f:6f6666 made=612e62")));
        assert!(session.has_report() && !session.is_unknown() && session.profile().get("geqo").is_none());
        let (pins, prepared) = session.take_report().expect("there is one");
        assert_eq!((pins, prepared), (Pins::TEMPORARY, Some(Prepared::Deallocated(0))));
        assert_eq!(session.profile().get("geqo"), Some(&b"off"[..]));
        assert!(session.made().has("a.b"));
        session.hold(pins);
        assert!(session.effects().is_empty() && session.pins() == pins && session.take_report().is_none());
    }

    #[test]
    fn what_the_protocol_has_closed_is_asked_for() {
        let mut session = ServerSession::default();
        session.expect_close();
        assert!(!session.is_unknown(), "nothing ties its client to it");
        session.hold(Pins::CURSOR);
        assert!(!session.is_unknown());
        session.expect_close();
        assert!(session.is_unknown());
        // One that reports may have said so before.
        let mut session = ServerSession::default();
        session.hear_report(Some(holding("pins=prepare")));
        session.expect_close();
        assert!(session.is_unknown() && session.has_report());
    }

    #[test]
    fn what_only_the_end_takes_away_stays() {
        for (effects, pin) in [(Effects::SEED, Pins::SEED), (Effects::SPENDS_SERVER, Pins::LIBRARY)] {
            let mut session = ServerSession::default();
            session.add_effects(effects);
            assert!(!session.is_spent());
            session.hold(Pins::LOCK);
            assert_eq!(session.pins(), Pins::LOCK | pin);
            session.hold(Pins::empty());
            assert!(session.is_spent() && session.pins() == pin);
        }
        let mut session = ServerSession::default();
        session.hear_report(None);
        assert!(session.is_spent() && session.reports(), "a newer extension may mean anything");
    }

    #[test]
    fn settings_that_are_not_told_stay_and_tie_the_client() {
        let mut session = ServerSession::default();
        for (report, is_known) in
            [("set=6765716f:6f6666", true), ("pins=settings", false), ("set=6765716f:6f6666", false)]
        {
            session.hear_report(Some(holding(report)));
            let (pins, _) = session.take_report().expect("there is one");
            session.hold(pins);
            assert_eq!(session.profile().get("geqo"), Some(&b"off"[..]), "{report}");
            assert_eq!((session.is_plain(), session.knows_settings()), (is_known, is_known), "{report}");
            assert_eq!((session.is_spent(), session.pins().are_lasting()), (!is_known, !is_known), "{report}");
        }
    }

    #[test]
    fn settings_are_put_in_place_once() {
        let (mut session, mut made) = (ServerSession::default(), Customs::default());
        let profile = start("geqo", "off").profile();
        made.add(["a.b"]);
        let sql = session.bring_to(&profile, &made).expect("they differ");
        assert!(sql.contains("'geqo','off'") && sql.contains("'a.b',''"), "{sql}");
        assert_eq!(session.bring_to(&profile, &made), None);
        let sql = session.bring_to(&Profile::default(), &Customs::default());
        assert_eq!(sql.as_deref(), Some("RESET \"geqo\";"), "what has been made stays");
    }

    #[test]
    fn what_may_have_been_made_is_made_where_it_is_needed() {
        let (mut session, mut made) = (ServerSession::default(), Customs::default());
        made.add(["a.b"]);
        let makes = |sql: Option<String>| sql.is_some_and(|sql| sql.contains("'a.b',''"));
        session.expect_customs(CustomNames { known: ["a.b".to_owned()].into(), has_others: false }, true);
        session.discard();
        assert!(session.made().has("a.b"), "nobody else is to find it");
        assert!(makes(session.bring_to(&Profile::default(), &made)), "nobody knows");
        assert_eq!(session.bring_to(&Profile::default(), &made), None);
        session.go_back(Way::Untimed);
        assert!(makes(session.bring_to(&Profile::default(), &made)), "what was to make it has failed");
    }

    #[test]
    fn a_start_is_known_when_the_server_has_said_what_it_comes_to() {
        let mut session = ServerSession::default();
        assert_eq!(session.begin(&Start::default()), None);
        assert!(!session.is_unknown());
        assert!(session.begin(&start("datestyle", "sql")).is_some() && session.is_unknown());
        session.hear_report(Some(holding("")));
        session.take_report();
        assert!(session.begin(&start("datestyle", "iso")).is_some());
        assert!(session.has_report(), "it says nothing where it is what it was");
    }

    #[test]
    fn a_seed_that_a_client_starts_with_is_nobodys() {
        let mut session = ServerSession::default();
        assert!(session.begin(&start("Seed", "0.5")).is_some_and(|sql| sql.contains("'Seed','0.5'")));
        assert_eq!(session.profile().get("seed"), None);
        session.hold(Pins::empty());
        assert!(session.is_spent());
    }
}
