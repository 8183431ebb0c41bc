//! Both sides of a suite, test by test.

use std::{collections::BTreeMap, fmt};

use crate::{
    known::{Difference, Known},
    run::Outcomes,
};

/// A test's outcome on both sides, if it differs.
struct Row<'a> {
    test: &'a str,
    straight: &'a str,
    pool: &'a str,
    known: Option<&'a Difference>,
}

/// A suite's run through a pool beside the one straight.
pub(crate) struct Comparison<'a> {
    straight: &'a Outcomes,
    pool: &'a Outcomes,
    rows: Vec<Row<'a>>,
    /// Known differences that did not show.
    stale: Vec<&'a Difference>,
}

impl<'a> Comparison<'a> {
    /// Compares two runs of the same tests.
    pub(crate) fn new(straight: &'a Outcomes, pool: &'a Outcomes, known: &'a Known, extension: bool) -> Self {
        let known = || known.0.iter().filter(|known| known.applies(extension));
        let mut rows = Vec::new();
        let names = straight.keys().chain(pool.keys().filter(|name| !straight.contains_key(*name)));
        for test in names {
            let outcome = |side: &'a Outcomes| side.get(test).map_or("not run", String::as_str);
            let (straight, pool) = (outcome(straight), outcome(pool));
            if straight != pool {
                rows.push(Row { test, straight, pool, known: known().find(|known| known.covers(test)) });
            }
        }
        let shown = |known: &Difference| rows.iter().any(|row| known.covers(row.test));
        let stale = known().filter(|known| !known.unsteady && !shown(known)).collect();
        Self { straight, pool, rows, stale }
    }

    /// The tests that differ and are not listed, by names that they can be run by.
    pub(crate) fn unknown(&self) -> Vec<String> {
        self.rows.iter().filter(|row| row.known.is_none()).map(|row| runnable(row.test)).collect()
    }

    /// The tests that are listed and end alike.
    pub(crate) fn stale(&self) -> impl Iterator<Item = &str> {
        self.stale.iter().map(|known| known.test.as_str())
    }
}

/// The name by which a test can be run again: for what comes before or behind a class's tests (`tearDownClass (NAME)`),
/// the class.
fn runnable(test: &str) -> String {
    let class = test.split_once(" (").and_then(|(_, rest)| rest.strip_suffix(')'));
    class.map_or(test, |class| class.trim_start_matches("tests.")).to_owned()
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} straight, {} through the pool", counts(self.straight), counts(self.pool))?;
        for row in &self.rows {
            let reason = row.known.map_or("NOT LISTED", |known| &known.reason);
            writeln!(f, "| {} | {} | {} | {reason} |", row.test, row.straight, row.pool)?;
        }
        Ok(())
    }
}

fn counts(outcomes: &Outcomes) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for outcome in outcomes.values() {
        *counts.entry(outcome).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    counts.join(", ")
}
