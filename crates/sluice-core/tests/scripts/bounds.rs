//! Bounds: things that must not grow without an end, nor last without one, whatever a client does or leaves undone.

use std::time::Duration;

use sluice_control::{
    access::Method,
    settings::{Limits, PoolMode, PoolSettings, Sharing},
};
use sluice_core::{client::PENDING_BYTES_MAX, time::Time};
use sluice_wire::{ErrorResponse, message};

use crate::{
    one, prepared, seated,
    table::{Side, Table, answers, bind, close, describe, execute, flush, limits, parse, query, sync},
};

/// The backlog above which its sender is paused, in bytes, as ARCHITECTURE.md has it.
const BACKLOG_HIGH_BYTES: usize = 256 << 10;

/// Bytes that one chunk may add to a backlog that is just below the limit.
const SLACK: usize = 64 << 10;

/// The number of times that a word is said.
fn times(said: &str, word: &str) -> usize {
    said.split(' ').filter(|it| *it == word).count()
}

#[test]
fn who_does_not_read_is_not_answered() {
    for (asked, answered) in [
        (sync(), "Z(I)"),
        ([query("BEGIN"), query("ROLLBACK")].concat(), "C(BEGIN)"),
        ([parse("b", "SELECT 1"), close("b")].concat(), "3"),
        ([parse("b", "SELECT 1"), query("DEALLOCATE b")].concat(), "C(DEALLOCATE)"),
    ] {
        let (mut table, client, _) = prepared("SELECT 1");
        let chunk = asked.repeat(500);
        let mut chunks = 0;
        while !table.is_paused(client) {
            // The others are under way when reading stops.
            table.says_at_once(client, &[chunk.as_slice(); 4]);
            chunks += 4;
            assert!(table.unread(client) < BACKLOG_HIGH_BYTES + SLACK, "{answered}: {} bytes", table.unread(client));
        }
        // What comes when reading has stopped waits where it is.
        (0..10).for_each(|_| table.says(client, &chunk));
        let waiting = table.unread(client);
        assert!((BACKLOG_HIGH_BYTES + 1..BACKLOG_HIGH_BYTES + SLACK).contains(&waiting), "{answered}: {waiting} bytes");
        // It reads, and gets all of it.
        let mut count = times(&table.hears(client), answered);
        while table.unread(client) > 0 {
            count += times(&table.hears(client), answered);
        }
        assert_eq!(count, (chunks + 10) * 500, "{answered}");
        assert!(!table.is_paused(client));
    }
}

#[test]
fn who_does_not_read_is_not_owed_more_and_more() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &query("SELECT pg_sleep(60)"));
    // Answers of Sluice's own that must stand behind the server's.
    let chunk = close("").repeat(500);
    let mut chunks = 0;
    while !table.is_paused(client) {
        table.says(client, &chunk);
        chunks += 1;
        assert!(chunks < 1000, "nobody stops it");
    }
    assert!(table.hears(server).starts_with("Q(SELECT pg_sleep(60))"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    let mut count = times(&table.hears(client), "3");
    while table.unread(client) > 0 {
        count += times(&table.hears(client), "3");
    }
    assert_eq!((count, table.is_paused(client)), (chunks * 500, false));
}

#[test]
fn large_answers_to_small_messages_are_counted() {
    for is_busy in [false, true] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[parse("a", "DELETE FROM t WHERE i = $1"), sync()].concat());
        table.says(server, &answers(&format!("1 t({}) n Z(I)", "23 ".repeat(10_000))));
        table.hears(client);
        if is_busy {
            table.says(client, &query("BEGIN; SELECT pg_sleep(60)"));
        }
        let asked = 1000;
        table.says(client, &[describe("a").repeat(asked), sync()].concat());
        assert!(table.unread(client) < BACKLOG_HIGH_BYTES + SLACK, "{} bytes", table.unread(client));
        if is_busy {
            table.says(server, &answers("C(BEGIN) D(x) C(SELECT 1) Z(T)"));
        }
        let mut said = String::new();
        while table.unread(client) > 0 {
            assert!(table.unread(client) < 2 * BACKLOG_HIGH_BYTES, "{} bytes", table.unread(client));
            said += &(table.hears(client) + " ");
        }
        assert_eq!((times(&said, "t(many)"), times(&said, "n")), (asked, asked));
        assert!(said.trim_end().ends_with(if is_busy { "Z(T)" } else { "Z(I)" }));
        assert!(!table.is_paused(client));
    }
}

