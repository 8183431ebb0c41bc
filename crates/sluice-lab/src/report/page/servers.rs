//! The machine and the servers: what a figure is worth without them is little.

use std::collections::BTreeSet;

use super::super::{
    html::Html,
    number::{bytes, count, figure, trimmed, with_unit},
    outline::Outline,
    tables::{self, Cell, Heading, Table},
};
use crate::result::{DiskProbe, Machine, RunResult};

/// The load's conditions, the machine, its disk, the servers and their settings.
pub(super) fn surroundings(outline: &Outline<'_>) -> Html {
    let result = outline.result;
    let mut html = Html::default();
    if !result.conditions.is_empty() {
        html.leaf("h3", &[], "Load");
        facts(&mut html, result.conditions.iter().map(|(what, value)| (what.as_str(), value.clone())));
    }
    html.leaf("h3", &[], "Machine");
    facts(&mut html, machine_facts(&result.machine).into_iter());
    if let Some(disk) = &result.machine.disk {
        disk_probe(&mut html, disk);
    }
    servers(&mut html, outline);
    settings(&mut html, result);
    variants(&mut html, result);
    html
}

fn facts<'a>(html: &mut Html, pairs: impl Iterator<Item = (&'a str, String)>) {
    html.element("dl", &[("class", &"facts")], |html| {
        for (what, value) in pairs {
            html.leaf("dt", &[], what);
            html.leaf("dd", &[], value);
        }
    });
}

/// As pairs; what is not known is left out.
fn machine_facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let group = [
        machine.group.cpus.map(|cpus| format!("{} processors", trimmed(cpus, 2))),
        machine.group.memory_mb.map(|mb| format!("{} MB of memory", count(mb))),
    ];
    let group: Vec<String> = group.into_iter().flatten().chain(machine.group.io.iter().cloned()).collect();
    let facts = [
        ("processor", Some(machine.cpu.clone())),
        ("cores", Some(machine.cores.to_string())),
        ("memory", Some(format!("{} MB", count(machine.memory_mb)))),
        ("system", Some(machine.system.clone())),
        ("kernel", Some(machine.kernel.clone())),
        ("limits of its group", (!group.is_empty()).then(|| group.join(", "))),
        ("load at the start", machine.load.map(|load| trimmed(load, 2))),
        ("round trip over loopback", machine.loopback_round_trip_us.map(|us| with_unit(us, "µs"))),
    ];
    let known = facts.into_iter().filter_map(|(what, value)| Some((what, value?)));
    known.filter(|(_, value)| !value.is_empty()).collect()
}

fn disk_probe(html: &mut Html, disk: &DiskProbe) {
    html.leaf("h3", &[], "Disk");
    let device = disk.device.as_deref().map_or_else(String::new, |device| format!(" ({device})"));
    html.leaf("p", &[], format_args!("Probed with direct I/O in {}{device}.", disk.directory));
    if let Some(remark) = &disk.remark {
        html.leaf("p", &[("class", &"note")], remark);
    }
    if disk.rows.is_empty() {
        return;
    }
    let head =
        [("access", ""), ("block", ""), ("depth", ""), ("requests", "1/s"), ("bandwidth", "MB/s"), ("mean", "µs")];
    let rows = disk.rows.iter().map(|row| {
        vec![
            Cell::Text(row.access.clone()),
            Cell::Number(block(row.block_bytes)),
            Cell::Number(count(row.depth)),
            Cell::figure(Some(row.iops)),
            Cell::figure(Some(row.mb_per_s)),
            Cell::figure(Some(row.mean_us)),
        ]
    });
    let head = head.into_iter().map(|(title, unit)| Heading::new(title, unit)).collect();
    html.push(&Table { head, rows: rows.collect() }.html());
}

/// Blocks are powers of two, and called so.
fn block(bytes: u32) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn servers(html: &mut Html, outline: &Outline<'_>) {
    let servers = &outline.result.servers;
    if servers.is_empty() {
        return;
    }
    html.leaf("h3", &[], "Servers");
    let head = [
        ("target", ""),
        ("versions", ""),
        ("reached", ""),
        ("round trip", "µs"),
        ("database", ""),
        ("in memory at the start", "%"),
    ];
    let rows = servers.iter().map(|(target, server)| {
        vec![
            Cell::Named { name: target.clone(), class: outline.colour(target) },
            Cell::Text(server.versions.join("; ")),
            Cell::Text(server.reached.clone()),
            Cell::figure(server.round_trip_us),
            Cell::Number(server.database_bytes.map_or_else(|| "–".to_owned(), bytes)),
            Cell::Number(figure(server.warm_percent)),
        ]
    });
    let head = head.into_iter().map(|(title, unit)| Heading::new(title, unit)).collect();
    html.push(&Table { head, rows: rows.collect() }.without_empty_columns().html());
    if let Some(commits) = tables::commits(outline) {
        html.leaf("h3", &[], "What a commit waits for");
        html.leaf("p", &[("class", &"about")], tables::COMMITS);
        html.push(&commits.html());
    }
}

/// The settings that variants add.
fn variants(html: &mut Html, result: &RunResult) {
    let row = |variant: &String, name: &String, value: &String| {
        [variant, name, value].map(|text| Cell::Text(text.clone())).into()
    };
    let rows = result
        .variants
        .iter()
        .flat_map(|(variant, settings)| settings.iter().map(move |(name, value)| row(variant, name, value)));
    let rows: Vec<Vec<Cell>> = rows.collect();
    if !rows.is_empty() {
        html.leaf("h3", &[], "Settings of variants");
        let head = ["variant", "setting", "value"].map(|title| Heading::new(title, "")).into();
        html.push(&Table { head, rows }.html());
    }
}

/// Settings by server, those that differ first.
fn settings(html: &mut Html, result: &RunResult) {
    let names: BTreeSet<&String> = result.servers.values().flat_map(|server| server.settings.keys()).collect();
    if names.is_empty() {
        return;
    }
    let values = |name: &String| -> Vec<Option<&String>> {
        result.servers.values().map(|server| server.settings.get(name)).collect()
    };
    let differs = |name: &String| values(name).windows(2).any(|pair| pair[0] != pair[1]);
    let (different, same): (Vec<&String>, Vec<&String>) = names.into_iter().partition(|name| differs(name));
    let table = |names: Vec<&String>| {
        let titles = ["setting".to_owned()].into_iter().chain(result.servers.keys().cloned());
        let cells = |name: &String| {
            let shown = values(name).into_iter().map(|value| value.map_or("default", String::as_str));
            [name.as_str()].into_iter().chain(shown).map(|text| Cell::Text(text.to_owned())).collect()
        };
        Table {
            head: titles.map(|title| Heading::new(title, "")).collect(),
            rows: names.into_iter().map(cells).collect(),
        }
    };
    if !different.is_empty() {
        html.leaf("h3", &[], "Settings that differ between the servers");
        html.push(&table(different).html());
    }
    if !same.is_empty() {
        html.element("details", &[("class", &"load")], |html| {
            let title = if result.servers.len() > 1 { "Settings of all servers" } else { "Settings" };
            html.leaf("summary", &[], format_args!("{title} that are not PostgreSQL's defaults ({})", same.len()));
            html.push(&table(same).html());
        });
    }
}
