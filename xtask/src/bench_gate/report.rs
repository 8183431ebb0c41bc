//! The reports of a run: tables for people (the same in the terminal and as Markdown), records for programs.
//!
//! Figures here are medians over the turns; ratios are the medians of the ratios within each round.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::bench::load::Load;
use crate::bench::machine::Machine;
use crate::bench::results::{Trouble, of_case};
use sluice_lab::table::{show, table};

use super::Options;
use super::bars::{Results, Series, sql_time_under_plain, tps_over_plain};
use super::cases::{Case, Concurrency, Target};

/// One object of `bench-gate.json`; what wasn't measured is null.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    case: &'static str,
    target: &'static str,
    limit: Option<Concurrency>,
    tps: Option<f64>,
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    sql_ms: Option<f64>,
    begin_ms: Option<f64>,
    postgres_cpu_us_per_tx: Option<f64>,
    waited_share: Option<f64>,
    limit_at_end: Option<f64>,
    turns: usize,
    error: Option<String>,
}

/// The records of a run, case by case.
pub(crate) fn records(results: &Results, cases: &[&'static Case]) -> Vec<Record> {
    let of = |case: &&'static Case| {
        let name = case.name;
        of_case(results, name).map(move |(target, series)| record(name, target, series))
    };
    cases.iter().flat_map(of).collect()
}

fn record(case: &'static str, target: Target, series: &Series) -> Record {
    Record {
        case,
        target: target.name(),
        limit: target.limit(),
        tps: series.median(|figures| Some(figures.tps)),
        mean_ms: series.median(|figures| Some(figures.mean_ms)),
        p50_ms: series.median(|figures| figures.p50_ms),
        p99_ms: series.median(|figures| figures.p99_ms),
        sql_ms: series.median(|figures| figures.sql_ms),
        begin_ms: series.median(|figures| figures.begin_ms),
        postgres_cpu_us_per_tx: series.median(|figures| figures.postgres_cpu_us_per_tx),
        waited_share: series.median(|figures| figures.waited_share),
        limit_at_end: series.median(|figures| figures.limit_at_end),
        turns: series.turns.len(),
        error: series.trouble.as_ref().map(Trouble::to_string),
    }
}

const HEAD: &[&str] = &[
    "target",
    "tps",
    "/ plain",
    "mean ms",
    "p50",
    "p99",
    "SQL ms",
    "plain /",
    "BEGIN ms",
    "PG µs/tx",
    "waited %",
    "limit at end",
];

/// A comparison as a heading, a table, and notes on what is missing.
pub(crate) fn case_table(results: &Results, case: &'static Case, load: Load) -> String {
    let ran = of_case(results, case.name).filter(|(_, series)| !series.turns.is_empty());
    let rows: Vec<Vec<String>> = ran.map(|(target, series)| row(results, case.name, target, series)).collect();
    let mut text = format!("### {}\n\n`pgbench {}`\n\n", case.name, load.flags());
    if !rows.is_empty() {
        text += &table(HEAD, &rows);
        text.push('\n');
    }
    text + &notes(results, case)
}

fn row(results: &Results, case: &'static str, target: Target, series: &Series) -> Vec<String> {
    vec![
        target.to_string(),
        show(series.median(|figures| Some(figures.tps))),
        show(tps_over_plain(results, case, target)),
        show(series.median(|figures| Some(figures.mean_ms))),
        show(series.median(|figures| figures.p50_ms)),
        show(series.median(|figures| figures.p99_ms)),
        show(series.median(|figures| figures.sql_ms)),
        show(sql_time_under_plain(results, case, target)),
        show(series.median(|figures| figures.begin_ms)),
        show(series.median(|figures| figures.postgres_cpu_us_per_tx)),
        show(series.median(|figures| figures.waited_share).map(|share| share * 100.0)),
        show(series.median(|figures| figures.limit_at_end)),
    ]
}

/// Why there are no figures, or not all.
fn notes(results: &Results, case: &Case) -> String {
    let mut notes = String::new();
    for (target, series) in of_case(results, case.name) {
        if let Some(trouble) = &series.trouble {
            let _ = writeln!(notes, "- `{target}` in {} {trouble}", case.name);
        }
    }
    if !notes.is_empty() {
        notes.push('\n');
    }
    notes
}

