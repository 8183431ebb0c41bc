//! Readers: which of a cluster's nodes they go to, when they leave one, and what they hear.

use std::time::Duration;

use sluice_control::{
    Database,
    address::Address,
    reading::{Lag, Node, NodeState, Reading, Standby, Target},
    settings::{PoolMode, PoolSettings, Sharing},
};

use crate::{
    one,
    table::{Side, Table, answers, bind, execute, parse, query, scripted, sync, terminate},
};

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

fn settings() -> PoolSettings {
    let sharing = Sharing { lazy_begin: false, ..Sharing::default() };
    PoolSettings { failover_timeout: Some(FAILOVER_TIMEOUT), size: 3, sharing, ..one() }
}

/// A database whose readers go to those nodes.
fn read_at(target: Target, settings: PoolSettings) -> Database {
    let reading = Reading { target, lag_max: Duration::from_secs(10), lag_bytes_max: None };
    let (cluster, address) = (Some("main".into()), Address::Readers("main".into()));
    Database { cluster, address, reading: Some(reading), ..scripted(settings) }
}

fn standby(name: &str, change: impl FnOnce(&mut Standby)) -> Node {
    let lag = Lag { time: Some(Duration::ZERO), bytes: Some(0) };
    let mut standby =
        Standby { timeline: 1, system: "7".to_owned(), streams: true, is_paused: false, is_excluded: false, lag };
    change(&mut standby);
    Node { name: name.to_owned(), address: Address::Tcp(name.to_owned(), 5432), state: NodeState::Standby(standby) }
}

fn good(names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| standby(name, |_| {})).collect()
}

/// A table whose readers go to those standbys; the primary is "p".
fn table(names: &[&str]) -> Table {
    let mut table = Table::new(settings());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(read_at(Target::Standby, settings()), Some("p"));
    table.has_nodes(good(names));
    table
}

/// A client that is logged in, and its server, if one was opened for that.
fn comes(table: &mut Table) -> (Side, Option<Side>) {
    let client = table.stranger("app");
    let server = table.connects().first().copied();
    assert!(table.hears(client).ends_with("Z(I)"));
    (client, server)
}

/// Has a client ask for something that it is answered.
fn asks(table: &mut Table, client: Side) -> Side {
    let (server, heard) = asks_and_hears(table, client);
    assert_eq!(heard, "C(SELECT 1) Z(I)");
    server
}

/// The same, with the answer as it hears that.
fn asks_and_hears(table: &mut Table, client: Side) -> (Side, String) {
    table.says(client, &query("SELECT 1"));
    let opened = table.connects();
    let server = opened.into_iter().chain(table.servers()).find(|server| table.hears(*server) == "Q(SELECT 1)");
    let server = server.expect("it has a server");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    (server, table.hears(client))
}

#[test]
fn readers_are_spread_over_the_standbys() {
    let mut table = table(&["a", "b"]);
    for _ in 0..6 {
        comes(&mut table);
    }
    assert_eq!(table.places(), [("a:5432".to_owned(), 3), ("b:5432".to_owned(), 3)]);
    let startup = table.servers()[0];
    assert_eq!(table.opened_with(startup), "default_transaction_read_only=on");
}

#[test]
fn readers_that_come_one_after_another_take_turns() {
    let mut table = table(&["a", "b"]);
    let resident = [comes(&mut table), comes(&mut table)];
    let mut asked: Vec<Side> = Vec::new();
    for _ in 0..4 {
        let (client, _) = comes(&mut table);
        asked.push(asks(&mut table, client));
        table.says(client, &terminate());
    }
    assert_eq!((asked[0], asked[1]), (asked[2], asked[3]));
    assert_ne!(asked[0], asked[1], "the same number of others is at either");
    assert_eq!(resident.len(), 2);
}

