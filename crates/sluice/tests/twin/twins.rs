//! The two databases, alike to the last object's number, and the pool before one of them.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sluice_testkit::{Case, Certificates, PoolConfig, Raw, TestPool, TestServer, Version};
use sluice_tls::SslMode;

use crate::{SLUICE, servers};

/// A cluster with the schema in a database to copy.
pub(crate) struct Place {
    kind: Kind,
    server: TestServer,
    count: AtomicU32,
    /// Databases that nobody uses now.
    free: Mutex<Vec<String>>,
}

/// The kind of a place's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) version: Version,
    pub(crate) extension: bool,
    /// Whether all connections are encrypted, those of clients and those to the server.
    pub(crate) tls: bool,
}

impl Place {
    /// A connection string for the server itself.
    pub(crate) fn conninfo(&self) -> String {
        let server = &self.server;
        format!("host={} port={} dbname=postgres user=app", server.socket_dir().display(), server.port())
    }

    /// The one for that version, with the extension or without it.
    pub(crate) fn shared(version: Version, extension: bool) -> &'static Self {
        Self::of_kind(Kind { version, extension, tls: false })
    }

    /// The one of that kind.
    pub(crate) fn of_kind(kind: Kind) -> &'static Self {
        static PLACES: Mutex<Vec<(Kind, &'static OnceLock<Place>)>> = Mutex::new(Vec::new());
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.iter().find(|place| place.0 == kind).map(|place| place.1);
        let cell = known.unwrap_or_else(|| {
            let cell = Box::leak(Box::default());
            places.push((kind, cell));
            cell
        });
        drop(places);
        cell.get_or_init(|| Self::start(kind))
    }

    fn start(kind: Kind) -> Self {
        let preload: &[_] = if kind.extension { &[("shared_preload_libraries", "sluice")] } else { &[] };
        let start = if kind.tls { TestServer::start_with_tls_for_process } else { TestServer::start_for_process };
        let server = start(kind.version, preload);
        server.execute("CREATE ROLE twin_a; CREATE ROLE twin_b; GRANT twin_a, twin_b TO app");
        server.execute("CREATE DATABASE twin OWNER app TEMPLATE template0");
        let mut client = server.connect("app", "twin");
        client.batch_execute(include_str!("schema.sql")).unwrap_or_else(|error| panic!("schema.sql: {error:?}"));
        drop(client);
        Self::make_temporary_schemas(&server);
        Self { kind, server, count: AtomicU32::new(0), free: Mutex::new(Vec::new()) }
    }

    /// The schemas of sessions' temporary objects, which PostgreSQL makes with the first one of a process' number: that
    /// has all sessions plan, and read literals, anew (docs/decisions/0014), sooner on one side than on the other.
    /// PostgreSQL 18 gives a process the number that has been free for longest: all that `max_connections` allows come up.
    fn make_temporary_schemas(server: &TestServer) {
        let make = "DO $$ BEGIN FOR n IN 0..400 LOOP EXECUTE format(
            'CREATE SCHEMA IF NOT EXISTS pg_temp_%s; CREATE SCHEMA IF NOT EXISTS pg_toast_temp_%s', n, n);
            END LOOP; END $$";
        let mut superuser = server.superuser("twin");
        let made = superuser.batch_execute(&format!("SET allow_system_table_mods = on; {make}"));
        made.unwrap_or_else(|error| panic!("temporary schemas: {error:?}"));
    }

    /// A database as at the beginning, with a schema for each of these clients. Making one takes PostgreSQL far longer
    /// than a plan takes, so one that was used before is put in order.
    pub(crate) fn copy(&self, clients: &BTreeSet<usize>) -> Copy<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let name = match free {
            Some(name) => {
                self.end_sessions(&name);
                name
            }
            None => {
                let name = format!("twin{}", self.count.fetch_add(1, Ordering::Relaxed));
                self.server.execute(&format!("CREATE DATABASE {name} OWNER app TEMPLATE twin"));
                name
            }
        };
        let clients: Vec<_> = clients.iter().map(usize::to_string).collect();
        let renew = format!("CALL renew('{{{}}}')", clients.join(", "));
        self.server.connect("app", &name).batch_execute(&renew).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        Copy { place: self, name }
    }

    /// Ends the sessions of clients that have gone: what PostgreSQL still runs for one may hold a lock.
    fn end_sessions(&self, database: &str) {
        self.server.execute(&format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE datname = '{database}' AND backend_type = 'client backend'"
        ));
    }

    /// An empty database that nobody had before.
    pub(crate) fn empty(&self) -> String {
        let name = format!("twin{}", self.count.fetch_add(1, Ordering::Relaxed));
        self.server.execute(&format!("CREATE DATABASE {name} OWNER app TEMPLATE template0"));
        name
    }

    /// Runs SQL in a database, by a connection that no pool knows of.
    pub(crate) fn execute_in(&self, database: &str, sql: &str) {
        self.server.connect("app", database).batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The same as a superuser.
    pub(crate) fn execute_as_superuser_in(&self, database: &str, sql: &str) {
        self.server.connect("postgres", database).batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// A fresh pool.
    pub(crate) fn pool(&self, case: Case) -> TestPool {
        self.pool_of(case, servers(case.mode) as u32)
    }

    /// A fresh pool of so many servers.
    pub(crate) fn pool_of(&self, case: Case, servers: u32) -> TestPool {
        self.configuration(case)
            .size(servers)
            .workers(1)
            .pool("prepared_per_server = 6")
            .pool("wait_timeout = \"4s\"")
            .pool(&format!("pinned_max = {servers}"))
            .start()
    }

    fn configuration(&self, case: Case) -> PoolConfig {
        if !self.kind.tls {
            return PoolConfig::new(SLUICE, case, &self.server);
        }
        let certificates = Certificates::shared();
        let authority = certificates.path("authority.crt");
        let lines = format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}");
        let config = PoolConfig::without_databases(SLUICE, case).tls(certificates, "required = true");
        config.database_at("*", "localhost", self.server.port(), &lines)
    }

    /// A superuser's connection to another database.
    pub(crate) fn superuser(&self) -> postgres::Client {
        self.server.superuser("postgres")
    }

    /// A connection of a client's own.
    pub(crate) fn alone(&self) -> Raw {
        if !self.kind.tls {
            return self.server.raw();
        }
        self.server.raw_tcp().secure(&Certificates::shared().client(SslMode::VerifyFull, false))
    }
}

/// Time limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One of the twins. All connections to it must have been closed before it is dropped.
pub(crate) struct Copy<'a> {
    place: &'a Place,
    pub(crate) name: String,
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.place.free.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.name));
        }
    }
}
