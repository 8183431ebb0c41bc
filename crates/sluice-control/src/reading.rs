//! Reading from standbys: the nodes of a cluster as they have been seen, and which of them a database's readers go to.

use std::time::Duration;

use sluice_units::Quantity;

use crate::{address::Address, cluster::Primary};

/// The nodes that clients of a database are led to, by libpq's words (`target_session_attrs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Standbys only.
    Standby,
    /// Standbys, and the primary where none of them will do.
    PreferStandby,
    /// Standbys and the primary alike.
    Any,
}

impl Target {
    /// libpq's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::PreferStandby => "prefer-standby",
            Self::Any => "any",
        }
    }
}

/// An operator's decisions about a database that is for reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The nodes that will do.
    pub target: Target,
    /// The time that a standby may be behind.
    pub lag_max: Duration,
    /// The bytes of log that it may be behind; `None`: as many as there are.
    pub lag_bytes_max: Option<u64>,
}

/// The commits that a transaction at a standby is to find, however far the standby is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Causal {
    /// Whose they are.
    pub scope: Scope,
    /// The time for which the standby is waited for. The primary is taken then.
    pub timeout: Duration,
}

/// The clients whose commits are to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The client's own.
    Local,
    /// All of this process's clients that had their commits acknowledged before the transaction began.
    Global,
}

impl Scope {
    /// The configuration's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
        }
    }
}

/// A node of a cluster, as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name in the cluster.
    pub name: String,
    /// PostgreSQL's address there.
    pub address: Address,
    /// Its state.
    pub state: NodeState,
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// Its Patroni does not answer, or makes no sense.
    Silent(String),
    /// Its PostgreSQL does not run; Patroni's word for that.
    Down(String),
    /// It is out of recovery.
    Primary {
        /// The timeline that it writes.
        timeline: u32,
    },
    /// It is in recovery.
    Standby(Standby),
}

/// A standby, as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// The timeline that it replays.
    pub timeline: u32,
    /// The system identifier of its data.
    pub system: String,
    /// Whether it receives what the primary writes, as long as there is a primary that answers.
    pub streams: bool,
    /// Whether somebody has its replay wait.
    pub is_paused: bool,
    /// Whether Patroni's tag `noloadbalance` keeps readers away.
    pub is_excluded: bool,
    /// Its lag.
    pub lag: Lag,
}

/// The lag of a standby behind its primary; `None` where nothing has shown it yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// All is there that the primary had written so long ago.
    pub time: Option<Duration>,
    /// The bytes that the primary had written when it was asked last, and that are not replayed.
    pub bytes: Option<u64>,
}

/// A node that readers of a database go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// Its name in the cluster.
    pub node: String,
    /// PostgreSQL's address there.
    pub address: Address,
    /// Whether it is the primary.
    pub is_primary: bool,
}

/// The reason why readers do not go to a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its Patroni does not answer.
    #[error("its Patroni does not answer: {0}")]
    Silent(String),
    /// Its PostgreSQL does not run.
    #[error("its PostgreSQL is {0}")]
    Down(String),
    /// It is out of recovery.
    #[error("it is the primary")]
    Primary,
    /// It is in recovery, and there is no other primary.
    #[error("it is the last known primary, and in recovery: it is not one yet, or not any more")]
    LastPrimary,
    /// The cluster's primary has never been seen, or nobody is to connect to it any more.
    #[error("the cluster's primary is not known, so nobody can say how far it is behind")]
    NoPrimary,
    /// Its data are those of another cluster.
    #[error("it has the data of another cluster")]
    OtherSystem,
    /// It replays what a primary of before has written.
    #[error("it is on timeline {0}, and the primary on {1}")]
    OtherTimeline(u32, u32),
    /// Somebody has its replay wait.
    #[error("its replay is paused")]
    Paused,
    /// It does not receive what the primary writes.
    #[error("it does not stream")]
    NotStreaming,
    /// Patroni's tag keeps readers away.
    #[error("it has Patroni's tag noloadbalance")]
    Excluded,
    /// Nothing has shown yet how far it is behind.
    #[error("it is not known how far it is behind")]
    UnknownLag,
    /// It is too far behind.
    #[error("it is {} behind, and {} is allowed", shown(*.0), shown(*.1))]
    Behind(Duration, Duration),
    /// The same in bytes.
    #[error("it is {0} bytes behind, and {1} are allowed")]
    BytesBehind(u64, u64),
}

