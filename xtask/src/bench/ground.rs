//! Preparations that every benchmark makes before its first turn, and the facts that it finds out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::cluster::{self, Cluster, Make};
use super::options::Common;
use super::{machine, measure};
use sluice_lab::process::{self, Interrupt};

/// Descriptors that a benchmark needs besides those of pgbench's clients.
const FILES_BESIDES: u64 = 100;

/// To be dropped behind what runs in its directory.
pub(crate) struct Ground {
    pub(crate) interrupt: Interrupt,
    /// Directory of PostgreSQL's programs.
    pub(crate) bin: PathBuf,
    pub(crate) scratch: TempDir,
    shared_buffers: &'static str,
    scale: u32,
    open_files: u64,
}

impl Ground {
    pub(crate) fn prepare(options: &Common) -> Result<Self> {
        let interrupt = Interrupt::install()?;
        measure::check_kernel()?;
        Ok(Self {
            interrupt,
            bin: cluster::find_bin(options.pg_bin.as_deref())?,
            scratch: scratch_dir(options.dir.as_deref())?,
            shared_buffers: if options.quick { "128MB" } else { "1GB" },
            scale: options.scale(),
            open_files: process::raise_open_files(),
        })
    }

    /// A cluster of this name, filled, with these libraries loaded by the server.
    pub(crate) fn cluster(&self, name: &str, libraries: &str) -> Result<Cluster> {
        eprintln!("Filling {name} at scale {} in {}", self.scale, self.scratch.path().display());
        let make =
            Make { bin: &self.bin, scratch: self.scratch.path(), name, shared_buffers: self.shared_buffers, libraries };
        let cluster = Cluster::start(&make, &self.interrupt)?;
        cluster.fill(self.scale)?;
        Ok(cluster)
    }

    pub(crate) fn postgres_version(&self) -> Option<String> {
        machine::first_line(&self.bin.join("postgres"), "--version")
    }

    /// Why so many clients can't run here, if they can't.
    pub(crate) fn lack_of_files(&self, clients: u32) -> Option<String> {
        let (needed, limit) = (u64::from(clients) + FILES_BESIDES, self.open_files);
        (needed > limit).then(|| format!("needs {needed} open files, the limit (ulimit -Hn) is {limit}"))
    }
}

/// Servers that don't run as root must be able to pass through it.
pub(crate) fn scratch_dir(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("sluice-bench-").permissions(fs::Permissions::from_mode(0o755));
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    builder.tempdir_in(&parent).with_context(|| format!("can't create a directory in {}", parent.display()))
}
