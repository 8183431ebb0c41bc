//! The options that all benchmarks have.

use std::path::PathBuf;

use super::Case;
use super::load::Load;

/// pgbench reports once a second; two are the least that have a first and a last report apart.
pub(crate) const SECONDS_MIN: u32 = 2;

/// Clients of `--quick`.
const QUICK_CLIENTS: u32 = 8;

#[derive(clap::Args)]
pub(crate) struct Common {
    /// Length of a turn
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: u32,
    /// Turns of each target in each case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
    /// One short turn of some cases with few clients: shows that all works, measures nothing
    #[arg(long, conflicts_with_all = ["seconds", "turns", "scale"])]
    pub(crate) quick: bool,
    /// pgbench's scale; 50 is 0.75 GB, and more branches than transactions that run at once
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60))]
    scale: u32,
    /// Directory of PostgreSQL's programs (Debian's PostgreSQL 15, or what `pg_config` says)
    #[arg(long)]
    pub(crate) pg_bin: Option<PathBuf>,
    /// Where the databases are put, for their time; a fast disk
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

impl Common {
    pub(crate) fn seconds(&self) -> u32 {
        if self.quick { SECONDS_MIN } else { self.seconds }
    }

    pub(crate) fn turns(&self) -> u32 {
        if self.quick { 1 } else { self.turns }
    }

    pub(crate) fn scale(&self) -> u32 {
        if self.quick { 1 } else { self.scale }
    }

    pub(crate) fn load(&self, load: Load) -> Load {
        if self.quick { load.at_most(QUICK_CLIENTS) } else { load }
    }

    /// The cases to run: those asked for, or all; `--quick` leaves some out.
    pub(crate) fn cases<C: Case>(&self, wanted: &[&'static C]) -> Vec<&'static C> {
        let is_wanted = |case: &&'static C| match wanted {
            [] => (!self.quick || case.is_quick()) && !case.is_on_demand(),
            cases => cases.iter().any(|wanted| wanted.name() == case.name()),
        };
        C::all().iter().filter(is_wanted).collect()
    }
}
