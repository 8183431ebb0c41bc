//! Limits: of classes, roles and databases; changed while sessions wait; found by the server itself.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use sluice_testkit::{TestServer, Version, becomes, versions};

use crate::server::{Gate, START, meanwhile, meanwhile_run, run};

versions!(
    a_higher_limit_lets_more_in,
    without_a_limit_all_go_in,
    a_lower_limit_waits_until_slots_are_given_back,
    limits_of_roles_and_databases,
    a_limit_is_found,
    a_limit_that_gains_nothing_stays,
    bad_settings_are_refused,
    without_its_background_worker,
    sessions_that_wait_become_exempt,
    superusers_that_wait_get_reserved_slots,
);

fn blocks(gate: &Gate, count: usize) -> Vec<postgres::Client> {
    let mut clients: Vec<_> = (0..count).map(|_| gate.session()).collect();
    clients.iter_mut().for_each(|client| run(client, "BEGIN"));
    clients
}

fn a_higher_limit_lets_more_in(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1")]);
    let _inside = blocks(&gate, 1);
    let waiting: Vec<_> = (0..5).map(|_| meanwhile_run(gate.session(), "BEGIN")).collect();
    gate.waits("transaction", 5);
    gate.set(&[("sluice.transaction_concurrency", "4")]);
    becomes("running/waiting", "4/2".to_owned(), || gate.of("transaction", "concat_ws('/', running, waiting)"));
    gate.set(&[("sluice.transaction_concurrency", "6")]);
    for handle in waiting {
        handle.join().unwrap().1.unwrap();
    }
}

fn without_a_limit_all_go_in(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "1")]);
    let inside = blocks(&gate, 1);
    let waiting: Vec<_> = (0..5).map(|_| meanwhile_run(gate.session(), "BEGIN")).collect();
    gate.waits("transaction", 5);
    gate.set(&[("sluice.transaction_concurrency", "0")]);
    let all: Vec<_> = waiting.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert!(all.iter().all(|(_, outcome)| outcome.is_ok()));
    gate.runs("transaction", 1);
    drop(inside);
    gate.runs("transaction", 0);
}

fn a_lower_limit_waits_until_slots_are_given_back(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "3")]);
    let mut inside = blocks(&gate, 3);
    gate.set(&[("sluice.transaction_concurrency", "1")]);
    let waiting = meanwhile_run(gate.session(), "BEGIN");
    gate.waits("transaction", 1);
    inside.truncate(1);
    gate.runs("transaction", 1);
    gate.waits("transaction", 1);
    drop(inside);
    waiting.join().unwrap().1.unwrap();
}

fn limits_of_roles_and_databases(version: Version) {
    let gate = Gate::new(version, &[]);
    gate.server.execute("DROP ROLE IF EXISTS slow; CREATE ROLE slow LOGIN IN ROLE trusted");
    let (all, database) = ("sluice.transaction_concurrency", "sluice.database_concurrency");
    gate.set(&[(all, "5"), ("sluice.role_concurrency", "slow=1, nobody=7")]);
    becomes("the gate of the role", "1".to_owned(), || gate.of("slow", "concurrency"));
    let mut slow = gate.session_of("slow");
    run(&mut slow, "BEGIN");
    // The queue of the role holds up nobody else, and who stands there takes no slot of the class.
    let waiting = meanwhile_run(gate.session_of("slow"), "BEGIN");
    gate.waits("slow", 1);
    gate.runs("transaction", 1);
    drop(blocks(&gate, 3));
    gate.runs("transaction", 1);
    // Its limit goes away, and with it the gate.
    gate.set(&[("sluice.role_concurrency", "nobody=7")]);
    let (client, outcome) = waiting.join().unwrap();
    outcome.unwrap();
    drop((slow, client));
    becomes("the gate of the role", "no row".to_owned(), || gate.of("slow", "concurrency"));
    // A session that has connected before hears of a new one.
    let mut client = gate.session();
    run(&mut client, "SELECT 1");
    let limit = format!("{}=1", gate.database.name);
    gate.set(&[(database, limit.as_str())]);
    becomes("the gate of the database", "1".to_owned(), || gate.of(&gate.database.name, "concurrency"));
    run(&mut client, "BEGIN");
    gate.runs(&gate.database.name, 1);
    let waiting = meanwhile_run(gate.session(), "SELECT 1");
    gate.waits(&gate.database.name, 1);
    run(&mut client, "COMMIT");
    waiting.join().unwrap().1.unwrap();
    assert_eq!(gate.sum("running"), 0);
}

