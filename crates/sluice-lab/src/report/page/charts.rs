//! Charts of variants as a whole: a ladder or bars, and latencies.

use super::super::{
    chart::{Bar, Caption, Item, Key, Kind, Ladder, Latency, Point, Row, Rung, Spread, bars, dots, ladder},
    columns::{self, Column},
    html::Html,
    number::clients,
    outline::{Load, Outline},
};
use crate::result::CaseKey;

const PERCENTILES: [Column; 5] = [columns::P50, columns::P90, columns::P99, columns::P99_9, columns::MAX];

/// All of them.
pub(super) fn of_group<'a>(outline: &Outline<'a>, group: &[&'a str]) -> Html {
    let mut html = Html::default();
    let loads: Vec<Load<'a>> = group.iter().flat_map(|variant| outline.loads(variant)).collect();
    let name = |load: &Load<'a>| if group.len() > 1 { load.label() } else { clients(load.clients) };
    let named: Vec<(String, Load<'a>)> = loads.iter().map(|load| (name(load), *load)).collect();
    html.element("div", &[("class", &"charts")], |html| {
        if let [variant] = group
            && outline.is_ladder(variant)
        {
            for (column, title, unit, is_log) in [
                (columns::TPS, "Throughput by clients", "transactions a second", false),
                (columns::MEAN, "Latency by clients", "mean, ms", true),
                (columns::SQL, "SQL inside a transaction by clients", "mean, ms", true),
            ] {
                html.push(&step_chart(outline, variant, column, (title, unit), is_log));
            }
        } else {
            html.push(&throughput(outline, &named));
        }
        html.push(&latencies(outline, &named));
    });
    html
}

fn step_chart<'a>(
    outline: &Outline<'a>,
    variant: &'a str,
    column: Column,
    (title, unit): (&str, &str),
    is_log: bool,
) -> Html {
    let rungs: Vec<Rung> = outline.targets.iter().map(|target| rung(outline, variant, target, column)).collect();
    if rungs.iter().all(|rung| rung.points.is_empty()) {
        return Html::default();
    }
    let description = format!("{title}, {unit}, for {}; the table above has the figures.", outline.targets.join(", "));
    let axes = if is_log { "both axes logarithmic" } else { "clients on a logarithmic axis" };
    let caption =
        Caption { title: title.to_owned(), unit: format!("{unit}; {axes}"), description, keys: keys(outline) };
    ladder(&Ladder { caption, is_log, rungs })
}

fn rung<'a>(outline: &Outline<'a>, variant: &'a str, target: &str, column: Column) -> Rung {
    let point = |load| {
        let case = outline.case(load, target)?;
        let value = outline.median(case, column)?;
        Some(Point { clients: case.clients, value, range: outline.range(case, column) })
    };
    let points = outline.loads(variant).into_iter().filter_map(point).collect();
    Rung { name: target.to_owned(), class: outline.colour(target), is_dashed: false, points }
}

fn throughput(outline: &Outline<'_>, named: &[(String, Load<'_>)]) -> Html {
    let bar = |case: &CaseKey| {
        let value = outline.median(case, columns::TPS)?;
        Some(Bar { name: case.target.clone(), class: outline.colour(&case.target), value })
    };
    let items = named.iter().map(|(name, load)| Item {
        name: name.clone(),
        is_code: false,
        bars: outline.cases_of(*load).into_iter().filter_map(bar).collect(),
    });
    let items: Vec<Item> = items.filter(|item| !item.bars.is_empty()).collect();
    if items.is_empty() {
        return Html::default();
    }
    let caption = Caption {
        title: "Throughput".to_owned(),
        unit: "transactions a second".to_owned(),
        description: String::new(),
        keys: keys(outline),
    };
    bars(&caption, &items)
}

fn latencies(outline: &Outline<'_>, named: &[(String, Load<'_>)]) -> Html {
    let mut rows = Vec::new();
    for (name, load) in named {
        let spreads: Vec<Row> = outline.cases_of(*load).into_iter().filter_map(|case| spread(outline, case)).collect();
        if !spreads.is_empty() {
            rows.push(Row::Heading(name.clone()));
            rows.extend(spreads);
        }
    }
    if rows.is_empty() {
        return Html::default();
    }
    let caption = Caption {
        title: "Latency".to_owned(),
        unit: "ms on a logarithmic axis; from left to right p50 (filled), p90, p99, p99.9 and the longest".to_owned(),
        description: "The percentiles of each case; the table above has the figures.".to_owned(),
        keys: Vec::new(),
    };
    dots(&caption, &rows)
}

fn spread(outline: &Outline<'_>, case: &CaseKey) -> Option<Row> {
    let latency = |column: &Column| {
        let value_ms = outline.median(case, *column)?;
        let kind = match column.name {
            name if name == columns::P50.name => Kind::Median,
            name if name == columns::MAX.name => Kind::Longest,
            _ => Kind::Between,
        };
        Some(Latency {
            what: column.title,
            kind,
            value_ms: Some(value_ms).filter(|_| !column.is_below_resolution(value_ms)),
        })
    };
    let latencies: Vec<Latency> = PERCENTILES.iter().filter_map(latency).collect();
    let is_known = latencies.iter().any(|latency| latency.value_ms.is_some());
    let spread = Spread { name: case.target.clone(), class: outline.colour(&case.target), latencies };
    is_known.then_some(Row::Spread(spread))
}

/// The targets, if there are several.
pub(super) fn keys(outline: &Outline<'_>) -> Vec<Key> {
    let key = |target: &&str| Key { name: (*target).to_owned(), class: format!("dot {}", outline.colour(target)) };
    if outline.targets.len() > 1 { outline.targets.iter().map(key).collect() } else { Vec::new() }
}