/// A time in a few digits.
fn shown(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match ms {
        0 => "0s".to_owned(),
        // Of what is measured, the milliseconds say nothing any more.
        10_000.. if ms % 1000 > 0 => format!("{}s", ms / 1000),
        _ => Quantity::from(Duration::from_millis(ms)).to_string(),
    }
}

impl NodeState {
    /// Its timeline, where it runs.
    pub fn timeline(&self) -> Option<u32> {
        match self {
            Self::Primary { timeline } | Self::Standby(Standby { timeline, .. }) => Some(*timeline),
            Self::Silent(_) | Self::Down(_) => None,
        }
    }

    /// The standby, if it is one.
    pub fn standby(&self) -> Option<&Standby> {
        match self {
            Self::Standby(standby) => Some(standby),
            _ => None,
        }
    }
}

impl Reading {
    /// The nodes that readers go to now, where they went to those before.
    pub fn readers(&self, nodes: &[Node], primary: Option<&Primary>, before: &[Reader]) -> Vec<Reader> {
        let was_one = |node: &Node| before.iter().any(|it| !it.is_primary && it.address == node.address);
        let fits = |node: &&Node| self.judge(node, primary, was_one(node)).is_ok();
        let standby =
            |node: &Node| Reader { node: node.name.clone(), address: node.address.clone(), is_primary: false };
        let mut readers: Vec<_> = nodes.iter().filter(fits).map(standby).collect();
        let takes_primary = match self.target {
            Target::Standby => false,
            Target::PreferStandby => readers.is_empty(),
            Target::Any => true,
        };
        readers.extend(primary.filter(|_| takes_primary).map(|primary| Reader {
            node: primary.node.clone(),
            address: primary.address.clone(),
            is_primary: true,
        }));
        readers
    }

    /// Whether readers may go to a standby. One that has been left for being behind has to come nearer than it may go:
    /// half of the way, so that clients do not go back and forth.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn judge(&self, node: &Node, primary: Option<&Primary>, was_one: bool) -> Result<(), Unfit> {
        let standby = match &node.state {
            NodeState::Silent(why) => return Err(Unfit::Silent(why.clone())),
            NodeState::Down(state) => return Err(Unfit::Down(state.clone())),
            NodeState::Primary { .. } => return Err(Unfit::Primary),
            NodeState::Standby(standby) => standby,
        };
        let primary = primary.ok_or(Unfit::NoPrimary)?;
        if primary.address == node.address {
            return Err(Unfit::LastPrimary);
        }
        if standby.system != primary.system {
            return Err(Unfit::OtherSystem);
        }
        if standby.timeline != primary.timeline {
            return Err(Unfit::OtherTimeline(standby.timeline, primary.timeline));
        }
        if standby.is_excluded {
            return Err(Unfit::Excluded);
        }
        if standby.is_paused {
            return Err(Unfit::Paused);
        }
        if !standby.streams {
            return Err(Unfit::NotStreaming);
        }
        let behind = standby.lag.time.ok_or(Unfit::UnknownLag)?;
        let part = if was_one { 1 } else { 2 };
        if behind > self.lag_max / part {
            return Err(Unfit::Behind(behind, self.lag_max / part));
        }
        if let Some(max) = self.lag_bytes_max.map(|max| max / u64::from(part)) {
            let bytes = standby.lag.bytes.ok_or(Unfit::UnknownLag)?;
            if bytes > max {
                return Err(Unfit::BytesBehind(bytes, max));
            }
        }
        Ok(())
    }

    /// The reasons why there is no node for readers, node by node.
    pub fn reasons(&self, nodes: &[Node], primary: Option<&Primary>) -> String {
        if nodes.is_empty() {
            return "no member of the cluster has told of its nodes yet".to_owned();
        }
        let reason = |node: &Node| match self.judge(node, primary, false) {
            Ok(()) => format!("{}: it has just become fit", node.name),
            Err(unfit) => format!("{}: {unfit}", node.name),
        };
        nodes.iter().map(reason).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests;
