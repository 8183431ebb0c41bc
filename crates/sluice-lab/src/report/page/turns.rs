//! Series of the middle turn of each case, load by load: what pgbench saw, and what the server and the machine did.

use super::super::{
    chart::{Band, Caption, Key, Layer, Line, Lines, Stack, lines, stack},
    html::Html,
    number::{clients, figure, trimmed},
    outline::{Load, Outline},
    stalls::{causes, span},
    tables::{Cell, Heading, Table},
};
use super::charts::keys;
use crate::{
    result::{Checkpoint, Measured, Second, Turn},
    sample::metrics,
};

/// Cases whose series are shown at once; those of more are folded but for the first load's.
const OPEN_CASES_MAX: usize = 3;

/// Classes of wait events from the bottom up, with their colours; others follow.
const WAITS: [(&str, &str); 8] = [
    ("CPU", "w-cpu"),
    ("IO", "w-io"),
    ("LWLock", "w-lwlock"),
    ("Lock", "w-lock"),
    ("IPC", "w-ipc"),
    ("Extension", "w-extension"),
    ("Client", "w-client"),
    ("Timeout", "w-timeout"),
];
const OTHER_WAITS: &str = "w-other";

/// Columns of processor time, each with its class in the chart.
const PROCESSES: [(&str, &str); 4] = [
    (metrics::CPU_POSTGRES, "w-io"),
    (metrics::CPU_POOL, "w-cpu"),
    (metrics::CPU_PGBENCH, "w-client"),
    (metrics::CPU_OTHERS, "w-lock"),
];

/// Lines of a sampled kind: title, unit, columns.
type Sampled = (&'static str, &'static str, &'static [&'static str]);

const SAMPLED: [Sampled; 4] = [
    ("At the gate", "sessions", &[metrics::GATE_RUNNING, metrics::GATE_WAITING, metrics::GATE_LIMIT]),
    ("In the pool", "clients, servers", &[metrics::POOL_WAITING, metrics::POOL_ACTIVE, metrics::POOL_IDLE]),
    ("Log and disk", "MB/s", &[metrics::WAL_BYTES, metrics::DISK_WRITE_MB, metrics::DISK_READ_MB]),
    ("Pages", "a second", &[metrics::WAL_IMAGES, metrics::CHECKPOINT_BUFFERS, metrics::BACKEND_BUFFERS]),
];

/// All loads, the page's first one at the front.
pub(super) fn turns(outline: &Outline<'_>) -> Html {
    let mut html = Html::default();
    let Some(headline) = outline.headline() else { return html };
    let mut loads = outline.all_loads();
    loads.sort_by_key(|load| *load != headline);
    let measured = outline.result.cases().into_iter().filter(|case| outline.is_measured(case)).count();
    for load in loads {
        let panels = panels(outline, load);
        if panels.is_empty() {
            continue;
        }
        let is_open = load == headline || measured <= OPEN_CASES_MAX;
        html.open("details", if is_open { &[("open", &""), ("class", &"load")] } else { &[("class", &"load")] });
        html.leaf("summary", &[], load.label());
        html.push(&panels);
        html.close("details");
    }
    if !html.is_empty() {
        html.leaf("p", &[("class", &"note")], "Of each case the turn whose throughput is in the middle.");
    }
    html
}

fn panels(outline: &Outline<'_>, load: Load<'_>) -> Html {
    let mut html = Html::default();
    let turns: Vec<_> = outline.cases_of(load).into_iter().filter_map(|case| outline.middle_turn(case)).collect();
    let turns: Vec<_> = turns.into_iter().filter(|(_, measured)| !measured.seconds.is_empty()).collect();
    if turns.len() > 1 {
        html.push(&together(outline, load, &turns));
    }
    for (turn, measured) in turns {
        html.element("article", &[("class", &"turn")], |html| {
            let name = outline.colour(&turn.case.target);
            html.element("h3", &[], |html| {
                html.leaf("i", &[("class", &format_args!("swatch dot {name}"))], "");
                html.text(&turn.case.target);
                let about = format!("{}, turn {}", clients(turn.case.clients), turn.round);
                html.text(" ");
                html.leaf("span", &[("class", &"unit")], about);
            });
            html.element("div", &[("class", &"charts")], |html| panel(html, outline, turn, measured));
            html.push(&checkpoints(measured));
        });
    }
    html
}

