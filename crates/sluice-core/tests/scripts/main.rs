//! Sessions written out message by message: faults that the simulation found, each as it was found, and what must be
//! sent when. The simulation says that sharing does not show; here stands how.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod accounts;
mod balancers;
mod bounds;
mod cancels;
mod causal;
mod clusters;
mod copies;
mod draining;
mod ending;
mod failing;
mod hand_over;
mod holds;
mod led;
mod lending;
mod limits;
mod logins;
mod losing;
mod messages;
mod promotions;
mod readers;
mod refused_begins;
mod reloads;
mod resets;
mod rest;
mod sequences;
mod session_mode;
mod sessions;
mod stale;
mod standing_in;
mod table;
mod unused;

use std::time::Duration;

use sluice_control::settings::PoolSettings;
use sluice_wire::{message, startup, startup::ProtocolVersion};

use sessions::{ZONE_X, leaves};
use table::{Side, Table, answers, bind, describe, execute, flush, own, parse, parse_typed, query, sync, terminate};

/// A pool of one server.
fn one() -> PoolSettings {
    PoolSettings { size: 1, ..PoolSettings::default() }
}

/// A table with one client, which is logged in, and the pool's server.
fn seated(settings: PoolSettings) -> (Table, Side, Side) {
    let mut table = Table::new(settings);
    let client = table.client();
    let server = table.servers()[0];
    (table, client, server)
}

/// The same with one server, where the client has prepared `a`; what both were sent for that has been heard.
fn prepared(sql: &str) -> (Table, Side, Side) {
    let (mut table, client, server) = seated(one());
    table.says(client, &[parse("a", sql), sync()].concat());
    table.says(server, &answers("1 t n Z(I)"));
    assert_eq!(table.hears(server), format!("P(sluice_0: {sql}) D(sluice_0) S"));
    assert_eq!(table.hears(client), "1 Z(I)");
    (table, client, server)
}

/// A client whose statement `a` has a literal that was read by another time zone than its own, on a server that another
/// client has had since; what all were sent has been heard.
fn prepared_apart() -> (Table, Side, Side) {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    let other = table.client();
    table.says(other, &query("SELECT 1"));
    for answer in ["C(RESET) Z(I)", "C(SELECT 1) Z(I)"] {
        table.says(server, &answers(answer));
    }
    table.hears(server);
    (table, client, server)
}

/// A batch that runs a statement.
fn run(name: &str) -> Vec<u8> {
    [bind(name, 0), execute(), sync()].concat()
}

