//! The state of a cluster, as etcd has it at one revision, and what one standby's own host sees.

use std::collections::{BTreeMap, BTreeSet};

/// Patroni's leader key: its holder, and the revision of etcd at which it was written. It is written once a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaderKey {
    pub(crate) holder: String,
    pub(crate) revision: i64,
    /// The lease of the holder's Patroni that it ends with; 0 if there is none.
    pub(crate) lease: i64,
}

/// Patroni's `sync` key: the nodes that a commit may be waited for on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sync {
    pub(crate) revision: i64,
    /// The primary that has written it.
    pub(crate) leader: String,
    pub(crate) voters: BTreeSet<String>,
    /// The number of voters that a candidate has to hear beside itself. Patroni keeps this and the number of standbys
    /// that a commit waits for so that together they are never fewer than the voters.
    pub(crate) quorum: usize,
}

/// Patroni's `config` key, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) revision: i64,
    /// `synchronous_mode: quorum` and `synchronous_mode_strict: true`.
    pub(crate) is_strict_quorum: bool,
    /// Patroni's maintenance mode.
    pub(crate) is_paused: bool,
}

/// Patroni's `failover` key. It stays behind a switchover, with nothing in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failover {
    /// 0 if there is no such key.
    pub(crate) revision: i64,
    /// Somebody has asked for a switchover or a failover.
    pub(crate) is_asked_for: bool,
}

/// A survivor's word, kept in etcd under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) revision: i64,
    /// The leader key's revision.
    pub(crate) about: i64,
    /// Its WAL receiver is held off; otherwise this is a suspicion only.
    pub(crate) is_fenced: bool,
}

/// A node's addresses, as its Patroni publishes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// PostgreSQL's host and port.
    pub(crate) postgres: (String, u16),
    /// Patroni's REST API.
    pub(crate) rest: (String, u16),
}

/// All that counts, read at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) leader: Option<LeaderKey>,
    pub(crate) sync: Option<Sync>,
    pub(crate) config: Option<Config>,
    pub(crate) failover: Failover,
    pub(crate) votes: BTreeMap<String, Vote>,
    /// A leader's lease that is to end, and has not yet.
    pub(crate) ending: Option<i64>,
    pub(crate) members: BTreeMap<String, Addresses>,
}

impl View {
    /// The leader's addresses.
    pub(crate) fn primary(&self) -> Option<&Addresses> {
        self.members.get(&self.leader.as_ref()?.holder)
    }

    /// Whether that node is the leader, and all others of so many are voters: nothing is amiss.
    pub(crate) fn is_whole_under(&self, node: &str, nodes: usize) -> bool {
        let leads = self.leader.as_ref().is_some_and(|leader| leader.holder == node);
        leads && self.sync.as_ref().is_some_and(|sync| sync.leader == node && sync.voters.len() + 1 >= nodes)
    }
}

/// The view of a node's own host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Its PostgreSQL is in recovery.
    pub(crate) is_standby: bool,
    /// Its WAL receiver is held off, or is about to be.
    pub(crate) is_fenced: bool,
    /// The server that Patroni has told it to follow, read while it is fenced.
    pub(crate) follows: Option<(String, u16)>,
    /// The server that its WAL receiver streams from.
    pub(crate) streams_from: Option<(String, u16)>,
    /// The sign of life that the primary has shown.
    pub(crate) sign: Sign,
}

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    None,
    /// Patroni has answered, whatever it said, and PostgreSQL has not.
    Patroni,
    /// Something was received from PostgreSQL since the last look, or it has answered.
    Postgres,
}