#[test]
fn a_batch_that_is_held_for_its_length_goes_on() {
    let (mut table, client, server) = prepared("SELECT 1");
    // The server keeps its answers until it is asked for them: without that, nobody would move.
    let batch = [bind("a", 0), execute()].concat();
    while !table.is_paused(client) {
        table.says(client, &batch.repeat(100));
    }
    let asked = table.hears(server);
    assert!(asked.ends_with(" H"), "it is asked for what it owes");
    for _ in 0..times(&asked, "E") {
        table.says(server, &answers("2 C(SELECT 1)"));
    }
    while table.unread(client) > 0 {
        table.hears(client);
    }
    table.says(client, &sync());
    assert!(!table.is_paused(client));
    assert!(table.hears(server).ends_with(" S"));
}

#[test]
fn one_reason_to_wait_does_not_undo_another() {
    let (mut table, client, server) = prepared("SELECT $1");
    // The server does not read.
    table.says(client, &query("BEGIN; SELECT 1"));
    let large = [bind("a", 100_000), execute()].concat();
    while !table.is_paused(client) {
        table.says(client, &large);
    }
    // It answers, but the client does not read either, and what it sent last arrives now.
    let rows = answers(&format!("D({})", "x".repeat(50_000))).repeat(6);
    table.says(server, &rows);
    table.says(client, &large);
    let to_server = table.unread(server);
    table.hears(server);
    assert!(table.is_paused(client), "it has not read yet");
    table.says(client, &large);
    assert!(to_server > BACKLOG_HIGH_BYTES && table.unread(server) == 0, "nor is it heard before it does");
    table.hears(client);
    assert!(!table.is_paused(client));
    assert_eq!(times(&table.hears(server), "E"), 2);
}

#[test]
fn who_has_not_proven_anything_gets_no_pool() {
    for method in [Method::Md5, Method::ScramSha256] {
        let mut table = Table::limited(one(), limits(), method);
        let strangers: Vec<_> = (0..20).map(|number| table.stranger(&format!("made_up_{number}"))).collect();
        assert!(strangers.iter().all(|client| table.hears(*client) == "R"), "all are asked");
        assert_eq!(table.pools(), 0);
    }
}

#[test]
fn there_are_no_more_pools_than_may_be() {
    let mut table = Table::limited(one(), Limits { pools: 2, ..limits() }, Method::Trust);
    let first = table.stranger("one");
    let second = table.stranger("two");
    let refused = table.stranger("three");
    assert_eq!(table.hears(refused), "R E(53300)");
    assert!(table.is_closed(refused) && !table.is_closed(first) && !table.is_closed(second));
    // As many as there are may come to a pool that there is.
    let another = table.stranger("two");
    assert!(!table.is_closed(another));
    // A pool that nobody uses makes room: its client has gone, and its server.
    table.hangs_up(first);
    for server in table.servers() {
        table.hangs_up(server);
    }
    let third = table.stranger("three");
    assert!(!table.is_closed(third));
    assert_eq!(table.pools(), 2);
}

/// A table with two clients and one server, and limits that are to be felt.
fn impatient(settings: PoolSettings) -> (Table, [Side; 2], Side) {
    impatient_with(settings, Duration::from_secs(10))
}

fn impatient_with(settings: PoolSettings, idle_transaction: Duration) -> (Table, [Side; 2], Side) {
    let times = Limits {
        client_message_timeout: Duration::from_secs(20),
        idle_transaction_timeout: Some(idle_transaction),
        rewritten_message_bytes: 1 << 20,
        ..limits()
    };
    let mut table = Table::limited(settings, times, Method::Trust);
    let clients = [table.client(), table.client()];
    let server = table.servers()[0];
    (table, clients, server)
}

