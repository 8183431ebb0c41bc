//! Bars: what a figure has to reach, and whether it has. Which figures these are is in the chores.

use std::fmt;

use super::results::Series;
use sluice_lab::table::{show, table};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(out, "≥ {limit}"),
            Self::AtMost(limit) => write!(out, "≤ {limit}"),
        }
    }
}

impl Limit {
    /// The outcome for a figure of a series. A turn that broke meets no bar.
    pub(crate) fn judge<F>(self, series: &Series<F>, figure: Option<f64>) -> Outcome {
        let met = match (self, figure) {
            _ if series.is_broken() => false,
            (_, None) => return Outcome::NotMeasured,
            (Self::AtLeast(limit), Some(figure)) => figure >= limit,
            (Self::AtMost(limit), Some(figure)) => figure <= limit,
        };
        if met { Outcome::Met } else { Outcome::NotMet }
    }
}

/// The outcome for a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Met,
    NotMet,
    NotMeasured,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::NotMeasured => "not measured",
        })
    }
}

/// One line of the list of bars.
#[derive(Debug)]
pub(crate) struct Verdict<T> {
    pub(crate) case: &'static str,
    pub(crate) target: T,
    pub(crate) measure: String,
    pub(crate) limit: Limit,
    pub(crate) figure: Option<f64>,
    pub(crate) outcome: Outcome,
}

/// The bars and how they were met.
pub(crate) fn bars_table<T: fmt::Display>(verdicts: &[Verdict<T>]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = verdicts
        .iter()
        .map(|verdict| {
            vec![
                verdict.case.to_owned(),
                verdict.target.to_string(),
                verdict.measure.clone(),
                show(verdict.figure),
                verdict.limit.to_string(),
                verdict.outcome.to_string(),
            ]
        })
        .collect();
    let count = |outcome: Outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    format!(
        "### Bars\n\n{}\n{} met, {} not met, {} not measured.\n",
        table(&["case", "target", "measure", "figure", "bar", ""], &rows),
        count(Outcome::Met),
        count(Outcome::NotMet),
        count(Outcome::NotMeasured)
    )
}
