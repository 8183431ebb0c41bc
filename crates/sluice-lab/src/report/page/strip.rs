//! The strip of key figures below the verdict: few, large, with what they are compared with.

use super::super::{
    colour::colour,
    columns::{self, Column},
    html::Html,
    number::{clients, figure, milliseconds, times, with_unit},
    outline::{Load, Outline},
    stalls::Stalled,
};
use crate::result::CaseKey;

/// A case of the strip, as it is called there.
struct Entry<'a> {
    name: &'a str,
    class: &'static str,
    case: &'a CaseKey,
}

const SHOWN: [Column; 4] = [columns::TPS, columns::P99, columns::SQL, columns::CPU];

/// Puts it down, if anything was measured.
pub(super) fn strip(html: &mut Html, outline: &Outline<'_>) {
    let Some(headline) = outline.headline() else { return };
    let entries = entries(outline, headline);
    html.element("dl", &[("class", &"strip")], |html| {
        for column in SHOWN {
            let values = entries.iter().map(|entry| outline.median(entry.case, column));
            tile(html, outline, &entries, &values.collect::<Vec<_>>(), column);
        }
        stalled(html, outline, &entries);
    });
    let load = if outline.targets.len() > 1 { headline.label() } else { clients(headline.clients) };
    let over = if outline.has_single_turns() { "one turn each" } else { "medians over the turns" };
    html.leaf("p", &[("class", &"note")], format_args!("At {load}, {over}."));
}

/// The targets of one load; of a single target, its variants.
fn entries<'a>(outline: &Outline<'a>, headline: Load<'a>) -> Vec<Entry<'a>> {
    if outline.targets.len() > 1 {
        let cases = outline.cases_of(headline).into_iter();
        return cases.map(|case| Entry { name: &case.target, class: outline.colour(&case.target), case }).collect();
    }
    let largest = outline.variants.iter().filter_map(|variant| outline.largest(variant));
    let cases = largest.flat_map(|load| outline.cases_of(load)).enumerate();
    cases.map(|(nth, case)| Entry { name: &case.variant, class: colour(nth), case }).collect()
}

fn tile(html: &mut Html, outline: &Outline<'_>, entries: &[Entry<'_>], values: &[Option<f64>], column: Column) {
    if values.iter().all(Option::is_none) {
        return;
    }
    html.element("div", &[("class", &"tile")], |html| {
        html.leaf("dt", &[], title(column));
        for (entry, value) in entries.iter().zip(values) {
            html.element("dd", &[], |html| {
                html.leaf("span", &[("class", &format_args!("name {}", entry.class))], entry.name);
                html.leaf("b", &[], shown(column, *value));
                // The first one's room stays empty, so that figures stand below each other.
                if outline.targets.len() > 1 {
                    let first = outline.first_of(entry.case).filter(|first| *first != entry.case);
                    let ratio = first.and_then(|first| outline.result.ratio(entry.case, first, column.of));
                    let shown = if ratio.is_some() { times(ratio) } else { String::new() };
                    html.leaf("span", &[("class", &"ratio")], shown);
                }
            });
        }
    });
}

fn title(column: Column) -> &'static str {
    match column.name {
        "tps" => "transactions a second",
        "p99_ms" => "99 % within",
        "sql_ms" => "SQL in a transaction",
        _ => "CPU a transaction",
    }
}

/// With its unit, where the title does not say it.
fn shown(column: Column, value: Option<f64>) -> String {
    match (column.unit, value) {
        ("ms", Some(ms)) => milliseconds(ms),
        ("µs/tx", Some(us)) => with_unit(us, "µs"),
        _ => figure(value),
    }
}

fn stalled(html: &mut Html, outline: &Outline<'_>, entries: &[Entry<'_>]) {
    let stalled: Vec<Stalled> = entries.iter().map(|entry| Stalled::of(outline, entry.case)).collect();
    if stalled.iter().all(|stalled| stalled.count == 0) {
        return;
    }
    html.element("div", &[("class", &"tile")], |html| {
        html.leaf("dt", &[], "of the time in stalls");
        for (entry, stalled) in entries.iter().zip(stalled) {
            html.element("dd", &[], |html| {
                html.leaf("span", &[("class", &format_args!("name {}", entry.class))], entry.name);
                html.leaf("b", &[], with_unit(100.0 * stalled.share(), "%"));
            });
        }
    });
}