/// All targets' throughput in one chart.
fn together(outline: &Outline<'_>, load: Load<'_>, turns: &[(&Turn, &Measured)]) -> Html {
    let of = |(turn, measured): &(&Turn, &Measured)| Line {
        class: outline.colour(&turn.case.target).to_owned(),
        points: points(&measured.seconds, |second| Some(second.tps)),
    };
    let caption = Caption {
        title: "Throughput of all targets".to_owned(),
        unit: "transactions a second".to_owned(),
        description: format!("The transactions a second of each target over time, {}.", load.label()),
        keys: keys(outline),
    };
    let end_s = turns.iter().map(|(_, measured)| end_s(measured)).fold(0.0, f64::max);
    lines(&Lines { caption, end_s, is_log: false, lines: turns.iter().map(of).collect(), bands: Vec::new() })
}

fn panel(html: &mut Html, outline: &Outline<'_>, turn: &Turn, measured: &Measured) {
    let colour = outline.colour(&turn.case.target);
    let bands = bands(measured);
    html.push(&throughput(measured, colour, &bands));
    html.push(&latency(measured, colour, &bands));
    let of_server = outline.result.servers.get(&turn.case.target).and_then(|server| server.cores);
    html.push(&sessions(measured, of_server, &bands));
    html.push(&processors(measured, outline.result.machine.cores, &bands));
    for kind in &SAMPLED {
        html.push(&sampled(measured, kind, &bands));
    }
}

fn throughput(measured: &Measured, colour: &str, bands: &[Band]) -> Html {
    let stalls: Vec<String> =
        measured.stalls.iter().map(|stall| format!("{}: {}", span(stall), causes(stall))).collect();
    let description = match stalls.is_empty() {
        true => "The transactions a second over time, without a stall.".to_owned(),
        false => format!("The transactions a second over time. It stalled from {}.", stalls.join("; from ")),
    };
    let caption = caption("Throughput", "transactions a second", description, Vec::new());
    let line = Line { class: colour.to_owned(), points: points(&measured.seconds, |second| Some(second.tps)) };
    let chart = Lines { caption, end_s: end_s(measured), is_log: false, lines: vec![line], bands: bands.to_vec() };
    lines(&chart)
}

fn latency(measured: &Measured, colour: &str, bands: &[Band]) -> Html {
    type Of = fn(&Second) -> Option<f64>;
    let kinds: [(&str, &str, Of); 3] = [
        ("mean", "", |second| Some(second.mean_ms).filter(|mean_ms| *mean_ms > 0.0)),
        ("p99", "dashed", |second| second.p99_ms),
        ("max", "dotted", |second| second.max_ms),
    ];
    let (mut series, mut keys) = (Vec::new(), Vec::new());
    for (name, dashes, of) in kinds {
        let points = points(&measured.seconds, of);
        if !points.is_empty() {
            let class = format!("{colour} {dashes}");
            keys.push(Key { name: name.to_owned(), class: format!("line {class}") });
            series.push(Line { class, points });
        }
    }
    if series.is_empty() {
        return Html::default();
    }
    let description = "The latency of transactions over time, by when they ended.".to_owned();
    let caption = caption("Latency", "ms, logarithmic", description, keys);
    lines(&Lines { caption, end_s: end_s(measured), is_log: true, lines: series, bands: bands.to_vec() })
}

