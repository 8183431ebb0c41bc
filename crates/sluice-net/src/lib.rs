//! A worker's connections: how bytes get from a driver to the engine and back.
//!
//! ```text
//! Worker = Engine (sluice-core) + Net + Driver
//! ```
//!
//! A [`Driver`] knows a system interface and nothing else; a [`Host`] is the process around the worker; [`Net`] keeps
//! what is the same under all of them: the connections, what is still to be sent, and when a connection may end.
//! Nothing here makes a system call or reads a clock, so that the simulation runs this code and not an imitation of
//! it. No protocol is known here but TLS, which stands between a connection's socket and its outbox.

mod attempt;
mod buffers;
mod driver;
mod host;
mod link;
mod mailbox;
mod net;
mod outbox;
mod tls;
mod worker;

pub use buffers::{BufferId, Buffers, Chunk};
pub use driver::{Delivery, Driver, Event, LinkId, Socket};
pub use host::{Host, Lister, Parcel};
pub use mailbox::{Bell, Mailboxes};
pub use net::{LINGERING_MAX, LinkKey, Net, Notice};
pub use outbox::Flight;
pub use tls::{Handshake, Tls};
pub use worker::Worker;
