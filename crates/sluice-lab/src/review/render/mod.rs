//! A report as text: for a terminal, Markdown, HTML, JSON, and a script of `ALTER SYSTEM`.
//!
//! Each format is a function from a [`Report`] to a string; none decides what is recommended.

mod html;
mod json;
mod markdown;
mod sql;
mod table;

use textwrap::{Options, WordSplitter, fill};

use super::{
    remarks::Agreement,
    report::{Remark, Report},
    words::words,
};

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For a terminal of 100 columns.
    #[default]
    Table,
    /// Markdown.
    Markdown,
    /// One file, without outside references.
    Html,
    /// Everything, for programs.
    Json,
    /// A script that puts the recommendations in place.
    Sql,
}

words!(Format: "table" => Table, "markdown" => Markdown, "html" => Html, "json" => Json, "sql" => Sql);

/// Writes a report; `all` takes the rows that ask for nothing as well. JSON always has all, a script what it sets.
///
/// # Errors
///
/// Only JSON's, which a report can't cause.
pub fn render(report: &Report, format: Format, all: bool) -> Result<String, serde_json::Error> {
    Ok(match format {
        Format::Table => table::render(report, all),
        Format::Markdown => markdown::render(report, all),
        Format::Html => html::render(report, all),
        Format::Json => json::render(report)?,
        Format::Sql => sql::render(report),
    })
}

/// Wraps a text into lines of at most `width`: between words, never at a hyphen, since names and options have some.
/// Control characters, line breaks among them, become spaces.
fn wrapped(words: &str, width: usize, first: &str, others: &str) -> String {
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let options = Options::new(width).initial_indent(first).subsequent_indent(others);
    fill(&words, options.word_splitter(WordSplitter::NoHyphenation))
}

/// The text that a reader sees for a value; an empty one must not look like a missing one.
fn shown(value: &str) -> &str {
    if value.is_empty() { "(empty)" } else { value }
}

/// A remark of 2015 and today's answer, in a sentence.
fn remark_words(remark: &Remark) -> String {
    match &remark.today {
        Some(answer) => {
            let verdict = match answer.verdict {
                Agreement::Agrees => "agrees",
                Agreement::Differs => "differs",
            };
            format!("2015: “{}” Today {verdict}: {}", remark.said, answer.why)
        }
        None => format!("Remark: “{}”", remark.said),
    }
}
