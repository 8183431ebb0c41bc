//! The rows that each transaction of the stress test was to leave behind, compared with those that it did.

use std::collections::HashMap;

use postgres::Client;

/// The tables. Nothing in them is unique, so that a row that is there twice shows.
pub(super) const TABLES: &str = "
    CREATE TABLE ledger (session int, number int, part int, is_hot boolean);
    CREATE TABLE hot (id int, n bigint);
    INSERT INTO hot SELECT id, 0 FROM generate_series(0, 3) id;
    CREATE INDEX ON hot (id);";

/// Parts from this one on are rolled back within their transaction, which may itself commit.
pub(super) const UNDONE: u32 = 100;

/// The outcome of a transaction, as far as its client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its COMMIT was acknowledged: all its rows are there, each of them once.
    Committed,
    /// It was rolled back, failed, or its COMMIT was never sent: none of its rows is there.
    Aborted,
    /// The connection was lost before an answer to its COMMIT: all of its rows are there, or none.
    Unknown,
    /// Its BEGIN failed by an interrupt before the statement ran, and its client sent the rest all the same.
    Loose,
}

/// A transaction.
#[derive(Debug, Clone, Copy)]
struct Entry {
    parts: u32,
    outcome: Outcome,
}

/// One session's transactions, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Notes that a transaction of so many rows is about to begin; its number.
    pub(super) fn begin(&mut self, parts: u32) -> usize {
        self.entries.push(Entry { parts, outcome: Outcome::Aborted });
        self.entries.len() - 1
    }

    /// Notes the outcome of a transaction.
    pub(super) fn end(&mut self, number: usize, outcome: Outcome) {
        self.entries[number].outcome = outcome;
    }

    /// The number of transactions with that outcome.
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.entries.iter().filter(|entry| entry.outcome == outcome).count()
    }
}

/// Compares all ledgers, by the numbers of their sessions, with the tables; the differences.
pub(super) fn differences(client: &mut Client, ledgers: &[Ledger]) -> Vec<String> {
    let sql = "SELECT session, number, string_agg(part::text, ',' ORDER BY part) FROM ledger GROUP BY session, number";
    let there: HashMap<(i32, i32), String> =
        client.query(sql, &[]).unwrap().iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    let mut differences = Vec::new();
    let mut known = 0;
    for (session, ledger) in ledgers.iter().enumerate() {
        for (number, entry) in ledger.entries.iter().enumerate() {
            let key = (i32::try_from(session).unwrap(), i32::try_from(number).unwrap());
            let rows = there.get(&key).map_or("", String::as_str);
            known += usize::from(!rows.is_empty());
            let all = (0..entry.parts).map(|part| part.to_string()).collect::<Vec<_>>().join(",");
            let agrees = match entry.outcome {
                Outcome::Committed => rows == all,
                Outcome::Aborted => rows.is_empty(),
                Outcome::Unknown => rows.is_empty() || rows == all,
                Outcome::Loose => true,
            };
            if !agrees {
                differences.push(format!("session {session}, transaction {number}: {entry:?}, but rows {rows:?}"));
            }
        }
    }
    if known != there.len() {
        differences.push(format!("{} transactions in the table, {known} of them in the ledgers", there.len()));
    }
    let sums =
        client.query_one("SELECT (SELECT sum(n)::bigint FROM hot), (SELECT count(*) FROM ledger WHERE is_hot)", &[]);
    let sums = sums.unwrap();
    let (hot, noted): (i64, i64) = (sums.get(0), sums.get(1));
    if hot != noted {
        differences.push(format!("{hot} updates of hot rows, but {noted} rows that say so"));
    }
    differences
}
