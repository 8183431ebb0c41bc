//! SIGHUP: the configuration is read again, and gone by as a whole or not at all.

use std::{thread, time::Duration};

use sluice_testkit::{
    Auth, Case, Database, Mode, PoolConfig, TestServer, becomes, matrix, port::free_port, raw::transcript,
};

use crate::{HOLD, SLUICE, config, database};

matrix!(both_modes: another_size_counts_for_those_who_wait, a_database_that_is_gone_ends_its_clients);
matrix!(transaction:
    a_password_changes_in_the_file_and_on_the_server,
    users_come_and_go,
    a_configuration_that_can_not_be_is_not_gone_by,
    clients_go_on_where_the_database_has_moved,
    keys_at_the_top_that_need_a_restart_are_named,
);
matrix!(session: a_session_stays_where_its_server_is);

fn users(list: &[(&str, &str)]) -> Auth {
    Auth::Scram(list.iter().map(|(user, secret)| ((*user).to_owned(), (*secret).to_owned())).collect())
}

fn another_size_counts_for_those_who_wait(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut holder = pool.raw_app(&database);
    holder.query(HOLD);
    thread::scope(|scope| {
        // In session mode it waits for that before it is let in.
        let waiting = scope.spawn(|| pool.raw_app(&database).query("SELECT 1"));
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        let words = pool.reload(&config(case).size(2));
        assert!(words.contains("read again: 1 change\n"), "{words}");
        assert!(words.contains("database \"*\": size: 2, was 1"), "{words}");
        assert_eq!(waiting.join().unwrap(), "T(?column?) D(1) C(SELECT 1) Z(I)");
    });
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    assert!(pool.reload(&config(case).size(2)).contains("nothing has changed"));
}

fn keys_at_the_top_that_need_a_restart_are_named(case: Case) {
    let pool = config(case).workers(1).top("shutdown_grace = \"2s\"").start();
    let sockets = tempfile::tempdir().unwrap();
    let dir = format!("unix_socket_dir = \"{}\"", sockets.path().display());
    let others = [
        "shutdown_grace = \"3s\"",
        "upgrade_grace = \"3s\"",
        "tcp_user_timeout = \"3s\"",
        "stats_period = \"1h\"",
        "http_listen = [\"127.0.0.1:0\"]",
        &dir,
        "proxy_protocol_from = [\"10.0.0.1\"]",
        "log_connections = true",
        "log_disconnections = true",
    ];
    let changed = others.iter().fold(config(case).port(free_port()).workers(2), |config, line| config.top(line));
    let words = pool.reload(&changed);
    let named =
        |line: &str| Some(line.split_once("  \"")?.1.split_once("\" has changed, which counts after")?.0.to_owned());
    let expected = [
        "listen",
        "unix_socket_dir",
        "workers",
        "shutdown_grace",
        "upgrade_grace",
        "tcp_user_timeout",
        "stats_period",
        "http_listen",
    ];
    assert_eq!(words.lines().filter_map(named).collect::<Vec<_>>(), expected, "{words}");
    for change in ["proxy_protocol_from: 10.0.0.1, was none", "log_connections: true", "log_disconnections: true"] {
        assert!(words.contains(change), "{words}");
    }
}

fn users_come_and_go(case: Case) {
    let database = database(case);
    let with = |list: &[(&str, &str)]| config(case).auth(users(list));
    let pool = with(&[("app", "first")]).start();
    let mut known = pool.connect("app", Some("first"), &database.name).unwrap();
    let words = pool.reload(&with(&[("app", "second"), ("another", "third")]));
    assert!(words.contains("users: 1 added, 1 with another secret"), "{words}");
    assert!(!words.contains("second") && !words.contains("third"), "no secret is in the log");
    let refused = pool.connect("app", Some("first"), &database.name).err().unwrap();
    assert_eq!(refused.code().unwrap().code(), "28P01");
    pool.connect("app", Some("second"), &database.name).unwrap();
    // PostgreSQL asks nobody twice either.
    known.simple_query("SELECT 1").unwrap();
}

/// A client that is there goes on by the password that the file has now.
fn a_password_changes_in_the_file_and_on_the_server(case: Case) {
    let database = database(case);
    let user = format!("{}_rotates", database.name);
    database.server.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD 'first'"));
    let with = |password: &str| config(case).auth(users(&[(user.as_str(), password)]));
    let pool = with("first").start();
    let mut known = pool.connect(&user, Some("first"), &database.name).unwrap();
    known.simple_query("SELECT 1").unwrap();
    database.server.execute(&format!("ALTER ROLE {user} PASSWORD 'second'"));
    pool.reload(&with("second"));
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'");
    database.server.execute(&end);
    becomes("servers of that role", 0, || database.count(&format!("usename = '{user}'")));
    known.simple_query("SELECT 1").unwrap();
    // Now the file has a verifier, which opens servers by what its client shows.
    database.server.execute(&format!("ALTER ROLE {user} PASSWORD 'third'"));
    let verifier = database.server.value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{user}'"));
    pool.reload(&with(&verifier));
    database.server.execute(&end);
    becomes("servers of that role", 0, || database.count(&format!("usename = '{user}'")));
    pool.connect(&user, Some("third"), &database.name).unwrap().simple_query("SELECT 1").unwrap();
    known.simple_query("SELECT 1").unwrap();
}

