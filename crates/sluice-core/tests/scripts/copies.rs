//! COPYs that fail, with Syncs sent for them: the server ignores those that it has read by then, and answers the others.

use crate::{
    one, seated,
    table::{Side, Table, answers, bind, describe, execute, parse, query, sync},
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

#[test]
fn a_copy_that_fails_at_once_has_its_sync_answered() {
    let (mut table, [client, _], server) = copying();
    table.says(server, &answers("E(42809) Z(I)"));
    assert_eq!(table.hears(client), "E(42809) Z(I)");
    assert_eq!(table.hears(server), "Q(SELECT 1)", "it is the next one's");
}

#[test]
fn whether_a_sync_was_ignored_is_asked() {
    for is_ignored in [false, true] {
        let (mut table, [client, other], server) = copying();
        table.says(client, &[DATA, DONE, &sync()].concat());
        assert_eq!(table.hears(server), "d c S");
        table.says(server, &answers("E(22P04) Z(I)"));
        assert_eq!(table.hears(server), "C(sluice_own) S", "there may be another one to come");
        table.says(client, &query("SELECT 2"));
        if !is_ignored {
            table.says(server, &answers("Z(I)"));
        }
        table.says(server, &answers("3 Z(I)"));
        let heard = if is_ignored { "E(22P04) Z(I)" } else { "E(22P04) Z(I) Z(I)" };
        assert_eq!(table.hears(client), heard);
        for (asks, number) in [(other, 1), (client, 2)] {
            assert_eq!(table.hears(server), format!("Q(SELECT {number})"));
            table.says(server, &answers(&format!("C(SELECT {number}) Z(I)")));
            assert_eq!(table.hears(asks), format!("C(SELECT {number}) Z(I)"));
        }
    }
}

#[test]
fn what_comes_next_tells_whether_a_sync_was_ignored() {
    let (mut table, client, server) = seated(one());
    // By a Query, whose own ReadyForQuery comes first.
    table.says(client, &query("COPY t FROM STDIN"));
    table.says(server, &answers("G"));
    table.says(client, &[DATA, &sync()].concat());
    table.says(server, &answers("E(22P04) Z(I)"));
    assert_eq!(table.hears(server), "Q(COPY t FROM STDIN) d S C(sluice_own) S");
    table.says(server, &answers("Z(I) 3 Z(I)"));
    assert_eq!(table.hears(client), "G E(22P04) Z(I) Z(I)");
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
}

#[test]
fn a_server_whose_answers_are_in_doubt_ends_with_its_client() {
    let (mut table, [client, _], server) = copying();
    table.hangs_up(client);
    assert!(table.is_closed(server));
}

#[test]
fn what_stands_behind_a_sync_amid_a_copy_that_fails_ends_the_session() {
    let (mut table, [client, _], server) = copying();
    table.says(client, DATA);
    table.says(server, &answers("E(22P04)"));
    assert_eq!(table.hears(client), "E(22P04)");
    table.says(client, &query("SELECT 2"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("d", "E(08006)"));
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
}

#[test]
fn the_sync_behind_an_error_amid_a_copy_is_answered_once() {
    for is_ignored in [true, false] {
        let (mut table, [client, _], server) = copying();
        table.says(client, DATA);
        table.says(server, &answers("E(22P04)"));
        assert_eq!(table.hears(client), "E(22P04)");
        table.says(client, &[b"f\0\0\0\x07no\0".to_vec(), sync()].concat());
        assert_eq!(table.hears(server), "d S");
        table.says(server, &answers("Z(I)"));
        assert_eq!(table.hears(server), "C(sluice_own) S");
        let more = if is_ignored { "" } else { " Z(I)" };
        table.says(server, &answers(&format!("{more} 3 Z(I)")));
        assert_eq!(table.hears(client), format!("Z(I){more}"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
    }
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
