//! A PostgreSQL of the laboratory's own: made new for each run, with the settings that a turn asks for, and gone
//! afterwards.
//!
//! It may be several nodes, of which the primary answers. Its superuser comes in by the Unix socket. Who pgbench is has a
//! password, as clients do.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use postgres::{Client, Config};
use sluice_config::FileServer;
use sluice_instance::{
    Binaries, Class, ClassReport, DataDir, DataDirSpec, Postgres, PostgresConfig, RunAs, Silent, StopMode,
    bootstrap::{self, Bootstrapped, FIRST_USER, GATE, SUPERUSER},
    cluster::Environment,
};
use sluice_units::{Dimension, Quantity, Unit};

use crate::{
    connect::Access,
    error::Error,
    nodes::{self, Nodes},
    pgbench::{APPLICATION, Endpoint},
    process::{self, Interrupt},
    scenario::{Data, Maker},
};

/// Time limit for filling tables: a scale of 5,000 needs an hour on an ordinary disk.
const FILL_MAX: Duration = Duration::from_secs(6 * 3600);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit for connections to be gone after pgbench's end.
const CLOSE_MAX: Duration = Duration::from_secs(120);

/// Below those that Linux gives to connections.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 8_000;
const PORTS_OF_PROCESS: u32 = 97;

/// The unit of a `shared_buffers` without one.
const BLOCKS: Unit = Unit { dimension: Dimension::Bytes, size: 8192.0 };

/// Settings by name.
pub type Settings = BTreeMap<String, String>;

/// Tables as they are to be: one database each.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Their maker, and the rest of the scenario's description.
    pub data: Data,
    /// Number of rows, or pgbench's scale.
    pub rows: u64,
    /// Whether they are unlogged.
    pub unlogged: bool,
}

/// The server. It runs from its first [`Server::ensure`] on.
pub struct Server {
    place: Place,
    running: Option<Running>,
    filled: Vec<(Tables, String)>,
    /// Number of databases made so far, for their names.
    made: u32,
    interrupt: Interrupt,
}

/// The place of a server that does not run yet.
enum Place {
    One {
        data_dir: Arc<DataDir>,
        address: SocketAddr,
        /// With the settings that `sluice up` writes, as several nodes have them.
        is_tuned: bool,
    },
    Several(Box<nodes::Order>),
}

struct Running {
    server: Alive,
    settings: Settings,
    class: Class,
    roles: Bootstrapped,
}

enum Alive {
    One(Postgres),
    Several(Box<Nodes>),
}

impl Server {
    /// Makes its directory; starts nothing.
    pub fn create(dir: &Path, pg_bin: Option<&Path>, interrupt: &Interrupt) -> Result<Self, Error> {
        Self::create_one(dir, pg_bin, interrupt, false)
    }

    /// The same for so many nodes, as `sluice up` makes them; Patroni is installed in `patroni_dir`, if it is not there.
    pub fn create_nodes(
        dir: &Path,
        pg_bin: Option<&Path>,
        count: usize,
        patroni_dir: Option<&Path>,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        if count == 1 {
            return Self::create_one(dir, pg_bin, interrupt, true);
        }
        let patroni_dir = patroni_dir.ok_or_else(|| {
            Error::Input(
                "several nodes need a folder for Patroni's Python packages\nname it with --patroni-dir".to_owned(),
            )
        })?;
        let data_dir = spec(dir, pg_bin)?;
        let environment = Environment::prepare(patroni_dir, &data_dir.run_as, &Silent).map_err(Error::server)?;
        let order = nodes::Order { count, data_dir, environment };
        Ok(Self::new(Place::Several(Box::new(order)), interrupt))
    }

