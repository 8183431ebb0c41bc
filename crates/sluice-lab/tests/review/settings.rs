//! Every setting of PostgreSQL 15 to 18 has a row, and every row a setting.

use std::collections::BTreeSet;

use sluice_lab::review::{self, Rules, Snapshot, Source, Status, VARIABLES, Workload};
use sluice_testkit::{TestServer, Version, versions};

use crate::{GIB, instance, major, names, reviewed, snapshot_of};

/// A snapshot of a server 17.9 by `\copy`, with the defaults of the program: the tests have no server of 17.
fn of_17() -> Snapshot {
    let text = include_str!("settings_17.csv");
    review::read_csv("settings_17.csv", text.as_bytes()).unwrap()
}

/// PostgreSQL's own names on a server.
fn names_of(snapshot: &Snapshot) -> BTreeSet<String> {
    let settings = snapshot.settings.iter();
    settings.map(|setting| setting.name.clone()).filter(|name| !name.contains('.')).collect()
}

/// Settings without a row, and rows without a setting.
fn check_rows(snapshot: &Snapshot) {
    let (major, names) = (snapshot.major, names_of(snapshot));
    let rules = Rules::built_in().unwrap();
    let lacking: Vec<_> = names.iter().filter(|name| rules.find(name, major).is_none()).collect();
    assert!(lacking.is_empty(), "settings of {major} without a row: {lacking:?}");
    let own = rules.of(major).filter(|rule| rule.source != Source::Gate && !rule.optional);
    let surplus: Vec<_> = own.map(|rule| &rule.name).filter(|name| !names.contains(*name)).collect();
    assert!(surplus.is_empty(), "rows for settings that {major} does not have: {surplus:?}");
}

fn every_setting_has_a_row(version: Version) {
    check_rows(&snapshot_of(TestServer::shared(version)));
}

/// With nothing but a file, a row says by itself what a change takes.
fn check_contexts(snapshot: &Snapshot) {
    let rules = Rules::built_in().unwrap();
    for setting in &snapshot.settings {
        if let Some(rule) = rules.find(&setting.name, snapshot.major) {
            assert_eq!(Some(rule.context), setting.context, "{} in {}", setting.name, snapshot.version);
        }
    }
}

fn contexts_are_the_servers(version: Version) {
    check_contexts(&snapshot_of(TestServer::shared(version)));
}

/// Words that a rule recommends or accepts are words that the setting takes.
fn check_words(snapshot: &Snapshot) {
    let report = reviewed(snapshot, instance(8 * GIB, 4, Workload::Mixed));
    for row in report.rows.iter().filter(|row| matches!(row.status, Status::Change | Status::Fine)) {
        let setting = snapshot.get(&row.name).unwrap();
        let known = setting.words.is_empty() || setting.words.contains(&row.recommended);
        assert!(known, "{} = {} in {}: {:?}", row.name, row.recommended, snapshot.version, setting.words);
    }
}

fn words_are_the_servers(version: Version) {
    check_words(&snapshot_of(TestServer::shared(version)));
}

#[test]
fn the_rows_are_those_of_17() {
    let snapshot = of_17();
    assert_eq!((snapshot.major, snapshot.settings.len()), (17, 378));
    check_rows(&snapshot);
    check_contexts(&snapshot);
    check_words(&snapshot);
}

fn a_live_server_is_reviewed_whole(version: Version) {
    let snapshot = snapshot_of(TestServer::shared(version));
    let report = reviewed(&snapshot, instance(8 * GIB, 4, Workload::Mixed));
    assert_eq!((report.rows.len(), report.rules_of), (snapshot.settings.len(), major(version)));
    assert_eq!(names(&report, Status::Unknown), [""; 0]);
    assert_eq!(names(&report, Status::Needs), [""; 0]);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let evidence = &snapshot.evidence;
    assert!(evidence.checkpoints.is_some() && evidence.wal.is_some() && evidence.databases.is_some());
    assert!(evidence.size_bytes.is_some() && evidence.sessions.is_some() && evidence.dead_rows.is_some());
    assert!(evidence.wraparound.is_some() && evidence.prepared.is_some() && evidence.writes.is_some());
    assert!(evidence.archiver.is_some() && evidence.replication.is_some());
}

fn the_gates_settings_have_rows(version: Version) {
    let server = TestServer::start(version, &[("shared_preload_libraries", "sluice")]);
    let snapshot = snapshot_of(&server);
    let report = reviewed(&snapshot, instance(8 * GIB, 4, Workload::Mixed));
    assert_eq!(names(&report, Status::Foreign), [""; 0]);
    let rules = Rules::built_in().unwrap();
    for rule in rules.of(major(version)).filter(|rule| rule.source == Source::Gate && !rule.optional) {
        let setting = snapshot.get(&rule.name).unwrap_or_else(|| panic!("the gate has no {}", rule.name));
        assert_eq!(setting.context, Some(rule.context), "{}", rule.name);
    }
}

#[test]
fn the_guide_names_what_formulas_know() {
    let guide = include_str!("../../../../docs/review.md");
    let unnamed: Vec<_> = VARIABLES.iter().filter(|(name, _)| !guide.contains(&format!("`{name}`"))).collect();
    assert!(unnamed.is_empty(), "not in docs/review.md: {unnamed:?}");
}

/// A role that may not see everything is told what it does not see.
#[test]
fn an_ordinary_role_gets_a_note() {
    let server = TestServer::shared(Version::V18);
    let database = server.database();
    let mut client = server.connect("app", &database.name);
    let snapshot = sluice_lab::review::read_server(&mut client, "a test".to_owned()).unwrap();
    let report = reviewed(&snapshot, instance(8 * GIB, 4, Workload::Mixed));
    let note = report.notes.join("\n");
    assert!(note.contains("data_directory") && note.contains("pg_read_all_settings"), "{note}");
}

/// A quantity that nobody told is asked for, by option.
#[test]
fn a_remote_server_needs_its_size() {
    let snapshot = snapshot_of(TestServer::shared(Version::V18));
    let report = reviewed(&snapshot, Default::default());
    let row = report.rows.iter().find(|row| row.name == "shared_buffers").unwrap();
    assert_eq!((row.status, row.recommended.as_str()), (Status::Needs, "needs --memory"));
    assert!(names(&report, Status::Needs).contains(&"max_worker_processes"));
}

versions!(
    every_setting_has_a_row,
    contexts_are_the_servers,
    words_are_the_servers,
    a_live_server_is_reviewed_whole,
    the_gates_settings_have_rows,
);
