//! What the benchmarks share: a PostgreSQL made for them, pgbench as the client, and turns within one run.
//!
//! Machines drift: they heat, neighbours come and go. So no target is measured at a stretch; each round runs every
//! target once, in an order that rotates, and what is compared is compared within a round. A benchmark starts all it
//! needs on free ports, touches no service of the machine, and leaves no process behind.
//!
//! Nothing here knows what is measured against what: that is in the chores.

pub(crate) mod bars;
pub(crate) mod cluster;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod pgbench;
pub(crate) mod process;
pub(crate) mod results;
pub(crate) mod rounds;
pub(crate) mod table;
pub(crate) mod turn;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tempfile::TempDir;

/// pgbench reports once a second; two are the least that have a first and a last report apart.
pub(crate) const SECONDS_MIN: u32 = 2;

/// Clients of `--quick`.
pub(crate) const QUICK_CLIENTS: u32 = 8;

/// Descriptors that a benchmark needs besides those of pgbench's clients.
const FILES_BESIDES: u64 = 100;

/// One row of a benchmark.
pub(crate) trait Case: Sized + 'static {
    /// All there are, in their order.
    fn all() -> &'static [Self];

    fn name(&self) -> &'static str;

    /// For the command line.
    fn parse(name: &str) -> Result<&'static Self, String> {
        Self::all().iter().find(|case| case.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().iter().map(Self::name).collect();
            format!("there is no such case; the cases are {}", names.join(", "))
        })
    }
}

/// Servers that don't run as root must be able to pass through it.
pub(crate) fn scratch_dir(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("sluice-bench-").permissions(fs::Permissions::from_mode(0o755));
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    builder.tempdir_in(&parent).with_context(|| format!("can't create a directory in {}", parent.display()))
}

/// Why so many clients can't run here, if they can't.
pub(crate) fn lack_of_files(clients: u32, open_files: u64) -> Option<String> {
    let needed = u64::from(clients) + FILES_BESIDES;
    (needed > open_files).then(|| format!("needs {needed} open files, the limit (ulimit -Hn) is {open_files}"))
}

/// Where a benchmark of this name leaves its results, less the extension.
pub(crate) fn output(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    target.canonicalize().unwrap_or(target).join(name)
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
