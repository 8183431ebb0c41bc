//! A script of `ALTER SYSTEM`: what takes a reload, what takes a restart, and how to undo each.
//!
//! Only rows that any operator would want are set; what depends on an intention stands in comments. Every word from
//! outside is quoted, and a comment never ends before its line does.

use std::fmt::Write;

use super::wrapped;
use crate::review::{
    report::{Report, Row, Status},
    snapshot::SetBy,
};

const WIDTH: usize = 100;

/// The report as a script for `psql -f`.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    comment(&mut text, &format!("Settings for {}, PostgreSQL {}.", report.origin, report.version));
    comment(&mut text, &format!("For {}.", report.instance));
    comment(&mut text, "Run it as a superuser: psql -f FILE. Each statement is one transaction of its own.");
    for note in &report.notes {
        comment(&mut text, note);
    }
    let (fixed, free): (Vec<&Row>, Vec<&Row>) = report.changes().partition(|row| row.set_by == SetBy::CommandLine);
    let (restart, reload): (Vec<&Row>, Vec<&Row>) = free.into_iter().partition(|row| row.needs_restart());
    section(&mut text, "In force after the reload at the end:", &reload);
    section(&mut text, "In force after a restart of PostgreSQL:", &restart);
    if !(reload.is_empty() && restart.is_empty()) {
        text.push_str("\nSELECT pg_catalog.pg_reload_conf();\n");
    }
    undo(&mut text, reload.iter().chain(&restart).copied());
    aside(&mut text, "Not set, since the server's command line or environment gives them and wins:", &fixed);
    let by_hand: Vec<&Row> = report.rows.iter().filter(|row| row.status == Status::ByHand).collect();
    aside(&mut text, "Not set, since only you know whether they fit:", &by_hand);
    let needs: Vec<&Row> = report.rows.iter().filter(|row| row.status == Status::Needs).collect();
    aside(&mut text, "Not set, since something was not told:", &needs);
    text
}

fn section(text: &mut String, head: &str, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    text.push('\n');
    comment(text, head);
    for row in rows {
        text.push('\n');
        comment(text, &format!("{}: {}", row.name, row.reason));
        comment(text, &format!("Now {}; risk {}.", quoted(&row.value), row.risk_words()));
        // Writing to a String can't fail, here and below.
        let _ = writeln!(text, "ALTER SYSTEM SET {} = {};", identifier(&row.name), quoted(&row.recommended));
    }
}

/// Statements that undo the script: a setting that `ALTER SYSTEM` had set before gets its old value back; everything
/// else is reset to the file below.
fn undo<'a>(text: &mut String, rows: impl Iterator<Item = &'a Row>) {
    let lines: Vec<String> = rows
        .map(|row| match row.set_by {
            SetBy::AlterSystem => format!("ALTER SYSTEM SET {} = {};", identifier(&row.name), quoted(&row.value)),
            _ => format!("ALTER SYSTEM RESET {};", identifier(&row.name)),
        })
        .collect();
    if lines.is_empty() {
        return;
    }
    text.push('\n');
    comment(text, "To undo it, run these lines without their dashes, and reload or restart:");
    for line in lines {
        let _ = writeln!(text, "--   {}", one_line(&line));
    }
}

fn aside(text: &mut String, head: &str, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    text.push('\n');
    comment(text, head);
    for row in rows {
        comment(text, &format!("  {} = {}: {}", row.name, quoted(&row.value), row.recommended));
    }
}

fn comment(text: &mut String, words: &str) {
    let _ = writeln!(text, "{}", wrapped(words, WIDTH, "-- ", "-- "));
}

/// Without line breaks, after which a comment would be over.
fn one_line(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A string constant (section 4.1.2.1): with a backslash in it, the form that reads the same whatever
/// `standard_conforming_strings` says.
fn quoted(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// A setting's name; each part of an extension's is quoted by itself.
fn identifier(name: &str) -> String {
    let part = |part: &str| {
        let plain = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if plain { part.to_owned() } else { format!("\"{}\"", part.replace('"', "\"\"")) }
    };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        for (value, expected) in [("1GB", "'1GB'"), ("it's", "'it''s'"), ("a\\b'", "E'a\\\\b'''"), ("", "''")] {
            assert_eq!(quoted(value), expected);
        }
        for (name, expected) in [("work_mem", "work_mem"), ("DateStyle", "\"DateStyle\""), ("a.b", "a.b")] {
            assert_eq!(identifier(name), expected);
        }
    }

    #[test]
    fn a_comment_stays_a_comment() {
        let mut text = String::new();
        comment(&mut text, "one\nDROP TABLE t;\r\nthree");
        assert!(text.lines().all(|line| line.starts_with("-- ")), "{text}");
    }
}
