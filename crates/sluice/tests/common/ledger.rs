//! A ledger: writers that append numbered entries, and note what has become of each; and a reader that looks for the
//! last one that was acknowledged.

#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use postgres::{Client, NoTls, error::SqlState};
use sluice_testkit::TestPool;

/// Writers at once.
const WRITERS: i64 = 4;

/// The numbers of one writer begin that far behind those of the one before.
const APART: i64 = 1_000_000;

/// Far more than the longest failover takes.
const WRITES_PATIENCE: Duration = Duration::from_secs(100);

/// Beyond what the pool has its clients wait for: who has no answer by then has none at all.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// The pause before another attempt to log in, at a pool that was killed.
const AGAIN: Duration = Duration::from_millis(20);

/// The servers behind the pool, and the role that writes.
pub(crate) trait Servers {
    fn nodes(&self) -> usize;
    fn leader(&self) -> usize;
    fn try_superuser(&self, node: usize) -> Result<Client, postgres::Error>;
    fn app_name(&self) -> &str;
    fn password(&self) -> &str;
}

/// Errors that clients may be told besides those of a change of the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Allowed {
    /// Nothing any more: the pool was killed. Of a COMMIT nobody knows then.
    pub(crate) lost_pool: bool,
    /// The primary's disk is full.
    pub(crate) full_disk: bool,
}

impl Allowed {
    /// Whether an error may come to one who has asked for no COMMIT.
    fn is_allowed(self, error: &postgres::Error) -> bool {
        match error.code() {
            Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE => true,
            Some(code) => self.full_disk && *code == SqlState::DISK_FULL,
            None => self.lost_pool,
        }
    }
}

/// Writers at their work.
pub(crate) struct Ledger {
    shared: Arc<Shared>,
    /// The first number, and the first one behind the last.
    numbers: (i64, i64),
    /// The entries that earlier rounds have left.
    before: i64,
    writers: Vec<JoinHandle<Written>>,
    reader: Option<JoinHandle<u64>>,
}

/// Facts that writers and readers share.
#[derive(Debug)]
struct Shared {
    config: postgres::Config,
    allowed: Allowed,
    is_over: AtomicBool,
    times: Times,
    /// The entry that was acknowledged last.
    last: AtomicI64,
}

/// None was.
const NONE: i64 = i64::MIN;

/// Times for which writers have waited, in microseconds, since that was asked for last.
#[derive(Debug)]
struct Times {
    begin: Instant,
    /// The longest time that an entry has taken.
    longest: AtomicU64,
    /// The longest time in which no entry of any writer was acknowledged.
    gap: AtomicU64,
    /// The time of the last acknowledgement, since the beginning.
    acknowledged_at: AtomicU64,
}

impl Times {
    fn begin() -> Self {
        let (longest, gap, acknowledged_at) = Default::default();
        Self { begin: Instant::now(), longest, gap, acknowledged_at }
    }

    fn acknowledged(&self) {
        let now = self.begin.elapsed().as_micros() as u64;
        let before = self.acknowledged_at.fetch_max(now, Ordering::Relaxed);
        self.gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

/// The answers that a writer had for its entries.
#[derive(Debug, Default)]
struct Written {
    acknowledged: BTreeSet<i64>,
    /// It was told that they are not there, or has not asked for their COMMIT.
    refused: BTreeSet<i64>,
    /// It was told that nobody knows.
    unknown: BTreeSet<i64>,
    errors: BTreeSet<String>,
}

/// The counts of a run in which nothing was lost.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) acknowledged: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    /// The number of times that what was acknowledged last was looked for, and found.
    pub(crate) read: u64,
    pub(crate) errors: BTreeSet<String>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, refused, unknown, read, errors } = self;
        write!(f, "{acknowledged} acknowledged, {refused} refused, {unknown} unknown, {read} read; errors: {errors:?}")
    }
}

impl Ledger {
    /// Makes its table, and has writers begin.
    pub(crate) fn begin(cluster: &impl Servers, pool: &TestPool) -> Self {
        Self::begin_round(cluster, pool, 0, Allowed::default())
    }

