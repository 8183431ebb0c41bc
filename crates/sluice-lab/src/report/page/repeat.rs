//! Instructions for repeating the run, and caveats.

use super::super::{
    html::Html,
    outline::{Outline, label},
    verdict,
};
use crate::result::RunResult;

/// The command of the run, and pgbench's of each case.
pub(super) fn repeat(result: &RunResult) -> Html {
    let mut html = Html::default();
    html.leaf("p", &[], "The whole run:");
    command(&mut html, &result.command);
    let outline = Outline::of(result);
    let turns: Vec<_> = result.cases().into_iter().filter_map(|case| outline.middle_turn(case)).collect();
    if turns.iter().all(|(_, measured)| measured.commands.is_empty()) {
        return html;
    }
    html.element("details", &[("class", &"load commands")], |html| {
        html.leaf("summary", &[], "The load of each case, by pgbench alone");
        for (turn, measured) in turns.into_iter().filter(|(_, measured)| !measured.commands.is_empty()) {
            html.leaf("h4", &[], label(&turn.case));
            measured.commands.iter().for_each(|line| command(html, line));
        }
    });
    html
}

fn command(html: &mut Html, line: &str) {
    html.element("pre", &[("class", &"scroll"), ("tabindex", &0)], |html| html.leaf("code", &[], line));
}

/// The run's remarks, what the sampler took, which latencies can't be right, and what could not be sampled.
pub(super) fn remarks(result: &RunResult) -> Html {
    let mut remarks = verdict::remarks(result);
    for missing in result.measured().flat_map(|(_, measured)| &measured.samples.missing) {
        if !remarks.contains(missing) {
            remarks.push(missing.clone());
        }
    }
    let mut html = Html::default();
    if !remarks.is_empty() {
        html.element("ul", &[], |html| remarks.into_iter().for_each(|remark| html.leaf("li", &[], remark)));
    }
    html
}
