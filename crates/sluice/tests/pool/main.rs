//! `sluice serve` before real PostgreSQL servers, 15 and 18, with both drivers and in both modes.
//!
//! One program for all of it, since its tests share a cluster for each PostgreSQL. Each test has a database and a pool
//! of its own, so they run side by side.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod addresses;
mod alike;
mod balancers;
mod begin;
mod bounds;
mod certificates;
mod comings;
mod configuration;
mod console;
mod drivers;
mod faults;
mod files;
mod gate;
mod hba;
mod holds;
mod http;
mod limits;
mod login;
mod look_ups;
mod names;
mod network;
mod overload;
mod passwords;
mod pgbouncer;
mod pools;
mod primaries;
mod process;
mod protocol;
mod reloads;
mod server_auth;
mod sessions;
mod standbys;
mod statements;
mod storms;
mod switching;
mod systemd;
mod tls;
mod top;
mod units;
mod upgrade;

use sluice_testkit::{Case, Database, PoolConfig, TestServer};

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// A BEGIN that takes a server at once, unlike a plain one: a standby would refuse it.
const HOLD: &str = "BEGIN READ WRITE";

/// The seconds for which psql tries to connect: longer than any test may wait for that.
const CONNECT_TIMEOUT: &str = "180";

/// A database on the shared cluster.
fn database(case: Case) -> Database<'static> {
    TestServer::shared(case.version).database()
}

/// A pool before the shared cluster.
fn config(case: Case) -> PoolConfig {
    PoolConfig::new(SLUICE, case, TestServer::shared(case.version))
}
