//! A rule: what is recommended for one setting in some versions, and why.
//!
//! Only types; [`rules`](super::rules) reads them, [`assess`](super::assess) applies them.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::{
    evidence::Topic,
    formula::Formula,
    words::{UnknownWord, words},
};
use sluice_units::{Dimension, Unit};

/// The oldest and the newest major version that the rules are written for.
pub const MAJORS: std::ops::RangeInclusive<u32> = 15..=18;

/// One row of the rules.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The setting.
    pub name: String,
    /// The file's heading.
    pub category: String,
    /// The major versions that it is for.
    pub versions: Versions,
    /// The context of a change, where the server does not say.
    pub context: SettingContext,
    /// The recommendation.
    pub advice: Advice,
    /// Holds where the recommendation does; elsewhere the setting is left alone.
    pub when: Option<Formula>,
    /// The reason.
    pub reason: String,
    /// The risk of following the recommendation.
    pub risk: Risk,
    /// Topics of the server's own counters that belong to it.
    pub evidence: Vec<Topic>,
    /// The place in PostgreSQL's documentation that describes it.
    pub source: Source,
    /// Whether some builds or minor releases of these versions lack the setting.
    pub optional: bool,
}

/// A rule's recommendation.
#[derive(Debug, Clone)]
pub enum Advice {
    /// Nothing: the value is right as it is, or the operator's affair.
    Leave,
    /// A value.
    Value {
        /// The value.
        target: Target,
        /// Further values that are as good.
        accept: Vec<String>,
        /// The only values that draw the recommendation, if any are given.
        from: Vec<String>,
        /// The side on which other values are as good.
        direction: Direction,
        /// By what factor a number may be off.
        within: f64,
        /// Whether it depends on the operator's intention: then no script sets it.
        by_hand: bool,
    },
    /// Words; no script can set it.
    Words {
        /// The advice.
        words: String,
        /// The only values that draw the advice, if any are given.
        from: Vec<String>,
    },
}

/// A value that is recommended.
#[derive(Debug, Clone)]
pub enum Target {
    /// The first of these that the server knows.
    Literals(Vec<String>),
    /// The result of a formula.
    Formula {
        /// The formula.
        formula: Formula,
        /// The kind of its result.
        kind: Kind,
    },
}

/// The thing that a formula's result counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Whole things.
    Count,
    /// A ratio.
    Real,
    /// A word.
    Word,
}

/// The side of a number on which others are as good as the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Neither.
    #[default]
    Near,
    /// More.
    AtLeast,
    /// Less.
    AtMost,
}

/// Major versions, both ends included; no end means the newest and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: Option<u32>,
}

/// `pg_settings.context`: when a change takes effect (section 53.24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingContext {
    /// It can't be changed.
    Internal,
    /// With a restart.
    Postmaster,
    /// With a reload.
    Sighup,
    /// For connections after a reload; superusers may set it at connecting.
    SuperuserBackend,
    /// For connections after a reload; anyone may set it at connecting.
    Backend,
    /// With a reload, where no session has its own; superusers may set it.
    Superuser,
    /// With a reload, where no session has its own.
    User,
}

/// The severity of a risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing.
    None,
    /// A nuisance.
    Low,
    /// Somebody notices.
    Medium,
    /// Something stops, or is lost.
    High,
}

/// The risk of following a recommendation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// Its severity.
    pub level: Level,
    /// The possible harm; empty where there is none.
    pub note: String,
}

/// The place where a setting is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// PostgreSQL's documentation: a page, another one from 18 on, and a place on it.
    PostgreSql {
        /// The page up to 17.
        page: String,
        /// The page from 18 on.
        page_18: String,
        /// The place on the page; empty is the page as a whole.
        anchor: String,
    },
    /// Sluice's own documentation of the gate.
    Gate,
}

/// A setting that PostgreSQL has no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The version that has it no more, such as `9.5`.
    pub gone_in: String,
    /// The reason, and the setting that came instead.
    pub reason: String,
}

impl Rule {
    /// Whether it is for a major version. Versions before and after those that the rules are written for take the
    /// rules of the nearest.
    pub fn is_for(&self, major: u32) -> bool {
        let major = major.clamp(*MAJORS.start(), *MAJORS.end());
        self.versions.first <= major && self.versions.last.is_none_or(|last| major <= last)
    }
}

impl Kind {
    /// The unit of a result of 1; a word has none.
    pub fn unit(self) -> Unit {
        let time = |size| Unit { dimension: Dimension::Time, size };
        match self {
            Self::Bytes => Unit { dimension: Dimension::Bytes, size: 1.0 },
            Self::Milliseconds => time(1.0),
            Self::Seconds => time(1000.0),
            Self::Minutes => time(60_000.0),
            Self::Count | Self::Real | Self::Word => Unit::PLAIN,
        }
    }
}

impl SettingContext {
    /// The action that makes an `ALTER SYSTEM` take effect; to reconnect is to reload, and for new connections.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Internal => "fixed",
            Self::Postmaster => "restart",
            Self::Sighup | Self::Superuser | Self::User => "reload",
            Self::SuperuserBackend | Self::Backend => "reconnect",
        }
    }
}

impl Source {
    /// Its address for a major version.
    pub fn url(&self, major: u32) -> String {
        let major = major.clamp(*MAJORS.start(), *MAJORS.end());
        match self {
            Self::Gate => "docs/gate.md#settings".to_owned(),
            Self::PostgreSql { page, page_18, anchor } => {
                let page = if major >= 18 { page_18 } else { page };
                let mark = if anchor.is_empty() { "" } else { "#" };
                format!("https://www.postgresql.org/docs/{major}/{page}.html{mark}{anchor}")
            }
        }
    }
}

words!(Kind: "bytes" => Bytes, "ms" => Milliseconds, "s" => Seconds, "min" => Minutes, "count" => Count,
    "real" => Real, "word" => Word);
words!(Direction: "near" => Near, "at least" => AtLeast, "at most" => AtMost);
words!(Level: "none" => None, "low" => Low, "medium" => Medium, "high" => High);
words!(SettingContext: "internal" => Internal, "postmaster" => Postmaster, "sighup" => Sighup,
    "superuser-backend" => SuperuserBackend, "backend" => Backend, "superuser" => Superuser, "user" => User);

impl FromStr for Risk {
    type Err = UnknownWord;

    /// `none`, or a level and a sentence: `low: it takes longer`.
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let (level, note) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { level: level.trim().parse()?, note: note.trim().to_owned() })
    }
}

impl FromStr for Versions {
    type Err = UnknownWord;

    /// `15`, `15-17`, `17-`.
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let bad = || UnknownWord::new(text, &["15", "15-17", "17-"]);
        let number = |text: &str| text.parse().ok().filter(|major| MAJORS.contains(major)).ok_or_else(bad);
        let versions = match text.split_once('-') {
            None => Self { first: number(text)?, last: Some(number(text)?) },
            Some((first, "")) => Self { first: number(first)?, last: None },
            Some((first, last)) => Self { first: number(first)?, last: Some(number(last)?) },
        };
        if versions.last.is_some_and(|last| last < versions.first) { Err(bad()) } else { Ok(versions) }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}
