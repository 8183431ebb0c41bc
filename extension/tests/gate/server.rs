//! A server with the gate, set up for one test at a time.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
};

use postgres::{Client, error::SqlState};
use sluice_testkit::{Database, TestServer, Version, becomes};

/// The settings unless a test says otherwise: no limits, and defaults for the rest.
const OPEN: [(&str, &str); 11] = [
    ("sluice.transaction_concurrency", "0"),
    ("sluice.autocommit_concurrency", "0"),
    ("sluice.query_concurrency", "0"),
    ("sluice.bigquery_concurrency", "0"),
    ("sluice.bigquery_cost", "0"),
    ("sluice.role_concurrency", ""),
    ("sluice.database_concurrency", ""),
    ("sluice.gate_timeout", "0"),
    ("sluice.transactions_per_admission", "8"),
    ("sluice.exempt_roles", ""),
    // Nothing is let in to break a deadlock, unless that is what is tested.
    ("deadlock_timeout", "1min"),
];

/// The settings that are needed at the start of a server.
pub(crate) const START: [(&str, &str); 4] = [
    ("shared_preload_libraries", "sluice"),
    ("max_prepared_transactions", "10"),
    // The tests look on from there.
    ("sluice.exempt_databases", "postgres"),
    ("sluice.superuser_reserved_slots", "1"),
];

/// Limits of one.
pub(crate) const ONE_BLOCK: (&str, &str) = ("sluice.transaction_concurrency", "1");
pub(crate) const ONE_QUERY: (&str, &str) = ("sluice.query_concurrency", "1");
pub(crate) const ONE_WRITE: (&str, &str) = ("sluice.autocommit_concurrency", "1");

/// A server, a database on it, and its limits, for the time of a test.
pub(crate) struct Gate {
    pub(crate) server: &'static TestServer,
    pub(crate) database: Database<'static>,
    _turn: MutexGuard<'static, ()>,
}

impl Gate {
    /// The server of that version, with these settings.
    pub(crate) fn new(version: Version, settings: &[(&str, &str)]) -> Self {
        struct Shared {
            server: OnceLock<TestServer>,
            turn: Mutex<()>,
        }
        static SHARED: [Shared; 3] = [const { Shared { server: OnceLock::new(), turn: Mutex::new(()) } }; 3];
        let shared = &SHARED[match version {
            Version::V15 => 0,
            Version::V16 => 1,
            Version::V18 => 2,
        }];
        let turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let server = shared.server.get_or_init(|| {
            let server = TestServer::start_for_process(version, &START);
            server.execute("CREATE EXTENSION sluice");
            server
        });
        // What a test that failed has left behind.
        server.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
        let gate = Self { server, database: server.database(), _turn: turn };
        gate.set(&OPEN);
        gate.set(settings);
        becomes("the gates are empty", (0, 0), || (gate.sum("running"), gate.sum("waiting")));
        server.execute("SELECT sluice_gate_reset()");
        gate
    }

    /// Changes settings, and waits until they are in force.
    pub(crate) fn set(&self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            // A list has to be given item by item.
            let items: Vec<String> = value.split(',').map(|item| format!("'{}'", item.trim())).collect();
            self.server.execute(&format!("ALTER SYSTEM SET {name} = {}", items.join(", ")));
        }
        self.server.execute("SELECT pg_reload_conf()");
        for (name, value) in settings {
            let shown = || self.server.value(&format!("SELECT current_setting('{name}')")).replace(' ', "");
            becomes(name, value.replace(' ', ""), shown);
            if let Some(class) = name.strip_prefix("sluice.").and_then(|n| n.strip_suffix("_concurrency"))
                && !matches!(class, "role" | "database")
            {
                becomes(name, (*value).to_owned(), || self.of(class, "concurrency"));
            }
        }
    }

    /// Ends all sessions on the test's database.
    pub(crate) fn end_sessions(&self) {
        let name = &self.database.name;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname";
        self.server.value(&format!("{end} = '{name}'"));
    }

    /// A session of `app`.
    pub(crate) fn session(&self) -> Client {
        self.session_of("app")
    }

    /// A session of that role.
    pub(crate) fn session_of(&self, role: &str) -> Client {
        self.server.connect(role, &self.database.name)
    }

    /// A column of the view for a gate.
    pub(crate) fn of(&self, name: &str, column: &str) -> String {
        self.server.value(&format!("SELECT {column} FROM sluice_gate WHERE name = '{name}'"))
    }

    /// The sum of a column of the view over all gates.
    pub(crate) fn sum(&self, column: &str) -> i64 {
        self.server.value(&format!("SELECT sum({column}) FROM sluice_gate")).parse().unwrap()
    }

    /// Waits until so many stand before a gate.
    pub(crate) fn waits(&self, name: &str, count: usize) {
        becomes(name, count.to_string(), || self.of(name, "waiting"));
    }

    /// Waits until so many are inside a gate.
    pub(crate) fn runs(&self, name: &str, count: usize) {
        becomes(name, count.to_string(), || self.of(name, "running"));
    }
}

/// Runs something in a session meanwhile; it and its outcome come back with `join`.
pub(crate) fn meanwhile<T: Send + 'static>(
    mut client: Client,
    work: impl FnOnce(&mut Client) -> T + Send + 'static,
) -> JoinHandle<(Client, T)> {
    thread::spawn(move || {
        let outcome = work(&mut client);
        (client, outcome)
    })
}

/// Statements that run meanwhile; their session and their outcome come back with `join`.
pub(crate) type Running = JoinHandle<(Client, Result<(), postgres::Error>)>;

/// Runs statements in a session meanwhile.
pub(crate) fn meanwhile_run(client: Client, sql: &'static str) -> Running {
    meanwhile(client, move |client| client.batch_execute(sql))
}

/// Runs statements that must succeed.
pub(crate) fn run(client: &mut Client, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// The process of a session.
pub(crate) fn pid_of(client: &mut Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
}

/// The SQLSTATE of what must have failed.
pub(crate) fn code<T>(outcome: Result<T, postgres::Error>) -> SqlState {
    match outcome {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.code().unwrap_or_else(|| panic!("{error:?}")).clone(),
    }
}

/// The slot of the query gate, taken by a statement that waits for an advisory lock, which another session holds.
pub(crate) struct Occupied {
    holder: Client,
    inside: Running,
}

impl Occupied {
    pub(crate) fn by(gate: &Gate, sql: &'static str) -> Self {
        let mut holder = gate.session();
        run(&mut holder, "SELECT pg_advisory_lock(1)");
        let inside = meanwhile_run(gate.session(), sql);
        gate.runs("query", 1);
        Self { holder, inside }
    }

    pub(crate) fn end(self) {
        drop(self.holder);
        self.inside.join().unwrap().1.unwrap();
    }
}
