//! Orphans of the nodes: Patroni's postmaster is nobody's child, and takes its leave as a zombie of whoever adopts it.
//!
//! Process 1 of a container may take seconds to look after those, or be Sluice itself. For so long Patroni takes a
//! postmaster that has ended for one that runs. So Sluice adopts the orphans of its nodes (`PR_SET_CHILD_SUBREAPER`,
//! prctl(2)), and reaps them at once. Its own children are left to those who have started them.

use std::{fs, io, sync::Mutex, thread, time::Duration};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        wait::{Id, WaitPidFlag, waitid, waitpid},
    },
    unistd::{Pid, getpgrp, getsid},
};

/// The time for which a child that has ended is left to whoever has started it, before the next look.
const PAUSE: Duration = Duration::from_millis(20);

/// The same, while it is always there.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// From now on this process adopts the orphans of its children, and reaps them; once is enough.
pub(super) fn start() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*started {
        prctl::set_child_subreaper(true)?;
        thread::Builder::new().name("reaper".to_owned()).spawn(run)?;
        *started = true;
    }
    Ok(())
}

fn run() {
    let mut pause = PAUSE;
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(_) => pause = if reap() > 0 { PAUSE } else { PAUSE_MAX.min(2 * pause) },
            Err(Errno::EINTR) => continue,
            // There are no children.
            Err(_) => pause = PAUSE_MAX,
        }
        thread::sleep(pause);
    }
}

/// Reaps all orphans that have ended; says how many there were.
fn reap() -> usize {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pid> = lists.flat_map(|list| pids(&list)).collect();
    let orphans = children.into_iter().filter(|pid| is_dead_orphan(*pid));
    orphans.filter(|pid| waitpid(*pid, Some(WaitPidFlag::WNOHANG)).is_ok()).count()
}

fn pids(list: &str) -> Vec<Pid> {
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

fn is_dead_orphan(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let (Some(child), Ok(session)) = (Child::read(&stat), getsid(None)) else { return false };
    child.is_dead && !child.is_own(pid, session, getpgrp())
}

/// What tells a child that this process has started from one that it has adopted.
#[derive(Debug, PartialEq, Eq)]
struct Child {
    is_dead: bool,
    group: Pid,
    session: Pid,
}

impl Child {
    /// Reads `/proc/PID/stat` (proc_pid_stat(5)).
    fn read(stat: &str) -> Option<Self> {
        // The name may hold anything, brackets as well.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let is_dead = fields.next()? == "Z";
        let mut pid = |skipped: usize| Some(Pid::from_raw(fields.nth(skipped)?.parse().ok()?));
        Some(Self { is_dead, group: pid(1)?, session: pid(0)? })
    }

    /// A child of Sluice's is in Sluice's session, and in its group or leads one of its own ([`crate::RunAs::command`]). A
    /// postmaster has the session of the process that has started it and has ended, and others have Patroni's group.
    fn is_own(&self, pid: Pid, session: Pid, group: Pid) -> bool {
        self.session == session && (self.group == group || self.group == pid)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{self, Command},
        time::Instant,
    };

    use super::*;

    #[test]
    fn a_line_of_stat_is_read() {
        let child = Child::read("77 (a) b) Z 5 70 60 0 -1 4228100 0 0").expect("it is whole");
        assert_eq!(child, Child { is_dead: true, group: Pid::from_raw(70), session: Pid::from_raw(60) });
        assert_eq!(Child::read("77 (a) S 5 70 60 0").map(|child| child.is_dead), Some(false));
        assert_eq!(Child::read("77 (a) S 5"), None);
    }

    #[test]
    fn whoever_has_another_session_or_group_is_an_orphan() {
        let [own, group, session, other] = [9, 2, 1, 7].map(Pid::from_raw);
        let is_own = |of: (Pid, Pid)| Child { is_dead: true, group: of.0, session: of.1 }.is_own(own, session, group);
        assert!(is_own((group, session)) && is_own((own, session)));
        assert!(!is_own((other, session)) && !is_own((own, own)) && !is_own((group, other)));
    }

    #[test]
    fn orphans_are_reaped_and_own_children_are_not() {
        start().expect("the thread starts");
        let mut own = Command::new("true").spawn().expect("it starts");
        // It says what process it leaves behind, in a session of its own.
        let script = "setsid sh -c 'echo $$; exec sleep 3 >/dev/null 2>&1' & sleep 0.1; exit 3";
        let output = Command::new("sh").args(["-c", script]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(3), "its own end was left to whoever has started it");
        let orphan = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).expect("it runs for three seconds");
        // Whatever it is at: it may not have come to its sleep yet.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        assert_eq!(parent, Some(&*process::id().to_string()), "it is adopted: {stat}");
        let began = Instant::now();
        while fs::exists(format!("/proc/{orphan}")).expect("it is Linux") {
            assert!(began.elapsed() < Duration::from_secs(20), "process {orphan} of {} is still there", process::id());
            thread::sleep(PAUSE);
        }
        assert!(own.wait().expect("it was left alone").success());
    }
}
