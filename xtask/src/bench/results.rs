//! The results of a run, by case and target, and the comparison of two targets.
//!
//! Ratios are medians of the ratios within each round, pair by pair, so that slow changes of the machine cancel
//! out.

use std::collections::BTreeMap;
use std::fmt;

use sluice_lab::stats::median;

/// The turns of a case before one target.
#[derive(Debug)]
pub(crate) struct Series<F> {
    /// By round.
    pub(crate) turns: BTreeMap<u32, F>,
    /// Why there are no (more) turns.
    pub(crate) trouble: Option<Trouble>,
}

#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Skipped(String),
    Broken(String),
}

impl Trouble {
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(why) => write!(out, "skipped: {why}"),
            Self::Broken(why) => write!(out, "broke: {why}"),
        }
    }
}

impl<F> Default for Series<F> {
    fn default() -> Self {
        Self { turns: BTreeMap::new(), trouble: None }
    }
}

impl<F> Series<F> {
    /// The median of a figure over the turns.
    pub(crate) fn median(&self, figure: impl Fn(&F) -> Option<f64>) -> Option<f64> {
        median(self.turns.values().filter_map(figure))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.trouble.as_ref().is_some_and(Trouble::is_broken)
    }
}

/// All that was measured, by case and target.
pub(crate) type Results<T, F> = BTreeMap<(&'static str, T), Series<F>>;

/// The targets of a case.
pub(crate) fn of_case<'a, T: Copy, F>(
    results: &'a Results<T, F>,
    case: &'static str,
) -> impl Iterator<Item = (T, &'a Series<F>)> {
    results.iter().filter(move |((name, _), _)| *name == case).map(|((_, target), series)| (*target, series))
}

/// The median over rounds of one target's figure divided by another's of the same round.
pub(crate) fn ratio<T: Ord, F>(
    results: &Results<T, F>,
    own: (&'static str, T),
    other: (&'static str, T),
    figure: impl Fn(&F) -> Option<f64>,
) -> Option<f64> {
    let (own, other) = (results.get(&own)?, results.get(&other)?);
    let pairs = own.turns.iter().filter_map(|(round, figures)| {
        let (above, below) = (figure(figures)?, figure(other.turns.get(round)?)?);
        (below > 0.0).then(|| above / below)
    });
    median(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(turns: &[f64]) -> Series<f64> {
        Series { turns: (0..).zip(turns.iter().copied()).collect(), trouble: None }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let results = Results::from([
            (("case", "straight"), series(&[100.0, 200.0, 400.0])),
            (("case", "other"), series(&[80.0, 160.0])),
            (("case", "own"), series(&[150.0, 220.0, 480.0])),
        ]);
        let over = |other| ratio(&results, ("case", "own"), ("case", other), |figure| Some(*figure));
        assert_eq!(over("straight"), Some(1.2));
        assert_eq!(over("other"), Some(f64::midpoint(1.875, 1.375)));
        assert_eq!(over("none"), None);
    }
}
