//! The sentences that a run comes to.

use sluice_lab::{
    report::{summary, verdict},
    result::{BRIEF, Outcome, RunResult, Turn},
    stall::{Cause, Confirmation, Finding, Stall},
};

use super::sample::{empty, figures, key, ladder, measured, session_log, small, turn};

fn findings(result: &RunResult) -> Vec<String> {
    verdict(result).findings
}

#[test]
fn one_target_against_another() {
    assert_eq!(
        findings(&small()),
        [
            "The gate did 2.13 times what PostgreSQL alone did at 1,000 clients (2,737 against 1,284 tps), and a \
             transaction's SQL took 17.0 ms instead of 690 ms.",
            "Each case had one turn, so a difference may be chance; several (--turns 3) show how far the figures wander.",
            "Nothing stalled.",
        ]
    );
}

#[test]
fn of_several_turns_nothing_is_said_of_chance() {
    let mut result = small();
    let again: Vec<Turn> = result.turns.iter().map(|turn| Turn { round: 2, ..turn.clone() }).collect();
    result.turns.extend(again);
    assert!(!findings(&result).iter().any(|finding| finding.contains("chance")), "{:?}", findings(&result));
}

#[test]
fn doubts_stand_beside_the_verdict_and_nowhere_else() {
    let mut result = small();
    result.machine.load = Some(2.4);
    result.remarks.push(BRIEF.to_owned());
    let busy = "The machine was busy before the start (load 2.4): the figures are noisy.";
    assert_eq!(verdict(&result).warnings, [busy, BRIEF]);
    // As a run of an earlier version has it.
    result.remarks.push(busy.to_owned());
    let text = summary(&result);
    for doubt in [busy, BRIEF] {
        assert_eq!(text.matches(doubt).count(), 1, "{text}");
    }
}

#[test]
fn as_much_is_said_as_such() {
    let mut result = empty("tpcb", "TPC-B");
    for (target, tps) in [("straight", 1_000.0), ("haproxy", 1_010.0)] {
        result.turns.push(turn(("", 64, target), 1, figures(tps, 10.0)));
    }
    assert_eq!(
        findings(&result)[0],
        "haproxy did as much as PostgreSQL alone at 64 clients (1,010 against 1,000 tps)."
    );
}

#[test]
fn a_ladder_is_told_from_both_ends() {
    let told = findings(&ladder());
    assert!(told[0].starts_with("The gate did 10.") || told[0].starts_with("The gate did 10 "), "{told:?}");
    assert!(told[0].contains("at 8,192 clients") && told[0].contains("; at 64 clients, 0.9"), "{told:?}");
    assert!(told[1].starts_with("The pool did 2"), "{told:?}");
    assert!(told[2].starts_with("It stalled for 27 of 180 s (logged, ") && told[2].contains("other cases"), "{told:?}");
}

#[test]
fn one_target_alone_and_its_stalls() {
    let told = findings(&session_log());
    assert!(told[0].starts_with("with-update: 2,3") && told[0].contains(" tps with 16 clients; half of"), "{told:?}");
    assert!(told[1].starts_with("without-update: 3,6"), "{told:?}");
    assert!(
        told[2].contains(" of 300 s (with-update, 16 clients, straight): I/O limit reached (confirmed), then "),
        "{told:?}"
    );
    assert!(told[2].contains("checkpoint writes (not confirmed)"), "{told:?}");
}

