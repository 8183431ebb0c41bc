//! The files that the pool may have open: what comes of peers that want all of them.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Case, PoolConfig, TestPool, eventually, matrix, proc};

use crate::{config, database};

matrix!(transaction: refused_connections_do_not_pile_up, without_files_accepting_rests_and_the_rest_goes_on,
    a_burst_leaves_files_for_servers);

/// The files that `few` needs.
const FILES: u32 = 508;

/// Connections of a flood that come one behind the other.
const ROUND: usize = 50;

/// A pool with few clients.
fn few(case: Case) -> PoolConfig {
    config(case).size(5).limit("clients = 10\nservers = 5")
}

/// Connects, again and again, and says nothing; gives the connections.
fn flood(pool: &TestPool, count: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect_timeout(&pool.address(), Duration::from_millis(200)).ok();
    (0..count).map_while(connect).collect()
}

fn refused_connections_do_not_pile_up(case: Case) {
    let database = database(case);
    let pool = few(case).start();
    let mut first = pool.app(&database);
    first.simple_query("SELECT 1").unwrap();
    let files = pool.open_files();
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.extend(flood(&pool, ROUND));
        thread::sleep(Duration::from_millis(50));
        // Those who have not logged in, those who are sent away, and some that are just on their way out.
        let more = pool.open_files() - files;
        assert!(more < 109 + 32 + ROUND, "{more} more than {files} files for {} connections", silent.len());
    }
    eventually("all but those who may be there are gone", || pool.open_files() <= files + 109 + 32);
    first.simple_query("SELECT 1").unwrap();
    drop(silent);
    eventually("a place", || pool.connect("app", None, &database.name).is_ok());
}

fn without_files_accepting_rests_and_the_rest_goes_on(case: Case) {
    let database = database(case);
    let pool = few(case).start();
    let mut first = pool.app(&database);
    first.simple_query("SELECT 1").unwrap();
    // Fewer than the limits demand, which the start had not let pass.
    proc::limit_open_files(pool.pid(), pool.open_files() + 80);
    let taken = flood(&pool, 300);
    let words = || pool.log().matches("no clients are accepted for 1 s: Too many open files").count();
    eventually("a word on it", || words() > 0);
    let (before, cpu, begin) = (pool.log().len(), proc::cpu_ticks(pool.pid()), Instant::now());
    thread::sleep(Duration::from_secs(2));
    first.simple_query("SELECT 1").unwrap();
    let (cpu, seconds) = (proc::cpu_ticks(pool.pid()) - cpu, begin.elapsed().as_secs());
    assert!(cpu < 30, "{cpu} hundredths of a second of CPU in {seconds} s");
    let said = pool.log()[before..].lines().count();
    assert!(said < 100, "{said} lines in {seconds} s");
    drop(taken);
    eventually("clients are accepted again", || pool.connect("app", None, &database.name).is_ok());
}

fn a_burst_leaves_files_for_servers(case: Case) {
    let database = database(case);
    let pool = few(case).open_files(FILES).start();
    let mut clients = [pool.app(&database), pool.app(&database), pool.app(&database)];
    clients[0].simple_query("SELECT 1").unwrap();
    // All of them wait when it goes on, and io_uring accepts them at once.
    pool.signal(proc::Kind::SIGSTOP);
    let taken = flood(&pool, 1000);
    pool.signal(proc::Kind::SIGCONT);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| client.batch_execute("BEGIN; SELECT pg_sleep(0.1); COMMIT").unwrap());
        }
    });
    let log = pool.log();
    assert!(!log.contains("no connection to the server"), "{log}");
    drop(taken);
    eventually("clients are accepted", || pool.connect("app", None, &database.name).is_ok());
}
