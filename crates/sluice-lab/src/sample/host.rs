//! The kernel's figures of the machine: `/proc/stat`, `diskstats`, `meminfo`, `pressure`, and processes.

use std::{fs, time::Instant};

use sluice_instance::Disk;

use super::{
    Rates, Subject, Value,
    group::{self, Group, pressure_us},
    metrics,
};
use crate::proc;

/// A tree of more processes is looked at less often: to walk it costs some µs each.
const TREE_SMALL: usize = 200;
const LARGE_TREE_EVERY: u32 = 5;
/// Of `diskstats`, whatever the disk's own sectors are.
const SECTOR_BYTES: f64 = 512.0;

/// The machine, seen from a turn's processes.
pub(super) struct Host {
    cores: f64,
    postmaster: Option<u32>,
    pool: Option<u32>,
    /// The sampler's own session.
    backend: Option<u32>,
    /// `8:0` of the data's disk.
    disk: Option<String>,
    group: Option<Group>,
    rates: Rates,
    looks: u32,
    /// PostgreSQL's processor time at the last look that was taken, when that was, and of how many processes.
    postgres: Option<(Instant, f64, usize)>,
    missing: Vec<String>,
}

impl Host {
    pub(super) fn new(subject: &Subject, backend: Option<u32>) -> Self {
        let disk = subject.data_dir.as_deref().and_then(|dir| Disk::below(dir).ok()).map(|disk| disk.to_string());
        let disk = disk.filter(|disk| disk_line(&read("/proc/diskstats"), disk).is_some());
        let group = subject.postmaster.and_then(Group::of);
        let mut missing = Vec::new();
        if subject.postmaster.is_none() {
            missing.push("PostgreSQL's processor time and disk: it is not on this machine, or not ours".to_owned());
        } else if disk.is_none() {
            missing.push("the data's disk: /proc/diskstats has no such device".to_owned());
        }
        if fs::read_to_string("/proc/pressure/io").is_err() {
            missing.push("pressure: this kernel has no /proc/pressure (CONFIG_PSI)".to_owned());
        }
        Self {
            cores: f64::from(proc::machine_cores()),
            postmaster: subject.postmaster,
            pool: subject.pool,
            backend: backend.filter(|_| subject.postmaster.is_some()),
            disk,
            group,
            rates: Rates::default(),
            looks: 0,
            postgres: None,
            missing,
        }
    }

    pub(super) fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// Of the session that the sampler asks PostgreSQL by.
    pub(super) fn backend_cpu_s(&self) -> Option<f64> {
        self.backend.map(proc::tree_cpu_s)
    }

    pub(super) fn sample(&mut self, pgbench: Option<u32>) -> Vec<Value> {
        let at = Instant::now();
        self.looks += 1;
        let mut counters = cpu_counters(&read("/proc/stat"));
        counters.extend(
            self.disk.as_deref().and_then(|disk| disk_counters(&read("/proc/diskstats"), disk)).into_iter().flatten(),
        );
        for (column, name) in
            [(metrics::PRESSURE_CPU, "cpu"), (metrics::PRESSURE_IO, "io"), (metrics::PRESSURE_MEMORY, "memory")]
        {
            let total = pressure_us(&read(&format!("/proc/pressure/{name}")));
            counters.extend(total.map(|total_us| (column.to_owned(), total_us)));
        }
        counters.extend(self.group.as_ref().map(Group::counters).into_iter().flatten());
        let trees = [(metrics::CPU_POOL, self.pool), (metrics::CPU_PGBENCH, pgbench)];
        counters
            .extend(trees.into_iter().filter_map(|(column, pid)| Some((column.to_owned(), proc::tree_cpu_s(pid?)))));
        let postgres_cores = self.look_at_postgres();

        let memory = read("/proc/meminfo");
        let mut values: Vec<Value> = [(metrics::DIRTY_MB, "Dirty:"), (metrics::AVAILABLE_MB, "MemAvailable:")]
            .into_iter()
            .filter_map(|(column, key)| Some((column.to_owned(), proc::value_kb(&memory, key)? as f64 / 1024.0)))
            .collect();
        let rss_kb = self.pool.and_then(proc::rss_kb);
        values.extend(rss_kb.map(|kb| (metrics::POOL_RSS.to_owned(), kb as f64 / 1024.0)));
        if let Some(rise) = self.rates.rise(at, counters) {
            values.extend(self.rates_of(&rise, postgres_cores));
        }
        values
    }

