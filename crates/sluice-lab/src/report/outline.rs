//! The order of a result: its targets, variants and loads, which of them comes first, and what they are called.
//!
//! It holds no figures of its own.

use crate::result::{CaseKey, Figures, Measured, RunResult, Turn};

use super::{colour::colour, columns::Column, number::clients};

/// A result with its order.
#[derive(Clone, Debug)]
pub(crate) struct Outline<'a> {
    /// Of what.
    pub(crate) result: &'a RunResult,
    /// In the order of their first turns; the first is what the others are compared with.
    pub(crate) targets: Vec<&'a str>,
    /// In the order of their first turns.
    pub(crate) variants: Vec<&'a str>,
    cases: Vec<&'a CaseKey>,
}

/// The load that all targets were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load<'a> {
    pub(crate) variant: &'a str,
    pub(crate) clients: u32,
}

impl<'a> Outline<'a> {
    pub(crate) fn of(result: &'a RunResult) -> Self {
        let cases = result.cases();
        let (mut targets, mut variants) = (Vec::new(), Vec::new());
        for case in &cases {
            once(&mut targets, case.target.as_str());
            once(&mut variants, case.variant.as_str());
        }
        Self { result, targets, variants, cases }
    }

    /// A variant's loads, by number of clients.
    pub(crate) fn loads(&self, variant: &'a str) -> Vec<Load<'a>> {
        let of_variant = self.cases.iter().filter(|case| case.variant == variant);
        let mut clients: Vec<u32> = of_variant.map(|case| case.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.into_iter().map(|clients| Load { variant, clients }).collect()
    }

    /// All loads, variant by variant.
    pub(crate) fn all_loads(&self) -> Vec<Load<'a>> {
        self.variants.iter().flat_map(|variant| self.loads(variant)).collect()
    }

    /// Whether a variant has so many steps of clients that a chart of them says something.
    pub(crate) fn is_ladder(&self, variant: &'a str) -> bool {
        self.loads(variant).len() >= 3
    }

    /// Variants that are shown in one table: all of them, or each by itself where there is a ladder.
    pub(crate) fn groups(&self) -> Vec<Vec<&'a str>> {
        match self.variants.iter().any(|variant| self.is_ladder(variant)) {
            true => self.variants.iter().map(|variant| vec![*variant]).collect(),
            false if self.variants.is_empty() => Vec::new(),
            false => vec![self.variants.clone()],
        }
    }

    /// A load's case of one target.
    pub(crate) fn case(&self, load: Load<'_>, target: &str) -> Option<&'a CaseKey> {
        let is_it =
            |case: &&&CaseKey| case.variant == load.variant && case.clients == load.clients && case.target == target;
        self.cases.iter().find(is_it).copied()
    }

    /// A load's cases, in the order of targets.
    pub(crate) fn cases_of(&self, load: Load<'_>) -> Vec<&'a CaseKey> {
        self.targets.iter().filter_map(|target| self.case(load, target)).collect()
    }

    /// The case of the first target at the same load.
    pub(crate) fn first_of(&self, case: &CaseKey) -> Option<&'a CaseKey> {
        self.case(Load { variant: &case.variant, clients: case.clients }, self.targets.first()?)
    }

    /// The largest load of a variant that most targets came through.
    pub(crate) fn largest(&self, variant: &'a str) -> Option<Load<'a>> {
        let measured = |load: &Load<'a>| self.cases_of(*load).into_iter().filter(|case| self.is_measured(case)).count();
        // Of equal ones the last, which is the largest.
        self.loads(variant).into_iter().max_by_key(measured).filter(|load| measured(load) > 0)
    }

    /// The load that the page begins with.
    pub(crate) fn headline(&self) -> Option<Load<'a>> {
        self.variants.iter().find_map(|variant| self.largest(variant))
    }

    /// Whether some turn of a case went to its end.
    pub(crate) fn is_measured(&self, case: &CaseKey) -> bool {
        self.result.measured().any(|(turn, _)| turn.case == *case)
    }

    /// The median of a figure over a case's turns.
    pub(crate) fn median(&self, case: &CaseKey, column: Column) -> Option<f64> {
        self.result.median(case, column.of)
    }

    /// The lowest and the highest over a case's turns.
    pub(crate) fn range(&self, case: &CaseKey, column: Column) -> Option<(f64, f64)> {
        range(self.result.measured().filter(|(turn, _)| turn.case == *case), column.of)
    }

    /// Whether no case has more than one turn, so that a median is that turn's figure.
    pub(crate) fn has_single_turns(&self) -> bool {
        self.cases.iter().all(|case| self.result.of_case(case).count() <= 1)
    }

    /// The turn whose transactions a second are in the middle of its case's.
    pub(crate) fn middle_turn(&self, case: &'a CaseKey) -> Option<(&'a Turn, &'a Measured)> {
        let mut turns: Vec<_> = self.result.of_case(case).collect();
        turns.sort_by(|(_, a), (_, b)| a.figures.tps.total_cmp(&b.figures.tps));
        turns.get(turns.len().saturating_sub(1) / 2).copied()
    }

    /// The class of the target's colour.
    pub(crate) fn colour(&self, target: &str) -> &'static str {
        colour(self.targets.iter().position(|name| *name == target).unwrap_or(0))
    }
}

/// The lowest and the highest of a figure.
pub(crate) fn range<'a>(
    turns: impl Iterator<Item = (&'a Turn, &'a Measured)>,
    figure: fn(&Figures) -> Option<f64>,
) -> Option<(f64, f64)> {
    let values = turns.filter_map(|(_, measured)| figure(&measured.figures));
    values.fold(None, |range, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

impl Load<'_> {
    /// "logged, 1,000 clients".
    pub(crate) fn label(&self) -> String {
        let clients = clients(self.clients);
        if self.variant.is_empty() { clients } else { format!("{}, {clients}", self.variant) }
    }
}

/// "logged, 1,000 clients, gate".
pub(crate) fn label(case: &CaseKey) -> String {
    let load = Load { variant: &case.variant, clients: case.clients };
    format!("{}, {}", load.label(), case.target)
}

fn once<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}
