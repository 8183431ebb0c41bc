//! PostgreSQL's own regression files and isolation specs print through the pool what they print straight.
//!
//! Each runs once straight on a PostgreSQL 15 and once through a pool in transaction mode before another one that was set
//! up alike, and the two outputs are compared byte by byte. What may differ stands in `ignored.rs`, and so do the
//! files that can't be the same, each with its reason. While the files run, other clients of the same pool come and go
//! on its few servers, each with settings of its own (`meanwhile.rs`).
//!
//! | variable | |
//! |---|---|
//! | `SLUICE_REGRESS=all` | all files and specs, as `make regress` runs them |
//! | `SLUICE_REGRESS=guc,temp` | these, with the files that all others build on |
//!
//! The outputs stay in `target/tmp/regress`, with a `.diff` for each that differs.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod ignored;
mod meanwhile;
mod place;
mod program;
mod report;
mod sessions;
mod side;
mod suite;

use sluice_testkit::{Case, Driver, Mode, Version};

use crate::suite::Suite;

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

#[test]
fn files_without_the_extension() {
    report::compare(Suite::Files, case(Driver::Uring), false);
}

#[test]
fn files_with_the_extension() {
    report::compare(Suite::Files, case(Driver::Epoll), true);
}

#[test]
fn specs_without_the_extension() {
    report::compare(Suite::Specs, case(Driver::Epoll), false);
}

#[test]
fn specs_with_the_extension() {
    report::compare(Suite::Specs, case(Driver::Uring), true);
}

/// The files are those of PostgreSQL 15.
const fn case(driver: Driver) -> Case {
    Case::new(Version::V15, driver, Mode::Transaction)
}
