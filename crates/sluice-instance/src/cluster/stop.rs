//! Stopping: each node's Patroni shuts its PostgreSQL down, standbys first, the leader next, etcd last. So no standby
//! is made a leader on the way, and the leader's data are the last.

use std::{
    sync::{PoisonError, TryLockError, atomic::Ordering},
    thread,
    time::Instant,
};

use super::{Cluster, keeper::stop_etcd, shutdown};
use crate::{server::StopReport, stop_mode::StopMode};

impl Cluster {
    /// Stops all of it, and waits until it has ended. A second call, from another thread, with a harder mode hastens the
    /// first. Bounded: a shutdown that takes longer than `stop_timeout` becomes an immediate one, then a kill.
    pub fn stop(&self, mode: StopMode) -> StopReport {
        let begin = Instant::now();
        self.request_stop(mode);
        // Who comes second waits, and then finds nothing left.
        let _stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = self.keepers.iter().any(|keeper| keeper.patroni.is_kept());
        let leader = if is_running { self.leader() } else { None };
        let standbys = (0..self.nodes.len()).filter(|node| Some(*node) != leader);
        let hardest = thread::scope(|scope| {
            let stopping: Vec<_> = standbys.map(|node| scope.spawn(move || self.stop_node(node))).collect();
            // A panic was reported by its thread.
            stopping.into_iter().filter_map(|thread| thread.join().ok()).max().flatten()
        });
        let hardest = leader.and_then(|leader| self.stop_node(leader)).max(hardest);
        // One after the other.
        self.etcds.iter().for_each(stop_etcd);
        StopReport { mode: hardest, took: begin.elapsed(), failed: None }
    }

    /// Ends the sessions of all clients, with what they have open, while the nodes go on. A node that can't be reached keeps
    /// its own until it is stopped.
    pub fn end_sessions(&self) {
        thread::scope(|scope| {
            for node in &self.nodes {
                scope.spawn(|| {
                    if let Err(error) = shutdown::end_sessions(&node.pgdata) {
                        tracing::warn!("{}: its sessions are not ended at once: {error}", node.name);
                    }
                });
            }
        });
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
        self.keepers[node].stop(&|| StopMode::of(self.haste.load(Ordering::Relaxed)))
    }

    /// Kills a node as the loss of its host would: Patroni and all of its PostgreSQL. It stays down until it is started.
    pub fn kill_node(&self, node: usize) {
        self.keepers[node].kill();
    }

    /// Kills a member of etcd. It stays down until it is started.
    pub fn kill_etcd(&self, member: usize) {
        drop(self.etcds[member].take());
    }
}
