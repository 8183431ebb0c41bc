//! Limits on clients, and on servers that several pools share.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use postgres::{Client, Error};
use sluice_testkit::{Case, PoolConfig, Raw, TestPool, eventually, matrix, port::free_port, raw::transcript};
use sluice_wire::startup::ProtocolVersion;

use crate::{config, database};

matrix!(transaction: beyond_a_limit_clients_are_told_as_postgresql_tells_them, an_address_has_as_many_clients_as_it_may,
    the_console_is_open_when_the_pool_is_full, the_console_is_within_reach_by_the_socket_whoever_comes_by_tcp,
    pools_that_share_a_limit_have_equal_parts_of_it);

/// The code and the message of an error.
fn told(result: Result<Client, Error>) -> (String, String) {
    let error = result.err().unwrap();
    let error = error.as_db_error().unwrap();
    (error.code().code().to_owned(), error.message().to_owned())
}

fn beyond_a_limit_clients_are_told_as_postgresql_tells_them(case: Case) {
    let database = database(case);
    let server = database.server;
    let role = format!("limited_{}", database.name);
    server.execute(&format!("CREATE ROLE {role} LOGIN IN ROLE trusted CONNECTION LIMIT 1"));
    let straight = || {
        let mut straight = postgres::Config::new();
        straight.host_path(server.socket_dir()).port(server.port()).user(&role).dbname(&database.name);
        straight.connect(postgres::NoTls)
    };
    let expected = {
        let _first = straight().unwrap();
        told(straight())
    };
    server.execute(&format!("ALTER ROLE {role} CONNECTION LIMIT -1"));
    let pool = config(case).section(&format!("[[user]]\nname = \"{role}\"\nclients = 1\n")).start();
    let through = || pool.connect(&role, None, &database.name);
    let first = through().unwrap();
    assert_eq!(told(through()), expected);
    drop(first);
    eventually("its place", || through().is_ok());
    drop(pool);

    server.execute(&format!("ALTER DATABASE {} CONNECTION LIMIT 1", database.name));
    // The pool's connections may take a moment to end.
    let mut first = None;
    eventually("the only connection", || {
        first = straight().ok();
        first.is_some()
    });
    let expected = told(straight());
    drop(first);
    server.execute(&format!("ALTER DATABASE {} CONNECTION LIMIT -1", database.name));
    let pool = PoolConfig::without_databases(crate::SLUICE, case).database("*", server, "clients = 1").start();
    let _first = pool.connect(&role, None, &database.name).unwrap();
    assert_eq!(told(pool.connect("app", None, &database.name)), expected);
    pool.connect("app", None, "postgres").unwrap();
    server.execute(&format!("DROP ROLE {role}"));
}

fn an_address_has_as_many_clients_as_it_may(case: Case) {
    let database = database(case);
    let pool = config(case).limit("clients_per_address = 2").start();
    let two = [pool.app(&database), pool.app(&database)];
    let expected = ("53300".to_owned(), "too many connections from 127.0.0.1".to_owned());
    assert_eq!(told(pool.connect("app", None, &database.name)), expected);
    // Who says nothing takes no place.
    let _silent = TcpStream::connect(pool.address()).unwrap();
    drop(two);
    eventually("a place", || pool.connect("app", None, &database.name).is_ok());
}

fn the_console_is_open_when_the_pool_is_full(case: Case) {
    let database = database(case);
    let pool = config(case).limit("clients = 1\n[admin]\nusers = [\"boss\"]").start();
    let _only = pool.app(&database);
    let refused = told(pool.connect("app", None, &database.name));
    assert_eq!(refused, ("53300".to_owned(), "sorry, too many clients already".to_owned()));
    let mut console = pool.connect("boss", None, "pgbouncer").unwrap();
    console.simple_query("SHOW POOLS").unwrap();
}

fn the_console_is_within_reach_by_the_socket_whoever_comes_by_tcp(case: Case) {
    let database = database(case);
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("unix_socket_dir = {:?}", folder.path());
    let pool = config(case).port(free_port()).top(&dir).limit("clients = 1\n[admin]\nusers = [\"boss\"]").start();
    let path = folder.path().join(format!(".s.PGSQL.{}", pool.address().port()));
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(pool.address()).unwrap()).collect();
    eventually("all places are taken", || pool.connect("boss", None, "pgbouncer").is_err());
    let shown = Raw::unix(&path).login("boss", "pgbouncer").query("SHOW VERSION");
    assert!(shown.ends_with("Z(I)"), "{shown}");
    let refused = Raw::unix(&path).login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
    assert_eq!(transcript(&refused), "E(FATAL 53300)");
    drop(silent);
    eventually("a place", || pool.connect("app", None, &database.name).is_ok());
}

/// Runs short statements for a while, as several clients; gives their number.
fn works(pool: &TestPool, user: &str, database: &str, clients: usize, time: Duration) -> usize {
    let end = Instant::now() + time;
    let work = || {
        let mut client = pool.connect(user, None, database).unwrap();
        let mut count = 0;
        while Instant::now() < end {
            client.simple_query("SELECT pg_sleep(0.005)").unwrap();
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

fn pools_that_share_a_limit_have_equal_parts_of_it(case: Case) {
    let database = database(case);
    let role = format!("other_{}", database.name);
    database.server.execute(&format!("CREATE ROLE {role} LOGIN IN ROLE trusted"));
    let pool = config(case).size(4).limit("servers = 4").start();
    let (first, second) = thread::scope(|scope| {
        // The first has all four when the second comes, and clients that wait, always.
        let first = scope.spawn(|| works(&pool, "app", &database.name, 12, Duration::from_secs(3)));
        thread::sleep(Duration::from_millis(500));
        let second = scope.spawn(|| works(&pool, &role, &database.name, 12, Duration::from_millis(2500)));
        (first.join().unwrap(), second.join().unwrap())
    });
    // Without a share of its own, it would have had none before the first one's end.
    assert!(second * 4 > first, "{first} statements of the first, {second} of the second");
    drop(pool);
    database.server.execute(&format!("DROP ROLE {role}"));
}
