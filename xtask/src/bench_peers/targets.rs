//! Targets that answer pgbench: PostgreSQL itself, and the pools before it, each started afresh for its turn.
//!
//! Each pool gets the configuration that its users would choose for this work, nothing tuned for or against it:
//! Debian's builds, 20 servers, room for 20,000 clients, logs without a line a connection. PgBouncer and Sluice reach
//! PostgreSQL by its Unix socket and check clients by the same SCRAM verifier. HAProxy forwards bytes blindly, one
//! server connection a client, by TCP as it is mostly used. By TLS, clients ask for it (`sslmode=require`), and the server
//! is reached as without it.

use std::fmt::{self, Write as _};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::Signal;
use serde::{Serialize, Serializer};

use crate::bench::cluster::{Cluster, write_private};
use crate::bench::machine;
use crate::bench::user::{self, User};
use sluice_config::CertificateFiles;
use sluice_instance::certificate_in;
use sluice_lab::pgbench::Endpoint;
use sluice_lab::process::{self, Interrupt, Process};
use sluice_lab::server::free_port;

/// PostgreSQL's connections in a pool.
const SERVERS: u32 = 20;

/// Clients that a pool accepts.
const CLIENTS_MAX: u32 = 17_000;

/// Time for a pool to start and take its first login.
const START_MAX: Duration = Duration::from_secs(15);

/// The target that answers pgbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Target {
    Postgres,
    Haproxy,
    Pgbouncer,
    #[value(name = "sluice-io_uring")]
    SluiceIoUring,
    #[value(name = "sluice-epoll")]
    SluiceEpoll,
    /// With io_uring, before a PostgreSQL that has Sluice's extension.
    SluiceExtension,
    /// Another build, with io_uring: that of `--before`.
    SluiceBefore,
    /// PgBouncer with clients by TLS.
    PgbouncerTls,
    /// Sluice with clients by TLS, with io_uring.
    SluiceTls,
}

impl Target {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Haproxy => "haproxy",
            Self::Pgbouncer => "pgbouncer",
            Self::SluiceIoUring => "sluice-io_uring",
            Self::SluiceEpoll => "sluice-epoll",
            Self::SluiceExtension => "sluice-extension",
            Self::SluiceBefore => "sluice-before",
            Self::PgbouncerTls => "pgbouncer-tls",
            Self::SluiceTls => "sluice-tls",
        }
    }

    /// Whether clients encrypt their connections.
    pub(crate) fn is_encrypted(self) -> bool {
        matches!(self, Self::PgbouncerTls | Self::SluiceTls)
    }

    pub(crate) fn is_sluice(self) -> bool {
        use Target::{SluiceBefore, SluiceEpoll, SluiceExtension, SluiceIoUring, SluiceTls};
        matches!(self, SluiceIoUring | SluiceEpoll | SluiceExtension | SluiceBefore | SluiceTls)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The pools' programs on this machine.
pub(crate) struct Programs {
    pub(crate) haproxy: Option<PathBuf>,
    pub(crate) pgbouncer: Option<PathBuf>,
    pub(crate) sluice: PathBuf,
    pub(crate) before: Option<PathBuf>,
}

impl Programs {
    pub(crate) fn find(sluice: &Path, before: Option<&Path>) -> Self {
        Self {
            haproxy: process::find_in_path("haproxy"),
            pgbouncer: process::find_in_path("pgbouncer"),
            sluice: sluice.to_owned(),
            before: before.map(Path::to_owned),
        }
    }

    /// Of those that are there.
    pub(crate) fn versions(&self) -> Vec<String> {
        let haproxy = self.haproxy.as_deref().and_then(|haproxy| machine::first_line(haproxy, "-v"));
        let pgbouncer = self.pgbouncer.as_deref().and_then(|pgbouncer| machine::first_line(pgbouncer, "--version"));
        let sluice = machine::first_line(&self.sluice, "--version");
        [haproxy, pgbouncer, sluice].into_iter().flatten().collect()
    }

    /// The program behind a target (none behind PostgreSQL's own), or why there is none.
    pub(crate) fn of(&self, target: Target) -> Result<Option<&Path>, String> {
        let installed = |program: &'static str, found: &'_ Option<PathBuf>| match found {
            Some(_) => Ok(()),
            None => Err(format!("{program} is not installed: run scripts/bench-deps.sh")),
        };
        match target {
            Target::Postgres => Ok(None),
            Target::Haproxy => installed("haproxy", &self.haproxy).map(|()| self.haproxy.as_deref()),
            Target::Pgbouncer | Target::PgbouncerTls => {
                installed("pgbouncer", &self.pgbouncer).map(|()| self.pgbouncer.as_deref())
            }
            Target::SluiceBefore => match self.before.as_deref() {
                Some(before) if before.is_file() => Ok(Some(before)),
                Some(before) => Err(format!("no {}: --before names an earlier build of Sluice", before.display())),
                None => Err("--before names no earlier build of Sluice".to_owned()),
            },
            _ if self.sluice.is_file() => Ok(Some(&self.sluice)),
            _ => Err(format!(
                "no {}: run `cargo build --release -p sluice`, or say where with --sluice",
                self.sluice.display()
            )),
        }
    }
}

/// A target ready for clients; dropping it stops its process.
pub(crate) struct Running {
    /// None for PostgreSQL itself, which its cluster holds.
    pool: Option<Pool>,
    pub(crate) endpoint: Endpoint,
    /// Where it listens on this host.
    pub(crate) port: u16,
}

struct Pool {
    process: Process,
    log: PathBuf,
}

impl Pool {
    /// The way it ended, with its last words, if it has ended by itself.
    fn ended(&mut self) -> Result<Option<String>> {
        let Some(status) = self.process.ended()? else { return Ok(None) };
        Ok(Some(format!("the pool has ended by itself ({status}): {}", self.last_words())))
    }

    fn last_words(&self) -> String {
        process::tail(&String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()))
    }
}

