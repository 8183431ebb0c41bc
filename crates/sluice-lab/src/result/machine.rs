//! The machine and the servers behind the figures; figures without them say little.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine that everything ran on: pgbench, the pool, and servers that are not told by a DSN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that may be used.
    pub cores: u32,
    /// Main memory.
    pub memory_mb: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution's name.
    pub system: String,
    /// The load of the last minute at the start.
    pub load: Option<f64>,
    /// Limits of the control group that this runs in.
    pub group: GroupLimits,
    /// The disk below the data, if it was probed.
    pub disk: Option<DiskProbe>,
    /// Round trips over loopback, by TCP, µs.
    pub loopback_round_trip_us: Option<f64>,
}

impl Machine {
    /// Whether it may be the same one: its disk, its network and its load are not looked at.
    pub fn is_like(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> (&str, u32, u64, &str, &str, &GroupLimits) {
        (&self.cpu, self.cores, self.memory_mb, &self.kernel, &self.system, &self.group)
    }
}

/// Limits of a control group; none is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory.
    pub memory_mb: Option<u64>,
    /// Requests to disks: `254:0 riops=400 wiops=400`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<String>,
}

/// The disk's speed, from a probe of a few seconds with direct I/O.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskProbe {
    /// The directory that was probed.
    pub directory: String,
    /// The device, where it is known.
    pub device: Option<String>,
    /// One row a kind of access.
    pub rows: Vec<DiskRow>,
    /// The reason why something was not probed.
    pub remark: Option<String>,
}

/// One kind of access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRow {
    /// "random read", "sequential write", "write and fsync".
    pub access: String,
    /// Bytes a request.
    pub block_bytes: u32,
    /// Requests under way at once.
    pub depth: u32,
    /// Requests a second.
    pub iops: f64,
    /// Megabytes a second.
    pub mb_per_s: f64,
    /// Mean latency of a request.
    pub mean_us: f64,
}

/// A server that answered, as it was during its turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `PostgreSQL 15.20 …`, and of what stands before it.
    pub versions: Vec<String>,
    /// The way in which it was reached, in words.
    pub reached: String,
    /// Settings that differ from PostgreSQL's own defaults.
    pub settings: BTreeMap<String, String>,
    /// The size of the database.
    pub database_bytes: Option<u64>,
    /// The share of it that was in shared buffers at the start, in percent.
    pub warm_percent: Option<f64>,
    /// Processors that it may use, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// The median round trip of an empty query, µs, where a DSN leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// The flushes that a commit there waits for, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitWait>,
}

/// The flushes that the commit of a transaction that has written waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitWait {
    /// Flushes of the write-ahead log, one after the other.
    pub flushes: u32,
    /// A list of them, with the settings that make it wait.
    pub why: String,
    /// The median round trip of an empty query from a standby's place to the primary, µs, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_round_trip_us: Option<f64>,
}
