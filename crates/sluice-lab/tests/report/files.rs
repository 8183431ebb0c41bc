//! The files of a report, and results read back from them.

use std::fs;

use sluice_lab::{
    report::{ReadError, html, read, write},
    result::FORMAT,
};

use super::{
    super::folder,
    sample::{ladder, session_log, small},
};

#[test]
fn all_files_are_written_and_both_results_read_back() {
    let folder = folder("files").join("new");
    for result in [small(), session_log(), ladder()] {
        let written = write(&result, &folder).expect("files");
        let as_stored = serde_json::to_value(&result).expect("JSON");
        for path in [&written.json, &written.html] {
            let again = read(path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(serde_json::to_value(&again).expect("JSON"), as_stored, "{path:?}");
        }
        assert!(fs::read_dir(&folder).expect("a folder").count() == 4, "nothing else is left");
    }
}

#[test]
fn csv_has_a_row_a_turn_and_a_row_a_value() {
    let folder = folder("csv");
    let result = ladder();
    let written = write(&result, &folder).expect("files");
    let mut reader = csv::Reader::from_path(&written.summary_csv).expect("a table");
    let head = reader.headers().expect("a head").clone();
    let of = |row: &csv::StringRecord, name: &str| {
        row.get(head.iter().position(|column| column == name).expect(name)).expect(name).to_owned()
    };
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows.len(), result.turns.len());
    assert_eq!((of(&rows[0], "clients"), of(&rows[0], "target")), ("64".to_owned(), "straight".to_owned()));
    assert!(of(&rows[0], "tps").parse::<f64>().expect("a number") > 4_500.0);
    let broken = rows.iter().find(|row| of(row, "outcome") == "broken").expect("a broken turn");
    assert_eq!((of(broken, "tps").as_str(), of(broken, "remark").starts_with("FATAL")), ("", true));

    let mut reader = csv::Reader::from_path(&written.series_csv).expect("a table");
    assert_eq!(
        reader.headers().expect("a head"),
        vec!["variant", "clients", "target", "round", "t_s", "column", "value"]
    );
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows");
    let count = |column: &str| rows.iter().filter(|row| &row[5] == column).count();
    let measured = result.measured().count();
    assert_eq!(
        (count("pgbench.tps"), count("wait.CPU"), count("wait.BufferPin")),
        (60 * measured, 60 * measured, 20 * measured)
    );
}

#[test]
fn what_can_not_be_read_says_why() {
    let folder = folder("unreadable");
    let path = folder.join("result.json");
    let error = |text: &str| {
        fs::write(&path, text).expect("a file");
        read(&path).expect_err(text)
    };
    let newer = serde_json::json!({ "format": FORMAT + 1, "strange": true }).to_string();
    assert!(matches!(error(&newer), ReadError::Newer { format, .. } if format == FORMAT + 1));
    assert!(error(&newer).to_string().contains("has format 2, and this Sluice reads 1 at most; use the Sluice"));
    assert!(matches!(error("{}"), ReadError::Damaged { .. }));
    assert!(matches!(error("no JSON"), ReadError::Damaged { .. }));
    assert!(matches!(error("<!DOCTYPE html><p>Hello"), ReadError::NoResult { .. }));
    assert!(matches!(error(&html(&small())[..4_000]), ReadError::NoResult { .. }));
    assert!(matches!(read(&folder.join("none.json")).expect_err("none"), ReadError::Read { .. }));
}

#[test]
fn a_place_that_can_not_be_written_to() {
    let folder = folder("unwritable");
    let file = folder.join("file");
    fs::write(&file, "").expect("a file");
    let error = write(&small(), &file).expect_err("a file is no folder").to_string();
    assert!(error.contains("cannot write") && error.contains("give another directory"), "{error}");
}
