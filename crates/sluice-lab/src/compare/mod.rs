//! Runs compared: what they have in common, case by case, and what differs around them, which is said first.
//!
//! It compares what it is given and judges by the spread of the turns only: whether two machines may be compared at all
//! is for the reader, who is told.

mod differences;
mod names;
mod page;

use std::{fmt::Write as _, path::Path};

use thiserror::Error;

pub use self::{differences::Difference, names::names_of};
use crate::{
    report::{
        self, Cell, Heading, ReportError, Table,
        colour::colour,
        columns::{self, Column},
        number::{figure, times},
        outline,
    },
    result::{CaseKey, RunResult},
};

/// Runs side by side; the first is what the others are compared with.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// By the names that they were given.
    pub runs: Vec<Named<'a>>,
    /// Differences around the runs: machines first, then servers and the scenario.
    pub differences: Vec<Difference>,
    /// Cases that two runs or more have measured, in the order of the first.
    pub shared: Vec<CaseKey>,
    /// Cases that only one run has measured, with its place among the runs.
    pub alone: Vec<(usize, CaseKey)>,
}

/// A run with its name.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Of its file, or what the user gave.
    pub name: &'a str,
    /// The run's result.
    pub result: &'a RunResult,
}

/// Runs can't be compared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CompareError {
    /// It takes two.
    #[error("one run can't be compared; give two results or more, or say by --require what one has to meet")]
    TooFew,
    /// They have nothing in common.
    #[error(
        "no two of these runs have measured the same case; compare runs of one scenario, with the same variants, clients and targets"
    )]
    NothingShared,
}

/// The columns that are compared for each case.
const COMPARED: [Column; 5] = [columns::TPS, columns::MEAN, columns::P99, columns::SQL, columns::CPU];

/// Compares two runs or more.
pub fn compare<'a>(runs: &[Named<'a>]) -> Result<Comparison<'a>, CompareError> {
    if runs.len() < 2 {
        return Err(CompareError::TooFew);
    }
    let mut cases: Vec<&CaseKey> = Vec::new();
    for case in runs.iter().flat_map(|run| run.result.cases()) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let (mut shared, mut alone) = (Vec::new(), Vec::new());
    for case in cases {
        let having: Vec<usize> = (0..runs.len()).filter(|nth| runs[*nth].has(case)).collect();
        match having[..] {
            [] => {}
            [only] => alone.push((only, case.clone())),
            _ => shared.push(case.clone()),
        }
    }
    if shared.is_empty() {
        return Err(CompareError::NothingShared);
    }
    Ok(Comparison { runs: runs.to_vec(), differences: differences::between(runs), shared, alone })
}

impl Named<'_> {
    fn has(&self, case: &CaseKey) -> bool {
        self.result.of_case(case).next().is_some()
    }

    /// The lowest and the highest over a case's turns, if there were several.
    fn range(&self, case: &CaseKey, column: Column) -> Option<(f64, f64)> {
        let several = self.result.of_case(case).nth(1).is_some();
        several.then(|| outline::range(self.result.of_case(case), column.of)).flatten()
    }
}

