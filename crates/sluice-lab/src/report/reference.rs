//! A run beside what others reported of the same load: their figures, ours, and ours as a multiple of theirs.
//!
//! Theirs come from other hardware. So what can be compared is the shape: gains, losses and where it bends.

use super::{
    columns,
    number::{self, count, figure, times},
    outline::{Load, Outline},
    stalls::Stalled,
    tables::{Cell, Heading, Table},
};
use crate::{
    reference::{self, LadderStep, SyncStep},
    result::{CaseKey, Second},
    stall::{self, Stall},
};

/// A run beside a report.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) title: &'static str,
    /// A caveat that the reader must know.
    pub(super) remark: &'static str,
    pub(super) table: Table,
    /// The report's own series.
    pub(super) series: Vec<Series>,
    /// Gains of a gate, there and here.
    pub(super) gains: Vec<Gain>,
    /// Losses of three nodes against two, reported and measured.
    pub(super) losses: Option<Table>,
}

/// The explanation of the table of losses.
pub(super) const LOSSES: &str = "What three nodes do less than two, in percent of their transactions a second, and the same \
                                 with a distance between the nodes; less than nothing is more. Here it is the median of \
                                 the rounds, each of which had both.";

/// A series that others reported.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) variant: &'static str,
    pub(super) seconds: Vec<Second>,
    pub(super) stalls: Vec<Stall>,
}

/// Transactions a second with a gate over those without, by number of clients.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    pub(super) variant: String,
    pub(super) reported: Vec<(u32, f64)>,
    pub(super) here: Vec<(u32, f64)>,
}

/// The ladder's targets: our name, and its reporters'.
const LADDER_TARGETS: [(&str, &str); 2] = [("straight", "community"), ("gate", "builtin_pool")];
/// Of targets that are several nodes of the laboratory's.
const NODES: &str = "nodes-";
/// The step whose statements were reported.
const STATEMENTS_AT: u32 = 16_384;
/// A step is another's if its clients are within this factor: 1,000 and 1,024.
const CLIENTS_FACTOR: f64 = 1.1;

impl Comparison {
    /// The comparison, if others have reported this scenario's load and anything of it was measured.
    pub(super) fn of(outline: &Outline<'_>) -> Option<Self> {
        let comparison = match outline.result.scenario.name.as_str() {
            "session-log" => session_log(outline),
            "tpcb-ladder" => ladder(outline),
            "sync-matrix" => sync_matrix(outline),
            _ => return None,
        };
        (!comparison.table.rows.is_empty()).then_some(comparison)
    }
}

fn session_log(outline: &Outline<'_>) -> Comparison {
    let of = |(variant, seconds): (&'static str, Vec<Second>)| {
        let stalls = stall::detect(&seconds);
        outline.variants.contains(&variant).then_some(Series { variant, seconds, stalls })
    };
    let known = [
        ("with-update", reference::session_log_with_update()),
        ("without-update", reference::session_log_without_update()),
    ];
    let series: Vec<Series> = known.into_iter().filter_map(of).collect();
    let mut rows = Vec::new();
    for series in &series {
        for load in outline.loads(series.variant) {
            rows.extend(outline.cases_of(load).into_iter().flat_map(|case| session_log_rows(outline, series, case)));
        }
    }
    Comparison {
        title: "The session-log test as reported",
        remark: "Reported from a managed PostgreSQL of another make and size (1 GB of memory, 400 I/O requests a \
                 second, 16 clients), so the ratio says little by itself: what counts is where it stalls, and why.",
        table: table(&["case", "figure"], rows),
        series,
        gains: Vec::new(),
        losses: None,
    }
}

fn session_log_rows(outline: &Outline<'_>, series: &Series, case: &CaseKey) -> Vec<Vec<Cell>> {
    if !outline.is_measured(case) {
        return Vec::new();
    }
    let seconds = &series.seconds;
    let total_s: f64 = seconds.iter().map(|second| second.span_s).sum();
    let transactions: f64 = seconds.iter().map(|second| second.tps * second.span_s).sum();
    let latency_ms: f64 = seconds.iter().map(|second| second.mean_ms * second.tps * second.span_s).sum();
    let stalled_s: f64 = series.stalls.iter().map(Stall::seconds).sum();
    let rows = [
        ("tps", transactions / total_s, outline.median(case, columns::TPS)),
        ("mean, ms", latency_ms / transactions, outline.median(case, columns::MEAN)),
        ("stalled, %", 100.0 * stalled_s / total_s, Some(100.0 * Stalled::of(outline, case).share())),
    ];
    let row = |(what, reported, here): (&str, f64, Option<f64>)| {
        row(vec![named(outline, case), Cell::Text(what.to_owned())], Some(reported), here)
    };
    rows.into_iter().map(row).collect()
}

