//! The instance that recommendations are for: a machine, the number of its connections, and its use.
//!
//! A quantity that nobody told is absent, never guessed; the rows that need it say so.

use std::fmt;

use serde::Serialize;
use sluice_instance::{Hierarchies, Host};

use super::words::words;
use sluice_units::readable_bytes;

use crate::proc;

/// The use of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Many short transactions that read and write by key.
    Oltp,
    /// The same from a web application: mostly reads, more connections than work.
    Web,
    /// Few sessions with long queries over much data.
    Analytics,
    /// Something of each.
    #[default]
    Mixed,
}

/// The storage of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    /// No seeks: an SSD, or a network volume made of them.
    #[default]
    Ssd,
    /// Spinning.
    Hdd,
}

words!(Workload: "oltp" => Oltp, "web" => Web, "analytics" => Analytics, "mixed" => Mixed);
words!(Disk: "ssd" => Ssd, "hdd" => Hdd);

/// A machine, or the part of one that PostgreSQL may use.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Instance {
    /// Main memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processors.
    pub cores: Option<u32>,
    /// Connections at once; by default what `max_connections` says.
    pub connections: Option<u32>,
    /// Operations a second that the disk does; absent counts as more than PostgreSQL needs.
    pub iops: Option<u32>,
    /// The storage of the data.
    pub disk: Disk,
    /// The use of the database.
    pub workload: Workload,
    /// Whether clients come through a connection pool.
    pub pool: bool,
}

/// The place where a server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On another machine, or nobody knows.
    Elsewhere,
    /// On this machine, in control groups that may have limits of their own.
    Here(Hierarchies),
}

impl Instance {
    /// With memory and processors of the server's place where they were not told.
    #[must_use]
    pub fn or_those_of(self, place: Place) -> Self {
        let groups = match place {
            Place::Elsewhere => return self,
            Place::Here(groups) => groups,
        };
        let quota = groups.cpu_quota().map_or(u32::MAX, |quota| (quota.ceil() as u32).max(1));
        Self {
            memory_bytes: self.memory_bytes.or_else(|| Some(Host::within_groups(&groups).memory_bytes)),
            cores: self.cores.or_else(|| Some(proc::cores().min(quota))),
            ..self
        }
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory_bytes {
            Some(bytes) => write!(f, "{} of memory", readable_bytes(bytes as f64))?,
            None => f.write_str("memory unknown")?,
        }
        match self.cores {
            Some(1) => f.write_str(", 1 processor")?,
            Some(cores) => write!(f, ", {cores} processors")?,
            None => f.write_str(", processors unknown")?,
        }
        if let Some(connections) = self.connections {
            write!(f, ", {connections} connections")?;
        }
        write!(f, ", {}", self.disk)?;
        if let Some(iops) = self.iops {
            write!(f, " of {iops} operations a second")?;
        }
        write!(f, ", workload {}", self.workload)?;
        if self.pool { f.write_str(", behind a pool") } else { Ok(()) }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oltp => "oltp",
            Self::Web => "web",
            Self::Analytics => "analytics",
            Self::Mixed => "mixed",
        })
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ssd => "SSD",
            Self::Hdd => "HDD",
        })
    }
}
