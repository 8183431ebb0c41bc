//! Preconditions of a run: a directory of its own, room, pgbench, and turns that can be taken.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use super::Order;
use crate::{
    error::Error,
    plan::{Plan, PlannedTurn},
    process,
};

const LOCK: &str = ".lock";

/// Held for as long as a run is at work in its directory; the kernel lets go of it, however the run ends.
pub(super) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let file = File::create(&path).map_err(Error::file("create", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file, path }),
            Err(TryLockError::WouldBlock) => Err(Error::Input(format!(
                "a run is at work in {}\nwait for its end, or choose another --output",
                dir.display()
            ))),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", &path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Says before the first turn which ones can't be taken; an error if that is all of them.
pub(super) fn tell_what_lacks(order: &Order, has_gate: bool) -> Result<(), Error> {
    let plan = order.plan;
    let turns = plan.turns();
    let lacks = |turn: &PlannedTurn| plan.lacks(turn).or_else(|| plan.targets[turn.target].lacks(has_gate));
    let lacking: Vec<(&PlannedTurn, String)> = turns.iter().filter_map(|turn| Some((turn, lacks(turn)?))).collect();
    if lacking.len() == turns.len() {
        let reasons: BTreeSet<&str> = lacking.iter().map(|(_, why)| why.as_str()).collect();
        return Err(Error::Lacking(reasons.into_iter().collect::<Vec<_>>().join("\n")));
    }
    for (turn, why) in lacking.iter().filter(|(turn, _)| turn.round == 1) {
        let case = plan.case(turn);
        order
            .progress
            .warn(&format!("{}, {} clients, {}: will be skipped: {why}", case.variant, case.clients, case.target));
    }
    Ok(())
}

/// Tables and logs of the laboratory's server need it; a DSN's server has its own.
pub(super) fn check_disk(plan: &Plan, dir: &Path) -> Result<(), Error> {
    let free = sluice_instance::free_bytes(dir).map_err(Error::file("look at the disk of", dir))?;
    if plan.targets.iter().all(|target| !target.is_own()) || free >= plan.disk_bytes() {
        return Ok(());
    }
    Err(Error::Lacking(format!(
        "{} has {} MB free, the scenario needs about {} MB\nchoose another disk with --output DIR, or less data with --rows N",
        dir.display(),
        free >> 20,
        plan.disk_bytes() >> 20
    )))
}

/// pgbench's program: the one of the PostgreSQL that is started, if one is.
pub(super) fn find_pgbench(pg_bin: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(bin) = pg_bin {
        let found = Some(bin.join("pgbench")).filter(|program| program.is_file());
        return found.ok_or_else(|| Error::Lacking(format!("--pg-bin: there is no pgbench in {}", bin.display())));
    }
    if let Ok(binaries) = sluice_instance::Binaries::find(None)
        && binaries.dir.join("pgbench").is_file()
    {
        return Ok(binaries.dir.join("pgbench"));
    }
    let found = process::find_in_path("pgbench");
    found.ok_or_else(|| Error::Lacking("pgbench is not installed: apt-get install postgresql-contrib".to_owned()))
}
