//! PostgreSQL's settings behind a pool, and the pool's limits, from the machine's size.
//!
//! They go to `sluice.conf`, which `postgresql.conf` includes; what an operator sets below that line, or by
//! `ALTER SYSTEM`, wins. Where the server listens is given on the command line instead, and always holds.

use std::{fmt::Write, fs, num::NonZero, thread};

use nix::sys::resource::{Resource, getrlimit};

use crate::{
    binaries::Binaries,
    bootstrap::{GATE, LOOKUP_USER},
    class::{Class, Hierarchies, RESERVE},
    data_dir::POOL_SECRET,
};

const MIB: u64 = 1 << 20;

/// The setting that lists the libraries which may be output plugins.
const PLUGINS: &str = "output_plugin_libraries";

/// The pool's default.
const CLIENTS_MAX: u32 = 10_000;
/// Files that the pool has open beside its clients and servers: for those who have not logged in, for HTTP, and its own.
const FILES_RESERVE: u64 = 420;
/// Files of one of its workers beside those: connections that are being closed, and its own.
const FILES_OF_WORKER: u64 = 40;
/// PostgreSQL's own default, and Sluice's least.
const CONNECTIONS_MIN: u32 = 100;
/// A quarter of the smallest class.
const SHARED_BUFFERS_MIN: u64 = 32 * MIB;
/// The operating system's cache serves what is beyond; raise it on a machine that is PostgreSQL's alone.
const SHARED_BUFFERS_MAX: u64 = 1024 * MIB;

/// The machine's quantities that the settings depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Main memory in bytes, or the lowest limit of the control groups.
    pub memory_bytes: u64,
    /// Files that this process may have open at most, once it has raised its limit, beside those of the pool's workers.
    pub open_files: u64,
}

impl Host {
    /// This machine; a quantity that can't be read counts as small.
    pub fn current() -> Self {
        Self::within_groups(&Hierarchies::current())
    }

    /// The same, with the limits of these control groups.
    pub fn within_groups(groups: &Hierarchies) -> Self {
        let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text)).unwrap_or(512 * MIB);
        let limit = groups.memory_limit_bytes().unwrap_or(u64::MAX);
        let (_, open_files) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
        // The pool has a worker for every two.
        let processors = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let open_files = open_files.saturating_sub(FILES_OF_WORKER * processors.div_ceil(2));
        Self { memory_bytes: total.min(limit), open_files }
    }

    /// As an instance of that class sees it.
    #[must_use]
    pub fn within(self, class: &Class) -> Self {
        let limit = class.memory.map_or(u64::MAX, |memory| memory.bytes());
        Self { memory_bytes: self.memory_bytes.min(limit), ..self }
    }
}

/// `MemTotal` in bytes.
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The pool's servers do not fit into the class. Configuration; trying again does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pool of {pool_size} does not fit into {connections} connections, of which {RESERVE} are kept for superusers, \
     backups and monitoring\nchoose --pool-size {} at most, or --connections {} at least",
    connections - RESERVE, pool_size.saturating_add(RESERVE)
)]
pub struct PoolTooLarge {
    /// Servers a (database, user).
    pub pool_size: u32,
    /// The class's.
    pub connections: u32,
}

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// `max_connections`.
    pub connections: u32,
    /// `shared_buffers` in bytes.
    pub shared_buffers_bytes: u64,
    /// `effective_cache_size` in bytes.
    pub effective_cache_bytes: u64,
    /// Clients that the pool may have: as many as its files allow, at most 10,000.
    pub pool_clients_max: u32,
    /// Whether the server loads the gate.
    pub gate: bool,
    /// Whether it has to be told that the gate's library is an output plugin, as since minor releases of 2026.
    pub names_plugins: bool,
    /// Whether the server has the pool's secret beside its data.
    pub has_pool_secret: bool,
}

impl Tuning {
    /// For a machine, and a pool of `pool_size` servers a (database, user); without the gate.
    pub fn new(host: Host, pool_size: u32) -> Self {
        let connections = pool_size.saturating_add(RESERVE).max(CONNECTIONS_MIN);
        let files_left = host.open_files.saturating_sub(u64::from(connections) + FILES_RESERVE);
        Self {
            connections,
            pool_clients_max: u32::try_from(files_left).unwrap_or(u32::MAX).clamp(1, CLIENTS_MAX),
            shared_buffers_bytes: (host.memory_bytes / 4).clamp(SHARED_BUFFERS_MIN, SHARED_BUFFERS_MAX),
            effective_cache_bytes: (host.memory_bytes / 2).max(SHARED_BUFFERS_MIN),
            gate: false,
            names_plugins: false,
            has_pool_secret: true,
        }
    }

    /// For an instance of a class, on a machine. What the class leaves open is as in [`Tuning::new`].
    pub fn for_class(class: &Class, host: Host, pool_size: u32) -> Result<Self, PoolTooLarge> {
        let tuning = Self::new(host.within(class), pool_size);
        match class.connections {
            Some(connections) if pool_size > connections.for_pool() => {
                Err(PoolTooLarge { pool_size, connections: connections.number() })
            }
            Some(connections) => Ok(Self { connections: connections.number(), ..tuning }),
            None => Ok(tuning),
        }
    }

    /// With the gate, where these programs have it.
    #[must_use]
    pub fn with_gate_of(self, binaries: &Binaries) -> Self {
        let gate = binaries.has_library(GATE);
        Self { gate, names_plugins: gate && binaries.has_setting(PLUGINS), ..self }
    }

