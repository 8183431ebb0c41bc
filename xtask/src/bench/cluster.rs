//! The PostgreSQL that targets stand before, or are: made new for each benchmark, in a temporary directory, and gone
//! afterwards.
//!
//! The settings keep the processor the bottleneck, since processor time is what is measured: the data fits in
//! `shared_buffers`, `synchronous_commit` is off (commits don't wait for the disk; `fsync` stays on), and neither
//! autovacuum nor a checkpoint comes in the middle of a turn. Both are done before each turn that writes instead, so
//! all targets meet the same tables.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use sluice_lab::pgbench::Endpoint;
use sluice_lab::process::{self, Interrupt, Process};
use sluice_lab::server::free_port;

use super::user::{self, User};

/// Straight connections of 1,000 clients, a pool's servers, and room for the benchmark's own.
const CONNECTIONS_MAX: u32 = 1100;

/// Debian's directory of PostgreSQL 15's programs.
const DEBIAN_BIN: &str = "/usr/lib/postgresql/15/bin";

/// The properties of a cluster to be made.
pub(crate) struct Make<'a> {
    /// Directory of PostgreSQL's programs.
    pub(crate) bin: &'a Path,
    pub(crate) scratch: &'a Path,
    /// The name of its directory in `scratch`.
    pub(crate) name: &'a str,
    pub(crate) shared_buffers: &'a str,
    /// The libraries that the server loads at its start (`shared_preload_libraries`).
    pub(crate) libraries: &'a str,
}

/// A running PostgreSQL with the database `bench`, filled by pgbench, and its owner `bench`.
pub(crate) struct Cluster {
    server: Process,
    bin: PathBuf,
    dir: PathBuf,
    user: Option<User>,
    port: u16,
    admin_password: String,
    password: String,
    interrupt: Interrupt,
}

/// PostgreSQL's programs: as told, Debian's, or what `pg_config` says.
pub(crate) fn find_bin(told: Option<&Path>) -> Result<PathBuf> {
    let pg_config = || {
        let output = Command::new("pg_config").arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    let found = match told {
        Some(bin) => Some(bin.to_owned()),
        None => [Some(PathBuf::from(DEBIAN_BIN)), pg_config()].into_iter().flatten().find(|bin| is_whole(bin)),
    };
    let bin = found.context("no PostgreSQL 15 found: run scripts/bench-deps.sh, or say where with --pg-bin")?;
    if !is_whole(&bin) {
        bail!("{} lacks initdb, postgres, psql or pgbench", bin.display());
    }
    Ok(bin)
}

fn is_whole(bin: &Path) -> bool {
    ["initdb", "postgres", "psql", "pgbench"].iter().all(|program| bin.join(program).is_file())
}

/// Random, since other users of the machine can reach the ports.
fn random_password() -> Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("can't make a random password")?;
    Ok(id.trim().to_owned())
}

/// Writes a file that only its owner can read: `owner`, or who runs this.
pub(crate) fn write_private(path: &Path, text: &str, owner: Option<User>) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("can't write {}", path.display()))?;
    give(path, owner)
}

fn give(path: &Path, owner: Option<User>) -> Result<()> {
    let Some(user) = owner else { return Ok(()) };
    chown(path, Some(user.uid), Some(user.gid)).with_context(|| format!("can't give {} away", path.display()))
}

