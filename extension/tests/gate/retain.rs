//! Several transactions in a row by one admission, while others wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Version, becomes, versions};

use crate::server::{Gate, ONE_BLOCK, Running, meanwhile, meanwhile_run, pid_of, run};

versions!(
    a_session_goes_on_while_others_wait,
    consecutive_transactions_have_a_limit,
    a_slot_is_not_kept_for_long,
    a_slot_is_not_kept_where_another_class_comes,
    a_slot_is_not_kept_by_who_is_limited_as_a_role,
    slots_are_retained_after_short_transactions,
    the_end_of_a_session_releases_a_retained_slot,
    the_limit_is_kept,
    limits_change_meanwhile,
);

const THREE_TRANSACTIONS: (&str, &str) = ("sluice.transactions_per_admission", "3");

/// Far longer than a slot may be retained, even on a busy machine, and far shorter than `deadlock_timeout`.
const IN_TIME: Duration = Duration::from_secs(20);

/// Transactions of a session that leave its name, without a client between them that could be late. Others can't be
/// overtaken while one takes that long.
fn mark(name: &str, times: usize) -> String {
    format!("BEGIN; INSERT INTO came SELECT '{name}', clock_timestamp() FROM pg_sleep(0.002); COMMIT;").repeat(times)
}

fn meanwhile_mark(gate: &Gate, name: &str, times: usize) -> Running {
    let sql = mark(name, times);
    meanwhile(gate.session(), move |client| client.batch_execute(&sql))
}

/// A session that is inside, and has made the table for marks.
fn inside(gate: &Gate) -> postgres::Client {
    let mut client = gate.session();
    run(&mut client, "CREATE TABLE came (name text, at timestamptz)");
    run(&mut client, "BEGIN");
    client
}

/// The marks, in the order in which they came.
fn order(gate: &Gate) -> String {
    gate.session().query_one("SELECT coalesce(string_agg(name, '' ORDER BY at), '') FROM came", &[]).unwrap().get(0)
}

/// Joins within the time for which slots are retained.
fn join(waiting: Running) -> postgres::Client {
    let begin = Instant::now();
    let (client, outcome) = waiting.join().unwrap();
    outcome.unwrap();
    assert!(begin.elapsed() < IN_TIME, "{:?}", begin.elapsed());
    client
}

/// The order of a session that goes on with `then` in the same string after its first transaction, and one that waits.
fn order_after(gate: &Gate, then: &str) -> String {
    let mut first = inside(gate);
    let waiting = meanwhile_mark(gate, "b", 1);
    gate.waits("transaction", 1);
    // Behind that, the one that waits can't be overtaken any more.
    thread::sleep(Duration::from_millis(50));
    run(&mut first, &format!("COMMIT{then}; {}", mark("a", 1)));
    join(waiting);
    order(gate)
}

fn a_session_goes_on_while_others_wait(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, ("sluice.transactions_per_admission", "1")]);
    assert_eq!(order_after(&gate, ""), "ba", "each transaction queues up");
    run(&mut gate.session(), "DROP TABLE came");
    gate.set(&[THREE_TRANSACTIONS]);
    assert_eq!(order_after(&gate, ""), "ab");
    assert_eq!(gate.of("transaction", "concat_ws('/', admitted, waited, over_limit, running)"), "6/3/0/0");
    // What passes no gate is no end of it, and a chained block is the next one.
    for then in
        ["; SET work_mem = '1MB'; COMMIT", " AND CHAIN; INSERT INTO came VALUES ('c', clock_timestamp()); COMMIT"]
    {
        run(&mut gate.session(), "DROP TABLE came");
        assert_eq!(order_after(&gate, then).trim_start_matches('c'), "ab");
    }
}

