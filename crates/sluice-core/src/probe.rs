//! Probes: how a server without the extension is asked what its session holds.
//!
//! PostgreSQL has one view that tells which settings a session has set, and computing it is dear. So it is read once on
//! a server, for the values that the settings have there by themselves. From then on a probe is brief: it asks for the
//! values alone, and a setting whose value is another one was set by the session. Whatever that does not show for
//! certain is read in full: a setting that is back at the server's own value where that may be a SET or a RESET, a
//! reloaded configuration, and libraries that may have brought settings nobody knows of.
//!
//! The queries run under the client's settings: every name is qualified, no operator is used, and what could end them
//! or have them compiled is switched off before.

mod beginnings;
mod defaults;
mod given_up;
mod queries;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    customs::Customs,
    holding::{Holding, Pins, unhex},
    profile::{Profile, Settings},
    sql::{Reset, has_word, settings_named, spelled_out, users_set_by_parameters},
    time::Time,
};

use beginnings::Beginnings;
use defaults::{ABSENT, Value};
use given_up::GivenUp;

pub use defaults::{Defaults, is_of_library};

/// Custom settings that a server may be asked for at once. A text that names more of what could be one is rare.
const CUSTOMS_MAX: usize = 1024;

/// The time for which it is taken for known which libraries functions could load, where nobody has been seen to make
/// functions.
const LIBRARIES_AGE_MAX: Duration = Duration::from_secs(60);

const STATEMENT_TIMEOUT: &str = "statement_timeout";
const JIT: &str = "jit";

/// The names of settings by which a query is compiled have one of these in them: the planner's costs, and its methods,
/// which are taken for dear where they are switched off.
const DEAR: [&str; 3] = [JIT, "_cost", "enable_"];

/// Settings of a transaction, and the seed, which is a pin.
const OF_TRANSACTION: [&str; 4] = ["seed", "transaction_deferrable", "transaction_isolation", "transaction_read_only"];

/// One server's probes.
#[derive(Debug, Default)]
pub struct Probe {
    /// Custom settings that may have been made since it was last known what the session holds.
    customs: BTreeSet<String>,
    /// Settings that texts have set since.
    named: BTreeSet<String>,
    /// Whether `statement_timeout` may have changed since.
    may_set_timeout: bool,
    /// Whether settings may have changed since by which PostgreSQL compiles a query, or takes it for a dear one.
    may_be_dear: bool,
    /// Whether a text may have set `jit` itself since.
    may_set_jit: bool,
    /// Whether the probe in full that is under way has switched `jit` off, and says first what it was.
    hides_jit: bool,
    given_up: GivenUp,
    /// The values that settings have there by themselves.
    defaults: Option<Arc<Defaults>>,
    /// The settings that a session begins with by its role and its database.
    beginnings: Beginnings,
    libraries: Libraries,
    /// There are functions in other languages than SQL and PL/pgSQL, as of when the libraries were asked for.
    has_languages: bool,
    /// Whether there is a temporary schema, which stays until the session ends.
    has_schema: bool,
    depth: Depth,
    stage: Stage,
    /// The time at which the probe that is under way was taken, and the version of the catalogs then.
    asked: Option<(u64, Time)>,
    answer: String,
}

/// The catalogs' functions in C, which bring libraries with them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Libraries {
    /// Nobody has asked.
    #[default]
    Unknown,
    /// It is known what settings they bring, by the catalogs of that version.
    Known(u64, Time),
    /// One of them may bring settings that nobody knows of.
    Foreign(u64, Time),
}

/// The depth of the next probe.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Depth {
    /// No more than is needed.
    #[default]
    Needed,
    /// Everything, since a brief probe did not tell; that probe has seen this time-out.
    Full(Option<Timeout>),
    /// Everything, since the session's time-out, which nobody knows, has ended a probe in full.
    Untimed,
    /// Everything, always: a brief probe has failed there.
    AlwaysFull,
}

/// A `statement_timeout` that a probe in full can't see, since it sets another one for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Timeout {
    /// The session has set it.
    Set(Value),
    /// It is the server's own.
    Own(Value),
}

/// The probe that is under way.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// For the values alone; these it has set itself, and says first what they were.
    Brief(Vec<&'static str>),
    Full(Option<Timeout>),
    /// Everything but the time-out, of which it says first what it was, and what it is by itself.
    Untimed,
}

