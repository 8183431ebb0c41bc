//! The result of a run: the one structure that reports, comparisons and resumed runs are made from.
//!
//! It is stored as JSON (`result.json`, and inside each HTML report) and holds facts only: whatever can be worked out
//! from it, such as medians over turns and ratios, is worked out by whoever shows it.

mod figures;
mod machine;
mod series;
mod stall;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    figures::{Figures, StatementFigures},
    machine::{CommitWait, DiskProbe, DiskRow, GroupLimits, Machine, Server},
    series::{Checkpoint, Metric, Samples, Second},
    stall::{Cause, Confirmation, Evidence, Finding, Stall},
};

/// Of the structure below. A file with a higher number was written by a newer Sluice.
pub const FORMAT: u32 = 1;

/// A run of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// Of Sluice.
    pub version: String,
    /// The scenario that was run.
    pub scenario: ScenarioSummary,
    /// The command that repeats it.
    pub command: String,
    /// Seconds since 1970 at the start.
    pub started_unix_s: u64,
    /// The reason why the run ended before its end, if it did.
    pub cut_short: Option<String>,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The servers that it ran against, by target.
    pub servers: BTreeMap<String, Server>,
    /// Conditions of the load, the class and the sampler, by name: the same for all turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    /// The settings of each variant besides those of the servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, BTreeMap<String, String>>,
    /// In the order in which they were taken.
    pub turns: Vec<Turn>,
    /// Further remarks for the reader: limits that were not enforced, a run that was brief.
    pub remarks: Vec<String>,
}

/// The remark of a brief run.
pub const BRIEF: &str = "A run of seconds: it shows that all works, and measures nothing.";

/// As much of a scenario as a report needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioSummary {
    /// Its name on the command line.
    pub name: String,
    /// A line.
    pub title: String,
    /// A paragraph.
    pub description: String,
    /// The reference that the load is compared with, if a report of others exists: a file of `reference/`.
    pub reference: Option<String>,
    /// The size of its tables, in words.
    pub data: String,
}

/// The case that a turn measures: the unit that is repeated and compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CaseKey {
    /// Of the scenario; what is varied besides the number of clients.
    pub variant: String,
    /// pgbench's clients.
    pub clients: u32,
    /// The target's name.
    pub target: String,
}

/// One target's turn at one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Of what.
    #[serde(flatten)]
    pub case: CaseKey,
    /// Counts from 1.
    pub round: u32,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "nearly all turns are measured")]
pub enum Outcome {
    /// To its end.
    Measured(Measured),
    /// The target failed under it; what it said.
    Broken(String),
    /// It was not taken; why.
    Skipped(String),
}

/// A turn that went to its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The whole turn in figures.
    pub figures: Figures,
    /// By statement, in the scripts' order.
    pub statements: Vec<StatementFigures>,
    /// By second.
    pub seconds: Vec<Second>,
    /// Samples of the server and the machine meanwhile, on the same time axis.
    pub samples: Samples,
    /// Stalls, with their causes.
    pub stalls: Vec<Stall>,
    /// The command lines that make this load again.
    pub commands: Vec<String>,
}

impl RunResult {
    /// The turns that were measured, with what they are of.
    pub fn measured(&self) -> impl Iterator<Item = (&Turn, &Measured)> {
        self.turns.iter().filter_map(|turn| match &turn.outcome {
            Outcome::Measured(measured) => Some((turn, measured)),
            Outcome::Broken(_) | Outcome::Skipped(_) => None,
        })
    }

    /// All cases, each once, in the order of their first turns.
    pub fn cases(&self) -> Vec<&CaseKey> {
        let mut cases: Vec<&CaseKey> = Vec::new();
        for turn in &self.turns {
            if !cases.contains(&&turn.case) {
                cases.push(&turn.case);
            }
        }
        cases
    }

    /// The measured turns of a case.
    pub fn of_case<'a>(&'a self, case: &'a CaseKey) -> impl Iterator<Item = (&'a Turn, &'a Measured)> {
        self.measured().filter(move |(turn, _)| turn.case == *case)
    }

    /// The median over a case's turns of one figure.
    pub fn median(&self, case: &CaseKey, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        crate::stats::median(self.of_case(case).filter_map(|(_, measured)| figure(&measured.figures)))
    }

    /// The median of one target's figure divided by another's, round by round, so that what changes slowly on the
    /// machine cancels out.
    pub fn ratio(&self, own: &CaseKey, other: &CaseKey, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let of_round = |case: &CaseKey, round: u32| {
            self.of_case(case).find(|(turn, _)| turn.round == round).and_then(|(_, measured)| figure(&measured.figures))
        };
        let rounds = self.of_case(own).map(|(turn, _)| turn.round).collect::<Vec<_>>();
        crate::stats::median(rounds.into_iter().filter_map(|round| {
            let (above, below) = (of_round(own, round)?, of_round(other, round)?);
            (below > 0.0).then(|| above / below)
        }))
    }
}
