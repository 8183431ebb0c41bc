//! HTML: one file without outside references, for a screen, a phone and paper, light and dark.
//!
//! No script. Every word from outside is escaped.

use std::fmt::Write;

use super::{remark_words, shown};
use crate::{
    report::html::escaped,
    review::report::{Report, Row, Status},
};

const STYLE: &str = include_str!("report.css");

/// The report as a page.
pub(super) fn render(report: &Report, all: bool) -> String {
    let mut text = String::new();
    let title = format!("Settings review: {}", report.origin);
    // Writing to a String can't fail, here and below.
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<header>\n<h1>Settings review</h1>\n<p>{}, PostgreSQL {}, for {}.</p>\n",
        escaped(&title),
        escaped(&report.origin),
        escaped(&report.version),
        escaped(&report.instance.to_string()),
    );
    for note in &report.notes {
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escaped(note));
    }
    let _ = writeln!(text, "<p><strong>{}.</strong></p>\n</header>\n<main>", escaped(&report.summary()));
    let rows: Vec<&Row> = report.rows(all).collect();
    for group in rows.chunk_by(|a, b| a.category == b.category) {
        section(&mut text, group);
    }
    text.push_str("</main>\n</body>\n</html>\n");
    text
}

fn section(text: &mut String, rows: &[&Row]) {
    let category = rows.first().map_or("", |row| row.category.as_str());
    let _ = writeln!(
        text,
        "<section>\n<h2>{}</h2>\n<table>\n<thead><tr><th scope=\"col\">Setting</th><th scope=\"col\">Now</th>\
         <th scope=\"col\">Recommended</th><th scope=\"col\">Effect</th><th scope=\"col\">Risk</th>\
         <th scope=\"col\">Why</th></tr></thead>\n<tbody>",
        escaped(category)
    );
    for row in rows {
        table_row(text, row);
    }
    text.push_str("</tbody>\n</table>\n</section>\n");
}

fn table_row(text: &mut String, row: &Row) {
    let name = match &row.source {
        Some(source) => format!("<a href=\"{}\"><code>{}</code></a>", escaped(source), escaped(&row.name)),
        None => format!("<code>{}</code>", escaped(&row.name)),
    };
    let mut why = format!("<p>{}</p>", escaped(&row.reason));
    if row.status.asks() && !row.risk.note.is_empty() {
        let _ = write!(why, "<p class=\"detail\">Risk: {}.</p>", escaped(&row.risk.note));
    }
    if !row.evidence.is_empty() {
        let _ = write!(why, "<p class=\"detail\">Seen: {}.</p>", escaped(&row.evidence.join("; ")));
    }
    if let Some(remark) = &row.remark {
        let _ = write!(why, "<p class=\"remark\">{}</p>", escaped(&remark_words(remark)));
    }
    let _ = writeln!(
        text,
        "<tr class=\"{}\"><th scope=\"row\">{name}</th><td data-label=\"Now\"><code>{}</code></td>\
         <td data-label=\"Recommended\">{}{}</td><td data-label=\"Effect\">{}</td>\
         <td data-label=\"Risk\"><span class=\"risk {}\">{}</span></td><td class=\"why\">{why}</td></tr>",
        class(row.status),
        escaped(shown(&row.value)),
        escaped(shown(&row.recommended)),
        if row.status == Status::ByHand { " <small>by hand</small>" } else { "" },
        row.effect,
        row.risk.level,
        row.risk.level,
    );
}

fn class(status: Status) -> &'static str {
    match status {
        Status::Change => "change",
        Status::ByHand => "by-hand",
        Status::Needs => "needs",
        Status::Fine | Status::Leave => "fine",
        Status::Foreign | Status::Removed | Status::Unknown => "other",
    }
}