#[test]
fn a_parse_that_fails_takes_back_only_itself() {
    let (mut table, client, server) = seated(one());
    // The first one fails when the second one has been sent already.
    table.says(client, &[parse("", "nonsense"), sync(), parse("", "SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "P(: nonsense) S P(: SELECT 1) S");
    table.says(server, &answers("E(42601) Z(I)"));
    table.says(client, &run(""));
    table.says(server, &answers("1 Z(I)"));
    assert_eq!(table.hears(client), "E(42601) Z(I) 1 Z(I)");
    assert!(table.hears(server).contains('B'), "the second one is still there");
}

#[test]
fn a_deallocate_that_was_skipped_is_bound_to_nothing() {
    let (mut table, client, server) = prepared("SELECT 1");
    // The second Parse of that name is refused, so the rest of the batch is skipped.
    table.says(client, &[parse("a", "SELECT 2"), parse("", "DEALLOCATE a"), bind("", 0)].concat());
    table.says(server, &answers("3 1 E(42P05: prepared statement \"sluice_stand_in\" already exists)"));
    table.says(client, &[execute(), sync()].concat());
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(client), "E(42P05: prepared statement \"a\" already exists) Z(I)");
    let sent = "C(sluice_stand_in) P(sluice_stand_in: ) P(sluice_stand_in: SELECT 2) P(: DEALLOCATE a) S";
    assert_eq!(table.hears(server), sent);
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "2 C(SELECT 1) Z(I)");
    // Nor is it the unnamed statement.
    table.says(client, &run(""));
    assert_eq!(table.hears(server), "C() B() E S", "the server says that there is none");
}

#[test]
fn a_statement_that_was_closed_behind_its_error_is_not_stale() {
    let (mut table, client, server) = seated(PoolSettings { prepared_per_server: 1, ..one() });
    table.says(client, &[parse("a", "SELECT 1"), parse("b", "SELECT 2"), sync()].concat());
    let sent = "P(sluice_0: SELECT 1) D(sluice_0) C(sluice_0) P(sluice_1: SELECT 2) D(sluice_1) S";
    assert_eq!(table.hears(server), sent);
    table.says(server, &answers("1 t n 3 1 t n Z(I)"));
    // The first batch finds "b" stale, when the second one has closed it to make room.
    table.says(
        client,
        &[query("BEGIN READ WRITE"), run("b"), query("ROLLBACK"), parse("c", "SELECT 3"), sync()].concat(),
    );
    assert_eq!(
        table.hears(server),
        "Q(BEGIN READ WRITE) B(sluice_1) E S Q(ROLLBACK) C(sluice_1) P(sluice_2: SELECT 3) D(sluice_2) S"
    );
    table.says(server, &answers("C(BEGIN) Z(T) E(0A000) Z(E) C(ROLLBACK) Z(I) 3 1 t n Z(I)"));
    // It is prepared again, and needs no second Close but the one that makes room.
    table.says(client, &run("b"));
    assert_eq!(table.hears(server), "C(sluice_2) P(sluice_1: SELECT 2) B(sluice_1) E S");
}

#[test]
fn a_begin_goes_along_with_the_first_statement() {
    for (begin, told, sent, done) in [
        // A Query leaves no portal.
        (query("begin"), "C(BEGIN) Z(T)", "P(: BEGIN) B() E C[]", "1 2 C(BEGIN) 3"),
        ([parse("", "BEGIN"), run("")].concat(), "1 2 C(BEGIN) Z(T)", "P(: BEGIN) B() E", "1 2 C(BEGIN)"),
        (
            [parse("b", "START TRANSACTION"), run("b")].concat(),
            "1 2 C(START TRANSACTION) Z(T)",
            "P(: BEGIN) B() E",
            "1 2 C(BEGIN)",
        ),
    ] {
        let (mut table, client, server) = seated(one());
        let other = table.client();
        table.says(client, &begin);
        assert_eq!((table.hears(client).as_str(), table.hears(server).as_str()), (told, ""));
        // The server is anybody's until there is something to do.
        table.says(other, &query("SELECT 1"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
        table.says(client, &query("SELECT 2"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), format!("{sent} Q(SELECT 2)"));
        table.says(server, &answers(&format!("{done} C(SELECT 1) Z(T)")));
        assert_eq!(table.hears(client), "C(SELECT 1) Z(T)");
        table.says(other, &query("SELECT 1"));
        assert_eq!(table.hears(server), "", "the server is the transaction's");
    }
}

#[test]
fn a_begin_with_parameter_types_is_the_servers_to_judge() {
    for name in ["", "b"] {
        let (mut table, client, server) = seated(one());
        // One type, left open: its last bytes look like no types at all.
        table.says(client, &[parse_typed(name, "BEGIN", &[0]), sync()].concat());
        assert!(table.hears(server).contains("BEGIN"));
        table.says(server, &answers(if name.is_empty() { "1 Z(I)" } else { "1 t n Z(I)" }));
        assert_eq!(table.hears(client), "1 Z(I)");
    }
}

#[test]
fn a_server_that_has_begun_is_not_free_before_it_says_so() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    // A Flush brings the BEGIN's answers; nothing is owed then, and no ReadyForQuery has told of the transaction.
    let flush = message::FLUSH.to_vec();
    table.says(client, &[parse("", "BEGIN"), bind("", 0), execute(), parse("", "SELECT 1"), flush].concat());
    assert_eq!(table.hears(server), "P(: BEGIN) B() E P(: SELECT 1) S");
    table.says(server, &answers("1 2 C(BEGIN) 1"));
    table.says(other, &query("SELECT 2"));
    assert_eq!(table.hears(server), "");
    table.says(server, &answers("Z(T)"));
    table.says(client, &sync());
    // The Sync that stood in for the Flush has brought the status already.
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("", "1 2 C(BEGIN) 1 Z(T)"));
}

#[test]
fn a_transaction_in_which_nothing_is_done_needs_no_server() {
    let (mut table, client, server) = seated(one());
    for (end, tag) in [("COMMIT", "COMMIT"), ("end", "COMMIT"), ("ROLLBACK WORK", "ROLLBACK")] {
        table.says(client, &[query("BEGIN"), query(end)].concat());
        assert_eq!(table.hears(client), format!("C(BEGIN) Z(T) C({tag}) Z(I)"));
    }
    assert_eq!(table.hears(server), "");
    // What PostgreSQL warns of, it has to see.
    table.says(client, &query("COMMIT"));
    assert_eq!(table.hears(server), "Q(COMMIT)");
}

#[test]
fn who_cancels_hears_the_end_when_it_is_delivered() {
    let mut table = Table::new(one());
    let (client, number) = table.numbered_client();
    let (key, server) = (table.key(client), table.servers()[0]);
    // There is nothing to cancel, or nobody.
    for (number, key) in [(number, key.clone()), (number, b"none".to_vec()), (number + 1, key.clone()), (7, Vec::new())]
    {
        let asker = table.asker(number, &key);
        assert!(table.is_closed(asker));
    }
    table.says(client, &query("BEGIN; SELECT 1"));
    let askers = [table.asker(number, &key), table.asker(number, &key)];
    // The statement ends by itself; whoever waits for the end of a CancelRequest does not cancel the next one.
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    assert_eq!((askers.map(|asker| table.is_closed(asker)), table.cancels()), ([false; 2], 2));
    table.cancels_arrive();
    assert_eq!(askers.map(|asker| table.is_closed(asker)), [true; 2]);
    // One that can't be delivered ends, too.
    table.says(client, &query("SELECT 2"));
    let asker = table.asker(number, &key);
    assert!(!table.is_closed(asker));
    (0..2).for_each(|_| table.passes(Duration::from_secs(11)));
    assert!(table.is_closed(asker));
}

#[test]
fn what_a_server_says_before_its_last_is_heard() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("T(a) D(1) C(SELECT 1) Z(I) E(57P01)"));
    assert_eq!(table.hears(client), "T D C(SELECT 1) Z(I)");
    table.hangs_up(server);
    table.says(client, &query("SELECT 2"));
    let other = table.connects()[0];
    table.says(other, &answers("C(SELECT 2) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 2) Z(I)");
}

