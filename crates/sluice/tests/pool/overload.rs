//! Ten times as many clients as may be there: a short version of `make bench-floods`'s overload.

use std::{
    ops::Range,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Case, Database, Raw, TestPool, matrix, raw::transcript};
use sluice_wire::startup::ProtocolVersion;

use crate::{config, database};

matrix!(transaction: beyond_ten_times_its_clients_the_served_keep_their_pace);

/// The clients that may be there, and those that try to be.
const SERVED: usize = 8;
const OTHERS: usize = 9 * SERVED;

/// The time for which latencies are taken, and that between two trials of one of the others.
const TIME: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(250);

/// The most that the others may make of a served client's p99; what takes less than this takes nobody's time, as long as
/// other tests run on the same processors.
const RATIO_MAX: u32 = 2;
const P99_NOT_NOTICED: Duration = Duration::from_millis(10);
/// A disturbed machine gets more trials.
const TRIALS: Range<u32> = 0..5;

/// The p99 of all clients' queries, each as soon as the one before is answered.
fn p99(clients: &mut [Raw]) -> Duration {
    let end = Instant::now() + TIME;
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| {
                let mut times = Vec::new();
                while Instant::now() < end {
                    let begin = Instant::now();
                    assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
                    times.push(begin.elapsed());
                }
                all.lock().unwrap().extend(times);
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_unstable();
    all[all.len() * 99 / 100]
}

/// Tries to log in until `end`, and is refused each time, early and clearly. Returns how often.
fn keep_trying(pool: &TestPool, database: &Database<'_>, end: Instant) -> usize {
    let mut refused = 0;
    while Instant::now() < end {
        let begin = Instant::now();
        let mut raw = pool.raw();
        let said = raw.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
        assert_eq!(transcript(&said), "E(FATAL 53300)");
        assert!(begin.elapsed() < Duration::from_secs(20), "refused after {:?}", begin.elapsed());
        refused += 1;
        thread::sleep(AGAIN);
    }
    refused
}

fn beyond_ten_times_its_clients_the_served_keep_their_pace(case: Case) {
    let database = database(case);
    let pool = config(case).size(4).workers(2).limit(&format!("clients = {SERVED}")).start();
    let mut clients: Vec<Raw> = (0..SERVED).map(|_| pool.raw_app(&database)).collect();
    let mut seen = Vec::new();
    for _ in TRIALS {
        let alone = p99(&mut clients);
        let end = Instant::now() + TIME;
        let crowded = thread::scope(|scope| {
            let others: Vec<_> = (0..OTHERS).map(|_| scope.spawn(|| keep_trying(&pool, &database, end))).collect();
            let crowded = p99(&mut clients);
            let refused: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
            assert!(refused >= OTHERS, "{refused}");
            crowded
        });
        seen.push((alone, crowded));
        if crowded <= (RATIO_MAX * alone).max(P99_NOT_NOTICED) {
            return;
        }
    }
    panic!("p99 alone and with {OTHERS} others: {seen:?}");
}
