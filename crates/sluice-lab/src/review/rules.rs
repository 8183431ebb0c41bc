//! All rules: the TOML files beside this one, built in, and read once.
//!
//! The syntax of a file is described in [`reader`](super::reader); nothing here looks at a server.

use std::collections::BTreeMap;

use super::{
    reader::{self, RuleError},
    rule::{Removed, Rule},
};

/// The files, in the order of a report.
const FILES: [(&str, &str); 18] = [
    ("memory.toml", include_str!("rules/memory.toml")),
    ("disk.toml", include_str!("rules/disk.toml")),
    ("wal.toml", include_str!("rules/wal.toml")),
    ("vacuuming.toml", include_str!("rules/vacuuming.toml")),
    ("workers.toml", include_str!("rules/workers.toml")),
    ("planner-costs.toml", include_str!("rules/planner-costs.toml")),
    ("planner-methods.toml", include_str!("rules/planner-methods.toml")),
    ("connections.toml", include_str!("rules/connections.toml")),
    ("client.toml", include_str!("rules/client.toml")),
    ("locks.toml", include_str!("rules/locks.toml")),
    ("replication.toml", include_str!("rules/replication.toml")),
    ("logging.toml", include_str!("rules/logging.toml")),
    ("statistics.toml", include_str!("rules/statistics.toml")),
    ("server.toml", include_str!("rules/server.toml")),
    ("compatibility.toml", include_str!("rules/compatibility.toml")),
    ("developer.toml", include_str!("rules/developer.toml")),
    ("preset.toml", include_str!("rules/preset.toml")),
    ("gate.toml", include_str!("rules/gate.toml")),
];

/// Settings that are gone, and what came instead.
const REMOVED: (&str, &str) = ("removed.toml", include_str!("rules/removed.toml"));

/// All rules.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Positions of a setting's rules in `rules`; one for each span of versions.
    by_name: BTreeMap<String, Vec<usize>>,
    removed: BTreeMap<String, Removed>,
}

impl Rules {
    /// The rules that are built in.
    ///
    /// # Errors
    ///
    /// A fault of the files, which a test would have found.
    pub fn built_in() -> Result<Self, RuleError> {
        Self::read(&FILES, REMOVED)
    }

    fn read(files: &[(&'static str, &str)], removed: (&'static str, &str)) -> Result<Self, RuleError> {
        let mut rules = Vec::new();
        for (file, text) in files {
            rules.extend(reader::read_rules(file, text)?);
        }
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            by_name.entry(rule.name.clone()).or_default().push(index);
        }
        Ok(Self { rules, by_name, removed: reader::read_removed(removed.0, removed.1)? })
    }

    /// The rule for a setting in a major version.
    pub fn find(&self, name: &str, major: u32) -> Option<&Rule> {
        self.position(name, major).map(|index| &self.rules[index])
    }

    /// The position of that rule in the order of a report.
    pub fn position(&self, name: &str, major: u32) -> Option<usize> {
        self.by_name.get(name)?.iter().copied().find(|index| self.rules[*index].is_for(major))
    }

    /// The fate of a setting that was removed in some version later than its rules.
    pub fn removed(&self, name: &str) -> Option<&Removed> {
        self.removed.get(name)
    }

    /// All rules, in the order of a report.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The rules for a major version.
    pub fn of(&self, major: u32) -> impl Iterator<Item = &Rule> {
        self.iter().filter(move |rule| rule.is_for(major))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::rule::MAJORS;

    #[test]
    fn the_built_in_rules_are_sound() {
        let rules = Rules::built_in().unwrap_or_else(|error| panic!("{error}"));
        assert!(rules.iter().count() > 400);
        for major in MAJORS {
            for rule in rules.of(major) {
                let same = rules.of(major).filter(|other| other.name == rule.name).count();
                assert_eq!(same, 1, "{} has {same} rows for {major}", rule.name);
            }
        }
    }

    #[test]
    fn each_has_a_reason_of_its_own() {
        let rules = Rules::built_in().unwrap();
        let mut seen = BTreeMap::new();
        for rule in rules.iter() {
            assert!(
                rule.reason.split(' ').count() >= 4 && rule.reason.ends_with('.'),
                "{}: {}",
                rule.name,
                rule.reason
            );
            seen.entry(rule.reason.as_str()).or_insert_with(Vec::new).push(rule.name.as_str());
        }
        let shared: Vec<_> = seen.values().filter(|names| names.len() > 3).collect();
        assert!(shared.is_empty(), "{shared:?}");
    }

    #[test]
    fn another_version_takes_the_nearest_rules() {
        let rules = Rules::built_in().unwrap();
        for (name, major, found) in
            [("lc_collate", 9, true), ("lc_collate", 16, false), ("io_method", 17, false), ("io_method", 21, true)]
        {
            assert_eq!(rules.find(name, major).is_some(), found, "{name} in {major}");
        }
    }
}