#[test]
fn a_server_that_has_said_its_last_goes_to_nobody() {
    let (mut table, client, server) = seated(one());
    // The end of the connection comes later than the next query.
    table.says(server, &answers("E(57P01)"));
    table.says(client, &query("SELECT 1"));
    let other = table.connects()[0];
    table.says(other, &answers("C(SELECT 1) Z(I)"));
    table.hangs_up(server);
    assert_eq!((table.hears(client), table.servers()), ("C(SELECT 1) Z(I)".to_owned(), vec![other]));
}

#[test]
fn a_cancel_does_not_hit_a_begin() {
    let (mut table, client, server) = seated(one());
    table.passes(Duration::from_secs(1));
    table.says(client, &[query("BEGIN"), query("SELECT pg_sleep(9)")].concat());
    table.cancel(client);
    assert_eq!(table.cancels(), 0, "the BEGIN may not be done yet");
    table.passes(Duration::from_millis(100));
    assert_eq!(table.cancels(), 1, "it is done");
    table.connects();
    // Where the server has said so, nothing is waited for.
    table.says(server, &answers("1 2 C(BEGIN) 3 E(57014) Z(E)"));
    table.says(client, &query("SELECT pg_sleep(9)"));
    table.cancel(client);
    assert_eq!(table.cancels(), 2);
}

