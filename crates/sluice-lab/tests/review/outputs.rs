//! Each format of a report: what a reader relies on.

use sluice_lab::review::{self, Format, Report, Snapshot, Status, Workload};
use sluice_testkit::{TestServer, Version};

use crate::{GIB, instance, report_of_2015, reviewed, snapshot_of};

/// A live server's report and that of 2015, with values that try to break out.
fn reports() -> Vec<Report> {
    let mut live = snapshot_of(TestServer::shared(Version::V18));
    spoil(&mut live);
    [live, report_of_2015()].iter().map(|snapshot| reviewed(snapshot, instance(GIB, 2, Workload::Oltp))).collect()
}

fn spoil(snapshot: &mut Snapshot) {
    let setting = snapshot.settings.iter_mut().find(|setting| setting.name == "work_mem").unwrap();
    setting.value = "<script>alert('x')</script>|`*_\n'; DROP TABLE t; --".to_owned();
    let setting = snapshot.settings.iter_mut().find(|setting| setting.name == "search_path").unwrap();
    setting.value = "x".repeat(300);
}

fn rendered(report: &Report, format: Format) -> String {
    review::render(report, format, true).unwrap()
}

#[test]
fn a_table_fits_a_terminal() {
    for report in reports() {
        for all in [false, true] {
            let text = review::render(&report, Format::Table, all).unwrap();
            for line in text.lines() {
                assert!(line.chars().count() <= 100 && !line.contains('\u{1b}'), "{line}");
            }
            assert!(text.contains("For 1 GB of memory, 2 processors"), "{text}");
        }
    }
}

/// Without `--all`, only what asks for something, and what somebody remarked on.
#[test]
fn a_table_leaves_out_what_is_fine() {
    let report = &reports()[0];
    let text = review::render(report, Format::Table, false).unwrap();
    assert!(text.contains("\nrandom_page_cost ") && !text.contains("\nenable_seqscan "), "{text}");
    assert!(rendered(report, Format::Table).contains("\nenable_seqscan "));
}

#[test]
fn a_remark_stands_with_its_answer() {
    let text = review::render(&reports()[1], Format::Table, false).unwrap();
    assert!(text.contains("\ncheckpoint_segments ") && text.contains("Today differs: Gone in 9.5"), "{text}");
}

#[test]
fn a_page_refers_to_nothing_outside() {
    for report in reports() {
        let text = rendered(&report, Format::Html);
        for outside in ["<link", "<script", "<img", "<iframe", "@import", "url(", "src="] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert!(text.contains("prefers-color-scheme: dark") && text.contains("@media print"));
        assert!(text.contains("width=device-width"));
        let count = |tag: &str| text.matches(tag).count();
        for tag in ["table", "section", "tbody", "tr", "td", "th", "code", "p", "span"] {
            let open = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
            assert_eq!(open, count(&format!("</{tag}>")), "{tag}");
        }
        assert_eq!(count("<th scope=\"row\">"), report.rows.len());
    }
}

#[test]
fn markdown_tables_keep_their_columns() {
    for report in reports() {
        for line in rendered(&report, Format::Markdown).lines().filter(|line| line.starts_with('|')) {
            let cells = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
            assert_eq!(cells, 7, "{line}");
        }
    }
}

#[test]
fn json_has_everything() {
    for report in reports() {
        let value: serde_json::Value = serde_json::from_str(&rendered(&report, Format::Json)).unwrap();
        let rows = value["rows"].as_array().unwrap();
        assert_eq!(rows.len(), report.rows.len());
        for key in ["name", "value", "recommended", "status", "reason", "risk", "effect", "evidence", "source"] {
            assert!(rows[0].get(key).is_some(), "{key}");
        }
    }
}

/// Whatever a value is, a script's lines are comments and statements.
#[test]
fn a_script_holds_statements_only() {
    for report in reports() {
        let text = rendered(&report, Format::Sql);
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("-- ")) {
            let known = line.starts_with("ALTER SYSTEM SET ") || line == "SELECT pg_catalog.pg_reload_conf();";
            assert!(known && line.ends_with(';'), "{line}");
        }
        for row in report.rows.iter().filter(|row| row.status == Status::ByHand) {
            assert!(!text.contains(&format!("\nALTER SYSTEM SET {} ", row.name)), "{}", row.name);
        }
    }
}
