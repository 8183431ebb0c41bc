//! Prepared statements that clients share. Two clients share one only where PostgreSQL would have made the same of it
//! for both: the same text and parameter types, parsed and run under the same settings, by the same catalogs
//! (docs/decisions/0014). A pool knows it by a number, a server by a name made of that.

use std::{
    collections::VecDeque,
    hash::BuildHasher,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use hashbrown::HashTable;
use sluice_wire::{
    BackendKind,
    message::{TransactionStatus, framed, split_cstr},
};

use crate::{
    logins::Generation,
    profile::{Context, Profile},
    shape::Shape,
    sql::{self, Begin, Effects, Reset, effects},
};

/// The beginning of shared statements' names on the servers. With a nonce in it (0: none), no client names one by
/// accident.
pub fn name_prefix(nonce: u32) -> Box<[u8]> {
    match nonce {
        0 => Box::from(&b"sluice_"[..]),
        nonce => format!("sluice_{nonce:08x}_").into_bytes().into(),
    }
}

/// Definitions larger than this are not kept once no client has them, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Statements a pool keeps beyond those that clients hold.
const KEPT_MAX: usize = 8192;

/// The statements that are looked at to find one that may go for a new one, at most: the pool is locked meanwhile.
const LOOKS_MAX: usize = 16;

/// The pseudo-type `unknown`, by its number in `pg_type.dat`: 705.
const UNKNOWN: &[u8] = &[0, 0, 2, 0xc1];

/// No parameter types, as they stand in Parse.
const NO_TYPES: &[u8] = &[0, 0];

/// A shared statement's number within its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementId(pub u64);

/// The circumstances that, besides its definition, decide what PostgreSQL makes of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The settings under which it was parsed.
    pub parsed: Context,
    /// The settings under which it runs: PostgreSQL parses it anew when the catalogs have changed.
    pub run: Context,
    /// The version of the catalogs by which it was parsed.
    pub catalog: u64,
    /// The generation of the server, whose own defaults are part of the settings.
    pub generation: Generation,
    /// Whether it serves clients' unnamed statements, which mean what they do when they are sent.
    pub is_unnamed: bool,
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
    /// `None`: it is one client's own.
    pub terms: Option<Terms>,
    /// The settings under which it was parsed.
    pub profile: Profile,
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
    /// The parameter types that clients were told, as they stand in Parse: it has these wherever it is prepared again.
    types: OnceLock<Box<[u8]>>,
    /// The shape of its result, as the first server that parsed it has described it. PostgreSQL fixes it then.
    shape: OnceLock<Shape>,
    /// Whether a server of this pool has accepted it.
    accepted: AtomicBool,
    /// Whether a server had something to remark when it parsed it, which each client is to hear.
    remarked: AtomicBool,
    /// The number of times that it came, until it does not matter any more.
    seen: AtomicU32,
    /// Whether it came since the registry's hand last passed.
    recent: AtomicBool,
}

/// A statement as a client has it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The statement.
    pub statement: Arc<Statement>,
    /// The shape of its result, as the client was told; it may read rows by that ever after.
    pub described: Option<Shape>,
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
}

/// No name of a statement or portal is longer, in bytes: PostgreSQL cuts what is (`NAMEDATALEN`).
const NAME_BYTES_MAX: usize = 63;

/// The part of a statement's or portal's name by which it is known.
pub fn known_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}