    /// The same in one of several rounds, each with numbers of its own.
    pub(crate) fn begin_round(cluster: &impl Servers, pool: &TestPool, round: u64, allowed: Allowed) -> Self {
        let mut config = pool.client_config(cluster.app_name(), "postgres");
        config.password(cluster.password());
        let mut client = config.connect(NoTls).unwrap();
        client.batch_execute("CREATE TABLE IF NOT EXISTS ledger (id bigint PRIMARY KEY)").unwrap();
        let from = round as i64 * WRITERS * APART;
        let numbers = (from, from + WRITERS * APART);
        assert!(entries(&mut client, numbers).unwrap().is_empty(), "round {round} has been before");
        let before = count(&mut client, numbers).unwrap();
        let (is_over, last) = (AtomicBool::new(false), AtomicI64::new(NONE));
        let shared = Arc::new(Shared { config, allowed, is_over, times: Times::begin(), last });
        let writer = |number: i64| {
            let shared = shared.clone();
            thread::spawn(move || write(&shared, from + number * APART))
        };
        let writers = (0..WRITERS).map(writer).collect();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || read(&shared))
        };
        Self { writers, reader: Some(reader), shared, numbers, before }
    }

    /// The longest time that an entry has taken, from its first attempt to the answer, since this was asked last.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.shared.times.longest.swap(0, Ordering::Relaxed))
    }

    /// The longest time in which nothing was acknowledged to any writer, since this was asked last.
    pub(crate) fn without_writes(&self) -> Duration {
        Duration::from_micros(self.shared.times.gap.swap(0, Ordering::Relaxed))
    }

    /// Waits until an entry is acknowledged that was not before.
    pub(crate) fn wait_for_writes(&self) {
        let (begin, times) = (Instant::now(), &self.shared.times);
        let before = times.begin.elapsed().as_micros() as u64;
        while times.acknowledged_at.load(Ordering::Relaxed) <= before {
            assert!(begin.elapsed() < WRITES_PATIENCE, "no entry is acknowledged within {WRITES_PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has them end, and compares with what is there: on all nodes, once they have caught up.
    pub(crate) fn end(mut self, cluster: &impl Servers) -> Told {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for writer in self.writers.drain(..) {
            let mut one = joined(writer, "a writer");
            all.acknowledged.append(&mut one.acknowledged);
            all.refused.append(&mut one.refused);
            all.unknown.append(&mut one.unknown);
            all.errors.append(&mut one.errors);
        }
        let read = self.reader.take().map_or(0, |reader| joined(reader, "a reader"));
        // An even one is no block, and nobody can know what has become of it.
        let commits: Vec<_> = all.unknown.iter().filter(|number| *number % 2 == 1).collect();
        let may_be_unknown = self.shared.allowed.lost_pool;
        assert!(
            may_be_unknown || commits.is_empty(),
            "what became of these COMMITs can be found out: {commits:?}; {:?}",
            all.errors
        );
        // Whichever of them is the primary now: that may change meanwhile.
        let seen = |node: usize| {
            let mut client = cluster.try_superuser(node)?;
            Ok::<_, postgres::Error>((entries(&mut client, self.numbers)?, count(&mut client, self.numbers)?))
        };
        let mut agreed = None;
        sluice_testkit::eventually("all nodes have the same entries", || {
            // What was under way behind a pool that was killed may still come.
            let mut books = (0..cluster.nodes()).map(seen);
            agreed = books.next().and_then(Result::ok);
            agreed.is_some() && books.all(|other| other.ok() == agreed)
        });
        let (there, before) = agreed.expect("they agree");
        let lost: Vec<_> = all.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}; {:?}", all.errors);
        let wrong: Vec<_> = all.refused.intersection(&there).collect();
        assert!(wrong.is_empty(), "refused, and there: {wrong:?}; {:?}", all.errors);
        assert_eq!(before, self.before, "what earlier rounds have left");
        Told {
            acknowledged: all.acknowledged.len(),
            refused: all.refused.len(),
            unknown: all.unknown.len(),
            read,
            errors: all.errors,
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // A test that has failed need not wait for them.
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// The result of a thread that ends soon.
fn joined<T>(thread: JoinHandle<T>, who: &str) -> T {
    let begin = Instant::now();
    while !thread.is_finished() {
        assert!(begin.elapsed() < HANGS_AFTER, "{who} has no answer after {HANGS_AFTER:?}");
        thread::sleep(Duration::from_millis(5));
    }
    thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}

/// Logs in. None if that has to be tried again.
fn connected(shared: &Shared) -> Option<Client> {
    match shared.config.connect(NoTls) {
        Ok(client) => Some(client),
        Err(error) => {
            // The pool has each wait that can reach it.
            assert!(shared.allowed.lost_pool && error.code().is_none(), "a log-in fails: {error:?}");
            thread::sleep(AGAIN);
            None
        }
    }
}

fn write(shared: &Shared, from: i64) -> Written {
    let mut written = Written::default();
    let mut client: Option<Client> = None;
    let mut next = from;
    while !shared.is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let Some(mut connection) = client.take().or_else(|| connected(shared)) else { continue };
        let number = next;
        next += 1;
        // Half of them in a block, whose COMMIT is what counts.
        let done = if number % 2 == 0 {
            connection.execute("INSERT INTO ledger VALUES ($1)", &[&number]).map(drop)
        } else {
            match write_in_block(&mut connection, number, shared.allowed, &mut written) {
                Some(done) => done,
                // Nothing was asked for yet.
                None => continue,
            }
        };
        match done {
            Ok(()) => {
                shared.times.acknowledged();
                shared.last.store(number, Ordering::Release);
                written.acknowledged.insert(number);
            }
            Err(error) => written.note(number, &error),
        }
        shared.times.longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        client = Some(connection).filter(|client| !client.is_closed());
        thread::sleep(Duration::from_millis(5));
    }
    written
}

/// Writes an entry in a block; None if there was none, since the client was disconnected before.
fn write_in_block(
    client: &mut Client,
    number: i64,
    allowed: Allowed,
    written: &mut Written,
) -> Option<Result<(), postgres::Error>> {
    let mut block = match client.transaction() {
        Ok(block) => block,
        Err(error) if error.is_closed() || allowed.lost_pool && error.code().is_none() => return None,
        Err(error) => panic!("a BEGIN fails: {error:?}"),
    };
    Some(match block.execute("INSERT INTO ledger VALUES ($1)", &[&number]) {
        Ok(_) => block.commit(),
        Err(error) => {
            assert!(allowed.is_allowed(&error), "in a block: {error:?}");
            written.refused.insert(number);
            match block.rollback() {
                Err(error) if !allowed.lost_pool => panic!("a ROLLBACK fails: {error:?}"),
                _ => Err(error),
            }
        }
    })
}

impl Written {
    fn note(&mut self, number: i64, error: &postgres::Error) {
        let code = error.code().map_or("none", |code| code.code());
        self.errors.insert(format!("{code} {}", error.as_db_error().map_or("", |error| error.message())));
        if !self.refused.contains(&number) {
            // Only a COMMIT, or a statement that is one, leaves that open.
            if is_end(error) { &mut self.unknown } else { &mut self.refused }.insert(number);
        }
    }
}

/// Looks for the entry that was acknowledged last, again and again: a primary that has been one does not have it.
/// Returns how often that was found.
fn read(shared: &Shared) -> u64 {
    let mut client: Option<Client> = None;
    let mut found = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        let Some(mut connection) = client.take().or_else(|| connected(shared)) else { continue };
        let number = shared.last.load(Ordering::Acquire);
        if number != NONE {
            match connection.query_one("SELECT count(*) FROM ledger WHERE id = $1", &[&number]) {
                Ok(row) => {
                    assert_eq!(
                        row.get::<_, i64>(0),
                        1,
                        "entry {number} was acknowledged before a reader looked for it"
                    );
                    found += 1;
                }
                Err(error) => {
                    assert!(is_end(&error) || shared.allowed.is_allowed(&error), "a reader is told {error:?}");
                }
            }
        }
        client = Some(connection).filter(|client| !client.is_closed());
        thread::sleep(Duration::from_millis(10));
    }
    found
}

/// Whether a client is disconnected with its server, in the midst of a statement outside of a block: what has become of
/// that is open. The server may have told it so before.
fn is_end(error: &postgres::Error) -> bool {
    error.as_db_error().is_none_or(|error| {
        *error.code() == SqlState::TRANSACTION_RESOLUTION_UNKNOWN || *error.code() == SqlState::ADMIN_SHUTDOWN
    })
}

/// Those of a round.
fn entries(client: &mut Client, (from, upto): (i64, i64)) -> Result<BTreeSet<i64>, postgres::Error> {
    let rows = client.query("SELECT id FROM ledger WHERE id >= $1 AND id < $2", &[&from, &upto])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The number of those of all other rounds. Numbers below 0 are no round's.
fn count(client: &mut Client, (from, upto): (i64, i64)) -> Result<i64, postgres::Error> {
    const COUNT: &str = "SELECT count(*) FROM ledger WHERE id >= 0 AND (id < $1 OR id >= $2)";
    Ok(client.query_one(COUNT, &[&from, &upto])?.get(0))
}
