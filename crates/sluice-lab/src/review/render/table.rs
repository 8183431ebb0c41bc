//! For a terminal: a line of figures a setting, and below it why, wrapped.
//!
//! No colours and no line wider than [`WIDTH`], so that it can be piped and mailed.

use std::fmt::Write;

use super::{remark_words, shown, wrapped};
use crate::review::report::{Report, Row, Status};

/// The widest line.
const WIDTH: usize = 100;
/// Columns for the name, the value and the recommendation; the rest is for risk and effect.
const NAME: usize = 36;
const VALUE: usize = 16;
const RECOMMENDED: usize = 16;

/// The report as a table.
pub(super) fn render(report: &Report, all: bool) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &format!("{}, PostgreSQL {}", report.origin, shown(&report.version)));
    paragraph(&mut text, "", &format!("For {}.", report.instance));
    for note in &report.notes {
        paragraph(&mut text, "", note);
    }
    paragraph(&mut text, "", &format!("{}.", report.summary()));
    let mut category = "";
    for row in report.rows(all) {
        if row.category != category {
            category = &row.category;
            heading(&mut text, category);
        }
        line(&mut text, row);
        details(&mut text, row);
    }
    if !all {
        text.push_str("\n--all shows every setting; --format sql writes the script that changes them.\n");
    }
    text
}

fn heading(text: &mut String, category: &str) {
    let columns = format!("{:<NAME$} {:<VALUE$} {:<RECOMMENDED$} effect, risk", category, "now", "recommended");
    // Writing to a String can't fail, here and below.
    let _ = writeln!(text, "\n{columns}\n{}", "─".repeat(WIDTH));
}

/// The figures. What is too wide for its column goes to lines of its own below.
fn line(text: &mut String, row: &Row) {
    let fits = |word: &str, width: usize| word.chars().count() <= width;
    let cell = |word: &str, width: usize| if fits(word, width) { word.to_owned() } else { "↓".to_owned() };
    let (value, recommended) = (shown(&row.value), shown(&row.recommended));
    let figures = format!(
        "{:<NAME$} {:<VALUE$} {:<RECOMMENDED$} {}, {}{}",
        row.name,
        cell(value, VALUE),
        cell(recommended, RECOMMENDED),
        row.effect,
        row.risk.level,
        if row.status == Status::ByHand { "; by hand" } else { "" }
    );
    paragraph(text, "", &figures);
    if !fits(value, VALUE) {
        paragraph(text, "    ", &format!("Now: {value}"));
    }
    if !fits(recommended, RECOMMENDED) {
        paragraph(text, "    ", &format!("Recommended: {recommended}"));
    }
}

fn details(text: &mut String, row: &Row) {
    paragraph(text, "    ", &row.reason);
    if row.status.asks() && !row.risk.note.is_empty() {
        paragraph(text, "    ", &format!("Risk: {}.", row.risk.note));
    }
    if !row.evidence.is_empty() {
        paragraph(text, "    ", &format!("Seen: {}.", row.evidence.join("; ")));
    }
    if let Some(remark) = &row.remark {
        paragraph(text, "    ", &remark_words(remark));
    }
}

/// Words that are longer than a line are broken, so that none is.
fn paragraph(text: &mut String, indent: &str, words: &str) {
    let deeper = if indent.is_empty() { "    " } else { indent };
    let _ = writeln!(text, "{}", wrapped(words, WIDTH, indent, deeper));
}
