//! The settings of a client's session that differ from its server's own defaults, and how to bring a server to them.

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::{Arc, LazyLock},
    time::Duration,
};

use sha2::{Digest, Sha256};
use sluice_units::{Dimension, Quantity, Unit};

use crate::privileged::is_privileged;

pub mod literals;

/// Settings by their lower-case names. Values are bytes in the encoding of the server's database.
pub type Settings = BTreeMap<String, Box<[u8]>>;

/// Settings that differ from the server's own defaults. Shared and immutable; cheap to clone.
#[derive(Debug, Clone)]
pub struct Profile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    context: Context,
    limits: TimeLimits,
    /// Whether one of them is such that a server can't be left in its pool with it.
    is_for_clients: bool,
    /// Whether only superusers may set one of them.
    is_privileged: bool,
}

/// The limits that a session has set itself for the time in which it does nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// Between transactions, after which PostgreSQL ends it (`idle_session_timeout`).
    pub idle_session: Option<Duration>,
    /// Whether there is one that counts from a BEGIN on, which a server then has to see at once.
    pub in_transactions: bool,
}

impl TimeLimits {
    fn of(settings: &Settings) -> Self {
        let limit = |name: &str| settings.get(name).and_then(|value| read_time(value)).filter(|time| !time.is_zero());
        let in_transactions = ["idle_in_transaction_session_timeout", "transaction_timeout"];
        Self {
            idle_session: limit(IDLE_SESSION_TIMEOUT),
            in_transactions: in_transactions.into_iter().any(|name| limit(name).is_some()),
        }
    }
}

/// A time as PostgreSQL reads it where milliseconds are meant if it says nothing else.
fn read_time(value: &[u8]) -> Option<Duration> {
    let ms = Unit::parse("ms")?;
    let time =
        Quantity::parse(std::str::from_utf8(value).ok()?, ms).filter(|time| time.dimension == Dimension::Time)?;
    let time_ms = time.amount.round();
    (0.0..=f64::from(i32::MAX)).contains(&time_ms).then(|| Duration::from_millis(time_ms as u64))
}

/// A fingerprint of the settings that parsing, planning or literals read: the same text and types parsed in the same
/// context mean the same.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context(u128);

/// Settings that matter only while a statement runs, or to nobody but an observer (PostgreSQL documentation, chapter
/// 20). All others are part of the [`Context`].
const EXECUTION_ONLY: [&str; 35] = [
    "application_name",
    "backend_flush_after",
    "client_connection_check_interval",
    "commit_delay",
    "commit_siblings",
    "deadlock_timeout",
    "debug_pretty_print",
    "debug_print_parse",
    "debug_print_plan",
    "debug_print_rewritten",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "log_duration",
    "log_error_verbosity",
    "log_executor_stats",
    "log_lock_waits",
    "log_min_duration_sample",
    "log_min_duration_statement",
    "log_min_error_statement",
    "log_min_messages",
    "log_parser_stats",
    "log_planner_stats",
    "log_statement",
    "log_statement_stats",
    "maintenance_work_mem",
    "statement_timeout",
    "synchronous_commit",
    "temp_file_limit",
    "tcp_user_timeout",
    "transaction_timeout",
    "vacuum_cost_delay",
];

/// Whether parsing, planning or a literal may read a setting, by its lower-case name. Custom settings are read by
/// functions, and those of plans that are kept run each time anew.
pub(crate) fn is_context(name: &str) -> bool {
    !name.contains('.') && !EXECUTION_ONLY.contains(&name)
}

/// Settings under which a query of Sluice's own might fail or wait: they are reset before all others.
const RESET_FIRST: [&str; 5] = [
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "lock_timeout",
    STATEMENT_TIMEOUT,
    "transaction_timeout",
];

const STATEMENT_TIMEOUT: &str = "statement_timeout";

/// Under which a server would end in its pool.
const IDLE_SESSION_TIMEOUT: &str = "idle_session_timeout";

/// Settings that end a query which takes too long: put in place behind all others.
pub(crate) const ENDING: [&str; 2] = [STATEMENT_TIMEOUT, "transaction_timeout"];

/// Under which the others may not be set any more: put in place last, reset before all others.
pub(crate) const SESSION_AUTHORIZATION: &str = "session_authorization";
pub(crate) const ROLE: &str = "role";

