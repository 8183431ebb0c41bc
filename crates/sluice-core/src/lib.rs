//! Sluice's decisions: sessions, pools, prepared statements, cancel.
//!
//! Nothing here does I/O, reads a clock or keeps a global: bytes and `now` come in, actions go out through
//! [`io::Io`]. That is what lets the whole pool run in a seeded simulation.

pub mod client;
pub mod client_address;
pub mod engine;
pub mod hub;
pub mod io;
pub mod pool;
pub mod profile;
pub mod queue;
pub mod replies;
pub mod residue;
pub mod secrets;
pub mod server;
pub mod settings;
pub mod shape;
mod sql;
pub mod statement;
pub mod time;

pub use engine::Engine;