impl Stage {
    fn is_full(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Untimed)
    }
}

/// The circumstances of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The version of the database's catalogs.
    pub catalog: u64,
    /// The user that the pool logs in as.
    pub user: &'a str,
    /// The settings in place, as far as is known.
    pub profile: &'a Profile,
    /// The custom settings that there are, as far as is known.
    pub made: &'a Customs,
}

/// The outcome of a probe.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// The session holds this.
    Holding(Holding),
    /// It has to be asked again.
    Again,
    /// The answer makes no sense.
    Nothing,
}

impl Probe {
    /// Notes a text that may leave something, and is about to be sent.
    pub fn note_text(&mut self, text: &[u8]) {
        let named = settings_named(text);
        self.given_up.note_text(text, &named);
        self.named.extend(named);
        let text = &*spelled_out(text);
        self.may_set_timeout |= text.is_empty() || has_word(text, STATEMENT_TIMEOUT.as_bytes()) || !is_set(text);
        self.may_be_dear |= names_dear(text);
        self.may_set_jit |= text.is_empty() || names_jit(text);
    }

    /// The session's client has reset settings, for longer than a transaction.
    pub fn note_resets(&mut self, resets: &Reset) {
        self.given_up.note_resets(resets);
    }

    /// Notes parameters of what may leave something: `rest` is a Bind's body behind the names, or a FunctionCall's behind
    /// the function.
    pub fn note_parameters(&mut self, rest: &[u8]) {
        self.given_up.note_users(users_set_by_parameters(rest));
        self.may_be_dear |= names_dear(rest);
    }

    /// Notes custom settings that may be made. Returns whether all of them can be asked for.
    pub fn note_customs(&mut self, names: BTreeSet<String>) -> bool {
        let has_room = self.customs.len() + names.len() <= CUSTOMS_MAX;
        if has_room {
            self.customs.extend(names);
        }
        has_room
    }

    /// The query that asks.
    pub fn ask(&mut self, now: Time, asked: Circumstances<'_>) -> String {
        self.answer.clear();
        self.asked = Some((asked.catalog, now));
        let listed = asked.profile.customs().chain(asked.made.names());
        let customs: BTreeSet<&str> = listed.chain(self.customs.iter().map(String::as_str)).collect();
        let mut sql = String::new();
        let defaults =
            self.defaults.clone().filter(|_| self.depth == Depth::Needed && self.knows_libraries(now, asked.catalog));
        match defaults {
            Some(defaults) => {
                let switched = self.switched(asked.profile);
                queries::put_switches(&mut sql, &switched);
                queries::put_brief(&mut sql, asked.user, &customs, &defaults);
                (self.stage, self.hides_jit) = (Stage::Brief(switched), false);
            }
            None => {
                let known = || self.known_timeout(asked.profile);
                let (stage, next) = match &self.depth {
                    Depth::Needed => (Stage::Full(known()), Depth::Needed),
                    Depth::Full(timeout) => (Stage::Full(timeout.clone().or_else(known)), Depth::Needed),
                    Depth::Untimed => (Stage::Untimed, Depth::Needed),
                    Depth::AlwaysFull => (Stage::Full(known()), Depth::AlwaysFull),
                };
                (self.stage, self.depth) = (stage, next);
                self.hides_jit = self.is_dear(asked.profile) && !self.may_set_jit;
                if self.hides_jit {
                    queries::put_without_jit(&mut sql);
                }
                match self.stage {
                    Stage::Untimed => queries::put_untimed(&mut sql),
                    Stage::Full(Some(_)) => sql.push_str("SET LOCAL statement_timeout = 0;"),
                    _ => {}
                }
                queries::put_full(&mut sql, asked.user, &customs);
                queries::put_beginnings(&mut sql, asked.user);
            }
        }
        if self.has_schema {
            queries::put_temporary(&mut sql);
        }
        if self.stage.is_full() && self.asks_for_libraries(now, asked.catalog) {
            queries::put_libraries(&mut sql);
        }
        sql
    }

    /// Nobody waits for what is asked any more, and its client's settings are taken away. Returns the custom settings
    /// that may have been made since the last probe.
    pub fn abandon(&mut self) -> BTreeSet<String> {
        if self.depth != Depth::AlwaysFull {
            self.depth = Depth::Needed;
        }
        self.given_up = GivenUp::default();
        std::mem::take(&mut self.customs)
    }