#[test]
fn half_a_message_holds_a_server_for_a_time() {
    let whole = query(&format!("SELECT '{}'", "x".repeat(600)));
    // One that passes as it comes, and one that is collected.
    for (message, cut) in [(&whole, 300), (&parse("a", "SELECT 1"), 7)] {
        let (mut table, [client, other], server) = impatient_with(one(), Duration::from_secs(60));
        // The first statement is why it has a server at all.
        table.says(client, &[query("BEGIN READ WRITE"), message[..cut].to_vec()].concat());
        table.says(server, &answers("C(BEGIN) Z(T)"));
        table.says(other, &query("SELECT 2"));
        table.passes(Duration::from_millis(19_900));
        assert!(!table.is_closed(client));
        table.passes(Duration::from_millis(100));
        assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(08P01)");
        assert!(table.is_closed(client));
        // A server that was sent half a message is of no use any more, another is put in order.
        let next = table.connects().first().copied().unwrap_or(server);
        if next == server {
            assert!(table.hears(server).ends_with("Q(ROLLBACK)"));
            table.says(server, &answers("C(ROLLBACK) Z(I)"));
        }
        table.says(next, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(other), "C(SELECT 1) Z(I)");
    }
}

#[test]
fn half_a_message_does_not_prolong_an_idle_transaction() {
    let whole = query(&format!("SELECT '{}'", "x".repeat(600)));
    for (message, cut) in [(&whole, 3), (&whole, 300), (&parse("a", "SELECT 1"), 7)] {
        for comes_later in [false, true] {
            let (mut table, [client, _], server) = impatient(one());
            table.says(client, &query("BEGIN READ WRITE"));
            if !comes_later {
                table.says(client, &message[..cut]);
            }
            // That is the server's time.
            table.passes(Duration::from_secs(5));
            table.says(server, &answers("C(BEGIN) Z(T)"));
            table.passes(Duration::from_secs(6));
            if comes_later {
                table.says(client, &message[..cut]);
            }
            table.passes(Duration::from_millis(3_900));
            assert!(!table.is_closed(client), "{cut} {comes_later}");
            table.passes(Duration::from_millis(100));
            assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(25P03)", "{cut} {comes_later}");
        }
    }
    let (mut table, [client, _], server) = impatient(one());
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.says(client, &whole[..300]);
    table.passes(Duration::from_secs(9));
    table.says(client, &whole[300..]);
    table.passes(Duration::from_secs(30));
    assert!(!table.is_closed(client));
}

#[test]
fn a_message_that_comes_slowly_has_time_and_one_that_only_drips_has_not() {
    let (mut table, [client, other], _) = impatient(PoolSettings { size: 2, ..one() });
    let message = query(&format!("SELECT '{}'", "x".repeat(10 * PENDING_BYTES_MAX)));
    for chunk in message.chunks(PENDING_BYTES_MAX) {
        table.says(client, chunk);
        table.passes(Duration::from_secs(15));
    }
    // One that is too large to be collected passes as it comes.
    let mut endless = message;
    endless[1..5].copy_from_slice(&(17_u32 << 20).to_be_bytes());
    table.says(other, &endless[..600]);
    table.connects();
    for byte in &endless[600..620] {
        assert!(!table.is_closed(other));
        table.says(other, &[*byte]);
        table.passes(Duration::from_secs(1));
    }
    assert!(table.is_closed(other) && !table.is_closed(client));
}

#[test]
fn a_message_that_is_collected_without_a_server_is_kept_for_a_time() {
    let (mut table, [stops, small], _) = impatient(one());
    let large = parse("large", &"x".repeat(2 * PENDING_BYTES_MAX));
    table.says(stops, &large[..large.len() - 200]);
    table.says(small, &large[..1000]);
    table.passes(Duration::from_millis(19_900));
    assert!(!table.is_closed(stops));
    table.passes(Duration::from_millis(100));
    assert_eq!(table.hears(stops), "E(08P01)");
    assert!(table.is_closed(stops) && !table.is_closed(small), "a part that is small costs next to nothing");
    // It has all the time that it needs.
    table.says(small, &large[1000..large.len() - 200]);
    table.passes(Duration::from_secs(15));
    table.says(small, &large[large.len() - 200..]);
    table.passes(Duration::from_secs(15));
    assert!(!table.is_closed(small));
}

