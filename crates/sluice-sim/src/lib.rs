//! A network in memory, under the same [`Net`](sluice_net::Net) and [`Worker`](sluice_net::Worker) that the service
//! runs: only the driver, the sockets and the clock are others.
//!
//! | file | what it is about |
//! |---|---|
//! | `network` | pipes between peers and workers, and what must happen next on them |
//! | `driver` | the driver: bytes in pieces, short sends, late ones, in the manner of io_uring or of epoll |
//! | `host` | the process around a worker: mail, connects, randomness |
//! | `lockstep` | workers moved on by hand, for scripts and for fuzzing |
//! | `bytes` | bytes in a row |
//! | `faults`, `rng` | chance, from a seed and from nothing else |
//!
//! The network never decides when something happens. It reports [`Wake`]s, and its user carries them out: at once
//! ([`Lockstep`]) or on virtual time (the simulation). For tests only: nothing of the service depends on it.

mod bytes;
mod driver;
mod faults;
mod host;
mod lockstep;
mod network;
mod rng;

use std::sync::Arc;

use sluice_control::Snapshot;
use sluice_core::hub::{Hub, Nonces};

pub use driver::SimDriver;
pub use faults::Faults;
pub use host::{SYSTEM_USER, SimBell, SimHost};
pub use lockstep::{Lockstep, Side};
pub use network::{Delivery, Network, PipeId, SimSocket, Style, Wake};
pub use rng::Rng;

/// The hub of a process's workers, with nothing random about it.
pub fn hub(snapshot: Arc<Snapshot>, workers: u16) -> Arc<Hub> {
    Arc::new(Hub::new(snapshot, Nonces { mock_seed: [3; 32], statements: 0 }, workers))
}

/// A worker on the network.
pub type SimWorker = sluice_net::Worker<SimDriver, SimHost>;

/// The mailboxes of the workers.
pub type SimMailboxes = sluice_net::Mailboxes<SimSocket, SimBell>;
