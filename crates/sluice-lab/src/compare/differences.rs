//! Differences around the runs: machines, servers, settings, the scenario.

use std::collections::BTreeSet;

use super::Named;
use crate::{
    plan::WORKLOAD,
    report::number::{bytes, count, trimmed},
    result::{Machine, RunResult, Server},
};

/// Something that is not the same for all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The thing that differs, in words.
    pub what: String,
    /// Whether it makes them different machines.
    pub is_of_machine: bool,
    /// As each run has it, in their order.
    pub values: Vec<String>,
}

impl Difference {
    /// None, if all runs have the same.
    fn of(what: String, is_of_machine: bool, values: Vec<String>) -> Option<Self> {
        values.windows(2).any(|pair| pair[0] != pair[1]).then_some(Self { what, is_of_machine, values })
    }
}

/// By how much disks have to differ to be different ones.
const DISKS_FACTOR: f64 = 3.0;
/// Settings that say where a server is: each run's has a place of its own.
const OF_PLACE: [&str; 6] =
    ["unix_socket_directories", "data_directory", "config_file", "hba_file", "ident_file", "external_pid_file"];
/// For what a run does not have.
const NONE: &str = "–";

/// All of them: machines first.
pub(super) fn between(runs: &[Named<'_>]) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (what, of) in OF_MACHINE {
        let values = runs.iter().map(|run| of(&run.result.machine)).collect();
        differences.extend(Difference::of(what.to_owned(), true, values));
    }
    differences.extend(disks(runs));
    let mut compare = |what: String, values: Vec<String>| differences.extend(Difference::of(what, false, values));
    for (what, of) in OF_RUN {
        compare(what.to_owned(), runs.iter().map(|run| of(run.result)).collect());
    }
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.result.conditions.keys()).collect();
    // A run of before does not tell.
    let is_told =
        |name: &&String| *name != WORKLOAD || runs.iter().all(|run| run.result.conditions.contains_key(*name));
    for name in names.into_iter().filter(is_told) {
        let of = |run: &Named<'_>| run.result.conditions.get(name).map_or(NONE, String::as_str).to_owned();
        compare(name.clone(), runs.iter().map(of).collect());
    }
    let shared: BTreeSet<&String> = runs.iter().flat_map(|run| run.result.servers.keys()).collect();
    for target in shared {
        let servers: Vec<Option<&Server>> = runs.iter().map(|run| run.result.servers.get(target)).collect();
        // What only one run had is a matter of cases.
        if servers.iter().flatten().count() < 2 {
            continue;
        }
        let values = |of: &dyn Fn(&Server) -> String| -> Vec<String> {
            servers.iter().map(|server| server.map_or_else(|| NONE.to_owned(), of)).collect()
        };
        compare(format!("versions ({target})"), values(&|server| server.versions.join("; ")));
        let settings = servers.iter().flatten().flat_map(|server| server.settings.keys());
        let names: BTreeSet<&String> = settings.filter(|name| !OF_PLACE.contains(&name.as_str())).collect();
        for name in names {
            let of = |server: &Server| server.settings.get(name).map_or("default", String::as_str).to_owned();
            compare(format!("{name} ({target})"), values(&of));
        }
        compare(format!("size of the database ({target})"), values(&rounded_size));
    }
    differences
}

/// Disks that were probed, if one does several times what another does: a probe of seconds is not exact.
fn disks(runs: &[Named<'_>]) -> Option<Difference> {
    let of_run = |run: &Named<'_>| {
        let rows = &run.result.machine.disk.as_ref()?.rows;
        rows.iter().filter(|row| row.access == "random read").map(|row| row.iops).reduce(f64::max)
    };
    let iops: Vec<Option<f64>> = runs.iter().map(of_run).collect();
    let known = || iops.iter().flatten().copied();
    let (low, high) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
    let values = iops.iter().map(|iops| iops.map_or_else(|| NONE.to_owned(), |iops| trimmed(iops, 0))).collect();
    let what = "random reads a second of the disk".to_owned();
    (high > DISKS_FACTOR * low).then_some(Difference { what, is_of_machine: true, values })
}

/// A fact: what it is, and how to take it.
type Fact<T> = (&'static str, fn(&T) -> String);

/// Facts of a machine that make it another one.
const OF_MACHINE: [Fact<Machine>; 7] = [
    ("processor", |machine| machine.cpu.clone()),
    ("cores", |machine| machine.cores.to_string()),
    ("memory", |machine| format!("{} GB", trimmed(machine.memory_mb as f64 / 1024.0, 1))),
    ("processors allowed", |machine| machine.group.cpus.map_or_else(|| NONE.to_owned(), |cpus| trimmed(cpus, 2))),
    ("memory allowed", |machine| {
        machine.group.memory_mb.map_or_else(|| NONE.to_owned(), |mb| format!("{} MB", count(mb)))
    }),
    ("system", |machine| machine.system.clone()),
    ("kernel", |machine| machine.kernel.clone()),
];

/// Facts of a run besides.
const OF_RUN: [Fact<RunResult>; 3] = [
    ("scenario", |result| result.scenario.name.clone()),
    ("data", |result| result.scenario.data.clone()),
    ("Sluice", |result| result.version.clone()),
];

/// Two digits: tables grow while they are used.
fn rounded_size(server: &Server) -> String {
    let rounded = |size: u64| {
        let unit = 10_u64.pow(size.max(1).ilog10().saturating_sub(1));
        bytes((size + unit / 2) / unit * unit)
    };
    server.database_bytes.map_or_else(|| NONE.to_owned(), rounded)
}
