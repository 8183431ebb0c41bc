//! The settings review against real servers (15, 16 and 18), and against the report of 2015.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod outputs;
mod remarks;
mod safety;
mod script;
mod settings;

use std::{collections::BTreeMap, sync::OnceLock};

use sluice_lab::review::{self, Answer, Instance, Report, Rules, Snapshot, Status, Workload};
use sluice_testkit::{TestServer, Version};

/// The major version's number.
fn major(version: Version) -> u32 {
    match version {
        Version::V15 => 15,
        Version::V16 => 16,
        Version::V18 => 18,
    }
}

/// The settings of a server, read as the superuser.
fn snapshot_of(server: &TestServer) -> Snapshot {
    review::read_server(&mut server.superuser("postgres"), "a test".to_owned()).unwrap()
}

/// A review with the built-in rules, which are read once.
fn reviewed(snapshot: &Snapshot, instance: Instance) -> Report {
    static BUILT_IN: OnceLock<(Rules, BTreeMap<String, Answer>)> = OnceLock::new();
    let (rules, answers) = BUILT_IN.get_or_init(|| (Rules::built_in().unwrap(), review::answers().unwrap()));
    review::review(rules, answers, snapshot, instance).unwrap_or_else(|error| panic!("{error}"))
}

/// A machine of that size.
fn instance(memory_bytes: u64, cores: u32, workload: Workload) -> Instance {
    Instance { memory_bytes: Some(memory_bytes), cores: Some(cores), workload, ..Instance::default() }
}

/// The report of 2015.
fn report_of_2015() -> Snapshot {
    let text = include_str!("../../reference/settings_review_2015.csv");
    review::read_csv("settings_review_2015.csv", text.as_bytes()).unwrap()
}

/// The names of rows with a status.
fn names(report: &Report, status: Status) -> Vec<&str> {
    report.rows.iter().filter(|row| row.status == status).map(|row| row.name.as_str()).collect()
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
