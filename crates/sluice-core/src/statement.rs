//! Prepared statements that clients share. Two clients share one only where PostgreSQL would have made the same of it
//! for both: the same text and parameter types, parsed and run under the same settings, by the same catalogs
//! (docs/decisions/0014). A pool knows it by a number, a server by a name made of that.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use sluice_wire::{
    BackendKind,
    message::{TransactionStatus, framed, split_cstr},
};

use crate::{
    logins::Generation,
    profile::{Context, NAME_BYTES_MAX, Profile, literals::SearchPath},
    shape::Shape,
    sql::{self, Begin, Effects, Ending, Reset, effects},
    time::Time,
    uses::Uses,
};

/// The beginning of shared statements' names on the servers. With a nonce in it (0: none), no client names one by
/// accident.
pub fn name_prefix(nonce: u32) -> Box<[u8]> {
    match nonce {
        0 => Box::from(&b"sluice_"[..]),
        nonce => format!("sluice_{nonce:08x}_").into_bytes().into(),
    }
}

/// The pseudo-type `unknown`, by its number in `pg_type.dat`: 705.
const UNKNOWN: &[u8] = &[0, 0, 2, 0xc1];

/// The time for which a Parse is answered as the last server has that saw one: changes to the catalogs that do not pass
/// through the pool are seen after that at the latest.
pub const ACCEPTED_AGE_MAX: Duration = Duration::from_secs(1);

/// No parameter types, as they stand in Parse.
const NO_TYPES: &[u8] = &[0, 0];

/// A statement's number, which no other of the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementId(pub u64);

/// The circumstances that, besides its definition, decide what PostgreSQL makes of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The settings under which it was parsed, which decide its types.
    pub parsed: Context,
    /// The settings by which its literals are read: those under which it was parsed, until PostgreSQL reads them anew.
    pub read: Context,
    /// The settings under which it runs: PostgreSQL parses it anew when the catalogs have changed.
    pub run: Context,
    /// The version of the catalogs by which it was parsed.
    pub catalog: u64,
    /// The generation of the server, whose own defaults are part of the settings.
    pub generation: Generation,
    /// Whether it serves clients' unnamed statements, which mean what they do when they are sent.
    pub is_unnamed: bool,
}

/// By a few of its bytes: those that are equal have equal ones, and contexts are fingerprints already.
impl Hash for Terms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parsed.folded() ^ self.read.folded().rotate_left(1) ^ self.run.folded().rotate_left(2));
        state.write_u64(self.catalog << 1 | u64::from(self.is_unnamed));
    }
}

#[cfg(test)]
impl Terms {
    /// Those of a statement where nothing has been set or changed.
    pub(crate) const PLAIN: Self = Self {
        parsed: Context::NONE,
        read: Context::NONE,
        run: Context::NONE,
        catalog: 0,
        generation: Generation::FIRST,
        is_unnamed: false,
    };
}

/// The pool's knowledge of the settings that a statement was parsed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// They are those of its profile.
    Exact,
    /// Those that the server reports are; what its transaction has set besides is not known.
    Reported,
    /// The settings that its batch has made are not known.
    None,
}

