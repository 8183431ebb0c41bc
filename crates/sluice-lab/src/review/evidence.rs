//! Evidence from a server's own counters about its settings: typed, and as sentences.
//!
//! Nothing here asks a server. A counter that could not be read is absent, and then there is no sentence.

use serde::Serialize;

use super::words::words;
use sluice_units::readable_bytes;

/// A group of counters that belongs to some settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Checkpoints by time and by WAL volume.
    Checkpoints,
    /// WAL volume, full page images, `wal_buffers` full.
    Wal,
    /// The writers of dirty pages.
    Writes,
    /// Reads served from `shared_buffers`.
    Cache,
    /// The size of all databases.
    Size,
    /// Files that sorts and hashes spilled into.
    Temp,
    /// Connections in use.
    Connections,
    /// Dead rows that vacuum has not removed yet.
    DeadRows,
    /// Ages of transaction ids.
    Wraparound,
    /// Deadlocks.
    Deadlocks,
    /// Prepared transactions.
    Prepared,
    /// Archived files and failures.
    Archiver,
    /// Standbys and slots.
    Replication,
}

words!(Topic: "checkpoints" => Checkpoints, "wal" => Wal, "writes" => Writes, "cache" => Cache, "size" => Size,
    "temp" => Temp, "connections" => Connections, "dead_rows" => DeadRows, "wraparound" => Wraparound,
    "deadlocks" => Deadlocks, "prepared" => Prepared, "archiver" => Archiver, "replication" => Replication);

/// The counters that were read from a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// `pg_stat_checkpointer`, before 17 `pg_stat_bgwriter`.
    pub checkpoints: Option<Checkpoints>,
    /// `pg_stat_wal`.
    pub wal: Option<Wal>,
    /// `pg_stat_bgwriter`.
    pub writes: Option<Writes>,
    /// `pg_stat_database`, summed.
    pub databases: Option<Databases>,
    /// All databases that the role may look at, in bytes.
    pub size_bytes: Option<f64>,
    /// `pg_stat_activity`: sessions of clients.
    pub sessions: Option<f64>,
    /// `pg_stat_all_tables` of the database that was reviewed.
    pub dead_rows: Option<DeadRows>,
    /// `pg_database`.
    pub wraparound: Option<Wraparound>,
    /// `pg_prepared_xacts`.
    pub prepared: Option<Prepared>,
    /// `pg_stat_archiver`.
    pub archiver: Option<Archiver>,
    /// `pg_stat_replication`, `pg_replication_slots`.
    pub replication: Option<Replication>,
}

/// Checkpoints since the counters were reset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Because `checkpoint_timeout` was over.
    pub timed: f64,
    /// Because of WAL volume, or because somebody asked.
    pub requested: f64,
}

/// WAL since the counters were reset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wal {
    /// Bytes.
    pub bytes: f64,
    /// Full page images.
    pub page_images: f64,
    /// Writes because `wal_buffers` was full.
    pub buffers_full: f64,
}

/// Dirty pages by their writers, since the counters were reset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Writes {
    /// Pages that the background writer wrote.
    pub cleaned: f64,
    /// Rounds that it ended at `bgwriter_lru_maxpages`.
    pub cut_short: f64,
    /// Pages that sessions wrote themselves; told before 17 only.
    pub by_sessions: Option<f64>,
}

/// Sums over all databases, since the counters were reset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Databases {
    /// Blocks found in `shared_buffers`.
    pub blocks_hit: f64,
    /// Blocks that were not.
    pub blocks_read: f64,
    /// Temporary files.
    pub temp_files: f64,
    /// Their bytes.
    pub temp_bytes: f64,
    /// Deadlocks.
    pub deadlocks: f64,
}

/// Dead rows of one database.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadRows {
    /// Rows that vacuum has not removed.
    pub dead: f64,
    /// Rows that are there.
    pub live: f64,
    /// The table with most dead rows, and how many.
    pub worst: Option<(String, f64)>,
}

/// The oldest transaction ids.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wraparound {
    /// The age of the oldest one.
    pub age: f64,
    /// The age of the oldest multixact id.
    pub multixact_age: f64,
    /// In this database.
    pub database: String,
}

/// Prepared transactions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prepared {
    /// Their number.
    pub count: f64,
    /// The age of the oldest in seconds.
    pub oldest_s: f64,
}

/// Archived WAL files since the counters were reset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Archiver {
    /// Archived.
    pub archived: f64,
    /// Failed attempts.
    pub failed: f64,
}

/// Standbys and slots.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Replication {
    /// Connected walsenders.
    pub senders: f64,
    /// Slots.
    pub slots: f64,
    /// Slots without a reader.
    pub idle_slots: f64,
}

/// A share of requested checkpoints says something from so many checkpoints on.
const CHECKPOINTS_MIN: f64 = 20.0;
/// A WAL record's buffer.
const WAL_BLOCK_BYTES: f64 = 8192.0;
/// Transaction ids before wraparound.
const XIDS: f64 = 2_147_483_648.0;

impl Evidence {
    /// Share of checkpoints that were not by time, of enough of them.
    pub fn requested_share(&self) -> f64 {
        let Some(Checkpoints { timed, requested }) = self.checkpoints else { return 0.0 };
        if timed + requested < CHECKPOINTS_MIN { 0.0 } else { requested / (timed + requested) }
    }

