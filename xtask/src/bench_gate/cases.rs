//! The cases as data: what pgbench runs, and before which targets.
//!
//! A case says nothing about how good a figure must be: that is in `bars`.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::bench;
use crate::bench::load::{Load, Script};
use sluice_lab::scenario::Protocol;

/// Limits of the ladder, besides `auto`.
const STEPS: [u32; 5] = [4, 8, 16, 32, 64];

/// The concurrency in the settings of a gate's classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concurrency {
    /// So many at once; 0 is no limit.
    Places(u32),
    /// The gate finds out by itself.
    Auto,
}

impl fmt::Display for Concurrency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Places(places) => write!(out, "{places}"),
            Self::Auto => write!(out, "auto"),
        }
    }
}

impl Serialize for Concurrency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Places(places) => serializer.serialize_u32(*places),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

/// The target that answers pgbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// PostgreSQL that has not loaded the library.
    Plain,
    Gate(Concurrency),
}

impl Target {
    /// Without its limit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gate(_) => "gate",
        }
    }

    pub(crate) fn limit(self) -> Option<Concurrency> {
        match self {
            Self::Plain => None,
            Self::Gate(limit) => Some(limit),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => write!(out, "plain"),
            Self::Gate(limit) => write!(out, "gate {limit}"),
        }
    }
}

/// The purpose of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compares the gate with PostgreSQL as it is.
    Comparison,
    /// Compares limits.
    Ladder,
}

/// One row of the benchmark, or one column of the ladder.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) load: Load,
    /// Part of `--quick`.
    pub(crate) quick: bool,
}

const fn case(name: &'static str, kind: Kind, script: Script, clients: u32) -> Case {
    Case { name, kind, load: Load { script, protocol: Protocol::Prepared, clients }, quick: false }
}

impl Case {
    const fn also_quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// In the order of the first round.
    pub(crate) fn targets(&self, limit: u32, is_quick: bool) -> Vec<Target> {
        let gate = |places| Target::Gate(Concurrency::Places(places));
        let auto = Target::Gate(Concurrency::Auto);
        match self.kind {
            Kind::Comparison if is_quick => vec![Target::Plain, gate(limit)],
            Kind::Comparison => vec![Target::Plain, gate(limit), auto],
            Kind::Ladder if is_quick => vec![auto],
            Kind::Ladder => [Target::Plain].into_iter().chain(STEPS.map(gate)).chain([auto]).collect(),
        }
    }
}

/// The ladder comes last.
pub(crate) static CASES: &[Case] = &[
    case("tpcb-1000", Kind::Comparison, Script::TpcB, 1000),
    case("tpcb-64", Kind::Comparison, Script::TpcB, 64).also_quick(),
    case("select-64", Kind::Comparison, Script::Select, 64).also_quick(),
    case("ladder-tpcb-64", Kind::Ladder, Script::TpcB, 64).also_quick(),
    case("ladder-tpcb-1000", Kind::Ladder, Script::TpcB, 1000),
    case("ladder-select-64", Kind::Ladder, Script::Select, 64),
    case("ladder-select-256", Kind::Ladder, Script::Select, 256),
];

impl bench::Case for Case {
    fn all() -> &'static [Self] {
        CASES
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn is_quick(&self) -> bool {
        self.quick
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::Case as _;

    use super::*;

    #[test]
    fn names_are_unique_and_tell_the_load() {
        for case in CASES {
            assert!(Case::parse(case.name).unwrap().kind == case.kind, "{}", case.name);
            assert!(case.name.ends_with(&format!("-{}", case.load.clients)), "{}", case.name);
            let script = if case.load.script == Script::Select { "select" } else { "tpcb" };
            assert!(case.name.contains(script), "{}", case.name);
        }
        assert!(Case::parse("tpcb").unwrap_err().contains("tpcb-1000"));
    }

    #[test]
    fn targets_of_a_case() {
        let names = |case: &Case, is_quick| {
            let targets = case.targets(32, is_quick);
            targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(names(&CASES[0], false), "plain, gate 32, gate auto");
        assert_eq!(names(&CASES[3], false), "plain, gate 4, gate 8, gate 16, gate 32, gate 64, gate auto");
        assert_eq!((names(&CASES[0], true), names(&CASES[3], true)), ("plain, gate 32".into(), "gate auto".into()));
    }

    #[test]
    fn limits_are_numbers_or_auto() {
        let json = [Concurrency::Places(32), Concurrency::Auto].map(|limit| serde_json::to_value(limit).unwrap());
        assert_eq!(json, [serde_json::json!(32), serde_json::json!("auto")]);
    }
}
