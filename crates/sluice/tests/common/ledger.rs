//! A ledger: writers that append numbered entries, and note what has become of each.

#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use postgres::{Client, NoTls};
use sluice_testkit::TestPool;

/// Writers at once.
const WRITERS: i64 = 4;

/// The numbers of one writer begin that far behind those of the one before.
const APART: i64 = 1_000_000;

/// Far more than the longest failover takes.
const WRITES_PATIENCE: Duration = Duration::from_secs(100);

/// The servers behind the pool, and the role that writes.
pub(crate) trait Servers {
    fn nodes(&self) -> usize;
    fn leader(&self) -> usize;
    fn try_superuser(&self, node: usize) -> Result<Client, postgres::Error>;
    fn app_name(&self) -> &str;
    fn password(&self) -> &str;
}

/// Writers at their work.
pub(crate) struct Ledger {
    is_over: Arc<AtomicBool>,
    times: Arc<Times>,
    writers: Vec<JoinHandle<Written>>,
}

/// How long writers have waited, in microseconds, since that was asked for last.
#[derive(Debug)]
struct Times {
    begin: Instant,
    /// The longest time that an entry has taken.
    longest: AtomicU64,
    /// The longest time in which no entry of any writer was acknowledged.
    gap: AtomicU64,
    /// When one was, since the beginning.
    acknowledged_at: AtomicU64,
}

impl Times {
    fn acknowledged(&self) {
        let now = self.begin.elapsed().as_micros() as u64;
        let before = self.acknowledged_at.fetch_max(now, Ordering::Relaxed);
        self.gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// What a writer was told of its entries.
#[derive(Debug, Default)]
struct Written {
    acknowledged: BTreeSet<i64>,
    /// It was told that they are not there.
    refused: BTreeSet<i64>,
    /// It was told that nobody knows.
    unknown: BTreeSet<i64>,
    errors: BTreeSet<String>,
}

/// What has come of it, when nothing was lost.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) acknowledged: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    pub(crate) errors: BTreeSet<String>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, refused, unknown, errors } = self;
        write!(f, "{acknowledged} acknowledged, {refused} refused, {unknown} unknown; errors: {errors:?}")
    }
}

impl Ledger {
    /// Makes its table, and has writers begin.
    pub(crate) fn begin(cluster: &impl Servers, pool: &TestPool) -> Self {
        Self::begin_round(cluster, pool, 0)
    }

    /// The same in one of several rounds, each with numbers of its own.
    pub(crate) fn begin_round(cluster: &impl Servers, pool: &TestPool, round: u64) -> Self {
        let mut config = pool.client_config(cluster.app_name(), "postgres");
        config.password(cluster.password());
        config
            .connect(NoTls)
            .unwrap()
            .batch_execute("CREATE TABLE IF NOT EXISTS ledger (id bigint PRIMARY KEY)")
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (longest, gap, acknowledged_at) = Default::default();
        let times = Arc::new(Times { begin: Instant::now(), longest, gap, acknowledged_at });
        let writer = |number: i64| {
            let (config, is_over, times) = (config.clone(), is_over.clone(), times.clone());
            let from = (round as i64 * WRITERS + number) * APART;
            thread::spawn(move || write(&config, from, &is_over, &times))
        };
        Self { writers: (0..WRITERS).map(writer).collect(), is_over, times }
    }

