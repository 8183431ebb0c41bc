//! Latency percentiles, a row a case: from the median to the longest, on a logarithmic axis.

use std::fmt::Display;

use super::super::html::Html;
use super::super::number;
use super::frame::{Caption, Percent, figure, x_axis};
use super::scale::Axis;

/// A row.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// The conditions that the following rows share.
    Heading(String),
    /// A case.
    Spread(Spread),
}

/// A case's latencies, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Of the target.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) class: &'static str,
    /// Names of the latencies with their values, ascending.
    pub(crate) values: Vec<(&'static str, f64)>,
}

const ROW_PX: u32 = 22;

/// Draws it.
pub(crate) fn dots(caption: &Caption, rows: &[Row]) -> Html {
    let values = || {
        let spreads = rows.iter().filter_map(|row| if let Row::Spread(spread) = row { Some(spread) } else { None });
        spreads.flat_map(|spread| spread.values.iter().map(|(_, value)| *value)).filter(|value| *value > 0.0)
    };
    let x = Axis::log(values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let height_px = ROW_PX * u32::try_from(rows.len()).unwrap_or(u32::MAX / ROW_PX);
    figure(caption, "labelled", height_px, |html| {
        x_axis(html, &x, true);
        for (nth, row) in (0_u32..).zip(rows) {
            let y_px = ROW_PX * nth + ROW_PX / 2;
            match row {
                Row::Heading(text) => {
                    html.leaf("text", &[("class", &"heading"), ("x", &0), ("y", &y_px), ("dy", &"0.5em")], text);
                }
                Row::Spread(spread) => draw(html, spread, y_px, &x),
            }
        }
    })
}

fn draw(html: &mut Html, spread: &Spread, y_px: u32, x: &Axis) {
    html.leaf("text", &[("class", &"y"), ("x", &-9), ("y", &y_px), ("dy", &"0.32em")], &spread.name);
    if let (Some((_, first)), Some((_, last))) = (spread.values.first(), spread.values.last()) {
        let (from, to) = (Percent(x.scale.share(*first)), Percent(x.scale.share(*last)));
        let class = format!("range {}", spread.class);
        html.void("line", &[("class", &class), ("x1", &from), ("x2", &to), ("y1", &y_px), ("y2", &y_px)]);
    }
    for (nth, (what, value)) in spread.values.iter().enumerate() {
        let kind = match nth {
            0 => "dot",
            _ if nth + 1 == spread.values.len() => "end",
            _ => "ring",
        };
        let radius = if nth == 0 { 5.0 } else { 3.5 };
        let attributes: [(&str, &dyn Display); 4] = [
            ("class", &format_args!("{kind} {}", spread.class)),
            ("cx", &Percent(x.scale.share(*value))),
            ("cy", &y_px),
            ("r", &radius),
        ];
        html.element("circle", &attributes, |html| {
            let shown = number::with_unit(*value, "ms");
            html.leaf("title", &[], format_args!("{}, {what}: {shown}", spread.name));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_a_case_and_a_mark_a_percentile() {
        let spread = |name: &str| {
            Row::Spread(Spread { name: name.to_owned(), class: "c0", values: vec![("p50", 1.0), ("max", 100.0)] })
        };
        let rows = [Row::Heading("64 clients".to_owned()), spread("gate"), spread("straight")];
        let svg = dots(&Caption::default(), &rows).finish();
        assert!(svg.contains("height=\"66\""), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("cx=\"100.00%\"") && svg.contains("gate, max: 100 ms"), "{svg}");
    }
}
