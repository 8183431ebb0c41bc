//! A BEGIN that the client was told of before its server, which then refuses it: nothing of its transaction ever runs
//! outside of one.

use sluice_control::{access::Method, settings::Limits};
use sluice_wire::message;

use crate::{
    one, run, seated,
    sessions::{ZONE_X, leaves},
    table::{Table, answers, bind, execute, limits, parse, query, sync},
};

#[test]
fn nothing_is_done_outside_of_a_transaction_that_did_not_begin() {
    for (first, second, sent, skipped) in [
        (query("DELETE FROM t"), query("DELETE FROM u"), "Q(DELETE FROM t)", "S"),
        ([parse("", "DELETE"), run("")].concat(), [parse("", "x"), run("")].concat(), "P(: DELETE) B() E S", ""),
    ] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[query("BEGIN"), first, second].concat());
        // What is behind waits until the BEGIN is answered.
        assert_eq!(table.hears(server), format!("P(: BEGIN) B() E C[] {sent}"));
        // The server skips up to a Sync; a Query has none.
        table.says(server, &answers("1 E(53S01)"));
        assert_eq!(table.hears(server), skipped);
        table.says(server, &answers("Z(I)"));
        assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(53S01) Z(E)", "to the client its statement has failed");
        // It gets a transaction that has failed as well, before anything else.
        assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] D(!) S");
        // That transaction may be refused again.
        table.says(server, &answers("1 E(53S01) Z(I)"));
        assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] D(!) S");
        table.says(server, &answers("1 2 C(BEGIN) 3 E(26000) Z(E)"));
        assert!(table.hears(server).ends_with(if skipped.is_empty() { "S" } else { "Q(DELETE FROM u)" }));
        table.says(server, &answers("E(25P02) Z(E)"));
        assert_eq!(table.hears(client), "E(25P02) Z(E)");
    }
}

#[test]
fn a_batch_of_a_transaction_that_did_not_begin_is_skipped_to_its_end() {
    let (mut table, client, server) = seated(one());
    table.says(client, &[query("BEGIN"), parse("", "DELETE"), bind("", 0), execute()].concat());
    table.says(server, &answers("1 E(57014)"));
    table.says(client, &[bind("", 0), execute()].concat());
    assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(57014)");
    table.says(client, &sync());
    assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] P(: DELETE) B() E S");
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(client), "Z(E)");
    // No server knows of the transaction, so none is needed to end it.
    table.says(client, &query("COMMIT"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("", "C(ROLLBACK) Z(I)"));
}

#[test]
fn a_refused_begin_does_not_cut_the_query_behind_it() {
    let (mut table, client, server) = seated(one());
    let large = query(&format!("INSERT INTO t VALUES ({})", "1".repeat(40_000)));
    table.says(client, &[query("BEGIN"), large[..10_000].to_vec()].concat());
    table.says(server, &answers("1 E(53S01)"));
    table.says(client, &large[10_000..]);
    let heard = table.hears(server);
    assert!(heard.starts_with("P(: BEGIN) B() E C[] Q(INSERT") && heard.ends_with("11)) S"), "{heard}");
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(53S01) Z(E)");
}

#[test]
fn a_begin_that_is_refused_before_a_message_is_whole_is_the_failure_of_that() {
    let text = "1".repeat(40_000);
    let (mut call, mut bind) = (Vec::new(), Vec::new());
    message::put_function_call(&mut call, 77, |out| out.extend_from_slice(text.as_bytes()));
    message::put_bind(&mut bind, b"", b"a", &[Some(text.as_bytes())]);
    for message in [query(&format!("INSERT INTO t VALUES ({text})")), call, [bind, execute(), sync()].concat()] {
        let mut table = Table::limited(one(), Limits { rewritten_message_bytes: 1 << 20, ..limits() }, Method::Trust);
        let client = table.client();
        let server = table.servers()[0];
        table.says(client, &[parse("a", "SELECT set_config($1, 'b', false)"), sync()].concat());
        table.says(server, &answers("1 t n Z(I)"));
        table.says(client, &query("BEGIN"));
        table.hears(server);
        table.hears(client);
        let at = message.len() - 10_000;
        table.says(client, &message[..at]);
        assert_eq!(table.hears(server), "P(: BEGIN) B() E C[]");
        table.says(server, &answers("1 E(53S01)"));
        table.says(client, &message[at..]);
        assert_eq!(table.hears(server), "S");
        table.says(server, &answers("Z(I)"));
        assert_eq!(table.hears(client), "E(53S01) Z(E)");
        table.says(client, &query("ROLLBACK"));
        assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
    }
}

#[test]
fn a_begin_that_is_refused_behind_settings_is_the_statements_failure() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(other, &[query("BEGIN"), query("DELETE FROM t")].concat());
    assert_eq!(table.hears(server), "Q(RESET \"timezone\";)");
    table.says(server, &answers("C(RESET) Z(I)"));
    assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] Q(DELETE FROM t)");
    table.says(server, &answers("1 E(53S01)"));
    assert_eq!(table.hears(server), "S");
    table.says(server, &answers("Z(I)"));
    assert_eq!(table.hears(other), "C(BEGIN) Z(T) E(53S01) Z(E)");
}

#[test]
fn a_begin_that_a_server_has_remarked_on_is_answered_without_one() {
    let (mut table, client, server) = seated(one());
    let begin = [parse("", "BEGIN"), bind("", 0), execute(), sync()].concat();
    table.says(client, &[query("SELECT 1"), begin.clone()].concat());
    assert_eq!(table.hears(server), "Q(SELECT 1) P(sluice_0: BEGIN) H");
    table.says(server, &answers("C(SELECT 1) Z(I) N 1"));
    assert_eq!(table.hears(server), "C(sluice_0) P(sluice_0: BEGIN) B(sluice_0) E S");
    table.says(server, &answers("3 1 2 C(BEGIN) Z(T)"));
    table.says(client, &query("ROLLBACK"));
    table.says(server, &answers("C(ROLLBACK) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I) N 1 2 C(BEGIN) Z(T) C(ROLLBACK) Z(I)");
    table.says(client, &begin);
    assert_eq!(table.hears(client), "1 2 C(BEGIN) Z(T)");
}
