//! An instance's class on the command line.

use clap::Args;
use sluice_instance::{Class, Connections, Cpus, Iops, Memory};

/// Arguments that limit an instance; clap refuses what can't be.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Instance class")]
pub(crate) struct ClassArgs {
    /// Memory of PostgreSQL's processes, page cache included, for example 1GB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
    /// Processors that PostgreSQL may use, for example 1 or 0.5
    #[arg(long, value_name = "N")]
    cpus: Option<Cpus>,
    /// Reads a second, and writes a second, on the disk of the data directory
    #[arg(long, value_name = "N")]
    iops: Option<Iops>,
    /// Connections of PostgreSQL: the pool's, and 10 in reserve
    #[arg(long, value_name = "N")]
    connections: Option<Connections>,
}

impl From<ClassArgs> for Class {
    fn from(args: ClassArgs) -> Self {
        let ClassArgs { memory, cpus, iops, connections } = args;
        Self { memory, cpus, iops, connections }
    }
}
