//! Runs beside what others reported.

use sluice_lab::{
    report::{html, summary},
    result::{CommitWait, RunResult, Server},
};

use super::sample::{empty, figures, ladder, server, session_log, small, turn};

/// The cells of the first row about a case and a figure.
fn row(result: &RunResult, case: &str, figure: &str) -> Vec<String> {
    let text = summary(result);
    let (_, reported) = text.split_once("as reported").unwrap_or_else(|| panic!("{text}"));
    let is_it = |line: &&str| line.contains(case) && line.contains(&format!(" {figure} |"));
    let row = reported.lines().find(is_it).unwrap_or_else(|| panic!("{case}, {figure}: {reported}"));
    row.split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_session_log_with_its_stalls() {
    assert_eq!(row(&session_log(), "with-update, 16 clients, straight", "tps")[3..6], ["2,401", "2,387", "0.99×"]);
    assert_eq!(row(&session_log(), "with-update, 16 clients, straight", "mean, ms")[3], "6.66");
    assert_eq!(row(&session_log(), "without-update, 16 clients, straight", "tps")[3], "3,671");
    assert_eq!(row(&session_log(), "without-update, 16 clients, straight", "stalled, %")[3..6], ["0", "0", "–"]);
}

#[test]
fn the_ladder_by_target_and_by_the_nearest_step() {
    assert_eq!(row(&ladder(), "16,384 clients, gate", "tps")[3..5], ["16,384", "29,499"]);
    assert_eq!(row(&ladder(), "16,384 clients, gate", "SQL inside, ms")[4], "4.93");
    assert_eq!(row(&ladder(), "64 clients, straight", "tps")[4], "69,216");
    let statement = row(&ladder(), "16,384 clients, gate", "SELECT pgbench_accounts, ms");
    assert_eq!((statement[3].as_str(), statement[4].as_str()), ("16,384", "1.22"));
    assert!(statement[5].starts_with(|first: char| first.is_ascii_digit()), "{statement:?}");
    assert_eq!(row(&ladder(), "16,384 clients, gate", "BEGIN, ms")[4], "559");
    let mut result = empty("tpcb-ladder", "A ladder");
    result.turns.push(turn(("unlogged", 1_000, "gate"), 1, figures(3_000.0, 333.0)));
    assert_eq!(row(&result, "unlogged, 1,000 clients, gate", "tps")[3..5], ["1,024", "48,910"]);
}

#[test]
fn the_sync_matrix_against_two_nodes_and_three() {
    let mut result = empty("sync-matrix", "The sync matrix");
    for variant in ["read-only", "write-mostly"] {
        result.turns.push(turn((variant, 64, "straight"), 1, figures(10_000.0, 6.4)));
    }
    assert_eq!(row(&result, "read-only, 64 clients, straight", "tps")[3..6], ["2", "1,064,671", "10,000"]);
    assert_eq!(row(&result, "write-mostly, 64 clients, straight", "commit, ms")[3..5], ["2", "1.12"]);
    let text = summary(&result);
    assert_eq!(text.matches("read-only, 64 clients, straight ").count(), 4, "tps and mean of each: {text}");
    assert!(text.contains("Reported from other hardware"), "{text}");
}

#[test]
fn three_nodes_against_two_and_what_a_commit_waits_for() {
    let mut result = empty("sync-matrix", "The sync matrix");
    for (target, tps) in [("nodes-1", 900.0), ("nodes-2", 500.0), ("nodes-3", 450.0), ("nodes-3-2ms", 100.0)] {
        result.turns.push(turn(("write-only", 64, target), 1, figures(tps, 6.4)));
        let flushes = if target == "nodes-1" { 1 } else { 2 };
        let why = format!("as {target} has it");
        let nodes_round_trip_us = (flushes > 1).then_some(2_070.0);
        let commit = Some(CommitWait { flushes, why, nodes_round_trip_us });
        result.servers.insert(target.to_owned(), Server { commit, ..server(&[]) });
    }
    let text = summary(&result);
    let row = |begin: &str| {
        let line = text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {text}"));
        line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let loss = row("| write-only, 64 clients |");
    assert_eq!(loss[1..5], ["write-only, 64 clients", "same host", "8.62", "10"], "{text}");
    assert_eq!(row("| nodes-1 ")[2..5], ["1", "–", "as nodes-1 has it"]);
    assert_eq!(row("| nodes-3-2ms ")[2..5], ["2", "2.07", "as nodes-3-2ms has it"]);
    // Of one node nothing is reported, and of two only what two have done.
    assert!(!text.contains("write-only, 64 clients, nodes-1 "), "{text}");
    assert_eq!(text.matches("write-only, 64 clients, nodes-2 ").count(), 2, "{text}");
    let page = html(&result);
    assert!(page.contains("What a commit waits for") && page.contains("What three nodes do less than two"), "{page}");
}

#[test]
fn nobody_has_reported_other_loads() {
    assert!(!summary(&small()).contains("as reported"));
    let mut result = empty("tpcb-ladder", "A ladder");
    result.turns.push(turn(("strange", 7, "else"), 1, figures(3_000.0, 333.0)));
    assert!(!summary(&result).contains("as reported"));
}