    /// The longest time that an entry has taken, from its first attempt to the answer, since this was asked last.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.times.longest.swap(0, Ordering::Relaxed))
    }

    /// The longest time in which nothing was acknowledged to any writer, since this was asked last.
    pub(crate) fn without_writes(&self) -> Duration {
        Duration::from_micros(self.times.gap.swap(0, Ordering::Relaxed))
    }

    /// Waits until an entry is acknowledged that was not before.
    pub(crate) fn wait_for_writes(&self) {
        let begin = Instant::now();
        let before = self.times.begin.elapsed().as_micros() as u64;
        while self.times.acknowledged_at.load(Ordering::Relaxed) <= before {
            assert!(begin.elapsed() < WRITES_PATIENCE, "no entry is acknowledged within {WRITES_PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has them end, and compares with what is there: on all nodes, once they have caught up.
    pub(crate) fn end(self, cluster: &impl Servers) -> Told {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for writer in self.writers {
            let mut one = writer.join().unwrap();
            all.acknowledged.append(&mut one.acknowledged);
            all.refused.append(&mut one.refused);
            all.unknown.append(&mut one.unknown);
            all.errors.append(&mut one.errors);
        }
        // An even one is no block, and nobody can know what has become of it.
        let commits: Vec<_> = all.unknown.iter().filter(|number| *number % 2 == 1).collect();
        assert!(commits.is_empty(), "what became of these COMMITs can be found out: {commits:?}; {:?}", all.errors);
        let leader = cluster.leader();
        let there = entries(&mut cluster.try_superuser(leader).unwrap());
        let lost: Vec<_> = all.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}; {:?}", all.errors);
        let wrong: Vec<_> = all.refused.intersection(&there).collect();
        assert!(wrong.is_empty(), "refused, and there: {wrong:?}; {:?}", all.errors);
        for node in (0..cluster.nodes()).filter(|node| *node != leader) {
            sluice_testkit::eventually("a standby has all of it", || {
                cluster.try_superuser(node).is_ok_and(|mut client| entries(&mut client) == there)
            });
        }
        Told {
            acknowledged: all.acknowledged.len(),
            refused: all.refused.len(),
            unknown: all.unknown.len(),
            errors: all.errors,
        }
    }
}

fn write(config: &postgres::Config, from: i64, is_over: &AtomicBool, times: &Times) -> Written {
    let mut written = Written::default();
    let mut client: Option<Client> = None;
    let mut next = from..;
    while !is_over.load(Ordering::Relaxed) {
        let Some(number) = next.next() else { break };
        let begun = Instant::now();
        let mut connected = match client.take() {
            Some(client) => client,
            // Nothing was asked for yet.
            None => config.connect(NoTls).unwrap_or_else(|error| panic!("a log-in fails: {error:?}")),
        };
        // Half of them in a block, whose COMMIT is what counts.
        let done = if number % 2 == 0 {
            connected.execute("INSERT INTO ledger VALUES ($1)", &[&number]).map(drop)
        } else {
            let mut block = match connected.transaction() {
                Ok(block) => block,
                // It was disconnected before.
                Err(error) if error.is_closed() => continue,
                Err(error) => panic!("a BEGIN fails: {error:?}"),
            };
            match block.execute("INSERT INTO ledger VALUES ($1)", &[&number]) {
                Ok(_) => block.commit(),
                Err(error) => {
                    assert_eq!(error.code().map(|code| code.code()), Some("40001"), "in a block: {error:?}");
                    written.refused.insert(number);
                    block.rollback().unwrap_or_else(|error| panic!("a ROLLBACK fails: {error:?}"));
                    Err(error)
                }
            }
        };
        match done {
            Ok(()) => {
                times.acknowledged();
                written.acknowledged.insert(number);
            }
            Err(error) => {
                let code = error.code().map_or("none", |code| code.code()).to_owned();
                written.errors.insert(format!("{code} {}", error.as_db_error().map_or("", |error| error.message())));
                if !written.refused.contains(&number) {
                    // Only a COMMIT, or a statement that is one, leaves that open.
                    let is_open = matches!(&*code, "08007" | "none");
                    if is_open { &mut written.unknown } else { &mut written.refused }.insert(number);
                }
            }
        }
        times.longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        client = Some(connected).filter(|client| !client.is_closed());
        thread::sleep(Duration::from_millis(5));
    }
    written
}

fn entries(client: &mut Client) -> BTreeSet<i64> {
    client.query("SELECT id FROM ledger", &[]).unwrap().iter().map(|row| row.get(0)).collect()
}