    /// Writes because `wal_buffers` was full, for each block of WAL.
    pub fn wal_full_share(&self) -> f64 {
        self.wal.map_or(0.0, |wal| wal.buffers_full / (wal.bytes / WAL_BLOCK_BYTES).max(1.0))
    }

    /// A sentence about what was seen of a topic.
    pub fn sentence(&self, topic: Topic) -> Option<String> {
        match topic {
            Topic::Checkpoints => self.checkpoints.map(|Checkpoints { timed, requested }| {
                format!("{} by time, {}", many(timed, "checkpoint"), forced(requested))
            }),
            Topic::Wal => self.wal.map(|wal| {
                format!(
                    "{} of WAL with {}; wal_buffers full {} times",
                    readable_bytes(wal.bytes),
                    many(wal.page_images, "full page image"),
                    wal.buffers_full
                )
            }),
            Topic::Writes => self.writes.map(writes),
            Topic::Cache => self.databases.and_then(cache),
            Topic::Size => self.size_bytes.map(|bytes| format!("all databases: {}", readable_bytes(bytes))),
            Topic::Temp => self.databases.map(|sums| {
                format!("{} of {}", many(sums.temp_files, "temporary file"), readable_bytes(sums.temp_bytes))
            }),
            Topic::Connections => self.sessions.map(|count| format!("{} now", many(count, "connection"))),
            Topic::DeadRows => self.dead_rows.as_ref().map(dead_rows),
            Topic::Wraparound => self.wraparound.as_ref().map(|age| {
                let (what, oldest) = match age.multixact_age > age.age {
                    true => ("multixact", age.multixact_age),
                    false => ("transaction", age.age),
                };
                let share = 100.0 * oldest / XIDS;
                format!("oldest {what} id {oldest} old in {}: {share:.1} % of the way", age.database)
            }),
            Topic::Deadlocks => self.databases.map(|sums| many(sums.deadlocks, "deadlock")),
            Topic::Prepared => self.prepared.map(|prepared| match prepared.count {
                0.0 => "no prepared transaction now".to_owned(),
                count => format!("{}, the oldest {:.0} s old", many(count, "prepared transaction"), prepared.oldest_s),
            }),
            Topic::Archiver => self.archiver.map(|Archiver { archived, failed }| {
                format!("{} archived, {}", many(archived, "file"), many(failed, "failure"))
            }),
            Topic::Replication => self.replication.map(|Replication { senders, slots, idle_slots }| {
                format!("{}, {}, {idle_slots} without a reader", many(senders, "walsender"), many(slots, "slot"))
            }),
        }
    }
}

fn many(count: f64, thing: &str) -> String {
    if count == 1.0 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

fn forced(requested: f64) -> String {
    format!("{requested} by volume or on request")
}

fn writes(writes: Writes) -> String {
    let mut sentence =
        format!("background writer: {}, cut short {} times", many(writes.cleaned, "page"), writes.cut_short);
    if let Some(pages) = writes.by_sessions {
        sentence.push_str(&format!("; by sessions: {}", many(pages, "page")));
    }
    sentence
}

/// A ratio of few reads says nothing.
fn cache(sums: Databases) -> Option<String> {
    let all = sums.blocks_hit + sums.blocks_read;
    (all >= 1000.0).then(|| format!("{:.1} % of reads from shared_buffers", 100.0 * sums.blocks_hit / all))
}

fn dead_rows(rows: &DeadRows) -> String {
    let mut sentence = format!("{} dead of {} rows in this database", rows.dead, rows.dead + rows.live);
    if let Some((table, dead)) = &rows.worst {
        sentence.push_str(&format!(", {dead} of them in {table}"));
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let evidence = Evidence {
            checkpoints: Some(Checkpoints { timed: 1.0, requested: 30.0 }),
            wal: Some(Wal { bytes: 8192.0 * 100.0, page_images: 7.0, buffers_full: 5.0 }),
            databases: Some(Databases {
                blocks_hit: 999.0,
                blocks_read: 1.0,
                temp_files: 2.0,
                temp_bytes: 4096.0,
                deadlocks: 0.0,
            }),
            dead_rows: Some(DeadRows { dead: 5.0, live: 5.0, worst: Some(("public.t".to_owned(), 4.0)) }),
            ..Evidence::default()
        };
        for (topic, expected) in [
            (Topic::Checkpoints, Some("1 checkpoint by time, 30 by volume or on request")),
            (Topic::Wal, Some("800 kB of WAL with 7 full page images; wal_buffers full 5 times")),
            (Topic::Cache, Some("99.9 % of reads from shared_buffers")),
            (Topic::Temp, Some("2 temporary files of 4 kB")),
            (Topic::DeadRows, Some("5 dead of 10 rows in this database, 4 of them in public.t")),
            (Topic::Deadlocks, Some("0 deadlocks")),
            (Topic::Size, None),
        ] {
            assert_eq!(evidence.sentence(topic).as_deref(), expected);
        }
        assert!(evidence.requested_share() > 0.9);
        assert_eq!(evidence.wal_full_share(), 0.05);
    }

    #[test]
    fn few_checkpoints_say_nothing() {
        let evidence =
            Evidence { checkpoints: Some(Checkpoints { timed: 1.0, requested: 9.0 }), ..Evidence::default() };
        assert_eq!(evidence.requested_share(), 0.0);
    }
}
