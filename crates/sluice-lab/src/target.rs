//! Targets, which answer pgbench: PostgreSQL itself, with the gate, a pool before it, or any server that a DSN names.
//!
//! A pool is a process with a configuration file, as users run it; it lives for one turn.

use std::{
    fmt, fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sluice_config::ServerFile;
use sluice_instance::{
    bootstrap::{FIRST_USER, SUPERUSER},
    write_pool_file,
};

use crate::{
    connect::Dsn,
    error::Error,
    process::{self, Interrupt, Process},
    sample::{PGBOUNCER_CONSOLE, PoolFigures},
    server::{Server, Settings, free_port},
};

/// By which name servers know the laboratory's own sessions, but for the sampler's.
const APPLICATION: &str = "sluice bench";
/// Servers of a pool, unless told.
pub const POOL_SIZE: u32 = 20;
/// Time limit for a client's wait in a pool: as long as PostgreSQL itself lets it wait, since a ladder shows what
/// waiting costs.
const POOL_WAIT_MAX: Duration = Duration::from_secs(86_400);

const START_MAX: Duration = Duration::from_secs(20);
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A target, which answers pgbench.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name, in reports.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kinds of targets.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The laboratory's PostgreSQL, as it is.
    Straight,
    /// The same with the gate, which finds its limit by itself.
    Gate,
    /// Sluice's pool before the first.
    Pool,
    /// PgBouncer before the first.
    PgBouncer,
    /// A server that runs already.
    Dsn(Box<Dsn>),
}

impl FromStr for Target {
    type Err = Error;

    /// `straight`, `gate`, `pool`, `pgbouncer`, or `NAME=DSN`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let kind = match text {
            "straight" => Kind::Straight,
            "gate" => Kind::Gate,
            "pool" => Kind::Pool,
            "pgbouncer" => Kind::PgBouncer,
            _ => return Self::from_dsn(text),
        };
        Ok(Self { name: text.to_owned(), kind })
    }
}

