//! Horizontal bars below the names of what they measure.

use std::fmt::Display;

use super::super::html::Html;
use super::super::number;
use super::frame::{Caption, Percent, head, plot};

/// Something measured.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Its name.
    pub(crate) name: String,
    /// Whether the name is code.
    pub(crate) is_code: bool,
    /// One a target.
    pub(crate) bars: Vec<Bar>,
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Of the target.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) class: &'static str,
    pub(crate) value: f64,
}

const BAR_PX: u32 = 15;
/// The longest bar's share of the width: the rest is for its value.
const LONGEST_SHARE: f64 = 0.78;

/// Draws them; values are in the caption's unit.
pub(crate) fn bars(caption: &Caption, items: &[Item]) -> Html {
    let highest = items.iter().flat_map(|item| &item.bars).map(|bar| bar.value).fold(0.0, f64::max);
    let mut html = Html::default();
    html.element("figure", &[("class", &"chart bars")], |html| {
        head(html, caption);
        for item in items {
            let tag = if item.is_code { "code" } else { "span" };
            html.element("div", &[("class", &"item")], |html| html.leaf(tag, &[], &item.name));
            draw(html, item, highest, &caption.unit);
        }
    });
    html
}

fn draw(html: &mut Html, item: &Item, highest: f64, unit: &str) {
    let shown = |bar: &Bar| format!("{} {}", bar.name, number::figure(Some(bar.value)));
    let in_words = item.bars.iter().map(shown).collect::<Vec<_>>().join(", ");
    let caption = Caption { title: item.name.clone(), description: format!("{in_words} {unit}"), ..Caption::default() };
    let height_px = BAR_PX * u32::try_from(item.bars.len()).unwrap_or(u32::MAX / BAR_PX);
    plot(html, &caption, "bare", height_px, |html| {
        for (nth, bar) in (0_u32..).zip(&item.bars) {
            let share = if highest > 0.0 { LONGEST_SHARE * bar.value / highest } else { 0.0 };
            let (y_px, middle_px) = (BAR_PX * nth + 2, BAR_PX * nth + BAR_PX / 2);
            let attributes: [(&str, &dyn Display); 6] = [
                ("class", &format_args!("bar {}", bar.class)),
                ("x", &0),
                ("y", &y_px),
                ("width", &Percent(share.max(0.002))),
                ("height", &(BAR_PX - 4)),
                ("rx", &1.5),
            ];
            html.element("rect", &attributes, |html| html.leaf("title", &[], shown(bar)));
            let text: [(&str, &dyn Display); 5] =
                [("class", &"value"), ("x", &Percent(share)), ("y", &middle_px), ("dx", &6), ("dy", &"0.35em")];
            html.leaf("text", &text, number::figure(Some(bar.value)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_leaves_room_for_its_value() {
        let bar = |value| Bar { name: "gate".to_owned(), class: "c1", value };
        let item = Item { name: "UPDATE <t>".to_owned(), is_code: true, bars: vec![bar(0.0), bar(700.0), bar(350.0)] };
        let svg = bars(&Caption { unit: "ms".to_owned(), ..Caption::default() }, &[item]).finish();
        assert!(svg.contains("width=\"78.00%\"") && svg.contains("width=\"39.00%\""), "{svg}");
        assert!(svg.contains("<code>UPDATE &lt;t&gt;</code>"), "{svg}");
        assert!(svg.contains("gate 0, gate 700, gate 350 ms"), "{svg}");
    }
}
