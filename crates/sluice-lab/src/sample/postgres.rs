//! PostgreSQL's own figures, by version. Each statement is a handful of reads of its statistics views.
//!
//! Simple queries only, so that it also works through a pool; columns that a version lacks are not asked for.
//! Source: PostgreSQL's documentation, "The Cumulative Statistics System".

use std::time::Instant;

use ::postgres::{Client, SimpleQueryMessage};

use super::{Rates, Value, metrics};
use crate::{
    connect::{Access, extension_schema, first_value},
    error::Error,
    pgbench,
};

/// A look that takes longer is given up; the next one may do better.
const STATEMENT_MAX: &str = "SET statement_timeout = '4s'";

/// A connection, and what can be asked by it.
pub(super) struct Server {
    client: Client,
    /// Of its own session.
    pid: Option<u32>,
    gauges: String,
    counters: String,
    rates: Rates,
    missing: Vec<String>,
}

/// The facts that decide which columns there are.
struct Abilities {
    version_num: u32,
    /// On a standby there is no log to insert into.
    is_standby: bool,
    /// Without the rights of `pg_monitor`, others' sessions show nothing.
    sees_all: bool,
    /// The schema of the gate's view.
    gate: Option<String>,
}

impl Server {
    pub(super) fn connect(access: &Access) -> Result<Self, Error> {
        let mut client = super::connect(access).map_err(Error::sql("connect the sampler to PostgreSQL"))?;
        let look = "look at the server for the sampler";
        client.batch_execute(STATEMENT_MAX).map_err(Error::sql(look))?;
        let abilities = abilities(&mut client).map_err(Error::sql(look))?;
        let pid = first_value(&mut client, "SELECT pg_catalog.pg_backend_pid()").map_err(Error::sql(look))?;
        Ok(Self {
            client,
            pid: pid.and_then(|pid| pid.parse().ok()),
            gauges: gauges(&abilities),
            counters: counters(&abilities),
            rates: Rates::default(),
            missing: abilities.missing(),
        })
    }

    pub(super) fn backend_pid(&self) -> Option<u32> {
        self.pid
    }

    pub(super) fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    pub(super) fn sample(&mut self) -> Result<Vec<Value>, Error> {
        let look = "look at PostgreSQL's statistics";
        let mut values = values(&mut self.client, &self.gauges).map_err(Error::sql(look))?;
        let counted = self::values(&mut self.client, &self.counters).map_err(Error::sql(look))?;
        // Not before: in a stall, the answers take their time.
        let Some(rise) = self.rates.rise(Instant::now(), counted) else { return Ok(values) };
        let per_second = [
            metrics::CHECKPOINT_BUFFERS,
            metrics::CLEANED_BUFFERS,
            metrics::BACKEND_BUFFERS,
            metrics::SESSION_SYNCS,
            metrics::VACUUM_READS,
            metrics::VACUUM_WRITES,
            metrics::COMMITS,
            metrics::ROLLBACKS,
            metrics::BLOCKS_READ,
            metrics::BLOCKS_HIT,
            metrics::TEMP_BYTES,
            metrics::DEADLOCKS,
            metrics::WAL_BYTES,
            metrics::WAL_IMAGES,
            metrics::WAL_BUFFERS_FULL,
        ];
        for column in per_second {
            values.extend(rise.rate(column).map(|rate| (column.to_owned(), rate)));
        }
        let per_commit = |counter: &str, unit: f64| {
            let (rise, commits) = (rise.of(counter)?, rise.of(metrics::COMMITS)?);
            (commits >= 1.0).then(|| rise * unit / commits)
        };
        let bytes = per_commit(metrics::WAL_BYTES, 1e6).map(|bytes| (metrics::WAL_BYTES_PER_TX.to_owned(), bytes));
        let images = per_commit(metrics::WAL_IMAGES, 1.0).map(|images| (metrics::WAL_IMAGES_PER_TX.to_owned(), images));
        values.extend(bytes.into_iter().chain(images));
        Ok(values)
    }
}

impl Abilities {
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.sees_all {
            missing.push("wait events of other users' sessions: needs membership in pg_monitor".to_owned());
        }
        if self.version_num < 140_000 {
            missing.push("full-page images: pg_stat_wal exists from PostgreSQL 14 on".to_owned());
        }
        if self.version_num < 160_000 {
            missing.push("blocks that vacuums read and write: pg_stat_io exists from PostgreSQL 16 on".to_owned());
        }
        if self.is_standby {
            missing.push("WAL written: the server is a standby".to_owned());
        }
        missing
    }
}

fn abilities(client: &mut Client) -> Result<Abilities, ::postgres::Error> {
    let gate = extension_schema(client, "sluice")?;
    let mut ask = |query: &str| first_value(client, query).map(Option::unwrap_or_default);
    Ok(Abilities {
        version_num: ask("SHOW server_version_num")?.parse().unwrap_or(0),
        is_standby: ask("SELECT pg_catalog.pg_is_in_recovery()")? == "t",
        sees_all: ask("SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')")? == "t",
        gate,
    })
}

