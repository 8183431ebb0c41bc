//! The things that the workers of one process share: the pools, the counts behind the limits, the secrets.

mod causal;
mod holds;
mod limits;
mod login;
mod making;
mod pausing;
mod readers;
mod upstream;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use sluice_control::{Database, Snapshot, access::Access, address::Address, reading::Node, settings::Sharing};

pub use causal::Acknowledged;
pub use holds::{Held, Hold};
pub use login::{Login, Welcome};
pub use pausing::CalledIn;
pub use upstream::{NodeRole, Upstream};

use causal::{AcknowledgedByCluster, Replayed};
use holds::Holds;
use pausing::Paused;
use readers::{Leaving, Replays, Shares};

use crate::{
    admission::Admissions,
    budget::{Budget, Budgets, Shared},
    catalog::Catalog,
    holding::Pins,
    ids::ServerRef,
    logins::{LogIns, Opened},
    pool::PoolState,
    registry::Registry,
    secrets::Secrets,
    slow::Threshold,
    time::Time,
    traffic::Traffic,
};

/// A pool: the connections of one role to one database of one server. What it is does not change: clients go on with
/// another one where the configuration says so.
#[derive(Debug)]
pub struct Pool {
    /// The database's name, as clients say it.
    pub database: String,
    /// The configuration's entry that it was made by.
    entry: Arc<Database>,
    /// The way in which its clients share its servers.
    pub sharing: Sharing,
    /// The way to its servers.
    pub upstream: Upstream,
    /// The limits that its servers come under besides its own.
    pub budgets: Budgets,
    /// The catalogs of its database.
    pub catalog: Arc<Catalog>,
    /// The versions of its primary's that it goes by, at a standby.
    replayed: Replayed,
    /// The commits of its cluster that clients were told of, where somebody has to find them.
    pub acknowledged: Option<Arc<Acknowledged>>,
    /// The log-ins to its server.
    pub log_ins: Arc<LogIns>,
    /// Whether a client has ever asked what a sequence gave it (`currval`, `lastval`).
    pub reads_sequences: AtomicBool,
    /// The beginning of its shared statements' names on the servers.
    pub name_prefix: Box<[u8]>,
    /// Its prepared statements.
    pub statements: Registry,
    /// The work done for its clients.
    pub traffic: Traffic,
    /// The time from which a request is logged.
    pub slow: Threshold,
    state: Mutex<PoolState>,
    login: Mutex<Login>,
    /// The clients that are to go on with another one. All of them, where another one has come in its place, or none: no
    /// server is opened then, and none becomes idle.
    leaving: Leaving,
    /// The time at which it was first seen without anybody who uses it, in microseconds; `IN_USE` if somebody does.
    unused_since: AtomicU64,
    /// The number of the last reader that got its place here, of all of the hub's; 0 if there was none.
    placed: AtomicU64,
    /// The same without a server.
    serverless_since: AtomicU64,
    /// Until when a statement waits for its database to be left by all, in microseconds.
    to_be_left_until: AtomicU64,
    /// Whether it is a client of this very pool that runs that statement, on a server of it.
    is_left_by_own: AtomicBool,
}

/// A pool that somebody uses.
const IN_USE: u64 = u64::MAX;

/// The time for which clients are told at their log-ins what a server has reported that is gone.
const TOLD_AGE_MAX: Duration = Duration::from_secs(60);

/// The time that PostgreSQL waits for others to leave a database (`CountOtherDBBackends`).
const LEAVING_TIME: Duration = Duration::from_secs(5);

/// The time for which a pool that nobody uses is kept, where the configuration does not name its database: that may be
/// gone. Others stay, with what they have counted, until there are too many.
const UNUSED_TIME_MAX: Duration = Duration::from_secs(3600);

impl Pool {
    fn new(
        database: &str,
        (role, address): (&str, Address),
        entry: Arc<Database>,
        (catalog, log_ins): (Arc<Catalog>, Arc<LogIns>),
        acknowledged: Option<Arc<Acknowledged>>,
        budgets: Budgets,
        (statements, name_prefix): (Registry, Box<[u8]>),
    ) -> Self {
        let upstream = Upstream::new(&entry, database, role, address);
        Self {
            database: database.to_owned(),
            state: Mutex::new(upstream.new_state(&entry)),
            sharing: entry.pool.sharing,
            slow: Threshold::new(entry.pool.log_min_duration),
            entry,
            upstream,
            budgets,
            catalog,
            replayed: Replayed::default(),
            acknowledged,
            log_ins,
            reads_sequences: AtomicBool::new(false),
            statements,
            name_prefix,
            traffic: Traffic::default(),
            login: Mutex::default(),
            leaving: Leaving::default(),
            unused_since: AtomicU64::new(IN_USE),
            placed: AtomicU64::new(0),
            serverless_since: AtomicU64::new(IN_USE),
            to_be_left_until: AtomicU64::new(0),
            is_left_by_own: AtomicBool::new(false),
        }
    }