#[test]
fn what_waits_for_a_server_is_cancelled_without_one() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("BEGIN; SELECT 1"));
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    let batch = [parse("", "SELECT pg_sleep(9)"), bind("", 0), execute()].concat();
    for end in [sync(), flush()] {
        table.says(other, &[batch.clone(), end.clone()].concat());
        table.cancel(other);
        let said = table.hears(other);
        if end == sync() {
            assert_eq!(said, "E(57014) Z(I)");
        } else {
            // What it says up to its Sync is skipped, also where that comes in pieces.
            let rest = [batch.clone(), sync()].concat();
            rest.chunks(7).for_each(|piece| table.says(other, piece));
            assert_eq!((said.as_str(), table.hears(other).as_str()), ("E(57014)", "Z(I)"));
        }
    }
    // Part of a message has come.
    let batch = [batch, flush(), query("SELECT 2")].concat();
    table.says(other, &batch[..batch.len() - 3]);
    table.cancel(other);
    table.says(other, &[&batch[batch.len() - 3..], &sync()].concat());
    assert_eq!(table.hears(other), "E(57014) Z(I)");
    assert_eq!(table.hears(server), "Q(BEGIN; SELECT 1)");
}

#[test]
fn a_malformed_query_takes_nothing_away() {
    let (mut table, client, server) = seated(one());
    let malformed = [&b"Q\0\0\0\x0cSELECT 1"[..], b"Q\0\0\0\x04", b"Q\0\0\0\x06\0\0"];
    for (number, malformed) in malformed.into_iter().enumerate() {
        // One that comes again would be a shared statement.
        table.says(client, &[parse("", &format!("SELECT {number}")), sync()].concat());
        table.says(server, &answers("1 Z(I)"));
        table.says(client, malformed);
        table.says(server, &answers("E(08P01) Z(I)"));
        table.hears(server);
        table.says(client, &run(""));
        assert_eq!(table.hears(server), "B() E S");
        table.says(server, &answers("2 C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), "1 Z(I) E(08P01) Z(I) 2 C(SELECT 1) Z(I)");
    }
}

#[test]
fn a_wait_behind_a_copy_ends() {
    let (mut table, client, server) = seated(one());
    let copy = [parse("", "COPY t FROM STDIN"), bind("", 0), execute(), b"f\0\0\0\x07no\0".to_vec(), sync()].concat();
    table.says(client, &[copy, describe(""), query("SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "P(: COPY t FROM STDIN) B() E f(no) S");
    table.says(server, &answers("1 2 G"));
    assert_eq!(table.hears(server), "", "what stands behind the COPY waits");
    table.says(server, &answers("E(57014) Z(I)"));
    assert_eq!(table.hears(client), "1 2 G E(57014) Z(I)");
    assert_eq!(table.hears(server), "Q()");
    table.says(server, &answers("I Z(I)"));
    assert!(table.hears(server).starts_with("P("), "and is done then");
}

#[test]
fn what_was_asked_for_before_a_goodbye_is_done() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &[query("INSERT INTO t VALUES (1)"), terminate()].concat());
    table.says(other, &query("SELECT 1"));
    table.passes(Duration::from_secs(5));
    assert_eq!((table.is_closed(client), table.cancels()), (false, 0), "it may wait for the answer");
    table.hangs_up(client);
    table.passes(Duration::from_secs(5));
    assert_eq!(table.cancels(), 0);
    table.hears(server);
    table.says(server, &answers("C(INSERT 0 1) Z(I) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    // Not for ever.
    table.says(other, &terminate());
    table.hangs_up(other);
    table.passes(Duration::from_secs(11));
    assert_eq!(table.cancels(), 1);
}

#[test]
fn a_deallocate_waits_for_what_stands_before_it() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[query("SELECT 1"), query("DEALLOCATE a"), query("SELECT 2")].concat());
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I) C(DEALLOCATE) Z(I)");
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

#[test]
fn names_given_behind_a_deallocate_all_outlive_it() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[query("SELECT 1"), query("DEALLOCATE ALL"), parse("a", "SELECT 2"), sync()].concat());
    assert_eq!(table.hears(server), "Q(SELECT 1) Q(DEALLOCATE ALL)");
    table.says(server, &answers("C(SELECT 1) Z(I) C(DEALLOCATE ALL) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)", "it may have taken SQL's own statements away");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "P(sluice_0: SELECT 2) D(sluice_0) S");
    table.says(server, &answers("1 t n Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I) C(DEALLOCATE ALL) Z(I) 1 Z(I)");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
}

#[test]
fn a_long_parse_in_small_pieces_is_collected_once() {
    let (mut table, client, server) = seated(one());
    let sql = format!("SELECT '{}'", "x".repeat(4000));
    for byte in [parse("a", &sql), sync()].concat() {
        table.says(client, &[byte]);
    }
    assert_eq!(table.hears(server), format!("P(sluice_0: {sql}) D(sluice_0) S"));
}

#[test]
fn a_result_is_what_it_was_at_the_parse_or_an_error() {
    for (columns, goes_on) in [("T(a)", true), ("T(b)", false)] {
        let (mut table, client, server) = seated(PoolSettings { prepared_per_server: 1, ..one() });
        table.says(client, &[parse("a", "SELECT 1"), parse("b", "SELECT 2"), sync()].concat());
        table.says(server, &answers("1 t T(a) 3 1 t n Z(I)"));
        table.hears(server);
        // The server has made room for the other one, and is asked what the result looks like now.
        table.says(client, &run("a"));
        assert_eq!(table.hears(server), "C(sluice_1) P(sluice_0: SELECT 1) D(sluice_0) H");
        table.says(server, &answers(&format!("3 1 t {columns}")));
        assert_eq!(table.hears(server), if goes_on { "B(sluice_0) E S" } else { "D(!) E S" });
        table.says(server, &answers(if goes_on { "2 C(SELECT 1) Z(I)" } else { "E(26000) Z(I)" }));
        let heard = if goes_on { "2 C(SELECT 1) Z(I)" } else { "E(0A000) Z(I)" };
        assert_eq!(table.hears(client), format!("1 1 Z(I) {heard}"));
    }
}

#[test]
fn a_statement_of_another_result_is_described_as_far_as_postgresql_does() {
    let (mut table, client, server) = seated(PoolSettings { prepared_per_server: 1, ..one() });
    table.says(client, &[parse("a", "SELECT 1"), parse("b", "SELECT 2"), sync()].concat());
    table.says(server, &answers("1 t T(a) 3 1 t n Z(I)"));
    table.hears(server);
    table.says(client, &[describe("a"), sync()].concat());
    assert_eq!(
        table.hears(server),
        "C(sluice_1) P(sluice_0: SELECT 1) S",
        "what follows the Describe finds no snapshot"
    );
    table.says(server, &answers("3 1 Z(I)"));
    assert_eq!(table.hears(server), "D(sluice_0) H");
    table.says(server, &answers("t T(b)"));
    assert_eq!(table.hears(server), "D(!) S");
    table.says(server, &answers("E(26000) Z(I)"));
    // Its parameters are described before its result is looked at.
    assert_eq!(table.hears(client), "1 1 Z(I) t E(0A000) Z(I)");
}

#[test]
fn a_statement_that_can_not_be_prepared_again_is_described_as_far_as_postgresql_does() {
    for (next, heard) in [(describe("a"), "t "), (bind("a", 0), "")] {
        // The first one is prepared before its batch begins.
        let is_ahead = !heard.is_empty();
        let (mut table, client, server) = seated(PoolSettings { prepared_per_server: 1, ..one() });
        table.says(client, &[parse("a", "SELECT 1"), parse("b", "SELECT 2"), sync()].concat());
        table.says(server, &answers("1 t T(a) 3 1 t n Z(I)"));
        table.hears(client);
        table.says(client, &[next, sync()].concat());
        table.hears(server);
        table.says(server, &answers(if is_ahead { "3 E(42P01) Z(I)" } else { "3 E(42P01)" }));
        assert_eq!(table.hears(server), if is_ahead { "" } else { "S" });
        if !is_ahead {
            table.says(server, &answers("Z(I)"));
        }
        assert_eq!(table.hears(client), format!("{heard}E(42P01) Z(I)"));
    }
}

#[test]
fn a_statement_that_changes_behind_its_parse_is_described_as_far_as_postgresql_does() {
    for (next, sent, heard) in [(describe("a"), "D(sluice_0) S", "t "), (bind("a", 0), "B(sluice_0) S", "")] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[parse("a", "SELECT 1"), next, sync()].concat());
        assert_eq!(table.hears(server), format!("P(sluice_0: SELECT 1) D(sluice_0) {sent}"));
        // The first Describe is Sluice's own.
        table.says(server, &answers("1 t E(0A000) Z(I)"));
        assert_eq!(table.hears(client), format!("1 {heard}E(0A000) Z(I)"));
    }
}

