//! A cluster of three nodes, as tests use it: a switchover, a node that is lost and comes back, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use sluice_instance::cluster::rest::Api;
use sluice_testkit::{PATIENCE, TestCluster, eventually, proc::is_alive};

#[test]
fn three_nodes_switch_over_lose_one_and_leave_nothing() {
    let cluster = TestCluster::start(3);
    let (first, next) = (cluster.leader(), cluster.standby());
    assert_eq!(cluster.look().synchronous(), 2);
    let mut app = cluster.app(first).unwrap();
    app.batch_execute("CREATE TABLE ledger (id int); INSERT INTO ledger VALUES (1)").unwrap();
    let names: String = app.query_one("SELECT current_setting('synchronous_standby_names')", &[]).unwrap().get(0);
    assert!(names.starts_with("ANY 1 "), "{names}");

    // etcd answers those who show its certificate, and nobody else.
    let etcd = &cluster.cluster().etcd_members()[0];
    let status = |address| Api::default().get(address, "/health", PATIENCE).ok().map(|answer| answer.status);
    assert_eq!(status(etcd.health.unwrap()), Some(200));
    assert_ne!(status(etcd.client), Some(200));

    cluster.switchover(next);
    assert_eq!(cluster.leader(), next);
    cluster.wait_ready();
    cluster.app(next).unwrap().batch_execute("INSERT INTO ledger VALUES (2)").unwrap();

    cluster.kill_node(first);
    assert!(cluster.try_superuser(first).is_err());
    cluster.app(next).unwrap().batch_execute("INSERT INTO ledger VALUES (3)").unwrap();
    cluster.start_node(first);
    let members = cluster.wait_ready();
    assert_eq!(members.members.len(), 3, "{members}");
    eventually("the lost node has caught up", || {
        let count = cluster.superuser(first).query_one("SELECT count(*) FROM ledger", &[]);
        count.is_ok_and(|row| row.get::<_, i64>(0) == 3)
    });

    let processes = cluster.processes();
    assert!(processes.len() > 3 * 5 + 3, "{processes:?}");
    cluster.stop();
    let left: Vec<u32> = processes.into_iter().filter(|pid| is_alive(*pid)).collect();
    assert_eq!(left, [0; 0]);
}

#[test]
fn one_node_and_two() {
    for nodes in [1, 2] {
        let cluster = TestCluster::start(nodes);
        let mut app = cluster.app(cluster.leader()).unwrap();
        app.batch_execute("CREATE TABLE t (id int)").unwrap();
        assert_eq!(cluster.look().synchronous(), nodes - 1);
        let processes = cluster.processes();
        drop(cluster);
        assert!(!processes.iter().any(|pid| is_alive(*pid)));
    }
}

/// A standby that has stopped where it is holds commits up for a moment only, and counts again once it goes on.
#[test]
fn two_nodes_go_on_alone_without_a_silent_standby() {
    let cluster = TestCluster::start(2);
    let (leader, standby) = (cluster.leader(), cluster.standby());
    let mut app = cluster.app(leader).unwrap();
    app.batch_execute("CREATE TABLE ledger (id int)").unwrap();
    cluster.freeze(standby);
    let begin = Instant::now();
    app.batch_execute("INSERT INTO ledger VALUES (1)").unwrap();
    eprintln!("a commit without the standby took {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    cluster.thaw(standby);
    cluster.wait_ready();
}

/// PostgreSQL goes on without its Patroni, and the next one takes it over.
#[test]
fn a_patroni_that_is_killed_leaves_postgresql() {
    let cluster = TestCluster::start(1);
    let (patroni, postmaster) = (cluster.patroni_pid(0), cluster.postmaster_pid(0));
    let mut app = cluster.app(0).unwrap();
    cluster.kill_patroni(0);
    eventually("another Patroni", || cluster.cluster().patroni_pid(0).is_some_and(|pid| pid != patroni));
    cluster.wait_ready();
    assert_eq!(cluster.postmaster_pid(0), postmaster);
    app.batch_execute("SELECT 1").unwrap();
}
