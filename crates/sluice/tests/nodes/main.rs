//! `sluice serve` before a cluster of Patroni's: the pool follows the primary, whatever becomes of it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod alike;
mod causal;
mod commands;
mod failover;
#[path = "../common/ledger.rs"]
mod ledger;
mod readers;
mod subscriber;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use sluice_testkit::{Auth, Case, Driver, Mode, PoolConfig, TestCluster, TestPool, Version, becomes, eventually};

use ledger::{Ledger, Servers};

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Held by the test that has its cluster: two of them at once want more of the machine than elections have time for.
static ONE_CLUSTER: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time for which writers go on behind a fault, so that there is something to lose.
const GOING_ON: Duration = Duration::from_secs(1);

/// The time in which processes end that have lost their postmaster.
const SETTLING: Duration = Duration::from_millis(300);

impl Servers for TestCluster {
    fn nodes(&self) -> usize {
        self.nodes()
    }

    fn leader(&self) -> usize {
        self.leader()
    }

    fn try_superuser(&self, node: usize) -> Result<postgres::Client, postgres::Error> {
        self.try_superuser(node)
    }

    fn app_name(&self) -> &str {
        self.app_name()
    }

    fn password(&self) -> &str {
        self.password()
    }
}

fn pool(cluster: &TestCluster, known: &[usize], driver: Driver) -> TestPool {
    let urls = cluster.rest_urls();
    let known: Vec<_> = known.iter().map(|node| format!("\"{}\"", urls[*node])).collect();
    let sections = format!(
        "[[cluster]]\nname = \"main\"\npatroni = [{}]\nfailover_timeout = \"2min\"\n\
         [[database]]\nname = \"*\"\ncluster = \"main\"\n",
        known.join(", ")
    );
    let app = (cluster.app_name().to_owned(), cluster.password().to_owned());
    let case = Case::new(Version::V15, driver, Mode::Transaction);
    PoolConfig::without_databases(SLUICE, case).auth(Auth::Scram(vec![app])).section(&sections).start()
}

fn connect(cluster: &TestCluster, pool: &TestPool) -> postgres::Client {
    pool.connect(cluster.app_name(), Some(cluster.password()), "postgres").unwrap()
}

/// Three nodes, writers, and one fault after the other. Nothing that was acknowledged is lost, an idle client notices
/// nothing, and whoever logs in meanwhile waits.
#[test]
fn clients_go_on_with_the_next_primary() {
    let _alone = alone();
    let cluster = TestCluster::start(3);
    // Any member tells of the others.
    let pool = pool(&cluster, &[1], Driver::Uring);
    let mut idle = connect(&cluster, &pool);
    idle.batch_execute("SET application_name = 'idle'; SET work_mem = '7MB'").unwrap();
    let shown =
        idle.prepare("SELECT current_setting('work_mem') || ', ' || current_setting('application_name')").unwrap();
    let mut still_there = |fault: &str| {
        let shown: String = idle.query_one(&shown, &[]).unwrap_or_else(|error| panic!("{fault}: {error:?}")).get(0);
        assert_eq!(shown, "7MB, idle", "{fault}");
    };
    still_there("no fault");
    let ledger = Ledger::begin(&cluster, &pool);

    let mut waits = Vec::new();
    let first = cluster.leader();
    cluster.switchover(cluster.standby());
    let second = cluster.leader();
    assert_ne!(first, second);
    still_there("a switchover");
    thread::sleep(GOING_ON);
    waits.push(("a switchover", ledger.longest()));

    cluster.wait_ready();
    ledger.longest();
    cluster.kill_postmaster(second);
    // What is asked of a process that is dying at that moment may be lost with it.
    thread::sleep(SETTLING);
    still_there("the primary's postmaster is killed");
    thread::sleep(GOING_ON);
    waits.push(("the primary's postmaster is killed", ledger.longest()));

    cluster.wait_ready();
    ledger.longest();
    let third = cluster.leader();
    cluster.kill_node(third);
    thread::scope(|scope| {
        let log_in = scope.spawn(|| connect(&cluster, &pool).query_one("SELECT 1", &[]).map(|_| ()));
        // The others have to be silent for longer before anybody else is elected.
        thread::sleep(Duration::from_millis(300));
        assert!(!log_in.is_finished(), "there is no primary yet");
        still_there("the primary's host is lost");
        log_in.join().unwrap().unwrap();
    });
    thread::sleep(GOING_ON);
    waits.push(("the primary's host is lost", ledger.longest()));
    cluster.start_node(third);
    cluster.wait_ready();

    let told = ledger.end(&cluster);
    assert!(told.acknowledged > 100, "{told}");
    let log = pool.log();
    assert!(log.contains("primary: node"), "{log}");
    let waits = waits.iter().map(|(fault, wait)| format!("{fault}: {:.1} s", wait.as_secs_f64()));
    println!("the longest waits: {}; {told}", waits.collect::<Vec<_>>().join(", "));
}

