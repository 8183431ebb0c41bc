//! A sample of the admin console's tables, at one moment.

use std::{collections::BTreeMap, time::Instant};

use postgres::{Client, SimpleQueryMessage, SimpleQueryRow, error::SqlState};
use sluice_lab::connect::words;

/// Its figures.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) databases: BTreeMap<String, Database>,
    /// By database, role and text.
    pub(super) statements: BTreeMap<(String, String, String), Statement>,
}

/// A database: its pools together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) clients: u64,
    pub(super) waiting: u64,
    /// The longest wait that goes on, in microseconds.
    pub(super) longest_wait: u64,
    pub(super) active: u64,
    pub(super) idle: u64,
    pub(super) connecting: u64,
    /// Since the pool's start; times in microseconds.
    pub(super) transactions: u64,
    pub(super) queries: u64,
    pub(super) transaction_time: u64,
    pub(super) query_time: u64,
    pub(super) wait_time: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// A statement that clients share, since the pool knows it; times in microseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) calls: u64,
    pub(super) rows: u64,
    pub(super) time: u64,
    pub(super) waited: u64,
}

/// The reason why there are none.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("it is no admin console")]
    NoConsole,
    #[error("SHOW {of}: {}", words(.source))]
    Lost { of: &'static str, source: postgres::Error },
    #[error("SHOW {0} has no {1}")]
    Column(&'static str, &'static str),
}

/// The database that stands for the console itself.
const OWN_MODE: &str = "statement";

impl Sample {
    /// Asks.
    pub(super) fn read(client: &mut Client) -> Result<Self, ReadError> {
        let mut databases: BTreeMap<String, Database> = BTreeMap::new();
        let pools = Rows::read(client, "POOLS")?;
        for row in pools.rows.iter().filter(|row| row.get("pool_mode") != Some(OWN_MODE)) {
            let number = |column| pools.number(row, column);
            let database = databases.entry(pools.text(row, "database")?).or_default();
            database.clients += number("cl_active")? + number("cl_waiting")?;
            database.waiting += number("cl_waiting")?;
            let wait = number("maxwait")? * 1_000_000 + number("maxwait_us")?;
            database.longest_wait = database.longest_wait.max(wait);
            database.active += number("sv_active")?;
            database.idle += number("sv_idle")?;
            database.connecting += number("sv_login")?;
        }
        let stats = Rows::read(client, "STATS")?;
        for row in &stats.rows {
            let number = |column| stats.number(row, column);
            // Nobody is connected to the others.
            let Some(database) = databases.get_mut(&stats.text(row, "database")?) else { continue };
            database.transactions = number("total_xact_count")?;
            database.queries = number("total_query_count")?;
            database.transaction_time = number("total_xact_time")?;
            database.query_time = number("total_query_time")?;
            database.wait_time = number("total_wait_time")?;
            database.received = number("total_received")?;
            database.sent = number("total_sent")?;
        }
        let listed = Rows::read(client, "STATEMENTS")?;
        let mut statements: BTreeMap<_, Statement> = BTreeMap::new();
        for row in &listed.rows {
            let number = |column| listed.number(row, column);
            let text = |column| listed.text(row, column);
            let statement = statements.entry((text("database")?, text("user")?, text("query")?)).or_default();
            statement.calls += number("calls")?;
            statement.rows += number("rows")?;
            statement.time += number("total_time")?;
            statement.waited += number("wait_time")?;
        }
        Ok(Self { at: Instant::now(), databases, statements })
    }
}

/// The answer to a SHOW.
struct Rows {
    of: &'static str,
    rows: Vec<SimpleQueryRow>,
}

impl Rows {
    fn read(client: &mut Client, of: &'static str) -> Result<Self, ReadError> {
        let messages = client.simple_query(&format!("SHOW {of}")).map_err(|error| match error.code() {
            // PostgreSQL itself knows no such parameter.
            Some(&SqlState::UNDEFINED_OBJECT) => ReadError::NoConsole,
            _ => ReadError::Lost { of, source: error },
        })?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        Ok(Self { of, rows: messages.into_iter().filter_map(row).collect() })
    }

    fn text(&self, row: &SimpleQueryRow, column: &'static str) -> Result<String, ReadError> {
        let value = row.try_get(column).map_err(|_| ReadError::Column(self.of, column))?;
        Ok(value.unwrap_or_default().to_owned())
    }

    fn number(&self, row: &SimpleQueryRow, column: &'static str) -> Result<u64, ReadError> {
        self.text(row, column)?.parse().map_err(|_| ReadError::Column(self.of, column))
    }
}
