//! The reports of a run: tables for people (the same in the terminal and as Markdown), records for programs.
//!
//! Figures here are medians over the turns; ratios are the medians of the ratios within each round.

use std::fmt::Write as _;

use serde::Serialize;

use crate::bench::load::Load;
use crate::bench::machine::Machine;
use crate::bench::results::{Trouble, of_case, ratio};
use sluice_lab::table::{show, table};

use super::bars::{Figures, Results, Series};
use super::cases::Case;
use super::targets::Target::{self, Haproxy, Pgbouncer, Postgres, SluiceBefore};

/// One object of `bench-peers.json`; what wasn't measured is null.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    case: &'static str,
    target: Target,
    tps: Option<f64>,
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    pool_cpu_us_per_tx: Option<f64>,
    postgres_cpu_us_per_tx: Option<f64>,
    rss_kb: Option<f64>,
    logins_per_s: Option<f64>,
    cpu_us_per_login: Option<f64>,
    turns: usize,
    error: Option<String>,
}

/// The records of a run, case by case.
pub(crate) fn records(results: &Results, cases: &[&'static Case]) -> Vec<Record> {
    let mut records = Vec::new();
    for case in cases {
        for (target, series) in of_case(results, case.name) {
            records.push(Record {
                case: case.name,
                target,
                tps: series.median(|figures| Some(figures.tps)),
                mean_ms: series.median(|figures| Some(figures.mean_ms)),
                p50_ms: series.median(|figures| figures.p50_ms),
                p99_ms: series.median(|figures| figures.p99_ms),
                pool_cpu_us_per_tx: series.median(|figures| figures.pool_cpu_us_per_tx),
                postgres_cpu_us_per_tx: series.median(|figures| figures.postgres_cpu_us_per_tx),
                rss_kb: series.median(|figures| figures.rss_kb),
                logins_per_s: series.median(|figures| figures.logins_per_s),
                cpu_us_per_login: series.median(|figures| figures.cpu_us_per_login),
                turns: series.turns.len(),
                error: series.trouble.as_ref().map(Trouble::to_string),
            });
        }
    }
    records
}

const HEAD: &[&str] = &[
    "target",
    "tps",
    "/ straight",
    "/ PgBouncer",
    "/ HAProxy",
    "/ before",
    "mean ms",
    "p50",
    "p99",
    "pool µs/tx",
    "PG µs/tx",
    "both",
    "/ straight",
    "RSS MB",
    "logins/s",
    "µs/login",
];

/// A case as a heading, a table, and notes on what is missing.
pub(crate) fn case_table(results: &Results, case: &'static Case, load: Load) -> String {
    let mut rows = Vec::new();
    let mut notes = String::new();
    for (target, series) in of_case(results, case.name) {
        if let Some(trouble) = &series.trouble {
            let _ = writeln!(notes, "- `{target}` {trouble}");
        }
        if !series.turns.is_empty() {
            rows.push(row(results, case, target, series));
        }
    }
    let mut text = format!("### {}\n\n`pgbench {}`\n\n", case.name, load.flags());
    if !rows.is_empty() {
        text += &table(HEAD, &rows);
        text.push('\n');
    }
    if !notes.is_empty() {
        text += &notes;
        text.push('\n');
    }
    text
}

fn row(results: &Results, case: &'static Case, target: Target, series: &Series) -> Vec<String> {
    let over = |other: Target, figure: fn(&Figures) -> Option<f64>| {
        show(ratio(results, (case.name, target), (case.name, other), figure))
    };
    let tps = |figures: &Figures| Some(figures.tps);
    vec![
        target.to_string(),
        show(series.median(tps)),
        over(Postgres, tps),
        over(Pgbouncer, tps),
        over(Haproxy, tps),
        over(SluiceBefore, tps),
        show(series.median(|figures| Some(figures.mean_ms))),
        show(series.median(|figures| figures.p50_ms)),
        show(series.median(|figures| figures.p99_ms)),
        show(series.median(|figures| figures.pool_cpu_us_per_tx)),
        show(series.median(|figures| figures.postgres_cpu_us_per_tx)),
        show(series.median(Figures::host_cpu_us_per_tx)),
        over(Postgres, Figures::host_cpu_us_per_tx),
        show(series.median(|figures| figures.rss_kb).map(|kb| kb / 1024.0)),
        show(series.median(|figures| figures.logins_per_s)),
        show(series.median(|figures| figures.cpu_us_per_login)),
    ]
}

/// The head of the Markdown report: how it was measured, and on what.
pub(crate) fn head(machine: &Machine, seconds: u32, turns: u32, scale: u32) -> String {
    format!(
        "# Sluice and its peers\n\n\
         Medians of {turns} turns of {seconds} s, in turns within one run; ratios are medians over the rounds, pair by \
         pair. pgbench, the pool and PostgreSQL share the host. Scale {scale}, all in memory, `synchronous_commit = \
         off`, SCRAM logins; pools hold 20 servers. CPU is user + system, without logins. RSS is the pool's peak. \
         pgbench does its part of each SCRAM login (PBKDF2) on the same cores, which bounds logins a second.\n\n\
         {machine}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    fn results() -> Results {
        let turn = Figures { tps: 30_000.0, mean_ms: 2.125, rss_kb: Some(2048.0), ..Figures::default() };
        let ran = Series { turns: [(0, turn)].into(), trouble: None };
        let skipped = Series { turns: [].into(), trouble: Some(Trouble::Skipped("not installed".to_owned())) };
        Results::from([((CASES[0].name, Postgres), ran), ((CASES[0].name, Haproxy), skipped)])
    }

    #[test]
    fn records_have_the_agreed_names_and_nulls() {
        let json = serde_json::to_value(records(&results(), &[&CASES[0]])).unwrap();
        assert_eq!(json[0]["case"], "select-extended-64");
        assert_eq!(json[0]["target"], "postgres");
        assert_eq!(json[0]["tps"], 30_000.0);
        assert_eq!(json[0]["error"], serde_json::Value::Null);
        assert_eq!(json[1]["error"], "skipped: not installed");
        for name in ["p50_ms", "p99_ms", "pool_cpu_us_per_tx", "postgres_cpu_us_per_tx", "rss_kb", "mean_ms"] {
            assert_eq!(json[1].get(name), Some(&serde_json::Value::Null), "{name}");
        }
    }

    #[test]
    fn cases_show_figures_and_what_is_missing() {
        let text = case_table(&results(), &CASES[0], CASES[0].load);
        assert!(text.contains("| postgres |") && text.contains("30000"), "{text}");
        assert!(text.contains("- `haproxy` skipped: not installed"), "{text}");
    }
}
