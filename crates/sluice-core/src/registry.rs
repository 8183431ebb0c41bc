//! The statements of a pool.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::{
    profile::{Context, Profile, literals::SearchPath},
    sql,
    statement::{Knowledge, Statement, StatementId, Terms},
    uses::Used,
};

/// Definitions larger than this are not kept once no client has them, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Statements a pool keeps beyond those that clients hold, and the size of their definitions, in bytes.
const KEPT_MAX: usize = 8192;
const ALL_KEPT_BYTES_MAX: usize = 32 << 20;

/// The statements that are looked at to find one that may go for a new one, at most: others wait meanwhile.
const LOOKS_MAX: usize = 16;

/// The statements of a pool, which its workers share. Bounded: beyond [`KEPT_MAX`], or
/// [`ALL_KEPT_BYTES_MAX`], those that no client holds and nobody has asked for lately go first (the clock algorithm). No
/// text is read while others wait.
#[derive(Debug, Default)]
pub struct Registry {
    shared: Mutex<Shared>,
    hasher: RandomState,
    /// The number of the next statement, of all pools: a client may take its statements to another one.
    next: Arc<AtomicU64>,
    /// The beginning of every name.
    prefix: Box<[u8]>,
}

/// The shared statements, and the order in which they are looked at for one that may go.
#[derive(Debug, Default)]
struct Shared {
    table: HashTable<Arc<Statement>>,
    clock: VecDeque<Arc<Statement>>,
    /// The size of their definitions.
    bytes: usize,
}

impl Registry {
    /// An empty one; the statements' names on the servers begin with `prefix`, and are numbered by `next`.
    pub fn new(prefix: &[u8], next: Arc<AtomicU64>) -> Self {
        Self { prefix: prefix.into(), next, ..Self::default() }
    }

    /// The statement of that definition under those terms, counted as seen once more. `profile` is what
    /// `terms.read` is the fingerprint of.
    pub fn intern(&self, definition: &[u8], terms: Terms, profile: &Profile) -> Arc<Statement> {
        self.intern_of(definition, terms, profile, profile.search_path())
    }

    /// The same of one that was parsed under that `search_path`, which `terms.parsed` is the fingerprint of, too.
    fn intern_of(&self, definition: &[u8], terms: Terms, profile: &Profile, path: SearchPath) -> Arc<Statement> {
        let statement = match self.find(definition, terms) {
            Some(known) => known,
            None => self.insert(Arc::new(self.make(definition, Some(terms), profile).parsed_under(path)), terms),
        };
        statement.see();
        statement
    }

    /// A statement that nobody shares.
    pub fn private(&self, definition: &[u8], profile: &Profile, knowledge: Knowledge) -> Arc<Statement> {
        Arc::new(self.make(definition, None, profile).private(knowledge))
    }

    /// The same statement, to be run under other settings than before.
    pub fn under(&self, statement: &Arc<Statement>, run: Context) -> Arc<Statement> {
        let Some(terms) = statement.terms else { return statement.clone() };
        let terms = Terms { run, ..terms };
        let other = self.intern_of(&statement.definition, terms, &statement.profile, statement.parsed_path.clone());
        other.take_over(statement);
        other
    }

    /// The same statement with its literals read by these settings. It is shared where it is known under which settings
    /// it runs.
    pub fn reread(&self, statement: &Arc<Statement>, profile: &Profile, run: Option<Context>) -> Arc<Statement> {
        let terms = statement.terms.or(statement.was_shared);
        let other = match terms.zip(run) {
            Some((terms, run)) => {
                let terms = Terms { read: profile.context(), run, ..terms };
                self.intern_of(&statement.definition, terms, profile, statement.parsed_path.clone())
            }
            None => {
                let mut other = self.make(&statement.definition, None, profile).private(Knowledge::Exact);
                other.was_shared = terms;
                Arc::new(other.parsed_under(statement.parsed_path.clone()))
            }
        };
        other.take_over(statement);
        other
    }

    /// The statement of that definition, if it is known; not counted as seen.
    pub fn find(&self, definition: &[u8], terms: Terms) -> Option<Arc<Statement>> {
        let hash = self.hash(definition, terms);
        self.shared().find(hash, definition, terms).cloned()
    }

    /// The uses of the statements that it has, by the beginnings of their texts without constants: those may be anybody's
    /// data, or a password. Statements that differ in nothing else are counted together.
    pub fn used(&self) -> HashMap<String, Used> {
        let statements: Vec<_> = self.shared().clock.iter().cloned().collect();
        let mut all = HashMap::<String, Used>::new();
        for statement in statements {
            let used = statement.uses.used();
            if used.calls > 0 {
                *all.entry(sql::shown(statement.query())).or_default() += used;
            }
        }
        all
    }

    /// Adds a statement, unless another worker has been first; gives the one that is shared now.
    fn insert(&self, statement: Arc<Statement>, terms: Terms) -> Arc<Statement> {
        let hash = self.hash(&statement.definition, terms);
        let mut shared = self.shared();
        if let Some(known) = shared.find(hash, &statement.definition, terms) {
            return known.clone();
        }
        if statement.definition.len() <= KEPT_BYTES_MAX && self.make_room(&mut shared, statement.definition.len()) {
            shared.table.insert_unique(hash, statement.clone(), |other| self.hash_of(other));
            shared.bytes += statement.definition.len();
            shared.clock.push_back(statement.clone());
        }
        statement
    }

