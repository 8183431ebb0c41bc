//! Over a grid of instances and workloads: nothing dangerous, nothing outside a setting's limits, and no more memory
//! than there is.

use sluice_instance::Tuning;
use sluice_lab::review::{Disk, Instance, Level, NEVER, Report, Snapshot, Status, Workload};
use sluice_testkit::{TestServer, Version, versions};
use sluice_units::{Quantity, Unit};

use crate::{GIB, MIB, instance, reviewed, snapshot_of};

const MEMORY: [u64; 6] = [256 * MIB, GIB, 3 * GIB, 16 * GIB, 250 * GIB, 2048 * GIB];
const CORES: [u32; 4] = [1, 2, 16, 192];
const CONNECTIONS: [u32; 3] = [10, 100, 500];
const IOPS: [Option<u32>; 4] = [None, Some(100), Some(3000), Some(1_000_000)];
const WORKLOADS: [Workload; 4] = [Workload::Oltp, Workload::Web, Workload::Analytics, Workload::Mixed];

fn grid() -> impl Iterator<Item = Instance> {
    let sizes = MEMORY.into_iter().flat_map(|memory| CORES.map(|cores| (memory, cores)));
    let uses = sizes.flat_map(|size| WORKLOADS.map(|workload| (size, workload)));
    uses.enumerate().flat_map(|(number, ((memory, cores), workload))| {
        CONNECTIONS.map(|connections| Instance {
            connections: Some(connections),
            iops: IOPS[number % IOPS.len()],
            disk: if number % 3 == 0 { Disk::Hdd } else { Disk::Ssd },
            pool: number % 2 == 0,
            ..instance(memory, cores, workload)
        })
    })
}

/// Every recommended value, whether it is there already or not.
fn recommended(report: &Report) -> impl Iterator<Item = (&str, &str)> {
    let has_value = |status| matches!(status, Status::Change | Status::ByHand | Status::Fine);
    report.rows.iter().filter(move |row| has_value(row.status)).map(|row| (row.name.as_str(), row.recommended.as_str()))
}

fn nothing_dangerous_is_recommended(version: Version) {
    let mut snapshot = snapshot_of(TestServer::shared(version));
    check_grid(&snapshot);
    // Whatever a value is now, and whatever the counters say.
    for setting in &mut snapshot.settings {
        if setting.words.iter().any(|word| word == "on") || matches!(setting.value.as_str(), "on" | "off") {
            setting.value = if setting.value == "on" { "off" } else { "on" }.to_owned();
        }
    }
    snapshot.evidence.checkpoints = Some(sluice_lab::review::Checkpoints { timed: 1.0, requested: 1_000_000.0 });
    snapshot.evidence.wal = Some(sluice_lab::review::Wal { bytes: 1e12, page_images: 1e9, buffers_full: 1e9 });
    check_grid(&snapshot);
}

fn check_grid(snapshot: &Snapshot) {
    for instance in grid() {
        let report = reviewed(snapshot, instance);
        for (name, value) in recommended(&report) {
            assert!(!NEVER.contains(&(name, value)), "{name} = {value} for {instance}");
            check_limits(snapshot, name, value, &instance);
        }
        check_memory(&report, &instance);
    }
}

fn check_limits(snapshot: &Snapshot, name: &str, value: &str, instance: &Instance) {
    let setting = snapshot.get(name).unwrap();
    let Some(amount) = Quantity::parse(value, setting.unit()).map(|number| number.amount_in(setting.unit())) else {
        return;
    };
    let (min, max) = (setting.min.unwrap_or(f64::MIN), setting.max.unwrap_or(f64::MAX));
    assert!((min..=max).contains(&amount), "{name} = {value} is outside {min} to {max} for {instance}");
}

/// `shared_buffers`, one `work_mem` for each connection, `maintenance_work_mem` for three autovacuum workers and one
/// more, and `wal_buffers` at its most automatic.
fn check_memory(report: &Report, instance: &Instance) {
    let bytes = |name: &str| {
        let row = report.rows.iter().find(|row| row.name == name).unwrap();
        Quantity::parse(&row.recommended, Unit::PLAIN).unwrap().amount
    };
    let connections = f64::from(instance.connections.unwrap());
    let shared = bytes("shared_buffers");
    let sum = shared + connections * bytes("work_mem") + 4.0 * bytes("maintenance_work_mem") + shared / 32.0;
    assert!(sum <= instance.memory_bytes.unwrap() as f64, "{sum} bytes for {instance}");
}

/// The settings of `sluice up` must not be called dangerous by `sluice review`.
#[test]
fn the_defaults_of_sluice_up_draw_no_high_risk() {
    let plain = snapshot_of(TestServer::shared(Version::V15));
    for memory_bytes in MEMORY {
        let tuning = Tuning::new(sluice_instance::Host { memory_bytes, open_files: 1 << 20 }, 20);
        let mut snapshot = plain.clone();
        for (name, value, unit) in [
            ("max_connections", u64::from(tuning.connections), ""),
            ("shared_buffers", tuning.shared_buffers_bytes / 8192, "8kB"),
            ("effective_cache_size", tuning.effective_cache_bytes / 8192, "8kB"),
            ("max_wal_size", 2048, "MB"),
            ("min_wal_size", 256, "MB"),
        ] {
            let setting = snapshot.settings.iter_mut().find(|setting| setting.name == name).unwrap();
            (setting.value, setting.unit) = (value.to_string(), unit.to_owned());
        }
        let report = reviewed(&snapshot, Instance { pool: true, ..instance(memory_bytes, 2, Workload::Mixed) });
        for row in report.rows.iter().filter(|row| row.status.asks()) {
            assert!(row.risk.level < Level::High, "{} = {}: {}", row.name, row.value, row.risk.note);
        }
        let row = report.rows.iter().find(|row| row.name == "effective_cache_size").unwrap();
        assert_eq!(row.status, Status::Fine, "{} of {memory_bytes}", row.value);
    }
}

versions!(nothing_dangerous_is_recommended);