#[test]
fn a_batch_that_something_follows_is_not_sent_again() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[run("a"), query("SELECT 2")].concat());
    table.says(server, &answers("E(0A000) Z(I) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "E(0A000) Z(I) C(SELECT 1) Z(I)");
    assert_eq!(table.hears(server), "B(sluice_0) E S Q(SELECT 2)");
    // The next use finds it prepared again.
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "C(sluice_0) P(sluice_0: SELECT 1) B(sluice_0) E S");
}

#[test]
fn a_name_that_was_closed_in_a_batch_that_failed_is_back() {
    let (mut table, client, server) = prepared("SELECT 1");
    let mut close = Vec::new();
    message::put_statement_message(&mut close, message::frontend::CLOSE, b"a");
    table.says(client, &[parse("", "nonsense"), close, sync()].concat());
    assert_eq!(table.hears(server), "P(: nonsense) S");
    table.says(server, &answers("E(42601) Z(I)"));
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
}

#[test]
fn a_transaction_that_is_left_open_is_rolled_back_before_anybody_gets_the_server() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("BEGIN; SELECT 1"));
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    table.says(other, &query("SELECT 2"));
    table.hears(server);
    table.says(client, &terminate());
    assert_eq!(table.hears(server), "Q(ROLLBACK)");
    table.says(server, &answers("C(ROLLBACK) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

#[test]
fn a_deallocate_that_is_bound_outlives_its_statement() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[parse("", "DEALLOCATE a"), bind("", 0), parse("", "SELECT 2"), execute(), sync()].concat());
    let shows = own("SHOW TimeZone");
    assert_eq!(table.hears(server), format!("P(: DEALLOCATE a) P(: SELECT 2) {shows} S"));
    table.says(server, &answers("1 1 3 1 2 D() C(SHOW) 3 3 Z(I)"));
    assert_eq!(table.hears(client), "1 2 1 C(DEALLOCATE) Z(I)");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(a) E S", "it is gone");
}