#[test]
fn certainty_is_told() {
    let finding = |cause, strength, confirmed: Option<bool>| Finding {
        cause,
        strength,
        evidence: Vec::new(),
        confirmation: confirmed.map(|confirmed| Confirmation {
            confirmed,
            without: "full_page_writes = off".to_owned(),
            stalled_before: 0.3,
            stalled_after: 0.0,
            causes_after: Vec::new(),
        }),
    };
    for (findings_of_stall, expected) in [
        (vec![finding(Cause::Unknown, 0.0, None)], "for reasons unknown."),
        (
            vec![finding(Cause::CheckpointWrites, 0.8, None), finding(Cause::FullPageImages, 0.4, None)],
            "checkpoint writes, then full-page images (not confirmed).",
        ),
        (vec![finding(Cause::CheckpointWrites, 0.8, Some(true))], "checkpoint writes (confirmed)."),
        (
            vec![finding(Cause::CheckpointWrites, 0.8, Some(true)), finding(Cause::Autovacuum, 0.3, Some(false))],
            "checkpoint writes (confirmed), then autovacuum (not confirmed: it stalled without it too).",
        ),
    ] {
        let mut result = empty("one", "One");
        let mut turn = turn(("", 16, "straight"), 1, figures(100.0, 10.0));
        measured(&mut turn).stalls = vec![Stall {
            from_s: 10.0,
            to_s: 40.0,
            tps: 5.0,
            ordinary_tps: 120.0,
            max_ms: None,
            findings: findings_of_stall,
        }];
        result.turns.push(turn);
        assert_eq!(findings(&result)[1], format!("It stalled for 30 of 60 s: {expected}"));
    }
}

#[test]
fn what_is_wrong_comes_first() {
    let mut result = small();
    result.cut_short = Some("interrupted by the user".to_owned());
    let more = |target: &str, outcome| Turn { case: key(("", 2_000, target)), round: 1, outcome };
    result.turns.push(more("straight", Outcome::Broken("FATAL: out of memory.".to_owned())));
    result.turns.push(more("gate", Outcome::Skipped("the run was interrupted".to_owned())));
    assert_eq!(
        verdict(&result).warnings,
        [
            "The run was cut short: interrupted by the user.",
            "It broke (2,000 clients, straight): FATAL: out of memory.",
            "It was not taken (2,000 clients, gate): the run was interrupted.",
        ]
    );
    let text = summary(&result);
    let place = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} in {text}"));
    assert!(place("cut short") < place("The gate did 2.13 times"), "{text}");
}

#[test]
fn nothing_is_nothing() {
    assert_eq!(findings(&empty("one", "One")), ["Nothing was measured."]);
    let mut result = empty("one", "One");
    result.turns.push(Turn { case: key(("", 1, "gate")), round: 1, outcome: Outcome::Broken("no".to_owned()) });
    assert_eq!(findings(&result), ["Nothing was measured."]);
}

#[test]
fn failures_are_counted() {
    let mut result = small();
    measured(&mut result.turns[0]).figures.failed = 1_234;
    measured(&mut result.turns[1]).figures.skipped = 5;
    let told = findings(&result);
    assert_eq!(told.last().expect("a sentence"), "1,234 transactions failed, 5 were too late to be begun.");
}

#[test]
fn the_terminal_gets_the_same_tables() {
    let text = summary(&small());
    let row = text.lines().find(|line| line.contains(" gate |")).expect("a row");
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[1..5], ["1,000", "gate", "2,737", "2.13×"], "{text}");
    let text = summary(&session_log());
    assert!(text.contains("## Stalls") && text.contains("with-update, 16 clients, straight, turn 1, "), "{text}");
    assert!(text.contains("## The session-log test as reported") && text.contains("other make and size"), "{text}");
}

#[test]
fn latencies_that_can_not_be_right_are_remarked() {
    let remarks = |mean_ms: f64, conditions: &[(&str, &str)]| {
        let mut result = empty("tpcb", "TPC-B");
        result.conditions = conditions.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        result.turns.push(turn(("", 64, "straight"), 1, figures(1_000.0, mean_ms)));
        summary(&result)
    };
    assert!(!remarks(60.0, &[]).contains("too low"));
    assert!(remarks(40.0, &[]).contains("for 64 clients, straight, 64.0 ms instead of 40.0 ms"));
    // With a rate, clients wait for their next transaction to become due.
    assert!(!remarks(40.0, &[("rate", "1000")]).contains("too low"));
}
