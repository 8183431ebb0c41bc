//! Limits: of classes, roles and databases; changed while sessions wait; found by the server itself.

use std::{
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Version, becomes, versions};

use crate::server::{Gate, meanwhile, meanwhile_run, run};

versions!(
    a_higher_limit_lets_more_in,
    without_a_limit_all_go_in,
    a_lower_limit_waits_until_places_are_given_back,
    limits_of_roles_and_databases,
    a_limit_is_found,
    a_limit_that_gains_nothing_stays,
    bad_settings_are_refused,
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

fn a_lower_limit_waits_until_places_are_given_back(version: Version) {
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
    // The queue of the role holds up nobody else, and who stands there takes no place of the class.
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
    // Statements that only sleep gain by each place that there is.
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
        ("transaction_concurrency = 'many'", "It is a number from 0, which means no limit, to 262143, or \"auto\"."),
        ("query_concurrency = '-1'", "It is a number from 0, which means no limit, to 262143, or \"auto\"."),
        ("query_concurrency = ''", "It is a number from 0, which means no limit, to 262143, or \"auto\"."),
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