    fn create_one(dir: &Path, pg_bin: Option<&Path>, interrupt: &Interrupt, is_tuned: bool) -> Result<Self, Error> {
        let data_dir = Arc::new(DataDir::open(spec(dir, pg_bin)?, &Silent).map_err(Error::server)?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        Ok(Self::new(Place::One { data_dir, address, is_tuned }, interrupt))
    }

    fn new(place: Place, interrupt: &Interrupt) -> Self {
        Self { place, running: None, filled: Vec::new(), made: 0, interrupt: interrupt.clone() }
    }

    /// The directory of PostgreSQL's programs.
    pub fn bin(&self) -> &Path {
        match &self.place {
            Place::One { data_dir, .. } => &data_dir.binaries().dir,
            Place::Several(order) => &order.data_dir.binaries.dir,
        }
    }

    /// Its directory.
    fn root(&self) -> &Path {
        match &self.place {
            Place::One { data_dir, .. } => data_dir.root(),
            Place::Several(order) => &order.data_dir.root,
        }
    }

    /// The nodes that run, if they are several.
    fn nodes(&self) -> Option<&Nodes> {
        match self.running.as_ref().map(|running| &running.server) {
            Some(Alive::Several(nodes)) => Some(nodes),
            Some(Alive::One(_)) | None => None,
        }
    }

    /// PostgreSQL's data directory; of several nodes, the primary's.
    pub fn data(&self) -> &Path {
        match (&self.place, self.nodes()) {
            (_, Some(nodes)) => nodes.pgdata(),
            (Place::One { data_dir, .. }, None) => data_dir.pgdata(),
            (Place::Several(order), None) => &order.data_dir.root,
        }
    }

    /// The server's log file; of several nodes, the primary's.
    pub fn log(&self) -> PathBuf {
        match (&self.place, self.nodes()) {
            (_, Some(nodes)) => nodes.log(),
            (Place::One { data_dir, .. }, None) => data_dir.log_file(),
            (Place::Several(order), None) => order.data_dir.root.join("log"),
        }
    }

    /// The user that runs it.
    pub fn run_as(&self) -> &RunAs {
        match &self.place {
            Place::One { data_dir, .. } => data_dir.run_as(),
            Place::Several(order) => &order.data_dir.run_as,
        }
    }

    /// Has it run with these settings in this class, which is for one node only; starts it, or starts it anew.
    pub fn ensure(&mut self, settings: &Settings, class: Class) -> Result<(), Error> {
        if let Some(running) = &self.running
            && running.settings == *settings
            && running.class == class
            && running.is_up()
        {
            return Ok(());
        }
        self.stop();
        let (server, roles) = match &self.place {
            Place::One { data_dir, address, is_tuned } => {
                let mut config = PostgresConfig::new(Arc::clone(data_dir));
                config.tcp = Some(*address);
                config.tuning = is_tuned.then(|| nodes::tuning(settings));
                config.class = class;
                let shared_buffers = settings.get("shared_buffers").and_then(|text| bytes(text)).unwrap_or(0);
                config.stop_timeout += class.time_to_write(shared_buffers);
                config.settings = settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let postgres = Postgres::start(config, Arc::new(Silent)).map_err(Error::server)?;
                let roles = bootstrap::bootstrap(data_dir, postgres.endpoint());
                (Alive::One(postgres), roles)
            }
            Place::Several(order) => {
                let nodes = Nodes::start(order, settings)?;
                let roles = bootstrap::bootstrap(nodes.data_dir(), &nodes.endpoint());
                (Alive::Several(Box::new(nodes)), roles)
            }
        };
        let roles = roles.map_err(Error::server)?;
        self.running = Some(Running { server, settings: settings.clone(), class, roles });
        Ok(())
    }

    /// Has several nodes be in their places, so far from each other.
    pub fn place_nodes(&mut self, round_trip: Option<Duration>) -> Result<(), Error> {
        match self.running.as_mut().map(|running| &mut running.server) {
            Some(Alive::Several(nodes)) => {
                nodes.settle()?;
                nodes.place(round_trip)
            }
            Some(Alive::One(_)) | None => Ok(()),
        }
    }

    /// Waits until standbys have replayed all, if there are any.
    pub fn wait_replayed(&self) -> Result<(), Error> {
        self.nodes().map_or(Ok(()), |nodes| nodes.wait_replayed(&self.superuser("postgres"), &self.interrupt))
    }

    /// An error unless several nodes have stayed in their places.
    pub fn check_nodes(&self) -> Result<(), Error> {
        self.nodes().map_or(Ok(()), Nodes::check)
    }

    /// For a connection by the way that standbys reach the primary by, if there are any.
    pub fn standbys_way(&self, database: &str) -> Option<Access> {
        let way = self.nodes()?.way();
        self.first_user(database, way.port()).ok()
    }

    /// Stops it, if it runs.
    pub fn stop(&mut self) {
        match self.running.take().map(|running| running.server) {
            Some(Alive::One(postgres)) => {
                postgres.stop(StopMode::Fast);
            }
            Some(Alive::Several(nodes)) => drop(nodes),
            None => {}
        }
    }

    fn running(&self) -> Result<&Running, Error> {
        self.running.as_ref().ok_or_else(|| Error::Server("PostgreSQL is not running".to_owned()))
    }

    /// The postmaster; of several nodes, the primary's.
    pub fn postmaster(&self) -> Option<u32> {
        self.postmasters().first().copied()
    }

    /// The postmasters of all nodes.
    pub fn postmasters(&self) -> Vec<u32> {
        match self.running.as_ref().map(|running| &running.server) {
            Some(Alive::One(postgres)) => postgres.pid().into_iter().collect(),
            Some(Alive::Several(nodes)) => nodes.postmasters(),
            None => Vec::new(),
        }
    }

    /// The limits of its class, as far as the machine enforces them.
    pub fn class(&self) -> ClassReport {
        match self.running.as_ref().map(|running| &running.server) {
            Some(Alive::One(postgres)) => postgres.class(),
            Some(Alive::Several(_)) | None => ClassReport::default(),
        }
    }

    /// For the pool's configuration.
    pub fn roles(&self) -> Result<&Bootstrapped, Error> {
        Ok(&self.running()?.roles)
    }

    /// The endpoint at which the pool finds it.
    pub fn instance_endpoint(&self) -> Result<sluice_instance::Endpoint, Error> {
        Ok(match &self.running()?.server {
            Alive::One(postgres) => postgres.endpoint().clone(),
            Alive::Several(nodes) => nodes.endpoint(),
        })
    }

    /// The same as a pool is told; whether it follows makes no difference before one server.
    pub fn for_pool(&self, follows: bool) -> Result<FileServer, Error> {
        Ok(match &self.running()?.server {
            Alive::One(postgres) => postgres.endpoint().for_pool(),
            Alive::Several(nodes) => nodes.for_pool(follows),
        })
    }

    /// For a connection as the superuser.
    pub fn superuser(&self, database: &str) -> Access {
        let (dir, port) = match (&self.place, self.nodes().map(Nodes::endpoint)) {
            (_, Some(endpoint)) => (endpoint.socket_dir, endpoint.port),
            (Place::One { data_dir, address, .. }, None) => (data_dir.socket_dir().to_owned(), address.port()),
            // Nobody answers there.
            (Place::Several(order), None) => (order.data_dir.root.clone(), 0),
        };
        let mut config = Config::new();
        config.host_path(dir).port(port);
        config.user(SUPERUSER).dbname(database).connect_timeout(CONNECT_MAX).application_name("sluice-lab control");
        config.into()
    }

    /// The same, connected.
    pub fn connect(&self, database: &str) -> Result<Client, Error> {
        self.superuser(database).connect().map_err(Error::sql(format!("connect to database {database}")))
    }

    /// The TCP port that it listens on; of several nodes, the primary's.
    pub fn port(&self) -> u16 {
        match (&self.place, self.nodes().map(Nodes::endpoint)) {
            (_, Some(endpoint)) => endpoint.port,
            (Place::One { address, .. }, None) => address.port(),
            (Place::Several(_), None) => 0,
        }
    }

    /// The endpoint at which pgbench finds a database, by TCP.
    pub fn endpoint(&self, database: &str) -> Result<Endpoint, Error> {
        self.endpoint_by(database, self.port(), false)
    }

    /// The same by a pool's port, with TLS or without.
    pub fn endpoint_by(&self, database: &str, port: u16, tls: bool) -> Result<Endpoint, Error> {
        let sslmode = if tls { "require" } else { "disable" };
        let conninfo = format!("host=127.0.0.1 port={port} user={FIRST_USER} dbname={database} sslmode={sslmode}");
        Ok(Endpoint { conninfo, password: Some(self.password()?) })
    }

    /// The same user by a pool's port, for connections of our own.
    pub fn first_user(&self, database: &str, port: u16) -> Result<Access, Error> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user(FIRST_USER).password(self.password()?).dbname(database);
        Ok(config.into())
    }

