//! Drivers' own test suites, straight to PostgreSQL and through a pool in transaction mode with few servers: each test must
//! end alike on both.
//!
//! The suites are run by `tests/drivers/suites/*/run`; where a test may end otherwise stands, with the reason, in
//! `tests/drivers/suites/differences.toml`. All that they print goes to `target/driver-suites`.
//!
//! | variable | |
//! |---|---|
//! | `SLUICE_SUITES=all` | whole suites; else those parts of them that are quick (`make driver-suites` sets it) |
//! | `SLUICE_SUITES=test_pool` | only these parts: packages of pgx, modules, classes or tests of asyncpg |

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod compare;
mod known;
mod run;

use std::env;

use sluice_testkit::{Auth, Case, Driver, Mode, PoolConfig, TestServer, Version};

use crate::{compare::Comparison, known::Known, run::Outcomes};

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// The servers that a suite's clients share.
const SERVERS: u32 = 5;

/// A driver's own tests.
struct Suite {
    /// Its folder under `tests/drivers/suites`.
    name: &'static str,
    /// How its authors prepare a database.
    preparation: &'static str,
    /// The parts that are run if nobody says which.
    quick: &'static [&'static str],
}

const PGX: Suite = Suite {
    name: "pgx",
    preparation: "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE DOMAIN uint64 AS numeric(20,0);",
    quick: &["pgx", "pgconn", "pgxpool"],
};

const ASYNCPG: Suite = Suite {
    name: "asyncpg",
    preparation: "",
    quick: &["test_prepare", "test_execute", "test_cursor", "test_transaction", "test_cache_invalidation"],
};

#[test]
fn pgx_on_15() {
    suite(&PGX, Version::V15, Driver::Uring);
}

#[test]
fn asyncpg_on_15() {
    suite(&ASYNCPG, Version::V15, Driver::Uring);
}

#[test]
fn asyncpg_on_18() {
    suite(&ASYNCPG, Version::V18, Driver::Epoll);
}

/// Runs a suite straight, through a pool, and through a pool before a server with Sluice's extension.
fn suite(suite: &Suite, version: Version, driver: Driver) {
    let chosen = env::var("SLUICE_SUITES").unwrap_or_default();
    let parts: Vec<_> = match chosen.as_str() {
        "" => suite.quick.to_vec(),
        "all" => Vec::new(),
        parts => parts.split(',').collect(),
    };
    let known = Known::read(suite.name, version);
    let mut wrong = Vec::new();
    let plain = TestServer::start_with_tcp(version, &[]);
    let Some(straight) = side(suite, &plain, &parts, None) else { return };
    let extended = TestServer::start_with_tcp(version, &[("shared_preload_libraries", "sluice")]);
    for (server, extension) in [(&plain, false), (&extended, true)] {
        let case = Case::new(version, driver, Mode::Transaction);
        let Some(pool) = side(suite, server, &parts, Some((case, extension))) else { return };
        let comparison = Comparison::new(&straight, &pool, &known, extension);
        let with = if extension { "with" } else { "without" };
        println!("{} on {version}, {with} the extension: {}", suite.name, comparison);
        wrong.extend(comparison.wrong(chosen == "all").map(|line| format!("{with} the extension: {line}")));
    }
    assert!(wrong.is_empty(), "{} on {version}:\n{}", suite.name, wrong.join("\n"));
}

/// Runs a suite on a database of its own, straight or through a pool.
fn side(suite: &Suite, server: &TestServer, parts: &[&str], pooled: Option<(Case, bool)>) -> Option<Outcomes> {
    let database = server.database();
    let user = format!("{}_suite", database.name);
    // Their authors run them as a superuser.
    server.execute(&format!(
        "CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'secret'; ALTER DATABASE {} OWNER TO {user}",
        database.name
    ));
    if server.version() == Version::V15 {
        database.superuser().batch_execute(suite.preparation).unwrap();
    }
    let pool = pooled.map(|(case, _)| {
        let config = PoolConfig::new(SLUICE, case, server).auth(Auth::LookUp(String::new())).size(SERVERS).workers(2);
        config.start()
    });
    let side = match pooled {
        None => "straight",
        Some((_, false)) => "pool",
        Some((_, true)) => "pool-extension",
    };
    let port = pool.as_ref().map_or(server.port(), |pool| pool.address().port());
    let log = format!("{}-{}-{side}", suite.name, server.version()).replace(' ', "-");
    let outcomes = run::run(suite.name, &log, port, &user, &database.name, parts)?;
    if pool.is_some() {
        sluice_testkit::becomes("busy servers", 0, || database.count("state <> 'idle'"));
    }
    Some(outcomes)
}