impl Running {
    /// The pool's process; none where clients reach PostgreSQL itself.
    pub(crate) fn pool(&self) -> Option<u32> {
        self.pool.as_ref().map(|pool| pool.process.id())
    }

    /// Starts a target with its files in `dir`, and waits until one can log in through it.
    pub(crate) fn start(
        target: Target,
        programs: &Programs,
        cluster: &Cluster,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let program = programs.of(target).map_err(anyhow::Error::msg)?;
        let Some(program) = program else {
            return Ok(Self { pool: None, endpoint: cluster.endpoint(), port: cluster.port() });
        };
        let port = free_port()?;
        let log = dir.join(format!("{target}.log"));
        let mut command = match target {
            Target::Pgbouncer | Target::PgbouncerTls => user::command(program, cluster.user(), "KILL"),
            _ => process::command(program, "KILL"),
        };
        match target {
            Target::Haproxy => {
                let config = write_config(dir, "haproxy.cfg", &haproxy_config(cluster, port))?;
                command.args(["-db", "-f"]).arg(config);
            }
            Target::Pgbouncer | Target::PgbouncerTls => {
                let users = dir.join("userlist.txt");
                write_private(&users, &cluster.users_line()?, cluster.user())?;
                let mut config = pgbouncer_config(cluster, port, &users);
                if target.is_encrypted() {
                    let CertificateFiles { cert, key } = certificate(dir, cluster.user())?;
                    let (cert, key) = (cert.display(), key.display());
                    let _ = write!(
                        config,
                        "client_tls_sslmode = require\nclient_tls_cert_file = {cert}\nclient_tls_key_file = {key}\n"
                    );
                }
                let config = write_config(dir, "pgbouncer.ini", &config)?;
                command.arg(config);
            }
            _ => {
                write_private(&dir.join("users.txt"), &cluster.users_line()?, None)?;
                let driver = if target == Target::SluiceEpoll { "epoll" } else { "io_uring" };
                let mut config = sluice_config(cluster, port, driver);
                if target.is_encrypted() {
                    let CertificateFiles { cert, key } = certificate(dir, None)?;
                    let _ = write!(config, "[tls]\ncert_file = {cert:?}\nkey_file = {key:?}\nrequired = true\n");
                }
                let config = write_config(dir, "sluice.toml", &config)?;
                command.args(["serve", "-c"]).arg(config);
            }
        }
        let process = Process::spawn_server(target.name(), command, &log, Signal::TERM, stop_grace(target))?;
        let mut pool = Pool { process, log };
        let endpoint = if target.is_encrypted() { cluster.endpoint_by_tls(port) } else { cluster.endpoint_at(port) };
        wait_until_ready(&mut pool, &endpoint, cluster, interrupt)?;
        Ok(Self { pool: Some(pool), endpoint, port })
    }