/// A statement.
#[derive(Debug)]
pub struct Statement {
    /// Its number; never given twice.
    pub id: StatementId,
    /// Its name on the servers.
    pub name: Box<[u8]>,
    /// The text and the types, as they stand in Parse.
    pub definition: Box<[u8]>,
    /// The length of the text alone.
    text_bytes: usize,
    /// Whether it may be a COPY that the server reads.
    pub may_copy: bool,
    /// What it does to the transaction block that it is run in.
    pub ends: Ending,
    /// The times that it was run, by anybody.
    pub uses: Uses,
    /// `None`: it is one client's own.
    pub terms: Option<Terms>,
    /// Those of the shared one that it was before a transaction read its literals anew.
    pub was_shared: Option<Terms>,
    /// The settings by which its literals are read.
    pub profile: Profile,
    /// The `search_path` under which it was parsed: there its names are found.
    pub parsed_path: SearchPath,
    /// The effects that running it may have.
    pub effects: Effects,
    /// Whether its literals mean what they do only where it was parsed: prepared elsewhere they would mean something
    /// else.
    pub is_tied: bool,
    /// The pool's knowledge of the settings under which it was parsed.
    knowledge: Knowledge,
    /// The BEGIN that it is, if it may be answered without a server.
    pub begins: Option<Begin>,
    /// The status of the transaction behind it, if it begins or ends a block.
    pub leads_to: Option<TransactionStatus>,
    /// The settings that it resets.
    pub resets: Option<Reset>,
    /// The name that it forgets, if it is a DEALLOCATE of one.
    pub deallocates: Option<Box<[u8]>>,
    /// Whether it may have parameters whose types PostgreSQL has to find out.
    pub infers_types: bool,
    /// The parameter types that clients were told, as they stand in Parse: it has these wherever it is prepared again.
    types: OnceLock<Box<[u8]>>,
    /// The shape of its result, as the first server that parsed it has described it. PostgreSQL fixes it then.
    shape: OnceLock<Shape>,
    /// The time at which a server of this pool has accepted it last, in microseconds and one more; 0: none has.
    accepted: AtomicU64,
    /// Whether a server has parsed it, be it with the types that clients were told.
    was_parsed: AtomicBool,
    /// Whether a server had something to remark when it parsed it, which each client is to hear.
    remarked: AtomicBool,
    /// The number of times that it came, until it does not matter any more.
    seen: AtomicU32,
    /// Whether it came since the registry last asked.
    recent: AtomicBool,
}

/// A statement as a client has it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The statement.
    pub statement: Arc<Statement>,
    /// The shape of its result, as the client was told; it may read rows by that ever after.
    pub described: Option<Shape>,
    /// The time of its Parse.
    pub parsed_at: Time,
    /// Whether it has been bound since.
    pub is_bound: bool,
    /// Whether the client has been told the types of its parameters, as its unnamed statement: they are the statement's.
    pub is_told: bool,
    /// The `search_path` under which it was used last, where that is not the one by which its literals were read: they
    /// mean the same there.
    pub path: Option<SearchPath>,
    /// The statement before its literals were read anew, until a server has parsed that: PostgreSQL reads them once more
    /// where it has refused.
    pub former: Option<Arc<Statement>>,
}

impl Prepared {
    /// A statement of which the client has been told nothing yet.
    pub fn new(statement: Arc<Statement>, parsed_at: Time) -> Self {
        Self { statement, described: None, parsed_at, is_bound: false, is_told: false, path: None, former: None }
    }

    /// The things about it that are open, to a client that was told that shape: whoever has used it has done so by what it
    /// was then.
    pub fn open(&self, described: Option<Shape>, now: Time) -> Open {
        let shape = described.is_none() && !self.is_bound;
        let types = match self.statement.is_unnamed() {
            // No server has been asked for them at its Parse.
            true => !self.is_told,
            false => shape && now.since(self.parsed_at) < ACCEPTED_AGE_MAX,
        };
        Open { shape, types }
    }

    /// Whether its literals were read anew, and no server has parsed that.
    pub fn is_refused(&self) -> bool {
        self.former.is_some() && !self.statement.was_parsed.load(Ordering::Relaxed)
    }

    /// Whether its literals were read under the `search_path` of these settings, and it was used under no other since.
    pub fn was_read_under(&self, settings: &Profile) -> bool {
        self.path.is_none() && !self.is_refused() && self.statement.profile.has_path_of(settings)
    }
}

/// The things about a statement that are as open to its client as if it had just been parsed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open {
    /// The shape of its result. PostgreSQL fixes it at the Parse, which may have come behind any change.
    pub shape: bool,
    /// The types of its parameters. A server has told them not long before the Parse.
    pub types: bool,
}

