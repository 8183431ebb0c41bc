//! The time without writes when a primary is lost, by how it is lost. Nothing that was acknowledged is missing
//! afterwards. `SLUICE_FAILOVER_RUNS=N` has N of each, `SLUICE_FAILOVER_BY=frozen` those of one kind only, and
//! `SLUICE_FAST_FAILOVER=off` leaves it to the lease.

use std::{env, fmt, net::TcpStream, thread, time::Duration};

use sluice_testkit::{Driver, TestCluster, Version, eventually};

use crate::{GOING_ON, alone, ledger::Ledger, pool};

/// The ways in which a primary is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Patroni and all of PostgreSQL are killed.
    Killed,
    /// They are stopped where they are, and their sockets stay open.
    Frozen,
    /// The postmaster is killed; Patroni lives.
    Postmaster,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "the host is lost",
            Self::Frozen => "the host is frozen",
            Self::Postmaster => "the postmaster is killed",
        })
    }
}

impl Loss {
    fn happen(self, cluster: &TestCluster, node: usize) {
        match self {
            Self::Killed => cluster.kill_node(node),
            Self::Frozen => cluster.freeze(node),
            Self::Postmaster => cluster.kill_postmaster(node),
        }
    }

    fn undo(self, cluster: &TestCluster, node: usize) {
        match self {
            Self::Killed => cluster.start_node(node),
            Self::Frozen => cluster.thaw(node),
            Self::Postmaster => {}
        }
    }
}

#[test]
fn a_lost_primary_is_replaced() {
    let _alone = alone();
    let runs = env::var("SLUICE_FAILOVER_RUNS").map_or(1, |runs| runs.parse().unwrap());
    let is_fast = env::var("SLUICE_FAST_FAILOVER").map_or(true, |switch| switch != "off");
    let cluster = TestCluster::start_spec(3, Version::V15, &[], |spec| spec.fast_failover = is_fast);
    let pool = pool(&cluster, &[0, 1, 2], Driver::Uring);
    let ledger = Ledger::begin(&cluster, &pool);
    let is_wanted =
        |loss: &Loss| env::var("SLUICE_FAILOVER_BY").map_or(true, |name| format!("{loss:?}").to_lowercase() == name);
    for loss in [Loss::Killed, Loss::Frozen, Loss::Postmaster].into_iter().filter(is_wanted) {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..runs {
            cluster.wait_ready();
            ledger.wait_for_writes();
            thread::sleep(GOING_ON);
            let primary = cluster.leader();
            ledger.without_writes();
            loss.happen(&cluster, primary);
            // What was under way may still be answered.
            thread::sleep(Duration::from_millis(100));
            ledger.wait_for_writes();
            thread::sleep(GOING_ON);
            times.push(ledger.without_writes().as_secs_f64());
            loss.undo(&cluster, primary);
        }
        times.sort_by(f64::total_cmp);
        let shown: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{loss}: without writes for {median:.2} s in the median, {worst:.2} s at most ({})", shown.join(", "));
    }
    cluster.wait_ready();
    if is_fast {
        silent_clients_do_not_hold_survivors_up(&cluster, &ledger);
        a_receiver_that_was_left_held_off_is_let_go(&cluster);
    }
    println!("{}", ledger.end(&cluster));
}

/// A server gives a client that has said nothing a minute: its process looks like one that may become a receiver.
fn silent_clients_do_not_hold_survivors_up(cluster: &TestCluster, ledger: &Ledger) {
    ledger.wait_for_writes();
    let (primary, ended) = (cluster.leader(), cluster.ended_leases());
    let silent: Vec<TcpStream> = (0..cluster.nodes())
        .filter(|node| *node != primary)
        .map(|node| TcpStream::connect(cluster.postgres(node)).unwrap())
        .collect();
    ledger.without_writes();
    cluster.kill_node(primary);
    thread::sleep(Duration::from_millis(100));
    ledger.wait_for_writes();
    assert_eq!(cluster.ended_leases(), ended + 1, "the lease was waited for");
    thread::sleep(GOING_ON);
    println!("the same beside silent clients: without writes for {:.2} s", ledger.without_writes().as_secs_f64());
    drop(silent);
    cluster.start_node(primary);
    cluster.wait_ready();
}

/// As a Sluice leaves it that is killed while survivors vote, or a configuration that comes from another node.
fn a_receiver_that_was_left_held_off_is_let_go(cluster: &TestCluster) {
    const SHOW: &str = "SHOW dynamic_library_path";
    let standby = cluster.standby();
    let mut client = cluster.superuser(standby);
    let shown = |client: &mut postgres::Client| client.query_one(SHOW, &[]).unwrap().get::<_, String>(0);
    let before = shown(&mut client);
    let other = cluster.cluster().nodes()[cluster.leader()].home.join("receiver-fence");
    let set = format!("ALTER SYSTEM SET dynamic_library_path = '{}:$libdir'", other.display());
    client.batch_execute(&set).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").unwrap();
    eventually("the receiver is let go", || shown(&mut client) == before);
    let streams = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    eventually("it streams", || client.query_one(streams, &[]).unwrap().get::<_, i64>(0) == 1);
}