impl Cluster {
    /// Creates and starts it, without data yet.
    pub(crate) fn start(make: &Make, interrupt: &Interrupt) -> Result<Self> {
        let Make { bin, scratch, name, .. } = *make;
        let user = User::for_servers()?;
        let dir = scratch.join(name);
        fs::create_dir(&dir).with_context(|| format!("can't create {}", dir.display()))?;
        give(&dir, user)?;
        let (data, log) = (dir.join("data"), scratch.join(format!("{name}.log")));
        let (admin_password, password) = (random_password()?, random_password()?);
        let pwfile = scratch.join(format!("{name}.password"));
        write_private(&pwfile, &admin_password, user)?;

        let mut initdb = user::command(&bin.join("initdb"), user, "KILL");
        initdb.args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--pwfile"]);
        initdb.arg(&pwfile).arg("-D").arg(&data);
        process::output("initdb", initdb, Duration::from_secs(120), interrupt)?;

        let port = free_port()?;
        let settings = settings(port, &dir, make);
        let conf = data.join("postgresql.conf");
        let mut defaults = fs::read_to_string(&conf).with_context(|| format!("can't read {}", conf.display()))?;
        defaults.push_str(&settings);
        fs::write(&conf, defaults).with_context(|| format!("can't write {}", conf.display()))?;

        // Should the benchmark be killed, PostgreSQL shuts down at once; SIGINT is its fast shutdown.
        let mut command = user::command(&bin.join("postgres"), user, "QUIT");
        command.arg("-D").arg(&data);
        let server = Process::spawn_server("postgres", command, &log, Signal::INT, Duration::from_secs(60))?;
        let mut cluster = Self {
            server,
            bin: bin.to_owned(),
            dir,
            user,
            port,
            admin_password,
            password,
            interrupt: interrupt.clone(),
        };
        cluster.wait_until_ready(&log)?;
        Ok(cluster)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let ready = self.sql("postgres", "select 1");
            let Err(error) = ready else { return Ok(()) };
            if self.server.ended()?.is_some() || Instant::now() >= end {
                let said = process::tail(&fs::read_to_string(log).unwrap_or_default());
                return Err(error.context(format!("PostgreSQL does not start: {said}")));
            }
            self.interrupt.sleep(Duration::from_millis(100))?;
        }
    }

    /// Creates the user and the database, and fills it by pgbench at `scale` (100,000 accounts, 16 MB, each).
    pub(crate) fn fill(&self, scale: u32) -> Result<()> {
        self.sql("postgres", &format!("create role bench login password '{}'", self.password))?;
        self.sql("postgres", "create database bench owner bench")?;
        let mut pgbench = process::command(&self.bin.join("pgbench"), "KILL");
        pgbench.args(["-i", "-q", "-s", &scale.to_string(), "-U", "bench", "-p", &self.port.to_string(), "-h"]);
        pgbench.arg(&self.dir).arg("bench").env("PGPASSWORD", &self.password);
        process::output("pgbench -i", pgbench, Duration::from_secs(120 + 10 * u64::from(scale)), &self.interrupt)?;
        // One that nobody can tell from one that leaves something.
        self.sql("bench", "create function bench_one() returns int language sql as 'select 1'")?;
        self.sql("bench", "create extension if not exists pg_prewarm")?;
        self.sql("bench", "select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")?;
        self.sql("bench", "checkpoint").map(drop)
    }

    /// Brings the tables back to where each turn begins.
    pub(crate) fn tidy(&self) -> Result<()> {
        self.sql("bench", "truncate pgbench_history")?;
        self.sql("bench", "vacuum pgbench_branches, pgbench_tellers, pgbench_accounts")?;
        self.sql("bench", "checkpoint").map(drop)
    }

    /// Ends what a target left behind, and waits until no connection of the users' is left.
    pub(crate) fn quiesce(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(30);
        let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'bench'";
        while self.sql("postgres", terminate)?.trim() != "0" {
            if Instant::now() >= end {
                bail!("PostgreSQL keeps connections that no target holds any more");
            }
            self.interrupt.sleep(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Runs a statement as the superuser, by psql over the Unix socket. It goes by a file, since it may hold a password
    /// and arguments are for all to see.
    pub(crate) fn sql(&self, database: &str, statement: &str) -> Result<String> {
        let file = self.dir.join("statement.sql");
        write_private(&file, statement, None)?;
        let mut psql = process::command(&self.bin.join("psql"), "KILL");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-p", &self.port.to_string()]);
        psql.arg("-h").arg(&self.dir).args(["-d", database, "-f"]).arg(file);
        psql.env("PGPASSWORD", &self.admin_password);
        Ok(process::output("psql", psql, Duration::from_secs(300), &self.interrupt)?)
    }

    /// Logs in through an endpoint as pgbench will, and asks for one row.
    pub(crate) fn try_endpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let mut psql = endpoint.command(&self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-c", "select 1", &endpoint.conninfo]);
        psql.env("PGCONNECT_TIMEOUT", "5");
        process::output("psql", psql, Duration::from_secs(20), &self.interrupt)?;
        Ok(())
    }

    /// The line of a users file that PgBouncer and Sluice share: name and SCRAM verifier, each in double quotes.
    pub(crate) fn users_line(&self) -> Result<String> {
        let verifier = self.sql("postgres", "select rolpassword from pg_authid where rolname = 'bench'")?;
        Ok(format!("\"bench\" \"{}\"\n", verifier.trim()))
    }

    /// Straight to PostgreSQL, by TCP.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint_at(self.port)
    }

    /// The same login at another port.
    pub(crate) fn endpoint_at(&self, port: u16) -> Endpoint {
        self.endpoint_of(Path::new("127.0.0.1"), port)
    }

    /// The same by TLS.
    pub(crate) fn endpoint_by_tls(&self, port: u16) -> Endpoint {
        let Endpoint { conninfo, password } = self.endpoint_at(port);
        Endpoint { conninfo: conninfo.replace("sslmode=disable", "sslmode=require"), password }
    }

    /// Straight to PostgreSQL, by its Unix socket.
    pub(crate) fn endpoint_by_socket(&self) -> Endpoint {
        self.endpoint_of(&self.dir, self.port)
    }

    /// Where a target has no TLS, asking for it would only add a round trip to each log-in.
    fn endpoint_of(&self, host: &Path, port: u16) -> Endpoint {
        let conninfo =
            format!("host='{}' port={port} user=bench dbname=bench sslmode=disable gssencmode=disable", host.display());
        Endpoint { conninfo, password: Some(self.password.clone()) }
    }

    pub(crate) fn socket_dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pgbench(&self) -> PathBuf {
        self.bin.join("pgbench")
    }

    /// The account that servers run as which refuse root.
    pub(crate) fn user(&self) -> Option<User> {
        self.user
    }

    pub(crate) fn postmaster(&self) -> u32 {
        self.server.id()
    }
}

fn settings(port: u16, socket_dir: &Path, make: &Make) -> String {
    format!(
        "listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         unix_socket_directories = '{}'\n\
         max_connections = {CONNECTIONS_MAX}\n\
         shared_buffers = '{}'\n\
         shared_preload_libraries = '{}'\n\
         fsync = on\n\
         synchronous_commit = off\n\
         autovacuum = off\n\
         checkpoint_timeout = '1h'\n\
         max_wal_size = '16GB'\n",
        socket_dir.display(),
        make.shared_buffers,
        make.libraries
    )
}
