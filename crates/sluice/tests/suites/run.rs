//! Running a suite's program, and reading how each of its tests ended.

use std::{collections::BTreeMap, fs, time::Duration};

use sluice_testkit::{
    case::repository,
    program::{self, Target},
};

/// The outcome of each test, by its name.
pub(crate) type Outcomes = BTreeMap<String, String>;

/// Time limit for a suite, an installation of its dependencies included.
const TIME_MAX: Duration = Duration::from_secs(900);

/// Runs parts of a suite, or all of it; `None` if this machine lacks the language.
pub(crate) fn run(suite: &str, log: &str, port: u16, database: &str, parts: &[&str]) -> Option<Outcomes> {
    let logs = repository().join("target/driver-suites");
    fs::create_dir_all(&logs).unwrap();
    let log = logs.join(format!("{log}.log"));
    let folder = format!("suites/{suite}");
    let said = program::run(&folder, parts, Target { port, user: "suite", database, authority: None }, &log, TIME_MAX)?;
    let outcomes: Outcomes = said.lines().filter_map(outcome).collect();
    assert!(!outcomes.is_empty(), "{suite} tested nothing:\n{said}");
    Some(outcomes)
}

/// Reads `outcome<TAB>passed<TAB>name`.
fn outcome(line: &str) -> Option<(String, String)> {
    let (outcome, name) = line.strip_prefix("outcome\t")?.split_once('\t')?;
    Some((name.to_owned(), outcome.to_owned()))
}
