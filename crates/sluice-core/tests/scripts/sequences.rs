//! Sequences: `currval` and `lastval` tell a client what they gave it, and nobody else.

use std::time::Duration;

use sluice_control::settings::PoolSettings;

use crate::{
    one, seated,
    sessions::leaves,
    table::{Side, Table, answers, bind, execute, own, parse, query, sync},
};

#[test]
fn a_begin_that_is_refused_before_sequences_are_forgotten_is_the_statements_failure() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("SELECT nextval('s')"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hears(server);
    table.says(other, &[query("BEGIN"), query("SELECT lastval()")].concat());
    let forgets = own("DISCARD SEQUENCES");
    assert_eq!(table.hears(server), format!("P(: BEGIN) B() E C[] {forgets} Q(SELECT lastval())"));
    table.says(server, &answers("1 E(53S01)"));
    assert_eq!(table.hears(server), "S");
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(other), "C(BEGIN) Z(T) E(53S01) Z(E)");
    table.says(other, &query("ROLLBACK"));
    assert_eq!(table.hears(other), "C(ROLLBACK) Z(I)");
    // Nothing was forgotten.
    table.says(other, &query("SELECT lastval()"));
    assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)");
}

#[test]
fn a_client_has_a_moment_to_ask_what_a_sequence_gave_it() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    let done = |table: &mut Table, tag: &str| table.says(server, &answers(&format!("C({tag}) Z(I)")));
    table.says(other, &query("SELECT lastval()"));
    table.says(server, &answers("E(55000) Z(I)"));
    for asks in [true, false] {
        table.says(client, &query("INSERT INTO t VALUES (1)"));
        done(&mut table, "INSERT 0 1");
        table.hears(server);
        table.says(other, &query("SELECT 2"));
        table.passes(Duration::from_millis(90));
        assert_eq!(table.hears(server), "", "the server is kept, whoever waits");
        if asks {
            table.says(client, &query("SELECT lastval()"));
            assert_eq!(table.hears(server), "Q(SELECT lastval())");
            done(&mut table, "SELECT 1");
        } else {
            table.passes(Duration::from_millis(20));
        }
        // What the one was given is nothing that the other may ask for.
        assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)");
        done(&mut table, "DISCARD SEQUENCES");
        assert_eq!(table.hears(server), "Q(SELECT 2)");
        done(&mut table, "SELECT 1");
        table.hears(client);
        table.hears(other);
    }
}

#[test]
fn a_server_that_was_asked_for_too_early_is_asked_for_again() {
    let (mut table, client, server) = seated(one());
    let (other, third) = (table.client(), table.client());
    table.says(other, &query("SELECT lastval()"));
    table.says(server, &answers("E(55000) Z(I)"));
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table.says(server, &answers("C(INSERT 0 1) Z(I)"));
    table.hears(other);
    table.says(other, &query("SELECT 2"));
    table.cancel(other);
    assert_eq!(table.hears(other), "E(57014) Z(I)");
    table.passes(Duration::from_millis(200));
    table.hears(server);
    table.says(third, &query("SELECT 3"));
    assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)", "nobody waited when the time had come; now somebody does");
}

