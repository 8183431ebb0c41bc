//! Readers before three nodes: they are spread over the standbys, and leave one that is paused, killed or promoted
//! between two transactions. Where there is no standby, they wait or go to the primary, as the configuration says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sluice_testkit::{Auth, Case, Driver, Mode, PoolConfig, TestCluster, TestPool, Version, eventually};

use crate::{SLUICE, alone};

/// Readers of the test.
const READERS: usize = 6;

/// The time for which readers go on before it is looked where they are.
const LOOKING: Duration = Duration::from_secs(2);

/// A pool with second names of each database: `NAME:ro` for standbys if there are any, `NAME:standby` for standbys only.
fn pool(cluster: &TestCluster) -> TestPool {
    let urls: Vec<_> = cluster.rest_urls().iter().map(|url| format!("\"{url}\"")).collect();
    let member = |name: &str, timeout: &str| {
        format!("[[cluster]]\nname = \"{name}\"\npatroni = [{}]\nfailover_timeout = \"{timeout}\"\n", urls.join(", "))
    };
    let database = |name: &str, cluster: &str, more: &str| {
        format!("[[database]]\nname = \"{name}\"\ncluster = \"{cluster}\"\n{more}")
    };
    let reads = |target: &str| format!("target_session_attrs = \"{target}\"\nmax_lag = \"4s\"\n");
    let sections = [
        format!("[admin]\nusers = [\"{}\"]\n", cluster.app_name()),
        member("main", "2min"),
        member("hasty", "2s"),
        database("*", "main", ""),
        database("*:ro", "main", &reads("prefer-standby")),
        database("*:standby", "main", &reads("standby")),
        database("*:hasty", "hasty", &reads("standby")),
    ];
    let app = (cluster.app_name().to_owned(), cluster.password().to_owned());
    let case = Case::new(Version::V15, Driver::Uring, Mode::Transaction);
    PoolConfig::without_databases(SLUICE, case).auth(Auth::Scram(vec![app])).section(&sections.concat()).start()
}

fn connect(cluster: &TestCluster, pool: &TestPool, database: &str) -> postgres::Client {
    pool.connect(cluster.app_name(), Some(cluster.password()), database).unwrap()
}

/// Rows that readers have seen.
#[derive(Debug, Default)]
struct Seen {
    /// The answers of each node, by its port.
    ports: BTreeMap<i32, u32>,
    /// Answers of a node out of recovery.
    primaries: u32,
    /// Connections that were lost in the midst of a query.
    lost: u32,
    longest: Duration,
}