#[test]
fn a_deallocate_that_is_bound_goes_with_its_transaction() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[query("BEGIN"), parse("", "DEALLOCATE a"), bind("", 0), run("nowhere")].concat());
    table.says(server, &answers("1 2 C(BEGIN) 3 1"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T) 1 2");
    table.says(server, &answers("E(26000) Z(E)"));
    table.says(client, &[execute(), sync(), query("ROLLBACK")].concat());
    assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] P(: DEALLOCATE a) B(nowhere) E S E S Q(ROLLBACK)");
    table.says(server, &answers("E(34000) Z(E) C(ROLLBACK) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)", "nobody knows what that statement would have done");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S", "it is still there");
}

#[test]
fn a_sync_within_a_copy_ends_no_batch() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &[parse("", "COPY t FROM STDIN"), bind("", 0), execute()].concat());
    table.says(server, &answers("1 2 G"));
    // The server ignores the Sync; the one behind the COPY's end has not come yet.
    table.says(client, &[sync(), b"c\0\0\0\x04".to_vec()].concat());
    table.says(server, &answers("C(COPY 0)"));
    table.says(other, &query("SELECT 1"));
    assert_eq!(table.hears(server), "P(: COPY t FROM STDIN) B() E S c");
    table.says(client, &sync());
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(server), "S Q()", "a time-out or a cancel that has come meanwhile is not the next one's");
    table.says(server, &answers("I Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    assert_eq!(table.hears(client), "1 2 G C(COPY 0) Z(I)");
}

#[test]
fn a_flush_within_a_copy_is_the_servers_to_ignore() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[parse("", "COPY t FROM STDIN"), bind("", 0), execute(), sync()].concat());
    // As libpq does it: that Sync is on its way when the COPY begins.
    table.says(server, &answers("1 2 G"));
    table.says(client, &[flush(), b"c\0\0\0\x04".to_vec(), sync()].concat());
    assert_eq!(table.hears(server), "P(: COPY t FROM STDIN) B() E S H c S");
    table.says(server, &answers("C(COPY 0) Z(I)"));
    assert_eq!(table.hears(client), "1 2 G C(COPY 0) Z(I)");
}

