//! Things that are done to the sessions of the stress test from outside.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Random, TestServer};

use super::{
    set,
    watch::{RESERVED_MAX, Watch},
};

/// Cancels sessions, and terminates some, until the test is over.
pub(super) fn kill_now_and_then(server: &TestServer, database: &str, seed: u64, stopped: &AtomicBool) {
    let mut random = Random::new(seed ^ 1);
    let mut client = server.superuser("postgres");
    let pids = format!("SELECT pid FROM pg_stat_activity WHERE datname = '{database}' ORDER BY pid");
    while !stopped.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20 + random.below(100) as u64));
        let there: Vec<i32> = client.query(&pids, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        if there.is_empty() {
            continue;
        }
        // Parallel workers are among them.
        let pid = *random.of(&there);
        let how = if random.percent(25) { "pg_terminate_backend" } else { "pg_cancel_backend" };
        client.execute(&format!("SELECT {how}({pid})"), &[]).unwrap();
    }
}

/// Values that settings take in turn.
const VALUES: &[(&str, &[&str])] = &[
    ("sluice.transaction_concurrency", &["1", "2", "3", "4", "5"]),
    ("sluice.autocommit_concurrency", &["0", "1", "2", "3"]),
    ("sluice.query_concurrency", &["0", "1", "2", "4", "auto"]),
    ("sluice.bigquery_concurrency", &["0", "1", "2", "auto"]),
    ("sluice.bigquery_cost", &["0", "100", "400"]),
    ("sluice.role_concurrency", &["", "slow=1", "slow=3", "slow=2, spared=1", "app=6"]),
    ("sluice.database_concurrency", &["", "t0=4", "t0=9"]),
    ("sluice.exempt_roles", &["", "", "spared", "spared, nobody"]),
    ("sluice.gate_timeout", &["0", "0", "100ms", "1s"]),
    ("sluice.transactions_per_admission", &["1", "3", "8"]),
    ("sluice.superuser_reserved_slots", &["0", "1", "2"]),
    ("deadlock_timeout", &["100ms", "1s", "1min"]),
];

/// Changes of settings, and what else is done about the server.
pub(super) struct Chaos<'a> {
    server: &'a TestServer,
    database: &'a str,
    random: Random,
    next: Instant,
    /// The number of changes so far.
    pub(super) changes: u32,
}

impl<'a> Chaos<'a> {
    pub(super) fn new(server: &'a TestServer, database: &'a str, seed: u64) -> Self {
        Self { server, database, random: Random::new(seed ^ 2), next: Instant::now(), changes: 0 }
    }

    /// Does the next thing, if it is time.
    pub(super) fn go_on(&mut self, watch: &mut Watch) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(*self.random.of(&[30, 200, 700, 1500]));
        self.changes += 1;
        match self.random.below(10) {
            0 => self.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'sluice controller'",
            ),
            1 => finish_prepared(self.server, self.database, "interval '1 second'"),
            2 => _ = self.server.value("SELECT count(*) FROM sluice_gate_waiters"),
            _ => self.change_settings(watch),
        }
    }

    fn change_settings(&mut self, watch: &mut Watch) {
        watch.forget();
        let settings: Vec<_> = (0..1 + self.random.below(3))
            .map(|_| {
                let (name, values) = self.random.of(VALUES);
                (*name, *self.random.of(values))
            })
            .collect();
        set(self.server, &settings);
    }
}

/// Rolls back prepared transactions of that age, by a session of their database.
pub(super) fn finish_prepared(server: &TestServer, database: &str, age: &str) {
    let old = format!("SELECT string_agg(gid, ',') FROM pg_prepared_xacts WHERE prepared < now() - {age}");
    let old = server.value(&old);
    let Some(mut client) = server.try_connect("postgres", database) else { return };
    for name in old.split(',').filter(|name| name.starts_with("p_")) {
        // Somebody may have finished it meanwhile, or this session been terminated.
        let _may_fail = client.batch_execute(&format!("ROLLBACK PREPARED '{name}'"));
    }
}

const _: () = assert!(RESERVED_MAX == 2, "the largest value of sluice.superuser_reserved_slots above");
