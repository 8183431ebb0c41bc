//! Remains of an earlier run: programs of ours that still end, or that nobody ended.
//!
//! A Sluice that is killed has its programs end by the kernel, which takes them some seconds, and the next one may meet
//! them. They are known by their command line, which names a file or folder of this instance. PostgreSQL itself is not
//! ended here: Patroni takes over one that runs on a node's data.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const POLL: Duration = Duration::from_millis(50);
/// The time for those of a killed Sluice to leave by themselves: Patroni shuts PostgreSQL down first.
const ALONE: Duration = Duration::from_secs(20);
/// The time after each signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until no program has any of these paths as an argument; ends those that do not leave. Says how many were met.
pub(super) fn clear(paths: &[PathBuf]) -> usize {
    let met = running(paths).len();
    for (signal, time) in [(None, ALONE), (Some(Signal::SIGTERM), PATIENCE), (Some(Signal::SIGKILL), PATIENCE)] {
        if let Some(signal) = signal {
            for pid in running(paths) {
                // It may have left meanwhile.
                let _ = kill(pid, signal);
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < time {
            if running(paths).is_empty() {
                return met;
            }
            thread::sleep(POLL);
        }
    }
    met
}

/// Patroni and etcd with one of these paths as an argument.
fn running(paths: &[PathBuf]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_ours(*pid, paths)).map(Pid::from_raw).collect()
}

fn is_ours(pid: i32, paths: &[PathBuf]) -> bool {
    let proc = Path::new("/proc").join(pid.to_string());
    let is_program = fs::read_to_string(proc.join("comm"))
        .is_ok_and(|comm| comm == "etcd\n" || comm.starts_with("python") || comm.starts_with("patroni"));
    let arguments = || fs::read(proc.join("cmdline")).unwrap_or_default();
    let names = |argument: &[u8]| paths.iter().any(|path| path.as_os_str().as_bytes() == argument);
    is_program && arguments().split(|byte| *byte == 0).any(names)
}