/// Clients that read all the time.
struct Readers {
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn begin(cluster: &TestCluster, pool: &TestPool, database: &'static str) -> Self {
        let (is_over, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let reader = |_| {
            let (is_over, seen) = (is_over.clone(), seen.clone());
            let (user, password) = (cluster.app_name().to_owned(), cluster.password().to_owned());
            let mut config = pool.client_config(&user, database);
            config.password(&password);
            thread::spawn(move || read(&config, &is_over, &seen))
        };
        let threads = (0..READERS).map(reader).collect();
        Self { is_over, seen, threads }
    }

    /// Takes what they have seen since the last time.
    fn take(&self) -> Seen {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Looks at what they see from now on, for a while.
    fn look(&self) -> Seen {
        // What is under way is of before.
        thread::sleep(Duration::from_millis(200));
        self.take();
        thread::sleep(LOOKING);
        self.take()
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn read(config: &postgres::Config, is_over: &AtomicBool, seen: &Mutex<Seen>) {
    const SQL: &str = "SELECT inet_server_port(), pg_is_in_recovery()";
    let mut client = config.connect(postgres::NoTls).unwrap();
    let mut statement = client.prepare(SQL).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match client.query_one(&statement, &[]) {
            Ok(row) => {
                let mut seen = seen.lock().unwrap();
                *seen.ports.entry(row.get(0)).or_default() += 1;
                seen.primaries += u32::from(!row.get::<_, bool>(1));
                seen.longest = seen.longest.max(begun.elapsed());
            }
            Err(error) => {
                assert!(crate::client_is_lost(&error), "{error:?}");
                seen.lock().unwrap().lost += 1;
                client = config.connect(postgres::NoTls).unwrap();
                statement = client.prepare(SQL).unwrap();
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A standby that does not replay. Patroni ends that at each of its turns, and so it is asked for again and again.
struct Paused {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Paused {
    fn new(cluster: &TestCluster, node: usize) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (mut client, ends) = (cluster.superuser(node), is_over.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                client.batch_execute("SELECT pg_wal_replay_pause()").unwrap();
                thread::sleep(Duration::from_millis(5));
            }
            client.batch_execute("SELECT pg_wal_replay_resume()").unwrap();
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|it| it.is_ok()));
    }
}

fn port(cluster: &TestCluster, node: usize) -> i32 {
    cluster.postgres(node).port().into()
}

fn standbys(cluster: &TestCluster) -> Vec<usize> {
    let leader = cluster.leader();
    (0..cluster.nodes()).filter(|node| *node != leader).collect()
}

fn ports(cluster: &TestCluster, nodes: &[usize]) -> Vec<i32> {
    let mut ports: Vec<_> = nodes.iter().map(|node| port(cluster, *node)).collect();
    ports.sort_unstable();
    ports
}

/// Waits until readers are at those nodes and at no others, and none of them has been disconnected meanwhile.
fn are_at(readers: &Readers, cluster: &TestCluster, nodes: &[usize], why: &str) {
    let expected = ports(cluster, nodes);
    let mut lost = 0;
    eventually(why, || {
        let seen = readers.look();
        lost += seen.lost;
        seen.ports.keys().copied().collect::<Vec<_>>() == expected && seen.primaries == 0
    });
    assert_eq!(lost, 0, "{why}");
}

#[test]
fn readers_go_to_standbys() {
    let _alone = alone();
    let cluster = TestCluster::start(3);
    let pool = pool(&cluster);
    connect(&cluster, &pool, "postgres").batch_execute("CREATE TABLE written (id int)").unwrap();
    let readers = Readers::begin(&cluster, &pool, "postgres:standby");
    let both = standbys(&cluster);
    are_at(&readers, &cluster, &both, "they are spread over both standbys");
    answers_are_postgresqls_own(&cluster, &pool);
    says_where_readers_are(&cluster, &pool);

    let paused = Paused::new(&cluster, both[0]);
    are_at(&readers, &cluster, &both[1..], "one is paused");
    drop(paused);
    are_at(&readers, &cluster, &both, "it goes on, and gets its share");

    falls_behind(&cluster, &pool, &readers);

    let killed = both[1];
    readers.take();
    cluster.kill_node(killed);
    eventually("readers leave a node that is gone", || readers.look().ports.len() == 1);
    let lost = readers.take().lost;
    assert!(lost <= READERS as u32, "{lost} readers were in the midst of a query");
    are_at(&readers, &cluster, &both[..1], "one is gone");
    cluster.start_node(killed);
    cluster.wait_ready();
    are_at(&readers, &cluster, &both, "it is there again");

    readers.take();
    let to = cluster.standby();
    cluster.switchover(to);
    cluster.wait_ready();
    let seen = readers.take();
    println!("a switchover: {seen:?}");
    are_at(&readers, &cluster, &standbys(&cluster), "another one is the primary");

    no_standby_is_left(&cluster, &pool, &readers);
    readers.end();
    println!("{}", pool.log().lines().filter(|line| line.contains("readers' nodes")).collect::<Vec<_>>().join("\n"));
}

/// Writes are refused by PostgreSQL itself, and settings, prepared statements and blocks are there as elsewhere.
fn answers_are_postgresqls_own(cluster: &TestCluster, pool: &TestPool) {
    let mut client = connect(cluster, pool, "postgres:standby");
    let error = client.batch_execute("INSERT INTO written VALUES (1)").unwrap_err();
    assert_eq!(error.code().map(postgres::error::SqlState::code), Some("25006"));
    client.batch_execute("SET work_mem = '7MB'").unwrap();
    let shown = client.prepare("SELECT current_setting('work_mem')").unwrap();
    for _ in 0..3 {
        let mut block = client.transaction().unwrap();
        assert_eq!(block.query_one(&shown, &[]).unwrap().get::<_, String>(0), "7MB");
        let error = block.batch_execute("CREATE TEMP TABLE t ()").unwrap_err();
        assert_eq!(error.code().map(postgres::error::SqlState::code), Some("25006"));
        block.rollback().unwrap();
    }
    let error = client.batch_execute("LISTEN news").unwrap_err();
    assert_eq!(error.code().map(postgres::error::SqlState::code), Some("25006"));
}

fn says_where_readers_are(cluster: &TestCluster, pool: &TestPool) {
    let mut console = connect(cluster, pool, "pgbouncer");
    let rows = console.simple_query("SHOW NODES").unwrap();
    let rows: Vec<_> = rows
        .iter()
        .filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) if row.get("cluster") == Some("main") => Some(row),
            _ => None,
        })
        .collect();
    assert_eq!(rows.len(), 3);
    let primary = cluster.cluster().nodes()[cluster.leader()].name.clone();
    for row in rows {
        let is_primary = row.get("node") == Some(&*primary);
        let expected =
            if is_primary { ("primary", "", Some("it is the primary")) } else { ("standby", "*:ro, *:standby", None) };
        let shown = (row.get("role").unwrap(), row.get("databases").unwrap(), row.get("unfit"));
        assert_eq!(shown, expected);
        assert_eq!(row.get("clients") == Some("0"), is_primary, "{row:?}");
    }
}

/// A standby that has nothing replayed for longer than `max_lag`, though its replay is not paused.
fn falls_behind(cluster: &TestCluster, pool: &TestPool, readers: &Readers) {
    let both = standbys(cluster);
    let mut holder = cluster.superuser(both[0]);
    // A query that replay has to wait for.
    holder.batch_execute("ALTER SYSTEM SET max_standby_streaming_delay = -1").unwrap();
    holder.batch_execute("SELECT pg_reload_conf()").unwrap();
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM written").unwrap();
    let mut writer = connect(cluster, pool, "postgres");
    writer.batch_execute("DROP TABLE written; CREATE TABLE written (id int)").unwrap();
    are_at(readers, cluster, &both[1..], "one is too far behind");
    holder.batch_execute("COMMIT").unwrap();
    are_at(readers, cluster, &both, "it has caught up");
    holder.batch_execute("ALTER SYSTEM RESET max_standby_streaming_delay").unwrap();
    holder.batch_execute("SELECT pg_reload_conf()").unwrap();
}

/// Both standbys are paused: one name waits, another says why there is none, and a third one leads to the primary.
fn no_standby_is_left(cluster: &TestCluster, pool: &TestPool, readers: &Readers) {
    let both = standbys(cluster);
    let mut flexible = connect(cluster, pool, "postgres:ro");
    let is_standby =
        |client: &mut postgres::Client| client.query_one("SELECT pg_is_in_recovery()", &[]).unwrap().get::<_, bool>(0);
    assert!(is_standby(&mut flexible));
    let mut hasty = connect(cluster, pool, "postgres:hasty");
    let paused: Vec<_> = both.iter().map(|node| Paused::new(cluster, *node)).collect();
    eventually("readers go to the primary", || !is_standby(&mut flexible));
    let error = flexible.batch_execute("CREATE TABLE refused ()").unwrap_err();
    assert_eq!(error.code().map(postgres::error::SqlState::code), Some("25006"), "also there");
    eventually("there is none", || hasty.batch_execute("SELECT 1").is_err());
    let Err(error) = pool.connect(cluster.app_name(), Some(cluster.password()), "postgres:hasty") else {
        panic!("there is no standby")
    };
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57P03");
    let detail = error.detail().unwrap();
    assert!(detail.matches("its replay is paused").count() == 2 && detail.contains("it is the primary"), "{detail}");
    let seen = readers.look();
    assert!(seen.ports.is_empty() && seen.lost == 0, "they wait: {seen:?}");
    drop(paused);
    are_at(readers, cluster, &both, "they go on");
    eventually("readers leave the primary", || is_standby(&mut flexible));
}