/// PostgreSQL keeps its answers to a batch to itself until it is asked for them: so it is, and then the time begins.
#[test]
fn a_batch_whose_answers_nobody_asks_for_holds_a_server_for_a_time() {
    let (mut table, [client, _], server) = impatient(one());
    table.says(client, &[parse("", "SELECT 1"), bind("", 0), execute()].concat());
    table.hears(server);
    table.passes(Duration::from_millis(900));
    assert_eq!(table.hears(server), "");
    table.passes(Duration::from_millis(100));
    assert_eq!(table.hears(server), "H");
    // It works.
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(client));
    table.says(server, &answers("1 2 C(SELECT 1)"));
    table.passes(Duration::from_millis(9_900));
    assert!(!table.is_closed(client));
    table.passes(Duration::from_millis(100));
    assert_eq!(table.hears(client), "1 2 C(SELECT 1) E(25P03)");
    assert!(table.is_closed(client));
}

#[test]
fn an_idle_transaction_holds_a_server_for_a_time() {
    for (begin, answer, told) in [
        (query("BEGIN READ WRITE"), "C(BEGIN) Z(T)", "C(BEGIN) Z(T)"),
        (
            [parse("", "SELECT 1"), bind("", 0), execute(), message::FLUSH.to_vec()].concat(),
            "1 2 C(SELECT 1)",
            "1 2 C(SELECT 1)",
        ),
        (query("COPY t FROM STDIN"), "G", "G"),
    ] {
        let (mut table, [client, other], server) = impatient(one());
        table.says(client, &begin);
        // While the server works, it is not the client that is waited for.
        table.passes(Duration::from_secs(60));
        table.says(server, &answers(answer));
        table.passes(Duration::from_millis(9_900));
        assert_eq!(table.hears(client), told);
        assert!(!table.is_closed(client));
        table.says(other, &query("SELECT 2"));
        table.passes(Duration::from_millis(100));
        assert_eq!(table.hears(client), "E(25P03)");
        assert!(table.is_closed(client) && !table.is_closed(other));
    }
}

#[test]
fn who_goes_on_with_a_transaction_begins_its_time_anew() {
    let (mut table, [client, _], server) = impatient(one());
    for _ in 0..5 {
        table.says(client, &query("BEGIN READ WRITE"));
        table.says(server, &answers("C(BEGIN) Z(T)"));
        table.passes(Duration::from_secs(9));
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(T)"));
        table.passes(Duration::from_secs(9));
        table.says(client, &query("COMMIT"));
        table.says(server, &answers("C(COMMIT) Z(I)"));
        table.passes(Duration::from_secs(30));
    }
    // No server has to know of it.
    table.says(client, &query("BEGIN"));
    table.passes(Duration::from_secs(9));
    table.says(client, &query("COMMIT"));
    table.passes(Duration::from_secs(30));
    assert!(!table.is_closed(client));
}

#[test]
fn a_large_bind_may_be_cut_anywhere() {
    let (mut table, client, server) = prepared("SELECT $1");
    // Larger than what may be collected.
    let large = bind("a", 10_000);
    for cut in 1..20 {
        table.says(client, &large[..cut]);
        table.says(client, &large[cut..]);
        table.says(client, &[execute(), sync()].concat());
        assert_eq!(table.hears(server), "B(sluice_0) E S", "cut at {cut}");
        table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    }
    assert!(!table.is_closed(client));
}

