//! Stalls as a result keeps them: stretches of a turn, with their causes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stretch of a turn in which the load did much less than in the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Its first moment on the turn's axis.
    pub from_s: f64,
    /// Its last.
    pub to_s: f64,
    /// Transactions a second within.
    pub tps: f64,
    /// The turn's ordinary transactions a second.
    pub ordinary_tps: f64,
    /// The longest transaction that ended within, where it is known.
    pub max_ms: Option<f64>,
    /// Its causes, the strongest first; never empty once it has been attributed.
    pub findings: Vec<Finding>,
}

/// A cause, with what speaks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Of the stall.
    pub cause: Cause,
    /// The share of the stall that it explains, from 0 to 1, as far as the samples tell.
    pub strength: f64,
    /// The figures.
    pub evidence: Vec<Evidence>,
    /// The result of a second run without the cause, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
}

/// A figure inside a stall and outside of all stalls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The name of the figure, for people.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// The mean inside.
    pub inside: f64,
    /// The mean outside, if there was an outside.
    pub outside: Option<f64>,
}

/// The same load again, with one cause taken away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Whether the stalls went with it.
    pub confirmed: bool,
    /// The change that was made: settings, limits.
    pub without: String,
    /// The share of the first run's time in stalls.
    pub stalled_before: f64,
    /// The share of the second one's.
    pub stalled_after: f64,
    /// The causes of the second run's stalls, the strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes_after: Vec<Cause>,
}

/// A cause for which the load stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A checkpoint wrote dirty pages, and the sessions' own input and output waited behind it.
    CheckpointWrites,
    /// Each page's first change after a checkpoint put a copy of the whole page into the write-ahead log.
    FullPageImages,
    /// The instance had used up the requests that its class, or its disk, allows.
    IoCap,
    /// The control group had used up its processor time.
    CpuThrottling,
    /// Other processes had the processors.
    CpuTaken,
    /// Sessions waited for locks that others held.
    LockWaits,
    /// Commits waited for the write-ahead log to reach the disk.
    WalSync,
    /// Commits waited for a standby.
    ReplicaWaits,
    /// Autovacuum was at work.
    Autovacuum,
    /// The statements themselves slept (`pg_sleep`, a vacuum's delay).
    Sleep,
    /// The client did not ask.
    Client,
    /// Nothing that was sampled explains it.
    Unknown,
}

impl Cause {
    /// As a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::CheckpointWrites => "checkpoint writes",
            Self::FullPageImages => "full-page images",
            Self::IoCap => "I/O limit reached",
            Self::CpuThrottling => "CPU throttled",
            Self::CpuTaken => "CPU taken by others",
            Self::LockWaits => "lock waits",
            Self::WalSync => "WAL sync",
            Self::ReplicaWaits => "waiting for a standby",
            Self::Autovacuum => "autovacuum",
            Self::Sleep => "statements slept",
            Self::Client => "the client itself",
            Self::Unknown => "unknown",
        }
    }

    /// A sentence on what can be done.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::CheckpointWrites => {
                "Spread checkpoints: a longer checkpoint_timeout, a larger max_wal_size, checkpoint_completion_target \
                 at 0.9."
            }
            Self::FullPageImages => {
                "Have checkpoints less often (checkpoint_timeout, max_wal_size), or compress the images \
                 (wal_compression); full_page_writes itself protects the data and stays on."
            }
            Self::IoCap => "Allow more requests a second, or write less: fewer indexes, larger shared_buffers.",
            Self::CpuThrottling => "Give the instance more processor time (--cpus), or let fewer sessions run at once.",
            Self::CpuTaken => "Move what else runs on the machine elsewhere, or give PostgreSQL processors of its own.",
            Self::LockWaits => {
                "Find the session that holds the lock (pg_blocking_pids) and keep its transactions short; \
                 lock_timeout bounds the wait."
            }
            Self::WalSync => {
                "Put the write-ahead log on a faster disk, or set synchronous_commit = off where the loss of the last \
                 moments is acceptable."
            }
            Self::ReplicaWaits => "Look at the standby and the way to it, or ask for fewer standbys (ANY 1).",
            Self::Autovacuum => {
                "Let it run oftener with less to do at a time (autovacuum_vacuum_scale_factor), and bound its \
                 input and output (autovacuum_vacuum_cost_limit)."
            }
            Self::Sleep => "Look for pg_sleep in functions and triggers.",
            Self::Client => "Look at the machine of the client: the server was waiting for it.",
            Self::Unknown => "Sample oftener (--sample-hz 5), and look at the server's log of that time.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.title())
    }
}

impl Stall {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }

    /// Whether a moment lies within.
    pub fn covers(&self, t_s: f64) -> bool {
        t_s > self.from_s && t_s <= self.to_s
    }

    /// The strongest finding's cause.
    pub fn cause(&self) -> Cause {
        self.findings.first().map_or(Cause::Unknown, |finding| finding.cause)
    }
}
