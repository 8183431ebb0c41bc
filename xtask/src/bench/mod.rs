//! The parts that benchmarks share: a PostgreSQL made for them, pgbench as the client, and turns within one run.
//!
//! Machines drift: they heat, neighbours come and go. So no target is measured at a stretch; each round runs every
//! target once, in an order that rotates, and what is compared is compared within a round. A benchmark starts all it
//! needs on free ports, touches no service of the machine, and leaves no process behind.
//!
//! Nothing here knows what is measured against what: that is in the chores.

pub(crate) mod bars;
pub(crate) mod cluster;
pub(crate) mod ground;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod options;
pub(crate) mod results;
pub(crate) mod rounds;
pub(crate) mod turn;
pub(crate) mod user;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

/// One row of a benchmark.
pub(crate) trait Case: Sized + 'static {
    /// All there are, in their order.
    fn all() -> &'static [Self];

    fn name(&self) -> &'static str;

    /// Whether it is part of `--quick`.
    fn is_quick(&self) -> bool;

    /// Whether it runs only where its name is given.
    fn is_on_demand(&self) -> bool {
        false
    }

    /// For the command line.
    fn parse(name: &str) -> Result<&'static Self, String> {
        Self::all().iter().find(|case| case.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().iter().map(Self::name).collect();
            format!("there is no such case; the cases are {}", names.join(", "))
        })
    }
}

/// The path of a benchmark's results, less the extension. `--quick` measures nothing, so it does not
/// write over what was measured.
pub(crate) fn output(name: &str, is_quick: bool) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let suffix = if is_quick { "-quick" } else { "" };
    target.canonicalize().unwrap_or(target).join(format!("{name}{suffix}"))
}

/// Writes what was measured: `.json` for programs, `.md` for people.
pub(crate) fn store(output: &Path, records: &impl Serialize, markdown: &str) -> Result<()> {
    let json = serde_json::to_string_pretty(records).context("can't write the records as JSON")?;
    fs::create_dir_all(output.parent().unwrap_or(Path::new(".")))?;
    for (extension, text) in [("json", &*(json + "\n")), ("md", markdown)] {
        let path = output.with_extension(extension);
        fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}
