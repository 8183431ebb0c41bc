//! Latency percentiles, a row a case: from the median to the longest, on a logarithmic axis.

use std::fmt::Display;

use super::super::{columns, html::Html, number};
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
    /// Ascending.
    pub(crate) latencies: Vec<Latency>,
}

/// One of a case's latencies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Its name.
    pub(crate) what: &'static str,
    pub(crate) kind: Kind,
    /// In milliseconds; none where it is shorter than could be measured.
    pub(crate) value_ms: Option<f64>,
}

/// The mark of a latency: by what it is, whichever others there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Median,
    Between,
    Longest,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Median => "dot",
            Self::Between => "ring",
            Self::Longest => "end",
        }
    }
}

const ROW_PX: u32 = 22;

/// Draws it.
pub(crate) fn dots(caption: &Caption, rows: &[Row]) -> Html {
    let values = || {
        let spreads = rows.iter().filter_map(|row| if let Row::Spread(spread) = row { Some(spread) } else { None });
        spreads.flat_map(|spread| spread.latencies.iter().filter_map(|latency| latency.value_ms))
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
    // What was too short to be measured stands on the axis's edge.
    let share = |latency: &Latency| latency.value_ms.map_or(0.0, |value_ms| x.scale.share(value_ms));
    if let (Some(first), Some(last)) = (spread.latencies.first(), spread.latencies.last()) {
        let (from, to) = (Percent(share(first)), Percent(share(last)));
        let class = format!("range {}", spread.class);
        html.void("line", &[("class", &class), ("x1", &from), ("x2", &to), ("y1", &y_px), ("y2", &y_px)]);
    }
    for latency in &spread.latencies {
        let radius = if latency.kind == Kind::Median { 5.0 } else { 3.5 };
        let below = if latency.value_ms.is_none() { " below" } else { "" };
        let attributes: [(&str, &dyn Display); 4] = [
            ("class", &format_args!("{}{below} {}", latency.kind.class(), spread.class)),
            ("cx", &Percent(share(latency))),
            ("cy", &y_px),
            ("r", &radius),
        ];
        html.element("circle", &attributes, |html| {
            let below = || format!("{} ms, shorter than could be measured", columns::below_resolution());
            let shown = latency.value_ms.map_or_else(below, |value_ms| number::with_unit(value_ms, "ms"));
            html.leaf("title", &[], format_args!("{}, {}: {shown}", spread.name, latency.what));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(name: &str, p50_ms: Option<f64>) -> Row {
        let latency = |(what, kind, value_ms)| Latency { what, kind, value_ms };
        let latencies =
            [("p50", Kind::Median, p50_ms), ("p90", Kind::Between, Some(10.0)), ("max", Kind::Longest, Some(100.0))];
        Row::Spread(Spread { name: name.to_owned(), class: "c0", latencies: latencies.map(latency).into() })
    }

    #[test]
    fn a_row_a_case_and_a_mark_a_percentile() {
        let spread = |name: &str| spread(name, Some(1.0));
        let rows = [Row::Heading("64 clients".to_owned()), spread("gate"), spread("straight")];
        let svg = dots(&Caption::default(), &rows).finish();
        assert!(svg.contains("height=\"66\""), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("cx=\"100.00%\"") && svg.contains("gate, max: 100 ms"), "{svg}");
    }

    #[test]
    fn a_latency_too_short_to_be_measured_stands_on_the_edge() {
        let svg = dots(&Caption::default(), &[spread("gate", None)]).finish();
        assert!(svg.contains("class=\"dot below c0\" cx=\"0.00%\""), "{svg}");
        assert!(svg.contains("gate, p50: &lt;0.001 ms, shorter than could be measured"), "{svg}");
        // The filled dot is no other percentile's.
        assert!(svg.contains("class=\"ring c0\"") && !svg.contains("class=\"dot c0\""), "{svg}");
    }
}
