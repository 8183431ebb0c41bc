//! Everything at once: sessions that do all that sessions can do, while they are cancelled and terminated, limits change,
//! and the gate's background worker dies.
//!
//! Meanwhile limits are kept. Behind it, the gates are empty and let in as many as they should; each transaction whose
//! COMMIT was acknowledged is there, once and whole; and of those that were rolled back, that failed, or that never came
//! to their COMMIT there is nothing.
//!
//! `SLUICE_STRESS_SECONDS` says for how long, `SLUICE_STRESS_SEED` what each session does. A seed does not repeat what
//! the scheduler did, so a defect that it has shown may need more than one run.

mod acts;
mod blocks;
mod chaos;
mod ledger;
mod session;
mod watch;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant, SystemTime},
};

use postgres::Client;
use sluice_testkit::{TestServer, Version, becomes, versions};

use self::{
    chaos::{Chaos, finish_prepared, kill_now_and_then},
    ledger::{Ledger, Outcome, differences},
    session::Session,
    watch::Watch,
};

versions!(everything_at_once);

/// Each role, and how many sessions it has.
const ROLES: [(&str, usize); 4] = [("app", 14), ("slow", 5), ("spared", 3), ("postgres", 2)];

/// The settings that last.
const LASTING: [(&str, &str); 5] = [
    ("shared_preload_libraries", "sluice"),
    // The observer is there.
    ("sluice.exempt_databases", "postgres"),
    ("max_prepared_transactions", "100"),
    ("max_parallel_workers_per_gather", "2"),
    ("restart_after_crash", "off"),
];

/// The settings at first.
const FIRST: [(&str, &str); 7] = [
    ("sluice.transaction_concurrency", "3"),
    ("sluice.autocommit_concurrency", "2"),
    ("sluice.query_concurrency", "2"),
    ("sluice.bigquery_concurrency", "1"),
    ("sluice.superuser_reserved_slots", "1"),
    // A session that waits for longer hangs.
    ("statement_timeout", "4s"),
    ("idle_in_transaction_session_timeout", "10s"),
];

/// Changes settings, which come into force a moment later.
fn set(server: &TestServer, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        // A list has to be given item by item.
        let items: Vec<String> = value.split(',').map(|item| format!("'{}'", item.trim())).collect();
        server.execute(&format!("ALTER SYSTEM SET {name} = {}", items.join(", ")));
    }
    server.execute("SELECT pg_reload_conf()");
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// The result of a session.
struct Done {
    ledger: Ledger,
    begins_failed: usize,
    begins_refused: usize,
}

fn everything_at_once(version: Version) {
    let time = Duration::from_secs(number("SLUICE_STRESS_SECONDS").unwrap_or(12));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("SLUICE_STRESS_SEED").unwrap_or(u64::from(now.subsec_nanos()));
    // Shown if the test fails.
    println!("{version}: SLUICE_STRESS_SEED={seed} SLUICE_STRESS_SECONDS={}", time.as_secs());
    let server = TestServer::start(version, &LASTING);
    // `postgresql.conf` includes that file if it exists. PostgreSQL logs at each reload that it does not, and whoever is
    // cancelled just then leaves the configuration file open, of which a later COMMIT warns.
    server.execute("COPY (SELECT '') TO PROGRAM 'cat > sluice.conf'");
    set(&server, &FIRST);
    server.execute("CREATE EXTENSION sluice; CREATE ROLE slow LOGIN IN ROLE trusted, app; CREATE ROLE spared LOGIN IN ROLE trusted, app");
    let database = server.database();
    for objects in [ledger::TABLES, acts::OBJECTS] {
        database.execute(objects);
    }
    let _log = KeepLog(&server, version);
    let done = run(&server, &database.name, seed, time);

    empty(&server, &database.name);
    let mut client = database.superuser();
    let (failed, refused) = done.iter().fold((0, 0), |(f, r), done| (f + done.begins_failed, r + done.begins_refused));
    let ledgers: Vec<Ledger> = done.into_iter().map(|done| done.ledger).collect();
    report(&ledgers, failed, refused);
    let differences = differences(&mut client, &ledgers);
    assert!(
        differences.is_empty(),
        "{} differences: {:#?}",
        differences.len(),
        &differences[..differences.len().min(20)]
    );
    drop(client);
    all_slots_are_there(&server, &database.name);
    let log = fs::read_to_string(server.log_file()).unwrap();
    for bad in ["PANIC:", "TRAP:", "was terminated by signal", "XX000", "leak"] {
        let line = log.lines().find(|line| line.contains(bad));
        assert!(line.is_none(), "{line:?}");
    }
}

/// Keeps the server's log, which goes with the server, where the test fails.
struct KeepLog<'a>(&'a TestServer, Version);

impl Drop for KeepLog<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = format!("stress-{:?}-{}.log", self.1, std::process::id());
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            let copied = fs::copy(self.0.log_file(), &kept);
            eprintln!("the server's log: {} ({copied:?})", kept.display());
        }
    }
}