#[test]
fn the_end_of_a_server_is_told_whatever_is_owed() {
    let (mut table, client, server) = prepared("SELECT 1");
    // The name is taken, and the server is made to raise an error for it; but it ends.
    table.says(client, &[parse("a", "SELECT 2"), sync()].concat());
    table.says(server, &answers("E(57P01)"));
    assert_eq!(table.hears(client), "E(57P01)");
}

#[test]
fn a_server_hears_where_its_client_is_before_anything_else() {
    let mut table = Table::telling(one());
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &[query("BEGIN"), query("SELECT 1")].concat());
    assert_eq!(table.hears(server), "F(77) P(: BEGIN) B() E C[] Q(SELECT 1)");
    table.says(server, &answers("V(t) Z(I) 1 2 C(BEGIN) 3 C(SELECT 1) Z(T)"));
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(COMMIT) Q(SELECT 2)", "it knows where that client is");
    assert_eq!(table.hears(client), "C(BEGIN) Z(T) C(SELECT 1) Z(T) C(COMMIT) Z(I)");
}

#[test]
fn a_server_that_can_not_hear_of_the_next_client_does_not_go_on_showing_the_last_one() {
    for (first, second, goes) in
        [("V(t)", "V(t)", false), ("V(t)", "V(f)", true), ("V(f)", "", false), ("V(t)", "E(42883)", true)]
    {
        let mut table = Table::telling(one());
        let [client, other] = [table.client(), table.comes_from("203.0.113.5:51000")];
        let mut packet = Vec::new();
        startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app"), ("database", "app")]);
        table.says(other, &packet);
        table.hears(other);
        let server = table.servers()[0];
        for (client, told) in [(client, first), (other, second)] {
            table.says(client, &query("SELECT 1"));
            assert_eq!(table.hears(server).starts_with("F(77)"), !told.is_empty(), "{first}, {second}");
            let told = if told.is_empty() { String::new() } else { format!("{told} Z(I) ") };
            table.says(server, &answers(&format!("{told}C(SELECT 1) Z(I)")));
            assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
        }
        assert_eq!(table.is_closed(server), goes, "{first}, {second}");
    }
}
