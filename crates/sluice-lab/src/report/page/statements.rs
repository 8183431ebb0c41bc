//! The mean time of each statement, load by load.

use super::super::{
    chart::{Bar, Caption, Item, bars},
    html::Html,
    outline::{Load, Outline},
    tables,
};
use super::charts::keys;

/// All loads with statements, the page's first one open.
pub(super) fn statements(outline: &Outline<'_>) -> Html {
    let mut html = Html::default();
    let Some(headline) = outline.headline() else { return html };
    let mut loads = outline.all_loads();
    loads.sort_by_key(|load| *load != headline);
    for load in loads {
        let chart = chart(outline, load);
        if chart.is_empty() {
            continue;
        }
        let is_open = load == headline;
        html.open("details", if is_open { &[("open", &""), ("class", &"load")] } else { &[("class", &"load")] });
        html.leaf("summary", &[], load.label());
        html.push(&chart);
        html.close("details");
    }
    html
}

fn chart(outline: &Outline<'_>, load: Load<'_>) -> Html {
    let item = |(text, means): (String, Vec<Option<f64>>)| {
        let bar = |(target, mean_ms): (&&str, Option<f64>)| {
            Some(Bar { name: (*target).to_owned(), class: outline.colour(target), value: mean_ms? })
        };
        let bars = outline.targets.iter().zip(means).filter_map(bar).collect();
        Item { name: text, is_code: true, bars }
    };
    let items: Vec<Item> = tables::statements(outline, load).into_iter().map(item).collect();
    if items.is_empty() {
        return Html::default();
    }
    let caption = Caption {
        title: "Mean time of each statement".to_owned(),
        unit: "ms".to_owned(),
        description: String::new(),
        keys: keys(outline),
    };
    bars(&caption, &items)
}
