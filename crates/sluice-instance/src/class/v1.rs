//! Version 1 of control groups: a hierarchy for each controller, and groups in any group.
//!
//! After the kernel's Documentation/admin-guide/cgroup-v1 (memory.rst, blkio-controller.rst) and
//! Documentation/scheduler/sched-bwc.rst.

use super::setting::{CPU_PERIOD_US, Demand, Setting, cpu_quota_us};

/// The settings to write for a limit, in this order.
pub(super) fn settings(demand: Demand) -> Vec<Setting> {
    match demand {
        Demand::Memory(memory) => vec![
            Setting::new("memory.limit_in_bytes", memory.bytes()),
            // Memory and swap together; the kernel refuses less than the line above. Missing without swap accounting.
            Setting::optional("memory.memsw.limit_in_bytes", memory.bytes()),
        ],
        Demand::Cpus(cpus) => {
            vec![Setting::new("cpu.cfs_period_us", CPU_PERIOD_US), Setting::new("cpu.cfs_quota_us", cpu_quota_us(cpus))]
        }
        Demand::Iops(iops, disk) => ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"]
            .map(|file| Setting::new(file, format!("{disk} {iops}")))
            .to_vec(),
    }
}