/// Ends all sessions when it is dropped, be it by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All sessions, those who disturb them, and the observer, for so long.
fn run(server: &TestServer, database: &str, seed: u64, time: Duration) -> Vec<Done> {
    let stopped = AtomicBool::new(false);
    let roles = ROLES.iter().flat_map(|(role, count)| std::iter::repeat_n(*role, *count));
    thread::scope(|scope| {
        let sessions: Vec<_> = roles
            .enumerate()
            .map(|(number, role)| {
                let mut session = Session::new(server, database, role, number, seed, &stopped);
                scope.spawn(move || {
                    session.act();
                    session.done()
                })
            })
            .collect();
        let killer = scope.spawn(|| kill_now_and_then(server, database, seed, &stopped));
        let stop = Stop(&stopped);
        let mut chaos = Chaos::new(server, database, seed);
        let mut watch = Watch::new(server.superuser("postgres"));
        let begin = Instant::now();
        // Whoever has failed ends all of it.
        while begin.elapsed() < time && sessions.iter().all(|session| !session.is_finished()) && !killer.is_finished() {
            chaos.go_on(&mut watch);
            watch.look();
            thread::sleep(Duration::from_millis(20));
        }
        drop(stop);
        println!(
            "limits compared {} times, {} of them from outside; up to {} waited; {} changes of settings",
            watch.compared, watch.compared_locks, watch.waiting_max, chaos.changes
        );
        killer.join().unwrap();
        sessions.into_iter().map(|session: ScopedJoinHandle<'_, _>| session.join().unwrap()).collect()
    })
}

/// Says on the terminal what has been done.
fn report(ledgers: &[Ledger], failed: usize, refused: usize) {
    let count = |outcome| ledgers.iter().map(|ledger| ledger.count(outcome)).sum::<usize>();
    let (committed, aborted, unknown) = (count(Outcome::Committed), count(Outcome::Aborted), count(Outcome::Unknown));
    println!("{committed} transactions committed, {aborted} aborted, {unknown} of unknown outcome");
    println!("{refused} blocks were not let in; {failed} BEGINs failed by an interrupt of their own");
    assert!(committed > 100, "hardly anything was done");
    // Those that came before the statement or behind its wait; a wait's own error is no BEGIN's.
    assert!(failed <= 2 + refused / 20, "{failed} BEGINs failed, {refused} were remembered");
}

/// All sessions have gone: nobody is inside, and nobody waits.
fn empty(server: &TestServer, database: &str) {
    let there = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    becomes("sessions", "0".to_owned(), || server.value(&there));
    finish_prepared(server, database, "interval '0'");
    assert_eq!(server.value("SELECT count(*) FROM pg_prepared_xacts"), "0");
    becomes("sessions", "0".to_owned(), || server.value(&there));
    let counts = "SELECT concat_ws('/', sum(running), sum(waiting), (SELECT count(*) FROM sluice_gate_waiters)) FROM sluice_gate";
    becomes("running/waiting/waiters", "0/0/0".to_owned(), || server.value(counts));
}

/// As many go into each gate as its limit says, and no more.
fn all_slots_are_there(server: &TestServer, database: &str) {
    const LIMIT: usize = 2;
    set(
        server,
        &[
            ("sluice.transaction_concurrency", "2"),
            ("sluice.autocommit_concurrency", "2"),
            ("sluice.query_concurrency", "2"),
            ("sluice.bigquery_cost", "0"),
            ("sluice.role_concurrency", ""),
            ("sluice.database_concurrency", ""),
            ("sluice.gate_timeout", "0"),
            ("sluice.superuser_reserved_slots", "1"),
            ("deadlock_timeout", "1min"),
            ("statement_timeout", "0"),
        ],
    );
    for (class, sql) in [
        ("transaction", "BEGIN; SELECT pg_sleep(20)"),
        ("autocommit", "CREATE TEMP TABLE x AS SELECT 1 AS n FROM pg_sleep(20)"),
        ("query", "SELECT pg_sleep(20)"),
    ] {
        let of = |column: &str| server.value(&format!("SELECT {column} FROM sluice_gate WHERE name = '{class}'"));
        becomes(class, LIMIT.to_string(), || of("concurrency"));
        let mut inside: Vec<Client> = Vec::new();
        thread::scope(|scope| {
            let clients = |role: &str, count| (0..count).map(|_| server.connect(role, database)).collect::<Vec<_>>();
            let run = |clients: Vec<Client>| {
                let spawned = clients.into_iter().map(|mut client| {
                    scope.spawn(move || {
                        let _cancelled = client.batch_execute(sql);
                        client
                    })
                });
                spawned.collect::<Vec<_>>()
            };
            let [users, superusers] = [clients("app", LIMIT + 1), clients("postgres", 2)];
            let tokens: Vec<_> = users.iter().chain(&superusers).map(Client::cancel_token).collect();
            // One of them has a slot besides, once the others are taken.
            let mut running = run(users);
            becomes(class, format!("{LIMIT}/1"), || of("concat_ws('/', running, waiting)"));
            running.extend(run(superusers));
            becomes(class, format!("{}/2", LIMIT + 1), || of("concat_ws('/', running, waiting)"));
            tokens.iter().for_each(|token| token.cancel_query(postgres::NoTls).unwrap());
            // Those that had waited may have come in just before they were cancelled.
            inside.extend(running.into_iter().map(|handle| handle.join().unwrap()));
        });
        drop(inside);
        becomes(class, "0/0".to_owned(), || of("concat_ws('/', running, waiting)"));
    }
}