impl Statement {
    fn new(id: StatementId, name: Box<[u8]>, definition: &[u8], terms: Option<Terms>, profile: Profile) -> Self {
        let (text, types) = split_cstr(definition).unwrap_or((definition, &[]));
        let begins = begin_of(definition);
        let deallocates = sql::deallocated(text).filter(|_| types == NO_TYPES);
        let effects = effects(text);
        let is_always_accepted = begins.is_some() || deallocates.is_some();
        Self {
            id,
            name,
            definition: definition.into(),
            text_bytes: text.len(),
            terms,
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
            accepted: AtomicBool::new(is_always_accepted),
            remarked: AtomicBool::new(false),
            seen: AtomicU32::new(0),
            recent: AtomicBool::new(true),
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

    /// A client has been told these parameter types; `body` is that of the ParameterDescription.
    pub fn set_types(&self, body: &[u8]) {
        if self.types.get().is_none() {
            let _ = self.types.set(body.into());
        }
    }

    /// The ParameterDescription that clients were told.
    pub fn parameter_description(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let types = self.types.get().map_or(&[0, 0][..], |types| types);
        framed(&mut out, BackendKind::ParameterDescription, |out| out.extend_from_slice(types));
        out
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
        let (count, oids) = types.split_first_chunk()?;
        let is_open = |oid: &[u8]| matches!(oid, [0, 0, 0, 0] | UNKNOWN);
        let are_all = u16::from_be_bytes(*count) == sql::parameters(self.query())?;
        (are_all && !oids.chunks(4).any(is_open)).then_some(types)
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

    /// Whether PostgreSQL accepts it whatever the catalogs and settings, outside of a failed transaction.
    pub fn is_always_accepted(&self) -> bool {
        self.begins.is_some() || self.deallocates.is_some()
    }

    /// Whether a server of this pool has accepted it, so that a Parse of it may be answered without one.
    pub fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// A server has accepted it.
    pub fn accept(&self) {
        if !self.is_accepted() && !self.is_remarked() {
            self.accepted.store(true, Ordering::Relaxed);
        }
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
        self.accepted.store(self.is_always_accepted(), Ordering::Relaxed);
    }

    /// Whether it has come before the time that is being handled.
    pub fn came_again(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > 1
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

/// The BEGIN that a definition is, if it has no parameters and may be answered without a server.
pub(crate) fn begin_of(definition: &[u8]) -> Option<Begin> {
    let (text, types) = split_cstr(definition)?;
    sql::begin(text).filter(|_| types == NO_TYPES)
}

/// The statements of a pool. Bounded: beyond [`KEPT_MAX`], those that no client holds and nobody has asked for lately
/// go first (the clock algorithm).
#[derive(Debug, Default)]
pub struct Registry {
    table: HashTable<Arc<Statement>>,
    clock: VecDeque<Arc<Statement>>,
    hasher: foldhash::quality::RandomState,
    next: u64,
    /// The beginning of every name.
    prefix: Box<[u8]>,
}

impl Registry {
    /// An empty one; the statements' names on the servers begin with `prefix`.
    pub fn new(prefix: &[u8]) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    /// The statement of that definition under those terms, counted as seen once more. `profile` is what
    /// `terms.parsed` is the fingerprint of.
    pub fn intern(&mut self, definition: &[u8], terms: Terms, profile: &Profile) -> Arc<Statement> {
        let hash = self.hasher.hash_one((definition, terms));
        if let Some(known) = self.table.find(hash, |s| s.terms == Some(terms) && *s.definition == *definition) {
            known.see();
            return known.clone();
        }
        let statement = Arc::new(self.make(definition, Some(terms), profile));
        statement.see();
        if definition.len() <= KEPT_BYTES_MAX && self.make_room() {
            let hasher = &self.hasher;
            self.table.insert_unique(hash, statement.clone(), |s| hash_of(hasher, s));
            self.clock.push_back(statement.clone());
        }
        statement
    }

    /// A statement that nobody shares.
    pub fn private(&mut self, definition: &[u8], profile: &Profile, knowledge: Knowledge) -> Arc<Statement> {
        let statement = self.make(definition, None, profile);
        let effects = statement.effects;
        let is_unsure = knowledge != Knowledge::Exact && effects.intersects(Effects::LITERAL);
        Arc::new(Statement { is_tied: effects.intersects(Effects::CLOCK) || is_unsure, knowledge, ..statement })
    }

    /// The same statement, to be run under other settings than before.
    pub fn under(&mut self, statement: &Arc<Statement>, run: Context) -> Arc<Statement> {
        let Some(terms) = statement.terms else { return statement.clone() };
        let other = self.intern(&statement.definition, Terms { run, ..terms }, &statement.profile);
        if let Some(types) = statement.types.get() {
            other.set_types(types);
        }
        if let Some(shape) = statement.shape() {
            other.set_shape(shape);
        }
        other
    }

    /// The statement of that definition, if it is known; not counted as seen.
    pub fn find(&self, definition: &[u8], terms: Terms) -> Option<&Arc<Statement>> {
        let hash = self.hasher.hash_one((definition, terms));
        self.table.find(hash, |s| s.terms == Some(terms) && *s.definition == *definition)
    }

    fn make(&mut self, definition: &[u8], terms: Option<Terms>, profile: &Profile) -> Statement {
        let id = StatementId(self.next);
        self.next += 1;
        let name = [&*self.prefix, format!("{:x}", id.0).as_bytes()].concat();
        Statement::new(id, name.into(), definition, terms, profile.clone())
    }

    /// Whether there is room for one more. Where clients hold them all, there are twice as many at most.
    fn make_room(&mut self) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.clock.len() < KEPT_MAX {
                return true;
            }
            let Some(oldest) = self.clock.pop_front() else { return true };
            let held = Arc::strong_count(&oldest) > 2;
            if held || oldest.recent.swap(false, Ordering::Relaxed) {
                self.clock.push_back(oldest);
                continue;
            }
            let hash = hash_of(&self.hasher, &oldest);
            if let Ok(entry) = self.table.find_entry(hash, |s| s.id == oldest.id) {
                entry.remove();
            }
        }
        self.clock.len() < 2 * KEPT_MAX
    }
}

fn hash_of(hasher: &foldhash::quality::RandomState, statement: &Statement) -> u64 {
    // Only those that are shared are in the table.
    statement.terms.map_or(0, |terms| hasher.hash_one((&*statement.definition, terms)))
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

    const TERMS: Terms = Terms {
        parsed: Context::NONE,
        run: Context::NONE,
        catalog: 0,
        generation: Generation::FIRST,
        is_unnamed: false,
    };

    fn intern(registry: &mut Registry, definition: &[u8]) -> Arc<Statement> {
        registry.intern(definition, TERMS, &Profile::default())
    }

    #[test]
    fn the_same_definition_under_the_same_terms_is_the_same_statement() {
        let mut registry = Registry::new(b"sluice_");
        let a = intern(&mut registry, b"select 1\0\0\0");
        assert!(!a.came_again());
        let b = intern(&mut registry, b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&a, &b) && a.came_again());
        assert_ne!(intern(&mut registry, b"select 2\0\0\0").id, a.id);
        let later = Terms { catalog: 1, ..TERMS };
        assert_ne!(registry.intern(b"select 1\0\0\0", later, &Profile::default()).id, a.id);
        assert_ne!(registry.private(b"select 1\0\0\0", &Profile::default(), Knowledge::Exact).id, a.id);
    }

    #[test]
    fn types_are_known_where_a_definition_gives_them_all() {
        let mut registry = Registry::new(b"sluice_");
        for (definition, known) in [
            (&b"select 1\0\0\0"[..], Some(&[0, 0][..])),
            (b"select $1\0\0\x01\0\0\0\x17", Some(&[0, 1, 0, 0, 0, 0x17])),
            (b"select $1\0\0\0", None),
            (b"select $1, $2\0\0\x01\0\0\0\x17", None),
            (b"select $1\0\0\x01\0\0\0\0", None),
            (b"select $1\0\0\x01\0\0\x02\xc1", None),
        ] {
            assert_eq!(
                intern(&mut registry, definition).known_types().as_deref(),
                known,
                "{}",
                definition.escape_ascii()
            );
        }
    }

    #[test]
    fn types_that_were_told_stay() {
        let mut registry = Registry::new(b"sluice_");
        let statement = intern(&mut registry, b"select $1\0\0\0");
        assert_eq!(statement.to_parse(), b"select $1\0\0\0");
        statement.set_types(&[0, 1, 0, 0, 0, 20]);
        statement.set_types(&[0, 1, 0, 0, 0, 21]);
        assert_eq!(statement.to_parse(), b"select $1\0\0\x01\0\0\0\x14");
    }

    #[test]
    fn a_registry_stays_bounded_and_keeps_what_clients_hold() {
        let mut registry = Registry::new(b"sluice_");
        let held = intern(&mut registry, b"held");
        for i in 0..3 * KEPT_MAX {
            intern(&mut registry, format!("statement {i}").as_bytes());
        }
        // A new one looks at a few only, so the first round through all marks takes a few hundred of them.
        assert!(registry.table.len() <= KEPT_MAX + KEPT_MAX / LOOKS_MAX + 1);
        assert_eq!(registry.table.len(), registry.clock.len());
        assert_eq!(intern(&mut registry, b"held").id, held.id);
        let all: Vec<_> = (0..5 * KEPT_MAX).map(|i| intern(&mut registry, format!("{i}").as_bytes())).collect();
        assert!(registry.table.len() <= 2 * KEPT_MAX && all.len() == 5 * KEPT_MAX);
    }
}