/// Whether another role is set under the one than under the other.
pub(crate) fn role_differs(one: &Profile, other: &Profile) -> bool {
    [ROLE, SESSION_AUTHORIZATION].iter().any(|name| one.get(name) != other.get(name))
}

impl Profile {
    /// Of these settings.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            context: Context::of(&settings),
            limits: TimeLimits::of(&settings),
            is_for_clients: settings.contains_key(IDLE_SESSION_TIMEOUT),
            is_privileged: settings.keys().any(|name| is_privileged(name)),
            settings,
        }))
    }

    /// Whether both are the very same, and not only equal.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The names of the custom settings among them.
    pub fn customs(&self) -> impl Iterator<Item = &str> {
        self.0.settings.keys().map(String::as_str).filter(|name| name.contains('.'))
    }

    /// The value of a setting, by its lower-case name, if it is not the server's own default.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.settings.get(name).map(|value| &**value)
    }

    /// See [`TimeLimits`].
    pub fn limits(&self) -> TimeLimits {
        self.0.limits
    }

    /// See [`Context`].
    pub fn context(&self) -> Context {
        self.0.context
    }

    /// The same with others, which take the place of those of the same names.
    #[must_use]
    pub fn with(&self, others: Self) -> Self {
        if self.settings().is_empty() {
            return others;
        }
        let mut settings = self.0.settings.clone();
        settings.extend(others.settings().iter().map(|(name, value)| (name.clone(), value.clone())));
        Self::new(settings)
    }

    /// The same, but for those of `others` of which `keeps` is `false`.
    #[must_use]
    pub fn without(&self, others: &Self, keeps: impl Fn(&str) -> bool) -> Self {
        if others.settings().is_empty() {
            return self.clone();
        }
        let mut settings = self.0.settings.clone();
        settings.retain(|name, _| others.get(name).is_none() || keeps(name));
        Self::new(settings)
    }

    /// The same, without the setting under which a server can't be left in its pool; `None` where it is not there.
    pub fn at_rest(&self) -> Option<Self> {
        self.0.is_for_clients.then(|| {
            let mut settings = self.0.settings.clone();
            settings.remove(IDLE_SESSION_TIMEOUT);
            Self::new(settings)
        })
    }

    /// Whether only superusers may set one of them.
    pub fn is_privileged(&self) -> bool {
        self.0.is_privileged
    }
}

impl Default for Profile {
    fn default() -> Self {
        static NOTHING: LazyLock<Profile> = LazyLock::new(|| Profile::new(Settings::new()));
        NOTHING.clone()
    }
}

impl PartialEq for Profile {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.settings == other.0.settings
    }
}

impl Eq for Profile {}

impl Hash for Profile {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.settings.hash(state);
    }
}

impl Context {
    /// Of the server's own defaults.
    pub const NONE: Self = Self(0);

    /// A part of it, to tell many of them apart.
    pub fn folded(self) -> u64 {
        self.0 as u64
    }

    fn of(settings: &Settings) -> Self {
        let mut hash = None;
        for (name, value) in settings.iter().filter(|(name, _)| is_context(name)) {
            let hash = hash.get_or_insert_with(Sha256::new);
            for part in [name.as_bytes(), value] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        let digest = hash.map(Sha256::finalize);
        Self(digest.and_then(|digest| digest.first_chunk().copied()).map_or(0, u128::from_le_bytes))
    }
}

/// The knowledge by which a server is taken from one profile to another.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The profile in place there is known.
    #[default]
    Known,
    /// It is known, and a `statement_timeout` of the server's own is too short for such a query.
    Untimed,
    /// Resetting what is in place has failed: all of it goes, and RESET ALL asks nobody for a right to that.
    Anew,
}

const UNTIMED: &str = "SET LOCAL statement_timeout = 0;";

/// No name is longer, in bytes: PostgreSQL cuts what is (`NAMEDATALEN`).
pub const NAME_BYTES_MAX: usize = 63;

/// The SQL that takes a server from one profile to another; `None` where they are the same. It is ASCII, so that it
/// means the same in every `client_encoding`.
///
/// `set_config` reads a value as the StartupMessage does, lists included, where `SET` would need each setting's syntax.
pub fn transition(from: &Profile, to: &Profile, way: Way) -> Option<String> {
    match way {
        Way::Anew => Some(steps(&Profile::default(), to, way)),
        _ => (from != to).then(|| steps(from, to, way)),
    }
}

