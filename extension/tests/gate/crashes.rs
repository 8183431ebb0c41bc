//! Backends that end in any way, at any point, under load: slots in use return to what runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use sluice_testkit::{TestServer, Version, becomes, proc, versions};

use crate::server::START;

versions!(slots_survive_any_end);

/// Signals that one run sends; `SLUICE_TEST_KILLS` says how many.
fn kills() -> u32 {
    std::env::var("SLUICE_TEST_KILLS").map_or(340, |text| text.parse().expect("SLUICE_TEST_KILLS is a number"))
}

fn slots_survive_any_end(version: Version) {
    let settings: Vec<_> = START
        .into_iter()
        .chain([
            ("sluice.transaction_concurrency", "2"),
            ("sluice.autocommit_concurrency", "2"),
            ("sluice.query_concurrency", "2"),
            ("sluice.bigquery_concurrency", "auto"),
            ("sluice.role_concurrency", "app=5"),
            ("restart_after_crash", "on"),
        ])
        .collect();
    let server = Arc::new(TestServer::start(version, &settings));
    server.execute("CREATE EXTENSION sluice; CREATE TABLE t (n int); GRANT ALL ON t TO app");
    server.execute("CREATE DATABASE busy OWNER app");
    server.execute("CREATE ROLE free LOGIN IN ROLE trusted");
    let stopped = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..12)
        .map(|number| {
            let (server, stopped, done) = (server.clone(), stopped.clone(), done.clone());
            thread::spawn(move || work(&server, number, &stopped, &done))
        })
        .collect();

    let kinds = [proc::Kind::SIGTERM, proc::Kind::SIGINT, proc::Kind::SIGTERM, proc::Kind::SIGKILL];
    for kill in 0..kills() {
        // Hard kills restart the whole server, so they are fewer.
        let kind = if kill % 20 == 19 { proc::Kind::SIGKILL } else { kinds[kill as usize % 3] };
        let pid = server.try_value("SELECT pid FROM pg_stat_activity WHERE datname = 'busy' ORDER BY random() LIMIT 1");
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok()) {
            proc::try_send(pid, kind);
        }
        thread::sleep(Duration::from_millis(u64::from(kill * 7 % 13)));
    }
    let limit = "SELECT concurrency > 0 FROM sluice_gate WHERE name = 'bigquery'";
    becomes("a limit that is found is in force", Some("t".to_owned()), || server.try_value(limit));
    let before = done.load(Ordering::Relaxed);
    becomes("work goes on", true, || done.load(Ordering::Relaxed) > before + 100);
    stopped.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    becomes("nobody is left inside", Some("0/0".to_owned()), || {
        server.try_value("SELECT concat_ws('/', sum(running), sum(waiting)) FROM sluice_gate")
    });
}

/// Works until it is told to stop, with a new connection after each one that breaks.
fn work(server: &TestServer, number: u32, stopped: &AtomicBool, done: &AtomicU32) {
    let statements = [
        "BEGIN; SELECT pg_sleep(0.001); COMMIT",
        "SELECT count(*) FROM generate_series(1, 1000)",
        "CREATE TEMP TABLE IF NOT EXISTS x (n int); INSERT INTO x VALUES (1)",
        "BEGIN; SAVEPOINT s; SELECT 1/0",
        "DO $$ BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END $$",
    ];
    while !stopped.load(Ordering::Relaxed) {
        // Those without a limit of their role keep slots between transactions.
        let Some(mut client) = server.try_connect(if number.is_multiple_of(2) { "app" } else { "free" }, "busy") else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        for round in 0.. {
            let sql = statements[(number + round / 4) as usize % statements.len()];
            let _may_fail = client.batch_execute(sql);
            let _may_fail = client.batch_execute("ROLLBACK");
            if client.is_closed() || stopped.load(Ordering::Relaxed) {
                break;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}
