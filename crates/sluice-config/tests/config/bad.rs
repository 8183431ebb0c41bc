//! Files that do not load: `bad.txt` holds each with its whole report. `SLUICE_BLESS=1` writes the reports again.
//!
//! A case is completed with a database and a method where it has none, unless its title ends in "(as it is)".

use std::path::{Path, PathBuf};

const TITLE: &str = "#### ";
const REPORT: &str = "---- report\n";

#[test]
fn every_bad_file_gets_its_report() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/bad.txt"));
    let written = std::fs::read_to_string(&path).expect("the cases");
    let cases = written.split(TITLE).skip(1).map(|case| {
        let (title, rest) = case.split_once('\n').expect("a title");
        let input = rest.split_once(REPORT).map_or(rest, |(input, _)| input);
        format!("{TITLE}{title}\n{}\n\n{REPORT}{}\n\n", input.trim_end(), report(title, input.trim_end()))
    });
    let now = format!("{}{}\n", written.split(TITLE).next().unwrap_or_default(), cases.collect::<String>().trim_end());
    if std::env::var_os("SLUICE_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the cases");
        return;
    }
    for (then, now) in written.split(TITLE).zip(now.split(TITLE)) {
        assert_eq!(then.trim_end(), now.trim_end(), "was left, is right");
    }
}

fn report(title: &str, input: &str) -> String {
    let mut text = input.to_owned();
    if !title.ends_with("(as it is)") {
        if !input.contains("database") {
            text.push_str("\n[[database]]\nname = \"rest\"\n");
        }
        if !input.contains("auth") {
            text.push_str("\n[auth]\nmethod = \"trust\"\n");
        }
    }
    let report = sluice_config::parse(&text, Path::new("sluice.toml")).expect_err(title).to_string();
    assert!(!report.contains("s3cret"), "{title}: a password in the report\n{report}");
    report
}