/// A client's unnamed statement.
#[derive(Debug, Clone)]
pub struct Unnamed {
    /// The statement.
    pub prepared: Prepared,
    /// Whether it was sent to a server as it came; otherwise it is served from the shared one.
    pub raw: bool,
    /// Tells it from those that the client had before and will have after it.
    pub turn: u32,
    /// Whether the batch that brought it has come to its end: whatever its Parse would come to by now, it is there.
    pub is_of_before: bool,
}

/// The part of a statement's or portal's name by which it is known.
pub fn known_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}

/// A short form of a name: enough to tell one client's names for the same statement from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameTag(u32);

impl NameTag {
    /// The hash of a name, by FNV-1a.
    pub fn of(name: &[u8]) -> Self {
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        Self(known_name(name).iter().fold(0x811c_9dc5, step))
    }
}

impl Statement {
    /// A statement of that definition, whose text is read. `profile` is what `terms.read` is the fingerprint of.
    pub fn new(id: StatementId, name: Box<[u8]>, definition: &[u8], terms: Option<Terms>, profile: Profile) -> Self {
        let (text, types) = split_cstr(definition).unwrap_or((definition, &[]));
        let begins = begin_of(definition);
        let deallocates = sql::deallocated(text).filter(|_| types == NO_TYPES);
        let effects = effects(text);
        // Of an end with parameters PostgreSQL may say something else first.
        let ends = Ending::of(text).known_if(types == NO_TYPES);
        Self {
            id,
            name,
            definition: definition.into(),
            text_bytes: text.len(),
            may_copy: sql::may_copy_in(text),
            ends,
            uses: Uses::default(),
            terms,
            was_shared: None,
            parsed_path: profile.search_path(),
            profile,
            resets: effects.intersects(Effects::STATE | Effects::CONTEXT).then(|| sql::reset(text)).flatten(),
            effects,
            leads_to: sql::leads_to(text),
            is_tied: false,
            knowledge: Knowledge::Exact,
            begins,
            deallocates,
            types: OnceLock::new(),
            shape: OnceLock::new(),
            infers_types: given_types(text, types).is_none(),
            accepted: AtomicU64::new(0),
            was_parsed: AtomicBool::new(false),
            remarked: AtomicBool::new(false),
            seen: AtomicU32::new(0),
            recent: AtomicBool::new(true),
        }
    }

    /// The same, of one client's own, which was parsed under settings of which so much is known.
    pub fn private(self, knowledge: Knowledge) -> Self {
        let is_unsure = knowledge != Knowledge::Exact && self.effects.intersects(Effects::LITERAL);
        Self { terms: None, is_tied: self.effects.intersects(Effects::CLOCK) || is_unsure, knowledge, ..self }
    }

    /// The same, of one that was parsed under that `search_path`, and whose literals were read anew since.
    pub fn parsed_under(self, parsed_path: SearchPath) -> Self {
        Self { parsed_path, ..self }
    }

    /// The settings to prepare it under where nobody is about to use it, so that PostgreSQL has to find its names.
    pub fn to_lend(&self) -> Profile {
        self.profile.with_path(&self.parsed_path)
    }

    /// Takes over what clients were told of another, which differs in its terms only.
    pub fn take_over(&self, other: &Self) {
        if let Some(types) = other.types.get() {
            self.set_types(types);
        }
        if let Some(shape) = other.shape() {
            self.set_shape(shape);
        }
    }

    /// The text alone.
    pub fn query(&self) -> &[u8] {
        &self.definition[..self.text_bytes]
    }

    /// The definition to prepare it by, with the parameter types that clients were told.
    pub fn to_parse(&self) -> Vec<u8> {
        match self.types.get() {
            Some(types) => [self.query(), &[0], &**types].concat(),
            None => self.definition.to_vec(),
        }
    }

