//! The console's commands by which scripts move a database to another server, and what tells how far that is.

use std::{thread, time::Duration};

use postgres::{NoTls, SimpleQueryMessage};
use sluice_testkit::{Case, PoolConfig, Script, TestPool, eventually, matrix};

use crate::{HOLD, SLUICE, console::with_console, database};

matrix!(transaction:
    a_disabled_database_lets_nobody_in_and_keeps_those_it_has,
    wait_close_ends_with_the_last_server_of_before_a_reconnect,
    wait_close_waits_for_servers_that_a_reload_takes_away,
    wait_close_waits_for_nothing_else,
    names_of_servers_are_shown_with_their_addresses,
    connections_that_have_not_been_sent_all_are_active_sockets,
    what_is_not_there_says_what_to_do_instead,
);

/// What a command of `boss` answers: rows, with `|` between values.
fn rows(pool: &TestPool, command: &str) -> Vec<String> {
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    let messages = boss.simple_query(command).unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("-")).collect::<Vec<_>>().join("|")).collect()
}

fn give(pool: &TestPool, command: &str) {
    pool.connect("boss", None, "pgbouncer").unwrap().simple_query(command).unwrap();
}

fn a_disabled_database_lets_nobody_in_and_keeps_those_it_has(case: Case) {
    let database = database(case);
    let pool = with_console(case).database("other", database.server, "dbname = \"postgres\"").start();
    let mut client = pool.raw_app(&database);
    give(&pool, &format!("DISABLE \"{}\"", database.name));
    let error = pool.connect("app", None, &database.name).err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.severity()), ("55000", "FATAL"));
    assert!(error.hint().unwrap().contains("ENABLE"), "{error:?}");
    assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    pool.raw().login("app", "other");
    // Nobody has come to it by its name yet: it is shown all the same.
    give(&pool, "DISABLE unused");
    let shown = rows(&pool, "SHOW DATABASES");
    assert!(shown.iter().any(|row| row.starts_with("unused|") && row.ends_with("|0|1")), "{shown:?}");
    give(&pool, &format!("ENABLE \"{}\"", database.name));
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

/// Has `WAIT_CLOSE` end only behind what `end` does.
fn ends_behind(pool: &TestPool, command: &str, end: impl FnOnce()) {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| give(pool, command));
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "{command}");
        end();
        eventually("it answers", || waiting.is_finished());
        waiting.join().unwrap();
    });
}

fn wait_close_ends_with_the_last_server_of_before_a_reconnect(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query(HOLD);
    other.query("SELECT 1");
    let before = busy.backend();
    give(&pool, "RECONNECT");
    let named = format!("WAIT_CLOSE \"{}\"", database.name);
    ends_behind(&pool, &named, || {
        // One that was opened since is no concern of it.
        other.query(HOLD);
        assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    });
    assert_ne!(busy.backend(), before);
    give(&pool, "WAIT_CLOSE");
    assert_eq!(other.query("COMMIT"), "C(COMMIT) Z(I)");
    // A cancel ends the wait, and changes nothing.
    busy.query(HOLD);
    give(&pool, "RECONNECT");
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    let token = boss.cancel_token();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || boss.simple_query("WAIT_CLOSE").unwrap_err());
        eventually("it is cancelled", || {
            token.cancel_query(NoTls).unwrap();
            waiting.is_finished()
        });
        assert_eq!(waiting.join().unwrap().code().unwrap().code(), "57014");
    });
    ends_behind(&pool, "WAIT_CLOSE", || _ = busy.query("COMMIT"));
}

fn wait_close_waits_for_servers_that_a_reload_takes_away(case: Case) {
    let database = database(case);
    let config = |lines: &str| {
        let config = PoolConfig::without_databases(SLUICE, case).limit("[admin]\nusers = [\"boss\"]");
        config.database(&database.name, database.server, lines).database("other", database.server, "")
    };
    let pool = config("").start();
    let mut busy = pool.raw_app(&database);
    busy.query(HOLD);
    pool.reload(&config("pool = { auto_prepare = false }"));
    give(&pool, "WAIT_CLOSE other");
    ends_behind(&pool, &format!("WAIT_CLOSE \"{}\"", database.name), || _ = busy.query("COMMIT"));
}

fn wait_close_waits_for_nothing_else(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(1).start();
    let mut busy = pool.raw_app(&database);
    busy.query(HOLD);
    // Who waits for a server has one called back from its client, but nobody has told that one to end.
    let mut waiting = pool.raw_app(&database);
    waiting.send(&Script::new().query("SELECT 1"));
    eventually("it waits", || !rows(&pool, "SHOW WAITS").is_empty());
    give(&pool, "WAIT_CLOSE");
    busy.query("COMMIT");
}

fn names_of_servers_are_shown_with_their_addresses(case: Case) {
    let pool = with_console(case)
        .database_at("named", "localhost", 1, "")
        .database_at("again", "localhost", 2, "")
        .database_at("lost", "nowhere.invalid", 1, "")
        .start();
    let shown = rows(&pool, "SHOW DNS_HOSTS");
    let [localhost, lost] = &shown[..] else { panic!("{shown:?}") };
    let fields: Vec<_> = localhost.split('|').collect();
    assert_eq!(fields[0], "localhost");
    assert!(fields[1].parse::<u32>().unwrap() <= 10, "{localhost}");
    assert!(fields[2].split(',').any(|address| address == "127.0.0.1:0"), "{localhost}");
    assert!(lost.starts_with("nowhere.invalid|") && lost.ends_with('|'), "{lost}");
    assert_eq!(rows(&pool, "SHOW DNS_ZONES"), Vec::<String>::new());
    assert!(rows(&pool, "SHOW LISTS").contains(&"dns_names|2".to_owned()));
}

fn connections_that_have_not_been_sent_all_are_active_sockets(case: Case) {
    const LAST: usize = 24;
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let mut client = pool.raw_app(&database);
    let port = client.local_address().port().to_string();
    let is_its = |row: &String| row.split('|').nth(5) == Some(&port);
    let unsent = |command: &str| {
        let row = rows(&pool, command).into_iter().find(is_its)?;
        row.split('|').nth(LAST)?.parse::<u64>().ok()
    };
    client.query("SELECT 1");
    assert_eq!((unsent("SHOW SOCKETS"), unsent("SHOW ACTIVE_SOCKETS")), (Some(0), None));
    let all = rows(&pool, "SHOW SOCKETS");
    assert!(all.iter().any(|row| row.starts_with("S|app|") && row.contains("|sv_idle|")), "{all:?}");
    // More than the kernel takes while nobody reads.
    client.send(&Script::new().query("SELECT repeat('x', 1000000) FROM generate_series(1, 60)"));
    eventually("it has not been sent all", || unsent("SHOW ACTIVE_SOCKETS").is_some_and(|bytes| bytes > 0));
    client.until_ready(1);
    eventually("it has", || unsent("SHOW ACTIVE_SOCKETS").is_none());
}

fn what_is_not_there_says_what_to_do_instead(case: Case) {
    let pool = with_console(case).start();
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    for (command, remedy) in [
        ("SET default_pool_size = 30", "RELOAD"),
        ("set verbose=1", "RELOAD"),
        ("SUSPEND", "SIGUSR2"),
        ("SHOW FDS", "SIGUSR2"),
        ("SHOW MEM;", "VmRSS"),
    ] {
        let error = boss.simple_query(command).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "0A000", "{command}");
        assert!(error.hint().unwrap().contains(remedy), "{error:?}");
    }
}