#[test]
fn a_large_error_passes_as_it_comes_and_the_session_goes_on() {
    let (mut table, client, server) = seated(one());
    for (length, whole) in [(3_000_000, false), (200_000, true)] {
        table.says(client, &query("SELECT 1"));
        table.hears(server);
        let mut error = ErrorResponse::error("22P02", "x".repeat(length)).to_bytes();
        error.extend_from_slice(&answers("Z(I)"));
        // Not before its code is there.
        for (at, piece) in error.chunks(50_000).enumerate() {
            table.says(server, piece);
            if at == 2 {
                assert_eq!(table.unread(client) == 0, whole, "{length}");
            }
        }
        let heard = table.hears(client);
        assert!(heard.starts_with("E(22P02") && heard.ends_with("Z(I)"), "{}", &heard[..100]);
    }
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

#[test]
fn what_stands_behind_a_copy_meets_it_as_in_postgresql() {
    let (mut table, client, server) = prepared("COPY t FROM STDIN");
    // The pool knows what this one returns, and would answer the Describe itself.
    table.says(client, &[bind("a", 0), execute(), describe("a"), sync()].concat());
    let sent = table.hears(server);
    assert!(sent.ends_with(" E H"), "{sent}");
    table.says(server, &answers("2 G"));
    assert_eq!(table.hears(server), "D(a) S", "the server refuses that");
    table.says(server, &answers("E(08P01) E(FATAL 08P01)"));
    assert!(table.hears(client).starts_with("2 G E(08P01)"));
}

#[test]
fn the_beginning_of_a_small_message_takes_no_server() {
    let mut call = Vec::new();
    message::put_function_call(&mut call, 77, |out| out.extend_from_slice(&[0; 100]));
    for message in [bind("a", 100), call, query("SELECT 1"), parse("a", "SELECT 1"), describe("a"), close("a")] {
        for cut in 1..message.len() {
            let mut table = Table::reporting(one());
            let (client, other) = (table.client(), table.client());
            let server = table.servers()[0];
            table.says(client, &message[..cut]);
            table.says(other, &query("SELECT 2"));
            assert_eq!(table.hears(server), "Q(SELECT 2)", "{:?}, {cut}", char::from(message[0]));
        }
    }
}

/// A table with these limits, and a client and its server.
fn limited(limits: Limits) -> (Table, Side, Side) {
    let mut table = Table::limited(one(), limits, Method::Trust);
    let client = table.client();
    let server = table.servers()[0];
    (table, client, server)
}

#[test]
fn a_client_that_asks_for_nothing_has_its_time() {
    let (mut table, client, server) = limited(Limits { idle_client_timeout: Some(Duration::from_secs(5)), ..limits() });
    for _ in 0..3 {
        table.passes(Duration::from_secs(4));
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
    }
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(client), "it has a transaction open");
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    table.hears(client);
    table.passes(Duration::from_millis(4_900));
    assert_eq!(table.hears(client), "");
    table.passes(Duration::from_millis(100));
    let error = table.hears_error(client);
    assert!(error.contains("57P05") && error.contains("idle_client_timeout"), "{error}");
}

#[test]
fn a_client_that_keeps_its_server_has_the_same_time() {
    let mut table = Table::limited(
        PoolSettings { sharing: Sharing { mode: PoolMode::Session, ..Sharing::default() }, ..one() },
        Limits { idle_client_timeout: Some(Duration::from_secs(5)), ..limits() },
        Method::Trust,
    );
    let client = table.client();
    let server = table.servers()[0];
    table.passes(Duration::from_secs(4));
    table.says(client, &query("SELECT 1"));
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(client), "its server works");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hears(client);
    table.passes(Duration::from_secs(5));
    assert_eq!(table.hears(client), "E(57P05)");
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_and_a_server_that_does_not_answer_is_left() {
    let (mut table, client, server) = limited(Limits { query_timeout: Some(Duration::from_secs(10)), ..limits() });
    let other = table.client();
    table.says(client, &query("SELECT 1"));
    table.passes(Duration::from_secs(9));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(client, &query("SELECT pg_sleep(60)"));
    table.passes(Duration::from_secs(9));
    assert_eq!(table.cancels(), 0, "each has its own time");
    table.passes(Duration::from_secs(1));
    assert_eq!(table.cancels(), 1);
    table.cancels_arrive();
    table.hears(client);
    table.says(server, &answers("E(57014) Z(I)"));
    assert_eq!(table.hears(client), "E(57014) Z(I)");
    table.passes(Duration::from_secs(60));
    table.says(client, &query("SELECT pg_sleep(60)"));
    table.passes(Duration::from_secs(10));
    assert_eq!(table.cancels(), 2);
    table.cancels_arrive();
    table.says(other, &query("SELECT 2"));
    table.passes(Duration::from_millis(4_900));
    assert_eq!(table.hears(client), "");
    table.passes(Duration::from_millis(100));
    let new = table.connects()[0];
    assert_eq!(table.hears(new), "Q(SELECT 2)", "nobody waits for that server any more");
    let error = table.hears_error(client);
    assert!(error.contains("08007") && error.contains("query_timeout"), "{error}");
}