    /// Has it log in with what the configuration lists of its role.
    fn know_listed(&self, access: &Access) {
        if let Some(secret) = access.for_servers(&self.upstream.user) {
            self.login().know(secret);
        }
    }

    /// Whether the configuration has another one in its place by now, or none ([`Hub::successor`]).
    pub fn is_retired(&self) -> bool {
        self.leaving.are_all()
    }

    /// Whether any of its clients is to go on with another one.
    pub fn has_leaving(&self) -> bool {
        self.leaving.is_anybody()
    }

    /// A client that could go on with another one does so, if it is to.
    pub fn lets_go(&self) -> bool {
        self.leaving.take_one()
    }

    /// Whether a server that was opened so is to be closed, by an operator or by a reload, as soon as its client lets it go.
    pub fn has_called_in(&self, opened: &Opened) -> bool {
        self.is_retired() || self.state().is_called_in(opened)
    }

    /// Whether clients are to give up servers that were opened so and that they could do without: others need them, an
    /// operator has them closed, or clients are to go on elsewhere.
    pub fn wants_back(&self, now: Time, opened: &Opened) -> bool {
        self.is_retired() || self.state().wants_back(now, opened)
    }

    /// A server has reported a parameter that no statement accounts for: its configuration has been reloaded.
    pub fn reloaded(&self) {
        self.log_ins.note_reload();
        self.begins_otherwise();
    }

    /// A server has said how it is configured: where that is news, others may have said nothing of it yet.
    pub fn is_configured(&self, mark: &str) {
        if self.log_ins.note_configuration(mark) {
            self.reloaded();
        }
    }

    /// Whoever logs in or is parsed from now on begins with something else.
    pub fn begins_otherwise(&self) {
        self.catalog.begin_change().concerns_log_ins();
        self.forget_welcomes();
    }

    /// The server may report something else from now on.
    pub fn forget_welcomes(&self) {
        self.login().forget_welcomes();
        self.log_ins.forget_date_style();
    }

    /// Whether it has a client or a server, or one of either is on its way: each holds a reference besides the hub's.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// Forgets what servers have told to clients that log in, where none has been open for a while: it may have
    /// changed, or be another one.
    fn forget_what_is_old(&self, now: Time) {
        if self.state().counts().open > 0 {
            self.serverless_since.store(IN_USE, Ordering::Relaxed);
            return;
        }
        let since = self.serverless_since.load(Ordering::Relaxed).min(now.0);
        self.serverless_since.store(since, Ordering::Relaxed);
        if now.since(Time(since)) >= TOLD_AGE_MAX {
            self.forget_welcomes();
        }
    }

    /// The time for which nobody has used it, as far as has been seen.
    fn unused_for(self: &Arc<Self>, now: Time) -> Duration {
        if self.is_used() {
            self.unused_since.store(IN_USE, Ordering::Relaxed);
            return Duration::ZERO;
        }
        // Equal unless this is the first look at it.
        let since = self.unused_since.load(Ordering::Relaxed).min(now.0);
        self.unused_since.store(since, Ordering::Relaxed);
        now.since(Time(since))
    }

    /// Takes its idle servers out of it, if a statement waits for its database to be left, and no client of its own is
    /// there but the one that runs the statement: without a pool nobody would be connected. `None` if that is not so.
    /// `held` is how many references the caller has.
    pub fn leave_database(self: &Arc<Self>, now: Time, held: usize) -> Option<Vec<ServerRef>> {
        if now.0 >= self.to_be_left_until.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        let counts = state.counts();
        let may_stay = u32::from(self.is_left_by_own.load(Ordering::Relaxed));
        // Each server and each client has a reference, and so has the hub.
        let known = 1 + held + (counts.open + may_stay) as usize;
        let has_others = counts.open - counts.idle > may_stay || Arc::strong_count(self) > known;
        (!has_others).then(|| std::iter::from_fn(|| state.give_up_idle()).collect())
    }

    /// Its servers and waiters.
    pub fn state(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// The credentials that it logs in with.
    pub fn login(&self) -> MutexGuard<'_, Login> {
        lock(&self.login)
    }
}

/// A client's leave to keep its server between transactions; given back when this is dropped.
#[derive(Debug)]
pub struct Pinned {
    pool: Arc<Pool>,
    server: ServerRef,
}

impl Pinned {
    /// `None` where as many clients keep their servers as may.
    pub fn take(pool: &Arc<Pool>, server: ServerRef, pins: Pins) -> Option<Self> {
        pool.state().pin(server, pins).then(|| Self { pool: pool.clone(), server })
    }

