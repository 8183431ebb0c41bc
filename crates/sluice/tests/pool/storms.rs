//! Storms of failures: PostgreSQL killed under load, clients killed under load, thousands of logins. Afterwards the
//! counts of clients, servers, files and memory are where they were.

use std::{
    net::TcpStream,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{
    Case, Database, Message, PoolConfig, Raw, Script, TestPool, TestServer, becomes, eventually, matrix, proc,
    raw::transcript,
};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::{SLUICE, config, database};

matrix!(transaction: postgresql_is_killed_under_load, ten_thousand_connects, clients_are_killed_under_load);

/// Files and memory of a pool.
#[derive(Debug)]
struct Figures {
    files: usize,
    rss_kb: u64,
}

impl Figures {
    fn of(pool: &TestPool) -> Self {
        Self { files: pool.open_files(), rss_kb: pool.rss_kb() }
    }

    /// As before, but for servers that may be more or fewer now, and memory that is kept for the next storm.
    fn are_back(&self, pool: &TestPool, servers: usize) {
        eventually("the pool's files are closed", || pool.open_files() <= self.files + servers);
        let now = Self::of(pool);
        assert!(now.rss_kb < self.rss_kb + (8 << 10), "{now:?}, before {self:?}");
    }
}

/// One client's life until `stop`: quick transactions, and a new connection whenever one is lost. It counts what went
/// well, and the errors, all of which must be clear.
fn client(pool: &TestPool, database: &Database<'_>, stop: &AtomicBool, good: &AtomicUsize, bad: &AtomicUsize) {
    let batch = Script::new().unnamed("SELECT $1::int + 1", &[Some("41")]).sync();
    while !stop.load(Ordering::Relaxed) {
        let mut raw = pool.raw();
        let parameters = [("user", "app"), ("database", &*database.name)];
        let mut messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
        while is_ready(&messages) && !stop.load(Ordering::Relaxed) {
            raw.send(&batch);
            messages = raw.until_ready(1);
            if is_ready(&messages) {
                assert_eq!(transcript(&messages), "1 2 T(?column?) D(42) C(SELECT 1) Z(I)");
                good.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !is_ready(&messages) {
            // The last word tells why, with a SQLSTATE that says so.
            let last = transcript(&messages[messages.len().saturating_sub(1)..]);
            let known = ["57P01", "57P02", "57P03", "08006", "08007", "08001", "53300"];
            assert!(
                known.iter().any(|code| last == format!("E(FATAL {code})")),
                "no clear error: {}",
                transcript(&messages)
            );
            bad.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_ready(messages: &[Message]) -> bool {
    messages.last().is_some_and(|message| message.tag == b'Z')
}

fn postgresql_is_killed_under_load(case: Case) {
    // A cluster of its own: the others' tests go on.
    let server = TestServer::start(case.version, &[]);
    let database = server.database();
    let pool = PoolConfig::new(SLUICE, case, &server).size(4).workers(2).pool("backoff_max = \"200ms\"").start();
    pool.raw_app(&database);
    let before = Figures::of(&pool);
    let (stop, good, bad) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| client(&pool, &database, &stop, &good, &bad));
        }
        let flows = |what: &str| {
            let sofar = good.load(Ordering::Relaxed);
            eventually(what, || good.load(Ordering::Relaxed) > sofar + 100);
        };
        flows("work is done");
        for _ in 0..2 {
            server.crash();
            flows("work is done again");
        }
        // A restart in order, and a while without a server at all.
        server.down(sluice_instance::StopMode::Fast);
        thread::sleep(Duration::from_millis(300));
        server.up();
        flows("work is done after a restart");
        stop.store(true, Ordering::Relaxed);
    });
    assert!(bad.load(Ordering::Relaxed) > 0, "nobody noticed");
    assert!(database.connections() <= 4);
    becomes("busy servers", 0, || database.count("state <> 'idle'"));
    before.are_back(&pool, 4);
    drop(pool);
}

fn pgbench(pool: &TestPool, database: &Database<'_>, protocol: &str) -> Child {
    let mut run = database.server.program("pgbench");
    run.args(["-n", "-c", "8", "-j", "1", "-T", "60", "-M", protocol, "-h", "127.0.0.1", "-U", "app", "-p"]);
    run.arg(pool.address().port().to_string()).arg(&database.name);
    run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn clients_are_killed_under_load(case: Case) {
    let database = database(case);
    let server = database.server;
    let mut fill = server.program("pgbench");
    fill.args(["-i", "-q", "-U", "app", "-h"]).arg(server.socket_dir()).args(["-p", &server.port().to_string()]);
    assert!(fill.arg(&database.name).output().unwrap().status.success());
    let pool = config(case).size(5).start();
    pool.raw_app(&database);
    let before = Figures::of(&pool);
    for protocol in ["simple", "extended", "prepared", "simple"] {
        let mut children: Vec<Child> = (0..3).map(|_| pgbench(&pool, &database, protocol)).collect();
        let done = || {
            server
                .superuser(&database.name)
                .query_one("SELECT count(*) FROM pgbench_history", &[])
                .unwrap()
                .get::<_, i64>(0)
        };
        let sofar = done();
        eventually("transactions", || done() > sofar + 100);
        for child in &mut children {
            proc::send(child.id(), proc::Kind::SIGKILL);
            child.wait().unwrap();
        }
        // Nothing is held, nothing runs, and nobody has to wait.
        becomes("busy servers", 0, || database.count("state <> 'idle'"));
        let mut client = pool.raw_app(&database);
        assert_eq!(
            client.query("BEGIN; LOCK TABLE pgbench_branches NOWAIT; COMMIT"),
            "C(BEGIN) C(LOCK TABLE) C(COMMIT) Z(I)"
        );
        assert_eq!(database.connections(), 5);
    }
    before.are_back(&pool, 4);
    // The books balance: no transaction was done by halves.
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches) \
                AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)";
    assert_eq!(pool.raw_app(&database).value(sums), "t");
}

/// Connects, some with a query, some cut off, some with a goodbye.
fn connects(pool: &TestPool, database: &Database<'_>, times: usize) {
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app"), ("database", &*database.name)]);
    for i in 0..times {
        match i % 4 {
            0 => {
                let mut raw = pool.raw();
                raw.send_bytes(&packet);
                raw.until_ready(1);
                raw.send(&Script::new().terminate());
                assert_eq!(raw.until_end(), []);
            }
            1 => {
                let mut raw = pool.raw_app(database);
                assert_eq!(raw.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
            }
            2 => drop(pool.raw_app(database)),
            _ => {
                let mut raw: Raw = pool.raw();
                raw.send_bytes(&packet[..i % packet.len()]);
            }
        }
    }
}

fn ten_thousand_connects(case: Case) {
    let database = database(case);
    let pool = config(case).size(3).workers(2).start();
    connects(&pool, &database, 500);
    let before = Figures::of(&pool);
    let servers = database.connections();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| connects(&pool, &database, 2_500));
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    before.are_back(&pool, 3);
    assert!(database.connections() <= servers.max(3));
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // Two thousand at once, idle.
    let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(pool.address()).unwrap()).collect();
    let mut clients: Vec<Raw> = (0..1_000).map(|_| pool.raw_app(&database)).collect();
    assert_eq!(clients[999].query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    let each = pool.rss_kb().saturating_sub(before.rss_kb) / 1_500;
    assert!(each <= 4, "{each} KiB for an idle client");
    drop((idle, clients));
    before.are_back(&pool, 3);
}
