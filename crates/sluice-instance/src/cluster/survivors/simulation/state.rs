//! The state of each host.

use crate::cluster::survivors::{
    machine::{Survivor, Times},
    view::View,
};

/// Hosts: as many as a set-up in strict quorum has.
pub(super) const NODES: usize = 3;

/// PostgreSQL's port on each.
pub(super) const PORT: u16 = 5432;

pub(super) fn name(node: usize) -> String {
    format!("node{}", node + 1)
}

pub(super) fn number(name: &str) -> Option<usize> {
    (0..NODES).find(|node| self::name(*node) == name)
}

/// A history of commits, which branches off another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    /// The timeline before, and where this one begins.
    pub(super) parent: Option<(usize, u64)>,
    /// PostgreSQL's number of it: the next one to its parent's.
    pub(super) number: u32,
    /// It began by an old view of the leader key, which was another one's, or nobody's.
    pub(super) is_usurped: bool,
    /// Commits up to here were acknowledged to clients.
    pub(super) acknowledged: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receiver {
    pub(super) id: u64,
    pub(super) from: usize,
    /// The primary's run that it is connected to.
    pub(super) run: u64,
}

#[derive(Debug, Default)]
pub(super) struct Postgres {
    pub(super) is_stopped: bool,
    pub(super) paused_until: u64,
    pub(super) is_primary: bool,
    pub(super) timeline: usize,
    /// Flushed up to here.
    pub(super) lsn: u64,
    pub(super) receiver: Option<Receiver>,
    pub(super) received_at: u64,
    /// The library path has the fence.
    pub(super) is_fenced: bool,
    /// The primary that Patroni has written down.
    pub(super) follows: Option<usize>,
    /// Its connections end with it.
    pub(super) run: u64,
    /// A receiver that is being started is of this attempt, or comes to nothing.
    pub(super) attempt: u64,
}

#[derive(Debug, Default)]
pub(super) struct Patroni {
    pub(super) paused_until: u64,
    pub(super) is_in_turn: bool,
    /// The leader key's revision at the last turn.
    pub(super) seen: i64,
    pub(super) failures: u32,
    /// Its lease, for its member key and the leader key.
    pub(super) lease: i64,
    /// etcd as it was read last, by which it goes on until then: a watch whose link was cut says nothing new for a while.
    pub(super) cache: Option<View>,
    pub(super) stale_until: u64,
}

pub(super) struct Node {
    pub(super) postgres: Postgres,
    pub(super) patroni: Patroni,
    pub(super) agent: Survivor,
    /// Another one for each start of the survivor.
    pub(super) run: u64,
    pub(super) agent_paused_until: u64,
    /// The time at which something had been received, as of the last look.
    pub(super) received_at: u64,
    /// Statements under way that change the fence, with the run that has sent them.
    pub(super) statements: Vec<u64>,
    /// Votes in a row that etcd has refused, since their lease was over.
    pub(super) refused: u32,
}

impl Node {
    pub(super) fn new(node: usize) -> Self {
        let mut postgres = Postgres::default();
        (postgres.is_primary, postgres.follows) = (node == 0, (node != 0).then_some(0));
        Self {
            postgres,
            patroni: Patroni::default(),
            agent: Survivor::new(&name(node), NODES, Times::default()),
            run: 0,
            agent_paused_until: 0,
            received_at: 0,
            statements: Vec::new(),
            refused: 0,
        }
    }
}
