//! Cancels that come early: before the query has a server, or before that can have read it.

use std::time::Duration;

use crate::{
    one, seated,
    sessions::{ZONE_X, leaves},
    table::{answers, query},
};

/// The time that a server has to answer a cancel which it may have got before the query.
const ANSWER_TIME: Duration = Duration::from_millis(10);

#[test]
fn a_cancel_that_the_server_may_have_got_before_the_query_is_sent_again() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT 1"));
    table.cancel(client);
    table.connects();
    table.cancels_arrive();
    assert_eq!(table.cancels(), 1);
    table.passes(ANSWER_TIME);
    assert_eq!(table.cancels(), 2, "it has not said anything");
    table.connects();
    table.cancels_arrive();
    table.says(server, &answers("E(57014) Z(I)"));
    assert_eq!(table.hears(client), "E(57014) Z(I)");
    table.passes(ANSWER_TIME * 2);
    assert_eq!(table.cancels(), 2);
}

#[test]
fn a_cancel_is_not_sent_again_for_ever() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT 1"));
    table.cancel(client);
    for _ in 0..50 {
        table.connects();
        table.cancels_arrive();
        table.passes(ANSWER_TIME);
    }
    assert_eq!(table.cancels(), 5, "it has had the time to read the query");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(client, &query("SELECT 2"));
    assert!(table.hears(server).ends_with("Q(SELECT 2)"));
}

#[test]
fn a_cancel_is_not_sent_again_to_a_server_that_has_begun_to_answer() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT 1"));
    table.passes(Duration::from_millis(1));
    table.says(server, &answers("D()"));
    table.cancel(client);
    table.connects();
    table.cancels_arrive();
    table.passes(ANSWER_TIME * 2);
    assert_eq!(table.cancels(), 1);
    // Nor is one that comes later.
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(client, &query("SELECT 2"));
    table.passes(Duration::from_millis(20));
    table.cancel(client);
    table.connects();
    table.cancels_arrive();
    table.passes(ANSWER_TIME * 2);
    assert_eq!(table.cancels(), 2);
}

#[test]
fn a_cancel_that_waits_for_the_pools_own_is_sent_again_too() {
    let (mut table, client, server) = seated(one());
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    let other = table.client();
    table.says(other, &query("SELECT 1"));
    table.cancel(other);
    assert_eq!((table.hears(server), table.cancels()), ("Q(RESET \"timezone\";)".to_owned(), 0));
    table.says(server, &answers("C(RESET) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    for count in 1..3 {
        table.passes(ANSWER_TIME);
        assert_eq!(table.cancels(), count);
        table.connects();
        table.cancels_arrive();
    }
    table.says(server, &answers("E(57014) Z(I)"));
    assert_eq!(table.hears(other), "E(57014) Z(I)");
}

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

#[test]
fn a_cancel_that_is_to_be_sent_again_does_not_hit_what_comes_next() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("SELECT 1"));
    table.cancel(client);
    table.connects();
    table.cancels_arrive();
    table.passes(Duration::from_millis(1));
    table.says(other, &query("SELECT 3"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert!(table.hears(server).ends_with("Q(SELECT 3)"), "the server is free at once");
    table.passes(ANSWER_TIME * 2);
    assert_eq!(table.cancels(), 1);
}
