//! Disturbances from outside: others who cancel a client's statement, or end servers.

use std::time::{Duration, Instant};

use sluice_testkit::Raw;
use sluice_wire::startup;

use crate::plan::Key;

/// Those who are no clients of one side, but can reach it.
pub(crate) struct Others<'a> {
    connect: &'a dyn Fn() -> Raw,
    superuser: &'a dyn Fn() -> postgres::Client,
    pub(crate) database: &'a str,
    /// Whether there are servers that are nobody's.
    is_pool: bool,
    /// The superuser's connection, once there is one.
    client: Option<postgres::Client>,
}

impl<'a> Others<'a> {
    /// The others of a side on which each client has a server of its own.
    pub(crate) fn new(
        connect: &'a dyn Fn() -> Raw,
        superuser: &'a dyn Fn() -> postgres::Client,
        database: &'a str,
    ) -> Self {
        Self { connect, superuser, database, is_pool: false, client: None }
    }

    /// The others of a side on which clients share servers.
    pub(crate) fn of_pool(
        connect: &'a dyn Fn() -> Raw,
        superuser: &'a dyn Fn() -> postgres::Client,
        database: &'a str,
    ) -> Self {
        Self { is_pool: true, ..Self::new(connect, superuser, database) }
    }

    pub(crate) fn connect(&self) -> Raw {
        (self.connect)()
    }

    /// Sends a CancelRequest, and waits until it has been passed on.
    pub(crate) fn cancel(&self, key: Option<&(u32, Vec<u8>)>, kind: Key) {
        let Some((process, key)) = key else { return };
        let mut key = key.clone();
        if kind == Key::Wrong
            && let Some(byte) = key.first_mut()
        {
            *byte ^= 1;
        }
        let mut packet = Vec::new();
        startup::put_cancel(&mut packet, *process, &key);
        let mut over = self.connect();
        over.send_bytes(&packet);
        assert_eq!(over.until_end(), []);
    }

    /// Whether a server of this database is asleep.
    pub(crate) fn is_asleep(&mut self) -> bool {
        self.sleeper().is_some()
    }

    /// Whether a server of this database waits for its client in the middle of a statement.
    pub(crate) fn is_waiting(&mut self) -> bool {
        self.query("wait_event = 'ClientRead' AND state = 'active'").is_some()
    }

    /// Ends the server that is asleep.
    pub(crate) fn end_sleeper(&mut self) {
        if let Some(process) = self.sleeper() {
            self.end(&process);
        }
    }

    /// Ends the servers that are idle, where clients share them.
    pub(crate) fn end_idle(&mut self) {
        if !self.is_pool {
            return;
        }
        // It goes to rest a moment after its client's answer, when it has said what the session holds: without that, a
        // client could not go on.
        let begin = Instant::now();
        let at_work = "(state = 'active' OR state = 'idle' AND state_change > clock_timestamp() - interval '60 ms')";
        while self.query(at_work).is_some() && begin.elapsed() < Duration::from_millis(400) {}
        while let Some(process) = self.query("state = 'idle'") {
            self.end(&process);
        }
    }

    /// Ends a server, and waits until it is gone.
    pub(crate) fn end(&mut self, process: &str) {
        let sql = format!("SELECT pg_terminate_backend({process}, 5000)");
        self.client().batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn sleeper(&mut self) -> Option<String> {
        self.query("wait_event = 'PgSleep'")
    }

    /// The process of one of the database's servers.
    fn query(&mut self, condition: &str) -> Option<String> {
        let sql = format!(
            "SELECT pid::text FROM pg_stat_activity WHERE datname = '{}' AND {condition} LIMIT 1",
            self.database
        );
        let rows = self.client().query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.first().map(|row| row.get(0))
    }

    fn client(&mut self) -> &mut postgres::Client {
        self.client.get_or_insert_with(|| (self.superuser)())
    }
}