fn steps(from: &Profile, to: &Profile, way: Way) -> String {
    let differs = |name: &str| from.get(name) != to.get(name);
    let mut sql = String::new();
    if way != Way::Known {
        sql.push_str(UNTIMED);
    }
    if way == Way::Anew {
        sql.push_str("RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;");
        sql.push_str(UNTIMED);
    }
    // Whoever the server works as now may not be allowed the rest.
    let changes_user = differs(SESSION_AUTHORIZATION);
    if changes_user && from.get(SESSION_AUTHORIZATION).is_some() {
        sql.push_str("RESET SESSION AUTHORIZATION;");
    }
    let changes_role = changes_user || differs(ROLE);
    if from.get(ROLE).is_some() && (changes_role || from.settings() != to.settings()) {
        sql.push_str("RESET ROLE;");
    }
    for name in RESET_FIRST.iter().filter(|name| from.get(name).is_some()) {
        reset(&mut sql, name);
    }
    if way == Way::Untimed && from.get(STATEMENT_TIMEOUT).is_some() {
        sql.push_str(UNTIMED);
    }
    let is_user = |name: &str| matches!(name, ROLE | SESSION_AUTHORIZATION);
    let gone = from.settings().keys().filter(|name| to.get(name).is_none() && !is_user(name));
    for name in gone.filter(|name| !RESET_FIRST.contains(&name.as_str())) {
        reset(&mut sql, name);
    }
    let was_reset_first = |name: &str| RESET_FIRST.contains(&name) && from.get(name).is_some();
    let is_set = |name: &str| (differs(name) || was_reset_first(name)) && !is_user(name);
    let (limits, others): (Vec<_>, Vec<_>) =
        to.settings().iter().filter(|(name, _)| is_set(name)).partition(|(name, _)| ENDING.contains(&name.as_str()));
    set_all(&mut sql, others.into_iter());
    let user = to.settings().get_key_value(SESSION_AUTHORIZATION).filter(|_| changes_user);
    set_all(&mut sql, user.into_iter());
    set_all(&mut sql, to.settings().get_key_value(ROLE).into_iter());
    set_all(&mut sql, limits.into_iter());
    sql
}

/// The SQL that makes settings what they are here, but for those that the session has set itself; `None` where there
/// are none. Who the server works as stays.
pub fn fill(settings: &Profile) -> Option<String> {
    let is_user = |name: &str| matches!(name, ROLE | SESSION_AUTHORIZATION);
    let mut values = String::new();
    for (name, value) in settings.settings().iter().filter(|(name, _)| !is_user(name)) {
        values.push_str(if values.is_empty() { "(" } else { ",(" });
        put_literal(&mut values, name.as_bytes());
        values.push(',');
        put_literal(&mut values, value);
        values.push(')');
    }
    let sql = format!(
        "SELECT pg_catalog.set_config(v.n,v.v,false) FROM pg_catalog.pg_settings s,(VALUES {values}) v(n,v) \
         WHERE pg_catalog.lower(s.name) OPERATOR(pg_catalog.=) v.n AND s.source OPERATOR(pg_catalog.<>) 'session'"
    );
    (!values.is_empty()).then_some(sql)
}

/// Appends the SQL that makes custom settings without a value, where a library has not.
pub fn make<'a>(sql: &mut String, names: impl Iterator<Item = &'a str>) {
    for name in names {
        sql.push_str("SELECT CASE WHEN pg_catalog.current_setting(");
        put_literal(sql, name.as_bytes());
        sql.push_str(",true) IS NULL THEN pg_catalog.set_config(");
        put_literal(sql, name.as_bytes());
        sql.push_str(",'',false) END;");
    }
}

/// The query that takes a server from what is read by one profile when a text is parsed to what is read by the other;
/// `None` where that is the same. Who the server works as stays, and so does what that one may not set: no text means
/// something else by it.
pub fn switch(from: &Profile, to: &Profile) -> Option<String> {
    let stays = |name: &str| matches!(name, ROLE | SESSION_AUTHORIZATION) || is_privileged(name);
    let names = from.settings().keys().chain(to.settings().keys().filter(|name| from.get(name).is_none()));
    let differing = names.filter(|name| is_context(name) && !stays(name) && from.get(name) != to.get(name));
    let mut sql = String::new();
    put_set_configs(&mut sql, differing.map(|name| (name.as_str(), to.get(name))), Scope::Session);
    (!sql.is_empty()).then_some(sql)
}