    /// The number of connections that the pool may open in all, so that the reserve stays free.
    pub fn pool_servers_max(&self) -> u32 {
        self.connections - RESERVE
    }

    /// The text of `sluice.conf`.
    pub(crate) fn to_conf(self) -> String {
        let mut conf = String::from(
            "# Written by sluice at each start: changes made here are lost.\n\
             # Put your own settings into postgresql.conf, below the line that includes this file.\n",
        );
        let rows = [
            ("max_connections", self.connections.to_string(), "the pool's servers and a reserve"),
            ("shared_buffers", mib(self.shared_buffers_bytes), "a quarter of the memory (the class's), at most 1 GB"),
            ("effective_cache_size", mib(self.effective_cache_bytes), "half of the memory"),
            ("max_wal_size", "2GB".to_owned(), "checkpoints by time, not by volume"),
            ("min_wal_size", "256MB".to_owned(), ""),
            ("password_encryption", "'scram-sha-256'".to_owned(), ""),
            ("log_line_prefix", "'%m [%p] %q%u@%d '".to_owned(), ""),
            ("lc_messages", "'C'".to_owned(), "sluice reads the log to explain failures"),
        ];
        let gate = [
            ("shared_preload_libraries", format!("'{GATE}'"), "the gate; its limits are found by themselves"),
            ("sluice.exempt_roles", format!("'{LOOKUP_USER}'"), "log-ins do not wait"),
            ("sluice.pool_secret_file", format!("'../{POOL_SECRET}'"), "by it the pool says where clients are"),
        ];
        let gate = gate.into_iter().take(if self.has_pool_secret { 3 } else { 2 }).filter(|_| self.gate);
        let plugins = (PLUGINS, format!("'pgoutput, test_decoding, {GATE}'"), "its plugin waits for standbys");
        let plugins = self.names_plugins.then_some(plugins);
        for (name, value, reason) in rows.into_iter().chain(gate).chain(plugins) {
            let comment = if reason.is_empty() { String::new() } else { format!("  # {reason}") };
            // Writing to a String can't fail.
            let _ = writeln!(conf, "{name} = {value}{comment}");
        }
        conf
    }
}

fn mib(bytes: u64) -> String {
    format!("{}MB", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_memory_and_pool_size() {
        for (memory_mib, pool_size, connections, shared_mib) in [
            (64, 20, 100, 32),
            (256, 20, 100, 64),
            (2048, 20, 100, 512),
            (24_000, 200, 210, 1024),
            (24_000, u32::MAX, u32::MAX, 1024),
        ] {
            let tuning = Tuning::new(Host { memory_bytes: memory_mib * MIB, open_files: 1 << 20 }, pool_size);
            assert_eq!((tuning.connections, tuning.shared_buffers_bytes / MIB), (connections, shared_mib));
            assert_eq!(tuning.pool_servers_max(), connections - RESERVE);
        }
    }

    #[test]
    fn by_class() {
        let host = Host { memory_bytes: 24_000 * MIB, open_files: 1 << 20 };
        let class = |memory: &str, connections: &str| Class {
            memory: memory.parse().ok(),
            connections: connections.parse().ok(),
            ..Class::default()
        };
        let tuning = Tuning::for_class(&class("1GB", "100"), host, 20).unwrap();
        assert_eq!((tuning.shared_buffers_bytes / MIB, tuning.effective_cache_bytes / MIB), (256, 512));
        assert_eq!((tuning.connections, tuning.pool_servers_max()), (100, 90));
        assert_eq!(Tuning::for_class(&Class::default(), host, 20), Ok(Tuning::new(host, 20)));
        // A class can't be larger than the machine.
        let tuning = Tuning::for_class(&class("1TB", ""), host, 20).unwrap();
        assert_eq!(tuning, Tuning::new(host, 20));

        let tuning = Tuning::for_class(&class("", "30"), host, 20).unwrap();
        assert_eq!(tuning.pool_servers_max(), 20);
        let error = Tuning::for_class(&class("", "29"), host, 20).unwrap_err().to_string();
        assert!(error.contains("choose --pool-size 19 at most, or --connections 30 at least"), "{error}");
    }

    #[test]
    fn the_gate_is_loaded_where_it_is() {
        let tuning = Tuning::new(Host { memory_bytes: MIB, open_files: 1024 }, 20);
        assert!(!tuning.to_conf().contains("sluice'"));
        let conf = Tuning { gate: true, ..tuning }.to_conf();
        assert!(conf.contains("shared_preload_libraries = 'sluice'") && !conf.contains(PLUGINS), "{conf}");
        let conf = Tuning { gate: true, names_plugins: true, ..tuning }.to_conf();
        assert!(conf.contains("\noutput_plugin_libraries = 'pgoutput, test_decoding, sluice'  # "), "{conf}");
    }

    #[test]
    fn clients_by_open_files() {
        for (open_files, clients) in [(1 << 20, 10_000), (4096, 4096 - 100 - 420), (64, 1), (u64::MAX, 10_000)] {
            assert_eq!(Tuning::new(Host { memory_bytes: MIB, open_files }, 20).pool_clients_max, clients);
        }
    }

    #[test]
    fn memory() {
        assert_eq!(parse_meminfo("MemTotal:       24684288 kB\nMemFree: 1 kB\n"), Some(24_684_288 * 1024));
        assert_eq!(parse_meminfo("MemFree: 1 kB\n"), None);
        assert!(Host::current().memory_bytes >= 64 * MIB);
    }
}
