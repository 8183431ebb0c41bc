//! Transactions that have begun without a server.

use crate::sql::Begin;

/// A transaction that has begun without a server.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// Its BEGIN.
    pub begin: Begin,
    /// Whether by a Query, which leaves no portal.
    pub by_query: bool,
    /// Whether it has failed since: its first statement was cancelled while it waited for a server.
    pub failed: bool,
    /// Whether a query has been parsed in it, which takes a snapshot.
    pub has_parsed: bool,
}

impl Begun {
    /// One of which nothing has come but its BEGIN.
    pub fn new(begin: Begin, by_query: bool) -> Self {
        Self { begin, by_query, failed: false, has_parsed: false }
    }

    /// One that has failed before anything of it ran.
    pub fn failed(begin: Begin) -> Self {
        Self { failed: true, ..Self::new(begin, true) }
    }
}
