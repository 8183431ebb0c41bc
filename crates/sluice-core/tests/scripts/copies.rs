//! COPYs that fail, with Syncs sent for them: the server ignores those that it has read by then, and answers the others.

use sluice_wire::message;

use crate::{
    one, seated,
    table::{Side, Table, answers, bind, describe, execute, flush, parse, query, sync},
};

/// The messages that libpq sends for a COPY by the extended protocol.
fn copy() -> Vec<u8> {
    [parse("", "COPY t FROM STDIN"), bind("", 0), execute(), sync()].concat()
}

const DATA: &[u8] = b"d\0\0\0\x05a";
const DONE: &[u8] = b"c\0\0\0\x04";

/// A server that reads a COPY which the first client has begun, and another client that waits for it.
fn copying() -> (Table, [Side; 2], Side) {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &copy());
    table.says(server, &answers("1 2 G"));
    table.says(other, &query("SELECT 1"));
    assert_eq!(table.hears(server), "P(: COPY t FROM STDIN) B() E S");
    assert_eq!(table.hears(client), "1 2 G");
    (table, [client, other], server)
}

/// The question for what a server owes.
const ASKED: &str = "S C(sluice_own) S";

#[test]
fn a_copy_that_fails_at_once_has_its_sync_answered() {
    let (mut table, [client, _], server) = copying();
    table.says(server, &answers("E(42809) Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), (ASKED, "E(42809)"));
    table.says(server, &answers("Z(I) 3 Z(I)"));
    assert_eq!(table.hears(client), "Z(I)");
    assert_eq!(table.hears(server), "Q()");
    table.says(server, &answers("I Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)", "it is the next one's");
}

#[test]
fn whether_a_sync_was_ignored_is_asked() {
    for is_ignored in [false, true] {
        let (mut table, [client, other], server) = copying();
        table.says(client, &[DATA, DONE, &sync()].concat());
        assert_eq!(table.hears(server), "d c S");
        table.says(server, &answers("E(22P04) Z(I)"));
        assert_eq!(table.hears(server), ASKED, "there may be another one to come");
        table.says(client, &query("SELECT 2"));
        if !is_ignored {
            table.says(server, &answers("Z(I)"));
        }
        table.says(server, &answers("Z(I) 3 Z(I)"));
        let heard = if is_ignored { "E(22P04) Z(I)" } else { "E(22P04) Z(I) Z(I)" };
        assert_eq!(table.hears(client), heard);
        assert_eq!(table.hears(server), "Q()");
        table.says(server, &answers("I Z(I)"));
        for (asks, number) in [(other, 1), (client, 2)] {
            assert_eq!(table.hears(server), format!("Q(SELECT {number})"));
            table.says(server, &answers(&format!("C(SELECT {number}) Z(I)")));
            assert_eq!(table.hears(asks), format!("C(SELECT {number}) Z(I)"));
        }
    }
}

#[test]
fn what_stands_behind_a_copy_that_fails_is_skipped_if_its_sync_was_ignored() {
    for is_ignored in [false, true] {
        let (mut table, [client, other], server) = copying();
        table.hangs_up(other);
        table.says(client, &[DATA, &query("SELECT 2")].concat());
        assert_eq!(table.hears(server), "d Q(SELECT 2)", "amid a COPY it ends the session");
        table.says(server, &answers("E(22P04)"));
        assert_eq!(table.hears(client), "E(08007)");

        let (mut table, [client, other], server) = copying();
        table.hangs_up(other);
        table.says(client, DATA);
        table.says(server, &answers("E(22P04)"));
        table.says(client, &query("SELECT 2"));
        assert_eq!((table.hears(server), table.hears(client).as_str()), (format!("d {ASKED}"), "E(22P04)"));
        if !is_ignored {
            table.says(server, &answers("Z(I)"));
        }
        table.says(server, &answers("Z(I) 3 Z(I)"));
        let heard = if is_ignored { "" } else { "Z(I)" };
        assert_eq!(table.hears(client), heard);
        table.says(client, &sync());
        if is_ignored {
            assert_eq!(table.hears(client), "Z(I)");
            assert_eq!(table.hears(server), "Q()");
        } else {
            assert_eq!(table.hears(server), "Q()");
            table.says(server, &answers("I Z(I)"));
            assert_eq!(table.hears(server), "Q(SELECT 2) S");
            table.says(server, &answers("C(SELECT 1) Z(I) Z(I)"));
            assert_eq!(table.hears(client), "C(SELECT 1) Z(I) Z(I)");
        }
    }
}

#[test]
fn a_copy_by_a_query_has_its_syncs_counted() {
    for answered in 0..=2 {
        let (mut table, client, server) = seated(one());
        table.says(client, &[query("COPY t FROM STDIN"), sync()].concat());
        table.says(server, &answers("G"));
        table.says(client, &sync());
        assert_eq!(table.hears(server), "Q(COPY t FROM STDIN) S S");
        table.says(server, &answers("E(22P04) Z(I)"));
        assert_eq!(table.hears(server), ASKED);
        table.says(server, &answers(&format!("{}Z(I) 3 Z(I)", "Z(I) ".repeat(answered))));
        assert_eq!(table.hears(client), format!("G E(22P04) Z(I){}", " Z(I)".repeat(answered)));
        table.says(client, &query("SELECT 1"));
        assert_eq!(table.hears(server), "Q()");
        table.says(server, &answers("I Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
    }
}

#[test]
fn nothing_stands_behind_what_may_be_a_copy() {
    for copy in ["COPY t FROM STDIN", "SELECT 1; copy t from stdout"] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[query(copy), query("SELECT 2")].concat());
        assert_eq!(table.hears(server), format!("Q({copy})"));
        table.says(server, &answers("E(42501) Z(I)"));
        assert_eq!(table.hears(client), "E(42501) Z(I)");
        assert_eq!(table.hears(server), "Q(SELECT 2)");
    }
}

#[test]
fn a_server_that_answers_more_than_it_owes_is_given_up() {
    let (mut table, [client, _], server) = copying();
    table.says(server, &answers("E(42809) Z(I) Z(I)"));
    table.says(server, &answers("Z(I) 3"));
    assert!(table.is_closed(server));
    assert_eq!(table.hears(client), "E(42809) E(08006)");
}

#[test]
fn what_a_copy_has_left_to_come_is_not_the_next_ones() {
    let (mut table, [client, other], server) = copying();
    table.says(client, &[DONE, &sync()].concat());
    table.says(server, &answers("C(COPY 0) Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("c S Q()", "C(COPY 0) Z(I)"));
    table.says(server, &answers("E(57014) Z(I)"));
    assert!(table.is_closed(server));
    let another = table.connects()[0];
    assert_eq!(table.hears(other), "");
    assert_ne!(another, server);
}

#[test]
fn a_server_whose_answers_are_in_doubt_ends_with_its_client() {
    let (mut table, [client, _], server) = copying();
    table.hangs_up(client);
    assert!(table.is_closed(server));
}

#[test]
fn a_describe_amid_a_copy_is_the_servers_to_refuse() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[parse("a", "SELECT 1"), sync()].concat());
    table.says(server, &answers("1 t T(x) Z(I)"));
    table.says(client, &query("COPY t FROM STDIN"));
    table.says(server, &answers("G"));
    table.hears(server);
    table.says(client, &[describe("a"), sync()].concat());
    assert_eq!(table.hears(server), "D(a) S");
    table.says(server, &answers("E(08P01) E(57P01)"));
    assert!(table.hears(client).ends_with("G E(08P01) E(57P01)"));
}

#[test]
fn a_flush_within_a_copy_asks_for_nothing_behind_it() {
    let (mut table, client, server) = seated(one());
    // A portal of the pool's own, for the BEGIN, has the Sync behind the COPY wait for the server's answers.
    table.says(client, &[parse("", "BEGIN"), bind("", 0), execute(), sync()].concat());
    let mut copy = parse("", "COPY t FROM STDIN");
    message::put_bind(&mut copy, b"p", b"", &[]);
    copy.extend_from_slice(b"E\0\0\0\x0ap\0\0\0\0\0");
    table.says(client, &[copy, sync()].concat());
    let sent = table.hears(server);
    assert!(sent.ends_with("B() E H"), "{sent}");
    table.says(server, &answers("1 2 C(BEGIN) 1 2 G"));
    assert_eq!(table.hears(server), "S");
    table.says(client, &[DONE, &sync()].concat());
    assert_eq!(table.hears(server), "c H", "the Sync waits for an answer, which is asked for");
    table.says(server, &answers("C(COPY 0)"));
    assert_eq!(table.hears(server), "S");
    table.says(server, &answers("Z(T)"));
    assert!(table.hears(client).ends_with("G C(COPY 0) Z(T)"));
}

#[test]
fn a_malformed_flush_waits_where_it_may_stand_within_a_copy() {
    const MALFORMED: &[u8] = b"H\0\0\0\x05!";
    const FAIL: &[u8] = b"f\0\0\0\x05\0";
    for answer in ["1 2 G E(57014)", "1 2 E(42501)"] {
        let (mut table, client, server) = seated(one());
        let batch = [parse("", "COPY t FROM STDIN"), bind("", 0), execute()].concat();
        table.says(client, &[&batch, FAIL, MALFORMED, FAIL, &sync()].concat());
        assert_eq!(table.hears(server), "P(: COPY t FROM STDIN) B() E f() H", "the Flush is the pool's own");
        table.says(server, &answers(answer));
        assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("S", answer), "the rest is skipped");
        table.says(server, &answers("Z(I)"));
        assert_eq!(table.hears(client), "Z(I)");
    }
    // A Query's error has nothing skipped.
    let (mut table, client, server) = seated(one());
    table.says(client, &[&query("COPY t FROM STDIN"), MALFORMED].concat());
    assert_eq!(table.hears(server), "Q(COPY t FROM STDIN)");
    table.says(server, &answers("E(42501) Z(I)"));
    assert_eq!(table.take(server), MALFORMED);
    table.says(server, &answers("E(08P01)"));
    table.says(client, &sync());
    table.says(server, &answers("Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("S", "E(42501) Z(I) E(08P01) Z(I)"));
    // A server that reads a COPY ignores it, and one whose COPY has failed meanwhile would not.
    let (mut table, client, server) = seated(one());
    table.says(client, &[&query("COPY t FROM STDIN"), MALFORMED, DONE].concat());
    table.says(server, &answers("G"));
    assert_eq!(table.hears(server), "Q(COPY t FROM STDIN) c");
}

#[test]
fn an_error_between_two_messages_of_a_batch_has_its_rest_skipped() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[parse("", "SELECT f()"), bind("", 0), execute(), flush()].concat());
    table.says(server, &answers("1 2 C(SELECT 1)"));
    table.says(server, &answers("E(57014)"));
    assert_eq!(table.hears(client), "1 2 C(SELECT 1) E(57014)");
    table.hears(server);
    table.says(client, &[query("SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "S");
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(client), "Z(I)");
}

#[test]
fn a_server_that_says_it_is_ready_amid_a_copy_is_out_of_step() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("COPY t FROM STDIN"));
    table.says(server, &answers("G"));
    table.says(client, &sync());
    assert_eq!(table.hears(server), "Q(COPY t FROM STDIN) S");
    table.says(server, &answers("Z(I)"));
    assert!(table.is_closed(server));
    assert_eq!(table.hears(client), "G E(08007)");
}
