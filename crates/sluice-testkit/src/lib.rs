//! For tests: real PostgreSQL servers, the `sluice` process, clients that say exactly what they are told, drivers.
//!
//! Whatever goes wrong in here is a failed test, so it panics and says what happened. What is started is stopped by
//! its own process id when its value is dropped, and a pool that is dropped must have ended well and left nothing
//! behind.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

pub mod case;
pub mod cluster;
pub mod network;
mod place;
pub mod pool;
pub mod port;
pub mod proc;
pub mod program;
pub mod random;
pub mod raw;
pub mod server;
pub mod tls;
pub mod tokio_checks;
pub mod traps;

pub use crate::{
    case::{Case, Driver, Mode, Version},
    cluster::TestCluster,
    network::Network,
    pool::{Auth, PoolConfig, TestPool},
    random::Random,
    raw::{Message, Raw, Script},
    server::{Database, TestServer},
    tls::Certificates,
};

use std::time::{Duration, Instant};

/// Time that a test waits for something that must happen soon: far more than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until something is so.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a value is as it should be, and shows the last one if it never is.
pub fn becomes<T: PartialEq + std::fmt::Debug>(what: &str, wanted: T, mut value: impl FnMut() -> T) {
    let begin = Instant::now();
    loop {
        let now = value();
        if now == wanted {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: {now:?} after {PATIENCE:?}, wanted {wanted:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