    /// Rates in the columns' units.
    fn rates_of(&self, rise: &super::Rise, postgres_cores: Option<f64>) -> Vec<Value> {
        let mut values = Vec::new();
        let mut put = |column: &str, value: Option<f64>| values.extend(value.map(|value| (column.to_owned(), value)));
        let all: f64 = CPU_COLUMNS.iter().filter_map(|(column, _)| rise.of(column)).sum();
        for (column, _) in CPU_COLUMNS {
            put(column, rise.of(column).filter(|_| all > 0.0).map(|ticks| 100.0 * ticks / all));
        }
        for column in [metrics::DISK_READS, metrics::DISK_WRITES, metrics::GROUP_READS, metrics::GROUP_WRITES] {
            put(column, rise.rate(column));
        }
        for column in [metrics::DISK_READ_MB, metrics::DISK_WRITE_MB] {
            put(column, rise.rate(column).map(|sectors| sectors * SECTOR_BYTES / 1e6));
        }
        put(metrics::DISK_BUSY, rise.rate(metrics::DISK_BUSY).map(|ms| (ms / 10.0).min(100.0)));
        let pressures = [
            metrics::PRESSURE_CPU,
            metrics::PRESSURE_IO,
            metrics::PRESSURE_MEMORY,
            metrics::GROUP_PRESSURE_CPU,
            metrics::GROUP_PRESSURE_IO,
            metrics::GROUP_PRESSURE_MEMORY,
        ];
        for column in pressures {
            put(column, rise.rate(column).map(|us| (us / 1e4).min(100.0)));
        }
        let throttled = rise.of(group::THROTTLED).zip(rise.of(group::PERIODS));
        put(metrics::THROTTLED, throttled.map(|(throttled, periods)| 100.0 * throttled / periods.max(1.0)));

        let (pool, pgbench) = (rise.rate(metrics::CPU_POOL), rise.rate(metrics::CPU_PGBENCH));
        put(metrics::CPU_POOL, pool);
        put(metrics::CPU_PGBENCH, pgbench);
        put(metrics::GROUP_CPU, rise.rate(metrics::GROUP_CPU));
        put(metrics::CPU_POSTGRES, postgres_cores);
        if let Some(postgres) = postgres_cores {
            let busy: f64 = [metrics::CPU_USER, metrics::CPU_SYSTEM].iter().filter_map(|column| rise.of(column)).sum();
            let ours = postgres + pool.unwrap_or(0.0) + pgbench.unwrap_or(0.0);
            put(metrics::CPU_OTHERS, (all > 0.0).then(|| (self.cores * busy / all - ours).max(0.0)));
        }
        values
    }

    /// Processors that PostgreSQL has used since the last look at it; none if this is not one.
    fn look_at_postgres(&mut self) -> Option<f64> {
        let postmaster = self.postmaster?;
        let is_large = self.postgres.is_some_and(|(.., processes)| processes > TREE_SMALL);
        if is_large && !self.looks.is_multiple_of(LARGE_TREE_EVERY) {
            return None;
        }
        let processes = proc::tree(postmaster);
        let (at, cpu_s) = (Instant::now(), proc::cpu_s(&processes));
        let (then, before_s, _) = self.postgres.replace((at, cpu_s, processes.len()))?;
        let seconds = at.duration_since(then).as_secs_f64();
        (seconds > 0.0).then(|| (cpu_s - before_s).max(0.0) / seconds)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The fields of `/proc/stat`'s first line that each column sums up; guest time is part of user time already.
const CPU_COLUMNS: [(&str, &[usize]); 5] = [
    (metrics::CPU_USER, &[0, 1]),
    (metrics::CPU_SYSTEM, &[2, 5, 6]),
    (metrics::CPU_IDLE, &[3]),
    (metrics::CPU_IO_WAIT, &[4]),
    (metrics::CPU_STEAL, &[7]),
];

fn cpu_counters(stat: &str) -> Vec<Value> {
    let Some(line) = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")) else { return Vec::new() };
    let fields: Vec<f64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    let sum = |places: &[usize]| places.iter().filter_map(|place| fields.get(*place)).sum();
    CPU_COLUMNS.iter().map(|(column, places)| ((*column).to_owned(), sum(places))).collect()
}

/// The fields behind a device's name.
fn disk_line<'a>(diskstats: &'a str, device: &str) -> Option<Vec<&'a str>> {
    let (major, minor) = device.split_once(':')?;
    diskstats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        (fields.first() == Some(&major) && fields.get(1) == Some(&minor)).then(|| fields[3..].to_vec())
    })
}

/// Reads, sectors read, writes, sectors written, ms busy (the kernel's "I/O statistics fields").
fn disk_counters(diskstats: &str, device: &str) -> Option<Vec<Value>> {
    let fields = disk_line(diskstats, device)?;
    let places = [
        (metrics::DISK_READS, 0),
        (metrics::DISK_READ_MB, 2),
        (metrics::DISK_WRITES, 4),
        (metrics::DISK_WRITE_MB, 6),
        (metrics::DISK_BUSY, 9),
    ];
    places.iter().map(|(column, place)| Some(((*column).to_owned(), fields.get(*place)?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_by_what_they_do() {
        let counters = cpu_counters("cpu  10 1 20 300 5 2 3 40 7 0\ncpu0 1 1 1 1\n");
        let of = |column: &str| counters.iter().find(|(name, _)| name == column).map(|(_, value)| *value);
        assert_eq!(of(metrics::CPU_USER), Some(11.0));
        assert_eq!(of(metrics::CPU_SYSTEM), Some(25.0));
        assert_eq!((of(metrics::CPU_IDLE), of(metrics::CPU_STEAL)), (Some(300.0), Some(40.0)));
        assert!(cpu_counters("").is_empty());
    }

    #[test]
    fn the_disk_below() {
        let text = " 254       0 vda 100 5 800 7 200 6 1600 9 0 55 66 0 0 0 0\n 254  1 vda1 1 2 3 4 5 6 7 8 9 10 11\n";
        let counters = disk_counters(text, "254:0").unwrap();
        let values: Vec<f64> = counters.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [100.0, 800.0, 200.0, 1600.0, 55.0]);
        assert_eq!(disk_counters(text, "8:0"), None);
    }
}
