//! The columns of samples: names that rules and charts look for, and what each means.
//!
//! A column exists in a turn's samples only if the server's version, the machine and the rights of the sampler had it.

use crate::result::Metric;

/// Fixed columns, each with its title, unit and source.
macro_rules! columns {
    ($($constant:ident = $name:literal, $title:literal, $unit:literal, $source:literal;)*) => {
        $(#[doc = concat!($title, " (", $unit, "), from ", $source, ".")] pub const $constant: &str = $name;)*

        const FIXED: &[(&str, &str, &str, &str)] = &[$(($name, $title, $unit, $source)),*];
    };
}

columns! {
    ACTIVE = "sessions.active", "active sessions", "sessions", "pg_stat_activity";
    IDLE_IN_TRANSACTION = "sessions.idle_in_transaction", "sessions idle in a transaction", "sessions", "pg_stat_activity";
    BLOCKED = "locks.waiting", "lock requests not granted", "requests", "pg_locks";
    AUTOVACUUM = "autovacuum.workers", "autovacuum workers", "workers", "pg_stat_activity";
    CHECKPOINT = "checkpoint.running", "a checkpoint runs", "0 or 1", "the server's log, else pg_stat_activity (the checkpointer's wait event)";
    CHECKPOINT_BUFFERS = "checkpoint.buffers_per_s", "buffers written by checkpoints", "1/s", "pg_stat_bgwriter, pg_stat_checkpointer";
    CLEANED_BUFFERS = "bgwriter.buffers_per_s", "buffers written by the background writer", "1/s", "pg_stat_bgwriter";
    BACKEND_BUFFERS = "backend.buffers_per_s", "buffers written by sessions", "1/s", "pg_stat_bgwriter, pg_stat_io";
    SESSION_SYNCS = "backend.syncs_per_s", "files synced by sessions", "1/s", "pg_stat_bgwriter, pg_stat_io";
    VACUUM_READS = "vacuum.reads_per_s", "blocks read by vacuums", "1/s", "pg_stat_io";
    VACUUM_WRITES = "vacuum.writes_per_s", "blocks written by vacuums", "1/s", "pg_stat_io";
    COMMITS = "db.commits_per_s", "commits", "1/s", "pg_stat_database";
    ROLLBACKS = "db.rollbacks_per_s", "rollbacks", "1/s", "pg_stat_database";
    BLOCKS_READ = "db.blocks_read_per_s", "blocks read from outside shared buffers", "1/s", "pg_stat_database";
    BLOCKS_HIT = "db.blocks_hit_per_s", "blocks found in shared buffers", "1/s", "pg_stat_database";
    TEMP_BYTES = "db.temp_mb_per_s", "temporary files", "MB/s", "pg_stat_database";
    DEADLOCKS = "db.deadlocks_per_s", "deadlocks", "1/s", "pg_stat_database";
    WAL_BYTES = "wal.mb_per_s", "WAL written", "MB/s", "pg_stat_wal";
    WAL_BYTES_PER_TX = "wal.bytes_per_tx", "WAL a commit", "bytes", "pg_stat_wal, pg_stat_database";
    WAL_IMAGES = "wal.images_per_s", "full-page images", "1/s", "pg_stat_wal";
    WAL_IMAGES_PER_TX = "wal.images_per_tx", "full-page images a commit", "1", "pg_stat_wal, pg_stat_database";
    WAL_BUFFERS_FULL = "wal.buffers_full_per_s", "WAL buffers were full", "1/s", "pg_stat_wal";
    REPLICA_LAG = "replicas.lag_mb", "WAL that the last standby has not flushed", "MB", "pg_stat_replication";
    CPU_USER = "cpu.user", "user", "% of all processors", "/proc/stat";
    CPU_SYSTEM = "cpu.system", "system", "% of all processors", "/proc/stat";
    CPU_IO_WAIT = "cpu.iowait", "idle, waiting for a disk", "% of all processors", "/proc/stat";
    CPU_STEAL = "cpu.steal", "taken by the host", "% of all processors", "/proc/stat";
    CPU_IDLE = "cpu.idle", "idle", "% of all processors", "/proc/stat";
    CPU_POSTGRES = "cpu.postgres", "PostgreSQL", "processors", "/proc/PID/stat";
    CPU_POOL = "cpu.pool", "the pool", "processors", "/proc/PID/stat";
    CPU_PGBENCH = "cpu.pgbench", "pgbench", "processors", "/proc/PID/stat";
    CPU_OTHERS = "cpu.others", "other processes", "processors", "/proc/stat less the above";
    DISK_READS = "disk.reads_per_s", "reads of the data's disk", "1/s", "/proc/diskstats";
    DISK_WRITES = "disk.writes_per_s", "writes of the data's disk", "1/s", "/proc/diskstats";
    DISK_READ_MB = "disk.read_mb_per_s", "read from the data's disk", "MB/s", "/proc/diskstats";
    DISK_WRITE_MB = "disk.write_mb_per_s", "written to the data's disk", "MB/s", "/proc/diskstats";
    DISK_BUSY = "disk.busy", "the data's disk is busy", "%", "/proc/diskstats";
    DIRTY_MB = "memory.dirty_mb", "dirty pages of the kernel", "MB", "/proc/meminfo";
    AVAILABLE_MB = "memory.available_mb", "available memory", "MB", "/proc/meminfo";
    PRESSURE_CPU = "pressure.cpu", "some task waited for a processor", "% of the time", "/proc/pressure/cpu";
    PRESSURE_IO = "pressure.io", "some task waited for a disk", "% of the time", "/proc/pressure/io";
    PRESSURE_MEMORY = "pressure.memory", "some task waited for memory", "% of the time", "/proc/pressure/memory";
    THROTTLED = "group.throttled", "the server's group was throttled", "% of the periods", "cpu.stat of the control group";
    GROUP_CPU = "group.cpu", "the server's group", "processors", "the control group's processor time";
    GROUP_PRESSURE_CPU = "group.pressure_cpu", "some task of the server's group waited for a processor", "% of the time", "cpu.pressure of the control group";
    GROUP_PRESSURE_IO = "group.pressure_io", "some task of the server's group waited for a disk", "% of the time", "io.pressure of the control group";
    GROUP_PRESSURE_MEMORY = "group.pressure_memory", "some task of the server's group waited for memory", "% of the time", "memory.pressure of the control group";
    GROUP_READS = "group.reads_per_s", "reads of the server's group", "1/s", "the control group's I/O figures";
    GROUP_WRITES = "group.writes_per_s", "writes of the server's group", "1/s", "the control group's I/O figures";
    GATE_RUNNING = "gate.running", "inside the gate", "transactions", "sluice_gate";
    GATE_WAITING = "gate.waiting", "waiting at the gate", "sessions", "sluice_gate";
    GATE_LIMIT = "gate.limit", "the gate's limit", "transactions", "sluice_gate";
    POOL_WAITING = "pool.waiting", "clients that wait for a server", "clients", "the pool's admin console";
    POOL_ACTIVE = "pool.active", "servers in use", "connections", "the pool's admin console";
    POOL_IDLE = "pool.idle", "idle servers", "connections", "the pool's admin console";
    POOL_SERVED = "pool.served_per_s", "servers given to clients", "1/s", "the pool's admin console";
    POOL_WAIT = "pool.wait_ms", "mean wait for a server", "ms", "the pool's admin console";
    POOL_RSS = "pool.rss_mb", "the pool's memory", "MB", "/proc/PID/status";
}

/// Active sessions by class of wait event; `wait.CPU` are those that wait for nothing.
pub const WAIT: &str = "wait.";
/// Active sessions that wait for nothing.
pub const ON_CPU: &str = "wait.CPU";
/// Active sessions by single wait event: `event.IO.WALSync`.
pub const EVENT: &str = "event.";

/// The description of a column.
pub fn describe(column: &str) -> Metric {
    if let Some((_, title, unit, source)) = FIXED.iter().find(|(name, ..)| *name == column) {
        return metric(title, unit, source);
    }
    if column == ON_CPU {
        return metric("on a processor", "sessions", "pg_stat_activity (no wait event)");
    }
    let name = column.strip_prefix(WAIT).or_else(|| column.strip_prefix(EVENT)).unwrap_or(column);
    metric(name, "sessions", "pg_stat_activity")
}

fn metric(title: &str, unit: &str, source: &str) -> Metric {
    Metric { title: title.to_owned(), unit: unit.to_owned(), source: source.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_described() {
        assert_eq!(describe(CPU_STEAL).title, "taken by the host");
        assert_eq!(describe("wait.LWLock").title, "LWLock");
        assert_eq!(describe("event.IO.WALSync").title, "IO.WALSync");
        let mut names: Vec<&str> = FIXED.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIXED.len());
    }
}