/// The time for which `set_config` sets a setting.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// Until the session ends.
    Session,
    /// Until the transaction or savepoint ends.
    Transaction,
}

/// Settings that a query sets in columns of its own, at most. PostgreSQL takes 1,664 columns, and as many fields of a row.
const SETTINGS_PER_ROW: usize = 1000;

/// Appends the query that sets settings one after another, where a value is `None` to the server's own default; nothing
/// where there are none. Of many, those behind the first thousand stand in rows of a thousand each.
pub(crate) fn put_set_configs<'a>(
    sql: &mut String,
    settings: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    scope: Scope,
) {
    let mut is_in_row = false;
    for (place, (name, value)) in settings.into_iter().enumerate() {
        let begins_row = place > 0 && place.is_multiple_of(SETTINGS_PER_ROW);
        sql.push_str(match (place, begins_row) {
            (0, _) => "SELECT ",
            (_, false) => ",",
            (_, true) if is_in_row => "),ROW(",
            (_, true) => ",ROW(",
        });
        is_in_row |= begins_row;
        put_set_config(sql, name, value, scope);
    }
    if is_in_row {
        sql.push(')');
    }
}

/// Appends the call that sets a setting, to the server's own default where the value is `None`.
fn put_set_config(sql: &mut String, name: &str, value: Option<&[u8]>, scope: Scope) {
    sql.push_str("pg_catalog.set_config(");
    put_literal(sql, name.as_bytes());
    sql.push(',');
    match value {
        Some(value) => put_literal(sql, value),
        None => sql.push_str("NULL"),
    }
    sql.push_str(match scope {
        Scope::Session => ",false)",
        Scope::Transaction => ",true)",
    });
}

fn reset(sql: &mut String, name: &str) {
    let before = sql.len();
    sql.push_str("RESET ");
    if !put_name(sql, name) {
        sql.truncate(before);
        put_set_configs(sql, [(name, None)], Scope::Session);
    }
    sql.push(';');
}

/// Appends a setting's name; `false` if it can't be written: it would be in the client's encoding, or cut.
pub(crate) fn put_name(sql: &mut String, name: &str) -> bool {
    if !name.is_ascii() || name.split('.').any(|part| part.len() > NAME_BYTES_MAX) {
        return false;
    }
    for (place, part) in name.split('.').enumerate() {
        if place > 0 {
            sql.push('.');
        }
        sql.push('"');
        sql.push_str(&part.replace('"', "\"\""));
        sql.push('"');
    }
    true
}

fn set_all<'a>(sql: &mut String, settings: impl Iterator<Item = (&'a String, &'a Box<[u8]>)>) {
    let before = sql.len();
    put_set_configs(sql, settings.map(|(name, value)| (name.as_str(), Some(&**value))), Scope::Session);
    if sql.len() > before {
        sql.push(';');
    }
}

