//! The stalls of all turns, each with its causes, what speaks for them, and what can be done.

use super::super::{
    html::Html,
    number::{figure, milliseconds, trimmed},
    outline::{Outline, label},
    stalls::{Certainty, Stalled, span},
    tables::{Cell, Heading, Table},
};
use crate::{
    result::{CaseKey, Turn},
    stall::{Cause, Confirmation, Evidence, Finding, Stall},
};

/// Stalls of one case that are told in full; of more, the longest.
const TOLD_MAX: usize = 8;
/// Cases whose stalls are shown at once.
const OPEN_MAX: usize = 2;

/// Case by case.
pub(super) fn stalls(outline: &Outline<'_>) -> Html {
    let mut html = Html::default();
    if outline.headline().is_none() {
        return html;
    }
    let cases = outline.result.cases();
    let stalled: Vec<&CaseKey> = cases.into_iter().filter(|case| Stalled::of(outline, case).count > 0).collect();
    if stalled.is_empty() {
        html.leaf("p", &[], "No turn stalled: in none did the throughput fall far below its ordinary rate.");
        return html;
    }
    for (nth, case) in stalled.into_iter().enumerate() {
        let of_case = Stalled::of(outline, case);
        html.open("details", if nth < OPEN_MAX { &[("open", &""), ("class", &"load")] } else { &[("class", &"load")] });
        html.leaf("summary", &[], format_args!("{}: {}", label(case), of_case.time()));
        told(&mut html, outline, case);
        html.close("details");
    }
    html
}

/// The longest stalls of a case, in the order of time.
fn told(html: &mut Html, outline: &Outline<'_>, case: &CaseKey) {
    let mut stalls: Vec<(&Turn, usize, &Stall)> = Vec::new();
    for (turn, measured) in outline.result.measured().filter(|(turn, _)| turn.case == *case) {
        stalls.extend(measured.stalls.iter().enumerate().map(|(nth, stall)| (turn, nth + 1, stall)));
    }
    let mut lengths: Vec<f64> = stalls.iter().map(|(_, _, stall)| stall.seconds()).collect();
    lengths.sort_by(|a, b| b.total_cmp(a));
    let mut explained = Vec::new();
    let shortest = lengths.get(TOLD_MAX - 1).copied().unwrap_or(0.0);
    for (turn, nth, stall) in stalls.iter().filter(|(_, _, stall)| stall.seconds() >= shortest).take(TOLD_MAX) {
        html.element("article", &[("class", &"stall")], |html| {
            html.element("h3", &[], |html| {
                html.leaf("span", &[("class", &"badge")], nth);
                html.text(format_args!(" {}", span(stall)));
                html.text(" ");
                html.leaf("span", &[("class", &"unit")], format_args!("turn {}", turn.round));
            });
            html.leaf("p", &[], rates(stall));
            for finding in &stall.findings {
                explain(html, finding);
                // What can be done is said once.
                if !explained.contains(&finding.cause) {
                    remedy(html, finding.cause);
                    explained.push(finding.cause);
                }
            }
        });
    }
    if stalls.len() > TOLD_MAX {
        let more = stalls.len() - TOLD_MAX;
        html.leaf("p", &[("class", &"note")], format_args!("{more} shorter ones stand in the JSON."));
    }
}

fn rates(stall: &Stall) -> String {
    let longest = stall.max_ms.map(|max_ms| format!(" The longest transaction took {}.", milliseconds(max_ms)));
    format!(
        "{} tps instead of the ordinary {}.{}",
        figure(Some(stall.tps)),
        figure(Some(stall.ordinary_tps)),
        longest.unwrap_or_default(),
    )
}

fn explain(html: &mut Html, finding: &Finding) {
    html.element("h4", &[], |html| {
        html.text(finding.cause.title());
        html.text(" ");
        html.leaf("span", &[("class", &"unit")], certainty(finding));
    });
    let rows: Vec<Vec<Cell>> = finding.evidence.iter().map(row).collect();
    if !rows.is_empty() {
        let head = ["evidence", "unit", "inside", "outside"].map(|title| Heading::new(title, "")).into();
        html.push(&Table { head, rows }.html());
    }
}

fn remedy(html: &mut Html, cause: Cause) {
    html.element("p", &[("class", &"remedy")], |html| {
        html.leaf("b", &[], "What can be done: ");
        html.text(cause.remedy());
    });
}

fn certainty(finding: &Finding) -> String {
    if finding.cause == Cause::Unknown {
        return String::new();
    }
    let explains = match finding.strength {
        strength if strength > 0.0 => format!("explains about {} %; ", trimmed(100.0 * strength, 0)),
        _ => String::new(),
    };
    let words = Certainty::of(finding.confirmation.as_ref()).words();
    let Some(confirmation) = &finding.confirmation else { return format!("{explains}{words}") };
    let percent = |share: f64| trimmed(100.0 * share, 1);
    format!(
        "{explains}{words}: with {} it stalled for {} % of the time instead of {} %{}",
        confirmation.without,
        percent(confirmation.stalled_after),
        percent(confirmation.stalled_before),
        what_remains(confirmation),
    )
}

/// The causes that still stalled the turn without the suspected one.
fn what_remains(confirmation: &Confirmation) -> String {
    let names: Vec<&str> = confirmation.causes_after.iter().map(|cause| cause.title()).collect();
    if names.is_empty() { String::new() } else { format!(" (then: {})", names.join(", ")) }
}

fn row(evidence: &Evidence) -> Vec<Cell> {
    // A plain number's unit is 1, which says nothing to a reader.
    let unit = if evidence.unit == "1" { "" } else { &evidence.unit };
    vec![
        Cell::Text(evidence.what.clone()),
        Cell::Text(unit.to_owned()),
        Cell::figure(Some(evidence.inside)),
        Cell::figure(evidence.outside),
    ]
}