fn consecutive_transactions_have_a_limit(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS]);
    let mut holder = inside(&gate);
    let busy: Vec<Running> = ["a", "b"]
        .into_iter()
        .zip(1..)
        .map(|(name, slot)| {
            let waiting = meanwhile_mark(&gate, name, 30);
            gate.waits("transaction", slot);
            waiting
        })
        .collect();
    thread::sleep(Duration::from_millis(50));
    run(&mut holder, "COMMIT");
    busy.into_iter().for_each(|handle| drop(join(handle)));
    let order = order(&gate);
    let while_both = &order[..order.rfind('a').unwrap().min(order.rfind('b').unwrap())];
    // A moment without a processor may release a retained slot early, and one of them may be followed by another of the same session's.
    assert!(!while_both.contains("aaaaaaa") && !while_both.contains("bbbbbbb"), "{order}");
    assert!(while_both.matches("aaabbb").count() >= 5, "{order}");
}

/// Its client does not come back; nobody else does anything.
fn a_slot_is_not_kept_for_long(version: Version) {
    let gate = Gate::new(version, &[("sluice.transaction_concurrency", "2"), THREE_TRANSACTIONS]);
    let mut first = inside(&gate);
    let mut second = gate.session();
    run(&mut second, "BEGIN");
    let mut waiting: Vec<_> = (1..=4)
        .map(|slot| {
            let mut client = gate.session();
            let pid = pid_of(&mut client);
            let waiting = meanwhile_run(client, "BEGIN");
            gate.waits("transaction", slot);
            (pid, waiting)
        })
        .collect();
    let mut next = || waiting.remove(0);
    run(&mut first, "COMMIT");
    let mut third = join(next().1);
    gate.runs("transaction", 2);
    // The session that is to take slots back goes away meanwhile.
    run(&mut third, "COMMIT");
    run(&mut second, "COMMIT");
    let (pid, cancelled) = next();
    gate.server.execute(&format!("SELECT pg_cancel_backend({pid})"));
    // It may have been let in before that came: it leaves in any case.
    drop(cancelled.join().unwrap());
    let fourth = join(next().1);
    let fifth = join(next().1);
    drop((fourth, fifth));
    gate.runs("transaction", 0);
    assert_eq!(gate.of("transaction", "over_limit"), "0");
}

fn a_slot_is_not_kept_where_another_class_comes(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS, ("sluice.query_concurrency", "1")]);
    assert_eq!(order_after(&gate, "; SELECT 1; COMMIT"), "ba");
    gate.set(&[("sluice.query_concurrency", "0")]);
    run(&mut gate.session(), "DROP TABLE came");
    assert_eq!(order_after(&gate, "; SELECT 1; COMMIT"), "ba", "a class without a limit is another one, too");
}

fn a_slot_is_not_kept_by_who_is_limited_as_a_role(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS, ("sluice.role_concurrency", "app=5")]);
    becomes("the gate of the role", "5".to_owned(), || gate.of("app", "concurrency"));
    assert_eq!(order_after(&gate, ""), "ba");
    assert_eq!(gate.sum("running"), 0);
}

fn slots_are_retained_after_short_transactions(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS]);
    let mut first = inside(&gate);
    let waiting = meanwhile_mark(&gate, "b", 1);
    gate.waits("transaction", 1);
    run(&mut first, "SELECT pg_sleep(1.1)");
    run(&mut first, &format!("COMMIT; {}", mark("a", 1)));
    join(waiting);
    assert_eq!(order(&gate), "ba");
}

