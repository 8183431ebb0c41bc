//! The part of the page about what others reported.

use super::super::{
    chart::{Band, Caption, Key, Ladder, Line, Lines, Point, Rung, ladder, lines},
    html::Html,
    outline::Outline,
    reference::{Comparison, Gain, LOSSES, Series},
    stalls::span,
};

/// The table, then the charts; nothing if nobody has reported this load.
pub(super) fn reference(outline: &Outline<'_>) -> Html {
    let mut html = Html::default();
    let Some(comparison) = Comparison::of(outline) else { return html };
    html.leaf("h3", &[], comparison.title);
    html.leaf("p", &[("class", &"about")], comparison.remark);
    html.element("div", &[("class", &"charts")], |html| {
        comparison.series.iter().for_each(|series| html.push(&series_chart(series)));
        comparison.gains.iter().for_each(|gain| html.push(&gain_chart(gain)));
    });
    html.push(&comparison.table.html());
    if let Some(losses) = &comparison.losses {
        html.leaf("p", &[("class", &"about")], LOSSES);
        html.push(&losses.html());
    }
    html
}

fn series_chart(series: &Series) -> Html {
    let band = |(nth, stall): (usize, &crate::stall::Stall)| Band {
        from_s: stall.from_s,
        to_s: stall.to_s,
        mark: (nth + 1).to_string(),
        name: "stall".to_owned(),
        title: format!("Stall {}, {}", nth + 1, span(stall)),
    };
    let caption = Caption {
        title: format!("Reported: {}", series.variant),
        unit: "transactions a second".to_owned(),
        description: "The transactions a second over time as others reported them.".to_owned(),
        keys: Vec::new(),
    };
    let points = series.seconds.iter().map(|second| (second.t_s, second.tps)).collect();
    lines(&Lines {
        caption,
        end_s: series.seconds.last().map_or(0.0, |second| second.t_s),
        is_log: false,
        lines: vec![Line { class: "s0".to_owned(), points }],
        bands: series.stalls.iter().enumerate().map(band).collect(),
    })
}

fn gain_chart(gain: &Gain) -> Html {
    let rung = |name: &str, class, is_dashed, points: &[(u32, f64)]| Rung {
        name: name.to_owned(),
        class,
        is_dashed,
        points: points.iter().map(|(clients, value)| Point { clients: *clients, value: *value, range: None }).collect(),
    };
    let keys = [("here", "dot c1"), ("reported", "dot c3")];
    let title = match gain.variant.as_str() {
        "" => "What the gate gains".to_owned(),
        variant => format!("What the gate gains: {variant}"),
    };
    let caption = Caption {
        title,
        unit: "times the throughput without it; both axes logarithmic".to_owned(),
        description: "The throughput with the gate divided by that without, by clients, here and as reported."
            .to_owned(),
        keys: keys.map(|(name, class)| Key { name: name.to_owned(), class: class.to_owned() }).into(),
    };
    let rungs = vec![rung("reported", "c3", true, &gain.reported), rung("here", "c1", false, &gain.here)];
    ladder(&Ladder { caption, is_log: true, rungs })
}
