//! Stopping: each node's Patroni shuts its PostgreSQL down, standbys first, the leader next, etcd last. So no standby
//! is made a leader on the way, and the leader's data are the last.

use std::{
    sync::{PoisonError, TryLockError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Cluster, Slot, lock, process::Process};
use crate::{orphans, server::StopReport, stop_mode::StopMode};

const POLL: Duration = Duration::from_millis(50);
/// Time limit for an immediate shutdown, before it becomes a kill.
const IMMEDIATE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for etcd to leave in order.
const ETCD_TIME_MAX: Duration = Duration::from_secs(2);
/// Time limit for the kernel to end what was killed.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

impl Cluster {
    /// Stops all of it, and waits until it has ended. A second call, from another thread, with a harder mode hastens the
    /// first. Bounded: a shutdown that takes longer than `stop_timeout` becomes an immediate one, then a kill.
    pub fn stop(&self, mode: StopMode) -> StopReport {
        let begin = Instant::now();
        self.request_stop(mode);
        // Who comes second waits, and then finds nothing left.
        let _stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = self.patronis.iter().any(|slot| lock(slot).is_some());
        let leader = if is_running { self.leader() } else { None };
        let standbys = (0..self.nodes.len()).filter(|node| Some(*node) != leader);
        let hardest = thread::scope(|scope| {
            let stopping: Vec<_> = standbys.map(|node| scope.spawn(move || self.stop_node(node))).collect();
            // A panic was reported by its thread.
            stopping.into_iter().filter_map(|thread| thread.join().ok()).max().flatten()
        });
        let hardest = leader.and_then(|leader| self.stop_node(leader)).max(hardest);
        // One after the other: a leader that leaves hands over to another one, for which it waits.
        for etcd in self.etcds.iter().filter_map(take) {
            etcd.request_stop(Signal::SIGTERM);
            // Dropping what has not ended kills it, which loses nothing: what etcd has answered is on disk.
            etcd.wait_over(ETCD_TIME_MAX);
        }
        StopReport { mode: hardest, took: begin.elapsed() }
    }

    /// Whether it is being stopped.
    pub fn is_stopping(&self) -> bool {
        matches!(self.stopping.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Asks a stop that is under way to be harder, without waiting for it.
    pub fn request_stop(&self, mode: StopMode) {
        self.haste.fetch_max(mode as u8, Ordering::Relaxed);
    }

    /// Stops one node's Patroni and PostgreSQL; returns the last mode that was needed, none if nothing ran.
    pub fn stop_node(&self, node: usize) -> Option<StopMode> {
        let _agent = self.stop_agent(node);
        self.stop_waker(node);
        let patroni = take(&self.patronis[node]);
        let mut mode = StopMode::Fast;
        if let Some(patroni) = &patroni {
            patroni.request_stop(Signal::SIGTERM);
            // It can't hear that while it is stopped itself.
            patroni.signal(Signal::SIGCONT);
            mode = self.await_end(node, patroni);
        } else if self.postmaster_pid(node).is_none() {
            return None;
        }
        drop(patroni);
        self.end_postgres(node);
        Some(mode)
    }

    /// Waits for Patroni's end; hastens it when that is asked for or takes too long.
    fn await_end(&self, node: usize, patroni: &Process) -> StopMode {
        let begin = Instant::now();
        let mut mode = StopMode::Fast;
        while !patroni.wait_over(POLL) {
            let waited = begin.elapsed();
            let wanted = if waited >= self.stop_timeout + IMMEDIATE_TIME_MAX {
                StopMode::Kill
            } else if waited >= self.stop_timeout {
                StopMode::Immediate
            } else {
                self.haste()
            };
            if wanted <= mode {
                continue;
            }
            mode = wanted;
            match mode {
                // Patroni waits for just this.
                StopMode::Fast | StopMode::Immediate => self.signal_postmaster(node, Signal::SIGQUIT),
                StopMode::Kill => {
                    patroni.request_stop(Signal::SIGKILL);
                    patroni.wait_over(KILL_TIME_MAX);
                    break;
                }
            }
        }
        mode
    }

    fn haste(&self) -> StopMode {
        match self.haste.load(Ordering::Relaxed) {
            0 => StopMode::Fast,
            1 => StopMode::Immediate,
            _ => StopMode::Kill,
        }
    }

    /// Ends a PostgreSQL that Patroni has left.
    fn end_postgres(&self, node: usize) {
        if self.postmaster_pid(node).is_some() {
            self.signal_postmaster(node, Signal::SIGINT);
        }
        let alone = if self.haste() == StopMode::Fast { IMMEDIATE_TIME_MAX } else { Duration::ZERO };
        orphans::end_all(&self.nodes[node].pgdata, alone, &[Signal::SIGQUIT, Signal::SIGKILL]);
    }

    fn signal_postmaster(&self, node: usize, signal: Signal) {
        if let Some(pid) = self.postmaster_pid(node) {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Kills a node as the loss of its host would: Patroni and all of its PostgreSQL. It stays down until it is started.
    pub fn kill_node(&self, node: usize) {
        let _agent = self.stop_agent(node);
        self.stop_waker(node);
        if let Some(patroni) = take(&self.patronis[node]) {
            patroni.request_stop(Signal::SIGKILL);
            orphans::end_all(&self.nodes[node].pgdata, Duration::ZERO, &[Signal::SIGKILL]);
            patroni.wait_over(KILL_TIME_MAX);
        }
        orphans::end_all(&self.nodes[node].pgdata, Duration::ZERO, &[Signal::SIGKILL]);
    }

    /// Kills a member of etcd. It stays down until it is started.
    pub fn kill_etcd(&self, member: usize) {
        drop(take(&self.etcds[member]));
    }
}

/// What was kept there is its caller's now.
fn take(slot: &Slot) -> Option<Process> {
    lock(slot).take()
}
