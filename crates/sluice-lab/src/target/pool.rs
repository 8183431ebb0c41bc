//! The pools before the laboratory's PostgreSQL: each is a process with a configuration file, as users run it, and lives
//! for one turn.
//!
//! Each gets the configuration that its users would choose for this work, nothing tuned for or against it: as many
//! servers, room for all clients, logs without a line a connection. PgBouncer and Sluice reach PostgreSQL by its Unix
//! socket and check clients by the same SCRAM verifiers. HAProxy forwards bytes blindly, one server connection a client,
//! by TCP as it is mostly used.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sluice_config::{CertificateFiles, DriverChoice, ServerFile};
use sluice_instance::{RunAs, bootstrap::FIRST_USER, certificate_in, write_pool_file};

use super::everything;
use crate::{
    connect::Access,
    error::Error,
    process::{self, Interrupt, Process},
    sample::CONSOLE,
    server::{Server, free_port},
};

/// Clients that a pool has room for besides those of the load.
pub const SPARE_CLIENTS: u32 = 10;
/// Servers of a pool, unless told.
pub const POOL_SIZE: u32 = 20;
/// Time limit for a client's wait in a pool: as long as PostgreSQL itself lets it wait, since a ladder shows what
/// waiting costs.
const POOL_WAIT_MAX: Duration = Duration::from_secs(86_400);

const START_MAX: Duration = Duration::from_secs(20);
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A pool, as it is started.
#[derive(Clone, Debug)]
pub struct PoolKind {
    /// Its program.
    pub program: Program,
    /// Whether clients reach it by TLS.
    pub tls: bool,
    /// Whether it stands before a PostgreSQL that has Sluice's extension.
    pub extension: bool,
    /// Whether everything is switched on that its clients do not use.
    pub everything: bool,
    /// The nodes that it stands before, if they are several.
    pub nodes: Option<NodesBehind>,
    /// Another build of its program than the one that is found.
    pub build: Option<PathBuf>,
}

/// Several nodes behind a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodesBehind {
    /// Nodes: two or three.
    pub count: usize,
    /// Whether it follows their primary; otherwise it is told where that is, and nothing of the others.
    pub follows: bool,
}

/// The program of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `sluice serve`, with this driver.
    Sluice(DriverChoice),
    /// PgBouncer, in transaction mode.
    PgBouncer,
    /// HAProxy.
    HaProxy,
}

impl PoolKind {
    /// As users run it, with io_uring where that can be had.
    pub(super) const SLUICE: Self = Self {
        program: Program::Sluice(DriverChoice::Auto),
        tls: false,
        extension: false,
        everything: false,
        nodes: None,
        build: None,
    };
    pub(super) const PGBOUNCER: Self = Self { program: Program::PgBouncer, ..Self::SLUICE };

    /// Whether clients share its servers.
    pub fn shares(&self) -> bool {
        self.program != Program::HaProxy
    }

    /// Descriptors that a client takes in it.
    pub fn files_per_client(&self) -> u64 {
        if self.shares() { 1 } else { 2 }
    }

    /// What this machine lacks for it, with the remedy.
    pub(super) fn lacks(&self) -> Option<String> {
        let (name, package) = match self.program {
            Program::Sluice(_) => {
                let build = self.build.as_ref().filter(|build| !build.is_file())?;
                return Some(format!("there is no program {}", build.display()));
            }
            Program::PgBouncer => ("PgBouncer", "pgbouncer"),
            Program::HaProxy => ("HAProxy", "haproxy"),
        };
        let is_missing = process::find_in_path(package).is_none();
        is_missing.then(|| format!("{name} is not installed: apt-get install {package}"))
    }
}

/// A pool that runs; dropping it stops it.
pub struct Pool {
    process: Process,
    log: PathBuf,
    /// Its admin console, if it has one.
    console: Option<Access>,
    /// The TCP port that it listens on.
    pub port: u16,
    /// Whether clients reach it by TLS.
    pub tls: bool,
}

