//! Both sides of a suite, test by test.

use std::{collections::BTreeMap, fmt};

use crate::{
    known::{Difference, Known},
    run::Outcomes,
};

/// How a test ended on both sides, if it ended differently.
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

    /// What makes the comparison fail: differences that nobody has listed and, of whole suites, listed ones that are none.
    pub(crate) fn wrong(&self, whole: bool) -> impl Iterator<Item = String> {
        let rows = self.rows.iter().filter(|row| row.known.is_none());
        let rows = rows.map(|row| format!("{}: {} straight, {} through the pool", row.test, row.straight, row.pool));
        let stale = self.stale.iter().filter(move |_| whole);
        rows.chain(stale.map(|known| format!("{}: listed, but ends alike", known.test)))
    }
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
