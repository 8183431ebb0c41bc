//! Tables, once for the page and once for the terminal.

use super::{
    columns::{self, Column},
    html::Html,
    number::{count, figure, times},
    outline::{Load, Outline},
    stalls::Stalled,
};
use crate::{
    result::{CaseKey, Outcome, Turn},
    table::table,
};

/// A table; each row has as many cells as there are headings.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) head: Vec<Heading>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// Over a column.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) title: String,
    /// Empty where there is none.
    pub(crate) unit: &'static str,
}

/// A table's cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    Number(String),
    /// A target or a run, with the class of its colour.
    Named {
        name: String,
        class: &'static str,
    },
}

impl Heading {
    pub(crate) fn new(title: impl Into<String>, unit: &'static str) -> Self {
        Self { title: title.into(), unit }
    }

    /// Of ratios to something.
    pub(crate) fn against(name: &str) -> Self {
        Self::new(format!("/\u{a0}{name}"), "")
    }

    pub(crate) fn of(column: Column) -> Self {
        Self::new(column.title, column.unit)
    }
}

impl Cell {
    /// A figure, or a dash.
    pub(crate) fn figure(value: Option<f64>) -> Self {
        Self::Number(figure(value))
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) | Self::Named { name: text, .. } => text,
        }
    }
}

impl Table {
    /// Without the columns of which nothing is known.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        for column in (0..self.head.len()).rev() {
            if self.rows.iter().all(|row| matches!(row[column].text(), "–" | "")) {
                self.remove_column(column);
            }
        }
        self
    }

    fn remove_column(&mut self, column: usize) {
        self.head.remove(column);
        for row in &mut self.rows {
            row.remove(column);
        }
    }

    /// For the page.
    pub(crate) fn html(&self) -> Html {
        let mut html = Html::default();
        html.open("div", &[("class", &"scroll"), ("tabindex", &0), ("role", &"region"), ("aria-label", &"table")]);
        html.element("table", &[], |html| {
            html.element("thead", &[], |html| {
                html.element("tr", &[], |html| {
                    for (nth, heading) in self.head.iter().enumerate() {
                        html.element("th", &[("class", &self.class(nth)), ("scope", &"col")], |html| {
                            html.text(&heading.title);
                            if !heading.unit.is_empty() {
                                html.text(" ");
                                html.leaf("span", &[("class", &"unit")], heading.unit);
                            }
                        });
                    }
                });
            });
            html.element("tbody", &[], |html| {
                for row in &self.rows {
                    html.element("tr", &[], |html| row.iter().for_each(|cell| cell_html(html, cell)));
                }
            });
        });
        html.close("div");
        html
    }

    /// For the terminal, and as Markdown.
    pub(crate) fn text(&self) -> String {
        let head: Vec<String> = self.head.iter().map(|heading| join(&heading.title, heading.unit)).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| one_line(cell.text())).collect()).collect();
        table(&head, &rows)
    }

    fn class(&self, column: usize) -> &'static str {
        match self.rows.first().map(|row| &row[column]) {
            Some(Cell::Number(_)) => "number",
            Some(Cell::Named { .. }) => "text named",
            _ => "text",
        }
    }
}

fn cell_html(html: &mut Html, cell: &Cell) {
    match cell {
        Cell::Text(text) => html.leaf("td", &[("class", &"text")], text),
        Cell::Number(text) => html.leaf("td", &[("class", &"number")], text),
        Cell::Named { name, class } => html.element("td", &[("class", &"text named")], |html| {
            html.leaf("i", &[("class", &format_args!("swatch dot {class}"))], "");
            html.text(name);
        }),
    }
}

fn join(title: &str, unit: &str) -> String {
    if unit.is_empty() { title.to_owned() } else { format!("{title} {unit}") }
}