    fn password(&self) -> Result<String, Error> {
        let file = &self.roles()?.password_file;
        Ok(fs::read_to_string(file).map_err(Error::file("read", file))?.trim().to_owned())
    }

    /// The database with these tables; made and filled if there is none yet.
    pub fn database(&mut self, tables: &Tables) -> Result<String, Error> {
        if let Some(nth) = self.filled.iter().position(|(filled, _)| filled == tables) {
            let name = self.filled[nth].1.clone();
            if !tables.unlogged || !self.is_emptied(&name)? {
                return Ok(name);
            }
            self.filled.remove(nth);
            self.drop_database(&name);
        }
        self.made += 1;
        let name = format!("bench{}", self.made);
        let mut client = self.connect("postgres")?;
        client
            .batch_execute(&format!("CREATE DATABASE {name} OWNER {FIRST_USER}"))
            .map_err(Error::sql("create a database"))?;
        if let Err(error) = self.fill(&name, tables) {
            self.drop_database(&name);
            return Err(error);
        }
        self.filled.push((tables.clone(), name.clone()));
        Ok(name)
    }

    /// Whether PostgreSQL has emptied the unlogged tables, as it does when it recovers from a crash.
    fn is_emptied(&self, database: &str) -> Result<bool, Error> {
        let row = self.connect(database)?.query_one(IS_EMPTIED, &[]);
        Ok(row.map_err(Error::sql("look whether the tables hold rows"))?.get(0))
    }

