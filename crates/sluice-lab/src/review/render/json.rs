//! JSON: the whole report, for programs.

use crate::review::report::Report;

/// The report as JSON, indented.
pub(super) fn render(report: &Report) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}