fn a_database_that_is_gone_ends_its_clients(case: Case) {
    let database = database(case);
    let server = TestServer::shared(case.version);
    let both = || {
        let other = format!("dbname = \"{}\"", database.name);
        PoolConfig::without_databases(SLUICE, case)
            .database(&database.name, server, "")
            .database("other", server, &other)
    };
    let pool = both().start();
    let (mut busy, mut idle, mut other) =
        (pool.raw_app(&database), pool.raw_app(&database), pool.raw().login("app", "other"));
    assert_eq!(idle.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    busy.query(HOLD);
    let lines = format!("dbname = \"{}\"", database.name);
    let words = pool.reload(&PoolConfig::without_databases(SLUICE, case).database("other", server, &lines));
    assert!(words.contains(&format!("database \"{}\" removed", database.name)), "{words}");
    assert_eq!(transcript(&idle.until_end()), "E(FATAL 57P01)");
    assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
    assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(transcript(&busy.until_end()), "E(FATAL 57P01)");
    let refused = pool.connect("app", None, &database.name).err().unwrap();
    assert_eq!(refused.code().unwrap().code(), "3D000");
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // And come again.
    pool.reload(&both());
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

fn a_configuration_that_can_not_be_is_not_gone_by(case: Case) {
    let database = database(case);
    let pool = config(case).size(3).start();
    let mut client = pool.raw_app(&database);
    for (bad, why) in [
        (config(case).size(2).limit("servers = 1"), "limits.servers"),
        (config(case).size(2).limit("clients = 900000"), "files open"),
        (
            config(case).size(2).auth(Auth::Scram(vec![("app".to_owned(), "SCRAM-SHA-256$4096:cut".to_owned())])),
            "users.txt",
        ),
        (config(case).size(2).pool("sise = 3"), "sise"),
    ] {
        let words = pool.reload(&bad);
        assert!(words.contains("everything stays as it was") && words.contains(why), "{why}: {words}");
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
    // Nothing of those has been taken.
    assert!(pool.reload(&config(case).size(3)).contains("nothing has changed"));
    let words = pool.reload(&config(case).size(3).workers(2));
    assert!(words.contains("\"workers\" has changed, which counts after a restart only"), "{words}");
    assert!(words.contains("no change takes effect now") && !words.contains("nothing has changed"), "{words}");
}

/// Two servers with the same database; a table says which is which.
fn here_and_there(case: Case) -> (Database<'static>, TestServer) {
    let here = database(case);
    let there = TestServer::start(case.version, &[]);
    there.execute(&format!("CREATE DATABASE {} OWNER app TEMPLATE template0", here.name));
    let twin = Database { server: &there, name: here.name.clone() };
    for (database, place) in [(&here, "here"), (&twin, "there")] {
        database.execute(&format!("CREATE TABLE place AS SELECT '{place}' AS it"));
    }
    (here, there)
}

fn at(case: Case, server: &TestServer) -> PoolConfig {
    PoolConfig::without_databases(SLUICE, case).database("*", server, "").size(2)
}

fn clients_go_on_where_the_database_has_moved(case: Case) {
    let (here, there) = here_and_there(case);
    let pool = at(case, here.server).start();
    let (mut idle, mut busy) = (pool.app(&here), pool.raw_app(&here));
    let statement = idle.prepare("SELECT it FROM place WHERE $1").unwrap();
    let place = |client: &mut postgres::Client| client.query_one(&statement, &[&true]).unwrap().get::<_, String>(0);
    assert_eq!(place(&mut idle), "here");
    assert_eq!(busy.query(HOLD), "C(BEGIN) Z(T)");
    let words = pool.reload(&at(case, &there));
    assert!(words.contains("database \"*\": server: "), "{words}");
    assert_eq!(busy.query("SELECT it FROM place"), "T(it) D(here) C(SELECT 1) Z(T)");
    assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(place(&mut idle), "there");
    assert_eq!(busy.query("SELECT it FROM place"), "T(it) D(there) C(SELECT 1) Z(I)");
    becomes("connections to the server that was left", 0, || here.connections());
    // And back, to a server that was known before.
    pool.reload(&at(case, here.server));
    assert_eq!(place(&mut idle), "here");
}

fn a_session_stays_where_its_server_is(case: Case) {
    assert_eq!(case.mode, Mode::Session);
    let (here, there) = here_and_there(case);
    let pool = at(case, here.server).start();
    let mut client = pool.raw_app(&here);
    pool.reload(&at(case, &there));
    assert_eq!(client.query("SELECT it FROM place"), "T(it) D(here) C(SELECT 1) Z(I)");
    assert_eq!(pool.raw_app(&here).query("SELECT it FROM place"), "T(it) D(there) C(SELECT 1) Z(I)");
    drop(client);
    becomes("connections to the server that was left", 0, || here.connections());
}
