//! The page of a run: what stands on it, in which order. Each part has a file of its own.

mod charts;
mod reference;
mod repeat;
mod servers;
mod shell;
mod stalls;
mod statements;
mod strip;
mod turns;

pub(crate) use self::shell::{document, section};
use super::{html::Html, json, number::moment, outline::Outline, tables, verdict::verdict};
use crate::result::RunResult;

/// The page of a run, complete in itself.
pub fn html(result: &RunResult) -> String {
    // What can't be written as JSON has been refused before; the page is right without it.
    html_with(result, &json::text(result).unwrap_or_else(|_| "null".to_owned()))
}

/// The same, with the result's JSON at hand.
pub(super) fn html_with(result: &RunResult, json: &str) -> String {
    let outline = Outline::of(result);
    let mut main = Html::default();
    head(&mut main, result);
    strip::strip(&mut main, &outline);
    let sections: [(&str, &str, Html); 8] = [
        ("figures", "Figures", figures(&outline)),
        ("series", "Over time", turns::turns(&outline)),
        ("stalls", "Stalls", stalls::stalls(&outline)),
        ("statements", "Statements", statements::statements(&outline)),
        ("reference", "Beside what others reported", reference::reference(&outline)),
        ("where", "Machine and servers", servers::surroundings(&outline)),
        ("repeat", "Repeat it", repeat::repeat(result)),
        ("remarks", "Remarks", repeat::remarks(result)),
    ];
    main.element("nav", &[("aria-label", &"parts of the page")], |html| {
        for (id, title, _) in sections.iter().filter(|(_, _, body)| !body.is_empty()) {
            html.leaf("a", &[("href", &format_args!("#{id}"))], title);
            html.text(" ");
        }
    });
    for (id, title, body) in &sections {
        section(&mut main, id, title, body);
    }
    document(&result.scenario.title, &main, Some((json::ELEMENT, json)))
}

/// The title, the verdict, and what it is about.
fn head(html: &mut Html, result: &RunResult) {
    let scenario = &result.scenario;
    html.element("header", &[], |html| {
        let when = moment(result.started_unix_s);
        let kicker = format!("{} · {when} · Sluice {}", scenario.name, result.version);
        html.leaf("p", &[("class", &"kicker")], kicker);
        html.leaf("h1", &[], &scenario.title);
        let verdict = verdict(result);
        if !verdict.warnings.is_empty() {
            html.element("div", &[("class", &"warning"), ("role", &"note")], |html| {
                verdict.warnings.iter().for_each(|warning| html.leaf("p", &[], warning));
            });
        }
        html.element("div", &[("class", &"verdict")], |html| {
            verdict.findings.iter().for_each(|finding| html.leaf("p", &[], finding));
        });
        html.leaf("p", &[("class", &"about")], &scenario.description);
        if !scenario.data.is_empty() {
            html.leaf("p", &[("class", &"about")], format_args!("Data: {}", scenario.data));
        }
    });
}

/// The table of each group of variants, then its charts.
fn figures(outline: &Outline<'_>) -> Html {
    let mut html = Html::default();
    let groups = outline.groups();
    for group in &groups {
        if groups.len() > 1 {
            html.leaf("h3", &[], group.join(", "));
        }
        html.push(&tables::cases(outline, group).html());
        html.push(&charts::of_group(outline, group));
    }
    if !outline.variants.is_empty() {
        let over = match outline.has_single_turns() {
            true => "One turn each, so nothing here says how far the figures wander.",
            false => {
                "Medians over the turns; ratios are medians of the ratios within each round, so that what changes \
                 slowly on the machine cancels out."
            }
        };
        html.leaf(
            "p",
            &[("class", &"note")],
            format_args!(
                "{over} \"Trimmed\" leaves out the first and the last tenth of the time. \"SQL inside\" is a \
                 transaction without its BEGIN and END."
            ),
        );
    }
    html
}
