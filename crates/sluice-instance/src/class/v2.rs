//! Version 2 of control groups: one hierarchy, in which a group with processes of its own can't be divided.
//!
//! After the kernel's Documentation/admin-guide/cgroup-v2.rst, and systemd's "Control Group APIs and Delegation".

use std::path::{Path, PathBuf};

use super::{
    Obstacle,
    group_fs::{self, GroupFs},
    hierarchy::Controller,
    setting::{CPU_PERIOD_US, Demand, Setting, cpu_quota_us},
};

/// The group into which Sluice moves itself, so that the one it was started in can be divided. It stays when Sluice
/// ends: who made the group above removes it. systemd can put Sluice there at once (`DelegateSubgroup=`).
const ASIDE: &str = "sluice-pool";

/// The settings to write for a limit.
pub(super) fn settings(demand: Demand) -> Vec<Setting> {
    match demand {
        Demand::Memory(memory) => vec![
            Setting::new("memory.max", memory.bytes()),
            // Missing without swap accounting.
            Setting::optional("memory.swap.max", 0),
        ],
        Demand::Cpus(cpus) => vec![Setting::new("cpu.max", format!("{} {CPU_PERIOD_US}", cpu_quota_us(cpus)))],
        Demand::Iops(iops, disk) => vec![Setting::new("io.max", format!("{disk} riops={iops} wiops={iops}"))],
    }
}

/// The group in which groups can be made that have a controller: the one that this process, `pid`, was started in.
pub(super) fn divide(files: &dyn GroupFs, own: &Path, controller: Controller, pid: u32) -> Result<PathBuf, Obstacle> {
    let name = controller.v2();
    let group = if own.ends_with(ASIDE) { own.parent().unwrap_or(own) } else { own };
    if !lists(files, &group.join("cgroup.controllers"), name) {
        return Err(Obstacle::NoController { controller: name });
    }
    let enabled = group.join("cgroup.subtree_control");
    if !lists(files, &enabled, name) {
        step_aside(files, group, pid)?;
        let enable = format!("+{name}");
        files.write(&enabled, &enable).map_err(|error| Obstacle::file("write", &enabled, &error))?;
    }
    Ok(group.to_owned())
}

fn lists(files: &dyn GroupFs, file: &Path, controller: &str) -> bool {
    files.read(file).is_ok_and(|text| text.split_whitespace().any(|name| name == controller))
}

/// Leaves no process in `group` itself, if it is only this one. The root of all groups may be divided as it is.
fn step_aside(files: &dyn GroupFs, group: &Path, pid: u32) -> Result<(), Obstacle> {
    let is_root = !files.exists(&group.join("cgroup.type"));
    let inside = group_fs::processes(files, group)?;
    if is_root || inside.is_empty() {
        return Ok(());
    }
    if inside != [pid] {
        return Err(Obstacle::NotAlone { group: group.to_owned() });
    }
    let aside = group.join(ASIDE);
    if !files.exists(&aside) {
        files.make(&aside).map_err(|error| Obstacle::file("make", &aside, &error))?;
    }
    group_fs::admit(files, &aside, pid)
}
