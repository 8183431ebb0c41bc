//! Prepared statements that clients share: one for each text and parameter types, known to a pool by a number, to a
//! server by a name made of it.

use std::{
    collections::VecDeque,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use hashbrown::HashTable;
use lru::LruCache;
use sluice_wire::message::split_cstr;

use crate::{
    residue::Residue,
    shape::Shape,
    sql::{self, Begin},
};

/// What the names of shared statements begin with, on the servers.
pub const NAME_PREFIX: &[u8] = b"sluice_";

/// Definitions larger than this are not kept once no client has them, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Statements a pool keeps, at most, beyond those that clients hold.
const KEPT_MAX: usize = 8192;

/// A shared statement's number within its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementId(pub u32);

/// A statement, by its text and parameter types.
#[derive(Debug)]
pub struct Statement {
    /// Its number; never given twice.
    pub id: StatementId,
    /// Its name on the servers, see [`server_name`].
    pub name: Box<[u8]>,
    /// The text and the types, as they stand in Parse.
    pub definition: Box<[u8]>,
    /// What running it may leave behind in a session.
    pub residue: Residue,
    /// Whether it is a BEGIN that may be answered without a server.
    pub begins: Option<Begin>,
    /// Whether a server of this pool has accepted it.
    accepted: AtomicBool,
    /// How often it came, until it does not matter any more.
    seen: AtomicU32,
    /// Whether it came since the registry's hand last passed.
    recent: AtomicBool,
}

impl Statement {
    fn new(id: StatementId, definition: &[u8]) -> Self {
        let name = server_name(id);
        let text = split_cstr(definition).map_or(definition, |(text, _)| text);
        let begins = begin_of(definition);
        Self {
            id,
            name,
            definition: definition.into(),
            residue: Residue::of_text(text),
            begins,
            accepted: AtomicBool::new(begins.is_some()),
            seen: AtomicU32::new(0),
            recent: AtomicBool::new(true),
        }
    }

    /// The text alone.
    pub fn query(&self) -> &[u8] {
        self.definition.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether a server of this pool has accepted it, so that a Parse of it may be answered without one.
    pub fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// A server has accepted it.
    pub fn accept(&self) {
        if !self.is_accepted() {
            self.accepted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has come before the time that is being handled.
    pub fn came_again(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > 1
    }

    fn see(&self) {
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
    sql::begin(text).filter(|_| types == [0, 0])
}

/// The statements of a pool. Bounded: beyond [`KEPT_MAX`], those that no client holds and nobody has asked for lately
/// go first (the clock algorithm).
#[derive(Debug, Default)]
pub struct Registry {
    table: HashTable<Arc<Statement>>,
    clock: VecDeque<Arc<Statement>>,
    hasher: foldhash::quality::RandomState,
    next: u32,
}

impl Registry {
    /// The statement of that definition, counted as seen once more.
    pub fn intern(&mut self, definition: &[u8]) -> Arc<Statement> {
        let hash = self.hasher.hash_one(definition);
        if let Some(known) = self.table.find(hash, |s| *s.definition == *definition) {
            known.see();
            return known.clone();
        }
        let statement = Arc::new(Statement::new(StatementId(self.next), definition));
        self.next = self.next.wrapping_add(1);
        statement.see();
        if definition.len() <= KEPT_BYTES_MAX {
            self.make_room();
            let hasher = &self.hasher;
            self.table.insert_unique(hash, statement.clone(), |s| hasher.hash_one(&*s.definition));
            self.clock.push_back(statement.clone());
        }
        statement
    }

    /// The statement of that definition, if it is known; not counted as seen.
    pub fn find(&self, definition: &[u8]) -> Option<&Arc<Statement>> {
        let hash = self.hasher.hash_one(definition);
        self.table.find(hash, |s| *s.definition == *definition)
    }

    fn make_room(&mut self) {
        // Each look either drops a statement or clears its mark, so two rounds find one unless clients hold them all.
        for _ in 0..self.clock.len().saturating_mul(2) {
            if self.clock.len() < KEPT_MAX {
                return;
            }
            let Some(oldest) = self.clock.pop_front() else { return };
            let held = Arc::strong_count(&oldest) > 2;
            if held || oldest.recent.swap(false, Ordering::Relaxed) {
                self.clock.push_back(oldest);
                continue;
            }
            let hash = self.hasher.hash_one(&*oldest.definition);
            if let Ok(entry) = self.table.find_entry(hash, |s| s.id == oldest.id) {
                entry.remove();
            }
            return;
        }
    }
}

/// The shared statements that one server has, the most recently used first.
#[derive(Debug)]
pub struct ServerStatements {
    known: LruCache<StatementId, Option<Shape>, foldhash::fast::RandomState>,
    limit: usize,
}

impl ServerStatements {
    /// For a server that keeps `limit` of them.
    pub fn new(limit: u32) -> Self {
        Self { known: LruCache::unbounded_with_hasher(foldhash::fast::RandomState::default()), limit: limit as usize }
    }

    /// Whether the server has it; counts as a use.
    pub fn touch(&mut self, id: StatementId) -> bool {
        self.known.get(&id).is_some()
    }

    /// The shape of its result, if the server has it and has described it.
    pub fn shape(&self, id: StatementId) -> Option<Shape> {
        *self.known.peek(&id)?
    }

    /// The server has described it.
    pub fn set_shape(&mut self, id: StatementId, shape: Shape) {
        if let Some(known) = self.known.peek_mut(&id) {
            *known = Some(shape);
        }
    }

    /// It is prepared anew, and may look different.
    pub fn forget_shape(&mut self, id: StatementId) {
        if let Some(known) = self.known.peek_mut(&id) {
            *known = None;
        }
    }

    /// Takes it as prepared on the server; gives the one to close for it, if the server has too many.
    pub fn insert(&mut self, id: StatementId) -> Option<StatementId> {
        let full = self.known.len() >= self.limit && !self.known.contains(&id);
        let evicted = if full { self.known.pop_lru().map(|(id, _)| id) } else { None };
        self.known.put(id, None);
        evicted
    }

    /// The server does not have it after all; returns whether that is news.
    pub fn remove(&mut self, id: StatementId) -> bool {
        self.known.pop(&id).is_some()
    }

    /// The server has none any more.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// How many the server has.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the server has none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// The name of a statement on the servers.
pub fn server_name(id: StatementId) -> Box<[u8]> {
    format!("sluice_{:x}", id.0).into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_definition_is_the_same_statement() {
        let mut registry = Registry::default();
        let a = registry.intern(b"select 1\0\0\0");
        assert!(!a.came_again());
        let b = registry.intern(b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&a, &b) && a.came_again());
        assert_ne!(registry.intern(b"select 2\0\0\0").id, a.id);
    }

    #[test]
    fn a_registry_stays_bounded_and_keeps_what_clients_hold() {
        let mut registry = Registry::default();
        let held = registry.intern(b"held");
        for i in 0..3 * KEPT_MAX {
            registry.intern(format!("statement {i}").as_bytes());
        }
        assert!(registry.table.len() <= KEPT_MAX + 1 && registry.table.len() == registry.clock.len());
        assert_eq!(registry.intern(b"held").id, held.id);
    }

    #[test]
    fn a_server_closes_the_least_recently_used() {
        let mut server = ServerStatements::new(2);
        assert_eq!(server.insert(StatementId(1)), None);
        assert_eq!(server.insert(StatementId(2)), None);
        assert!(server.touch(StatementId(1)));
        assert_eq!(server.insert(StatementId(3)), Some(StatementId(2)));
        assert!(!server.touch(StatementId(2)));
    }
}