    /// Whether functions may keep values in the session, which nothing shows.
    pub fn has_languages(&self) -> bool {
        self.has_languages
    }

    /// A row of the answer has come.
    pub fn hear(&mut self, row: &str) {
        self.answer.push_str(row);
        self.answer.push(' ');
    }

    /// The query has failed, perhaps by a time-out. Returns whether it can be made good by another one.
    pub fn fails(&mut self, is_timed_out: bool, profile: &Profile) -> bool {
        match &self.stage {
            Stage::Brief(_) => self.depth = Depth::AlwaysFull,
            // The session has set none.
            Stage::Full(None) if is_timed_out && !self.may_set_timeout && profile.get(STATEMENT_TIMEOUT).is_none() => {
                self.depth = Depth::Full(Some(Timeout::Own(Value::default())));
            }
            Stage::Full(None) if is_timed_out => self.depth = Depth::Untimed,
            _ => return false,
        }
        true
    }

    /// The answer has come to its end. `start` is what the session's client began with, to which it goes back by RESET.
    pub fn conclude(&mut self, asked: Circumstances<'_>, start: &Profile) -> Seen {
        let stage = std::mem::take(&mut self.stage);
        let has_failed = match stage {
            Stage::Brief(_) => self.depth == Depth::AlwaysFull,
            Stage::Full(_) => matches!(self.depth, Depth::Full(_) | Depth::Untimed),
            Stage::Untimed | Stage::None => false,
        };
        if has_failed {
            return Seen::Again;
        }
        let Some(mut answer) = Answer::read(&self.answer) else { return Seen::Nothing };
        self.answer = String::new();
        if let Some(list) = &answer.begins {
            self.beginnings = Beginnings::read(list);
        }
        answer.holding = self.beginnings.complete(answer.holding, answer.role.as_deref(), &answer.empty);
        if answer.has_schema && !self.has_schema {
            self.has_schema = true;
            if self.depth == Depth::Needed {
                self.depth = match stage {
                    Stage::Full(timeout) => Depth::Full(timeout),
                    Stage::Untimed => Depth::Untimed,
                    Stage::Brief(_) | Stage::None => Depth::Needed,
                };
            }
            return Seen::Again;
        }
        if std::mem::take(&mut self.hides_jit) && !answer.show_jit(asked.profile) {
            return Seen::Nothing;
        }
        let holding = match stage {
            Stage::None => return Seen::Nothing,
            Stage::Brief(switched) => {
                let judged = self.judge(&answer, &switched, asked.profile, start);
                let Some(settings) = judged else {
                    self.depth = Depth::Full(self.timeout_seen(&answer, &switched, asked.profile));
                    return Seen::Again;
                };
                answer.holding.with(settings)
            }
            Stage::Full(timeout) => {
                let own = timeout.as_ref().and_then(|_| self.own_timeout(&answer));
                self.take_full(answer, timeout, own)
            }
            Stage::Untimed => {
                let [was, own] = &answer.was[..] else { return Seen::Nothing };
                let [was, own] = [was, own].map(|value| Value::from(value.as_bytes()));
                let timeout = if was == own { Timeout::Own(was) } else { Timeout::Set(was) };
                self.take_full(answer, Some(timeout), Some(own))
            }
        };
        if !holding.pins.intersects(Pins::PREPARE) {
            // What SQL has prepared may make those that it names whenever it is executed.
            self.customs.clear();
        }
        self.named.clear();
        (self.may_set_timeout, self.may_be_dear, self.may_set_jit) = (false, false, false);
        Seen::Holding(std::mem::take(&mut self.given_up).complete(holding, asked, &self.beginnings, start))
    }

