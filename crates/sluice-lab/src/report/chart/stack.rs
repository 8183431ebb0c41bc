//! Shares of a whole over time, one upon the other: sessions by what they wait for, processors by what they do.

use super::super::html::Html;
use super::frame::{Caption, Path, Percent, figure, stretched, x_axis, y_axis};
use super::lines::{Band, bands};
use super::scale::{Axis, Scale};
use super::thin::thin;

/// The contents of the chart.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub(crate) caption: Caption,
    /// The length of the time axis.
    pub(crate) end_s: f64,
    /// The moments of all layers.
    pub(crate) moments_s: Vec<f64>,
    /// From the bottom up.
    pub(crate) layers: Vec<Layer>,
    /// A line across, with its name: what there is of the thing.
    pub(crate) limit: Option<(f64, String)>,
    pub(crate) bands: Vec<Band>,
}

/// One share.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its colour.
    pub(crate) class: &'static str,
    /// A value a moment.
    pub(crate) values: Vec<f64>,
}

const HEIGHT_PX: u32 = 190;

/// Draws it.
pub(crate) fn stack(chart: &Stack) -> Html {
    let levels = levels(&chart.layers, chart.moments_s.len());
    let totals = levels.last().map_or(&[][..], Vec::as_slice);
    let limit = chart.limit.as_ref().map_or(0.0, |(limit, _)| *limit);
    let y = Axis::from_zero(totals.iter().copied().fold(limit, f64::max));
    let x = Axis::time(chart.end_s);
    let kept = thin(totals);
    figure(&chart.caption, "", HEIGHT_PX, |html| {
        y_axis(html, &y);
        x_axis(html, &x, false);
        bands(html, &chart.bands, x.scale);
        stretched(html, |html| {
            for (layer, pair) in chart.layers.iter().zip(levels.windows(2)) {
                let area = area(&kept, &chart.moments_s, &pair[0], &pair[1], (x.scale, y.scale));
                html.void("path", &[("class", &format_args!("area {}", layer.class)), ("d", &area)]);
            }
        });
        if let Some((value, name)) = &chart.limit {
            let at = Percent(1.0 - y.scale.share(*value));
            html.void("line", &[("class", &"limit"), ("x1", &0), ("x2", &"100%"), ("y1", &at), ("y2", &at)]);
            html.leaf("text", &[("class", &"limit"), ("x", &"100%"), ("y", &at), ("dy", &-4), ("dx", &-2)], name);
        }
    })
}

/// The bottom, and the upper edge of each layer.
fn levels(layers: &[Layer], moments: usize) -> Vec<Vec<f64>> {
    let mut levels = vec![vec![0.0; moments]];
    for layer in layers {
        let below = &levels[levels.len() - 1];
        let values = layer.values.iter().copied().chain(std::iter::repeat(0.0));
        levels.push(below.iter().zip(values).map(|(below, value)| below + value).collect());
    }
    levels
}

fn area(kept: &[usize], moments_s: &[f64], below: &[f64], above: &[f64], (x, y): (Scale, Scale)) -> Path {
    let mut path = Path::default();
    for (nth, index) in kept.iter().enumerate() {
        let place = (x.share(moments_s[*index]), y.share(above[*index]));
        if nth == 0 { path.go(place) } else { path.draw(place) }
    }
    for index in kept.iter().rev() {
        path.draw((x.share(moments_s[*index]), y.share(below[*index])));
    }
    if !kept.is_empty() {
        path.close();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_stand_on_each_other() {
        let layer = |values: &[f64]| Layer { class: "w-io", values: values.to_vec() };
        let levels = levels(&[layer(&[1.0, 2.0]), layer(&[3.0])], 2);
        assert_eq!(levels, [[0.0, 0.0], [1.0, 2.0], [4.0, 2.0]]);
        let scale = Scale::Linear { from: 0.0, to: 4.0 };
        let area = area(&[0, 1], &[0.0, 4.0], &levels[1], &levels[2], (scale, scale));
        assert_eq!(area.to_string(), "M0 0L1000 500L1000 500L0 750Z");
    }
}
