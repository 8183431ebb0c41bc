//! Standbys: the pool's own queries there, and what clients are told when one is promoted. And the other sessions whose
//! level withholds snapshots.

use std::time::Duration;

use sluice_control::settings::PoolSettings;

use crate::{
    one,
    sessions::{ZONE_X, leaves},
    table::{Side, Table, answers, query},
};

const SECOND: Duration = Duration::from_secs(1);

/// A pool before a server that reports this of itself, with a client.
fn reporting(settings: PoolSettings, name: &'static str) -> (Table, Side, Side) {
    let mut table = Table::new(settings);
    table.reports_at_login(name, "on");
    let client = table.client();
    let server = table.servers()[0];
    (table, client, server)
}

#[test]
fn own_queries_go_by_the_usual_level_where_the_sessions_may_be_refused_or_wait() {
    for name in ["in_hot_standby", "default_transaction_read_only"] {
        let (mut table, client, server) = reporting(one(), name);
        table.says(client, &query("SET timezone = 'X'"));
        table.says(server, &answers("C(SET) Z(I)"));
        assert_eq!(table.hears(server), "Q(SET timezone = 'X') level Q(probe)", "{name}");
        table.says(server, &answers(&format!("C(SET) D({ZONE_X}) C(SELECT 1) Z(I)")));
        let other = table.client();
        table.says(other, &query("SELECT 1"));
        assert_eq!(table.hears(server), "level Q(RESET \"timezone\";)", "{name}");
        table.says(server, &answers("C(SET) C(RESET) Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT 1)", "the client's own are as they are");
    }
}

#[test]
fn a_server_that_does_not_put_settings_in_place_is_replaced() {
    let (mut table, client, server) = reporting(one(), "integer_datetimes");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    let other = table.client();
    table.says(other, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(RESET \"timezone\";)");
    table.passes(9 * SECOND);
    assert_eq!((table.hears(other), table.connects().len()), (String::new(), 0));
    table.passes(2 * SECOND);
    assert!(table.is_closed(server));
    let next = table.connects()[0];
    assert_eq!(table.hears(next), "Q(SELECT 1)");
    // Whoever is served in time is not looked at again.
    table.passes(20 * SECOND);
    table.says(next, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(other), "C(SELECT 1) Z(I)");
}

#[test]
fn log_ins_to_a_standby_are_told_so_for_as_long_as_it_is_one() {
    let (mut table, client, server) = reporting(PoolSettings { size: 2, ..one() }, "in_hot_standby");
    // Others need no server within a second, and nobody can be asked where none is idle.
    assert!(table.client() != client && table.hears(server).is_empty());
    table.says(client, &query("BEGIN READ ONLY; SELECT 1"));
    table.hears(server);
    table.passes(2 * SECOND);
    table.client();
    assert_eq!(table.hears(server), "");
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    table.hears(client);
    table.hears(server);
    // It is asked, and says nothing new.
    let other = table.stranger("app");
    assert_eq!((table.hears(server).as_str(), table.hears(other).as_str()), ("Q()", "R"));
    table.says(server, &answers("I Z(I)"));
    assert!(table.hears(other).contains("S(in_hot_standby=on)"));
    table.passes(2 * SECOND);
    let other = table.stranger("app");
    assert_eq!((table.hears(server).as_str(), table.hears(other).as_str()), ("Q()", "R"));
    table.says(server, &answers("I S(in_hot_standby=off) Z(I)"));
    assert!(table.hears(other).contains("S(in_hot_standby=off)"));
    // The next one is told so at once.
    let next = table.stranger("app");
    assert!(table.hears(next).contains("S(in_hot_standby=off)"));
    assert_eq!(table.hears(server), "");
    // Those that were there hear of it with their next answer, and once.
    for told in ["S(in_hot_standby=off) ", ""] {
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), format!("C(SELECT 1) {told}Z(I)"));
        table.says(other, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(other), "C(SELECT 1) Z(I)");
    }
}

#[test]
fn a_clients_own_answer_tells_it_of_a_promotion_and_others_with_theirs() {
    let (mut table, client, server) = reporting(one(), "in_hot_standby");
    let other = table.client();
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("C(SELECT 1) S(in_hot_standby=off) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) S(in_hot_standby=off) Z(I)");
    assert_eq!(table.hears(server), "Q(SELECT 1)", "no setting has been made");
    for told in ["S(in_hot_standby=off) ", ""] {
        table.says(other, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(other), format!("C(SELECT 1) {told}Z(I)"));
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    }
    let next = table.stranger("app");
    assert!(table.hears(next).contains("S(in_hot_standby=off)"));
}