impl Pool {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its admin console, if it has one.
    pub fn console(&self) -> Option<&Access> {
        self.console.as_ref()
    }

    /// Starts a pool for so many clients, with its files in `dir`, and waits until it listens.
    pub fn start(
        kind: &PoolKind,
        server: &Server,
        clients: u32,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let place = Place { server, port: free_port()?, clients, dir };
        let log = dir.join("pool.log");
        let mut command = match kind.program {
            Program::Sluice(driver) => place.sluice(kind, driver)?,
            Program::PgBouncer => place.pgbouncer(kind)?,
            Program::HaProxy => place.haproxy()?,
        };
        command.env("RUST_LOG", if kind.everything { "info" } else { "warn" });
        let console = kind.shares().then(|| server.first_user(CONSOLE, place.port)).transpose()?;
        let process = Process::spawn_server("the pool", command, &log, Signal::TERM, STOP_GRACE)?;
        let mut pool = Self { process, log, console, port: place.port, tls: kind.tls };
        pool.wait_until_ready(interrupt)?;
        Ok(pool)
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let end = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            self.check()?;
            if Instant::now() >= end {
                return Err(Error::TimedOut { what: "the pool's start".to_owned(), limit: START_MAX });
            }
            interrupt.sleep(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<(), Error> {
        let Some(status) = self.process.ended()? else { return Ok(()) };
        let said = process::tail(&String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()));
        Err(Error::Failed { program: "the pool".to_owned(), status, said })
    }
}

/// The place of a pool: behind it, before it, and where its files are.
struct Place<'a> {
    server: &'a Server,
    port: u16,
    clients: u32,
    dir: &'a Path,
}

