//! Sluice's decisions: sessions, pools, prepared statements, cancel.
//!
//! Nothing here does I/O, reads a clock or keeps a global: bytes and `now` come in, actions go out through
//! [`io::Io`]. That is what lets the whole pool run in a seeded simulation.

pub mod admission;
pub mod alarm;
pub mod amended;
pub mod budget;
pub mod catalog;
pub mod client;
pub mod client_address;
pub mod customs;
pub mod date_style;
mod encryption;
pub mod engine;
pub mod figures;
pub mod histogram;
pub mod holding;
pub mod hub;
pub mod ids;
pub mod io;
pub mod listing;
pub mod logins;
pub mod lsn;
pub mod mail;
pub mod outcome;
pub mod pauses;
pub mod pool;
pub mod privileged;
pub mod probe;
pub mod profile;
pub mod queue;
pub mod registry;
pub mod replies;
mod restoring;
pub mod secrets;
pub mod server;
pub mod shape;
pub mod slow;
pub mod sql;
pub mod start;
pub mod statement;
pub mod stream;
pub mod time;
pub mod traffic;
pub mod uses;
pub mod watch;

pub use engine::{Engine, client_of};
