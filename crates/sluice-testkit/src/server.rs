//! Throwaway PostgreSQL clusters.
//!
//! A cluster lets roles in by the group that they are members of: `trusted` without a password, `hashed` by MD5,
//! `peered` by peer where the user that runs the tests asks for `peered_app`, all others by SCRAM. The role `app` is
//! trusted, and owns each [`Database`].

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use postgres::{Client, NoTls, SimpleQueryMessage};
use sluice_instance::{Binaries, DataDir, DataDirSpec, Postgres, PostgresConfig, RunAs, Silent, StopMode};

use crate::{
    PATIENCE,
    case::Version,
    network::Network,
    place::{place, remove_after_us},
    port::free_address,
    raw::Raw,
    tls::Certificates,
};

/// A cluster.
pub struct TestServer {
    version: Version,
    /// Stopped before its directory is removed.
    postgres: Mutex<Option<Postgres>>,
    data_dir: Arc<DataDir>,
    settings: Vec<(String, String)>,
    /// Besides the Unix socket.
    tcp: Option<SocketAddr>,
    admin: Mutex<Option<Client>>,
    databases: AtomicU32,
    place: Option<tempfile::TempDir>,
}

const SETTINGS: [(&str, &str); 11] = [
    ("fsync", "off"),
    // Clusters may be kept in memory.
    ("max_wal_size", "128MB"),
    ("min_wal_size", "32MB"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "32MB"),
    ("max_connections", "400"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("autovacuum", "off"),
    ("log_checkpoints", "off"),
];

const HBA: &str = "\
local  all  postgres             peer map=sluice
local  all  +trusted             trust
local  all  +hashed              md5
local  all  +peered              peer map=tests
local  all  all                  scram-sha-256
host   all  +trusted  127.0.0.1/32  trust
host   all  all       127.0.0.1/32  scram-sha-256
";

const ROLES: &str = "\
CREATE ROLE trusted; CREATE ROLE hashed; CREATE ROLE peered;
CREATE ROLE app LOGIN IN ROLE trusted;
CREATE ROLE peered_app LOGIN IN ROLE peered;
CREATE ROLE lookup LOGIN IN ROLE trusted; GRANT SELECT ON pg_authid TO lookup;";

impl TestServer {
    /// The cluster of that version that the tests of this process share. It ends with the process.
    pub fn shared(version: Version) -> &'static Self {
        static V15: OnceLock<TestServer> = OnceLock::new();
        static V16: OnceLock<TestServer> = OnceLock::new();
        static V18: OnceLock<TestServer> = OnceLock::new();
        let place = match version {
            Version::V15 => &V15,
            Version::V16 => &V16,
            Version::V18 => &V18,
        };
        place.get_or_init(|| Self::start_for_process(version, &[]))
    }

    /// A cluster that ends with the process, for a static: nothing static is ever dropped, so somebody else cleans up.
    pub fn start_for_process(version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start(version, settings).kept_for_process()
    }

    fn kept_for_process(mut self) -> Self {
        let place = self.place.take().expect("it has just been made").keep();
        remove_after_us(&place);
        self
    }

    /// A cluster of one's own, for tests that hurt it.
    pub fn start(version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start_in(place(), version, settings, HBA, None)
    }

    /// A cluster that also listens on 127.0.0.1, for programs that are to find it as they find a pool.
    pub fn start_with_tcp(version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start_in(place(), version, settings, HBA, Some(free_address()))
    }

    /// A cluster that also listens on a host of a network, with TLS or without, and lets the others' clients in.
    pub fn start_on(network: &Network, host: usize, version: Version, settings: &[(&str, &str)], tls: bool) -> Self {
        let hba = HBA.replace("127.0.0.1/32", &network.addresses());
        let address = (network.address(host), 5432).into();
        network.within(host, || Self::start_by_tcp(version, settings, &hba, address, tls))
    }

    /// A cluster that also listens on 127.0.0.1, where it lets nobody in without TLS.
    pub fn start_with_tls(version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start_by_tcp(version, settings, HBA, free_address(), true)
    }

    fn start_by_tcp(version: Version, settings: &[(&str, &str)], hba: &str, address: SocketAddr, tls: bool) -> Self {
        if !tls {
            return Self::start_in(place(), version, settings, hba, Some(address));
        }
        let of_tls = Certificates::shared().settings();
        let of_tls = of_tls.iter().map(|(name, value)| (*name, value.as_str()));
        let settings: Vec<_> = of_tls.chain(settings.iter().copied()).collect();
        Self::start_in(place(), version, &settings, &hba.replace("host ", "hostssl "), Some(address))
    }

    /// The same, for a static.
    pub fn start_with_tls_for_process(version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start_with_tls(version, settings).kept_for_process()
    }

    fn start_in(
        place: tempfile::TempDir,
        version: Version,
        settings: &[(&str, &str)],
        hba: &str,
        tcp: Option<SocketAddr>,
    ) -> Self {
        let binaries = Binaries::find(Some(&version.bin_dir())).unwrap_or_else(|error| panic!("{error}"));
        let run_as = RunAs::resolve(None).unwrap_or_else(|error| panic!("{error}"));
        let spec = DataDirSpec { sync: false, ..DataDirSpec::new(place.path().join("data"), binaries, run_as) };
        let data_dir = Arc::new(DataDir::open(spec, &Silent).unwrap_or_else(|error| panic!("{error}")));
        append(&data_dir.pgdata().join("pg_ident.conf"), &format!("tests  {}  peered_app\n", own_name()));
        fs::write(data_dir.pgdata().join("pg_hba.conf"), hba).unwrap();
        let settings = SETTINGS.iter().chain(settings).map(|(n, v)| (n.to_string(), v.to_string())).collect();
        let server = Self {
            version,
            postgres: Mutex::new(None),
            data_dir,
            settings,
            tcp,
            admin: Mutex::new(None),
            databases: AtomicU32::new(0),
            place: Some(place),
        };
        server.up();
        server.execute(ROLES);
        server
    }

    /// Starts it again after [`TestServer::down`].
    pub fn up(&self) {
        let mut config = PostgresConfig::new(self.data_dir.clone());
        config.start_timeout = PATIENCE;
        config.stop_timeout = Duration::from_secs(20);
        config.settings = self.settings.clone();
        config.tcp = self.tcp;
        let postgres = Postgres::start(config, Arc::new(Silent)).unwrap_or_else(|error| panic!("{error}"));
        *lock(&self.postgres) = Some(postgres);
    }

    /// Stops it.
    pub fn down(&self, mode: StopMode) {
        *lock(&self.admin) = None;
        if let Some(postgres) = lock(&self.postgres).take() {
            postgres.stop(mode);
        }
    }

    /// Kills the postmaster with SIGKILL, and waits until another one is ready.
    pub fn crash(&self) {
        *lock(&self.admin) = None;
        let postgres = lock(&self.postgres);
        let postgres = postgres.as_ref().expect("the server is up");
        let before = postgres.pid();
        postgres.kill();
        postgres.wait_ready(before, PATIENCE).expect("PostgreSQL comes back");
    }

    /// The version of its PostgreSQL.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The folder of its Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.data_dir.socket_dir()
    }

    /// Its log.
    pub fn log_file(&self) -> PathBuf {
        self.data_dir.log_file()
    }

    /// The folder of its data.
    pub fn data(&self) -> &Path {
        self.data_dir.pgdata()
    }

    /// The port in the socket's name, and by TCP.
    pub fn port(&self) -> u16 {
        self.tcp.map_or(5432, |address| address.port())
    }

    /// A connection as the superuser.
    pub fn superuser(&self, database: &str) -> Client {
        self.connect("postgres", database)
    }

    /// A connection straight to the server, without a password.
    pub fn connect(&self, user: &str, database: &str) -> Client {
        self.client_config(user, database)
            .connect(NoTls)
            .unwrap_or_else(|error| panic!("{user} to {database}, straight: {error:?}"))
    }

    /// A connection straight to the server, if it takes one now.
    pub fn try_connect(&self, user: &str, database: &str) -> Option<Client> {
        self.client_config(user, database).connect(NoTls).ok()
    }

    fn client_config(&self, user: &str, database: &str) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host_path(self.socket_dir()).port(self.port()).user(user).dbname(database);
        config
    }

    /// One value, as the superuser in the database `postgres`, if the server answers now.
    pub fn try_value(&self, sql: &str) -> Option<String> {
        first_value(&self.try_connect("postgres", "postgres")?.simple_query(sql).ok()?)
    }

    /// A raw connection straight to the server.
    pub fn raw(&self) -> Raw {
        Raw::unix(&self.socket_dir().join(format!(".s.PGSQL.{}", self.port())))
    }

    /// The same by TCP, where it listens there.
    pub fn raw_tcp(&self) -> Raw {
        Raw::tcp(self.tcp.expect("it listens on a Unix socket only"))
    }

    /// Runs statements as the superuser in the database `postgres`.
    pub fn execute(&self, sql: &str) {
        self.with_admin(|admin| admin.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")));
    }

    /// One value, as the superuser in the database `postgres`.
    pub fn value(&self, sql: &str) -> String {
        self.with_admin(|admin| {
            let rows = admin.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            first_value(&rows).unwrap_or_else(|| "no row".to_owned())
        })
    }

    fn with_admin<T>(&self, work: impl FnOnce(&mut Client) -> T) -> T {
        let mut admin = lock(&self.admin);
        let fresh = admin.take().filter(|admin| !admin.is_closed());
        work(admin.insert(fresh.unwrap_or_else(|| self.superuser("postgres"))))
    }

    /// A new database, which belongs to `app`.
    pub fn database(&self) -> Database<'_> {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute(&format!("CREATE DATABASE {name} OWNER app TEMPLATE template0"));
        Database { server: self, name }
    }

    /// One of the programs that come with it.
    pub fn program(&self, name: &str) -> Command {
        self.program_at(&self.version.bin_dir().join(name))
    }

    /// A program that is elsewhere, in the environment of those that come with it.
    pub fn program_at(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }
}

/// A database of one test's own.
pub struct Database<'a> {
    /// The server that has it.
    pub server: &'a TestServer,
    /// Its name.
    pub name: String,
}

impl Database<'_> {
    /// The number of connections to it by roles other than the superuser.
    pub fn connections(&self) -> usize {
        self.count("true")
    }

    /// The number of those connections for which a condition on `pg_stat_activity` holds.
    pub fn count(&self, condition: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND usename <> 'postgres' AND ({condition})",
            self.name
        );
        self.server.value(&sql).parse().unwrap()
    }

    /// A connection as the superuser.
    pub fn superuser(&self) -> Client {
        self.server.superuser(&self.name)
    }

    /// Runs statements as `app`, straight on the server.
    pub fn execute(&self, sql: &str) {
        let mut client = self.server.connect("app", &self.name);
        client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

/// The first column of the first row.
fn first_value(messages: &[SimpleQueryMessage]) -> Option<String> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed meanwhile has left the value whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(path: &PathBuf, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The system user that runs the tests.
fn own_name() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
