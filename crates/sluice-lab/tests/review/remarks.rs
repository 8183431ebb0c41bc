//! The remarks of 2015: each has an answer, and the review of that file says what the answer claims.

use sluice_lab::review::{self, Advice, Agreement, Instance, Row, Rules, Status, Workload};

use crate::{GIB, instance, report_of_2015, reviewed};

/// The instance class of that server.
fn class_of_2015() -> Instance {
    Instance { connections: Some(100), iops: Some(400), ..instance(GIB, 1, Workload::Oltp) }
}

/// The outcome of a row, in the words of the answers' file.
fn outcome(rules: &Rules, row: &Row) -> String {
    let words = rules.find(&row.name, 15).is_some_and(|rule| matches!(rule.advice, Advice::Words { .. }));
    match row.status {
        Status::Fine => "fine".to_owned(),
        Status::ByHand if words => "advice".to_owned(),
        _ => row.recommended.clone(),
    }
}

#[test]
fn each_remark_has_todays_answer() {
    let rules = Rules::built_in().unwrap();
    let mut answers = review::answers().unwrap();
    let report = reviewed(&report_of_2015(), class_of_2015());
    assert_eq!(report.rows.len(), 228);
    let remarked: Vec<&Row> = report.rows.iter().filter(|row| row.remark.is_some()).collect();
    // The report counts 42; its file has 43 cells with a remark.
    assert_eq!(remarked.len(), 43);
    for row in remarked {
        let answer = answers.remove(&row.name).unwrap_or_else(|| panic!("no answer for {}", row.name));
        assert_eq!(outcome(&rules, row), answer.outcome, "{}", row.name);
        assert!(answer.why.ends_with('.'), "{}: {}", row.name, answer.why);
        if answer.verdict == Agreement::Differs {
            assert!(answer.why.split(' ').count() >= 8, "{}: why does it differ? {}", row.name, answer.why);
        }
    }
    assert!(answers.is_empty(), "answers without a remark: {:?}", answers.keys());
}

/// For a remark that says in so many words what to set, agreeing means to recommend it.
#[test]
fn what_the_remarks_ask_for_comes_out() {
    let report = reviewed(&report_of_2015(), class_of_2015());
    for (name, recommended) in [
        ("tcp_keepalives_idle", "1min"),
        ("log_checkpoints", "on"),
        ("log_connections", "on"),
        ("log_disconnections", "on"),
        ("vacuum_cost_delay", "10ms"),
        ("track_functions", "none"),
        ("log_statement", "ddl"),
        ("max_prepared_transactions", "0"),
        ("ssl", "on"),
    ] {
        let row = report.rows.iter().find(|row| row.name == name).unwrap();
        assert!(row.status.asks() && row.recommended == recommended, "{name}: {}", row.recommended);
    }
    let row = report.rows.iter().find(|row| row.name == "shared_buffers").unwrap();
    assert_eq!((row.status, row.value.as_str(), row.recommended.as_str()), (Status::Fine, "256MB", "256MB"));
}

/// Values were cut at ten characters.
#[test]
fn cut_values_are_compared_by_their_beginning() {
    let report = reviewed(&report_of_2015(), class_of_2015());
    let row = report.rows.iter().find(|row| row.name == "default_transaction_isolation").unwrap();
    assert_eq!(row.value, "read commi…");
    assert!(row.evidence.iter().any(|words| words.contains("cut")), "{:?}", row.evidence);
    assert!(report.notes.iter().any(|note| note.contains("ten characters")), "{:?}", report.notes);
}
