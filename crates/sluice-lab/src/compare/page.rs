//! The page of a comparison.

use std::fmt::Display;

use super::Comparison;
use crate::{
    report::{
        Bar, Caption, Item, Key, Ladder, Point, Rung, bars,
        colour::colour,
        columns,
        html::Html,
        ladder,
        number::moment,
        outline::label,
        page::{document, section},
    },
    result::CaseKey,
};

/// A chart of steps needs so many.
const STEPS_MIN: usize = 3;

/// A whole document.
pub(super) fn html(comparison: &Comparison<'_>) -> String {
    let mut main = Html::default();
    main.element("header", &[], |html| {
        html.leaf("p", &[("class", &"kicker")], "Runs compared");
        let names: Vec<&str> = comparison.runs.iter().map(|run| run.name).collect();
        html.leaf("h1", &[], names.join(" against "));
        let sentences = comparison.sentences();
        let is_other = comparison.differences.iter().any(|difference| difference.is_of_machine);
        let (warnings, findings) = sentences.split_at(usize::from(is_other));
        for (class, sentences) in [("warning", warnings), ("verdict", findings)] {
            if !sentences.is_empty() {
                let of_class: [(&str, &dyn Display); 1] = [("class", &class)];
                html.element("div", &of_class, |html| {
                    sentences.iter().for_each(|sentence| html.leaf("p", &[], sentence));
                });
            }
        }
        html.element("ul", &[("class", &"about")], |html| {
            for run in &comparison.runs {
                let (result, when) = (run.result, moment(run.result.started_unix_s));
                let about = format!("{}: {}, {when}, by {}", run.name, result.scenario.title, result.command);
                html.leaf("li", &[], about);
            }
        });
    });
    section(&mut main, "figures", "Figures", &figures(comparison));
    let mut differences = Html::default();
    if !comparison.differences.is_empty() {
        differences.push(&comparison.differences_table().html());
    }
    section(&mut main, "differences", "What is not the same", &differences);
    section(&mut main, "alone", "Measured by one run only", &alone(comparison));
    document("Runs compared", &main, None)
}

fn figures(comparison: &Comparison<'_>) -> Html {
    let mut html = comparison.table().html();
    html.leaf("p", &[("class", &"note")], comparison.note());
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for case in &comparison.shared {
        if !groups.contains(&(&case.variant, &case.target)) {
            groups.push((&case.variant, &case.target));
        }
    }
    html.element("div", &[("class", &"charts")], |html| {
        let mut few: Vec<&CaseKey> = Vec::new();
        for (variant, target) in groups {
            let is_of = |case: &&CaseKey| case.variant == variant && case.target == target;
            let cases: Vec<&CaseKey> = comparison.shared.iter().filter(is_of).collect();
            match cases.len() >= STEPS_MIN {
                true => html.push(&steps(comparison, &cases, &[variant, target])),
                false => few.extend(cases),
            }
        }
        if !few.is_empty() {
            html.push(&single(comparison, &few));
        }
    });
    html
}

/// One line a run, by clients.
fn steps(comparison: &Comparison<'_>, cases: &[&CaseKey], of: &[&str]) -> Html {
    let mut cases = cases.to_vec();
    cases.sort_by_key(|case| case.clients);
    let rung = |(nth, run): (usize, &super::Named<'_>)| {
        let point = |case: &&CaseKey| {
            let value = run.result.median(case, columns::TPS.of)?;
            Some(Point { clients: case.clients, value, range: run.range(case, columns::TPS) })
        };
        let points = cases.iter().filter_map(point).collect();
        Rung { name: run.name.to_owned(), class: colour(nth), is_dashed: false, points }
    };
    let rungs = comparison.runs.iter().enumerate().map(rung).collect();
    let of = of.iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>().join(", ");
    let caption = caption(comparison, format!("Throughput by clients: {of}"));
    ladder(&Ladder { caption, is_log: false, rungs })
}

/// One bar a run.
fn single(comparison: &Comparison<'_>, cases: &[&CaseKey]) -> Html {
    let item = |case: &&CaseKey| {
        let bar = |(nth, run): (usize, &super::Named<'_>)| {
            let value = run.result.median(case, columns::TPS.of)?;
            Some(Bar { name: run.name.to_owned(), class: colour(nth), value })
        };
        let bars = comparison.runs.iter().enumerate().filter_map(bar).collect();
        Item { name: label(case), is_code: false, bars }
    };
    bars(&caption(comparison, "Throughput".to_owned()), &cases.iter().map(item).collect::<Vec<_>>())
}

fn caption(comparison: &Comparison<'_>, title: String) -> Caption {
    let key = |(nth, run): (usize, &super::Named<'_>)| Key {
        name: run.name.to_owned(),
        class: format!("dot {}", colour(nth)),
    };
    Caption {
        title,
        unit: "transactions a second".to_owned(),
        description: "The runs' medians; the table above has the figures.".to_owned(),
        keys: comparison.runs.iter().enumerate().map(key).collect(),
    }
}

fn alone(comparison: &Comparison<'_>) -> Html {
    let mut html = Html::default();
    if comparison.alone.is_empty() {
        return html;
    }
    html.element("ul", &[], |html| {
        for (nth, case) in &comparison.alone {
            html.leaf("li", &[], format_args!("{}: {}", comparison.runs[*nth].name, label(case)));
        }
    });
    html
}
