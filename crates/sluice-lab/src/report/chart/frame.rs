//! The parts that all charts share: a caption with its legend, the drawing's bounds, grid and ticks.

use std::fmt::{self, Display};

use super::super::html::Html;
use super::scale::Axis;

/// The text above a chart, also read aloud in its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caption {
    /// The chart's title.
    pub(crate) title: String,
    /// Its unit, and what else must be known to read it.
    pub(crate) unit: String,
    /// The same in words, for who can't see it.
    pub(crate) description: String,
    /// The legend: each mark with its meaning; empty for a chart that needs none.
    pub(crate) keys: Vec<Key>,
}

/// One mark of the legend.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Its meaning.
    pub(crate) name: String,
    /// Its classes: a colour, and the kind of mark ("line", "line dashed", "area", "dot").
    pub(crate) class: String,
}

/// Units of the drawing in which lines and areas are given; it is stretched to the plot.
pub(super) const UNITS: f64 = 1000.0;

/// A share of the plot, as a length.
pub(super) struct Percent(pub(super) f64);

impl Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2}%", 100.0 * self.0)
    }
}

/// A figure: the caption, and a plot of a class of the style sheet, which says where its margins are.
pub(super) fn figure(caption: &Caption, class: &'static str, height_px: u32, draw: impl FnOnce(&mut Html)) -> Html {
    let mut html = Html::default();
    html.element("figure", &[("class", &"chart")], |html| {
        head(html, caption);
        plot(html, caption, class, height_px, draw);
    });
    html
}

/// The caption of a figure.
pub(super) fn head(html: &mut Html, caption: &Caption) {
    html.element("figcaption", &[], |html| {
        html.leaf("b", &[], &caption.title);
        html.text(" ");
        html.leaf("span", &[("class", &"unit")], &caption.unit);
        for key in &caption.keys {
            html.text(" ");
            html.element("span", &[("class", &"key")], |html| {
                html.leaf("i", &[("class", &format_args!("swatch {}", key.class))], "");
                html.text(&key.name);
            });
        }
    });
}

/// The drawing alone.
pub(super) fn plot(
    html: &mut Html,
    caption: &Caption,
    class: &'static str,
    height_px: u32,
    draw: impl FnOnce(&mut Html),
) {
    let attributes: [(&str, &dyn Display); 4] =
        [("class", &format_args!("plot {class}")), ("role", &"img"), ("width", &"100%"), ("height", &height_px)];
    html.element("svg", &attributes, |html| {
        html.leaf("title", &[], &caption.title);
        html.leaf("desc", &[], &caption.description);
        draw(html);
    });
}

/// The horizontal lines and the values beside them.
pub(super) fn y_axis(html: &mut Html, axis: &Axis) {
    for tick in &axis.ticks {
        let y = Percent(1.0 - tick.share);
        let class = if tick.share == 0.0 { "base" } else { "grid" };
        html.void("line", &[("class", &class), ("x1", &0), ("x2", &"100%"), ("y1", &y), ("y2", &y)]);
        html.leaf("text", &[("class", &"y"), ("x", &-7), ("y", &y), ("dy", &"0.32em")], &tick.label);
    }
}

/// The values below, with a line for each if wanted.
pub(super) fn x_axis(html: &mut Html, axis: &Axis, has_lines: bool) {
    for tick in &axis.ticks {
        let x = Percent(tick.share);
        if has_lines {
            html.void("line", &[("class", &"grid"), ("x1", &x), ("x2", &x), ("y1", &0), ("y2", &"100%")]);
        }
        let class = if tick.is_minor { "x minor" } else { "x" };
        html.leaf("text", &[("class", &class), ("x", &x), ("y", &"100%"), ("dy", &"1.5em")], &tick.label);
    }
}

/// Lines and areas, in [`UNITS`] of the plot.
pub(super) fn stretched(html: &mut Html, draw: impl FnOnce(&mut Html)) {
    let attributes: [(&str, &dyn Display); 4] =
        [("viewBox", &"0 0 1000 1000"), ("preserveAspectRatio", &"none"), ("width", &"100%"), ("height", &"100%")];
    html.element("svg", &attributes, draw);
}

/// A mark of a target: each colour has a shape of its own, so that they differ on grey paper too.
pub(super) fn mark(html: &mut Html, class: &str, (x, y): (f64, f64), title: impl Display) {
    const SHAPES: [&str; 6] = [
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        "M-3.6-3.6h7.2v7.2h-7.2z",
        "M0-4.8 4.6 3.4h-9.2z",
        "M0-5 5 0 0 5-5 0z",
        "M0 4.8 4.6-3.4h-9.2z",
        "M-5-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
    ];
    let index = super::super::colour::COLOURS.iter().position(|colour| *colour == class).unwrap_or(0);
    html.element("svg", &[("x", &Percent(x)), ("y", &Percent(1.0 - y)), ("class", &"mark")], |html| {
        html.element("path", &[("class", &format_args!("dot {class}")), ("d", &SHAPES[index])], |html| {
            html.leaf("title", &[], title);
        });
    });
}

/// A path through points that are given as shares of the plot.
#[derive(Default)]
pub(super) struct Path(String);

impl Path {
    /// Begins anew at a point.
    pub(super) fn go(&mut self, point: (f64, f64)) {
        self.step('M', point);
    }

    /// A line to a point.
    pub(super) fn draw(&mut self, point: (f64, f64)) {
        self.step('L', point);
    }

    /// A line back to where it began.
    pub(super) fn close(&mut self) {
        self.0.push('Z');
    }

    fn step(&mut self, letter: char, (x, y): (f64, f64)) {
        use fmt::Write as _;
        // Writing to a string does not fail.
        let _ = write!(self.0, "{letter}{:.0} {:.0}", UNITS * x, UNITS * (1.0 - y));
    }
}

impl Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
