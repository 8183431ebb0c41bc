//! A pool's own figures: Sluice's from its log (docs/reference/configuration.md, "Statistics"), PgBouncer's from its
//! console (its documentation, "Admin console").
//!
//! The laboratory's clients are of one database and one user, so there is one pool.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Instant,
};

use postgres::{Client, SimpleQueryMessage};

use super::{Value, metrics};
use crate::connect::Access;

/// The database that is PgBouncer itself.
pub const PGBOUNCER_CONSOLE: &str = "pgbouncer";

/// The place where a pool tells its figures.
#[derive(Clone, Debug)]
pub enum PoolFigures {
    /// Sluice's, with `stats_period`.
    InLog(PathBuf),
    /// PgBouncer's, to one of its `stats_users`.
    AtConsole(Box<Access>),
}

/// A pool that is listened to.
pub(super) struct Pool {
    source: Source,
    last: Option<Told>,
}

enum Source {
    Log(Log),
    Console(Box<Console>),
    None(String),
}

/// Its figures at one moment. Totals are since the pool's start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    up_s: f64,
    waiting: f64,
    active: f64,
    idle: f64,
    served: f64,
    waited_s: f64,
}

impl Pool {
    pub(super) fn new(figures: &PoolFigures) -> Self {
        let source = match figures {
            PoolFigures::InLog(path) => Source::Log(Log::new(path)),
            PoolFigures::AtConsole(access) => {
                let connected = Console::connect(access);
                connected.map_or_else(Source::None, |console| Source::Console(Box::new(console)))
            }
        };
        Self { source, last: None }
    }

    /// The figures that it does not tell, and why.
    pub(super) fn missing(&self) -> Option<String> {
        match &self.source {
            Source::None(why) => Some(format!("the pool's own figures: {why}")),
            Source::Log(_) | Source::Console(_) => None,
        }
    }

    /// The figures that it has told since the last look; none if it has told nothing.
    pub(super) fn sample(&mut self) -> Vec<Value> {
        let told = match &mut self.source {
            Source::Log(log) => log.last(),
            Source::Console(console) => console.ask(),
            Source::None(_) => None,
        };
        let Some(told) = told else { return Vec::new() };
        let before = self.last.replace(told);
        let mut values = vec![
            (metrics::POOL_WAITING, told.waiting),
            (metrics::POOL_ACTIVE, told.active),
            (metrics::POOL_IDLE, told.idle),
        ];
        if let Some(before) = before.filter(|before| told.up_s > before.up_s) {
            let served = told.served - before.served;
            values.push((metrics::POOL_SERVED, served / (told.up_s - before.up_s)));
            if served > 0.0 {
                values.push((metrics::POOL_WAIT, 1000.0 * (told.waited_s - before.waited_s) / served));
            }
        }
        values.into_iter().map(|(column, value)| (column.to_owned(), value)).collect()
    }
}

/// The log of Sluice's pool, read as it grows.
struct Log {
    path: PathBuf,
    /// Up to where it has been read: a line's end.
    read: u64,
}

impl Log {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0 }
    }

    /// The last figures of those that are new.
    fn last(&mut self) -> Option<Told> {
        self.news().ok()?.lines().rev().find_map(Told::parse)
    }

    /// Whole lines that have been written since.
    fn news(&mut self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.read += bytes.len() as u64;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// PgBouncer's console, which takes simple queries only.
struct Console {
    client: Client,
    since: Instant,
}

impl Console {
    fn connect(access: &Access) -> Result<Self, String> {
        let client = super::connect(access).map_err(|error| error.to_string())?;
        Ok(Self { client, since: Instant::now() })
    }

    fn ask(&mut self) -> Option<Told> {
        let pools = self.sums("SHOW POOLS", &["cl_waiting", "sv_active", "sv_idle", "sv_used"])?;
        let totals = self.sums("SHOW STATS", &["total_xact_count", "total_wait_time"])?;
        Some(Told {
            up_s: self.since.elapsed().as_secs_f64(),
            waiting: pools[0],
            active: pools[1],
            idle: pools[2] + pools[3],
            served: totals[0],
            waited_s: totals[1] / 1e6,
        })
    }

    /// These columns, over all pools but the console's own.
    fn sums(&mut self, query: &str, columns: &[&str]) -> Option<Vec<f64>> {
        let answer = self.client.simple_query(query).ok()?;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let rows: Vec<_> = rows.filter(|row| row.get("database") != Some(PGBOUNCER_CONSOLE)).collect();
        let number = |row: &postgres::SimpleQueryRow, column| row.try_get(column).ok()??.parse::<f64>().ok();
        columns.iter().map(|column| rows.iter().map(|row| number(row, *column)).sum()).collect()
    }
}

impl Told {
    /// `… INFO pool database="bench1" user="bench" up_s=2.5 waiting=44 …`
    fn parse(line: &str) -> Option<Self> {
        let figures = &line[line.find(" up_s=")?..];
        let number = |key: &str| {
            let mut words = figures.split_ascii_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
        };
        Some(Self {
            up_s: number("up_s")?,
            waiting: number("waiting")?,
            active: number("active")?,
            idle: number("idle")?,
            served: number("served")?,
            waited_s: number("waited_s")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(up_s: f64, served: u32, waited_s: f64) -> String {
        format!(
            "2026-01-01T00:00:00.000000Z  INFO pool database=\"bench1\" user=\"bench\" up_s={up_s} waiting=44 \
             longest_wait_s=0.1 active=20 idle=0 connecting=0 served={served} waited_s={waited_s}\n"
        )
    }

    #[test]
    fn totals_become_rates_and_means() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut pool = Pool::new(&PoolFigures::InLog(file.path().to_owned()));
        assert_eq!(pool.sample(), []);
        write!(file, "2026-01-01T00:00:00.000000Z  WARN no connection\n{}", line(1.0, 1000, 10.0)).unwrap();
        let first = [(metrics::POOL_WAITING, 44.0), (metrics::POOL_ACTIVE, 20.0), (metrics::POOL_IDLE, 0.0)];
        let first = first.map(|(column, value)| (column.to_owned(), value));
        assert_eq!(pool.sample(), first);
        let next = line(3.0, 3000, 30.0);
        let (begin, end) = next.split_at(60);
        write!(file, "{begin}").unwrap();
        assert_eq!(pool.sample(), []);
        write!(file, "{end}").unwrap();
        let rates = [(metrics::POOL_SERVED.to_owned(), 1000.0), (metrics::POOL_WAIT.to_owned(), 10.0)];
        assert_eq!(pool.sample(), [&first[..], &rates].concat());
    }
}
