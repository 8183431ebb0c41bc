//! The configuration file of the pool: its types, checked once at the start, and how it is written.
//!
//! A [`Config`] in hand is valid: every reference resolves, every value is in range. Nothing outside this crate reads
//! or writes such a file.
//!
//! `schema` says which tables and keys there are, of which `kinds`; `reader` walks the file along it; `limits`, `listen`,
//! `auth`, `pool`, `cluster` and `database` make values of one table each and know which may stand together; `document` puts it all
//! together. What is wrong goes into one [`Report`]. `writer` writes a file along the same schema.

mod admin;
mod auth;
mod cluster;
mod credentials;
mod database;
mod document;
mod files;
mod hba;
mod kinds;
mod limits;
mod listen;
mod names;
mod node;
pub mod pgbouncer;
mod pool;
mod reader;
mod reference;
mod report;
mod roles;
mod schema;
mod tls;
mod units;
pub mod users;
mod writer;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use sluice_control::{
    server_auth::ServerAuth,
    settings::{ClientLog, Limits, PoolSettings},
};

pub use document::{load, parse};
pub use hba::interfaces;
pub use node::{NodeConfig, NodeMember, load_node, parse_node};
pub use reference::{node_reference, reference};
pub use report::{Position, Problem, Report};
pub use schema::LOOKUP_CACHE;
pub use sluice_control::{
    Secret,
    access::{Admin, Encryption, Method, Policy},
    address::Network,
    cluster::{Cluster, Rest},
    reading::{Causal, Reading},
};
use sluice_tls::ClientTls;
pub use writer::{CertificateFiles, FileServer, ServerFile};

/// The configuration that `sluice serve` runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The TCP addresses that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// A folder in which to listen on a Unix socket named `.s.PGSQL.<port>`, with the port of the first `listen`
    /// address, as PostgreSQL does.
    pub unix_socket_dir: Option<PathBuf>,
    /// The balancers that say by the PROXY protocol where their clients come from.
    pub balancers: Vec<Network>,
    /// The system interface that moves the bytes.
    pub driver: DriverChoice,
    /// Worker threads; `None` is `"auto"`: half of the cores, at least one.
    pub workers: Option<u16>,
    /// Time that a shutdown gives transactions to finish.
    pub shutdown_grace: Duration,
    /// Time that clients of the old process may stay after an upgrade.
    pub upgrade_grace: Duration,
    /// The time after which a TCP peer that acknowledges nothing is considered dead.
    pub tcp_user_timeout: Duration,
    /// The interval at which the pools' figures are written to the log; `None`: never.
    pub stats_period: Option<Duration>,
    /// The clients that are logged as they come and go.
    pub client_log: ClientLog,
    /// The addresses at which metrics and health are told by HTTP.
    pub http_listen: Vec<SocketAddr>,
    /// The authentication of clients.
    pub auth: AuthConfig,
    /// The encryption of clients' connections; `None`: there is none.
    pub encryption: Option<Encryption>,
    /// The users of the admin console; `None`: there is none.
    pub admin: Option<Admin>,
    /// Limits of the process.
    pub limits: Limits,
    /// The settings of pools whose databases have none of their own.
    pub pool: PoolSettings,
    /// The clusters that databases are in.
    pub clusters: Vec<Cluster>,
    /// The databases that clients may name, in the order of the file; `"*"` takes what no other entry has.
    pub databases: Vec<DatabaseConfig>,
    /// Things that are worth a word, and stop nothing.
    pub warnings: Vec<Problem>,
}

/// The system interface that moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring where the kernel allows it, epoll otherwise.
    Auto,
    /// io_uring, or the start fails.
    IoUring,
    /// epoll.
    Epoll,
}

/// The authentication of clients.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// The proof that clients are asked for; the rules of the server are not known yet.
    pub policy: Policy,
    /// A file with a line `"user" "secret"` each; the secret is a SCRAM verifier, an MD5 hash or a plain password.
    pub users_file: Option<PathBuf>,
    /// Users who have no secret, unless the file has one.
    pub without_secret: Vec<String>,
    /// The look-up of the secrets of users that are not in the file.
    pub lookup: Option<LookupConfig>,
    /// Whether only users are let in who stand in the file of secrets, even where nobody is asked for one. The policy's
    /// rules see to it.
    pub known_users_only: bool,
}

/// The look-up of secrets on the server.
#[derive(Debug, Clone)]
pub struct LookupConfig {
    /// The role that asks; it must be able to read `pg_authid`, or to call a function that does.
    pub user: String,
    /// The role's password; `None` means peer or trust on the server's side.
    pub password: Option<Secret>,
    /// The database in which to ask; it must match one of the `[[database]]` entries, whose server it is.
    pub database: String,
    /// Takes the user's name as `$1`; returns no row, or one with the secret, before which the name may stand.
    pub query: String,
    /// Time for which an answer is believed.
    pub cache: Duration,
}

/// A database as clients name it, and where it really is.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// The name that clients use; `None` is `"*"`, any name that no other entry has. One that begins with an asterisk is for
    /// those that end like it.
    pub name: Option<String>,
    /// The server.
    pub server: ServerAddress,
    /// The decisions about its readers, where it is for reading from the nodes of a cluster.
    pub reading: Option<Reading>,
    /// The decisions about standbys for read-only transactions, where those are led there.
    pub read_only: Option<Reading>,
    /// The commits that transactions at standbys find.
    pub causal: Option<Causal>,
    /// The encryption on the way to it; `None`: none.
    pub tls: Option<Arc<ClientTls>>,
    /// The name on the server; `None` keeps the client's.
    pub dbname: Option<String>,
    /// The role for all clients of this database; `None` logs in as the client's own user.
    pub user: Option<String>,
    /// The password for logging in to the server; `None` uses SCRAM keys seen at the client's login, the secret's
    /// plain text or MD5 hash, or needs peer or trust there.
    pub password: Option<Secret>,
    /// The ways in which the server may have the pool log in.
    pub server_auth: ServerAuth,
    /// The secret by which the server's extension believes where clients come from; `None`: it is not told.
    pub client_address_secret: Option<Secret>,
    /// Clients of it at once; `None`: as many as there may be.
    pub clients: Option<u32>,
    /// Server connections at once, over all of its pools; `None`: as many as there may be.
    pub servers: Option<u32>,
    /// The pool of each (database, role).
    pub pool: PoolSettings,
}

/// The address that a PostgreSQL server listens on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A Unix socket: the folder, and the port that is part of the socket's name.
    Unix {
        /// The folder of the socket.
        dir: PathBuf,
        /// The port in the socket's name.
        port: u16,
    },
    /// A host name or address, and a port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The primary of the cluster of that name.
    Primary(Arc<str>),
}