/// A server on which the client used a sequence, and that the other one got behind it; nobody has ever asked there.
fn used() -> (Table, [Side; 2], Side) {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("SELECT nextval('s')"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hears(client);
    table.hears(server);
    (table, [client, other], server)
}

#[test]
fn what_a_client_has_discarded_is_not_told_to_it_by_another_server() {
    for discards in ["DISCARD ALL", "DISCARD SEQUENCES"] {
        let (mut table, [client, other], server) = used();
        // The pool answers the one itself, and a server the other one.
        if discards == "DISCARD ALL" {
            table.says(client, &query(discards));
            assert_eq!(table.hears(client), "C(DISCARD ALL) Z(I)");
        } else {
            leaves(&mut table, (client, server), discards, discards, "");
        }
        table.says(other, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
        table.says(client, &query("SELECT lastval()"));
        assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)");
    }
}

#[test]
fn what_a_client_used_on_another_server_since_is_not_told_by_this_one() {
    let mut table = Table::new(PoolSettings { size: 2, ..PoolSettings::default() });
    let (client, other, third) = (table.client(), table.client(), table.client());
    let first = table.servers()[0];
    let uses = query("SELECT nextval('s')");
    table.says(client, &uses);
    table.says(first, &answers("C(SELECT 1) Z(I)"));
    table.says(other, &query("BEGIN READ WRITE"));
    table.says(first, &answers("C(BEGIN) Z(T)"));
    table.says(client, &uses);
    let second = *table.connects().last().expect("one is opened");
    assert_eq!(table.hears(second), "Q(SELECT nextval('s'))");
    table.says(second, &answers("C(SELECT 1) Z(I)"));
    table.says(third, &query("BEGIN READ WRITE"));
    table.says(second, &answers("C(BEGIN) Z(T)"));
    table.says(other, &query("COMMIT"));
    table.says(first, &answers("C(COMMIT) Z(I)"));
    table.hears(first);
    table.says(client, &query("SELECT lastval()"));
    assert_eq!(table.hears(first), "Q(DISCARD SEQUENCES)");
}

#[test]
fn what_a_failed_request_was_to_use_is_not_taken_for_used() {
    let (mut table, [_, other], server) = used();
    table.says(other, &query("SELECT nextval('t')"));
    table.says(server, &answers("E(42P01) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT nextval('t'))");
    table.says(other, &query("SELECT lastval()"));
    assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)", "it would be what the first one was given");

    // Where one was used before, it was.
    let (mut table, [_, other], server) = used();
    for (sql, answer) in [("SELECT nextval('t')", "C(SELECT 1)"), ("SELECT 1/0", "E(22012)")] {
        table.says(other, &query(sql));
        table.says(server, &answers(&format!("{answer} Z(I)")));
        assert_eq!(table.hears(server), format!("Q({sql})"));
    }
    table.says(other, &query("SELECT lastval()"));
    assert_eq!(table.hears(server), "Q(SELECT lastval())");
}

#[test]
fn a_kept_server_is_not_taken_amid_data_of_a_copy() {
    let (mut table, [client, other], server) = used();
    table.says(other, &query("SELECT lastval()"));
    for answer in ["C(DISCARD SEQUENCES) Z(I)", "E(55000) Z(I)"] {
        table.says(server, &answers(answer));
    }
    table.says(client, &query("COPY t FROM STDIN"));
    table.says(server, &answers("G"));
    table.says(client, b"d\0\0\0\x05a");
    assert!(table.hears(server).ends_with("Q(COPY t FROM STDIN) d"));
    table.says(server, &answers("E(22P04) Z(I)"));
    table.says(client, b"d\0\0\0\x08ab");
    table.says(other, &query("SELECT 1"));
    table.passes(Duration::from_secs(1));
    table.says(client, b"cd");
    assert_eq!(table.hears(server), "d Q()", "the rest of the data comes before anybody else's");
    table.says(server, &answers("I Z(I)"));
    assert_eq!(table.hears(server), "Q(DISCARD SEQUENCES)");
}

#[test]
fn sequences_are_not_forgotten_amid_data_of_a_copy() {
    let (mut table, [_, other], server) = used();
    table.says(other, &query("COPY t FROM STDIN"));
    table.says(server, &answers("G"));
    assert_eq!(table.hears(server), "Q(COPY t FROM STDIN)");
    // The server ends it with an error when a part of the data has come.
    table.says(other, b"d\0\0\0\x08ab");
    table.says(server, &answers("E(22P04) Z(I)"));
    table.says(other, &[b"cd".to_vec(), parse("", "SELECT f()"), bind("", 0), execute(), sync()].concat());
    assert_eq!(table.hears(server), "d Q(DISCARD SEQUENCES)");
}
