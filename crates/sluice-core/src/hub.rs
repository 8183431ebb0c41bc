//! What the workers of one process share: the pools, the counts behind the limits, the secrets. And the letters they
//! write each other.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
};

use sluice_wire::{ErrorResponse, scram, secret::Secret};

use crate::{
    io::Address,
    pool::PoolState,
    profile::Profile,
    secrets::Secrets,
    server::Server,
    settings::{Limits, PoolSettings},
    statement::Registry,
    time::Time,
};

/// A client, anywhere in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientRef {
    /// Its worker.
    pub worker: u16,
    /// Its number there.
    pub index: u32,
    /// Tells it from others that had the same number.
    pub serial: u32,
}

/// A server connection, anywhere in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerRef {
    /// The worker that has it.
    pub worker: u16,
    /// Its number there.
    pub index: u32,
    /// Tells it from others that had the same number.
    pub serial: u32,
}

/// A letter to a worker.
#[derive(Debug)]
pub enum Mail {
    /// A server, handed over for a client. The driver of the receiving worker has adopted its connection.
    Server(Box<Server>, ClientRef),
    /// The client was given an idle server of yours: hand it over. The pool counts that server until it is found gone.
    Fetch(ServerRef, ClientRef, Arc<Pool>),
    /// The server that was to be fetched is gone.
    FetchFailed(ClientRef),
    /// A client of yours that waited gets an error.
    Refuse(ClientRef, Arc<ErrorResponse>),
    /// An idle server of yours is no longer part of its pool.
    CloseIdle(ServerRef),
    /// A CancelRequest for a client of yours.
    Cancel {
        /// The client's number.
        index: u32,
        /// The key given.
        key: Vec<u8>,
    },
    /// The secret has been looked up that a client of yours waits for.
    Secret(ClientRef),
    /// Stop: no new transaction, and the end at that time.
    Stop(Time),
}

/// How to reach the server of a pool and to log in there.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Where it listens.
    pub address: Address,
    /// The database's name there.
    pub dbname: String,
    /// The role's name there.
    pub user: String,
    /// The password, if one is configured.
    pub password: Option<String>,
    /// By which the server believes where a client comes from; `None`: it is not told.
    pub client_address_secret: Option<Arc<[u8]>>,
}

/// A pool: one (database, user) as clients name them.
#[derive(Debug)]
pub struct Pool {
    /// The database's name, as clients say it.
    pub database: String,
    /// The user's name, as clients say it.
    pub user: String,
    /// What the operator decided.
    pub settings: PoolSettings,
    /// Where its servers come from.
    pub upstream: Upstream,
    state: Mutex<PoolState>,
    statements: Mutex<Registry>,
    login: Mutex<Login>,
}

/// What a pool knows for logging in, to its server and of its clients.
#[derive(Debug, Default)]
pub struct Login {
    /// Keys seen at a client's login.
    pub keys: Option<scram::Keys>,
    /// The user's secret, where it is enough to log in (a plain password or an MD5 hash).
    pub secret: Option<Secret>,
    /// What the server reports to clients that start with these settings.
    welcomes: HashMap<Profile, Welcome>,
}

/// Profiles for which a pool remembers what the server reports, at most.
const WELCOMES_MAX: usize = 256;

/// What the server reports at login.
#[derive(Debug, Clone)]
pub struct Welcome {
    /// The one copy of the profile that its clients share.
    pub profile: Profile,
    /// The ParameterStatus messages.
    pub parameters: Arc<[u8]>,
}

impl Login {
    /// What clients with these settings are told, if it is known.
    pub fn welcome(&self, profile: &Profile) -> Option<Welcome> {
        self.welcomes.get(profile).cloned()
    }

    /// Remembers what the server reports.
    pub fn remember(&mut self, welcome: Welcome) {
        if self.welcomes.len() >= WELCOMES_MAX {
            self.welcomes.clear();
        }
        self.welcomes.insert(welcome.profile.clone(), welcome);
    }

    /// The server may report something else from now on.
    pub fn forget_welcomes(&mut self) {
        self.welcomes.clear();
    }
}