    fn make(&self, definition: &[u8], terms: Option<Terms>, profile: &Profile) -> Statement {
        let id = StatementId(self.next.fetch_add(1, Ordering::Relaxed));
        let name = [&*self.prefix, format!("{:x}", id.0).as_bytes()].concat();
        Statement::new(id, name.into(), definition, terms, profile.clone())
    }

    /// Whether there is room for one more, of that size. Where clients hold them all, there is twice as much at most.
    fn make_room(&self, shared: &mut Shared, bytes: usize) -> bool {
        for _ in 0..LOOKS_MAX {
            if shared.has_room(bytes, 1) {
                return true;
            }
            let Some(oldest) = shared.clock.pop_front() else { return true };
            let is_held = Arc::strong_count(&oldest) > 2;
            if is_held || oldest.take_recent() {
                shared.clock.push_back(oldest);
                continue;
            }
            if let Ok(entry) = shared.table.find_entry(self.hash_of(&oldest), |other| other.id == oldest.id) {
                entry.remove();
            }
            shared.bytes -= oldest.definition.len();
        }
        shared.has_room(bytes, 2)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, definition: &[u8], terms: Terms) -> u64 {
        self.hasher.hash_one((definition, terms))
    }

    fn hash_of(&self, statement: &Statement) -> u64 {
        // Only those that are shared are in the table.
        statement.terms.map_or(0, |terms| self.hash(&statement.definition, terms))
    }
}

impl Shared {
    fn has_room(&self, bytes: usize, times: usize) -> bool {
        self.clock.len() < times * KEPT_MAX && self.bytes + bytes <= times * ALL_KEPT_BYTES_MAX
    }

    fn find(&self, hash: u64, definition: &[u8], terms: Terms) -> Option<&Arc<Statement>> {
        self.table.find(hash, |other| other.terms == Some(terms) && *other.definition == *definition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intern(registry: &Registry, definition: &[u8]) -> Arc<Statement> {
        registry.intern(definition, Terms::PLAIN, &Profile::default())
    }

    fn len(registry: &Registry) -> usize {
        let shared = registry.shared();
        assert_eq!(shared.table.len(), shared.clock.len());
        shared.table.len()
    }

    #[test]
    fn the_same_definition_under_the_same_terms_is_the_same_statement() {
        let registry = Registry::new(b"sluice_", Arc::default());
        let a = intern(&registry, b"select 1\0\0\0");
        assert!(!a.came_again());
        let b = intern(&registry, b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&a, &b) && a.came_again());
        assert_ne!(intern(&registry, b"select 2\0\0\0").id, a.id);
        let later = Terms { catalog: 1, ..Terms::PLAIN };
        assert_ne!(registry.intern(b"select 1\0\0\0", later, &Profile::default()).id, a.id);
        assert_ne!(registry.private(b"select 1\0\0\0", &Profile::default(), Knowledge::Exact).id, a.id);
    }

    #[test]
    fn what_is_told_of_statements_has_no_constants_and_an_end() {
        let registry = Registry::new(b"sluice_", Arc::default());
        let long = format!("select {}\0", "a, ".repeat(10_000));
        let texts = [
            "alter role app password 'hush'\0",
            "select 1 /* hush */\0",
            "select 2 -- hush\0",
            "select 'hush\\', 'hush'\0",
            &long,
        ];
        for text in texts {
            let statement = intern(&registry, format!("{text}\0\0").as_bytes());
            statement.uses.count(1, std::time::Duration::from_micros(5), std::time::Duration::ZERO);
        }
        let used = registry.used();
        // Those that differ in that only are one.
        assert_eq!(used["select ?"].calls, 2);
        assert_eq!(used["alter role app password ?"].calls, 1);
        assert_eq!((used["select ?…"].calls, used.len()), (1, 4));
        for text in used.keys() {
            assert!(!text.contains("hush") && text.len() < 3000, "{text}");
        }
    }

    #[test]
    fn a_registry_stays_bounded_in_bytes() {
        let registry = Registry::new(b"sluice_", Arc::default());
        let text = |i: usize| [i.to_string().as_bytes(), &vec![b' '; KEPT_BYTES_MAX - 8]].concat();
        for i in 0..4 * ALL_KEPT_BYTES_MAX / KEPT_BYTES_MAX {
            intern(&registry, &text(i));
        }
        let shared = registry.shared();
        assert_eq!(shared.bytes, shared.clock.iter().map(|it| it.definition.len()).sum::<usize>());
        assert!(shared.bytes <= 2 * ALL_KEPT_BYTES_MAX, "{}", shared.bytes);
    }

    #[test]
    fn a_registry_stays_bounded_and_keeps_what_clients_hold() {
        let registry = Registry::new(b"sluice_", Arc::default());
        let held = intern(&registry, b"held");
        for i in 0..3 * KEPT_MAX {
            intern(&registry, format!("statement {i}").as_bytes());
        }
        // A new one looks at a few only, so the first round through all marks takes a few hundred of them.
        assert!(len(&registry) <= KEPT_MAX + KEPT_MAX / LOOKS_MAX + 1);
        assert_eq!(intern(&registry, b"held").id, held.id);
        let all: Vec<_> = (0..5 * KEPT_MAX).map(|i| intern(&registry, format!("{i}").as_bytes())).collect();
        assert!(len(&registry) <= 2 * KEPT_MAX && all.len() == 5 * KEPT_MAX);
    }
}