impl Place<'_> {
    /// Configured as `sluice up` does it.
    fn sluice(&self, kind: &PoolKind, driver: DriverChoice) -> Result<Command, Error> {
        let follows = kind.nodes.is_some_and(|nodes| nodes.follows);
        let file = ServerFile {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))],
            driver,
            server: self.server.for_pool(follows)?,
            client_address_secret_file: None,
            lookup: self.server.roles()?.lookup.to_config(),
            admin_users: Vec::new(),
            stats_users: vec![FIRST_USER.to_owned()],
            certificate: if kind.tls { Some(self.certificate()?) } else { None },
            pool_size: POOL_SIZE,
            wait_timeout: Some(POOL_WAIT_MAX),
            servers_max: POOL_SIZE + 5,
            clients_max: self.clients_max(),
        };
        let config = self.dir.join("sluice.toml");
        write_pool_file(&config, &file).map_err(Error::file("write", &config))?;
        if kind.everything {
            self.switch_everything_on(&config)?;
        }
        let own = || std::env::var_os("SLUICE").map(PathBuf::from).map_or_else(std::env::current_exe, Ok);
        let program = kind.build.clone().map_or_else(own, Ok).map_err(Error::io("find sluice's program"))?;
        let mut command = process::command(&program, "KILL");
        command.args([OsStr::new("serve"), OsStr::new("-c"), config.as_os_str()]);
        if kind.everything {
            command.args(everything::ARGUMENTS);
        }
        Ok(command)
    }

    /// Has that file switch everything on, and writes the files that it names.
    fn switch_everything_on(&self, config: &Path) -> Result<(), Error> {
        self.certificate()?;
        for (name, text) in everything::FILES {
            self.write_own(name, text)?;
        }
        let file = fs::read_to_string(config).map_err(Error::file("read", config))?;
        // It is open to this user only, and stays so.
        fs::write(config, everything::switched_on(&file, free_port()?)?).map_err(Error::file("write", config))
    }

    /// It refuses to run as root, so it runs as who PostgreSQL does.
    fn pgbouncer(&self, kind: &PoolKind) -> Result<Command, Error> {
        let endpoint = self.server.instance_endpoint()?;
        let run_as = self.server.run_as();
        let users = self.write("users.txt", &self.users()?, run_as)?;
        let mut config = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\nquery_wait_timeout = 0\nmax_client_conn = {}\n\
             stats_users = {FIRST_USER}\nlog_connections = 0\nlog_disconnections = 0\n\
             ignore_startup_parameters = extra_float_digits\n",
            endpoint.socket_dir.display(),
            endpoint.port,
            self.port,
            users.display(),
            self.clients_max(),
        );
        if kind.tls {
            let CertificateFiles { cert, key } = self.certificate()?;
            for file in [&cert, &key] {
                give(file, run_as).map_err(Error::file("give away", file))?;
            }
            let (cert, key) = (cert.display(), key.display());
            let _ = write!(
                config,
                "client_tls_sslmode = allow\nclient_tls_cert_file = {cert}\nclient_tls_key_file = {key}\n"
            );
        }
        let config = self.write("pgbouncer.ini", &config, run_as)?;
        let mut command = process::command(&find("pgbouncer")?, "KILL");
        if run_as.switches() {
            command.uid(run_as.uid()).gid(run_as.gid());
        }
        command.arg(config);
        Ok(command)
    }

    /// It refuses to start if its clients, of two descriptors each, are more than the limit on open files has room for.
    /// Threads are left to its default, one a core.
    fn haproxy(&self) -> Result<Command, Error> {
        let config = format!(
            "global\n    maxconn {}\ndefaults\n    mode tcp\n    timeout connect 10s\n    timeout client 1d\n    \
             timeout server 1d\nfrontend clients\n    bind 127.0.0.1:{}\n    default_backend postgres\n\
             backend postgres\n    server postgres 127.0.0.1:{}\n",
            self.clients_max(),
            self.port,
            self.server.port(),
        );
        let path = self.dir.join("haproxy.cfg");
        fs::write(&path, config).map_err(Error::file("write", &path))?;
        let mut command = process::command(&find("haproxy")?, "KILL");
        command.args([OsStr::new("-db"), OsStr::new("-f"), path.as_os_str()]);
        Ok(command)
    }

    /// Those of the load, and some.
    fn clients_max(&self) -> u32 {
        self.clients + SPARE_CLIENTS
    }

    /// The roles' secrets, in PgBouncer's form.
    fn users(&self) -> Result<String, Error> {
        let mut client = self.server.connect("postgres")?;
        let query = "SELECT rolname, rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL";
        let rows = client.query(query, &[]).map_err(Error::sql("read the roles' secrets"))?;
        let mut users = String::new();
        for row in rows {
            let (name, secret): (String, String) = (row.get(0), row.get(1));
            let _ = writeln!(users, "\"{name}\" \"{secret}\"");
        }
        Ok(users)
    }

    /// Of the same kind for all.
    fn certificate(&self) -> Result<CertificateFiles, Error> {
        certificate_in(self.dir, Ipv4Addr::LOCALHOST.into()).map_err(Error::file("make a certificate in", self.dir))
    }

    /// Writes a file that nobody can read but this user.
    fn write_own(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(name);
        let written =
            fs::write(&path, text).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
        written.map_err(Error::file("write", &path))?;
        Ok(path)
    }

    /// The same for another user.
    fn write(&self, name: &str, text: &str, owner: &RunAs) -> Result<PathBuf, Error> {
        let path = self.write_own(name, text)?;
        give(&path, owner).map_err(Error::file("give away", &path))?;
        Ok(path)
    }
}

fn give(path: &Path, owner: &RunAs) -> std::io::Result<()> {
    match owner.switches() {
        true => std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())),
        false => Ok(()),
    }
}

fn find(program: &str) -> Result<PathBuf, Error> {
    process::find_in_path(program).ok_or_else(|| Error::Lacking(format!("{program} is not installed")))
}
