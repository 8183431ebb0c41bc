//! An operator's decisions about pools and the process. Plain values: the configuration file is parsed elsewhere.

use std::{collections::BTreeMap, time::Duration};

/// The time for which a client keeps the server it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// Until its transaction ends. Prepared statements and startup settings follow the client.
    Transaction,
    /// Until it disconnects. The server is then reset (`DISCARD ALL`) and used again, if that shows to leave nothing.
    Session,
}

/// The policy for a client whose session holds what can't follow it: a temporary table, a lock, a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinPolicy {
    /// It keeps its server until that is gone.
    Pin,
    /// It is sent away with an error that names what it is.
    Refuse,
}

/// The way in which the clients of a pool share its servers: what a client can rely on from its log-in to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// The time at which a server goes back to the pool.
    pub mode: PoolMode,
    /// Whether unnamed statements that come again are served from shared prepared ones.
    pub auto_prepare: bool,
    /// Whether a BEGIN on its own is answered without a server, and sent with the statement behind it.
    pub lazy_begin: bool,
    /// The policy for a client whose session holds something that can't follow it to another server.
    pub pins: PinPolicy,
}

/// The settings of one pool, that is of one (database, role) pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// The way in which clients share servers.
    pub sharing: Sharing,
    /// Server connections at most, over all workers.
    pub size: u32,
    /// Server connections kept open once the pool has been used; at most `size`.
    pub min: u32,
    /// The time that a client waits for a server before it gets SQLSTATE 53300.
    pub wait_timeout: Duration,
    /// The time that a client waits where the cluster of its database has no primary that can be connected to; `None`:
    /// it is one server.
    pub failover_timeout: Option<Duration>,
    /// Age after which a server is closed when it falls idle.
    pub server_lifetime: Duration,
    /// The time that a server above `min` may be idle before it is closed.
    pub server_idle_timeout: Duration,
    /// The time that connecting and logging in to PostgreSQL may take.
    pub connect_timeout: Duration,
    /// The wait after a first failed connect; doubled up to `backoff_max` while failures go on.
    pub backoff_min: Duration,
    /// The longest wait between two attempts to connect.
    pub backoff_max: Duration,
    /// Connects under way at once, at most.
    pub parallel_connects: u32,
    /// Servers that clients may keep between transactions for what can't follow them; `None`: all of the pool's but one.
    pub pinned_max: Option<u32>,
    /// Prepared statements kept on each server, at most; the least recently used goes first.
    pub prepared_per_server: u32,
    /// The time from which a request is logged, with the wait for a server; `None`: none is.
    pub log_min_duration: Option<Duration>,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { mode: PoolMode::Transaction, auto_prepare: true, lazy_begin: true, pins: PinPolicy::Pin }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            sharing: Sharing::default(),
            size: 20,
            min: 0,
            wait_timeout: Duration::from_secs(30),
            failover_timeout: None,
            server_lifetime: Duration::from_secs(3600),
            server_idle_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            parallel_connects: 4,
            pinned_max: None,
            prepared_per_server: 500,
            log_min_duration: None,
        }
    }
}

/// Limits that pools share, and clients of several pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Clients connected at once, over all workers; one more gets SQLSTATE 53300.
    pub clients: u32,
    /// The same of one address; `None`: as many as there may be.
    pub clients_per_address: Option<u32>,
    /// The same of one user, unless `users` says otherwise.
    pub clients_per_user: Option<u32>,
    /// Server connections at once, over all pools.
    pub servers: u32,
    /// The same to one host and port; `None`: as many as there may be.
    pub servers_per_host: Option<u32>,
    /// The same as one role, unless `users` says otherwise.
    pub servers_per_user: Option<u32>,
    /// The limits of single users.
    pub users: BTreeMap<String, UserLimits>,
    /// Pools at once, that is pairs of database and role; one more gets SQLSTATE 53300.
    pub pools: u32,
    /// The time that a client may take from connecting to being logged in.
    pub login_timeout: Duration,
    /// The time for which a client that has a server may leave a message unfinished.
    pub client_message_timeout: Duration,
    /// The time for which a client may leave its server waiting inside a transaction, batch or COPY; `None`: for ever.
    pub idle_transaction_timeout: Option<Duration>,
    /// The time for which a client may ask for nothing between transactions; `None`: for ever.
    pub idle_client_timeout: Option<Duration>,
    /// The time that a server may take for a request before it is cancelled; `None`: as long as it likes.
    pub query_timeout: Option<Duration>,
    /// The largest client message that is collected whole (Parse, startup, passwords), in bytes. Messages that only
    /// pass through have no limit but PostgreSQL's own (1 GiB).
    pub rewritten_message_bytes: u32,
}

/// The clients that the log tells of as they come and go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLog {
    /// Those that have logged in.
    pub connections: bool,
    /// Those that had, and are gone.
    pub disconnections: bool,
}

/// The limits of one user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Clients of that name at once.
    pub clients: Option<u32>,
    /// Server connections at once as the role of that name.
    pub servers: Option<u32>,
}

impl Limits {
    /// Clients of a user at once.
    pub fn clients_of(&self, user: &str) -> Option<u32> {
        self.users.get(user).and_then(|own| own.clients).or(self.clients_per_user)
    }

    /// Server connections at once as a role.
    pub fn servers_as(&self, role: &str) -> Option<u32> {
        self.users.get(role).and_then(|own| own.servers).or(self.servers_per_user)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            clients_per_address: None,
            clients_per_user: None,
            servers: 500,
            servers_per_host: None,
            servers_per_user: None,
            users: BTreeMap::new(),
            pools: 1000,
            login_timeout: Duration::from_secs(30),
            // Less than `wait_timeout`: who waits for that server gets it.
            client_message_timeout: Duration::from_secs(20),
            idle_transaction_timeout: None,
            idle_client_timeout: None,
            query_timeout: None,
            rewritten_message_bytes: 16 << 20,
        }
    }
}
