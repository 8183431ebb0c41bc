//! The limits of the process: its connections, its clients, and the servers of several pools.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use sluice_control::{
    Snapshot,
    address::{Address, PeerAddress},
};

use crate::{
    admission::{Admitted, Connected, Full, SOCKET_STRANGERS_MAX, STRANGERS_MAX},
    budget::{Budget, Budgets, Shared},
};

use super::{Hub, lock};

impl Hub {
    /// Counts a connection in that may become a client's, unless there are far more than clients may be. Those by TCP may
    /// be fewer ([`Hub::admit_address`]).
    pub fn admit_connection(&self) -> bool {
        take(&self.connections, self.snapshot().limits.clients.saturating_add(STRANGERS_MAX + SOCKET_STRANGERS_MAX))
    }

    /// Counts a connection out.
    pub fn dismiss_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of connections that are clients', or may become so.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a client in that has said who it wants to be, unless there are as many as may be.
    pub fn admit_client(&self, peer: PeerAddress) -> Result<Admitted, Full> {
        self.admissions.admit(peer, &self.snapshot().limits)
    }

    /// The same of one that wants to talk to the console.
    pub fn admit_stranger(&self, peer: PeerAddress) -> Result<Admitted, Full> {
        self.admissions.admit_stranger(peer, &self.snapshot().limits)
    }

    /// Counts a connection from that address in; `None` where those are not counted.
    pub fn admit_address(&self, peer: PeerAddress) -> Result<Option<Connected>, Full> {
        self.admissions.connect(peer, &self.snapshot().limits)
    }

    /// The same of a balancer's, which has not said for whom it is.
    pub fn admit_balancer(&self) -> Result<Connected, Full> {
        self.admissions.connect_balancer(&self.snapshot().limits)
    }

    /// A balancer has said where a connection comes from.
    pub fn locate(&self, connected: &mut Connected, peer: PeerAddress) -> Result<(), Full> {
        connected.comes_from(peer, &self.snapshot().limits)
    }

    /// Counts a client for its user and its database, which it has proven to be and may use.
    pub fn identify(&self, client: &mut Admitted, user: &str, database: &str) -> Result<(), Full> {
        let snapshot = self.snapshot();
        let databases_max = snapshot.database(database).and_then(|entry| entry.clients);
        client.identify((user, snapshot.limits.clients_of(user)), (database, databases_max))
    }

    /// The number of clients that have said who they are.
    pub fn clients(&self) -> u32 {
        self.admissions.count()
    }

    /// Server connections there are.
    pub fn servers(&self) -> u32 {
        self.servers.taken()
    }

    /// The limits for the servers of a pool.
    pub(super) fn budgets_of(&self, snapshot: &Snapshot, database: &str, address: &Address, role: &str) -> Budgets {
        let shared =
            [Shared::Host(address.clone()), Shared::Database(database.to_owned()), Shared::Role(role.to_owned())];
        let mut known = lock(&self.budgets);
        if known.len() > shared.len() * snapshot.limits.pools as usize {
            known.retain(|_, budget| Arc::strong_count(budget) > 1);
        }
        let mut budget = |shared: Shared| {
            let made = || Arc::new(Budget::new(shared.clone(), snapshot));
            known.entry(shared.clone()).or_insert_with(made).clone()
        };
        Budgets::new([self.servers.clone()].into_iter().chain(shared.map(&mut budget)))
    }

    /// Has all of those go by another snapshot, and forgets those of pools that have gone.
    pub(super) fn limit_servers(&self, snapshot: &Snapshot) {
        self.servers.go_by(snapshot);
        let mut known = lock(&self.budgets);
        known.retain(|_, budget| Arc::strong_count(budget) > 1);
        known.values().for_each(|budget| budget.go_by(snapshot));
    }
}

fn take(count: &AtomicU32, limit: u32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1)).is_ok()
}