    /// A client is about to be told these parameter types; `body` is that of the ParameterDescription. The first ones
    /// decide; returns whether these are they.
    pub fn set_types(&self, body: &[u8]) -> bool {
        **self.types.get_or_init(|| body.into()) == *body
    }

    /// The ParameterDescription that clients were told.
    pub fn parameter_description(&self) -> Vec<u8> {
        parameter_description(self.types.get().map_or(NO_TYPES, |types| types))
    }

    /// The shape that its result had when it was first parsed, once that is known.
    pub fn shape(&self) -> Option<Shape> {
        self.shape.get().copied()
    }

    /// A server has described its result: the first one decides.
    pub fn set_shape(&self, shape: Shape) {
        let _ = self.shape.set(shape);
    }

    /// Its parameter types, as they stand in Parse, if they are known: clients were told, or have said them all.
    pub fn known_types(&self) -> Option<Box<[u8]>> {
        self.types.get().cloned().or_else(|| self.given_types().map(Box::from))
    }

    /// Those that its definition gives, if these are all, and none is left for PostgreSQL to find out.
    fn given_types(&self) -> Option<&[u8]> {
        let types = self.definition.get(self.query().len() + 1..)?;
        given_types(self.query(), types)
    }

    /// Whether clients know its parameter types, and there are any.
    pub fn has_types(&self) -> bool {
        self.types.get().is_some_and(|types| types.len() > 2)
    }

    /// Whether it serves unnamed statements.
    pub fn is_unnamed(&self) -> bool {
        self.terms.is_some_and(|terms| terms.is_unnamed)
    }

    /// Whether its literals may mean what they do by other settings than those in place: `None` if nobody knows these.
    pub fn is_parsed_apart(&self, in_place: Option<Context>) -> bool {
        let is_known = self.knowledge != Knowledge::None;
        self.effects.intersects(Effects::LITERAL) && is_known && in_place != Some(self.profile.context())
    }

    /// Whether its characters may be others by the settings in place than by those of its Parse; `None`: nobody knows
    /// the former. PostgreSQL reads them once, whatever else it reads anew.
    pub fn is_spelled_apart(&self, in_place: Option<&Profile>) -> bool {
        let differs = |in_place: &Profile| !in_place.reads_characters_like(&self.profile);
        self.effects.intersects(Effects::LITERAL) && in_place.is_none_or(differs)
    }

    /// Whether it is parsed apart where it is lent to SQL.
    pub fn is_lent_apart(&self, in_place: Option<Context>) -> bool {
        self.is_parsed_apart(in_place) || self.is_parsed_apart(None) && in_place != Some(self.to_lend().context())
    }

    /// Whether PostgreSQL reads its literals anew where it is used under another `search_path`, and it is known what
    /// they mean now.
    pub fn may_be_reread(&self) -> bool {
        let has_literals = self.effects.intersects(Effects::LITERAL) && sql::reads_literals(self.query());
        has_literals && !self.is_tied && self.knowledge == Knowledge::Exact
    }

    /// Whether it is a command that Sluice may carry out by itself.
    pub fn is_command(&self) -> bool {
        self.begins.is_some() || self.deallocates.is_some()
    }

    /// Whether PostgreSQL accepts it whatever the catalogs and settings, outside of a failed transaction. Of other
    /// characters than ASCII, only the server knows whether they are of the client's encoding.
    pub fn is_always_accepted(&self) -> bool {
        self.is_command() && self.query().is_ascii()
    }

    /// Whether a server of this pool has accepted it.
    pub fn is_accepted(&self) -> bool {
        self.is_always_accepted() || self.accepted.load(Ordering::Relaxed) > 0
    }

    /// Whether one has of late, so that a Parse of it may be answered without one: what it means is what it meant then,
    /// as far as is known.
    pub fn is_accepted_of_late(&self, now: Time) -> bool {
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.is_always_accepted() || accepted > 0 && now.since(Time(accepted - 1)) < ACCEPTED_AGE_MAX
    }

