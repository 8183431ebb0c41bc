//! Throwaway instances with the real PostgreSQL.

#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part; tests may panic")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use postgres::{Client, Config, NoTls};
use sluice_instance::{
    Binaries, DataDir, DataDirError, DataDirSpec, Event, Postgres, PostgresConfig, RunAs, StartError,
};

/// The PostgreSQL in `$SLUICE_TEST_PG_BIN`, or the one that `sluice up` would find.
pub(crate) fn binaries() -> Binaries {
    let dir = std::env::var_os("SLUICE_TEST_PG_BIN").map(PathBuf::from);
    Binaries::find(dir.as_deref()).unwrap()
}

/// A folder for an instance, which PostgreSQL's user can enter.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn spec(&self) -> DataDirSpec {
        let binaries = binaries();
        let run_as = RunAs::resolve(None).unwrap();
        DataDirSpec { sync: false, ..DataDirSpec::new(self.root(), binaries, run_as) }
    }

    pub(crate) fn open(&self) -> Result<Arc<DataDir>, DataDirError> {
        DataDir::open(self.spec(), &sluice_instance::Silent).map(Arc::new)
    }

    /// Small and fast, on the Unix socket.
    pub(crate) fn config(&self) -> PostgresConfig {
        config(self.open().unwrap())
    }
}

pub(crate) fn config(data_dir: Arc<DataDir>) -> PostgresConfig {
    let mut config = PostgresConfig::new(data_dir);
    config.start_timeout = Duration::from_secs(60);
    config.stop_timeout = Duration::from_secs(20);
    config.settings = ["fsync=off", "shared_buffers=16MB", "max_connections=20"]
        .iter()
        .filter_map(|setting| setting.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    config
}

/// Starts a server; what happens comes out of the receiver.
pub(crate) fn start(config: PostgresConfig) -> (Result<Postgres, StartError>, Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let observer = move |event| {
        let _ = sender.send(event);
    };
    (Postgres::start(config, Arc::new(observer)), events)
}

pub(crate) fn superuser(server: &Postgres) -> Client {
    login(server, "postgres", "postgres", None).unwrap()
}

pub(crate) fn login(
    server: &Postgres,
    user: &str,
    database: &str,
    password: Option<&str>,
) -> Result<Client, postgres::Error> {
    let endpoint = server.endpoint();
    let mut config = Config::new();
    config.host_path(&endpoint.socket_dir).port(endpoint.port).user(user).dbname(database);
    if let Some(password) = password {
        config.password(password);
    }
    config.connect(NoTls)
}

/// The processes of PostgreSQL on a data directory.
pub(crate) fn processes(pgdata: &Path) -> Vec<u32> {
    let cwd_is = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == pgdata);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(cwd_is)
        .collect()
}

pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "not after 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