fn a_limit_is_found(version: Version) {
    let gate = Gate::new(version, &[]);
    let processors: usize = thread::available_parallelism().unwrap().get();
    gate.server.execute("ALTER SYSTEM SET sluice.query_concurrency = 'AUTO'");
    gate.server.execute("SELECT pg_reload_conf()");
    let first = (processors * 8).max(64);
    becomes("it begins with what the processors suggest", format!("{first}/t"), || {
        gate.of("query", "concat_ws('/', concurrency, is_auto)")
    });
    // Statements that only sleep gain by each slot that there is.
    let sleepers: Vec<_> = (0..first * 2)
        .map(|_| meanwhile(gate.session(), |client| while client.batch_execute("SELECT pg_sleep(0.02)").is_ok() {}))
        .collect();
    // Four pairs take ten seconds; if they don't agree, as on a busy machine, lower limits come first.
    let begin = Instant::now();
    while gate.of("query", "concurrency").parse::<usize>().unwrap() <= first {
        assert!(begin.elapsed() < Duration::from_secs(150), "the limit does not rise");
        thread::sleep(Duration::from_millis(100));
    }
    gate.end_sessions();
    for handle in sleepers {
        handle.join().unwrap();
    }
}

/// All want the same row, so no limit lets more through than another.
fn a_limit_that_gains_nothing_stays(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut client = gate.session();
    run(&mut client, "CREATE TABLE t (n int); INSERT INTO t VALUES (0)");
    let first = thread::available_parallelism().unwrap().get().max(8) * 8;
    let updaters: Vec<_> = (0..first * 2)
        .map(|_| {
            let work = "UPDATE t SET n = n + 1 WHERE pg_sleep(0.005) IS NOT NULL";
            meanwhile(gate.session(), move |client| while client.batch_execute(work).is_ok() {})
        })
        .collect();
    // In force from the first moment on, whatever is tried.
    gate.server.execute("ALTER SYSTEM SET sluice.autocommit_concurrency = 'auto'");
    gate.server.execute("SELECT pg_reload_conf()");
    becomes("a limit", true, || gate.of("autocommit", "concurrency") != "0");
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(200));
        let limit: usize = gate.of("autocommit", "concurrency").parse().unwrap();
        assert!((first / 3..=first * 2).contains(&limit), "{limit}, began with {first}");
    }
    gate.end_sessions();
    for handle in updaters {
        handle.join().unwrap();
    }
}

fn bad_settings_are_refused(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut superuser = gate.database.superuser();
    for (setting, detail) in [
        ("transaction_concurrency = 'many'", "Valid values are numbers from 0 (no limit) to 262143, and \"auto\"."),
        ("query_concurrency = '-1'", "Valid values are numbers from 0 (no limit) to 262143, and \"auto\"."),
        ("query_concurrency = ''", "Valid values are numbers from 0 (no limit) to 262143, and \"auto\"."),
        ("role_concurrency = 'a=1', 'b'", "\"b\" is not of the form name=limit."),
        ("role_concurrency = '=1'", "\"=1\" is not of the form name=limit."),
        ("database_concurrency = 'a=x'", "\"a=x\" is not of the form name=limit."),
    ] {
        let error = superuser.batch_execute(&format!("ALTER SYSTEM SET sluice.{setting}")).unwrap_err();
        let error = error.as_db_error().unwrap_or_else(|| panic!("{setting}: {error:?}"));
        assert_eq!(error.detail(), Some(detail), "{setting}");
    }
    let unknown = superuser.batch_execute("SET sluice.concurrency = 1").unwrap_err();
    assert_eq!(unknown.code().unwrap().code(), "42602");
}

