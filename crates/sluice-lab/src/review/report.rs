//! A finished review: rows in the order of the rules, ready to be written in any format.
//!
//! Only types; every word that a reader sees is decided before.

use serde::Serialize;

use super::{
    instance::Instance,
    remarks::Answer,
    rule::{Level, Risk},
    snapshot::SetBy,
};

/// A finished review.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The server or file that was reviewed.
    pub origin: String,
    /// Its version.
    pub version: String,
    /// The version whose rules were used.
    pub rules_of: u32,
    /// The instance that the recommendations are for.
    pub instance: Instance,
    /// Notes that a reader must know before the rows.
    pub notes: Vec<String>,
    /// A row for each setting.
    pub rows: Vec<Row>,
}

/// The findings about one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The setting.
    pub name: String,
    /// The heading that it stands under.
    pub category: String,
    /// Its value now, as `SHOW` prints it.
    pub value: String,
    /// The recommended value, or advice.
    pub recommended: String,
    /// The relation of the two.
    pub status: Status,
    /// The reason.
    pub reason: String,
    /// The risk of following the recommendation.
    pub risk: Risk,
    /// The action that makes a change take effect.
    pub effect: &'static str,
    /// Sentences from the server's counters.
    pub evidence: Vec<String>,
    /// The URL of its documentation.
    pub source: Option<String>,
    /// The origin of its value.
    pub set_by: SetBy,
    /// A reviewer's remark of 2015, and today's answer.
    pub remark: Option<Remark>,
}

/// The relation between a value and its recommendation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It should be changed.
    Change,
    /// It should be changed, if the operator means it so; no script does it.
    ByHand,
    /// Something must be told first.
    Needs,
    /// It is as recommended.
    Fine,
    /// There is nothing to recommend.
    Leave,
    /// It belongs to an extension.
    Foreign,
    /// PostgreSQL has it no more.
    Removed,
    /// There is no rule for it.
    Unknown,
}

/// A remark of 2015 and today's answer.
#[derive(Debug, Clone, Serialize)]
pub struct Remark {
    /// The reviewer's words.
    pub said: String,
    /// Today's answer; absent where the remark is not one of 2015.
    pub today: Option<Answer>,
}

impl Status {
    /// Whether a reader has to do something.
    pub fn asks(self) -> bool {
        self <= Self::Needs
    }
}

impl Report {
    /// The rows that ask for something, or all.
    pub fn rows(&self, all: bool) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| all || row.status.asks() || row.remark.is_some())
    }

    /// The rows that a script sets.
    pub fn changes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.status == Status::Change)
    }

    /// The number of rows with a status.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// One sentence on the whole.
    pub fn summary(&self) -> String {
        let mut parts = vec![
            format!("{} settings", self.rows.len()),
            format!("{} to change", self.count(Status::Change)),
            format!("{} to decide by hand", self.count(Status::ByHand)),
        ];
        if self.count(Status::Needs) > 0 {
            parts.push(format!("{} that need an option", self.count(Status::Needs)));
        }
        parts.join(", ")
    }
}

impl Row {
    /// Whether a change needs a restart.
    pub fn needs_restart(&self) -> bool {
        self.effect == "restart"
    }

    /// The risk in a few words: its level, and what may happen.
    pub fn risk_words(&self) -> String {
        match (self.risk.level, self.risk.note.as_str()) {
            (Level::None, _) => "none".to_owned(),
            (level, "") => level.to_string(),
            (level, note) => format!("{level}: {note}"),
        }
    }
}
