//! PostgreSQL's `pg_hba.conf` and `pg_ident.conf` (documentation, 21.1 and 21.2, as of version 18): read, and asked
//! which rule counts for a connection.
//!
//! [`Rules`] are read once, with every file that they include, and never change. This crate opens no file itself, asks
//! no DNS, and does not log anybody in: the caller reads files for it ([`Files`]), says what a connection is
//! ([`Connection`]), and does what the [`Rule`] asks for. Where PostgreSQL and the documentation differ, PostgreSQL
//! is right. Things that PostgreSQL has and Sluice doesn't are [`Problem`]s, so that no rule is passed over in silence.

mod address;
mod connection;
mod files;
mod ident;
mod lines;
mod method;
mod name;
mod pattern;
mod pattern_input;
mod pattern_set;
mod place;
mod problem;
mod rule;
mod rules;
mod server;
mod token;

pub use address::{Address, Interface};
pub use connection::{Connection, ConnectionType, Transport};
pub use files::Files;
pub use method::{ClientCert, Method};
pub use place::Place;
pub use problem::{Fault, Problem};
pub use rule::Rule;
pub use rules::{Decision, Mapping, Roles, Rules};
pub use server::{MapRow, Questions, RuleRow, ServerRules};
