//! A subscriber of logical replication, by a slot that Patroni keeps on all nodes: whatever becomes of the primary, it has
//! what was committed, and nothing else.

use std::{fmt::Write, thread, time::Duration};

use sluice_instance::cluster::{LogicalSlots, Reach};
use sluice_testkit::{TestCluster, TestServer, Version, eventually};

use crate::{
    GOING_ON, alone,
    commands::{Desk, pool},
    ledger::Ledger,
};

/// The entries of a ledger, as one text.
const ENTRIES: &str = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM ledger";

/// Time for what is under way to come everywhere that it comes to.
const UNDER_WAY: Duration = Duration::from_secs(1);

#[test]
fn a_subscriber_has_what_was_committed() {
    let _alone = alone();
    let cluster = TestCluster::start_version(3, Version::V15, &[]);
    let pool = pool(&cluster);
    let desk = Desk::new(&cluster, &pool);
    let libraries = "postgresql.parameters.output_plugin_libraries=pgoutput, sluice";
    desk.says(&["config", "set", "postgresql.parameters.wal_level=logical", libraries]);
    desk.says(&["restart", "--pending"]);
    cluster.wait_ready();
    let ledger = Ledger::begin(&cluster, &pool);
    let subscriber = subscribe(&cluster, &desk);
    for loss in [killed, frozen, ahead_of_standbys] {
        cluster.wait_ready();
        is_served_everywhere(&cluster);
        ledger.wait_for_writes();
        thread::sleep(GOING_ON);
        loss(&cluster);
        ledger.wait_for_writes();
    }
    cluster.wait_ready();
    println!("{}", ledger.end(&cluster));
    let committed = cluster.superuser(cluster.leader()).query_one(ENTRIES, &[]).unwrap().get::<_, String>(0);
    let mut replicated = String::new();
    eventually("the subscriber has all of it", || {
        replicated = subscriber.value(ENTRIES);
        committed.split(' ').next_back() == replicated.split(' ').next_back() || replicated.len() >= committed.len()
    });
    // What it has not by then it never gets.
    thread::sleep(UNDER_WAY);
    assert_eq!(differences(&committed, &subscriber.value(ENTRIES)), "");
}

/// The entries that one has and the other has not.
fn differences(committed: &str, replicated: &str) -> String {
    let sets = [committed, replicated].map(|text| text.split(' ').collect::<std::collections::BTreeSet<_>>());
    let mut said = String::new();
    for (what, one, other) in [("missing", 0, 1), ("never committed", 1, 0)] {
        for entry in sets[one].difference(&sets[other]) {
            let _ = write!(said, "{entry} {what}, ");
        }
    }
    said
}

/// A server elsewhere that subscribes to the ledger, by a slot that all nodes have.
fn subscribe(cluster: &TestCluster, desk: &Desk) -> TestServer {
    // What a slot sees first has to know of the publication.
    let mut primary = cluster.superuser(cluster.leader());
    primary.batch_execute("CREATE PUBLICATION entries FOR TABLE ledger").unwrap();
    desk.says(&[
        "config",
        "set",
        "slots.elsewhere.type=logical",
        "slots.elsewhere.database=postgres",
        "slots.elsewhere.plugin=sluice",
    ]);
    has_its_slot_everywhere(cluster);
    let subscriber =
        TestServer::start(Version::V15, &[("wal_receiver_timeout", "2s"), ("wal_retrieve_retry_interval", "500ms")]);
    subscriber.execute("CREATE TABLE ledger (id bigint PRIMARY KEY)");
    let nodes = 0..cluster.nodes();
    let hosts = vec!["127.0.0.1"; cluster.nodes()].join(",");
    let ports: Vec<_> = nodes.map(|node| cluster.postgres(node).port().to_string()).collect();
    subscriber.execute(&format!(
        "CREATE SUBSCRIPTION elsewhere CONNECTION 'host={hosts} port={} user={} password={} dbname=postgres \
         target_session_attrs=read-write connect_timeout=2' PUBLICATION entries \
         WITH (create_slot = false, slot_name = 'elsewhere')",
        ports.join(","),
        cluster.superuser_name(),
        cluster.password()
    ));
    eventually("what was there before is copied", || {
        subscriber.value("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "t"
    });
    subscriber
}

/// A query's count on a node; none while that is away.
fn count(cluster: &TestCluster, node: usize, sql: &str) -> i64 {
    let client = cluster.try_superuser(node).ok();
    client.and_then(|mut client| client.query_one(sql, &[]).ok()).map_or(0, |row| row.get(0))
}

/// Waits until each node has the slot, and the primary keeps what standbys need of the catalogs.
fn has_its_slot_everywhere(cluster: &TestCluster) {
    const SLOT: &str = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'elsewhere'";
    const KEPT: &str =
        "SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND catalog_xmin IS NOT NULL";
    eventually("each node has the slot", || (0..cluster.nodes()).all(|node| count(cluster, node, SLOT) == 1));
    eventually("the primary keeps catalogs for both standbys", || count(cluster, cluster.leader(), KEPT) == 2);
}

/// Waits until each standby could go on with the slot as the primary: a copy lacks the snapshots of its decoding at first,
/// as the node has that was the primary before.
fn is_served_everywhere(cluster: &TestCluster) {
    has_its_slot_everywhere(cluster);
    let standbys: Vec<_> = (0..cluster.nodes()).filter(|node| *node != cluster.leader()).collect();
    let is_served = |node: usize| {
        let slots = LogicalSlots::ask(Reach::Here(&cluster.cluster().nodes()[node].pgdata)).unwrap();
        slots.is_some_and(|slots| slots.unserved("elsewhere").is_none())
    };
    eventually("each standby could serve the slot", || standbys.iter().all(|node| is_served(*node)));
}

/// The host of the primary is lost.
fn killed(cluster: &TestCluster) {
    let primary = cluster.leader();
    cluster.kill_node(primary);
    eventually("there is another primary", || cluster.leader() != primary);
    cluster.start_node(primary);
}

/// It is stopped where it is, with its subscriber's connection, and goes on later.
fn frozen(cluster: &TestCluster) {
    let primary = cluster.leader();
    cluster.freeze(primary);
    eventually("there is another primary", || cluster.leader() != primary);
    thread::sleep(UNDER_WAY);
    cluster.thaw(primary);
}

/// The primary has lost its standbys, and not its subscriber, before it is lost itself: what it has written meanwhile is
/// on its disk only, and nobody was told that it is committed.
fn ahead_of_standbys(cluster: &TestCluster) {
    let primary = cluster.leader();
    let standbys: Vec<_> = (0..cluster.nodes()).filter(|node| *node != primary).collect();
    // Patroni would write at once that nobody but this one may be the primary.
    cluster.freeze_patroni(primary);
    // One that is stopped where it is would find in its socket what it has not read yet.
    standbys.iter().for_each(|node| cluster.kill_node(*node));
    thread::sleep(UNDER_WAY);
    cluster.kill_node(primary);
    standbys.iter().for_each(|node| cluster.start_node(*node));
    eventually("there is another primary", || cluster.leader() != primary);
    cluster.start_node(primary);
}