    /// A server has parsed it, and found the types of its parameters by itself or been given all of them.
    pub fn accept(&self, now: Time) {
        if !self.is_always_accepted() && !self.is_remarked() {
            self.accepted.store(now.0 + 1, Ordering::Relaxed);
        }
    }

    /// A server has parsed it.
    pub fn note_parsed(&self) {
        self.was_parsed.store(true, Ordering::Relaxed);
    }

    /// Whether its Parse brings the client a NoticeResponse: then only a server may answer it.
    pub fn is_remarked(&self) -> bool {
        self.remarked.load(Ordering::Relaxed)
    }

    /// A server has answered its Parse with a NoticeResponse.
    pub fn remark(&self) {
        self.remarked.store(true, Ordering::Relaxed);
        self.refuse();
    }

    /// A server has refused it: the next one who wants it shall hear that from a server.
    pub fn refuse(&self) {
        self.accepted.store(0, Ordering::Relaxed);
    }

    /// Whether it has come before the time that is being handled.
    pub fn came_again(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > 1
    }

    /// Whether it has come since this was last asked.
    pub fn take_recent(&self) -> bool {
        self.recent.swap(false, Ordering::Relaxed)
    }

    /// It has come once more.
    pub fn see(&self) {
        if self.seen.load(Ordering::Relaxed) < 2 {
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        if !self.recent.load(Ordering::Relaxed) {
            self.recent.store(true, Ordering::Relaxed);
        }
    }
}

/// The ParameterDescription of these types.
pub fn parameter_description(types: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    framed(&mut out, BackendKind::ParameterDescription, |out| out.extend_from_slice(types));
    out
}

/// The types of a Parse, if these are those of all parameters of its text.
fn given_types<'a>(text: &[u8], types: &'a [u8]) -> Option<&'a [u8]> {
    let (count, oids) = types.split_first_chunk()?;
    let is_open = |oid: &[u8]| matches!(oid, [0, 0, 0, 0] | UNKNOWN);
    let are_all = u16::from_be_bytes(*count) == sql::parameters(text)?;
    (are_all && !oids.chunks(4).any(is_open)).then_some(types)
}

/// The BEGIN that a definition is, if it has no parameters and may be answered without a server.
pub(crate) fn begin_of(definition: &[u8]) -> Option<Begin> {
    let (text, types) = split_cstr(definition)?;
    sql::begin(text).filter(|_| types == NO_TYPES)
}

/// A statement that a server has under that name, whatever the pool still knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnServer {
    /// Its number.
    pub id: StatementId,
    /// Its name there.
    pub name: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(definition: &[u8]) -> Statement {
        Statement::new(StatementId(0), Box::default(), definition, None, Profile::default())
    }

    #[test]
    fn types_are_known_where_a_definition_gives_them_all() {
        for (definition, known) in [
            (&b"select 1\0\0\0"[..], Some(&[0, 0][..])),
            (b"select $1\0\0\x01\0\0\0\x17", Some(&[0, 1, 0, 0, 0, 0x17])),
            (b"select $1\0\0\0", None),
            (b"select $1, $2\0\0\x01\0\0\0\x17", None),
            (b"select $1\0\0\x01\0\0\0\0", None),
            (b"select $1\0\0\x01\0\0\x02\xc1", None),
        ] {
            assert_eq!(statement(definition).known_types().as_deref(), known, "{}", definition.escape_ascii());
        }
    }

    #[test]
    fn types_that_were_told_stay() {
        let statement = statement(b"select $1\0\0\0");
        assert_eq!(statement.to_parse(), b"select $1\0\0\0");
        assert!(statement.set_types(&[0, 1, 0, 0, 0, 20]));
        assert!(!statement.set_types(&[0, 1, 0, 0, 0, 21]));
        assert_eq!(statement.to_parse(), b"select $1\0\0\x01\0\0\0\x14");
    }
}
