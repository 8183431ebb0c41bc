//! Every table and key of the configuration file, once: the reader takes kinds and ranges from here, and so does
//! `docs/reference/configuration.md`.
//!
//! Nothing here reads anything.

mod admin;
mod auth;
mod balancers;
mod client_log;
mod cluster;
mod limits;
mod node;
mod tcp;
mod tls;
mod upgrade;

use std::time::Duration;

use sluice_control::{
    server_auth::ServerAuth,
    settings::{PinPolicy, PoolMode},
};

use crate::{
    DriverChoice,
    kinds::{
        Addresses, AutoOrInteger, FilePath, Flag, Host, Integer, Kind, NAME_BYTES_MAX, Password, Text, Time, Words,
    },
};

pub(crate) use admin::*;
pub(crate) use auth::*;
pub(crate) use balancers::*;
pub(crate) use client_log::*;
pub(crate) use cluster::*;
pub(crate) use limits::*;
pub(crate) use node::*;
pub(crate) use tcp::*;
pub(crate) use tls::*;
pub(crate) use upgrade::*;

/// The query of `[auth.lookup]` where none is given: roles that may log in now, as PostgreSQL itself decides it
/// (`get_role_password` in `src/backend/libpq/crypt.c`).
///
/// Its operators are PostgreSQL's own, whatever `search_path` the owner of the look-up's database has given it.
pub(crate) const LOOKUP_QUERY: &str = "SELECT rolpassword FROM pg_catalog.pg_authid \
    WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin AND rolpassword IS NOT NULL \
    AND (rolvaliduntil IS NULL OR rolvaliduntil OPERATOR(pg_catalog.>=) pg_catalog.now())";

/// Time for which an answer of the look-up is believed where the file does not say.
pub const LOOKUP_CACHE: Duration = Duration::from_secs(10);

/// Time that a shutdown gives transactions to finish where the file does not say.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// A table of the file.
pub(crate) struct Table {
    /// Its path, such as `auth.lookup`; empty for the top of the file.
    pub(crate) path: &'static str,
    /// Whether it is written `[[path]]` and may stand there several times.
    pub(crate) many: bool,
    /// Its purpose, in Markdown.
    pub(crate) meaning: &'static str,
    pub(crate) keys: &'static [&'static dyn AnyKey],
    pub(crate) tables: &'static [&'static Table],
}

/// A key and the values it takes.
pub(crate) struct Key<K: 'static> {
    pub(crate) name: &'static str,
    pub(crate) kind: K,
    pub(crate) absent: Absent,
    /// Its effect, in Markdown.
    pub(crate) meaning: &'static str,
}

/// The meaning of a key's absence.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// It has this value, in TOML.
    Default(&'static str),
    /// It means this, in words.
    Means(&'static str),
    /// The start stops.
    Required,
}

/// A key of any kind.
pub(crate) trait AnyKey: Sync {
    fn name(&self) -> &'static str;
    fn values(&self) -> String;
    fn absent(&self) -> Absent;
    fn meaning(&self) -> &'static str;
}

impl<K: Kind> AnyKey for Key<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn values(&self) -> String {
        self.kind.describe()
    }

    fn absent(&self) -> Absent {
        self.absent
    }

    fn meaning(&self) -> &'static str {
        self.meaning
    }
}

impl Table {
    /// Its header as it is written; empty for the top of the file.
    pub(crate) fn header(&self) -> String {
        match (self.path, self.many) {
            ("", _) => String::new(),
            (path, false) => format!("[{path}]"),
            (path, true) => format!("[[{path}]]"),
        }
    }