    /// Notes why the client keeps it now; `false` if it may not, as with [`Self::take`].
    pub fn set_pins(&self, pins: Pins) -> bool {
        self.pool.state().set_pins(self.server, pins)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.pool.state().unpin(self.server);
    }
}

/// A panic elsewhere while a lock was held must not take the other workers with it: each critical section leaves its
/// value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason why there is no pool for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPool {
    /// There is no database of that name.
    NoDatabase,
    /// There are as many pools as may be, and all are in use.
    TooMany,
}

/// Bytes that are random in each process.
#[derive(Debug, Clone, Copy)]
pub struct Nonces {
    /// The seed of salts for users that do not exist.
    pub mock_seed: [u8; 32],
    /// Part of the names of shared statements on the servers, so that no client names one by accident; 0: no part.
    pub statements: u32,
}

/// The key of a pool: the database's name, as clients say it, the role's on the server, and the server's address.
type Key = (String, String, Address);

/// Everything the workers share.
#[derive(Debug)]
pub struct Hub {
    /// The secrets by which clients are checked.
    pub secrets: Secrets,
    /// The number of workers.
    pub workers: u16,
    /// The socket at which the process that this one took over from hears CancelRequests, if there is one.
    pub predecessor: Option<Address>,
    nonces: Nonces,
    /// The snapshot that pools are made by. It changes under the lock of these only.
    snapshot: RwLock<Arc<Snapshot>>,
    /// In an order of their own, so that what goes over all of them does so the same way each time.
    pools: RwLock<BTreeMap<Key, Arc<Pool>>>,
    catalogs: Mutex<HashMap<(Address, String), Arc<Catalog>>>,
    log_ins: Mutex<HashMap<Address, Arc<LogIns>>>,
    /// The databases that give out no servers.
    paused: Mutex<Paused>,
    /// The databases that let no clients in.
    disabled: Mutex<BTreeSet<String>>,
    /// The clusters whose clients are held.
    holds: Mutex<Holds>,
    /// The nodes of clusters that have readers, as they were seen last.
    nodes: Mutex<HashMap<Arc<str>, Arc<[Node]>>>,
    /// The versions of their primaries' catalogs that standbys replay, and the looks at nodes since.
    replays: Mutex<Replays>,
    /// The commits that clients were told of.
    acknowledged: AcknowledgedByCluster,
    /// The pools that reloads have taken away, while they have servers or clients.
    retired: Mutex<Vec<Weak<Pool>>>,
    /// Whether clients end as soon as they have no transaction open, and others are refused.
    is_draining: AtomicBool,
    /// The addresses there have been log-ins to.
    addresses: AtomicU32,
    /// The readers that have got a place.
    placed: AtomicU64,
    /// The number of the next statement.
    statements: Arc<AtomicU64>,
    connections: AtomicU32,
    admissions: Arc<Admissions>,
    /// The limits that pools share, by what they count, and that of all servers.
    budgets: Mutex<HashMap<Shared, Arc<Budget>>>,
    servers: Arc<Budget>,
}

impl Hub {
    /// A hub for `workers` workers, which begin with that snapshot.
    pub fn new(snapshot: Arc<Snapshot>, nonces: Nonces, workers: u16) -> Self {
        let servers = Arc::new(Budget::new(Shared::Process, &snapshot));
        Self {
            secrets: Secrets::new(nonces.mock_seed),
            workers,
            predecessor: None,
            nonces,
            snapshot: RwLock::new(snapshot),
            pools: RwLock::default(),
            catalogs: Mutex::default(),
            log_ins: Mutex::default(),
            paused: Mutex::default(),
            disabled: Mutex::default(),
            holds: Mutex::default(),
            nodes: Mutex::default(),
            replays: Mutex::default(),
            acknowledged: Mutex::default(),
            retired: Mutex::default(),
            is_draining: AtomicBool::new(false),
            addresses: AtomicU32::new(0),
            placed: AtomicU64::new(0),
            statements: Arc::default(),
            connections: AtomicU32::new(0),
            admissions: Arc::default(),
            budgets: Mutex::default(),
            servers,
        }
    }