/// Each request has its time from when the one before it is answered, however early it was sent.
#[test]
fn a_request_that_was_sent_along_with_another_has_its_time_as_well() {
    let batch = |sql| [parse("", sql), bind("", 0), execute(), sync()].concat();
    for (both, first) in [
        ([query("SELECT 1"), query("SELECT pg_sleep(60)")].concat(), "C(SELECT 1) Z(I)"),
        ([batch("SELECT 1"), batch("SELECT pg_sleep(60)")].concat(), "1 2 C(SELECT 1) Z(I)"),
        ([query("BEGIN READ WRITE"), query("SELECT pg_sleep(60)")].concat(), "C(BEGIN) Z(T)"),
    ] {
        let (mut table, client, server) = limited(Limits { query_timeout: Some(Duration::from_secs(10)), ..limits() });
        table.says(client, &both);
        table.passes(Duration::from_secs(9));
        table.says(server, &answers(first));
        table.passes(Duration::from_secs(9));
        assert_eq!((table.hears(client).as_str(), table.cancels()), (first, 0));
        table.passes(Duration::from_secs(2));
        table.connects();
        assert_eq!(table.cancels(), 1);
        table.cancels_arrive();
        table.passes(Duration::from_secs(5));
        assert_eq!(table.hears(client), "E(08007)");
    }
}

/// A server that waits for its client takes no time.
#[test]
fn a_clients_own_pause_is_not_its_servers_time() {
    let batch = [parse("", "SELECT 1"), bind("", 0), execute()].concat();
    let answered = |table: &mut Table, server| table.says(server, &answers("1 2 C(SELECT 1)"));
    for ending in [flush(), Vec::new()] {
        let (mut table, client, server) = limited(Limits { query_timeout: Some(Duration::from_secs(10)), ..limits() });
        table.says(client, &[batch.clone(), ending.clone()].concat());
        if !ending.is_empty() {
            answered(&mut table, server);
        }
        table.passes(Duration::from_secs(60));
        table.says(client, &sync());
        table.passes(Duration::from_millis(9_900));
        assert_eq!((table.is_closed(client), table.cancels()), (false, 0));
        table.passes(Duration::from_millis(100));
        assert_eq!(table.cancels(), 1, "its own time begins with what asks for it");
    }

    let (mut table, client, server) = limited(Limits { query_timeout: Some(Duration::from_secs(10)), ..limits() });
    table.says(client, &query("COPY items FROM STDIN"));
    table.passes(Duration::from_secs(9));
    table.says(server, &answers("G"));
    table.passes(Duration::from_secs(60));
    table.says(client, b"d\0\0\0\x061\n");
    table.passes(Duration::from_secs(60));
    table.says(client, b"c\0\0\0\x04");
    table.passes(Duration::from_millis(9_900));
    assert_eq!((table.is_closed(client), table.cancels()), (false, 0));
    table.passes(Duration::from_millis(100));
    assert_eq!(table.cancels(), 1);
}

/// Requests that are sent together are counted each by itself.
#[test]
fn requests_that_are_sent_together_are_all_counted() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[query("BEGIN READ WRITE"), query("SELECT 1"), query("COMMIT"), query("SELECT 2")].concat());
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.passes(Duration::from_millis(20));
    table.says(server, &answers("C(SELECT 1) Z(T) C(COMMIT) Z(I)"));
    table.passes(Duration::from_millis(5));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    let counted = table.hub().figures(Time(0)).pools[0].traffic;
    assert_eq!((counted.queries.count(), counted.transactions.count()), (4, 2));
    assert_eq!((counted.queries.sum, counted.transactions.sum), (Duration::from_millis(25), Duration::from_millis(25)));
}

/// Who has only begun, or has not come to the end of a batch, is idle in a transaction: with or without a server.
#[test]
fn what_is_left_open_without_a_server_has_its_time() {
    let amid = [query("BEGIN"), query("SELECT 1")[..3].to_vec()].concat();
    for (open, told) in [(query("BEGIN"), "C(BEGIN) Z(T)"), (amid, "C(BEGIN) Z(T)"), (close("nothing"), "3")] {
        let (mut table, [client, _], _) = impatient(one());
        table.says(client, &open);
        assert_eq!(table.hears(client), told);
        table.passes(Duration::from_millis(9_900));
        assert!(!table.is_closed(client), "{}", open.escape_ascii());
        table.passes(Duration::from_millis(100));
        assert_eq!(table.hears(client), "E(25P03)", "{}", open.escape_ascii());
    }
}