impl Pool {
    fn new(database: &str, user: &str, settings: PoolSettings, upstream: Upstream) -> Self {
        Self {
            database: database.to_owned(),
            user: user.to_owned(),
            state: Mutex::new(PoolState::new(settings.clone())),
            settings,
            upstream,
            statements: Mutex::default(),
            login: Mutex::default(),
        }
    }

    /// Its servers and waiters.
    pub fn state(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// Its prepared statements.
    pub fn statements(&self) -> MutexGuard<'_, Registry> {
        lock(&self.statements)
    }

    /// What it logs in with.
    pub fn login(&self) -> MutexGuard<'_, Login> {
        lock(&self.login)
    }
}

/// A panic elsewhere while a lock was held must not take the other workers with it: each critical section leaves its
/// value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database as clients may name it, and where it is.
#[derive(Debug, Clone)]
pub struct Route {
    /// The name; `None` matches any that no other route has.
    pub name: Option<String>,
    /// Where the server listens.
    pub address: Address,
    /// The name there; `None` keeps the client's.
    pub dbname: Option<String>,
    /// The role there; `None` keeps the client's user.
    pub user: Option<String>,
    /// The password there.
    pub password: Option<String>,
    /// The secret of the extension there, of 16 to 128 bytes, to tell it where clients come from.
    pub client_address_secret: Option<Arc<[u8]>>,
    /// The settings of its pools.
    pub pool: PoolSettings,
}

/// Everything the workers share.
#[derive(Debug)]
pub struct Hub {
    /// Limits of the process.
    pub limits: Limits,
    /// How clients are checked.
    pub secrets: Secrets,
    /// How many workers there are.
    pub workers: u16,
    routes: Vec<Route>,
    /// In an order of their own, so that what goes over all of them does so the same way each time.
    pools: RwLock<BTreeMap<(String, String), Arc<Pool>>>,
    clients: AtomicU32,
    servers: AtomicU32,
}

impl Hub {
    /// A hub for `workers` workers.
    pub fn new(limits: Limits, secrets: Secrets, routes: Vec<Route>, workers: u16) -> Self {
        Self {
            limits,
            secrets,
            workers,
            routes,
            pools: RwLock::default(),
            clients: AtomicU32::new(0),
            servers: AtomicU32::new(0),
        }
    }

    /// The pool of a database and a user, made on first use; `None` if there is no such database.
    pub fn pool(&self, database: &str, user: &str) -> Option<Arc<Pool>> {
        let key = (database.to_owned(), user.to_owned());
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Some(pool.clone());
        }
        let named = self.routes.iter().find(|r| r.name.as_deref() == Some(database));
        let route = named.or_else(|| self.routes.iter().find(|r| r.name.is_none()))?;
        let upstream = Upstream {
            address: route.address.clone(),
            dbname: route.dbname.clone().unwrap_or_else(|| database.to_owned()),
            user: route.user.clone().unwrap_or_else(|| user.to_owned()),
            password: route.password.clone(),
            client_address_secret: route.client_address_secret.clone(),
        };
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(Pool::new(database, user, route.pool.clone(), upstream));
        Some(pools.entry(key).or_insert_with(made).clone())
    }

    /// All pools there are.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Counts a client in, unless there are as many as may be.
    pub fn admit_client(&self) -> bool {
        take(&self.clients, self.limits.clients)
    }

    /// Counts a client out.
    pub fn dismiss_client(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Clients there are.
    pub fn clients(&self) -> u32 {
        self.clients.load(Ordering::Relaxed)
    }

    /// Counts a server connection in, unless there are as many as may be.
    pub fn admit_server(&self) -> bool {
        take(&self.servers, self.limits.servers)
    }

    /// Counts a server connection in, whatever the limit says: another is about to be closed for it.
    pub fn admit_server_over(&self) {
        self.servers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a server connection out.
    pub fn dismiss_server(&self) {
        self.servers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Server connections there are.
    pub fn servers(&self) -> u32 {
        self.servers.load(Ordering::Relaxed)
    }
}

fn take(count: &AtomicU32, limit: u32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1)).is_ok()
}