    /// Settings that a brief probe sets to what it needs: those by which it could be ended, or compiled.
    fn switched(&self, profile: &Profile) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self.is_dear(profile) {
            names.push(JIT);
        }
        if self.may_set_timeout || profile.get(STATEMENT_TIMEOUT).is_some() {
            names.push(STATEMENT_TIMEOUT);
        }
        if profile.get("transaction_timeout").is_some() {
            names.push("transaction_timeout");
        }
        names
    }

    /// Whether a probe might be compiled, which takes far longer than to run it.
    fn is_dear(&self, profile: &Profile) -> bool {
        self.may_be_dear || profile.settings().keys().any(|name| names_dear(name.as_bytes()))
    }

    /// A time-out that the client has not changed since must not end a probe.
    fn known_timeout(&self, profile: &Profile) -> Option<Timeout> {
        let timeout = profile.get(STATEMENT_TIMEOUT).filter(|_| !self.may_set_timeout)?;
        Some(Timeout::Set(timeout.into()))
    }

    /// The time-out that a brief probe has seen, if it is known whose it is.
    fn timeout_seen(&self, answer: &Answer, switched: &[&str], profile: &Profile) -> Option<Timeout> {
        let place = switched.iter().position(|name| *name == STATEMENT_TIMEOUT)?;
        let seen: Value = answer.was.get(place)?.as_bytes().into();
        let own = self.defaults.as_deref()?.value(STATEMENT_TIMEOUT)?;
        if *seen == *b"0" {
            return None;
        }
        let is_own = *seen == **own && profile.get(STATEMENT_TIMEOUT) != Some(&seen);
        Some(if is_own { Timeout::Own(seen) } else { Timeout::Set(seen) })
    }

    /// The settings of a session, by their values; `None` where those do not tell.
    fn judge(&self, answer: &Answer, switched: &[&str], before: &Profile, start: &Profile) -> Option<Settings> {
        let defaults = self.defaults.as_deref().filter(|defaults| answer.conf.as_ref() == Some(&defaults.conf))?;
        if answer.was.len() != switched.len() {
            return None;
        }
        let was: BTreeMap<&str, &[u8]> =
            switched.iter().copied().zip(answer.was.iter().map(String::as_bytes)).collect();
        let mut settings = answer.holding.profile.settings().clone();
        for (name, own, seen) in defaults.compare(answer.values.as_deref()?)? {
            let seen = was.get(name).copied().unwrap_or(seen);
            let set = before.get(name);
            // What a library has brought is not there by itself, and not by the session.
            settings.remove(name);
            let is_own = own.is_some_and(|own| **own == *seen);
            // It may be a RESET, after which the client has what it began with.
            let goes_elsewhere = (is_own || own.is_none()) && start.get(name).is_some_and(|start| start != seen);
            match own {
                _ if goes_elsewhere => return None,
                _ if set == Some(seen) => {}
                Some(_) if is_own => {
                    // It may be a SET.
                    if self.named.contains(name) {
                        return None;
                    }
                    continue;
                }
                Some(own) if **own != *ABSENT && seen != ABSENT => {}
                _ => return None,
            }
            settings.insert(name.to_owned(), seen.into());
        }
        Some(settings)
    }

    /// The server's own time-out, as was known before, if its configuration is the same.
    fn own_timeout(&self, answer: &Answer) -> Option<Value> {
        let defaults = self.defaults.as_deref().filter(|defaults| answer.conf.as_ref() == Some(&defaults.conf))?;
        defaults.value(STATEMENT_TIMEOUT).cloned()
    }

    /// Takes what a probe in full has told, the defaults among it; of the time-out, if it has set that itself, what is
    /// known besides.
    fn take_full(&mut self, answer: Answer, timeout: Option<Timeout>, own_timeout: Option<Value>) -> Holding {
        let mut settings = answer.holding.profile.settings().clone();
        settings.retain(|name, _| !OF_TRANSACTION.contains(&name.as_str()));
        match timeout {
            Some(Timeout::Set(value)) => {
                settings.insert(STATEMENT_TIMEOUT.to_owned(), value);
            }
            Some(Timeout::Own(_)) => {
                settings.remove(STATEMENT_TIMEOUT);
            }
            None => {}
        }
        if let (Some(list), Some((catalog, at))) = (answer.libraries.as_deref(), self.asked) {
            let known = if defaults::is_foreign(list) { Libraries::Foreign } else { Libraries::Known };
            self.libraries = known(catalog, at);
            self.has_languages = answer.has_languages;
        }
        // Another role than the one that the pool logs in as may not see all.
        let is_pools = answer.role.as_deref().is_none_or(|role| role == beginnings::NO_ROLE)
            && !["role", "session_authorization"].iter().any(|name| settings.contains_key(*name));
        if let (true, Some(conf), Some(list)) = (is_pools, answer.conf, answer.defaults.as_deref()) {
            self.defaults = Defaults::read(conf, list, own_timeout).map(Arc::new);
        }
        answer.holding.with(settings)
    }

    /// Whether functions can't have loaded a library with settings that nobody knows of.
    fn knows_libraries(&self, now: Time, catalog: u64) -> bool {
        matches!(self.libraries, Libraries::Known(version, at)
            if version == catalog && now.since(at) < LIBRARIES_AGE_MAX)
    }

    fn asks_for_libraries(&self, now: Time, catalog: u64) -> bool {
        match self.libraries {
            Libraries::Unknown => true,
            Libraries::Known(version, at) | Libraries::Foreign(version, at) => {
                version != catalog || now.since(at) >= LIBRARIES_AGE_MAX
            }
        }
    }
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answer {
    holding: Holding,
    has_schema: bool,
    /// The time at which the server's configuration was last read.
    conf: Option<String>,
    /// What the settings were that the probe has set itself, in the order in which it has.
    was: Vec<String>,
    values: Option<Vec<u8>>,
    defaults: Option<Vec<u8>>,
    libraries: Option<Vec<u8>>,
    has_languages: bool,
    /// The role that it works as.
    role: Option<Vec<u8>>,
    /// The custom settings that are empty strings.
    empty: Vec<String>,
    begins: Option<Vec<u8>>,
}

