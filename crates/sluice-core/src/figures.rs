//! The figures of a process, as one value: whoever shows or logs it reads this, and nothing else.

use std::{sync::Arc, time::Duration};

use sluice_control::{address::Address, settings::PoolMode};

use crate::{
    holding::PinCounts,
    hub::{Hub, Pool},
    pool::Counts,
    time::Time,
    traffic::Counted,
};

/// The figures of a process.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The version of the configuration's snapshot.
    pub version: u64,
    /// Connections that are clients', or may become so.
    pub connections: u32,
    /// Clients that have said who they are.
    pub clients: u32,
    /// Server connections.
    pub servers: u32,
    /// Each pool that is of any account: those where nobody is and no server has ever been are left out.
    pub pools: Vec<PoolFigures>,
}

/// The figures of a pool.
#[derive(Debug, Clone)]
pub struct PoolFigures {
    /// The database, as clients call it.
    pub database: String,
    /// The role on the server.
    pub role: String,
    /// The server's address.
    pub address: Address,
    /// The time for which a client keeps a server.
    pub mode: PoolMode,
    /// Clients that are logged in; within one or two of the truth while servers are handed on.
    pub clients: u32,
    /// Servers and waiters.
    pub counts: Counts,
    /// The clients that keep servers between transactions, by reasons.
    pub pins: PinCounts,
    /// The time that the client which comes next has waited.
    pub longest_wait: Duration,
    /// The work done since the start.
    pub traffic: Counted,
}

impl PoolFigures {
    /// Servers that clients have, or that are being put in order.
    pub fn active(&self) -> u32 {
        self.counts.open - self.counts.idle - self.counts.connecting
    }
}

impl Hub {
    /// The figures of now.
    pub fn figures(&self, now: Time) -> Figures {
        Figures {
            version: self.snapshot().version,
            connections: self.connections(),
            clients: self.clients(),
            servers: self.servers(),
            pools: self.pools().iter().filter_map(|pool| figures_of(pool, now)).collect(),
        }
    }
}

/// `None` where nobody is and no server has ever been: a client has named a database that does not exist, perhaps.
fn figures_of(pool: &Arc<Pool>, now: Time) -> Option<PoolFigures> {
    let (counts, pins, longest_wait, has_connected) = {
        let state = pool.state();
        (state.counts(), state.pins(), state.longest_wait(now), state.has_connected())
    };
    // Each server, each client and each client's pin has a reference, and so have the hub and the caller.
    let references = Arc::strong_count(pool) as u32;
    let clients = references.saturating_sub(2 + counts.open + counts.pinned).max(counts.waiting);
    (has_connected || clients > 0 || counts.open > 0).then(|| PoolFigures {
        database: pool.database.clone(),
        role: pool.upstream.user.clone(),
        address: pool.upstream.address.clone(),
        mode: pool.sharing.mode,
        clients,
        counts,
        pins,
        longest_wait,
        traffic: pool.traffic.counted(),
    })
}
