//! The control groups of one instance: made within the group that Sluice runs in, limited, read back, filled with the
//! server, removed.
//!
//! Groups are made below Sluice's own only, never above or beside it: limits that were set on Sluice hold for its
//! PostgreSQL too, and nobody else's groups are touched. Nothing here fails: what can't be enforced is reported.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    Class, ClassReport, Limit, Obstacle, Outcome, ReadBack,
    device::Disk,
    group_fs::{self, GroupFs, Kernel},
    hierarchy::Hierarchies,
    ledger::Ledger,
    setting::{Demand, Setting},
    v1, v2,
};
use crate::name;

/// The file in the instance's directory that lists its groups.
const LEDGER: &str = "cgroups";

/// Time limit for the last process to leave a group after its end.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// The machine's side of the groups: whatever they depend on besides the class.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) hierarchies: Hierarchies,
    /// The disk of the data directory.
    pub(super) disk: Result<Disk, Obstacle>,
    /// This process.
    pub(super) pid: u32,
}

/// The groups of an instance; removed when dropped, which is to be after the server's end.
#[derive(Debug)]
pub(crate) struct ClassGroup {
    files: Box<dyn GroupFs>,
    ledger: Ledger,
    made: BTreeSet<PathBuf>,
    report: ClassReport,
    leftovers: Vec<PathBuf>,
}

impl ClassGroup {
    /// Makes the groups for a class, of the instance in `root` with its data in `pgdata`; first removes what an earlier
    /// run left. No server may run on the directory.
    pub(crate) fn create(class: &Class, root: &Path, pgdata: &Path) -> Self {
        let ledger = Ledger::read(root.join(LEDGER), name::of(root));
        let site = Site { hierarchies: Hierarchies::current(), disk: Disk::below(pgdata), pid: std::process::id() };
        Self::make(class, &site, ledger, Box::new(Kernel))
    }

    pub(super) fn make(class: &Class, site: &Site, mut ledger: Ledger, files: Box<dyn GroupFs>) -> Self {
        let leftovers = ledger.remove(&*files, |_| false);
        let (made, report) = (BTreeSet::new(), ClassReport::default());
        let mut groups = Self { files, ledger, made, report, leftovers };
        for limit in class.limits() {
            let outcome = groups.enforce(limit, site).map_or_else(Outcome::NotEnforced, Outcome::Enforced);
            groups.report.outcomes.push((limit, outcome));
        }
        groups.keep_needed();
        groups
    }

    /// The limits that are enforced, and those that are not.
    pub(crate) fn report(&self) -> &ClassReport {
        &self.report
    }

    /// Groups of an earlier run that [`ClassGroup::create`] removed.
    pub(crate) fn leftovers(&self) -> &[PathBuf] {
        &self.leftovers
    }

    /// Whether there is a group for the server to be in.
    pub(crate) fn is_limiting(&self) -> bool {
        !self.report.groups().is_empty()
    }

    /// Puts a server that has no children yet into all groups, and looks whether it is there. A group that does not
    /// take it enforces nothing any more, which the report says.
    pub(crate) fn admit(&mut self, pid: u32) {
        for group in self.report.groups() {
            if let Err(why) = group_fs::admit(&*self.files, &group, pid) {
                self.report.lose(&group, &why);
            }
        }
    }

    /// Removes the groups. What still has a process after some time is left to the next start.
    pub(crate) fn remove(&mut self) {
        let begin = Instant::now();
        loop {
            self.ledger.remove(&*self.files, |_| false);
            if self.ledger.groups().is_empty() {
                return;
            }
            if begin.elapsed() >= EMPTY_TIME_MAX {
                let groups = self.ledger.groups();
                tracing::warn!(?groups, "control groups still in use; the next start removes them");
                return;
            }
            thread::sleep(POLL);
        }
    }

    /// Sets one limit.
    fn enforce(&mut self, limit: Limit, site: &Site) -> Result<Vec<ReadBack>, Obstacle> {
        let demand = Demand::new(limit, || site.disk.clone())?;
        let (parent, settings) = self.find(demand, site)?;
        let group = self.ledger.group_in(&parent);
        self.make_group(&group)?;
        settings.iter().filter_map(|setting| setting.apply(&*self.files, &group).transpose()).collect()
    }

    /// The group for a limit, and the settings to write there: version 1 if that has the controller.
    fn find(&self, demand: Demand, site: &Site) -> Result<(PathBuf, Vec<Setting>), Obstacle> {
        let controller = demand.controller();
        if let Some(own) = site.hierarchies.v1(controller) {
            return Ok((own.to_owned(), v1::settings(demand)));
        }
        let own = site.hierarchies.v2().ok_or(Obstacle::NoController { controller: controller.v1() })?;
        Ok((v2::divide(&*self.files, own, controller, site.pid)?, v2::settings(demand)))
    }

    /// Makes a group, with no limit yet. One of our name that is there already was left by an earlier run whose ledger
    /// is gone.
    fn make_group(&mut self, group: &Path) -> Result<(), Obstacle> {
        if self.made.contains(group) {
            return Ok(());
        }
        self.ledger.add(group)?;
        let made = match self.files.make(group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.files.remove(group).map_err(|_| Obstacle::InUse { group: group.to_owned() })?;
                self.files.make(group)
            }
            made => made,
        };
        made.map_err(|error| Obstacle::file("make", group, &error))?;
        self.made.insert(group.to_owned());
        Ok(())
    }

    /// Removes groups in which nothing could be limited.
    fn keep_needed(&mut self) {
        let needed = self.report.groups();
        self.ledger.remove(&*self.files, |group| needed.contains(group));
    }
}

impl Drop for ClassGroup {
    fn drop(&mut self) {
        self.remove();
    }
}
