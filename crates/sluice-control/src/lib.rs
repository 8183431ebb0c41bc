//! The control plane's decisions: what is where, and who may do what.
//!
//! [`Control`] is fed what has been observed, and publishes a [`Snapshot`]: databases and where they are, how clients
//! prove who they are, settings and limits. A snapshot never changes; whatever changes is a new one, with the next
//! version, in which all that has stayed the same is the very same value. Workers go by the one that they have, and
//! take the next one between two events.
//!
//! No I/O, no clock, no threads: adapters read files and ask servers, and others carry out what a snapshot says.

pub mod access;
pub mod address;
mod changes;
pub mod cluster;
mod control;
pub mod reading;
pub mod server_auth;
pub mod settings;
mod snapshot;

pub use changes::Change;
pub use control::{Control, Observation, Published};
pub use snapshot::{Configuration, Database, Snapshot};

/// The length of a secret by which a server believes where clients come from. The extension knows it, too.
pub const CLIENT_ADDRESS_SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

/// A password, or the like: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