/// Rows of a column's name and its value, now.
fn gauges(abilities: &Abilities) -> String {
    let own = pgbench::APPLICATION;
    let mut parts = vec![
        "SELECT 'sessions.active', count(*) FROM clients WHERE state = 'active'".to_owned(),
        "SELECT 'sessions.idle_in_transaction', count(*) FROM clients WHERE state LIKE 'idle in transaction%'"
            .to_owned(),
        "SELECT 'wait.' || coalesce(wait_event_type, 'CPU'), count(*) FROM clients WHERE state = 'active' GROUP BY 1"
            .to_owned(),
        "SELECT 'event.' || wait_event_type || '.' || wait_event, count(*) FROM clients \
         WHERE state = 'active' AND wait_event IS NOT NULL GROUP BY 1"
            .to_owned(),
        "SELECT 'autovacuum.workers', count(*) FROM sessions WHERE backend_type = 'autovacuum worker'".to_owned(),
        "SELECT 'checkpoint.running', count(*) FROM sessions \
         WHERE backend_type = 'checkpointer' AND wait_event IS DISTINCT FROM 'CheckpointerMain'"
            .to_owned(),
        "SELECT 'locks.waiting', count(*) FROM pg_locks WHERE NOT granted".to_owned(),
    ];
    if !abilities.is_standby {
        parts.push(
            "SELECT 'replicas.lag_mb', max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)) / 1e6 \
             FROM pg_stat_replication HAVING count(*) > 0"
                .to_owned(),
        );
    }
    if let Some(schema) = &abilities.gate {
        for (column, sum) in [("running", "sum(running)"), ("waiting", "sum(waiting)"), ("limit", "max(concurrency)")] {
            parts.push(format!("SELECT 'gate.{column}', {sum} FROM {schema}.sluice_gate WHERE kind = 'class'"));
        }
    }
    format!(
        "WITH sessions AS MATERIALIZED (SELECT * FROM pg_stat_activity WHERE pid <> pg_backend_pid()), \
         clients AS MATERIALIZED (SELECT * FROM sessions WHERE backend_type = 'client backend' \
         AND application_name NOT LIKE '{own} sampler%') {}",
        parts.join(" UNION ALL ")
    )
}

/// Rows of a column's name and its counter.
fn counters(abilities: &Abilities) -> String {
    let mut parts = vec![
        "SELECT 'db.commits_per_s', sum(xact_commit) FROM pg_stat_database",
        "SELECT 'db.rollbacks_per_s', sum(xact_rollback) FROM pg_stat_database",
        "SELECT 'db.blocks_read_per_s', sum(blks_read) FROM pg_stat_database",
        "SELECT 'db.blocks_hit_per_s', sum(blks_hit) FROM pg_stat_database",
        "SELECT 'db.temp_mb_per_s', sum(temp_bytes) / 1e6 FROM pg_stat_database",
        "SELECT 'db.deadlocks_per_s', sum(deadlocks) FROM pg_stat_database",
        "SELECT 'bgwriter.buffers_per_s', buffers_clean FROM pg_stat_bgwriter",
    ];
    if abilities.version_num >= 170_000 {
        parts.push("SELECT 'checkpoint.buffers_per_s', buffers_written FROM pg_stat_checkpointer");
    } else {
        parts.push("SELECT 'checkpoint.buffers_per_s', buffers_checkpoint FROM pg_stat_bgwriter");
    }
    if abilities.version_num >= 180_000 {
        // From here on one operation may be of several blocks.
        parts.extend([
            "SELECT 'backend.buffers_per_s', sum(write_bytes) / current_setting('block_size')::int FROM pg_stat_io \
             WHERE backend_type = 'client backend' AND object = 'relation'",
            "SELECT 'vacuum.reads_per_s', sum(read_bytes) / current_setting('block_size')::int FROM pg_stat_io \
             WHERE context = 'vacuum'",
            "SELECT 'vacuum.writes_per_s', sum(write_bytes) / current_setting('block_size')::int FROM pg_stat_io \
             WHERE context = 'vacuum'",
        ]);
    } else if abilities.version_num >= 160_000 {
        parts.extend([
            "SELECT 'backend.buffers_per_s', sum(writes) FROM pg_stat_io \
             WHERE backend_type = 'client backend' AND object = 'relation'",
            "SELECT 'vacuum.reads_per_s', sum(reads) FROM pg_stat_io WHERE context = 'vacuum'",
            "SELECT 'vacuum.writes_per_s', sum(writes) FROM pg_stat_io WHERE context = 'vacuum'",
        ]);
    }
    if abilities.version_num >= 160_000 {
        parts.push(
            "SELECT 'backend.syncs_per_s', sum(fsyncs) FROM pg_stat_io \
             WHERE backend_type = 'client backend' AND object = 'relation'",
        );
    } else {
        parts.push("SELECT 'backend.buffers_per_s', buffers_backend FROM pg_stat_bgwriter");
        parts.push("SELECT 'backend.syncs_per_s', buffers_backend_fsync FROM pg_stat_bgwriter");
    }
    if abilities.version_num >= 140_000 {
        parts.push("SELECT 'wal.images_per_s', wal_fpi FROM pg_stat_wal");
        parts.push("SELECT 'wal.buffers_full_per_s', wal_buffers_full FROM pg_stat_wal");
    }
    if !abilities.is_standby {
        // The position is exact; the view's bytes come late.
        parts.push("SELECT 'wal.mb_per_s', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') / 1e6");
    }
    parts.join(" UNION ALL ")
}

fn values(client: &mut Client, query: &str) -> Result<Vec<Value>, ::postgres::Error> {
    let rows = client.simple_query(query)?;
    Ok(rows
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.to_owned(), row.get(1)?.parse().ok()?)),
            _ => None,
        })
        .collect())
}
