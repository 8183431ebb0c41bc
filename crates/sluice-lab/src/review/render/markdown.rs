//! Markdown: a table for each category, for a wiki or a ticket.

use std::fmt::Write;

use super::{remark_words, shown};
use crate::review::report::{Report, Row, Status};

/// The report as Markdown.
pub(super) fn render(report: &Report, all: bool) -> String {
    let mut text = String::from("# Settings review\n\n");
    // Writing to a String can't fail, here and below.
    let _ =
        writeln!(text, "{}, PostgreSQL {}, for {}.\n", cell(&report.origin), cell(&report.version), report.instance);
    for note in &report.notes {
        let _ = writeln!(text, "{}\n", cell(note));
    }
    let _ = writeln!(text, "{}.", report.summary());
    let mut category = "";
    for row in report.rows(all) {
        if row.category != category {
            category = &row.category;
            let _ = writeln!(text, "\n## {category}\n\n{HEAD}");
        }
        let _ = writeln!(text, "{}", line(row));
    }
    text
}

const HEAD: &str = "| setting | now | recommended | effect | risk | why |\n|---|---|---|---|---|---|";

fn line(row: &Row) -> String {
    let name = match &row.source {
        Some(source) => format!("[`{}`]({source})", row.name),
        None => format!("`{}`", row.name),
    };
    let mut why = cell(&row.reason);
    if !row.evidence.is_empty() {
        let _ = write!(why, " *{}.*", cell(&row.evidence.join("; ")));
    }
    if let Some(remark) = &row.remark {
        let _ = write!(why, "<br>{}", cell(&remark_words(remark)));
    }
    let risk = if row.status.asks() { row.risk_words() } else { row.risk.level.to_string() };
    let by_hand = if row.status == Status::ByHand { " (by hand)" } else { "" };
    let (value, recommended) = (cell(shown(&row.value)), cell(shown(&row.recommended)) + by_hand);
    format!("| {name} | {value} | {recommended} | {} | {} | {why} |", row.effect, cell(&risk))
}

/// Text that can't end its cell, or begin a tag or a format.
fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '*' | '_' | '`' | '[' | ']' => escaped.extend(['\\', c]),
            '<' => escaped.push_str("&lt;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_in_its_cell() {
        assert_eq!(cell("a|b\n<i>*_\\"), "a\\|b &lt;i>\\*\\_\\\\");
    }
}