fn the_end_of_a_session_releases_a_retained_slot(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS]);
    let mut first = inside(&gate);
    for end in ["a client that goes", "termination", "a client that breaks off"] {
        let pid = pid_of(&mut first);
        let waiting = meanwhile_run(gate.session(), "BEGIN");
        gate.waits("transaction", 1);
        match end {
            "termination" => {
                run(&mut first, "COMMIT");
                gate.server.execute(&format!("SELECT pg_terminate_backend({pid})"));
            }
            "a client that goes" => {
                run(&mut first, "COMMIT");
                drop(first);
            }
            // With what it had sent still to be done.
            _ => {
                let token = first.cancel_token();
                let running = meanwhile_run(first, "COMMIT; BEGIN; COMMIT; BEGIN; SELECT pg_sleep(60)");
                thread::sleep(Duration::from_millis(50));
                token.cancel_query(postgres::NoTls).unwrap();
                drop(running.join().unwrap());
            }
        }
        first = join(waiting);
        gate.runs("transaction", 1);
        gate.waits("transaction", 0);
    }
    drop(first);
    gate.runs("transaction", 0);
}

/// Transactions, each of which finds one of so many advisory locks free, or too many are inside.
fn one_of(locks: usize) -> String {
    format!(
        "BEGIN;
         DO $$
         DECLARE mine int;
         BEGIN
           FOR n IN 1..{locks} LOOP
             IF pg_try_advisory_lock(n) THEN mine := n; EXIT; END IF;
           END LOOP;
           ASSERT mine IS NOT NULL, 'too many are inside';
           PERFORM pg_sleep(0.0005), pg_advisory_unlock(mine);
         END $$;
         COMMIT"
    )
}

/// Sessions that run transactions until they are told to stop; how many each has done. Each now and then thinks for longer
/// than its slot is kept.
fn workers(gate: &Gate, count: usize, sql: &str, stopped: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<u64>> {
    (0..count)
        .map(|number| {
            let (mut client, sql, stopped) = (gate.session(), sql.to_owned(), stopped.clone());
            thread::spawn(move || {
                let mut done = 0;
                while !stopped.load(Ordering::Relaxed) {
                    run(&mut client, &sql);
                    done += 1;
                    if (done + number as u64).is_multiple_of(20) {
                        thread::sleep(Duration::from_millis(number as u64 * 10));
                    }
                }
                done
            })
        })
        .collect()
}

fn the_limit_is_kept(version: Version) {
    let gate =
        Gate::new(version, &[("sluice.transaction_concurrency", "3"), ("sluice.transactions_per_admission", "5")]);
    let stopped = Arc::default();
    let workers = workers(&gate, 12, &one_of(3), &stopped);
    thread::sleep(Duration::from_secs(3));
    stopped.store(true, Ordering::Relaxed);
    let done: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(done.iter().all(|done| *done > 10), "{done:?}");
    let counted = gate.of("transaction", "concat_ws('/', admitted, running, waiting, over_limit, waited < admitted)");
    assert_eq!(counted, format!("{}/0/0/0/t", done.iter().sum::<u64>()));
}

fn limits_change_meanwhile(version: Version) {
    let gate = Gate::new(version, &[ONE_BLOCK, THREE_TRANSACTIONS]);
    let stopped = Arc::default();
    let workers = workers(&gate, 8, &one_of(8), &stopped);
    for (limit, transactions) in
        [("4", "3"), ("1", "10"), ("0", "2"), ("2", "1"), ("3", "1000"), ("1", "8"), ("0", "8")]
    {
        gate.set(&[("sluice.transaction_concurrency", limit), ("sluice.transactions_per_admission", transactions)]);
        thread::sleep(Duration::from_millis(200));
        if limit != "0" {
            let limit = limit.parse::<i64>().unwrap();
            becomes("no more inside than that", true, || gate.sum("running") <= limit);
        }
        gate.server.execute("SELECT sluice_gate_reset()");
    }
    // Nobody waits, so no slot is retained.
    becomes("the queue", (0, true), || (gate.sum("waiting"), gate.sum("running") <= 8));
    gate.set(&[("sluice.transaction_concurrency", "2")]);
    stopped.store(true, Ordering::Relaxed);
    for worker in workers {
        assert!(worker.join().unwrap() > 10);
    }
    assert_eq!(gate.of("transaction", "concat_ws('/', running, waiting)"), "0/0");
}