impl Target {
    fn from_dsn(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Input(format!(
                "there is no target {text:?}\nchoose from straight, gate, pool, pgbouncer, or name a server of your own: \
                 NAME=DSN, for example standby='host=10.0.0.2 user=me dbname=bench'"
            ))
        };
        let (name, dsn) = text.split_once('=').ok_or_else(wrong)?;
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        // `host=…` alone is a DSN without a name.
        if !is_name || !(dsn.contains('=') || dsn.contains("://")) {
            return Err(wrong());
        }
        let resolved = Dsn::resolve(Some(dsn), APPLICATION);
        let resolved = resolved.map_err(|error| Error::Input(format!("target {name}: {error}")))?;
        Ok(Self { name: name.to_owned(), kind: Kind::Dsn(Box::new(resolved)) })
    }

    /// Whether it needs the laboratory's own server.
    pub fn is_own(&self) -> bool {
        !matches!(self.kind, Kind::Dsn(..))
    }

    /// Whether clients share connections, so that a client's end closes none.
    pub fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Pool | Kind::PgBouncer)
    }

    /// Settings that it needs of the laboratory's server.
    pub fn settings(&self) -> Settings {
        let rows: &[(&str, &str)] = match self.kind {
            Kind::Gate => &[
                ("shared_preload_libraries", "sluice"),
                // The sampler does not queue.
                ("sluice.exempt_roles", SUPERUSER),
            ],
            _ => &[],
        };
        rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// The thing that this machine lacks for it, with the remedy. `has_gate`: PostgreSQL could load it.
    pub fn lacks(&self, has_gate: bool) -> Option<String> {
        match self.kind {
            Kind::Gate if !has_gate => {
                Some("PostgreSQL lacks the gate: install it with `make -C extension install`".to_owned())
            }
            Kind::PgBouncer if process::find_in_path("pgbouncer").is_none() => {
                Some("PgBouncer is not installed: apt-get install pgbouncer".to_owned())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.name)
    }
}

/// A pool that runs; dropping it stops it.
pub struct Pool {
    process: Process,
    log: PathBuf,
    /// The place where it tells its figures.
    figures: Option<PoolFigures>,
    /// The TCP port that it listens on.
    pub port: u16,
}

impl Pool {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The place where it tells its figures, if it does.
    pub fn figures(&self) -> Option<&PoolFigures> {
        self.figures.as_ref()
    }

    /// Starts the pool of a target, if it has one, with its files in `dir`, and waits until it listens. Its figures are
    /// wanted every `stats_period`.
    pub fn start(
        kind: &Kind,
        server: &Server,
        clients: u32,
        stats_period: Option<Duration>,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>, Error> {
        let port = free_port()?;
        let log = dir.join("pool.log");
        let (mut command, figures) = match kind {
            Kind::Pool => {
                let config = dir.join("sluice.toml");
                write_sluice(&config, server, port, clients, stats_period).map_err(Error::file("write", &config))?;
                let own = std::env::var_os("SLUICE").map(PathBuf::from);
                let own = own.map_or_else(std::env::current_exe, Ok).map_err(Error::io("find sluice's program"))?;
                let mut command = process::command(&own, "KILL");
                command.args(["serve", "-c"]).arg(config);
                (command, PoolFigures::InLog(log.clone()))
            }
            Kind::PgBouncer => {
                let program = process::find_in_path("pgbouncer");
                let program = program.ok_or_else(|| Error::Lacking("PgBouncer is not installed".to_owned()))?;
                let console = server.first_user(PGBOUNCER_CONSOLE, port)?;
                (pgbouncer(&program, server, port, clients, dir)?, PoolFigures::AtConsole(Box::new(console)))
            }
            Kind::Straight | Kind::Gate | Kind::Dsn(..) => return Ok(None),
        };
        command.env("RUST_LOG", "warn,sluice::stats=info");
        let process = Process::spawn_server("the pool", command, &log, Signal::TERM, STOP_GRACE)?;
        let mut pool = Self { process, log, figures: stats_period.map(|_| figures), port };
        pool.wait_until_ready(interrupt)?;
        Ok(Some(pool))
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

/// As `sluice up` writes it.
fn write_sluice(
    path: &Path,
    server: &Server,
    port: u16,
    clients: u32,
    stats_period: Option<Duration>,
) -> std::io::Result<()> {
    let other = |error: Error| std::io::Error::other(error.to_string());
    let endpoint = server.instance_endpoint().map_err(other)?;
    let file = ServerFile {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
        socket_dir: endpoint.socket_dir.clone(),
        port: endpoint.port,
        client_address_secret_file: None,
        lookup: server.roles().map_err(other)?.lookup.to_config(),
        stats_users: Vec::new(),
        certificate: None,
        pool_size: POOL_SIZE,
        wait_timeout: Some(POOL_WAIT_MAX),
        stats_period,
        servers_max: POOL_SIZE + 5,
        clients_max: clients + 10,
    };
    write_pool_file(path, &file)
}

/// It refuses to run as root, so it runs as who PostgreSQL does.
fn pgbouncer(
    program: &Path,
    server: &Server,
    port: u16,
    clients: u32,
    dir: &Path,
) -> Result<std::process::Command, Error> {
    let endpoint = server.instance_endpoint()?;
    let mut client = server.connect("postgres")?;
    let query = "SELECT format('\"%s\" \"%s\"', rolname, rolpassword) FROM pg_authid WHERE rolpassword IS NOT NULL";
    let rows = client.query(query, &[]).map_err(Error::sql("read the roles' secrets"))?;
    let users: String = rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect();
    let config = format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
         default_pool_size = {POOL_SIZE}\nquery_wait_timeout = 0\nmax_client_conn = {}\n\
         stats_users = {FIRST_USER}\nlog_connections = 0\nlog_disconnections = 0\n\
         ignore_startup_parameters = extra_float_digits\n",
        endpoint.socket_dir.display(),
        endpoint.port,
        dir.join("users.txt").display(),
        clients + 10,
    );
    let run_as = server.run_as();
    for (name, text) in [("users.txt", users), ("pgbouncer.ini", config)] {
        let path = dir.join(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .and_then(|()| match run_as.switches() {
                true => std::os::unix::fs::chown(&path, Some(run_as.uid()), Some(run_as.gid())),
                false => Ok(()),
            });
        written.map_err(Error::file("write", &path))?;
    }
    let mut command = process::command(program, "KILL");
    if run_as.switches() {
        std::os::unix::process::CommandExt::uid(&mut command, run_as.uid());
        std::os::unix::process::CommandExt::gid(&mut command, run_as.gid());
    }
    command.arg(dir.join("pgbouncer.ini"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_by_name() {
        for name in ["straight", "gate", "pool", "pgbouncer"] {
            assert_eq!(name.parse::<Target>().unwrap().name, name);
        }
        let target: Target = "two-nodes=host=10.0.0.2 user=me dbname=bench".parse().unwrap();
        assert_eq!(target.name, "two-nodes");
        assert!(!target.is_own());
        assert_eq!("db=postgres://me@host/bench".parse::<Target>().unwrap().name, "db");
        for wrong in ["straigt", "host=10.0.0.2", "=host=a", "a b=host=c", "x=host=a port=none"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