impl Comparison<'_> {
    /// For the terminal.
    pub fn text(&self) -> String {
        let mut text = String::from("# Runs compared\n\n");
        for sentence in self.sentences() {
            let _ = writeln!(text, "{sentence}\n");
        }
        if !self.differences.is_empty() {
            let _ = writeln!(text, "{}", self.differences_table().text());
        }
        let _ = writeln!(text, "{}\n{}", self.table().text(), self.note());
        for (nth, case) in &self.alone {
            let _ = writeln!(text, "- only {} has {}", self.runs[*nth].name, outline::label(case));
        }
        text
    }

    /// The page, in the style of reports.
    pub fn html(&self) -> String {
        page::html(self)
    }

    /// Writes the page.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        report::replace(path, self.html().as_bytes())
    }

    /// Sentences that must be read before any figure: machines and servers first, then the gist of the figures.
    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let about = |is_meant: fn(&Difference) -> bool| -> Vec<&str> {
            let meant = self.differences.iter().filter(|difference| is_meant(difference));
            meant.map(|difference| difference.what.as_str()).collect()
        };
        let machines = about(|difference| difference.is_of_machine);
        match machines.is_empty() {
            true => sentences.push("From the same kind of machine.".to_owned()),
            false => sentences.push(format!(
                "From different machines ({}): the ratios say more about these than about what was run.",
                machines.join(", ")
            )),
        }
        let others = about(|difference| !difference.is_of_machine);
        if !others.is_empty() {
            let lead = if machines.is_empty() { "Not the same" } else { "Not the same either" };
            sentences.push(format!("{lead}: {}.", few(&others)));
        }
        sentences.extend(self.runs.iter().filter_map(|run| {
            let why = run.result.cut_short.as_ref()?;
            Some(format!("{} was cut short: {why}.", run.name))
        }));
        sentences.extend(self.gist());
        sentences
    }

    /// The range of the ratios of throughput, run by run.
    fn gist(&self) -> Vec<String> {
        let of_run = |nth: usize| {
            let ratios: Vec<f64> = self.shared.iter().filter_map(|case| self.ratio(nth, case, columns::TPS)).collect();
            let (low, high) = (ratios.iter().copied().reduce(f64::min)?, ratios.iter().copied().reduce(f64::max)?);
            let (name, first) = (self.runs[nth].name, self.runs[0].name);
            let cases = if ratios.len() == 1 { "one case".to_owned() } else { format!("{} cases", ratios.len()) };
            let range = match times(Some(low)) == times(Some(high)) {
                true => times(Some(low)),
                false => format!("{} to {}", times(Some(low)), times(Some(high))),
            };
            Some(format!("{name} did {range} the transactions a second of {first}, in {cases}."))
        };
        (1..self.runs.len()).filter_map(of_run).collect()
    }

    /// A run's median over the first run's.
    fn ratio(&self, nth: usize, case: &CaseKey, column: Column) -> Option<f64> {
        let of = |nth: usize| self.runs[nth].result.median(case, column.of);
        let (own, first) = (of(nth)?, of(0)?);
        (first > 0.0).then(|| own / first)
    }

    /// Whether the turns of both runs overlap, so that the difference may be chance.
    fn overlaps(&self, nth: usize, case: &CaseKey, column: Column) -> bool {
        let ranges = (self.runs[nth].range(case, column), self.runs[0].range(case, column));
        matches!(ranges, (Some((low, high)), Some((first_low, first_high))) if low <= first_high && first_low <= high)
    }

    fn table(&self) -> Table {
        let mut head: Vec<Heading> = ["case", "run"].map(|title| Heading::new(title, "")).into();
        for column in COMPARED {
            head.extend([Heading::of(column), Heading::against("first")]);
        }
        let mut rows = Vec::new();
        for case in &self.shared {
            let having = (0..self.runs.len()).filter(|nth| self.runs[*nth].has(case));
            rows.extend(having.enumerate().map(|(row, nth)| self.row(case, nth, row == 0)));
        }
        Table { head, rows }.without_empty_columns()
    }

    fn row(&self, case: &CaseKey, nth: usize, is_first: bool) -> Vec<Cell> {
        let label = if is_first { outline::label(case) } else { String::new() };
        let mut row = vec![Cell::Text(label), Cell::Named { name: self.runs[nth].name.to_owned(), class: colour(nth) }];
        for column in COMPARED {
            let ratio = if nth == 0 { None } else { self.ratio(nth, case, column) };
            let shown = match ratio {
                Some(_) if self.overlaps(nth, case, column) => format!("≈ {}", times(ratio)),
                _ => times(ratio),
            };
            row.extend([Cell::Number(figure(self.runs[nth].result.median(case, column.of))), Cell::Number(shown)]);
        }
        row
    }

    fn note(&self) -> &'static str {
        "Medians over the turns, and ratios to the first run. ≈ marks those whose turns overlap with the first run's: \
         chance may be all that it is. CPU is PostgreSQL's and the pool's together.\n"
    }

    fn differences_table(&self) -> Table {
        let titles = [""].into_iter().chain(self.runs.iter().map(|run| run.name));
        let rows = self.differences.iter().map(|difference| {
            let cells = [&difference.what].into_iter().chain(&difference.values);
            cells.map(|text| Cell::Text(text.clone())).collect()
        });
        Table { head: titles.map(|title| Heading::new(title, "")).collect(), rows: rows.collect() }
    }
}

/// As many as a sentence bears.
fn few(names: &[&str]) -> String {
    const NAMED_MAX: usize = 6;
    match names.len().saturating_sub(NAMED_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED_MAX].join(", ")),
    }
}
