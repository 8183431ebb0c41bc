//! Settings and counters from a running server.
//!
//! Simple queries only, each for itself, so that it works through a pool in transaction mode too. Which counters there
//! are depends on the version, so rows are read as JSON and looked through; one that fails leaves a note. It changes
//! nothing.

use std::fs;

use postgres::{Client, SimpleQueryMessage, SimpleQueryRow, error::SqlState};
use serde_json::Value;
use sluice_instance::Hierarchies;

use super::{
    evidence::{Archiver, Checkpoints, Databases, DeadRows, Evidence, Prepared, Replication, Wal, Wraparound, Writes},
    snapshot::{Setting, Snapshot},
};
use crate::{
    connect::{first_value, guarded},
    error::words,
};

/// The TCP settings show what holds for the connection that asks, which is nothing on a Unix socket; `reset_val` is
/// what the server was told.
const SETTINGS: &str = "\
SELECT name, CASE WHEN name ~ '^tcp_' THEN reset_val ELSE setting END AS setting, unit, context, source, sourcefile,
       min_val, max_val, pg_catalog.array_to_string(enumvals, ',') AS enumvals, pending_restart
FROM pg_catalog.pg_settings";

const DATABASES: &str = "\
SELECT pg_catalog.json_build_object('hit', sum(blks_hit), 'read', sum(blks_read), 'files', sum(temp_files),
       'bytes', sum(temp_bytes), 'deadlocks', sum(deadlocks)) FROM pg_catalog.pg_stat_database";

const SIZE: &str = "\
SELECT pg_catalog.json_build_object('bytes', sum(pg_catalog.pg_database_size(oid))) FROM pg_catalog.pg_database
WHERE pg_catalog.has_database_privilege(oid, 'CONNECT') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')";

const SESSIONS: &str = "\
SELECT pg_catalog.json_build_object('count', count(*)) FROM pg_catalog.pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid()";

const DEAD_ROWS: &str = "\
SELECT pg_catalog.json_build_object('dead', sum(n_dead_tup), 'live', sum(n_live_tup),
       'table', (pg_catalog.array_agg(schemaname || '.' || relname ORDER BY n_dead_tup DESC))[1],
       'most', max(n_dead_tup)) FROM pg_catalog.pg_stat_all_tables";

const WRAPAROUND: &str = "\
SELECT pg_catalog.json_build_object('age', pg_catalog.age(datfrozenxid),
       'multixact', pg_catalog.mxid_age(datminmxid), 'database', datname)
FROM pg_catalog.pg_database
ORDER BY greatest(pg_catalog.age(datfrozenxid), pg_catalog.mxid_age(datminmxid)) DESC LIMIT 1";

const PREPARED: &str = "\
SELECT pg_catalog.json_build_object('count', count(*),
       'oldest', extract(epoch FROM pg_catalog.now() - min(prepared))) FROM pg_catalog.pg_prepared_xacts";

const REPLICATION: &str = "\
SELECT pg_catalog.json_build_object('senders', (SELECT count(*) FROM pg_catalog.pg_stat_replication),
       'slots', count(*), 'idle', count(*) FILTER (WHERE NOT active)) FROM pg_catalog.pg_replication_slots";

/// Reasons why a server could not be reviewed. The fault is the server's or the connection's.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The settings can't be read.
    #[error("cannot read pg_settings: {}\nis this PostgreSQL, or a pool before it?", words(.0))]
    Settings(#[source] postgres::Error),
    /// It is the admin console of a pool.
    #[error("this is a pool's admin console, which has no settings to review\nname a database behind the pool instead")]
    Console,
    /// There are none.
    #[error("pg_settings is empty\nis this PostgreSQL, or a pool before it?")]
    Empty,
}

/// The control groups of a server on this machine, read while its process serves the session: behind it the process
/// is gone. Those of this process if it can't be found, as in a container, whose processes have other numbers.
pub fn groups_here(client: &mut Client) -> Hierarchies {
    process_here(client).map_or_else(Hierarchies::current, Hierarchies::of)
}

fn process_here(client: &mut Client) -> Option<u32> {
    let pid: u32 = first_value(client, "SELECT pg_catalog.pg_backend_pid()").ok()??.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    name.starts_with("postgres").then_some(pid)
}

/// Reads settings and counters; `origin` is what the report calls the server.
///
/// # Errors
///
/// [`ServerError`], where the settings can't be read.
pub fn read(client: &mut Client, origin: String) -> Result<Snapshot, ServerError> {
    let settings = rows(client, SETTINGS).map_err(refused)?;
    if settings.is_empty() {
        return Err(ServerError::Empty);
    }
    let mut snapshot =
        Snapshot { origin, settings: settings.iter().map(setting).collect(), complete: true, ..Snapshot::default() };
    let version = snapshot.get("server_version").map(|setting| setting.value.clone()).unwrap_or_default();
    snapshot.version = version.split_whitespace().next().unwrap_or_default().to_owned();
    snapshot.major = snapshot.amount("server_version_num").map_or(0, |number| number as u32 / 10_000);
    let mut prober = Prober { client, notes: Vec::new() };
    snapshot.evidence = prober.evidence();
    snapshot.notes = prober.notes;
    Ok(snapshot)
}

/// The ends of a console's answers.
const CONSOLES: [&str; 2] = ["use SHOW HELP;", "SET of PgBouncer's is not supported"];

/// PgBouncer's console and Sluice's have the same words for what they do not know; Sluice's knows `SET`, and refuses it.
fn refused(error: postgres::Error) -> ServerError {
    match error.as_db_error() {
        Some(answer) if CONSOLES.iter().any(|words| answer.message().ends_with(words)) => ServerError::Console,
        _ => ServerError::Settings(error),
    }
}

