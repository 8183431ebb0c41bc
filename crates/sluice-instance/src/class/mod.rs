//! Instance classes: how much memory, processor time and disk an instance may use, and how many connections it has.
//!
//! A [`Class`] is what was asked for; a [`ClassReport`] says what the kernel enforces of it, as read back from its
//! own files. The limits are those of PostgreSQL's processes alone: the pool is not in the groups.
//!
//! | file | what it is about |
//! |---|---|
//! | `units.rs` | the limits as checked values |
//! | `report.rs`, `obstacle.rs` | what became of each limit, and why not |
//! | `hierarchy.rs`, `device.rs` | what the machine has: control groups, the disk of a directory |
//! | `setting.rs`, `v1.rs`, `v2.rs` | what is written for a limit in each version of control groups |
//! | `group_fs.rs` | the kernel's files, as a trait |
//! | `group.rs`, `ledger.rs` | an instance's groups, and how the next start finds what a killed one left |

mod device;
#[cfg(test)]
mod fake;
mod group;
mod group_fs;
mod hierarchy;
mod ledger;
mod obstacle;
mod report;
mod setting;
#[cfg(test)]
mod tests;
mod units;
mod v1;
mod v2;

use std::{fmt, time::Duration};

pub use self::{
    device::Disk,
    hierarchy::{Controller, GroupDir, Hierarchies},
    obstacle::Obstacle,
    report::{ClassReport, Limit, Outcome, ReadBack},
    units::{Connections, Cpus, Iops, LimitError, Memory},
};
pub(crate) use self::{group::ClassGroup, units::RESERVE};

/// PostgreSQL's `block_size`.
const PAGE_BYTES: u64 = 8192;

/// An instance's class; what is left out is not limited. Its `Display` reads
/// `memory 1GB, cpus 1, iops 400, connections 100`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Class {
    /// All memory of its processes, page cache included, without swap.
    pub memory: Option<Memory>,
    /// Processor time.
    pub cpus: Option<Cpus>,
    /// Reads a second, and writes a second, on the disk of the data directory.
    pub iops: Option<Iops>,
    /// `max_connections`: those of the pool, and a reserve.
    pub connections: Option<Connections>,
}

impl Class {
    /// The limits that the kernel is to enforce.
    pub(crate) fn limits(&self) -> impl Iterator<Item = Limit> {
        let (memory, cpus, iops) =
            (self.memory.map(Limit::Memory), self.cpus.map(Limit::Cpus), self.iops.map(Limit::Iops));
        [memory, cpus, iops].into_iter().flatten()
    }

    /// The least time that it takes to write `bytes` of scattered pages of 8 kB: a checkpoint before a shutdown may
    /// need that much besides the time that it has without a class.
    pub fn time_to_write(&self, bytes: u64) -> Duration {
        self.iops.map_or(Duration::ZERO, |iops| Duration::from_secs(bytes / PAGE_BYTES / u64::from(iops.per_second())))
    }

    /// This one, with another's limits where it has any.
    pub fn overlaid(self, other: Self) -> Self {
        Self {
            memory: other.memory.or(self.memory),
            cpus: other.cpus.or(self.cpus),
            iops: other.iops.or(self.iops),
            connections: other.connections.or(self.connections),
        }
    }

    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("no limits");
        }
        let connections = self.connections.map(|connections| format!("connections {connections}"));
        let parts: Vec<String> = self.limits().map(|limit| limit.to_string()).chain(connections).collect();
        f.write_str(&parts.join(", "))
    }
}
