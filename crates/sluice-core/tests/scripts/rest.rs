//! Clients that have set themselves a limit for the time in which they ask for nothing.

use std::time::Duration;

use crate::{
    flush, one,
    table::{Side, Table, answers, parse, query, sync},
};

/// `idle_session_timeout` is 5000, as the extension reports it.
const FIVE_SECONDS: &str = "set=69646c655f73657373696f6e5f74696d656f7574:35303030";

/// `idle_in_transaction_session_timeout` is 5000.
const FIVE_IN_TRANSACTIONS: &str =
    "set=69646c655f696e5f7472616e73616374696f6e5f73657373696f6e5f74696d656f7574:35303030";

/// A table with two clients and one server, of whom the first has set that.
fn limited(report: &str) -> (Table, [Side; 2], Side) {
    let mut table = Table::reporting(one());
    let clients = [table.client(), table.client()];
    let server = table.servers()[0];
    table.says(clients[0], &query("SET it = 5000"));
    table.says(server, &answers(&format!("C(SET) S(sluice.session={report}) Z(I)")));
    // It is not to rule over a server that waits in the pool.
    if table.hears(server).contains("RESET") {
        table.says(server, &answers("C(RESET) S(sluice.session=) Z(I)"));
    }
    assert_eq!(table.hears(clients[0]), "C(SET) Z(I)");
    (table, clients, server)
}

#[test]
fn a_client_that_rests_for_longer_than_it_said_is_sent_away() {
    let (mut table, [client, other], _) = limited(FIVE_SECONDS);
    table.passes(Duration::from_millis(4_900));
    assert!(!table.is_closed(client));
    table.passes(Duration::from_millis(100));
    assert_eq!(table.hears(client), "E(57P05)");
    assert!(table.is_closed(client) && !table.is_closed(other));
}

#[test]
fn a_client_that_asks_for_something_does_not_rest() {
    let (mut table, [client, _], server) = limited(FIVE_SECONDS);
    for _ in 0..3 {
        table.passes(Duration::from_secs(4));
        // A Sync needs no server.
        table.says(client, &sync());
        assert_eq!(table.hears(client), "Z(I)");
    }
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("C(SELECT 1) S(sluice.session=) Z(I)"));
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(client), "its server works");
}

/// PostgreSQL begins to count where it says that it is ready.
#[test]
fn a_client_that_owes_a_sync_does_not_rest() {
    let (mut table, [client, _], server) = limited(FIVE_SECONDS);
    table.says(client, &[parse("a", "SELECT 1"), flush()].concat());
    // Its settings go there first, and a Sync of the pool's own behind the batch.
    table.says(server, &answers(&format!("C(SELECT 1) S(sluice.session={FIVE_SECONDS}) Z(I)")));
    assert!(table.hears(server).ends_with(" S"));
    table.says(server, &answers("1 t n Z(I)"));
    assert_eq!(table.hears(client), "1");
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(client));
    table.says(client, &sync());
    table.passes(Duration::from_millis(4_900));
    assert_eq!(table.hears(client), "Z(I)");
    table.passes(Duration::from_millis(100));
    assert_eq!(table.hears(client), "E(57P05)");
}

#[test]
fn a_client_that_has_sent_part_of_a_message_rests() {
    let (mut table, [client, _], _) = limited(FIVE_SECONDS);
    // PostgreSQL has not heard it before it has come whole.
    table.says(client, &sync());
    table.passes(Duration::from_secs(4));
    table.says(client, &parse("a", "SELECT 1")[..5]);
    table.passes(Duration::from_secs(1));
    assert_eq!(table.hears(client), "Z(I) E(57P05)");
}

#[test]
fn a_begin_whose_time_is_limited_goes_to_a_server_at_once() {
    let (mut table, [client, other], server) = limited(FIVE_IN_TRANSACTIONS);
    table.hears(server);
    table.says(other, &query("BEGIN"));
    assert_eq!(table.hears(server), "");
    table.says(client, &query("BEGIN"));
    assert!(table.hears(server).contains("BEGIN"));
    assert_eq!(table.hears(other), "C(BEGIN) Z(T)");
}