fn ladder(outline: &Outline<'_>) -> Comparison {
    let steps = reference::tpcb_ladder();
    let mut rows = Vec::new();
    for load in outline.all_loads() {
        for (target, server) in LADDER_TARGETS {
            let Some(case) = outline.case(load, target).filter(|case| outline.is_measured(case)) else { continue };
            let Some(step) = nearest(&steps, load, server) else { continue };
            let tps = (Some(trimmed(step)), here_tps(outline, case));
            let sql = (step.sql_ms, outline.median(case, columns::SQL));
            for (what, (reported, here)) in [("tps", tps), ("SQL inside, ms", sql)] {
                let lead =
                    vec![named(outline, case), Cell::Text(what.to_owned()), Cell::Number(count(step.connections))];
                rows.push(row(lead, reported, here));
            }
            if step.connections == STATEMENTS_AT {
                rows.extend(statement_rows(outline, case, server));
            }
        }
    }
    let gains = outline.variants.iter().filter_map(|variant| gain(outline, &steps, variant)).collect();
    Comparison {
        title: "The concurrency ladder as reported",
        remark: "Reported from other hardware and a larger database (scale 5000), \"gate\" being the pool that was built \
                 into that server; transactions a second without head and tail. So the ratio says little by itself: \
                 what counts is what the gate gains, and where.",
        table: table(&["case", "figure", "reported at"], rows),
        series: Vec::new(),
        gains,
        losses: None,
    }
}

/// The means of TPC-B's statements, which others reported at one step only.
fn statement_rows(outline: &Outline<'_>, case: &CaseKey, server: &str) -> Vec<Vec<Cell>> {
    let here = outline.middle_turn(case).map(|(_, measured)| measured.statements.as_slice()).unwrap_or_default();
    let row = |known: reference::StatementMean| {
        let mut words = known.statement.split(' ');
        let (verb, table) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_it = |text: &str| text.starts_with(verb) && text.contains(table);
        let mean_ms = here.iter().find(|statement| is_it(&statement.text)).map(|statement| statement.mean_ms);
        let reported = if server == "community" { known.community_ms } else { known.builtin_pool_ms };
        let what = Cell::Text(format!("{}, ms", known.statement));
        row(vec![named(outline, case), what, Cell::Number(count(STATEMENTS_AT))], Some(reported), mean_ms)
    };
    reference::tpcb_statements().into_iter().map(row).collect()
}

fn gain(outline: &Outline<'_>, steps: &[LadderStep], variant: &str) -> Option<Gain> {
    let of_step = |server: &str, connections: u32| {
        let is_it =
            |step: &&LadderStep| step.tables == variant && step.server == server && step.connections == connections;
        steps.iter().find(is_it).map(trimmed)
    };
    let mut connections: Vec<u32> = steps.iter().map(|step| step.connections).collect();
    connections.sort_unstable();
    connections.dedup();
    let reported = connections.into_iter().filter_map(|connections| {
        Some((connections, of_step("builtin_pool", connections)? / of_step("community", connections)?))
    });
    let here = outline.all_loads().into_iter().filter(|load| load.variant == variant).filter_map(|load| {
        let (gate, straight) = (outline.case(load, "gate")?, outline.case(load, "straight")?);
        let figure = |figures: &crate::result::Figures| figures.tps_trimmed.or(Some(figures.tps));
        Some((load.clients, outline.result.ratio(gate, straight, figure)?))
    });
    let gain = Gain { variant: variant.to_owned(), reported: reported.collect(), here: here.collect() };
    (!gain.reported.is_empty() && !gain.here.is_empty()).then_some(gain)
}

fn nearest<'a>(steps: &'a [LadderStep], load: Load<'_>, server: &str) -> Option<&'a LadderStep> {
    let factor = |step: &LadderStep| {
        let ratio = f64::from(step.connections) / f64::from(load.clients);
        ratio.max(ratio.recip())
    };
    let of_kind = steps.iter().filter(|step| step.tables == load.variant && step.server == server);
    of_kind.filter(|step| factor(step) <= CLIENTS_FACTOR).min_by(|a, b| factor(a).total_cmp(&factor(b)))
}

fn trimmed(step: &LadderStep) -> f64 {
    step.tps_trimmed.unwrap_or(step.tps)
}

fn here_tps(outline: &Outline<'_>, case: &CaseKey) -> Option<f64> {
    outline.median(case, columns::TPS_TRIMMED).or_else(|| outline.median(case, columns::TPS))
}

fn sync_matrix(outline: &Outline<'_>) -> Comparison {
    let steps = reference::sync_matrix();
    let mut rows = Vec::new();
    for load in outline.all_loads() {
        for case in outline.cases_of(load).into_iter().filter(|case| outline.is_measured(case)) {
            for step in of_workload(&steps, load.variant).filter(|step| is_of_as_many(&case.target, step.nodes)) {
                rows.extend(sync_rows(outline, case, step));
            }
        }
    }
    Comparison {
        title: "The sync matrix as reported",
        remark: "Reported from other hardware, of two and of three nodes with 64 clients. So the ratio says little by \
                 itself: what counts is how workloads and commits compare with each other.",
        table: table(&["case", "figure", "nodes there"], rows),
        series: Vec::new(),
        gains: Vec::new(),
        losses: losses(outline, &steps),
    }
}