/// Neither line ends nor bars may stand in a row of Markdown.
fn one_line(text: &str) -> String {
    text.replace('|', "/").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The columns that a comparison shows for each case, besides its transactions a second.
const COMPARED: [Column; 19] = [
    columns::TPS_TRIMMED,
    columns::QPS,
    columns::MEAN,
    columns::STDDEV,
    columns::P50,
    columns::P99,
    columns::MAX,
    columns::SQL,
    columns::BEGIN,
    columns::END,
    columns::OPEN,
    columns::CLOSE,
    columns::POSTGRES_CPU,
    columns::POOL_CPU,
    columns::POOL_RSS,
    columns::FLOOD,
    columns::FLOOD_FAILED,
    columns::FLOOD_P50,
    columns::FLOOD_P99,
];

/// Columns of things that hardly ever happen, left out where they did not.
const LOST: [Column; 3] = [columns::FAILED, columns::RETRIED, columns::SKIPPED];

/// All cases of some variants: medians over their turns, each against the first target's.
pub(super) fn cases<'a>(outline: &Outline<'a>, variants: &[&'a str]) -> Table {
    let first = outline.targets.first().copied().unwrap_or_default();
    let mut head: Vec<Heading> = ["variant", "clients", "target"].map(|title| Heading::new(title, "")).into();
    head.extend([Heading::of(columns::TPS), Heading::against(first), Heading::new("all turns", "tps")]);
    head.extend(COMPARED.map(Heading::of));
    head.extend(LOST.map(Heading::of));
    head.push(Heading::new("stalled", "%"));
    let loads: Vec<Load<'_>> = variants.iter().flat_map(|variant| outline.loads(variant)).collect();
    let cases = loads.into_iter().flat_map(|load| outline.cases_of(load));
    let mut table = Table { head, rows: cases.map(|case| case_row(outline, case)).collect() };
    if variants.len() == 1 {
        table.remove_column(0);
    }
    table.without_empty_columns()
}

fn case_row(outline: &Outline<'_>, case: &CaseKey) -> Vec<Cell> {
    let of = |column: Column| match outline.median(case, column) {
        Some(value) if column.is_below_resolution(value) => Cell::Number(columns::below_resolution()),
        value => Cell::figure(value),
    };
    let ratio = outline.first_of(case).filter(|first| *first != case);
    let ratio = ratio.and_then(|first| outline.result.ratio(case, first, columns::TPS.of));
    let tps = outline.median(case, columns::TPS).map(|tps| figure(Some(tps)));
    let tps = tps.unwrap_or_else(|| not_measured(outline, case).to_owned());
    let mut row = vec![
        Cell::Text(case.variant.clone()),
        Cell::Number(count(case.clients)),
        Cell::Named { name: case.target.clone(), class: outline.colour(&case.target) },
        Cell::Number(tps),
        Cell::Number(times(ratio)),
        Cell::Number(spread(outline, case)),
    ];
    row.extend(COMPARED.map(of));
    row.extend(LOST.map(|column| Cell::figure(outline.median(case, column).filter(|count| *count > 0.0))));
    let stalled = Stalled::of(outline, case);
    let stalled_percent = (stalled.count > 0).then(|| 100.0 * stalled.share());
    row.push(Cell::figure(stalled_percent));
    row
}

/// The reason why a case has no figures, in a word.
fn not_measured(outline: &Outline<'_>, case: &CaseKey) -> &'static str {
    let is_broken = |turn: &Turn| turn.case == *case && matches!(turn.outcome, Outcome::Broken(_));
    if outline.result.turns.iter().any(is_broken) { "broke" } else { "skipped" }
}

/// "2,690–2,790", if there were several turns.
fn spread(outline: &Outline<'_>, case: &CaseKey) -> String {
    let turns = outline.result.measured().filter(|(turn, _)| turn.case == *case).count();
    match outline.range(case, columns::TPS) {
        Some((low, high)) if turns > 1 => format!("{}–{}", figure(Some(low)), figure(Some(high))),
        _ => "–".to_owned(),
    }
}

/// The table of flushes that a commit waits for, by target, if there are nodes to wait for, or if targets differ.
pub(super) fn commits(outline: &Outline<'_>) -> Option<Table> {
    let of = |target: &str| outline.result.servers.get(target)?.commit.as_ref();
    let known: Vec<_> = outline.targets.iter().filter_map(|target| Some((*target, of(target)?))).collect();
    let has_nodes = known.iter().any(|(_, commit)| commit.nodes_round_trip_us.is_some());
    if !has_nodes && known.windows(2).all(|pair| pair[0].1.flushes == pair[1].1.flushes) {
        return None;
    }
    let rows = known.into_iter().map(|(target, commit)| {
        vec![
            Cell::Named { name: target.to_owned(), class: outline.colour(target) },
            Cell::Number(count(commit.flushes)),
            Cell::figure(commit.nodes_round_trip_us.map(|us| us / 1000.0)),
            Cell::Text(commit.why.clone()),
        ]
    });
    let head = [("target", ""), ("WAL flushes", ""), ("round trip between nodes", "ms"), ("which, and why", "")];
    let head = head.into_iter().map(|(title, unit)| Heading::new(title, unit)).collect();
    Some(Table { head, rows: rows.collect() }.without_empty_columns())
}

/// The explanation of the table of commits.
pub(super) const COMMITS: &str = "A transaction that has written waits for these, one after the other; one that has only \
                                  read waits for none. With several clients one flush serves all that wait for it.";

/// The statements of a load: means of the middle turn of each target.
pub(super) fn statements(outline: &Outline<'_>, load: Load<'_>) -> Vec<(String, Vec<Option<f64>>)> {
    let mut statements: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for (nth, target) in outline.targets.iter().enumerate() {
        let turn = outline.case(load, target).and_then(|case| outline.middle_turn(case));
        for (index, statement) in turn.iter().flat_map(|(_, measured)| measured.statements.iter().enumerate()) {
            // The same text may stand in a script twice: then the place tells them apart.
            let known = statements
                .iter()
                .position(|(text, means)| *text == statement.text && means.get(nth).is_some_and(Option::is_none));
            let at = known.unwrap_or_else(|| {
                let at = index.min(statements.len());
                statements.insert(at, (statement.text.clone(), vec![None; outline.targets.len()]));
                at
            });
            statements[at].1[nth] = Some(statement.mean_ms);
        }
    }
    statements
}
