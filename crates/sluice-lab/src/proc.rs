//! Processor time and memory of process trees, from `/proc` (proc(5)).
//!
//! Reads only. A tree's time includes processes that have ended (their parent's `cutime` and `cstime`).

use std::{fs, thread};

/// No tree here is larger, so a walk can't run away.
const TREE_MAX: usize = 70_000;

/// Processors that this process may use.
pub fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// Processors of the machine, whatever part of them this process may use: those that `/proc/stat` sums up.
pub fn machine_cores() -> u32 {
    count_processors(&fs::read_to_string("/proc/stat").unwrap_or_default()).max(1)
}

/// Lines `cpu0 …`, `cpu1 …`.
fn count_processors(stat: &str) -> u32 {
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    u32::try_from(stat.lines().filter(is_one).count()).unwrap_or(u32::MAX)
}

/// User and system time in clock ticks: a process's own, and that of its children that have ended.
#[derive(Debug, PartialEq)]
struct Ticks {
    own: u64,
    ended_children: u64,
}

/// The command's name is in parentheses and may hold any byte, so fields count from the last `)`.
fn parse_stat(stat: &str) -> Option<Ticks> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    // The first field here is the third of proc(5); utime, stime, cutime, cstime are 14 to 17.
    let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Ticks { own: ticks(14)? + ticks(15)?, ended_children: ticks(16)? + ticks(17)? })
}

/// A process and all its descendants that live, itself first. Of its descendants, children of their first threads
/// only: PostgreSQL's processes have but one.
pub fn tree(root: u32) -> Vec<u32> {
    let children = |pid: u32, thread: &str| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    let mut pids = vec![root];
    pids.extend(threads(root).iter().flat_map(|thread| children(root, thread)));
    let mut next = 1;
    while next < pids.len() && pids.len() < TREE_MAX {
        let pid = pids[next];
        pids.extend(children(pid, &pid.to_string()));
        next += 1;
    }
    pids
}

/// The threads of a process; none once it has ended.
fn threads(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processor time of a tree, in seconds, its ended processes included.
pub fn tree_cpu_s(root: u32) -> f64 {
    cpu_s(&tree(root))
}

/// The same of a tree that has been walked.
pub fn cpu_s(tree: &[u32]) -> f64 {
    let ticks = |pid: &u32| ticks(*pid).map_or(0, |ticks| ticks.own + ticks.ended_children);
    let sum: u64 = tree.iter().map(ticks).sum();
    sum as f64 / ticks_per_second()
}

/// The same to the nanosecond for what lives, at the price of a file for each thread. `schedstat` forgets threads that
/// have ended, `stat` counts all in ticks: the larger of the two is right to within a tick.
pub fn tree_cpu_exact_s(root: u32) -> f64 {
    let of = |pid: u32| {
        let Some(ticks) = ticks(pid) else { return 0.0 };
        let precise_ns: u64 = threads(pid)
            .iter()
            .filter_map(|thread| {
                parse_schedstat(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?)
            })
            .sum();
        let own_s = (precise_ns as f64 / 1e9).max(ticks.own as f64 / ticks_per_second());
        own_s + ticks.ended_children as f64 / ticks_per_second()
    };
    tree(root).into_iter().map(of).sum()
}

fn ticks(pid: u32) -> Option<Ticks> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The first figure of `schedstat`: time spent on the processor, ns.
fn parse_schedstat(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Processor time of one thread of this process's, in seconds, to the nanosecond.
pub fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory of a process, kB.
pub fn rss_kb(pid: u32) -> Option<u64> {
    value_kb(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Resident memory of a tree, kB.
pub fn tree_rss_kb(root: u32) -> u64 {
    tree(root).into_iter().filter_map(rss_kb).sum()
}

/// A line `Key:   123 kB`.
pub(crate) fn value_kb(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn processors_of_the_machine() {
        assert_eq!(count_processors("cpu  1 2\ncpu0 1 1\ncpu1 1 1\nintr 1\ncpufreq 3\n"), 2);
        assert!(machine_cores() >= cores());
    }

    #[test]
    fn stat_survives_any_command_name() {
        let stat = "7459 (a) b (c) S 1 5521 5521 0 -1 4194560 1 2 3 4 150 25 1000 200 20 0 1 0 5127 232521728";
        assert_eq!(parse_stat(stat), Some(Ticks { own: 175, ended_children: 1200 }));
        assert_eq!(parse_stat("7459 (cut S 1 2"), None);
        assert_eq!(parse_stat("7459 (short) S 1 2"), None);
    }

    #[test]
    fn schedstat() {
        assert_eq!(parse_schedstat("379800 48675 2\n"), Some(379_800));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn memory() {
        assert_eq!(value_kb("Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t    812 kB\n", "VmRSS:"), Some(812));
        assert_eq!(value_kb("Name:\tkthreadd\n", "VmRSS:"), None);
        assert!(rss_kb(std::process::id()).is_some_and(|kb| kb > 100));
    }

    #[test]
    fn own_tree_is_counted() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(tree(own).starts_with(&[own]) && tree(own).contains(&child.id()));
        let (tree_s, exact_s, thread_s) = (tree_cpu_s(own), tree_cpu_exact_s(own), thread_cpu_s());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {}
        assert!(thread_cpu_s() > thread_s + 0.001);
        assert!(tree_cpu_s(own) >= tree_s && tree_cpu_exact_s(own) > exact_s + 0.001);
        assert!(tree_rss_kb(own) > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((tree_cpu_exact_s(u32::MAX), tree_rss_kb(u32::MAX)), (0.0, 0));
    }
}