impl Answer {
    /// Has the session's own `jit` in place of the one that the probe has set: it said first what that was, and no text
    /// has set it since. `false` if it did not say so.
    fn show_jit(&mut self, before: &Profile) -> bool {
        if self.was.is_empty() {
            return false;
        }
        let was: Value = self.was.remove(0).as_bytes().into();
        let defaults = self.conf.clone().zip(self.defaults.as_deref());
        let defaults = defaults.and_then(|(conf, list)| Defaults::read(conf, list, None));
        let is_own = defaults.is_some_and(|defaults| defaults.value(JIT) == Some(&was));
        let mut settings = self.holding.profile.settings().clone();
        settings.remove(JIT);
        if !is_own || before.get(JIT) == Some(&was) {
            settings.insert(JIT.to_owned(), was);
        }
        self.holding.profile = Profile::new(settings);
        true
    }

    fn read(text: &str) -> Option<Self> {
        let mut answer = Self {
            holding: Holding::read("")?,
            has_schema: false,
            conf: None,
            was: Vec::new(),
            values: None,
            defaults: None,
            libraries: None,
            has_languages: false,
            role: None,
            empty: Vec::new(),
            begins: None,
        };
        let mut held = String::new();
        for field in text.split(' ').filter(|field| !field.is_empty()) {
            let Some((name, value)) = field.split_once('=') else {
                // Of `jit`, which is shown before anything is planned.
                answer.was.push(field.to_owned());
                continue;
            };
            match name {
                "schema" => answer.has_schema = value != "0",
                "conf" => answer.conf = Some(value.to_owned()),
                "was" => answer.was.extend(value.split(',').map(str::to_owned)),
                "values" => answer.values = Some(unhex(value)?),
                "defaults" => answer.defaults = Some(unhex(value)?),
                "libraries" => answer.libraries = Some(unhex(value)?),
                "languages" => answer.has_languages = value == "others",
                "role" => answer.role = Some(unhex(value)?),
                "begins" => answer.begins = Some(unhex(value)?),
                "empty" => {
                    for name in value.split(',').filter(|name| !name.is_empty()) {
                        answer.empty.push(String::from_utf8(unhex(name)?).ok()?);
                    }
                }
                _ => {
                    held.push_str(field);
                    held.push(' ');
                }
            }
        }
        answer.holding = Holding::read(&held)?;
        Some(answer)
    }
}

/// Whether a text may name a setting by which a query is compiled.
fn names_dear(text: &[u8]) -> bool {
    DEAR.iter().any(|part| has_word(text, part.as_bytes()))
}

/// Whether a text may name `jit` itself, and not a setting whose name begins like that.
fn names_jit(text: &[u8]) -> bool {
    let is_it =
        |(at, word): (usize, &[u8])| word.eq_ignore_ascii_case(JIT.as_bytes()) && text.get(at + 3) != Some(&b'_');
    text.windows(3).enumerate().any(is_it)
}

/// Whether a text shows all settings that it makes: it is a SET, and nothing else.
fn is_set(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    text.get(..4).is_some_and(|verb| verb.eq_ignore_ascii_case(b"set ")) && !text.contains(&b';')
}

#[cfg(test)]
mod tests;
