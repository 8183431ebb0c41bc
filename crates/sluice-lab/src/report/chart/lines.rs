//! Series over time, with the stretches in which something was wrong.

use std::fmt::Display;

use super::super::html::Html;
use super::frame::{Caption, Path, Percent, figure, stretched, x_axis, y_axis};
use super::scale::{Axis, Scale};
use super::thin::thin;

/// The contents of the chart.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) caption: Caption,
    /// The length of the time axis.
    pub(crate) end_s: f64,
    /// Whether values span orders of magnitude.
    pub(crate) is_log: bool,
    pub(crate) lines: Vec<Line>,
    pub(crate) bands: Vec<Band>,
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// A colour, and "dashed" or "dotted".
    pub(crate) class: String,
    /// Moments in seconds, with values.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A stretch of time that is marked.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// Written into it: short.
    pub(crate) mark: String,
    /// Its name, shown where there is room.
    pub(crate) name: String,
    /// All about it.
    pub(crate) title: String,
}

const HEIGHT_PX: u32 = 190;
/// A line is broken where points are missing for so many times their ordinary distance.
const GAP_TIMES: f64 = 3.0;
/// The share of the width that a name in a band needs.
const NAME_SHARE: f64 = 0.16;

/// Draws it.
pub(crate) fn lines(chart: &Lines) -> Html {
    let values = || chart.lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let highest = values().fold(0.0, f64::max);
    let y = match chart.is_log {
        true => Axis::log(values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min), highest),
        false => Axis::from_zero(highest),
    };
    let x = Axis::time(chart.end_s);
    figure(&chart.caption, "", HEIGHT_PX, |html| {
        y_axis(html, &y);
        x_axis(html, &x, false);
        bands(html, &chart.bands, x.scale);
        stretched(html, |html| {
            for line in &chart.lines {
                let path = path(&line.points, x.scale, y.scale);
                html.void("path", &[("class", &format_args!("line {}", line.class)), ("d", &path)]);
            }
        });
    })
}

/// Marks stretches of time.
pub(super) fn bands(html: &mut Html, bands: &[Band], x: Scale) {
    for band in bands {
        let (from, to) = (x.share(band.from_s), x.share(band.to_s));
        html.element(
            "rect",
            &[
                ("class", &"band"),
                ("x", &Percent(from)),
                ("width", &Percent((to - from).max(0.002))),
                ("y", &0),
                ("height", &"100%"),
            ],
            |html| html.leaf("title", &[], &band.title),
        );
        // Above the plot, where no area covers it.
        let width = Percent((to - from).max(0.002));
        let edge: [(&str, &dyn Display); 5] =
            [("class", &"edge"), ("x", &Percent(from)), ("width", &width), ("y", &-3), ("height", &3)];
        html.void("rect", &edge);
        html.element("text", &[("class", &"band"), ("x", &Percent(from)), ("y", &-7)], |html| {
            html.text(&band.mark);
            if to - from >= NAME_SHARE {
                html.leaf("tspan", &[("class", &"wide")], format_args!(" {}", band.name));
            }
        });
    }
}

fn path(points: &[(f64, f64)], x: Scale, y: Scale) -> Path {
    let gap_s = GAP_TIMES * ordinary_distance(points);
    let mut path = Path::default();
    for run in points.chunk_by(|(before_s, _), (after_s, _)| after_s - before_s <= gap_s) {
        let values: Vec<f64> = run.iter().map(|(_, value)| *value).collect();
        for (nth, index) in thin(&values).into_iter().enumerate() {
            let (t_s, value) = run[index];
            let place = (x.share(t_s), y.share(value));
            if nth == 0 { path.go(place) } else { path.draw(place) }
        }
    }
    path
}

fn ordinary_distance(points: &[(f64, f64)]) -> f64 {
    crate::stats::median(points.windows(2).map(|pair| pair[1].0 - pair[0].0)).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Scale = Scale::Linear { from: 0.0, to: 10.0 };

    #[test]
    fn a_line_is_broken_where_points_are_missing() {
        let points = [(0.0, 0.0), (1.0, 5.0), (2.0, 10.0), (8.0, 0.0), (9.0, 10.0)];
        assert_eq!(path(&points, UNIT, UNIT).to_string(), "M0 1000L100 500L200 0M800 1000L900 0");
        assert_eq!(path(&[], UNIT, UNIT).to_string(), "");
        assert_eq!(path(&[(5.0, 5.0)], UNIT, UNIT).to_string(), "M500 500");
    }

    #[test]
    fn bands_stand_at_their_time_and_are_escaped() {
        let mut html = Html::default();
        let band = Band { from_s: 2.0, to_s: 4.5, mark: "1".to_owned(), name: "a".to_owned(), title: "<b>".to_owned() };
        bands(&mut html, &[band], UNIT);
        let svg = html.finish();
        assert!(svg.contains("x=\"20.00%\" width=\"25.00%\""), "{svg}");
        assert!(svg.contains("<title>&lt;b&gt;</title>") && svg.contains("1<tspan class=\"wide\"> a</tspan>"), "{svg}");
    }
}
