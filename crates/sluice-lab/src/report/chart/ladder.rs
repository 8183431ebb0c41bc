//! A figure by the number of clients, on a logarithmic axis, one line a target.

use super::super::html::Html;
use super::frame::{Caption, Path, Percent, figure, mark, stretched, x_axis, y_axis};
use super::scale::Axis;

/// The contents of the chart.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    pub(crate) caption: Caption,
    /// Whether values span orders of magnitude.
    pub(crate) is_log: bool,
    pub(crate) rungs: Vec<Rung>,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Rung {
    /// Of the target.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) class: &'static str,
    /// Whether it is what others reported.
    pub(crate) is_dashed: bool,
    /// By number of clients.
    pub(crate) points: Vec<Point>,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) clients: u32,
    pub(crate) value: f64,
    /// The lowest and the highest, if there were several turns.
    pub(crate) range: Option<(f64, f64)>,
}

const HEIGHT_PX: u32 = 240;

/// Draws it.
pub(crate) fn ladder(chart: &Ladder) -> Html {
    let points = || chart.rungs.iter().flat_map(|rung| &rung.points);
    let mut steps: Vec<u32> = points().map(|point| point.clients).collect();
    steps.sort_unstable();
    steps.dedup();
    let x = Axis::steps(&steps.into_iter().map(f64::from).collect::<Vec<_>>());
    let values = || points().flat_map(|point| [Some(point.value), point.range.map(|(_, high)| high)]).flatten();
    let highest = values().fold(0.0, f64::max);
    let y = match chart.is_log {
        true => Axis::log(values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min), highest),
        false => Axis::from_zero(highest),
    };
    let place = |point: &Point| (x.scale.share(f64::from(point.clients)), y.scale.share(point.value));
    figure(&chart.caption, "", HEIGHT_PX, |html| {
        y_axis(html, &y);
        x_axis(html, &x, false);
        stretched(html, |html| {
            for rung in &chart.rungs {
                let path = path(rung.points.iter().map(place));
                let dashes = if rung.is_dashed { "dashed" } else { "" };
                html.void("path", &[("class", &format_args!("line {} {dashes}", rung.class)), ("d", &path)]);
            }
        });
        for (rung, point) in chart.rungs.iter().flat_map(|rung| rung.points.iter().map(move |point| (rung, point))) {
            if let Some((low, high)) = point.range {
                let at = Percent(place(point).0);
                let (low, high) = (Percent(1.0 - y.scale.share(low)), Percent(1.0 - y.scale.share(high)));
                let class = format_args!("range {}", rung.class).to_string();
                html.void("line", &[("class", &class), ("x1", &at), ("x2", &at), ("y1", &low), ("y2", &high)]);
            }
            mark(html, rung.class, place(point), title(rung, point, &chart.caption.unit));
        }
    })
}

fn path(places: impl Iterator<Item = (f64, f64)>) -> Path {
    let mut path = Path::default();
    for (nth, place) in places.enumerate() {
        if nth == 0 { path.go(place) } else { path.draw(place) }
    }
    path
}

fn title(rung: &Rung, point: &Point, unit: &str) -> String {
    use super::super::number::{self, clients};
    format!("{}, {}: {} {unit}", rung.name, clients(point.clients), number::figure(Some(point.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_mark_and_its_tick() {
        let point = |clients, value| Point { clients, value, range: Some((value - 1.0, value + 1.0)) };
        let points = vec![point(64, 5.0), point(1024, 10.0), point(16384, 2.0)];
        let rung = Rung { name: "gate".to_owned(), class: "c1", is_dashed: false, points };
        let caption = Caption { unit: "tps".to_owned(), ..Caption::default() };
        let svg = ladder(&Ladder { caption, is_log: false, rungs: vec![rung] }).finish();
        assert_eq!(svg.matches("class=\"mark\"").count(), 3);
        assert_eq!(svg.matches("class=\"range c1\"").count(), 3);
        assert!(svg.contains("<title>gate, 16,384 clients: 2.00 tps</title>"), "{svg}");
        assert!(svg.contains(">1,024</text>"), "{svg}");
    }
}
