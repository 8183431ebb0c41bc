//! The gate in real PostgreSQL servers: 15, 16 and 18.
//!
//! Limits are the whole server's, so the tests of one server run one after the other, and those of the three servers
//! side by side. The extension has to be installed, which `scripts/extension.sh` does.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod blocks;
mod catalog;
mod commits;
mod configuration;
mod crashes;
mod deadlocks;
mod durability;
mod limits;
mod outcomes;
mod output_plugin;
mod passes;
mod portals;
mod regression;
mod retain;
mod secrets;
mod server;
mod session;
mod session_random;
mod stress;
mod surface;
mod waits;

use sluice_testkit::Version;

/// Whether that PostgreSQL lets an extension name its wait events.
fn names_waits(version: Version) -> bool {
    version == Version::V18
}