fn rows(client: &mut Client, sql: &str) -> Result<Vec<SimpleQueryRow>, postgres::Error> {
    let messages = client.simple_query(&guarded(sql))?;
    let row = |message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None };
    Ok(messages.into_iter().filter_map(row).collect())
}

fn setting(row: &SimpleQueryRow) -> Setting {
    let text = |column: &str| row.try_get(column).ok().flatten().unwrap_or_default().to_owned();
    Setting {
        name: text("name"),
        value: text("setting"),
        unit: text("unit"),
        context: text("context").parse().ok(),
        source: text("source"),
        source_file: text("sourcefile"),
        min: text("min_val").parse().ok(),
        max: text("max_val").parse().ok(),
        words: text("enumvals").split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        pending_restart: text("pending_restart") == "t",
        maybe_cut: false,
        remark: None,
    }
}

/// Asks one thing after the other; what can't be had becomes a note.
struct Prober<'a> {
    client: &'a mut Client,
    notes: Vec<String>,
}

impl Prober<'_> {
    fn evidence(&mut self) -> Evidence {
        let writer = self.view("pg_stat_bgwriter");
        Evidence {
            checkpoints: self.checkpoints(writer.as_ref()),
            wal: self.view("pg_stat_wal").as_ref().and_then(wal),
            writes: writer.as_ref().and_then(writes),
            databases: self.ask("pg_stat_database", DATABASES).as_ref().and_then(databases),
            size_bytes: self.ask("the databases' sizes", SIZE).and_then(|row| number(&row, "bytes")),
            sessions: self.ask("pg_stat_activity", SESSIONS).and_then(|row| number(&row, "count")),
            dead_rows: self.ask("pg_stat_all_tables", DEAD_ROWS).as_ref().and_then(dead_rows),
            wraparound: self.ask("pg_database", WRAPAROUND).as_ref().and_then(wraparound),
            prepared: self.ask("pg_prepared_xacts", PREPARED).as_ref().and_then(prepared),
            archiver: self.view("pg_stat_archiver").as_ref().and_then(archiver),
            replication: self.ask("replication slots", REPLICATION).as_ref().and_then(replication),
        }
    }

    /// From 17 on checkpoints have a view of their own.
    fn checkpoints(&mut self, writer: Option<&Value>) -> Option<Checkpoints> {
        let counts = |row: &Value, timed, requested| {
            Some(Checkpoints { timed: number(row, timed)?, requested: number(row, requested)? })
        };
        let before_17 = writer.and_then(|row| counts(row, "checkpoints_timed", "checkpoints_req"));
        before_17.or_else(|| counts(&self.view("pg_stat_checkpointer")?, "num_timed", "num_requested"))
    }

    /// The only row of a view, with whatever columns this version gives it.
    fn view(&mut self, name: &str) -> Option<Value> {
        self.ask(name, &format!("SELECT pg_catalog.to_jsonb(v) FROM pg_catalog.{name} v"))
    }

    fn ask(&mut self, what: &str, sql: &str) -> Option<Value> {
        match rows(self.client, sql) {
            Ok(rows) => serde_json::from_str(rows.first()?.get(0)?).ok(),
            // A view that this version does not have.
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => None,
            Err(error) => {
                self.notes.push(format!("No evidence from {what}: {}.", words(&error)));
                None
            }
        }
    }
}

fn number(row: &Value, column: &str) -> Option<f64> {
    row.get(column)?.as_f64()
}

fn wal(row: &Value) -> Option<Wal> {
    Some(Wal {
        bytes: number(row, "wal_bytes")?,
        page_images: number(row, "wal_fpi")?,
        buffers_full: number(row, "wal_buffers_full")?,
    })
}

fn writes(row: &Value) -> Option<Writes> {
    Some(Writes {
        cleaned: number(row, "buffers_clean")?,
        cut_short: number(row, "maxwritten_clean")?,
        by_sessions: number(row, "buffers_backend"),
    })
}

fn databases(row: &Value) -> Option<Databases> {
    Some(Databases {
        blocks_hit: number(row, "hit")?,
        blocks_read: number(row, "read")?,
        temp_files: number(row, "files")?,
        temp_bytes: number(row, "bytes")?,
        deadlocks: number(row, "deadlocks")?,
    })
}

fn dead_rows(row: &Value) -> Option<DeadRows> {
    let most = number(row, "most").filter(|most| *most > 0.0);
    let table = row.get("table").and_then(Value::as_str).map(str::to_owned);
    Some(DeadRows { dead: number(row, "dead")?, live: number(row, "live")?, worst: table.zip(most) })
}

fn wraparound(row: &Value) -> Option<Wraparound> {
    Some(Wraparound {
        age: number(row, "age")?,
        multixact_age: number(row, "multixact")?,
        database: row.get("database")?.as_str()?.to_owned(),
    })
}

fn prepared(row: &Value) -> Option<Prepared> {
    Some(Prepared { count: number(row, "count")?, oldest_s: number(row, "oldest").unwrap_or(0.0) })
}

fn archiver(row: &Value) -> Option<Archiver> {
    Some(Archiver { archived: number(row, "archived_count")?, failed: number(row, "failed_count")? })
}

fn replication(row: &Value) -> Option<Replication> {
    Some(Replication {
        senders: number(row, "senders")?,
        slots: number(row, "slots")?,
        idle_slots: number(row, "idle")?,
    })
}
