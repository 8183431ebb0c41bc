//! A cluster whose clients are held while its primary changes hands: who is in a transaction finishes it, others wait.

use std::time::Duration;

use sluice_control::{Database, address::Address, settings::PoolSettings};
use sluice_core::{
    hub::{Held, Hub},
    time::Time,
};

use crate::{
    one,
    table::{Side, Table, answers, query, scripted},
};

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

/// The longest time for which these tests hold anybody.
const HELD_MAX: Duration = Duration::from_secs(20);

fn settings() -> PoolSettings {
    PoolSettings { size: 3, failover_timeout: Some(FAILOVER_TIMEOUT), ..one() }
}

/// The database of a cluster.
fn clustered() -> Database {
    Database { address: Address::Primary("main".into()), cluster: Some("main".into()), ..scripted(settings()) }
}

fn table() -> Table {
    let mut table = Table::new(settings());
    table.has_primary(clustered(), Some("a"));
    table
}

fn hold(table: &mut Table) {
    table.operates(|hub, now| hub.hold(now, &"main".into(), now + HELD_MAX));
}

/// A client with a block open, and its server.
pub(crate) fn in_block(table: &mut Table) -> (Side, Side) {
    let client = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
    table.hears(server);
    (client, server)
}

/// The next server answers what the client has waited with.
fn is_served(table: &mut Table, client: Side, asked: &str) {
    table.passes(Duration::from_millis(100));
    let server = table.connects()[0];
    assert_eq!(table.hears(server), format!("Q({asked})"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn transactions_finish_and_others_wait_for_the_next_primary() {
    let mut table = table();
    let (amid, server) = in_block(&mut table);
    let other = table.client();
    hold(&mut table);
    table.says(other, &query("SELECT 2"));
    table.says(amid, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SELECT 1)", "it is in the midst of its transaction");
    table.says(server, &answers("C(SELECT 1) Z(T)"));
    table.says(amid, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(amid), "C(SELECT 1) Z(T) C(COMMIT) Z(I)");
    assert!(table.is_closed(server), "nobody is served there any more");
    table.says(amid, &query("SELECT 3"));
    table.passes(Duration::from_secs(5));
    assert_eq!((table.connects().len(), table.hears(amid), table.hears(other)), (0, String::new(), String::new()));
    table.has_primary(clustered(), Some("b"));
    let servers = table.connects();
    let heard: Vec<_> = servers.iter().map(|server| table.hears(*server)).collect();
    assert_eq!(heard, ["Q(SELECT 2)", "Q(SELECT 3)"], "in the order in which they have waited");
}

#[test]
fn idle_servers_go_at_once() {
    let mut table = table();
    let client = table.client();
    let server = table.servers()[0];
    hold(&mut table);
    assert!(table.is_closed(server) && !table.is_closed(client));
}

#[test]
fn whoever_logs_in_meanwhile_waits() {
    let mut table = table();
    hold(&mut table);
    let client = table.stranger("app");
    table.passes(HELD_MAX / 2);
    assert_eq!((table.hears(client), table.connects().len()), ("R".to_owned(), 0));
    table.has_primary(clustered(), Some("b"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn a_hold_ends_by_itself_and_by_a_word() {
    let ends: [fn(&mut Table); 2] = [
        |table| table.passes(HELD_MAX),
        |table| {
            table.operates(|hub, _| {
                assert!(hub.end_hold("main", Held::Restarted) && !hub.end_hold("main", Held::Released));
                Default::default()
            });
        },
    ];
    for end in ends {
        let mut table = table();
        let client = table.client();
        hold(&mut table);
        table.says(client, &query("SELECT 1"));
        end(&mut table);
        is_served(&mut table, client, "SELECT 1");
    }
}

#[test]
fn a_second_hold_lengthens_the_first_and_a_shorter_one_does_not_end_it() {
    let mut table = table();
    let client = table.client();
    hold(&mut table);
    table.says(client, &query("SELECT 1"));
    table.passes(HELD_MAX / 2);
    hold(&mut table);
    let shorter: fn(&Hub, Time) -> _ = |hub, now| hub.hold(now, &"main".into(), now);
    table.operates(shorter);
    table.passes(HELD_MAX - Duration::from_secs(1));
    assert_eq!(table.connects().len(), 0);
    table.passes(Duration::from_secs(1));
    is_served(&mut table, client, "SELECT 1");
}

#[test]
fn nobody_waits_for_longer_than_for_a_failover() {
    let mut table = table();
    let client = table.client();
    table.operates(|hub, now| hub.hold(now, &"main".into(), now + 3 * FAILOVER_TIMEOUT));
    table.says(client, &query("SELECT 1"));
    table.passes(FAILOVER_TIMEOUT - Duration::from_secs(1));
    assert_eq!(table.hears(client), "");
    table.passes(Duration::from_secs(1));
    let error = table.hears_error(client);
    assert!(error.contains("57P03") && error.contains("cluster \"main\" is changing hands"), "{error}");
}

#[test]
fn those_who_have_waited_have_all_of_their_time_behind_a_hold() {
    let mut table = Table::new(settings());
    let short = || Database {
        pool: PoolSettings { wait_timeout: Duration::from_secs(1), size: 1, ..settings() },
        ..clustered()
    };
    table.has_primary(short(), Some("a"));
    let (first, second) = (table.client(), table.client());
    hold(&mut table);
    table.says(first, &query("SELECT 1"));
    table.says(second, &query("SELECT 2"));
    table.passes(HELD_MAX);
    let server = table.connects()[0];
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.passes(Duration::from_millis(500));
    assert_eq!(table.hears(second), "");
}

#[test]
fn other_databases_are_not_held() {
    let mut table = table();
    table.publishes(scripted(settings()));
    let client = table.client();
    hold(&mut table);
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(table.servers()[0]), "Q(SELECT 1)");
}
