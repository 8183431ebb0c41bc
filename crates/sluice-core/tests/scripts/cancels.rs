//! Cancels that come before the query has a server.

use crate::{
    one, seated,
    sessions::ZONE_X,
    table::{answers, query},
};

#[test]
fn a_cancel_that_waits_for_a_probe_goes_with_its_client() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe)");
    table.says(other, &query("SELECT 2"));
    table.says(client, &query("SELECT 3"));
    table.cancel(client);
    table.hears(client);
    table.says(server, &answers(&format!("D({ZONE_X}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(client), "E(57014) Z(I)");
    assert!(!table.hears(server).contains("SELECT 3"), "the other one has the server now");
    assert_eq!(table.cancels(), 0);
}
