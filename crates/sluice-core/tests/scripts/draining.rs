//! A pool that is drained: who may stay for how long, and who is not let in.

use sluice_core::mail::Mail;

use crate::{
    accounts::{asked, ruled},
    one, seated,
    table::{Table, answers, query},
};

#[test]
fn clients_of_a_drained_pool_end_their_transactions_and_leave() {
    let (mut table, client, server) = seated(one());
    let idle = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    let waiting = table.client();
    table.says(waiting, &query("SELECT 1"));
    table.hears(client);
    table.hub().set_draining(true);
    table.is_told(Mail::Drain);
    assert_eq!(table.hears(idle), "E(57P01)");
    assert!(table.is_closed(idle) && !table.is_closed(client) && !table.is_closed(waiting));
    let late = table.stranger("app");
    assert_eq!(table.hears(late), "E(57P03)");
    table.hears(server);
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I) E(57P01)");
    // What it had asked for before is done.
    assert!(table.hears(server).ends_with("Q(SELECT 1)"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(waiting), "C(SELECT 1) Z(I) E(57P01)");
    table.hub().set_draining(false);
    table.client();
}

#[test]
fn a_drained_pool_lets_nobody_in_who_was_logging_in() {
    // One waits for a server, whose report it has to be told, and another one for nothing but its own answer.
    let mut table = Table::new(one());
    let waiting = table.stranger("app");
    table.hub().set_draining(true);
    table.is_told(Mail::Drain);
    table.connects();
    let heard = table.hears(waiting);
    assert!(heard.ends_with("E(57P01)") && !heard.contains('Z'), "{heard}");
    table.hub().set_draining(false);
    let mut table = ruled("local all all md5", "");
    let (client, answer) = asked(&mut table, "secret");
    table.hub().set_draining(true);
    table.is_told(Mail::Drain);
    table.says(client, &answer);
    let heard = table.hears(client);
    assert!(heard.ends_with("E(57P03)") && !heard.contains('Z'), "{heard}");
}

#[test]
fn a_disabled_database_refuses_those_who_come_and_keeps_those_who_are_there() {
    let (mut table, client, server) = seated(one());
    table.hub().set_disabled("app", true);
    let late = table.stranger("app");
    assert_eq!(table.hears(late), "E(55000: database \"app\" is disabled)");
    assert!(table.is_closed(late));
    table.hears(server);
    table.says(client, &query("SELECT 1"));
    assert!(table.hears(server).ends_with("Q(SELECT 1)"));
    table.hub().set_disabled("app", false);
    table.client();
}