    /// The last part of its path: its name in the table that holds it.
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The path of one of its keys.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

const NAME: Text = Text { bytes_max: NAME_BYTES_MAX };

pub(crate) static FILE: Table = Table {
    path: "",
    many: false,
    meaning: "Keys before the first table.",
    keys: &[
        &LISTEN,
        &UNIX_SOCKET_DIR,
        &PROXY_PROTOCOL_FROM,
        &DRIVER,
        &WORKERS,
        &SHUTDOWN_GRACE,
        &UPGRADE_GRACE,
        &TCP_USER_TIMEOUT,
        &LOG_CONNECTIONS,
        &LOG_DISCONNECTIONS,
        &STATS_PERIOD,
        &HTTP_LISTEN,
    ],
    tables: &[&LIMITS, &AUTH, &TLS, &ADMIN, &POOL, &CLUSTER, &DATABASE, &USER],
};

pub(crate) static LISTEN: Key<Addresses> = Key {
    name: "listen",
    kind: Addresses { count_max: 16 },
    absent: Absent::Default("[\"127.0.0.1:6432\"]"),
    meaning: "Where clients connect by TCP. Port 0 lets the kernel choose one. `[::]` beside `0.0.0.0` with the same port \
              is left out, with a warning, where the machine has no IPv6.",
};

pub(crate) static UNIX_SOCKET_DIR: Key<FilePath> = Key {
    name: "unix_socket_dir",
    kind: FilePath,
    absent: Absent::Means("no Unix socket"),
    meaning: "A folder in which to listen on a Unix socket as well. The socket is named `.s.PGSQL.<port>`, with the \
              port of the first `listen` address, so that `psql -h <folder> -p <port>` finds it.",
};

pub(crate) static DRIVER: Key<Words<DriverChoice>> = Key {
    name: "driver",
    kind: Words(&[("auto", DriverChoice::Auto), ("io_uring", DriverChoice::IoUring), ("epoll", DriverChoice::Epoll)]),
    absent: Absent::Default("\"auto\""),
    meaning: "The system interface that moves the bytes. `\"auto\"` takes io_uring where the kernel allows it, epoll \
              otherwise; `\"io_uring\"` stops the start where it can't be had.",
};

pub(crate) static WORKERS: Key<AutoOrInteger> = Key {
    name: "workers",
    kind: AutoOrInteger { min: 1, max: 64 },
    absent: Absent::Default("\"auto\""),
    meaning: "Threads that serve clients. `\"auto\"` is half of the cores, at least one: PostgreSQL needs the others.",
};

pub(crate) static SHUTDOWN_GRACE: Key<Time> = Key {
    name: "shutdown_grace",
    kind: Time { min: ms(0), max: seconds(HOUR) },
    absent: Absent::Default("\"10s\""),
    meaning: "How long a shutdown lets transactions finish.",
};

pub(crate) static STATS_PERIOD: Key<Time> = Key {
    name: "stats_period",
    kind: Time { min: ms(100), max: seconds(DAY) },
    absent: Absent::Means("nothing is written"),
    meaning: "How often each pool's figures are written to the log; see [Statistics](#statistics).",
};

pub(crate) static HTTP_LISTEN: Key<Addresses> = Key {
    name: "http_listen",
    kind: Addresses { count_max: 4 },
    absent: Absent::Means("nothing is answered by HTTP"),
    meaning: "Where to answer `/metrics`, `/healthz` and `/readyz` by HTTP; see [Metrics](#metrics). Anyone who can reach \
              such an address may read them, so choose one that only this host or a management network can reach.",
};

/// The keys of a pool: in `[pool]` for all, in `[database.pool]` for one.
const POOL_KEYS: &[&dyn AnyKey] = &[
    &MODE,
    &SIZE,
    &MIN,
    &WAIT_TIMEOUT,
    &SERVER_LIFETIME,
    &SERVER_IDLE_TIMEOUT,
    &CONNECT_TIMEOUT,
    &BACKOFF_MIN,
    &BACKOFF_MAX,
    &PARALLEL_CONNECTS,
    &AUTO_PREPARE,
    &LAZY_BEGIN,
    &PINS,
    &PINNED_MAX,
    &PREPARED_PER_SERVER,
    &LOG_MIN_DURATION,
];

pub(crate) static POOL: Table = Table {
    path: "pool",
    many: false,
    meaning: "Settings of every pool. There is one pool for each database and role on its server: for each user, or for all of them together where the database has a `user`.",
    keys: POOL_KEYS,
    tables: &[],
};

pub(crate) static MODE: Key<Words<PoolMode>> = Key {
    name: "mode",
    kind: Words(&[("transaction", PoolMode::Transaction), ("session", PoolMode::Session)]),
    absent: Absent::Default("\"transaction\""),
    meaning: "How long a client keeps a server: until its transaction ends, or from its log-in until it disconnects. In \
              session mode a server is opened with the client's own startup parameters, and serves only clients that \
              begin with the same.",
};

pub(crate) static SIZE: Key<Integer> = Key {
    name: "size",
    kind: Integer { min: 1, max: 10_000 },
    absent: Absent::Default("20"),
    meaning: "Server connections at most, over all workers.",
};

pub(crate) static MIN: Key<Integer> = Key {
    name: "min",
    kind: Integer { min: 0, max: 10_000 },
    absent: Absent::Default("0"),
    meaning: "Server connections that stay open once the pool has been used; in session mode opened as the last client \
              has asked.",
};

pub(crate) static WAIT_TIMEOUT: Key<Time> = Key {
    name: "wait_timeout",
    kind: Time { min: ms(1), max: seconds(DAY) },
    absent: Absent::Default("\"30s\""),
    meaning: "How long a client waits for a server before it gets SQLSTATE 53300. While the pool has no server \
              connection and connecting fails, it waits for at most `connect_timeout` and gets that failure instead, \
              SQLSTATE 08001 where PostgreSQL can't be reached; likewise where the first connection is still being \
              opened.",
};

pub(crate) static SERVER_LIFETIME: Key<Time> = Key {
    name: "server_lifetime",
    kind: Time { min: seconds(1), max: seconds(365 * DAY) },
    absent: Absent::Default("\"1h\""),
    meaning: "The age after which a server connection is closed when it falls idle.",
};

pub(crate) static SERVER_IDLE_TIMEOUT: Key<Time> = Key {
    name: "server_idle_timeout",
    kind: Time { min: seconds(1), max: seconds(365 * DAY) },
    absent: Absent::Default("\"10min\""),
    meaning: "How long a server connection above `min` may be idle before it is closed.",
};

pub(crate) static CONNECT_TIMEOUT: Key<Time> = Key {
    name: "connect_timeout",
    kind: Time { min: ms(10), max: seconds(HOUR) },
    absent: Absent::Default("\"5s\""),
    meaning: "How long connecting and logging in to PostgreSQL may take. While the pool has no server connection and \
              connecting fails, clients wait no longer than this, or than `wait_timeout` if that is shorter, and get \
              SQLSTATE 08001 where PostgreSQL can't be reached.",
};

pub(crate) static BACKOFF_MIN: Key<Time> = Key {
    name: "backoff_min",
    kind: Time { min: ms(1), max: seconds(HOUR) },
    absent: Absent::Default("\"100ms\""),
    meaning: "The wait after a first failed connect. It doubles while failures go on.",
};

pub(crate) static BACKOFF_MAX: Key<Time> = Key {
    name: "backoff_max",
    kind: Time { min: ms(1), max: seconds(HOUR) },
    absent: Absent::Default("\"5s\""),
    meaning: "The longest wait between two attempts to connect. While clients wait, it is no longer than half of the time \
              for which they do; and for a client that comes when nobody waits, an attempt is made as soon as \
              `backoff_min` has passed since the last one. So no client is refused for a failure of before it came.",
};

pub(crate) static PARALLEL_CONNECTS: Key<Integer> = Key {
    name: "parallel_connects",
    kind: Integer { min: 1, max: 1000 },
    absent: Absent::Default("4"),
    meaning: "Connects under way at once, at most.",
};

pub(crate) static AUTO_PREPARE: Key<Flag> = Key {
    name: "auto_prepare",
    kind: Flag,
    absent: Absent::Default("true"),
    meaning: "Whether unnamed statements that come again are served from shared prepared ones, so that PostgreSQL \
              neither parses nor plans them again. In session mode it is always off.",
};

pub(crate) static LAZY_BEGIN: Key<Flag> = Key {
    name: "lazy_begin",
    kind: Flag,
    absent: Absent::Default("true"),
    meaning: "Whether a BEGIN on its own is answered at once, and sent to PostgreSQL with the statement after it. A \
              client that has begun and does nothing then holds no server; `now()` is the time of that first \
              statement. In session mode it is always off.",
};

pub(crate) static PINS: Key<Words<PinPolicy>> = Key {
    name: "pins",
    kind: Words(&[("pin", PinPolicy::Pin), ("refuse", PinPolicy::Refuse)]),
    absent: Absent::Default("\"pin\""),
    meaning: "What becomes of a client in transaction mode whose session holds what can't follow it to another server: \
              temporary tables, session-level advisory locks, LISTEN, cursors WITH HOLD, SQL's PREPARE, a seed, a \
              library, `currval`. It keeps its server until that is gone (`\"pin\"`), or is sent away with SQLSTATE \
              0A000 (`\"refuse\"`).",
};

pub(crate) static PINNED_MAX: Key<Integer> = Key {
    name: "pinned_max",
    kind: Integer { min: 0, max: 100_000 },
    absent: Absent::Default("0"),
    meaning: "Servers that clients may keep for that between transactions, for each pool; one more client is sent away \
              with SQLSTATE 53300. 0 stands for all but one, so that there is always one to share; of a single server, \
              for that one.",
};

pub(crate) static PREPARED_PER_SERVER: Key<Integer> = Key {
    name: "prepared_per_server",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Default("500"),
    meaning: "Prepared statements kept on each server connection; the least recently used goes first. Of their texts, \
              16 MiB are kept at most, or one that is larger: plans take several times that in PostgreSQL.",
};

pub(crate) static LOG_MIN_DURATION: Key<Time> = Key {
    name: "log_min_duration_statement",
    kind: Time { min: ms(1), max: seconds(DAY) },
    absent: Absent::Means("none is logged"),
    meaning: "The time from which a request (a Query, or a batch up to its Sync) is logged when it has been answered, as \
              PostgreSQL's setting of that name does it. The client's wait for a server counts, and is shown \
              separately. The line has the first statement with `?` for each constant, since those may be personal data, \
              and the `traceparent` of OpenTelemetry where the client's comments give one (sqlcommenter).",
};

pub(crate) static DATABASE: Table = Table {
    path: "database",
    many: true,
    meaning: "A database as clients name it, and where it really is. At least one is needed; the entry named `\"*\"` \
              takes the names that no other entry has, and one such as `\"*:ro\"` those that end so.",
    keys: &[
        &DATABASE_NAME,
        &HOST,
        &PORT,
        &DATABASE_CLUSTER,
        &TARGET,
        &MAX_LAG,
        &MAX_LAG_BYTES,
        &READ_ONLY_TRANSACTIONS,
        &CAUSAL_READS,
        &CAUSAL_READS_TIMEOUT,
        &SSLMODE,
        &SSLROOTCERT,
        &SSLCERT,
        &SSLKEY,
        &DBNAME,
        &DATABASE_USER,
        &DATABASE_PASSWORD,
        &DATABASE_PASSWORD_FILE,
        &SERVER_AUTH,
        &CLIENT_ADDRESS_SECRET_FILE,
        &DATABASE_CLIENTS,
        &DATABASE_SERVERS,
    ],
    tables: &[&DATABASE_POOL],
};

pub(crate) static DATABASE_NAME: Key<Text> = Key {
    name: "name",
    kind: NAME,
    absent: Absent::Required,
    meaning: "The name that clients use, or `\"*\"`, or an asterisk and the end of many names.",
};

pub(crate) static HOST: Key<Host> = Key {
    name: "host",
    kind: Host,
    absent: Absent::Default("\"/var/run/postgresql\""),
    meaning: "The server. A Unix socket costs PostgreSQL less than TCP: take it where the server is on this host. \
              If a host name has several addresses (at most 16 are used), they are tried in turn, as libpq does; after a \
              failure the next one stays first until it fails itself. [Names](../operate.md#host-names) are resolved again \
              every 10 s.",
};

pub(crate) static PORT: Key<Integer> = Key {
    name: "port",
    kind: Integer { min: 1, max: 65_535 },
    absent: Absent::Default("5432"),
    meaning: "The server's port; it is part of a Unix socket's name.",
};

pub(crate) static DBNAME: Key<Text> = Key {
    name: "dbname",
    kind: NAME,
    absent: Absent::Means("the client's name for it, without the end that the entry's name says"),
    meaning: "The database's name on the server.",
};

pub(crate) static DATABASE_USER: Key<Text> = Key {
    name: "user",
    kind: NAME,
    absent: Absent::Means("the client's own user"),
    meaning: "The role as which all clients of this database work on the server.",
};

pub(crate) static DATABASE_PASSWORD: Key<Password> = Key {
    name: "password",
    kind: Password,
    absent: Absent::Means("the keys seen at the client's login, its secret, or peer or trust on the server"),
    meaning: "The password of `user`. The configuration file must then be closed to others.",
};

pub(crate) static DATABASE_PASSWORD_FILE: Key<FilePath> = Key {
    name: "password_file",
    kind: FilePath,
    absent: Absent::Means("as without `password`"),
    meaning: "A file whose only line is the password of `user`.",
};

pub(crate) static SERVER_AUTH: Key<Words<ServerAuth>> = Key {
    name: "server_auth",
    kind: Words(&ServerAuth::WORDS),
    absent: Absent::Default("\"protected\""),
    meaning: "The ways to log in that the server may ask for. With `\"protected\"`, the pool answers `password` (and \
              `ldap`, `pam`, `radius`) by TLS or a Unix socket only: otherwise whoever listens in the server's place, \
              or on the way, would have the password. `\"any\"` answers whatever is asked for. With `\"scram-sha-256\"`, nothing else will do, so that the server has to prove itself; one that asks \
              for nothing (`trust`, `peer`, `cert`) is refused. As libpq's `require_auth`, in fewer words.",
};

pub(crate) static CLIENT_ADDRESS_SECRET_FILE: Key<FilePath> = Key {
    name: "client_address_secret_file",
    kind: FilePath,
    absent: Absent::Means("clients seem to come from the pool"),
    meaning: "Tells PostgreSQL the client's own address with each transaction, so that `inet_client_addr()`, \
              `pg_stat_activity` and `log_line_prefix` show it. The file's only line is the secret of 16 to 128 bytes \
              that the server's `sluice.pool_secret_file` has too. Where the database lacks the extension `sluice`, \
              nothing is reported.",
};

pub(crate) static DATABASE_POOL: Table = Table {
    path: "database.pool",
    many: false,
    meaning: "Settings of this database's pools, where they differ from `[pool]`.",
    keys: POOL_KEYS,
    tables: &[],
};
