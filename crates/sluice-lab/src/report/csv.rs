//! The result as CSV, for spreadsheets and other programs: names as in the JSON, nothing rounded, empty for what is
//! not known, `<0.001` for a latency that is shorter than pgbench's log can tell.

use ::csv::Writer;

use super::columns::{self, Column};
use crate::result::{Outcome, RunResult, Second, Turn};

/// A figure of a second: its name, and how to take it.
type OfSecond = (&'static str, fn(&Second) -> Option<f64>);

/// A second's figures, by the names that they have beside samples.
const SECONDS: [OfSecond; 8] = [
    ("pgbench.span_s", |second| Some(second.span_s)),
    ("pgbench.tps", |second| Some(second.tps)),
    ("pgbench.mean_ms", |second| Some(second.mean_ms)),
    ("pgbench.stddev_ms", |second| Some(second.stddev_ms)),
    ("pgbench.p99_ms", |second| second.p99_ms),
    ("pgbench.max_ms", |second| second.max_ms),
    ("pgbench.failed", |second| Some(second.failed as f64)),
    ("pgbench.skipped", |second| Some(second.skipped as f64)),
];

/// A row a turn.
pub(super) fn summary(result: &RunResult) -> Result<Vec<u8>, ::csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    let names = columns::ALL.iter().map(|column| column.name);
    writer.write_record(of_turn_names().chain(["outcome", "remark", "stalls", "stalled_s"]).chain(names))?;
    for turn in &result.turns {
        let (outcome, remark) = match &turn.outcome {
            Outcome::Measured(_) => ("measured", ""),
            Outcome::Broken(why) => ("broken", why.as_str()),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
        };
        let mut row = of_turn(turn);
        row.extend([outcome.to_owned(), remark.to_owned()]);
        if let Outcome::Measured(measured) = &turn.outcome {
            let stalled_s: f64 = measured.stalls.iter().map(crate::stall::Stall::seconds).sum();
            // The sum of nothing is -0.
            row.extend([measured.stalls.len().to_string(), (stalled_s + 0.0).to_string()]);
            row.extend(columns::ALL.iter().map(|column| value(column, (column.of)(&measured.figures))));
        } else {
            row.resize(row.len() + 2 + columns::ALL.len(), String::new());
        }
        writer.write_record(row)?;
    }
    finish(writer)
}

/// A row a value.
pub(super) fn series(result: &RunResult) -> Result<Vec<u8>, ::csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(of_turn_names().chain(["t_s", "column", "value"]))?;
    for (turn, measured) in result.measured() {
        let turn = of_turn(turn);
        let mut put = |t_s: f64, column: &str, value: f64| {
            let fields = turn.iter().cloned().chain([t_s.to_string(), column.to_owned(), value.to_string()]);
            writer.write_record(fields)
        };
        for second in &measured.seconds {
            for (column, of) in SECONDS {
                if let Some(value) = of(second) {
                    put(second.t_s, column, value)?;
                }
            }
        }
        for column in measured.samples.columns.keys() {
            for (t_s, value) in measured.samples.points(column) {
                put(t_s, column, value)?;
            }
        }
    }
    finish(writer)
}

fn of_turn_names() -> impl Iterator<Item = &'static str> {
    ["variant", "clients", "target", "round"].into_iter()
}

fn of_turn(turn: &Turn) -> Vec<String> {
    let case = &turn.case;
    vec![case.variant.clone(), case.clients.to_string(), case.target.clone(), turn.round.to_string()]
}

fn value(column: &Column, value: Option<f64>) -> String {
    match value {
        Some(value) if column.is_below_resolution(value) => columns::below_resolution(),
        value => value.map_or_else(String::new, |value| value.to_string()),
    }
}

fn finish(writer: Writer<Vec<u8>>) -> Result<Vec<u8>, ::csv::Error> {
    writer.into_inner().map_err(|unwritten| ::csv::Error::from(unwritten.into_error()))
}