/// Transactions a second by limit and load; of an automatic limit also what it had come to.
pub(crate) fn ladder_table(results: &Results, columns: &[(&'static Case, Load)]) -> String {
    let rungs: BTreeSet<Target> =
        columns.iter().flat_map(|(case, _)| of_case(results, case.name).map(|(target, _)| target)).collect();
    if rungs.is_empty() {
        return String::new();
    }
    let loads = columns.iter().map(|(_, load)| format!("{}, {} clients", load.script, load.clients));
    let head: Vec<String> = ["limit".to_owned()].into_iter().chain(loads).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let row = |target: Target| {
        let name = target.limit().map_or("plain".to_owned(), |limit| limit.to_string());
        let cells = columns.iter().map(|(case, _)| cell(results.get(&(case.name, target))));
        [name].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = rungs.into_iter().map(row).collect();
    let notes: String = columns.iter().map(|(case, _)| notes(results, case)).collect();
    format!("### Transactions a second, by limit\n\n{}\n{notes}", table(&head, &rows))
}

fn cell(series: Option<&Series>) -> String {
    let tps = show(series.and_then(|series| series.median(|figures| Some(figures.tps))));
    match series.and_then(|series| series.median(|figures| figures.limit_at_end)) {
        Some(limit) => format!("{tps} (at {})", show(Some(limit))),
        None => tps,
    }
}

/// The head of the Markdown report: how it was measured, and on what.
pub(crate) fn head(machine: &Machine, options: &Options) -> String {
    let Options { common, auto_warm_up, ladder_seconds, ladder_turns, .. } = options;
    let (turns, seconds, scale) = (common.turns(), common.seconds(), common.scale());
    let how = if common.quick {
        "A quick run: it shows that all works, and measures nothing.".to_owned()
    } else {
        format!(
            "Medians of {turns} turns of {seconds} s (of the ladder: {ladder_turns} of {ladder_seconds} s), in turns \
             within one run; ratios are medians over the rounds, pair by pair. \"plain\" has not loaded the library. \
             pgbench and PostgreSQL share the host, and speak by Unix socket. Scale {scale}, all in memory, \
             `synchronous_commit = off`. \"SQL ms\" is the transaction's statements between BEGIN and END, as pgbench \
             sees them. CPU is user + system, without logins. An automatic limit begins anew and has {auto_warm_up} s of \
             the same load to settle before each turn; \"limit at end\" is what it has come to."
        )
    };
    format!("# PostgreSQL with the gate, and without\n\n{how}\n\n{machine}\n")
}

#[cfg(test)]
mod tests {
    use super::super::bars::Figures;
    use super::super::cases::CASES;
    use super::*;

    const GATE: Target = Target::Gate(Concurrency::Places(32));
    const AUTO: Target = Target::Gate(Concurrency::Auto);

    fn series(figures: Figures) -> Series {
        Series { turns: [(0, figures)].into(), trouble: None }
    }

    fn results() -> Results {
        let tps = |tps| Figures { tps, mean_ms: 10.0, ..Figures::default() };
        let figures = |figures, sql_ms, waited_share| Figures { sql_ms: Some(sql_ms), waited_share, ..figures };
        let auto = Figures { limit_at_end: Some(42.0), ..tps(4000.0) };
        let broken = Series { turns: [].into(), trouble: Some(Trouble::Broken("aborted".to_owned())) };
        Results::from([
            (("tpcb-1000", Target::Plain), series(figures(tps(1000.0), 600.0, None))),
            (("tpcb-1000", GATE), series(figures(tps(3000.0), 15.0, Some(0.25)))),
            (("tpcb-1000", AUTO), broken),
            (("ladder-tpcb-64", GATE), series(tps(3500.0))),
            (("ladder-tpcb-64", AUTO), series(auto)),
        ])
    }

    #[test]
    fn records_have_the_agreed_names_and_nulls() {
        let json = serde_json::to_value(records(&results(), &[&CASES[0]])).unwrap();
        let told = |at: usize| (json[at]["target"].as_str(), json[at]["limit"].to_string(), json[at]["tps"].as_f64());
        assert_eq!(told(0), (Some("plain"), "null".to_owned(), Some(1000.0)));
        assert_eq!(told(1), (Some("gate"), "32".to_owned(), Some(3000.0)));
        assert_eq!(told(2), (Some("gate"), "\"auto\"".to_owned(), None));
        assert_eq!(json[2]["error"], "broke: aborted");
        let absent = ["mean_ms", "p50_ms", "p99_ms", "sql_ms", "begin_ms", "postgres_cpu_us_per_tx", "waited_share"];
        for name in absent {
            assert_eq!(json[2].get(name), Some(&serde_json::Value::Null), "{name}");
        }
    }

    #[test]
    fn comparisons_show_figures_and_what_is_missing() {
        let text = case_table(&results(), &CASES[0], CASES[0].load);
        let gate = text.lines().find(|line| line.starts_with("| gate 32")).unwrap();
        let cells: Vec<&str> = gate.split('|').map(str::trim).collect();
        assert_eq!(cells[2..5], ["3000", "3.00", "10.0"]);
        assert_eq!(cells[7..9], ["15.0", "40.0"]);
        assert_eq!(cells[11], "25.0");
        assert!(text.contains("- `gate auto` in tpcb-1000 broke: aborted"), "{text}");
    }

    #[test]
    fn rungs_are_in_order_and_auto_tells_its_limit() {
        let columns: Vec<_> = [&CASES[3], &CASES[5]].map(|case| (case, case.load)).into();
        let text = ladder_table(&results(), &columns);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert!(rows[0].starts_with("| 32") && rows[0].contains(" 3500 "), "{text}");
        assert!(rows[1].starts_with("| auto") && rows[1].contains("4000 (at 42.0)"), "{text}");
        assert!(ladder_table(&results(), &[]).is_empty());
    }
}