    /// It only takes room; without a server there is nothing to do.
    fn drop_database(&self, name: &str) {
        if let Ok(mut client) = self.connect("postgres") {
            let _ = client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        }
    }

    fn fill(&self, database: &str, tables: &Tables) -> Result<(), Error> {
        let endpoint = self.endpoint(database)?;
        fill(self.bin(), &endpoint, tables, &self.root().join("schema.sql"), &self.interrupt)?;
        let mut client = self.connect(database)?;
        set_unlogged(&mut client, tables.unlogged)?;
        add_extensions(&mut client);
        Ok(())
    }
}

impl Running {
    fn is_up(&self) -> bool {
        match &self.server {
            Alive::One(postgres) => postgres.pid().is_some(),
            Alive::Several(nodes) => !nodes.postmasters().is_empty(),
        }
    }
}

/// A directory of the laboratory's, with PostgreSQL's programs.
fn spec(dir: &Path, pg_bin: Option<&Path>) -> Result<DataDirSpec, Error> {
    let binaries = Binaries::find(pg_bin).map_err(Error::server)?;
    let run_as = RunAs::resolve(None).map_err(Error::server)?;
    // Should the machine fail, the run is lost anyway.
    Ok(DataDirSpec { sync: false, ..DataDirSpec::new(dir, binaries, run_as) })
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the PostgreSQL that runs start could load the gate; if there is none, that is another error.
pub fn has_gate(pg_bin: Option<&Path>) -> bool {
    Binaries::find(pg_bin).map_or(true, |binaries| binaries.has_library(GATE))
}

/// An empty table by which the laboratory knows a database that it has filled; its comment says with what.
pub const MARK: &str = "sluice_lab";

const IS_EMPTIED: &str = "SELECT count(*) > 0 AND coalesce(sum(pg_relation_size(oid)), 0) = 0 FROM pg_class \
     WHERE relkind = 'r' AND relpersistence = 'u'";

/// Has all tables of a database unlogged, or logged.
pub fn set_unlogged(client: &mut Client, unlogged: bool) -> Result<(), Error> {
    let (other, wanted) = if unlogged { ("p", "UNLOGGED") } else { ("u", "LOGGED") };
    let statement = format!(
        "DO $$ DECLARE name text; BEGIN
            FOR name IN SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
                WHERE relkind = 'r' AND relpersistence = '{other}' AND relname <> '{MARK}'
                AND nspname NOT IN ('pg_catalog', 'information_schema') LOOP
                EXECUTE 'ALTER TABLE ' || name || ' SET {wanted}';
            END LOOP;
        END $$"
    );
    client.batch_execute(&statement).map_err(Error::sql(format!("make tables {}", wanted.to_lowercase())))
}

/// Makes and fills tables by psql, or by pgbench itself.
pub fn fill(
    bin: &Path,
    endpoint: &Endpoint,
    tables: &Tables,
    scratch: &Path,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    match &tables.data.maker {
        Maker::Pgbench => {
            let mut command = endpoint.command(&bin.join("pgbench"));
            command.args(["-i", "-q", "-s", &tables.rows.to_string()]);
            if tables.unlogged {
                command.arg("--unlogged-tables");
            }
            command.arg(&endpoint.conninfo);
            process::output("pgbench -i", command, FILL_MAX, interrupt).map(drop)
        }
        Maker::Schema(text) => {
            fs::write(scratch, text).map_err(Error::file("write", scratch))?;
            let mut command = endpoint.command(&bin.join("psql"));
            command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-v"]).arg(format!("rows={}", tables.rows));
            command.arg("-f").arg(scratch).arg(&endpoint.conninfo);
            process::output("psql", command, FILL_MAX, interrupt).map(drop)
        }
    }
}

/// Adds the extensions that prewarm tables and tell how warm they are. Only superusers may have them, and only where
/// the contrib modules are installed; without them the cache is as warm as it is, and nobody says how warm.
pub fn add_extensions(client: &mut Client) {
    for extension in ["pg_prewarm", "pg_buffercache"] {
        let _ = client.batch_execute(&format!("CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public"));
    }
}

/// Waits until no client of pgbench's is left at a server; none if some stay, as they do behind a pool.
pub fn wait_closed(access: &Access, begin: Instant, interrupt: &Interrupt) -> Result<Option<f64>, Error> {
    let mut client = access.connect().map_err(Error::sql("connect to PostgreSQL"))?;
    let query = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{APPLICATION}' AND pid <> pg_backend_pid()"
    );
    while begin.elapsed() < CLOSE_MAX {
        let row = client.query_one(&query, &[]).map_err(Error::sql("count connections"))?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(Some(begin.elapsed().as_secs_f64()));
        }
        interrupt.sleep(Duration::from_millis(20))?;
    }
    Ok(None)
}

/// As PostgreSQL reads the size of `shared_buffers`: a number of blocks, or with a unit.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let size = Quantity::parse(text, BLOCKS).filter(|size| size.dimension == Dimension::Bytes)?;
    Some(size.amount as u64)
}

/// A port of loopback that was free a moment ago, another one each time. None that the system gives to connections, if
/// there is one: a server that is started for each turn leaves it free in between.
pub fn free_port() -> Result<u16, Error> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs that were begun one behind the other have some to themselves.
    let begin = (std::process::id().wrapping_mul(PORTS_OF_PROCESS) % u32::from(PORTS)) as u16;
    let mut lower = (0..PORTS).map(|_| FIRST_PORT + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS);
    if let Some(port) = lower.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()) {
        return Ok(port);
    }
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("find a free port on 127.0.0.1"))?;
    Ok(listener.local_addr().map_err(Error::io("read a port"))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_postgres_reads_them() {
        let sizes = [("16384", 128 << 20), ("256MB", 256 << 20), ("1 GB", 1 << 30), ("64kB", 64 << 10)];
        for (text, expected) in sizes {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        assert_eq!(bytes("1 parsec"), None);
    }
}