    /// An error if the pool has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.pool.as_mut().map(Pool::ended).transpose()?.flatten() {
            Some(how) => bail!(how),
            None => Ok(()),
        }
    }
}

fn wait_until_ready(pool: &mut Pool, endpoint: &Endpoint, cluster: &Cluster, interrupt: &Interrupt) -> Result<()> {
    let end = Instant::now() + START_MAX;
    loop {
        let Err(error) = cluster.try_endpoint(endpoint) else { return Ok(()) };
        if let Some(how) = pool.ended()? {
            bail!(how);
        }
        if Instant::now() >= end {
            return Err(error.context(format!("the pool takes no logins: {}", pool.last_words())));
        }
        interrupt.sleep(Duration::from_millis(100))?;
    }
}

/// HAProxy and PgBouncer have nothing to finish; Sluice may give open transactions their time.
fn stop_grace(target: Target) -> Duration {
    if target.is_sluice() { Duration::from_secs(10) } else { Duration::from_secs(2) }
}

/// A certificate that the pool's user can read: of the same kind for both.
fn certificate(dir: &Path, owner: Option<User>) -> Result<CertificateFiles> {
    let files = certificate_in(dir, Ipv4Addr::LOCALHOST.into()).context("can't make a certificate")?;
    for file in [&files.cert, &files.key] {
        write_private(file, &fs::read_to_string(file)?, owner)?;
    }
    Ok(files)
}

fn write_config(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
    Ok(path)
}

/// HAProxy takes two descriptors a client, and refuses to start if that is more than the limit on open files.
/// Threads are left to its default, one a core.
fn haproxy_config(cluster: &Cluster, port: u16) -> String {
    let open_files = process::raise_open_files();
    let clients_max = u64::from(CLIENTS_MAX).min(open_files.saturating_sub(200) / 2);
    format!(
        "global\n    maxconn {clients_max}\n\
         defaults\n    mode tcp\n    timeout connect 10s\n    timeout client 1h\n    timeout server 1h\n\
         frontend clients\n    bind 127.0.0.1:{port}\n    default_backend postgres\n\
         backend postgres\n    server postgres 127.0.0.1:{}\n",
        cluster.port()
    )
}

fn pgbouncer_config(cluster: &Cluster, port: u16, users: &Path) -> String {
    format!(
        "[databases]\n\
         bench = host={} port={} dbname=bench\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {}\n\
         pool_mode = transaction\n\
         default_pool_size = {SERVERS}\n\
         max_client_conn = {CLIENTS_MAX}\n\
         log_connections = 0\n\
         log_disconnections = 0\n",
        cluster.socket_dir().display(),
        cluster.port(),
        users.display()
    )
}

fn sluice_config(cluster: &Cluster, port: u16, driver: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:{port}\"]\n\
         driver = \"{driver}\"\n\
         [limits]\n\
         clients = {CLIENTS_MAX}\n\
         [auth]\n\
         method = \"scram-sha-256\"\n\
         users_file = \"users.txt\"\n\
         [[database]]\n\
         name = \"bench\"\n\
         host = \"{}\"\n\
         port = {}\n\
         [database.pool]\n\
         size = {SERVERS}\n",
        cluster.socket_dir().display(),
        cluster.port()
    )
}