/// A primary that is stopped where it is, is replaced, and goes on: it thinks that it is the primary still, and nobody
/// is served by it.
#[test]
fn a_primary_that_wakes_up_again_is_none() {
    let _alone = alone();
    let cluster = TestCluster::start(3);
    let pool = pool(&cluster, &[0, 1, 2], Driver::Epoll);
    let before = cluster.leader();
    let mut client = connect(&cluster, &pool);
    client.batch_execute("CREATE TABLE seen (id int)").unwrap();
    cluster.freeze(before);
    // It does not answer, and is not gone: another one comes when its lease has ended.
    client.batch_execute("SELECT 1").map_or_else(|error| assert!(client_is_lost(&error), "{error}"), drop);
    let mut client = connect(&cluster, &pool);
    client.batch_execute("INSERT INTO seen VALUES (1)").unwrap();
    cluster.thaw(before);
    for _ in 0..50 {
        let row = client.query_one("SELECT inet_server_port(), pg_is_in_recovery()", &[]).unwrap();
        assert_ne!(row.get::<_, i32>(0), i32::from(cluster.postgres(before).port()));
        assert!(!row.get::<_, bool>(1));
        thread::sleep(Duration::from_millis(20));
    }
    eventually("it has found its place", || cluster.look().members.len() == 3);
    cluster.wait_ready();
    assert_ne!(cluster.leader(), before);
}

/// Its configuration is changed, and it is restarted in its place: no other node is promoted, and it begins no timeline.
#[test]
fn a_primary_at_another_address_is_followed() {
    let _alone = alone();
    let cluster = TestCluster::start(2);
    let pool = pool(&cluster, &[0, 1], Driver::Uring);
    let primary = cluster.leader();
    // What is under way when the address of before is left is lost.
    let place = || -> (String, i32) {
        let row = connect(&cluster, &pool)
            .query_one("SELECT host(inet_server_addr()), timeline_id FROM pg_control_checkpoint()", &[]);
        row.map_or_else(|error| (error.to_string(), 0), |row| (row.get(0), row.get(1)))
    };
    let (address, timeline) = place();
    assert_eq!(address, "127.0.0.1");
    cluster.move_postgres(primary, "127.0.0.2");
    assert_eq!(place(), ("127.0.0.1".to_owned(), timeline), "it is not there before it has been restarted");
    cluster.restart_postgres(primary);
    becomes("it is followed", ("127.0.0.2".to_owned(), timeline), place);
    // In the place where it is known, too.
    cluster.restart_postgres(primary);
    eventually("the log says that it is over", || pool.log().contains("is its primary again, after "));
    assert_eq!(cluster.leader(), primary);
}

fn client_is_lost(error: &postgres::Error) -> bool {
    // 57P01 is what PostgreSQL says itself, if there is time for that.
    error.is_closed() || error.code().is_some_and(|it| it.code().starts_with("08") || it.code() == "57P01")
}