/// The server has no slot for it: a session puts a change into force with its next transaction, and the log says so.
fn without_its_background_worker(version: Version) {
    let settings: Vec<_> = START.into_iter().chain([("max_worker_processes", "0")]).collect();
    let server = TestServer::start(version, &settings);
    server.execute("CREATE EXTENSION sluice");
    let database = server.database();
    let of =
        |name: &str, column: &str| server.value(&format!("SELECT {column} FROM sluice_gate WHERE name = '{name}'"));
    let session = || server.connect("app", &database.name);
    server.execute("ALTER SYSTEM SET sluice.query_concurrency = 1");
    server.execute("SELECT pg_reload_conf()");
    becomes("the limit", "1".to_owned(), || of("query", "concurrency"));
    let inside = meanwhile_run(session(), "SELECT pg_sleep(60)");
    becomes("running", "1".to_owned(), || of("query", "running"));
    let waiting = meanwhile_run(session(), "SELECT 1");
    becomes("waiting", "1".to_owned(), || of("query", "waiting"));
    server.execute("ALTER SYSTEM SET sluice.query_concurrency = 2");
    server.execute("ALTER SYSTEM SET sluice.role_concurrency = 'app=9'");
    server.execute("SELECT pg_reload_conf()");
    // Any transaction does; these are exempt.
    becomes("the limit", "2".to_owned(), || of("query", "concurrency"));
    waiting.join().unwrap().1.unwrap();
    assert_eq!(of("app", "concurrency"), "9");
    becomes("the log", true, || {
        server.execute("SELECT pg_reload_conf()");
        let log = fs::read_to_string(server.log_file()).unwrap();
        log.contains("LOG:  sluice: the background worker \"sluice controller\" is not running")
    });
    let log = fs::read_to_string(server.log_file()).unwrap();
    assert!(log.matches("sluice controller\" is not running").count() < 4, "{log}");
    server.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'");
    assert!(inside.join().unwrap().1.is_err());
    becomes("running", "0".to_owned(), || of("query", "running"));
}

fn sessions_that_wait_become_exempt(version: Version) {
    let gate = Gate::new(version, &[("sluice.query_concurrency", "1"), ("sluice.transaction_concurrency", "1")]);
    gate.server.execute("DROP ROLE IF EXISTS spared; CREATE ROLE spared LOGIN IN ROLE trusted");
    let inside = meanwhile_run(gate.session(), "SELECT pg_sleep(30)");
    gate.runs("query", 1);
    let _block = blocks(&gate, 1);
    let others = [meanwhile_run(gate.session(), "SELECT 1"), meanwhile_run(gate.session(), "BEGIN; COMMIT")];
    let spared = [
        meanwhile_run(gate.session_of("spared"), "SELECT 1"),
        meanwhile_run(gate.session_of("spared"), "BEGIN; COMMIT"),
    ];
    gate.waits("query", 2);
    gate.waits("transaction", 2);
    gate.set(&[("sluice.exempt_roles", "spared")]);
    for handle in spared {
        handle.join().unwrap().1.unwrap();
    }
    gate.waits("query", 1);
    gate.waits("transaction", 1);
    gate.end_sessions();
    drop((inside.join(), others.map(|handle| handle.join())));
}

/// The operator waits when somebody else reserves slots for superusers.
fn superusers_that_wait_get_reserved_slots(version: Version) {
    let server = TestServer::start(version, &[START[0], START[2]]);
    server.execute("CREATE EXTENSION sluice");
    let database = server.database();
    let of = |column: &str| server.value(&format!("SELECT {column} FROM sluice_gate WHERE name = 'query'"));
    let set = |name: &str, value: &str| {
        server.execute(&format!("ALTER SYSTEM SET sluice.{name} = {value}"));
        server.execute("SELECT pg_reload_conf()");
        becomes(name, value.to_owned(), || server.value(&format!("SELECT current_setting('sluice.{name}')")));
    };
    set("superuser_reserved_slots", "0");
    set("query_concurrency", "1");
    becomes("the limit", "1".to_owned(), || of("concurrency"));
    let inside = meanwhile_run(server.connect("app", &database.name), "SELECT pg_sleep(60)");
    becomes("running", "1".to_owned(), || of("running"));
    let waiting = meanwhile_run(server.connect("app", &database.name), "SELECT 1");
    let superuser = meanwhile_run(database.superuser(), "SELECT 1");
    becomes("waiting", "2".to_owned(), || of("waiting"));
    set("superuser_reserved_slots", "1");
    superuser.join().unwrap().1.unwrap();
    assert_eq!(of("concat_ws('/', running, waiting)"), "1/1");
    server.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'");
    drop((inside.join(), waiting.join()));
}
