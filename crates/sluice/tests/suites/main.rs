//! Drivers' own test suites, straight to PostgreSQL and through a pool in transaction mode with few servers: each test
//! must end alike on both.
//!
//! The suites are run by `tests/drivers/suites/*/run`; where a test may end otherwise stands, with the reason, in
//! `tests/drivers/suites/differences.toml`. All that they print goes to `target/driver-suites`.
//!
//! | variable | |
//! |---|---|
//! | `SLUICE_SUITES=all` | whole suites; else those parts of them that are quick (`make driver-suites` sets it) |
//! | `SLUICE_SUITES=test_pool` | only these parts: packages of pgx or tests (`pgconn.TestConnPing`), modules, classes or tests of asyncpg |

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

/// Further runs of a test that differs, before it counts as one that does.
const TIMES_AGAIN: u32 = 2;

/// A driver's own tests.
struct Suite {
    /// Its folder under `tests/drivers/suites`.
    name: &'static str,
    /// The database that its authors use.
    database: &'static str,
    /// The SQL with which they prepare it.
    preparation: &'static str,
    /// The parts that are run if nobody says which.
    quick: &'static [&'static str],
}

const PGX: Suite = Suite {
    name: "pgx",
    database: "pgx_test",
    preparation: "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE DOMAIN uint64 AS numeric(20,0);",
    quick: &["pgxpool"],
};

const ASYNCPG: Suite = Suite {
    name: "asyncpg",
    database: "postgres",
    preparation: "",
    quick: &[
        "test_cache_invalidation",
        "test_copy",
        "test_cursor",
        "test_execute",
        "test_introspection",
        "test_listeners",
        "test_prepare",
        "test_transaction",
    ],
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

/// Runs a suite straight, through a pool, and through a pool before a server with Sluice's extension; quick parts
/// through one of them.
fn suite(suite: &Suite, version: Version, driver: Driver) {
    let chosen = env::var("SLUICE_SUITES").unwrap_or_default();
    let parts: Vec<_> = match chosen.as_str() {
        "" => suite.quick.to_vec(),
        "all" => Vec::new(),
        parts => parts.split(',').collect(),
    };
    let known = Known::read(suite.name, version);
    let mut wrong = Vec::new();
    let Some(straight) = side(suite, version, &parts, None, "") else { return };
    let extensions: &[bool] = if chosen.is_empty() { &[version == Version::V18] } else { &[false, true] };
    for &extension in extensions {
        let pooled = Some((driver, extension));
        let Some(pool) = side(suite, version, &parts, pooled, "") else { return };
        let comparison = Comparison::new(&straight, &pool, &known, extension);
        let with = if extension { "with" } else { "without" };
        println!("{} on {version}, {with} the extension: {comparison}", suite.name);
        let mut differing = comparison.unknown();
        // Many of their tests are about time, and one that fails straight as well now and then must not fail ours.
        for time in 1..=TIMES_AGAIN {
            if differing.is_empty() {
                break;
            }
            let parts: Vec<_> = differing.iter().map(String::as_str).collect();
            let suffix = format!("-again-{time}");
            let Some(straight) = side(suite, version, &parts, None, &suffix) else { return };
            let Some(pool) = side(suite, version, &parts, pooled, &suffix) else { return };
            let still = Comparison::new(&straight, &pool, &known, extension).unknown();
            for test in differing.iter().filter(|test| !still.contains(test)) {
                println!("{test}: alike when run again, alone");
            }
            differing.retain(|test| still.contains(test));
        }
        let stale = comparison.stale().filter(|_| chosen == "all");
        let stale = stale.map(|test| format!("{test}: listed, but ends alike"));
        let differing = differing.iter().map(|test| format!("{test}: differs, and is not listed"));
        wrong.extend(differing.chain(stale).map(|line| format!("{with} the extension: {line}")));
    }
    assert!(wrong.is_empty(), "{} on {version}:\n{}", suite.name, wrong.join("\n"));
}

/// Runs a suite on a cluster of its own, straight or through a pool.
fn side(
    suite: &Suite,
    version: Version,
    parts: &[&str],
    pooled: Option<(Driver, bool)>,
    suffix: &str,
) -> Option<Outcomes> {
    let preload: &[_] = match pooled {
        Some((_, true)) => &[("shared_preload_libraries", "sluice")],
        _ => &[],
    };
    let server = TestServer::start_with_tcp(version, preload);
    // Their authors run them as a superuser.
    server.execute("CREATE ROLE suite LOGIN SUPERUSER PASSWORD 'secret'");
    if suite.database != "postgres" {
        server.execute(&format!("CREATE DATABASE {} OWNER suite", suite.database));
    }
    server.superuser(suite.database).batch_execute(suite.preparation).unwrap();
    let pool = pooled.map(|(driver, _)| {
        let case = Case::new(version, driver, Mode::Transaction);
        let config = PoolConfig::new(SLUICE, case, &server).auth(Auth::LookUp(String::new()));
        config.size(SERVERS).workers(2).start()
    });
    let side = match pooled {
        None => "straight",
        Some((_, false)) => "pool",
        Some((_, true)) => "pool-extension",
    };
    let port = pool.as_ref().map_or(server.port(), |pool| pool.address().port());
    let log = format!("{}-{version}-{side}{suffix}", suite.name).replace(' ', "-");
    let outcomes = run::run(suite.name, &log, port, suite.database, parts)?;
    if pool.is_some() {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'suite' AND state <> 'idle'";
        sluice_testkit::becomes("busy servers", "0".to_owned(), || server.value(busy));
    }
    Some(outcomes)
}