/// An SQL string that means the same whatever `standard_conforming_strings` and `client_encoding` say.
pub(crate) fn put_literal(sql: &mut String, bytes: &[u8]) {
    let is_plain = |b: &u8| matches!(b, b' '..=b'~') && *b != b'\\';
    sql.push_str(if bytes.iter().all(is_plain) { "'" } else { "E'" });
    for byte in bytes {
        match byte {
            b'\'' => sql.push_str("''"),
            b if is_plain(b) => sql.push(char::from(*b)),
            b => sql.push_str(&format!("\\x{b:02x}")),
        }
    }
    sql.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(pairs: &[(&str, &str)]) -> Profile {
        Profile::new(pairs.iter().map(|(n, v)| (n.to_string(), v.as_bytes().into())).collect())
    }

    #[test]
    fn a_transition_sets_what_differs_and_resets_what_is_gone() {
        let a = profile(&[("application_name", "a"), ("app.x", "1"), ("geqo", "off")]);
        let b = profile(&[("application_name", "it's \\ó"), ("datestyle", "ISO"), ("geqo", "off")]);
        let sql = transition(&a, &b, Way::Known).expect("they differ");
        assert_eq!(
            sql,
            "RESET \"app\".\"x\";SELECT pg_catalog.set_config('application_name',E'it''s \\x5c\\xc3\\xb3',false),\
             pg_catalog.set_config('datestyle','ISO',false);"
        );
        let same = profile(&[("application_name", "a"), ("app.x", "1"), ("geqo", "off")]);
        assert_eq!(transition(&a, &same, Way::Known), None);
        assert_eq!(transition(&a, &same, Way::Untimed), None);
    }

    #[test]
    fn a_switch_is_one_query_of_what_parsing_reads() {
        let a = profile(&[("application_name", "a"), ("geqo", "off"), ("timezone", "UTC")]);
        let b = profile(&[("app.x", "1"), ("datestyle", "it's"), ("timezone", "UTC")]);
        assert_eq!(
            switch(&a, &b).expect("they differ"),
            "SELECT pg_catalog.set_config('geqo',NULL,false),pg_catalog.set_config('datestyle','it''s',false)"
        );
        assert_eq!(switch(&a, &profile(&[("geqo", "off"), ("timezone", "UTC")])), None);
    }

    #[test]
    fn roles_and_time_outs_do_not_rule_over_a_transition() {
        let a = profile(&[("role", "a"), ("statement_timeout", "1"), ("work_mem", "64")]);
        let b = profile(&[("role", "a"), ("statement_timeout", "1"), ("work_mem", "65")]);
        assert_eq!(
            transition(&a, &b, Way::Known).expect("they differ"),
            "RESET ROLE;RESET \"statement_timeout\";SELECT pg_catalog.set_config('work_mem','65',false);\
             SELECT pg_catalog.set_config('role','a',false);\
             SELECT pg_catalog.set_config('statement_timeout','1',false);"
        );
        assert_eq!(
            transition(&a, &profile(&[("role", "a")]), Way::Untimed).expect("they differ"),
            "SET LOCAL statement_timeout = 0;RESET ROLE;RESET \"statement_timeout\";\
             SET LOCAL statement_timeout = 0;RESET \"work_mem\";SELECT pg_catalog.set_config('role','a',false);"
        );
        let c = profile(&[("session_authorization", "c")]);
        let sql = transition(&c, &a, Way::Known).expect("they differ");
        assert_eq!(sql.split(';').next(), Some("RESET SESSION AUTHORIZATION"));
    }

    #[test]
    fn what_could_not_be_reset_goes_as_a_whole() {
        let a = profile(&[("statement_timeout", "1"), ("work_mem", "64")]);
        for (from, to, set) in [
            (&a, &Profile::default(), ""),
            (&a, &profile(&[("work_mem", "64")]), "SELECT pg_catalog.set_config('work_mem','64',false);"),
            (&Profile::default(), &Profile::default(), ""),
        ] {
            let clear = "SET LOCAL statement_timeout = 0;RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;\
                         SET LOCAL statement_timeout = 0;";
            assert_eq!(transition(from, to, Way::Anew), Some(format!("{clear}{set}")));
        }
    }

    #[test]
    fn limits_of_time_are_read_as_postgresql_reads_them() {
        for (value, time_ms) in [
            ("1500", Some(1500)),
            ("0", None),
            ("2s", Some(2000)),
            (" 1.5 min ", Some(90_000)),
            ("700us", Some(1)),
            ("1 week", None),
            ("-1", None),
            ("3000000000", None),
        ] {
            let limits = profile(&[("idle_session_timeout", value)]).limits();
            assert_eq!(limits.idle_session, time_ms.map(Duration::from_millis), "{value}");
            assert!(!limits.in_transactions);
        }
        assert!(profile(&[("transaction_timeout", "1")]).limits().in_transactions);
        assert!(!profile(&[("idle_in_transaction_session_timeout", "0")]).limits().in_transactions);
    }

    #[test]
    fn contexts_leave_out_what_only_execution_reads() {
        let context = |pairs: &[(&str, &str)]| profile(pairs).context();
        assert_eq!(context(&[("application_name", "a"), ("app.tenant", "b")]), Context::default());
        assert_ne!(context(&[("timezone", "UTC")]), context(&[("timezone", "CET")]));
        assert_ne!(context(&[("timezone", "UTC")]), Context::default());
    }
}
