//! The stalls of a case, summed over all of its turns.

use std::collections::BTreeMap;

use super::{number, outline::Outline};
use crate::{
    result::CaseKey,
    stall::{Cause, Confirmation, Stall},
};

/// The stalls of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalled {
    /// Number of stalls.
    pub(super) count: usize,
    /// Seconds within them.
    pub(super) stalled_s: f64,
    /// Seconds of all turns.
    pub(super) total_s: f64,
    /// Their causes, the strongest first.
    pub(super) causes: Vec<(Cause, Certainty)>,
}

/// The certainty of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It went with its cause.
    Confirmed,
    /// It stayed without it.
    Refuted,
    /// Nobody has tried.
    NotTried,
}

/// Causes that a sentence names at most.
const NAMED_MAX: usize = 3;

impl Stalled {
    pub(super) fn of(outline: &Outline<'_>, case: &CaseKey) -> Self {
        let mut stalled = Self::default();
        let mut weights: BTreeMap<Cause, (f64, Certainty)> = BTreeMap::new();
        for (_, measured) in outline.result.measured().filter(|(turn, _)| turn.case == *case) {
            stalled.total_s += measured.figures.seconds;
            for stall in &measured.stalls {
                stalled.count += 1;
                stalled.stalled_s += stall.seconds();
                for finding in &stall.findings {
                    let of = Certainty::of(finding.confirmation.as_ref());
                    let (weight, certainty) = weights.entry(finding.cause).or_insert((0.0, of));
                    *weight += stall.seconds() * finding.strength;
                    *certainty = certainty.or(of);
                }
            }
        }
        let mut causes: Vec<_> = weights.into_iter().collect();
        causes.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
        stalled.causes = causes.into_iter().map(|(cause, (_, certainty))| (cause, certainty)).collect();
        stalled
    }

    /// The share of the time, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.total_s > 0.0 { self.stalled_s / self.total_s } else { 0.0 }
    }

    /// "86 of 300 s".
    pub(super) fn time(&self) -> String {
        format!("{} of {}", number::trimmed(self.stalled_s, 0), number::seconds(self.total_s))
    }

    /// "checkpoint writes, then full-page images (not confirmed)".
    pub(super) fn reasons(&self) -> String {
        let named = &self.causes[..self.causes.len().min(NAMED_MAX)];
        let names = named.iter().map(|(cause, _)| cause.title()).collect::<Vec<_>>().join(", then ");
        match named.first() {
            None | Some((Cause::Unknown, _)) => "for reasons unknown".to_owned(),
            Some((_, certainty)) if named.iter().all(|(_, other)| other == certainty) => {
                format!("{names} ({})", certainty.words())
            }
            Some(_) => {
                let each = named.iter().map(|(cause, certainty)| format!("{} ({})", cause.title(), certainty.words()));
                each.collect::<Vec<_>>().join(", then ")
            }
        }
    }
}

impl Certainty {
    /// Of a finding.
    pub(super) fn of(confirmation: Option<&Confirmation>) -> Self {
        match confirmation {
            None => Self::NotTried,
            Some(Confirmation { confirmed: true, .. }) => Self::Confirmed,
            Some(Confirmation { confirmed: false, .. }) => Self::Refuted,
        }
    }

    /// In a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "not confirmed: it stalled without it too",
            Self::NotTried => "not confirmed",
        }
    }

    /// Of both: what was tried once holds for the whole case, and a cause that was not it weighs more.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Refuted, _) | (_, Self::Refuted) => Self::Refuted,
            (Self::Confirmed, _) | (_, Self::Confirmed) => Self::Confirmed,
            (Self::NotTried, Self::NotTried) => Self::NotTried,
        }
    }
}

/// "118 to 204 s".
pub(super) fn span(stall: &Stall) -> String {
    let digits = usize::from(stall.seconds() < 10.0);
    format!("{} to {} s", number::trimmed(stall.from_s, digits), number::trimmed(stall.to_s, digits))
}

/// The causes of one stall, the strongest first: "checkpoint writes, full-page images".
pub(super) fn causes(stall: &Stall) -> String {
    let names: Vec<&str> = stall.findings.iter().take(NAMED_MAX).map(|finding| finding.cause.title()).collect();
    if names.is_empty() { Cause::Unknown.title().to_owned() } else { names.join(", ") }
}
