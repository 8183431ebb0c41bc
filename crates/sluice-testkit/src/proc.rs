//! Facts about a process from `/proc`, and signals to it.

use std::{fs, io, process::Command};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// Resident memory, in KiB; 0 if the process is gone.
pub fn rss_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// The number of files that a process has open; 0 if the process is gone. Of one that is not dumpable, as a pool is, only
/// root may list them, but since Linux 6.2 the folder's size is their number (proc(5)).
pub fn open_files(pid: u32) -> usize {
    let folder = format!("/proc/{pid}/fd");
    match fs::read_dir(&folder) {
        Ok(files) => files.count(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let files = fs::metadata(&folder).map_or(0, |folder| folder.len());
            assert!(
                files > 0,
                "the files of process {pid} can't be counted: run this as root, or on Linux 6.2 or later"
            );
            usize::try_from(files).unwrap_or(usize::MAX)
        }
        Err(_) => 0,
    }
}

/// Has a process have so many files open at most.
pub fn limit_open_files(pid: u32, most: usize) {
    let status = Command::new("prlimit").args([format!("--pid={pid}"), format!("--nofile={most}")]).status().unwrap();
    assert!(status.success(), "prlimit: {status}");
}

/// CPU time it has used, in clock ticks (hundredths of a second).
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in parentheses and may hold spaces; user and system time are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Whether it runs: a process that has ended and was not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Sends a signal to one process, by its number.
pub fn send(pid: u32, signal: Signal) {
    signal::kill(Pid::from_raw(pid.cast_signed()), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// Sends a signal to one process, by its number, if it is still there.
pub fn try_send(pid: u32, signal: Signal) {
    let _gone = signal::kill(Pid::from_raw(pid.cast_signed()), signal);
}

pub use nix::sys::signal::Signal as Kind;
