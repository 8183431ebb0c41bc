//! The prepared statements on a server: the shared ones, by name, and the unnamed one.

use std::collections::BTreeSet;

use lru::LruCache;

use crate::{
    holding::Prepared,
    shape::Shape,
    sql,
    statement::{OnServer, Statement, StatementId},
    time::Time,
};

/// The texts of statements that one server keeps, in bytes: plans take a multiple of that there. One that is larger is kept
/// alone.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The statements that one server has.
#[derive(Debug)]
pub struct ServerStatements {
    /// The shared ones, the most recently used first.
    known: LruCache<StatementId, Known, foldhash::fast::RandomState>,
    /// The size of their texts.
    bytes: usize,
    limit: usize,
    /// Shared ones that are to be closed there before they are prepared again.
    stale: Vec<OnServer>,
    /// Shared ones that were used while nobody knew the settings.
    tainted: BTreeSet<StatementId>,
    /// The unnamed one, if it is one that the pool knows.
    unnamed: Option<StatementId>,
    /// The number of times that the server has deallocated some without the pool.
    deallocated: u32,
}

/// A statement on a server.
#[derive(Debug)]
struct Known {
    name: Box<[u8]>,
    /// The size of its text.
    bytes: usize,
    /// Whether it looks as if it returned rows.
    has_rows: bool,
    there: There,
}

/// A shared statement as a server has it.
#[derive(Debug, Clone, Copy)]
pub struct There {
    /// The shape of its result, if the server has described it.
    pub shape: Option<Shape>,
    /// The time at which it was prepared.
    pub since: Time,
    /// Whether its parameter types are those that clients were told.
    pub is_typed: bool,
}

impl Known {
    /// A statement that is prepared now; `is_typed` says whether with the parameter types that clients were told.
    fn new(statement: &Statement, now: Time, is_typed: bool) -> Self {
        Self {
            name: statement.name.clone(),
            bytes: statement.definition.len(),
            has_rows: sql::returns_rows(statement.query()),
            there: There { shape: None, since: now, is_typed },
        }
    }
}

impl ServerStatements {
    /// For a server that keeps `limit` of them.
    pub fn new(limit: u32) -> Self {
        Self {
            known: LruCache::unbounded_with_hasher(foldhash::fast::RandomState::default()),
            bytes: 0,
            limit: limit as usize,
            stale: Vec::new(),
            tainted: BTreeSet::new(),
            unnamed: None,
            deallocated: 0,
        }
    }

    /// Whether the server has it; counts as a use.
    pub fn touch(&mut self, id: StatementId) -> bool {
        self.known.get(&id).is_some()
    }

    /// Whether the server has it; counts as no use.
    pub fn has(&self, id: StatementId) -> bool {
        self.known.contains(&id)
    }

    /// It, as the server has it; counts as a use.
    pub fn find(&mut self, id: StatementId) -> Option<There> {
        Some(self.known.get(&id)?.there)
    }

    /// The parameter types that it has on the server are those that clients were told.
    pub fn set_typed(&mut self, id: StatementId) {
        if let Some(known) = self.known.peek_mut(&id) {
            known.there.is_typed = true;
        }
    }

    /// The shape of its result, if the server has it and has described it.
    pub fn shape(&self, id: StatementId) -> Option<Shape> {
        self.known.peek(&id)?.there.shape
    }

    /// The name of one that returns rows, if the server has any that is known to.
    pub fn with_rows(&self) -> Option<Box<[u8]>> {
        let known = self.known.iter().map(|(_, known)| known);
        let mut with_rows =
            known.filter(|known| known.there.shape.map_or(known.has_rows, |shape| shape != Shape::none()));
        with_rows.next().map(|known| known.name.clone())
    }

    /// The server has described it.
    pub fn set_shape(&mut self, id: StatementId, shape: Shape) {
        if let Some(known) = self.known.peek_mut(&id) {
            known.there.shape = Some(shape);
        }
    }

    /// It is prepared anew, and may look different.
    pub fn forget_shape(&mut self, id: StatementId) {
        if let Some(known) = self.known.peek_mut(&id) {
            known.there.shape = None;
        }
    }

    /// Takes it as prepared on the server; `is_typed` says whether with the parameter types that clients were told. Gives
    /// those that are to be closed before: all that are stale, or those that nobody asks for again would stay for good,
    /// and the least recently used while the server has too many, or too much of them.
    pub fn insert(&mut self, statement: &Statement, now: Time, is_typed: bool) -> impl Iterator<Item = OnServer> {
        self.pop(statement.id);
        let new = Known::new(statement, now, is_typed);
        let mut gone = Vec::new();
        while self.known.len() >= self.limit || self.bytes + new.bytes > KEPT_BYTES_MAX {
            let Some((id, known)) = self.pop_lru() else { break };
            gone.push(OnServer { id, name: known.name });
        }
        self.put(statement.id, new);
        gone.append(&mut self.stale);
        gone.into_iter()
    }

    /// It takes the place of another one, which is closed.
    pub fn replace(&mut self, old: StatementId, new: &Statement, now: Time) {
        self.pop(old);
        self.put(new.id, Known::new(new, now, false));
    }

    fn put(&mut self, id: StatementId, known: Known) {
        self.bytes += known.bytes;
        let before = self.known.put(id, known);
        self.bytes -= before.map_or(0, |before| before.bytes);
    }

    fn pop(&mut self, id: StatementId) -> Option<Known> {
        let known = self.known.pop(&id);
        self.bytes -= known.as_ref().map_or(0, |known| known.bytes);
        known
    }

    fn pop_lru(&mut self) -> Option<(StatementId, Known)> {
        let known = self.known.pop_lru();
        self.bytes -= known.as_ref().map_or(0, |(_, known)| known.bytes);
        known
    }

