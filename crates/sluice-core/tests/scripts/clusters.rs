//! A cluster's primary: while nobody knows which node that is, when another one becomes it, and a node that is none.

use std::time::Duration;

use sluice_control::{
    Database,
    address::Address,
    settings::{PoolMode, PoolSettings, Sharing},
};

use crate::{
    one, seated,
    table::{Table, answers, query, scripted},
};

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

fn settings() -> PoolSettings {
    PoolSettings { failover_timeout: Some(FAILOVER_TIMEOUT), ..one() }
}

/// The database of a cluster.
fn clustered(settings: PoolSettings) -> Database {
    Database { address: Address::Primary("main".into()), cluster: Some("main".into()), ..scripted(settings) }
}

#[test]
fn clients_wait_for_a_primary_that_nobody_knows_yet() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), None);
    let client = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT - Duration::from_secs(1));
    assert_eq!((table.hears(client), table.connects().len()), ("R".to_owned(), 0));
    table.has_primary(clustered(settings()), Some("a"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn they_do_not_wait_for_ever() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), None);
    let client = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT);
    let error = table.hears_error(client);
    assert!(error.contains("57P03") && error.contains("the primary of cluster \"main\" is not known"), "{error}");
}

#[test]
fn connects_that_fail_are_tried_until_there_is_a_primary() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.stranger("app");
    for _ in 0..200 {
        table.refuses("E(57P03)");
        table.passes(Duration::from_millis(200));
    }
    assert_eq!(table.hears(client), "R", "40 s, and neither connect_timeout nor wait_timeout count");
    table.has_primary(clustered(settings()), Some("b"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn a_standby_is_not_taken_for_the_primary() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    table.reports_at_login("in_hot_standby", "on");
    let client = table.stranger("app");
    table.connects();
    assert_eq!((table.hears(client), table.servers().len()), ("R".to_owned(), 0), "it is not promoted yet");
    table.reports_at_login("in_hot_standby", "off");
    table.passes(Duration::from_millis(200));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn all_servers_of_a_node_that_is_not_the_primary_any_more_are_closed_at_once() {
    let mut table = Table::new(PoolSettings { size: 3, ..settings() });
    table.has_primary(clustered(PoolSettings { size: 3, ..settings() }), Some("a"));
    let (idle, amid) = (table.client(), table.client());
    table.says(amid, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(amid), "C(BEGIN) Z(T)");
    table.has_primary(clustered(PoolSettings { size: 3, ..settings() }), Some("b"));
    assert!(table.is_closed(server), "what it said from now on might be true there only");
    assert_eq!(table.hears(amid), "E(08006)");
    assert!(!table.is_closed(idle));
    table.says(idle, &query("SELECT 1"));
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn a_session_with_a_server_of_its_own_ends_with_the_node() {
    let sharing = Sharing { mode: PoolMode::Session, ..Sharing::default() };
    let session = PoolSettings { sharing, ..settings() };
    let mut table = Table::new(session.clone());
    table.has_primary(clustered(session.clone()), Some("a"));
    let client = table.client();
    table.has_primary(clustered(session.clone()), Some("b"));
    assert_eq!(table.hears(client), "E(08006)");
}

#[test]
fn a_database_that_an_operator_moves_out_of_a_cluster_ends_its_transactions_there() {
    let (mut table, _, _) = seated(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.publishes(scripted(settings()));
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}