/// Active sessions by what they wait for, against the processors that the server may use, if they are known.
fn sessions(measured: &Measured, cores: Option<f64>, bands: &[Band]) -> Html {
    let class_of = |column: &str| {
        let name = column.strip_prefix(metrics::WAIT)?;
        Some(WAITS.iter().position(|(known, _)| *known == name).unwrap_or(WAITS.len()))
    };
    let columns = measured.samples.columns.keys();
    let mut known: Vec<(usize, &str)> =
        columns.filter_map(|column| Some((class_of(column)?, column.as_str()))).collect();
    known.sort_unstable();
    let known: Vec<(&str, &'static str)> = known
        .into_iter()
        .map(|(nth, column)| (column, WAITS.get(nth).map_or(OTHER_WAITS, |(_, class)| class)))
        .collect();
    let limit = cores.map(|cores| (cores, format!("{} cores", trimmed(cores, 2))));
    let description =
        "Active sessions over time, stacked by the class of what they wait for, with a line at the number \
                       of processors."
            .to_owned();
    // A class has no value at moments at which it counted nobody.
    let filled = |values: &[Option<f64>]| values.iter().map(|value| value.unwrap_or(0.0)).collect();
    let caption = ("Active sessions by what they wait for", "sessions", description);
    stacked(measured, &known, filled, caption, limit, bands)
}

fn processors(measured: &Measured, cores: u32, bands: &[Band]) -> Html {
    let limit = (cores > 0).then(|| (f64::from(cores), format!("{cores} cores")));
    let description = "Processors in use over time, stacked by who has them.".to_owned();
    // Large trees of processes are looked at less often.
    let held = |values: &[Option<f64>]| {
        let held = values.iter().scan(0.0, |last, value| {
            *last = value.unwrap_or(*last);
            Some(*last)
        });
        held.collect()
    };
    stacked(measured, &PROCESSES, held, ("Processors by who has them", "processors", description), limit, bands)
}

fn stacked(
    measured: &Measured,
    columns: &[(&str, &'static str)],
    fill: impl Fn(&[Option<f64>]) -> Vec<f64>,
    (title, unit, description): (&str, &str, String),
    limit: Option<(f64, String)>,
    bands: &[Band],
) -> Html {
    let samples = &measured.samples;
    let (mut layers, mut keys) = (Vec::new(), Vec::new());
    for (column, class) in columns {
        let Some(values) = samples.columns.get(*column) else { continue };
        let values = fill(values);
        if values.iter().any(|value| *value > 0.0) {
            keys.push(Key { name: metrics::describe(column).title, class: format!("area {class}") });
            layers.push(Layer { class, values });
        }
    }
    if layers.is_empty() {
        return Html::default();
    }
    stack(&Stack {
        caption: caption(title, unit, description, keys),
        end_s: end_s(measured),
        moments_s: samples.t_s.clone(),
        layers,
        limit,
        bands: bands.to_vec(),
    })
}

fn sampled(measured: &Measured, (title, unit, columns): &Sampled, bands: &[Band]) -> Html {
    const CLASSES: [&str; 3] = ["s0", "s1", "s2"];
    let (mut series, mut keys) = (Vec::new(), Vec::new());
    for (column, class) in columns.iter().zip(CLASSES) {
        let points: Vec<(f64, f64)> = measured.samples.points(column).collect();
        if points.iter().any(|(_, value)| *value > 0.0) {
            keys.push(Key { name: metrics::describe(column).title, class: format!("line {class}") });
            series.push(Line { class: class.to_owned(), points });
        }
    }
    if series.is_empty() {
        return Html::default();
    }
    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
    let description = format!("Over time: {}.", names.join(", "));
    let caption = caption(title, unit, description, keys);
    lines(&Lines { caption, end_s: end_s(measured), is_log: false, lines: series, bands: bands.to_vec() })
}

/// Checkpoints of the turn, from the server's log.
fn checkpoints(measured: &Measured) -> Html {
    let mut html = Html::default();
    let row = |one: &Checkpoint| {
        let end = one.to_s.map_or_else(|| "after the turn's end".to_owned(), |to_s| trimmed(to_s, 1));
        vec![
            Cell::Text(one.reason.clone()),
            Cell::Number(trimmed(one.from_s, 1)),
            Cell::Number(end),
            Cell::figure(one.buffers.map(|buffers| buffers as f64)),
            Cell::figure(one.write_s),
            Cell::figure(one.sync_s),
            Cell::figure(one.longest_sync_s),
        ]
    };
    let rows: Vec<Vec<Cell>> = measured.samples.checkpoints.iter().map(row).collect();
    if rows.is_empty() {
        return html;
    }
    let head = [
        ("checkpoint", ""),
        ("from", "s"),
        ("to", "s"),
        ("buffers written", ""),
        ("writing", "s"),
        ("syncing", "s"),
        ("longest sync of a file", "s"),
    ];
    html.push(&Table { head: head.map(|(title, unit)| Heading::new(title, unit)).into(), rows }.html());
    html
}

fn caption(title: &str, unit: &str, description: String, keys: Vec<Key>) -> Caption {
    Caption { title: title.to_owned(), unit: unit.to_owned(), description, keys }
}

/// The turn's stalls, numbered as in the part of the page about them.
fn bands(measured: &Measured) -> Vec<Band> {
    let band = |(nth, stall): (usize, &crate::stall::Stall)| Band {
        from_s: stall.from_s,
        to_s: stall.to_s,
        mark: (nth + 1).to_string(),
        name: stall.cause().title().to_owned(),
        title: format!("Stall {}, {}: {}; {} tps", nth + 1, span(stall), causes(stall), figure(Some(stall.tps))),
    };
    measured.stalls.iter().enumerate().map(band).collect()
}

fn points(seconds: &[Second], of: fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    seconds.iter().filter_map(|second| Some((second.t_s, of(second)?))).collect()
}

/// The end of a turn's axis.
fn end_s(measured: &Measured) -> f64 {
    let last = |moments: Option<f64>| moments.unwrap_or(0.0);
    last(measured.seconds.last().map(|second| second.t_s)).max(last(measured.samples.t_s.last().copied()))
}