#[test]
fn a_standby_that_falls_behind_loses_its_clients_when_their_transactions_end() {
    let mut table = table(&["a"]);
    let (amid, server) = comes(&mut table);
    let server = server.expect("it is the first one");
    let (idle, _) = comes(&mut table);
    table.says(amid, &query("BEGIN READ ONLY"));
    table.hears(server);
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(amid);
    let behind = standby("a", |it| it.lag.time = Some(Duration::from_secs(11)));
    table.has_nodes([vec![behind], good(&["b"])].concat());
    let next = asks(&mut table, idle);
    assert_ne!(next, server, "the next transaction is at another node");
    // What is open goes on.
    table.says(amid, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
    table.says(server, &answers("C(SELECT 1) Z(T)"));
    table.says(amid, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(amid), "C(SELECT 1) Z(T) C(COMMIT) Z(I)");
    assert!(table.is_closed(server), "nobody gets it any more");
    assert_eq!(asks(&mut table, amid), next);
    assert_eq!(table.places(), [("b:5432".to_owned(), 2)]);
}

#[test]
fn where_no_standby_will_do_clients_wait_and_are_told_why() {
    let mut table = table(&["a", "b"]);
    let (client, _) = comes(&mut table);
    let paused = standby("a", |it| it.is_paused = true);
    let silent = Node { state: NodeState::Silent("refused".to_owned()), ..good(&["b"]).remove(0) };
    table.has_nodes(vec![paused.clone(), silent.clone()]);
    table.says(client, &query("SELECT 1"));
    let late = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT - Duration::from_secs(1));
    assert_eq!((table.hears(client), table.hears(late)), (String::new(), "R".to_owned()));
    // They hear of what is so now.
    table.has_nodes(vec![paused, Node { state: NodeState::Down("starting".to_owned()), ..silent }]);
    table.passes(Duration::from_secs(2));
    for client in [client, late] {
        let error = table.hears_error(client);
        for part in ["57P03", "no node of cluster \"main\"", "a: its replay is paused; b: its PostgreSQL is starting"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn those_who_wait_go_on_with_the_first_standby_that_will_do() {
    let mut table = table(&[]);
    let client = table.stranger("app");
    assert!(table.connects().is_empty());
    table.has_nodes(good(&["b"]));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
    asks(&mut table, client);
}

#[test]
fn readers_go_to_the_primary_where_that_is_preferred_to_waiting_and_back() {
    let mut table = Table::new(settings());
    table.reports_at_login("in_hot_standby", "off");
    table.has_primary(read_at(Target::PreferStandby, settings()), Some("p"));
    let (client, server) = comes(&mut table);
    let server = server.expect("it is the first one");
    assert_eq!(table.opened_with(server), "default_transaction_read_only=on", "what writes is refused there as well");
    assert_eq!(table.places(), [("p:5432".to_owned(), 1)]);
    table.reports_at_login("in_hot_standby", "on");
    table.has_nodes(good(&["a"]));
    assert!(table.is_closed(server));
    let (standby, heard) = asks_and_hears(&mut table, client);
    assert_ne!(standby, server);
    assert_eq!(heard, "C(SELECT 1) S(in_hot_standby=on) Z(I)", "it is told where it is");
    assert_eq!(table.places(), [("a:5432".to_owned(), 1)]);
}

#[test]
fn a_node_that_is_no_standby_any_more_serves_no_reader() {
    let mut table = table(&["a"]);
    table.reports_at_login("in_hot_standby", "off");
    let client = table.stranger("app");
    table.connects();
    assert_eq!((table.hears(client), table.servers().len()), ("R".to_owned(), 0), "it has been promoted");
    table.reports_at_login("in_hot_standby", "on");
    table.passes(Duration::from_millis(200));
    let server = table.connects()[0];
    assert!(table.hears(client).ends_with("Z(I)"));
    // A promotion ends no connection, and shows with the next answer.
    table.says(client, &query("SELECT 1"));
    table.hears(server);
    table.says(server, &answers("C(SELECT 1) S(in_hot_standby=off) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) S(in_hot_standby=off) Z(I)");
    assert!(table.is_closed(server));
}

#[test]
fn a_standby_that_comes_gets_its_share_of_clients() {
    let mut table = table(&["a"]);
    let clients: Vec<Side> = (0..6).map(|_| comes(&mut table).0).collect();
    let busy = clients[0];
    table.says(busy, &query("BEGIN READ ONLY"));
    let server = table.servers()[0];
    table.hears(server);
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(busy);
    table.has_nodes(good(&["a", "b"]));
    assert_eq!(table.places(), [("a:5432".to_owned(), 3), ("b:5432".to_owned(), 3)]);
    assert!(!table.is_closed(server), "those who stay keep what they have");
    table.says(busy, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(busy), "C(COMMIT) Z(I)");
    // Nobody goes back and forth.
    table.has_nodes(good(&["a", "b"]));
    assert_eq!(table.places(), [("a:5432".to_owned(), 3), ("b:5432".to_owned(), 3)]);
}

#[test]
fn a_lost_standby_fails_its_blocks_and_no_one_else() {
    let mut table = table(&["a"]);
    let (amid, server) = comes(&mut table);
    let server = server.expect("it is the first one");
    let (idle, _) = comes(&mut table);
    table.says(amid, &query("BEGIN READ ONLY"));
    table.hears(server);
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(amid);
    table.hangs_up(server);
    table.says(amid, &query("SELECT 1"));
    assert_eq!(table.hears(amid), "E(40001) Z(E)");
    table.says(amid, &query("ROLLBACK"));
    assert_eq!(table.hears(amid), "C(ROLLBACK) Z(I)");
    table.has_nodes(good(&["b"]));
    asks(&mut table, idle);
    asks(&mut table, amid);
    assert_eq!(table.places(), [("b:5432".to_owned(), 2)]);
}

#[test]
fn a_commit_that_is_lost_with_a_standby_fails() {
    for commit in [query("COMMIT"), [parse("", "COMMIT"), bind("", 0), execute(), sync()].concat()] {
        let mut table = table(&["a"]);
        let (client, server) = comes(&mut table);
        let server = server.expect("it is the first one");
        table.says(client, &query("BEGIN READ ONLY"));
        table.hears(server);
        table.says(server, &answers("C(BEGIN) Z(T)"));
        table.hears(client);
        table.says(client, &commit);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(40001) Z(I)");
        table.has_nodes(good(&["b"]));
        asks(&mut table, client);
    }
}

#[test]
fn what_postgresql_refuses_to_readers_is_its_own_answer() {
    let mut table = table(&["a"]);
    let (client, server) = comes(&mut table);
    let server = server.expect("it is the first one");
    for code in ["25006", "40001"] {
        table.says(client, &query("INSERT INTO t VALUES (1)"));
        table.hears(server);
        table.says(server, &answers(&format!("E({code}) Z(I)")));
        assert_eq!(table.hears(client), format!("E({code}) Z(I)"));
    }
    assert!(!table.is_closed(server));
}

#[test]
fn what_changes_the_primarys_catalogs_counts_at_standbys_as_well() {
    let mut table = Table::new(settings());
    table.reports_at_login("in_hot_standby", "off");
    table.has_primary(read_at(Target::Any, settings()), Some("p"));
    let (writer, at_primary) = comes(&mut table);
    let at_primary = at_primary.expect("it is the first one");
    table.reports_at_login("in_hot_standby", "on");
    table.has_nodes(good(&["a"]));
    let (reader, at_standby) = comes(&mut table);
    let at_standby = at_standby.expect("it is the first one there");
    let prepared = |name: &str| [parse(name, "SELECT x"), sync()].concat();
    table.says(reader, &prepared("s"));
    assert!(table.hears(at_standby).starts_with("P("), "it is new");
    table.says(at_standby, &answers("1 t n Z(I)"));
    assert_eq!(table.hears(reader), "1 Z(I)");
    table.has_nodes(good(&["a"]));
    table.says(reader, &prepared("t"));
    assert_eq!(table.hears(reader), "1 Z(I)", "it is known, and nothing has changed");
    table.says(writer, &query("CREATE TABLE t ()"));
    assert_eq!(table.hears(at_primary), "Q(CREATE TABLE t ())");
    table.says(at_primary, &answers("C(CREATE TABLE) Z(I)"));
    table.has_nodes(good(&["a"]));
    table.says(reader, &prepared("u"));
    assert!(table.hears(at_standby).contains("P("), "it may mean something else by now");
}

#[test]
fn readers_are_not_held_while_the_primary_changes_hands() {
    let mut table = table(&["a"]);
    let (client, _) = comes(&mut table);
    table.operates(|hub, now| hub.hold(now, &"main".into(), now + Duration::from_secs(30)));
    asks(&mut table, client);
}

#[test]
fn a_session_of_its_own_stays_with_its_node_until_it_ends() {
    let sharing = Sharing { mode: PoolMode::Session, ..Sharing::default() };
    let session = PoolSettings { sharing, ..settings() };
    let mut table = Table::new(session.clone());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(read_at(Target::Standby, session.clone()), Some("p"));
    table.has_nodes(good(&["a"]));
    let client = table.stranger("app");
    let server = table.connects()[0];
    assert!(table.hears(client).ends_with("Z(I)"));
    table.has_nodes(good(&["b"]));
    assert!(!table.is_closed(server));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08006)");
}
