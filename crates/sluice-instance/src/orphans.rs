//! Processes of a data directory, found by what the kernel says about them, and the end of those that lost their
//! postmaster.
//!
//! When a postmaster is killed, its children notice and leave, but one in the middle of a long statement may take
//! its time, and no new postmaster starts before all have gone ("pre-existing shared memory block is still in use").
//! Every process of PostgreSQL has the data directory as its working directory, which makes them safe to tell.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Time limit for a process to leave after each signal.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Whether process `pid` is a PostgreSQL that works on `pgdata`. A process that we may not look at is none: one on
/// our data directory would run as the user that we can look at.
pub(crate) fn is_server_of(pid: i32, pgdata: &Path) -> bool {
    let proc = Path::new("/proc").join(pid.to_string());
    let is_postgres =
        fs::read_to_string(proc.join("comm")).is_ok_and(|comm| comm.starts_with("postgres") || comm == "postmaster\n");
    is_postgres && fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd == pgdata)
}

/// All processes of PostgreSQL that work on `pgdata`.
pub(crate) fn servers_of(pgdata: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_server_of(*pid, pgdata))
        .map(Pid::from_raw)
        .collect()
}

/// Ends all processes of PostgreSQL on `pgdata`, which must have no postmaster any more; says how many there were.
///
/// They first get the time to leave by themselves, then the signals in turn: SIGQUIT is an immediate shutdown of that
/// process, SIGKILL works always. The next start recovers from the log in any case.
pub(crate) fn end_all(pgdata: &Path, alone: Duration, signals: &[Signal]) -> usize {
    if gone_within(pgdata, alone) {
        return 0;
    }
    let found = servers_of(pgdata);
    for signal in signals {
        for pid in servers_of(pgdata) {
            // It may have left by itself meanwhile.
            let _ = kill(pid, *signal);
        }
        if gone_within(pgdata, PATIENCE) {
            break;
        }
    }
    found.len()
}

fn gone_within(pgdata: &Path, patience: Duration) -> bool {
    let begin = Instant::now();
    loop {
        if servers_of(pgdata).is_empty() {
            return true;
        }
        if begin.elapsed() >= patience {
            return false;
        }
        thread::sleep(POLL);
    }
}