fn of_workload<'a>(steps: &'a [SyncStep], variant: &'a str) -> impl Iterator<Item = &'a SyncStep> {
    steps.iter().filter(move |step| step.workload.replace('_', "-") == variant)
}

/// Whether a target has so many nodes; one of which that is not known may have.
fn is_of_as_many(target: &str, nodes: u32) -> bool {
    let behind = target.strip_prefix(NODES).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    behind.is_none_or(|count| count == nodes)
}

/// Three nodes against two, at each distance that both were measured at.
fn losses(outline: &Outline<'_>, steps: &[SyncStep]) -> Option<Table> {
    let percent = |ratio: f64| 100.0 * (1.0 - ratio);
    let mut rows = Vec::new();
    for load in outline.all_loads() {
        let tps = |nodes: u32| of_workload(steps, load.variant).find(|step| step.nodes == nodes).map(|step| step.tps);
        let reported = tps(3).zip(tps(2)).map(|(three, two)| percent(three / two));
        for (distance, three) in
            outline.targets.iter().filter_map(|target| Some((target.strip_prefix("nodes-3")?, *target)))
        {
            let two = format!("nodes-2{distance}");
            let cases = outline.case(load, three).zip(outline.case(load, &two));
            let ratio = cases.and_then(|(three, two)| outline.result.ratio(three, two, columns::TPS.of));
            let Some(here) = ratio.map(percent) else { continue };
            let distance = distance.strip_prefix('-').unwrap_or("same host").to_owned();
            rows.push(vec![
                Cell::Text(load.label()),
                Cell::Text(distance),
                Cell::Number(reported.map_or_else(|| figure(None), |percent| number::trimmed(percent, 2))),
                Cell::Number(number::trimmed(here, 2)),
            ]);
        }
    }
    let head = [("workload", ""), ("round trip between nodes", ""), ("reported", "%"), ("here", "%")];
    let head = head.map(|(title, unit)| Heading::new(title, unit)).into();
    (!rows.is_empty()).then_some(Table { head, rows })
}

fn sync_rows(outline: &Outline<'_>, case: &CaseKey, step: &SyncStep) -> Vec<Vec<Cell>> {
    let rows = [
        ("tps", Some(step.tps), outline.median(case, columns::TPS)),
        ("mean, ms", Some(step.latency_ms), outline.median(case, columns::MEAN)),
        ("commit, ms", step.commit_ms, outline.median(case, columns::END)),
    ];
    let row = |(what, reported, here): (&str, Option<f64>, Option<f64>)| {
        let lead = vec![named(outline, case), Cell::Text(what.to_owned()), Cell::Number(step.nodes.to_string())];
        reported.map(|reported| row(lead, Some(reported), here))
    };
    rows.into_iter().filter_map(row).collect()
}

fn table(lead: &[&str], rows: Vec<Vec<Cell>>) -> Table {
    let head = lead.iter().chain(&["reported", "here", "here / reported"]);
    Table { head: head.map(|title| Heading::new(*title, "")).collect(), rows }
}

fn row(mut lead: Vec<Cell>, reported: Option<f64>, here: Option<f64>) -> Vec<Cell> {
    let ratio = reported.filter(|reported| *reported > 0.0).and_then(|reported| Some(here? / reported));
    lead.extend([Cell::Number(figure(reported)), Cell::Number(figure(here)), Cell::Number(times(ratio))]);
    lead
}

fn named(outline: &Outline<'_>, case: &CaseKey) -> Cell {
    Cell::Named { name: super::outline::label(case), class: outline.colour(&case.target) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_compared_with_as_many() {
        for (target, nodes, is_it) in [
            ("nodes-2", 2, true),
            ("nodes-2", 3, false),
            ("nodes-3-2ms", 3, true),
            ("nodes-1", 2, false),
            ("straight", 2, true),
            ("my-own", 3, true),
        ] {
            assert_eq!(is_of_as_many(target, nodes), is_it, "{target} {nodes}");
        }
    }

    #[test]
    fn a_step_is_another_s_if_it_is_near() {
        let steps = reference::tpcb_ladder();
        let near =
            |clients| nearest(&steps, Load { variant: "logged", clients }, "community").map(|step| step.connections);
        assert_eq!([near(64), near(1000), near(700), near(16_000)], [Some(64), Some(1024), None, Some(16_384)]);
        let strange = Load { variant: "other", clients: 64 };
        assert!(nearest(&steps, strange, "community").is_none());
    }
}
