//! The statements that a server has under its client's own names, since SQL may mean them.

use std::collections::BTreeSet;

use crate::profile::{Profile, put_literal};

/// The names that a client has lent to its server: until they are taken back, what they mean is the server's to say.
/// Each stands here from before it is sent until it is closed, whatever becomes of its client.
#[derive(Debug, Default)]
pub struct Lent {
    names: BTreeSet<Box<[u8]>>,
    /// Whether SQL may have changed what they mean since the server was last asked.
    in_doubt: bool,
    /// The names that the server has said it has statements of the protocol by, in hexadecimal.
    heard: BTreeSet<String>,
    /// The number of statements of the protocol that it had under them then.
    count: usize,
}

/// Whether a name may be lent: one that is the same in every encoding, and none of those that are the pool's own.
pub fn may_be_lent(name: &[u8]) -> bool {
    !name.is_empty() && name.is_ascii() && !name.starts_with(b"sluice_")
}

impl Lent {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of statements of the protocol that the server had under them when it was last asked.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether that name is lent.
    #[inline]
    pub fn has(&self, name: &[u8]) -> bool {
        !self.names.is_empty() && self.names.contains(name)
    }

    /// A statement is sent under that name.
    pub fn lend(&mut self, name: &[u8]) {
        self.names.insert(name.into());
    }

    /// The server has no statement under that name: it has not made the one that it was sent.
    pub fn remove(&mut self, name: &[u8]) {
        self.names.remove(name);
    }

    /// All names, which are to be closed.
    pub fn take_all(&mut self) -> BTreeSet<Box<[u8]>> {
        std::mem::take(self).names
    }

    /// SQL may change what they mean, or the client closes one.
    pub fn doubt(&mut self) {
        self.in_doubt = !self.names.is_empty();
    }

    /// Whether the server is to be asked which of them it has.
    pub fn are_in_doubt(&self) -> bool {
        self.in_doubt && !self.names.is_empty()
    }

    /// The query that asks, under those settings. As in a probe, every name is qualified, and nothing may end it.
    pub fn ask(&mut self, profile: &Profile) -> String {
        self.heard.clear();
        let mut sql = String::from("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SET LOCAL statement_timeout = 0;");
        if profile.get("transaction_timeout").is_some() {
            sql.push_str("SET LOCAL transaction_timeout = 0;");
        }
        sql.push_str(
            "SELECT pg_catalog.encode(pg_catalog.convert_to(p.name,pg_catalog.getdatabaseencoding()),'hex') \
             FROM pg_catalog.pg_prepared_statement() p WHERE NOT p.from_sql \
             AND p.name OPERATOR(pg_catalog.=) ANY (ARRAY[",
        );
        for (place, name) in self.names.iter().enumerate() {
            sql.push_str(if place == 0 { "" } else { "," });
            put_literal(&mut sql, name);
        }
        sql.push_str("]::pg_catalog.text[])");
        sql
    }

    /// It has that one.
    pub fn hear(&mut self, name: &str) {
        self.heard.insert(name.to_owned());
    }

    /// It has said which it has; returns those that it has not, which are lent no more. If SQL has them, a pin says so.
    pub fn conclude(&mut self) -> BTreeSet<Box<[u8]>> {
        self.in_doubt = false;
        let heard = std::mem::take(&mut self.heard);
        self.count = heard.len();
        let hex = |name: &[u8]| name.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (left, gone) = std::mem::take(&mut self.names).into_iter().partition(|name| heard.contains(&hex(name)));
        self.names = left;
        gone
    }
}