    /// The server has refused to prepare it.
    pub fn refused(&mut self, id: StatementId) {
        self.pop(id);
    }

    /// The server has it, but it is of no use any more.
    pub fn retire(&mut self, id: StatementId) {
        let gone = self.pop(id).map(|known| OnServer { id, name: known.name });
        self.stale.extend(gone);
    }

    /// It should have been closed, and is there still. If the list is full again meanwhile, another one is on it that
    /// the server does not have.
    pub fn keep_stale(&mut self, gone: OnServer) {
        if !self.stale.contains(&gone) {
            self.stale.push(gone);
        }
    }

    /// It is used while nobody knows the settings: PostgreSQL may parse it anew under those.
    pub fn taint(&mut self, id: StatementId) {
        self.tainted.insert(id);
    }

    /// The transaction is over in which some were tainted.
    pub fn retire_tainted(&mut self) {
        if !self.tainted.is_empty() {
            for id in std::mem::take(&mut self.tainted) {
                self.retire(id);
            }
        }
    }

    /// The server has no named one any more.
    pub fn clear_named(&mut self) {
        self.known.clear();
        self.bytes = 0;
        self.stale.clear();
    }

    /// The server has none any more.
    pub fn clear(&mut self) {
        self.clear_named();
        self.unnamed = None;
    }

    /// The unnamed one, if the server has one that the pool knows.
    pub fn unnamed(&self) -> Option<StatementId> {
        self.unnamed
    }

    /// The server has this one as the unnamed one, or one that the pool does not know.
    pub fn set_unnamed(&mut self, id: Option<StatementId>) {
        self.unnamed = id;
    }

    /// The server has said how many it has, `others` among them, or how often it has deallocated some. Where a function
    /// has done that, nobody knows which ones are left: they are closed before they are prepared again.
    pub fn compare(&mut self, prepared: Prepared, others: usize) {
        let has_lost = match prepared {
            Prepared::Count(count) => count.saturating_sub(others) < self.known.len(),
            Prepared::Deallocated(times) => std::mem::replace(&mut self.deallocated, times) != times,
        };
        while has_lost && let Some((id, known)) = self.pop_lru() {
            self.stale.push(OnServer { id, name: known.name });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{profile::Profile, registry::Registry, statement::Terms};

    fn statements() -> [Arc<Statement>; 3] {
        let registry = Registry::new(b"sluice_", std::sync::Arc::default());
        [1, 2, 3].map(|i| registry.intern(format!("{i}").as_bytes(), Terms::PLAIN, &Profile::default()))
    }

    fn insert(server: &mut ServerStatements, statement: &Statement) -> Vec<StatementId> {
        server.insert(statement, Time(0), false).map(|gone| gone.id).collect()
    }

    #[test]
    fn a_server_closes_the_least_recently_used() {
        let statements = statements();
        let mut server = ServerStatements::new(2);
        assert_eq!(insert(&mut server, &statements[0]), []);
        assert_eq!(insert(&mut server, &statements[1]), []);
        assert!(server.touch(statements[0].id));
        assert_eq!(insert(&mut server, &statements[2]), [statements[1].id]);
        assert!(!server.touch(statements[1].id));
    }

    #[test]
    fn a_server_keeps_no_more_text_than_may_be() {
        let registry = Registry::new(b"sluice_", std::sync::Arc::default());
        let of_size = |bytes: usize, number: u8| {
            registry.intern(
                &[&[b'0' + number; 1][..], &vec![b' '; bytes - 1]].concat(),
                Terms::PLAIN,
                &Profile::default(),
            )
        };
        let [a, b, c] = [0, 1, 2].map(|number| of_size(KEPT_BYTES_MAX / 3, number));
        let (large, small) = (of_size(KEPT_BYTES_MAX + 1, 3), of_size(8, 4));
        let mut server = ServerStatements::new(8);
        for statement in [&a, &b, &c, &a] {
            assert_eq!(insert(&mut server, statement), []);
        }
        assert_eq!(insert(&mut server, &small), [b.id]);
        assert_eq!(insert(&mut server, &large), [c.id, a.id, small.id]);
        assert_eq!(insert(&mut server, &small), [large.id]);
        server.retire(small.id);
        insert(&mut server, &a);
        server.replace(a.id, &b, Time(0));
        server.refused(b.id);
        assert_eq!(server.bytes, 0);
        insert(&mut server, &c);
        server.compare(Prepared::Count(0), 0);
        assert_eq!(server.bytes, 0);
    }

    #[test]
    fn what_a_function_has_deallocated_is_gone() {
        let [first, second, _] = statements();
        let mut server = ServerStatements::new(8);
        insert(&mut server, &first);
        server.compare(Prepared::Count(1), 0);
        server.compare(Prepared::Deallocated(0), 0);
        assert!(server.touch(first.id));
        server.compare(Prepared::Count(0), 0);
        assert!(!server.touch(first.id));
        insert(&mut server, &second);
        server.compare(Prepared::Deallocated(1), 0);
        assert!(!server.touch(second.id));
        insert(&mut server, &second);
        server.compare(Prepared::Deallocated(1), 0);
        assert!(server.touch(second.id));
    }

    #[test]
    fn a_retired_one_is_closed_once_and_a_refused_one_never() {
        let [first, second, third] = statements();
        let mut server = ServerStatements::new(8);
        insert(&mut server, &first);
        insert(&mut server, &second);
        server.taint(first.id);
        assert!(server.touch(first.id), "it is of use until the transaction is over");
        server.retire_tainted();
        server.refused(second.id);
        assert!(!server.touch(first.id) && !server.touch(second.id));
        assert_eq!(insert(&mut server, &third), [first.id]);
        assert_eq!(insert(&mut server, &second), []);
    }
}
