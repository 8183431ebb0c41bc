//! The summary for the terminal: Markdown that reads as it is.

use std::fmt::Write as _;

use super::{
    number,
    outline::{Outline, label},
    reference::{self, Comparison},
    stalls::{causes, span},
    tables,
    verdict::{self, verdict},
};
use crate::result::RunResult;

/// A run's findings as text: the verdict, the tables, stalls, and the reference.
pub fn summary(result: &RunResult) -> String {
    let outline = Outline::of(result);
    let scenario = &result.scenario;
    let mut text = format!("# {}\n\n", scenario.title);
    let verdict = verdict(result);
    for warning in &verdict.warnings {
        let _ = writeln!(text, "**{warning}**\n");
    }
    for finding in &verdict.findings {
        let _ = writeln!(text, "{finding}\n");
    }
    for group in outline.groups() {
        let heading = match group[..] {
            [variant] if !variant.is_empty() => variant,
            _ => "Figures",
        };
        let _ = writeln!(text, "## {heading}\n\n{}", tables::cases(&outline, &group).text());
    }
    if let Some(commits) = tables::commits(&outline) {
        let _ = writeln!(text, "## What a commit waits for\n\n{}\n\n{}", tables::COMMITS, commits.text());
    }
    text += &stalls(result);
    if let Some(comparison) = Comparison::of(&outline) {
        let _ = writeln!(text, "## {}\n\n{}\n\n{}", comparison.title, comparison.remark, comparison.table.text());
        if let Some(losses) = &comparison.losses {
            let _ = writeln!(text, "{}\n\n{}", reference::LOSSES, losses.text());
        }
    }
    let remarks = verdict::remarks(result);
    if !remarks.is_empty() {
        let _ = writeln!(text, "## Remarks\n");
    }
    for remark in remarks {
        let _ = writeln!(text, "- {remark}");
    }
    text.trim_end().to_owned() + "\n"
}

fn stalls(result: &RunResult) -> String {
    let mut text = String::new();
    for (turn, measured) in result.measured() {
        for stall in &measured.stalls {
            let rate = number::figure(Some(stall.tps));
            let ordinary = number::figure(Some(stall.ordinary_tps));
            let _ = writeln!(
                text,
                "- {}, turn {}, {}: {rate} instead of {ordinary} tps; {}",
                label(&turn.case),
                turn.round,
                span(stall),
                causes(stall),
            );
        }
    }
    if text.is_empty() { text } else { format!("## Stalls\n\n{text}\n") }
}