    /// The snapshot that is gone by now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes by another snapshot from now on: pools that only differ in sizes and times go by the new ones, others are
    /// retired. The workers are to be told, by a [`Mail::Published`](crate::mail::Mail::Published) each.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let before =
            std::mem::replace(&mut *self.snapshot.write().unwrap_or_else(PoisonError::into_inner), snapshot.clone());
        if !Arc::ptr_eq(&before.access, &snapshot.access) {
            // Who is listed besides changes nothing of what was found.
            if !snapshot.access.looks_up_as(&before.access) {
                self.secrets.moved();
            }
            for pool in pools.values() {
                pool.know_listed(&snapshot.access);
            }
        }
        self.limit_servers(&snapshot);
        let mut moved_to = Vec::new();
        let mut shares = Shares::default();
        let mut retired = lock(&self.retired);
        retired.retain(|pool| pool.strong_count() > 0);
        pools.retain(|_, pool| match snapshot.database(&pool.database) {
            Some(entry) if entry.keeps_pool_of(&pool.entry, &pool.database, &pool.upstream.address) => {
                shares.go_on(pool, entry, &before);
                pool.state().set_settings(entry.pool.clone());
                pool.slow.set(entry.pool.log_min_duration);
                true
            }
            entry => {
                moved_to.extend(entry.map(|entry| entry.address.clone()).filter(|a| *a != pool.upstream.address));
                pool.leaving.retire();
                retired.push(Arc::downgrade(pool));
                false
            }
        });
        drop(retired);
        // Pools that are made from now on lead there.
        self.end_holds_of_changed(&before, &snapshot, &pools);
        drop(pools);
        for entry in snapshot.databases.iter().filter(|entry| !entry.readers.is_empty()) {
            let known = before.databases.iter().find(|it| it.name == entry.name);
            moved_to.extend(readers::came(entry, known, Database::addresses));
        }
        // Nobody has seen what happened there while no pool led there.
        let log_ins = lock(&self.log_ins);
        for log_ins in moved_to.iter().filter_map(|address| log_ins.get(address)) {
            log_ins.begin_change();
            log_ins.end_change();
        }
    }

    /// The catalogs of a database, which all of its pools share.
    fn catalog(&self, address: &Address, dbname: &str, log_ins: &Arc<LogIns>, kept_max: usize) -> Arc<Catalog> {
        let mut catalogs = lock(&self.catalogs);
        if catalogs.len() > kept_max {
            catalogs.retain(|_, catalog| Arc::strong_count(catalog) > 1);
        }
        let key = (address.clone(), dbname.to_owned());
        catalogs.entry(key).or_insert_with(|| Arc::new(Catalog::new(log_ins.clone()))).clone()
    }

    /// The log-ins to a server, which all of its pools share.
    fn log_ins(&self, address: &Address, kept_max: usize) -> Arc<LogIns> {
        let mut known = lock(&self.log_ins);
        if known.len() > kept_max {
            known.retain(|_, log_ins| Arc::strong_count(log_ins) > 1);
        }
        let number = || self.addresses.fetch_add(1, Ordering::Relaxed);
        let made = || Arc::new(LogIns::new(self.secrets.changes(), number()));
        known.entry(address.clone()).or_insert_with(made).clone()
    }

    /// The pools that somebody uses.
    pub fn pools_in_use(&self) -> Vec<Arc<Pool>> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.values().filter(|pool| pool.is_used()).cloned().collect()
    }

    /// Forgets the pools that nobody has used for a while, and notes since when others are unused. To be called now and
    /// then.
    pub fn forget_unused_pools(&self, now: Time) {
        let snapshot = self.snapshot();
        let is_named = |pool: &Pool| {
            let entry = snapshot.database(&pool.database);
            entry.is_some_and(|entry| entry.name.as_ref() == Some(&pool.database))
        };
        let is_old = |pool: &Arc<Pool>| pool.unused_for(now) >= UNUSED_TIME_MAX && !is_named(pool);
        for pool in self.pools.read().unwrap_or_else(PoisonError::into_inner).values() {
            pool.forget_what_is_old(now);
        }
        let old = self.pools.read().unwrap_or_else(PoisonError::into_inner).values().filter(|p| is_old(p)).count();
        if old > 0 {
            // Nobody gets a reference while this lock is held, so what is unused now stays so.
            self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|_, pool| !is_old(pool));
        }
    }

    /// A client of that pool is about to run a statement about a database, and PostgreSQL refuses it after a while if
    /// anybody else is connected to that (`DROP DATABASE`, `ALTER DATABASE … RENAME`, `CREATE DATABASE … TEMPLATE`): pools
    /// of it that have no other client are not to be in its way.
    pub fn leave_database(&self, now: Time, asker: &Pool, name: &[u8]) {
        let until = now + LEAVING_TIME;
        let is_named =
            |pool: &Pool| pool.upstream.address == asker.upstream.address && pool.upstream.dbname.as_bytes() == name;
        for pool in self.pools.read().unwrap_or_else(PoisonError::into_inner).values().filter(|pool| is_named(pool)) {
            pool.is_left_by_own.store(std::ptr::eq(&**pool, asker), Ordering::Relaxed);
            pool.to_be_left_until.store(until.0, Ordering::Relaxed);
        }
    }

    /// All pools there are.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
