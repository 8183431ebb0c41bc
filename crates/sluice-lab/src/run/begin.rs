//! The result that a run begins with: a new one, or that of its earlier part.

use std::collections::{BTreeMap, BTreeSet};

use super::Order;
use crate::{
    clock,
    error::Error,
    plan::{Plan, WORKLOAD},
    result::{BRIEF, FORMAT, Machine, Outcome, RunResult, ScenarioSummary},
    server::Settings,
};

/// Without turns yet.
pub(super) fn new_result(order: &Order, machine: Machine) -> RunResult {
    let plan = order.plan;
    let scenario = &plan.scenario;
    let mut remarks = Vec::new();
    if plan.choices.brief {
        remarks.push(BRIEF.to_owned());
    }
    let foreign: Vec<&str> =
        plan.targets.iter().filter(|target| !target.is_own()).map(|one| one.name.as_str()).collect();
    let names = foreign.join(", ");
    if !plan.class.is_unlimited() && !foreign.is_empty() {
        remarks.push(format!("class not enforced: {} ({names}: a DSN's server is not the laboratory's)", plan.class));
    }
    if !plan.set_by_variants().is_empty() && !foreign.is_empty() {
        remarks.push(format!("The settings of variants were not made at {names}: a DSN's server is as it is."));
    }
    RunResult {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: ScenarioSummary {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            description: scenario.description.clone(),
            reference: scenario.reference.clone(),
            data: plan.data(),
        },
        command: order.command.clone(),
        started_unix_s: clock::unix_s() as u64,
        cut_short: None,
        machine,
        servers: BTreeMap::new(),
        conditions: plan.conditions(),
        variants: settings_of_variants(plan),
        turns: Vec::new(),
        remarks,
    }
}

fn settings_of_variants(plan: &Plan) -> BTreeMap<String, Settings> {
    let with = plan.variants.iter().filter(|variant| !variant.settings.is_empty());
    with.map(|variant| (variant.name.clone(), variant.settings.clone())).collect()
}

/// The result that a resumed run goes on from: turns that broke or were skipped are tried again.
pub(super) fn resumed(order: &Order, earlier: &RunResult, machine: &Machine) -> RunResult {
    let mut result = RunResult { cut_short: None, command: order.command.clone(), ..earlier.clone() };
    result.turns.retain(|turn| matches!(turn.outcome, Outcome::Measured(_)));
    result.variants.extend(settings_of_variants(order.plan));
    if !earlier.machine.is_like(machine) {
        result.remarks.push(format!(
            "It was begun on another machine than it was ended on: {}, {} cores, {} MB, {}.",
            machine.cpu, machine.cores, machine.memory_mb, machine.kernel
        ));
    }
    result
}

/// Whether a run that was cut short is one of this plan's: otherwise figures of different loads would be mixed.
pub fn check_resumed(plan: &Plan, earlier: &RunResult) -> Result<(), Error> {
    let told = |conditions: &BTreeMap<String, String>, name: &str| {
        conditions.get(name).map_or_else(|| "none".to_owned(), String::clone)
    };
    let now = plan.conditions();
    let mut differences: Vec<String> = Vec::new();
    let mut compare = |what: &str, then: String, now: String| {
        if then != now {
            differences.push(format!("{what} was {then}, and is {now}"));
        }
    };
    compare("the scenario", earlier.scenario.name.clone(), plan.scenario.name.clone());
    compare("the tables' size", earlier.scenario.data.clone(), plan.data());
    let names = earlier.conditions.keys().chain(now.keys()).collect::<BTreeSet<_>>();
    // A run of before does not tell.
    for name in names.into_iter().filter(|name| *name != WORKLOAD || earlier.conditions.contains_key(*name)) {
        compare(name, told(&earlier.conditions, name), told(&now, name));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::Input(format!(
        "the run can't be resumed as another one: {}\ngive the options that it was begun with: {}",
        differences.join("; "),
        earlier.command
    )))
}
