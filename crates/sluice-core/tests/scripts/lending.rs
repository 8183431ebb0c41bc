//! Names that a client lends to its server while SQL may mean them: what is sent for that, and that nobody else finds
//! them (docs/decisions/0016).

use sluice_control::settings::PoolSettings;

use crate::{
    one, prepared, run, seated,
    table::{Side, Table, answers, bind, close, describe, execute, parse, query, sync},
};

/// A client has `a` executed by SQL, and has heard the answer: its server is asked what has become of the name.
fn executed() -> (Table, Side, Side) {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &query("EXECUTE a"));
    assert_eq!(table.hears(server), "P(a: SELECT 1) S", "the Query waits for that");
    table.says(server, &answers("1 Z(I)"));
    assert_eq!(table.hears(server), "Q(EXECUTE a)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    assert_eq!(table.hears(server), "Q(names)");
    (table, client, server)
}

/// The client says what is left, and that its session holds this. Gives what is sent then.
fn is_left(table: &mut Table, server: Side, names: &str, holding: &str) -> String {
    table.says(server, &answers(&format!("{names} C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers(&format!("D({holding}) C(SELECT 1) Z(I)")));
    table.hears(server)
}

#[test]
fn a_name_is_lent_to_a_query_and_taken_back() {
    let (mut table, client, server) = executed();
    assert_eq!(is_left(&mut table, server, "D(61)", "statements=2"), "C(a) S");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "", "it is nobody's before that is done");
    table.says(server, &answers("3 Z(I)"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
}

#[test]
fn a_name_that_sql_has_taken_away_is_gone() {
    let (mut table, client, server) = executed();
    assert_eq!(is_left(&mut table, server, "", "statements=1"), "");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(a) E S", "the server says that there is none");
}

#[test]
fn a_name_stays_lent_where_the_client_keeps_its_server() {
    let (mut table, client, server) = executed();
    assert_eq!(is_left(&mut table, server, "D(61)", "pins=prepare statements=2"), "");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(a) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "", "it is known what the name means, and that it leaves nothing");
    table.hears(client);
    // A new one may be SQL's already.
    table.says(client, &[parse("b", "SELECT 2"), bind("b", 0), execute(), sync()].concat());
    assert_eq!(table.hears(server), "P(b: SELECT 2) B(b) E S");
    table.says(server, &answers("E(42P05: prepared statement \"b\" already exists) Z(I)"));
    assert_eq!(table.hears(client), "E(42P05: prepared statement \"b\" already exists) Z(I)");
}

#[test]
fn a_name_that_was_closed_and_given_again_behind_an_error_is_the_pools_as_before() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &query("PREPARE b AS SELECT 3"));
    table.says(server, &answers("C(PREPARE) Z(I)"));
    table.says(server, &answers("D(pins=prepare statements=1) C(SELECT 1) Z(I)"));
    table.hears(server);
    table.says(client, &[execute(), close("a"), parse("a", "SELECT 2"), sync()].concat());
    assert_eq!(table.hears(server), "E P(a: SELECT 2) S");
    table.says(server, &answers("E(34000) Z(I)"));
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
}

#[test]
fn a_query_is_not_run_where_its_statement_can_not_be_prepared() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[query("EXECUTE a"), query("SELECT 2")].concat());
    assert_eq!(table.hears(server), "P(a: SELECT 1) S");
    table.says(server, &answers("E(42P01) Z(I)"));
    assert_eq!(table.hears(client), "E(42P01) Z(I)");
    assert_eq!(table.hears(server), "Q(SELECT 2)", "nothing is lent");
}

#[test]
fn a_name_is_lent_within_a_batch_once_it_is_known_what_names_there_are() {
    let (mut table, client, server) = prepared("SELECT 1");
    let all = [parse("", "DEALLOCATE ALL"), run("")[..].to_vec()].concat();
    let batch = [&all[..all.len() - 5], &parse("", "PREPARE a AS SELECT 2"), &run("")].concat();
    table.says(client, &batch);
    assert_eq!(table.hears(server), "P(: DEALLOCATE ALL) B() E H");
    table.says(server, &answers("1 2 C(DEALLOCATE ALL)"));
    assert_eq!(table.hears(server), "P(: PREPARE a AS SELECT 2) B() E S");
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[parse("", "EXECUTE a"), run("")].concat());
    assert_eq!(table.hears(server), "P(a: SELECT 1) S");
    table.says(server, &answers("1 Z(I)"));
    assert_eq!(table.hears(server), "P(: EXECUTE a) B() E S");
}

#[test]
fn what_serves_as_the_unnamed_statement_goes_with_the_names() {
    for behind in [describe(""), bind("", 0)] {
        let (mut table, client, server) = seated(one());
        let other = table.client();
        for (side, sql) in [(client, "DEALLOCATE ALL"), (other, "SELECT 1")] {
            table.says(side, &[parse("", sql), sync()].concat());
            table.says(server, &answers("1 Z(I)"));
        }
        table.hears(server);
        let (batch, end) = ([bind("", 0), execute()].concat(), sync());
        table.says(client, &[&batch[..], &behind, &end].concat());
        assert_eq!(table.hears(server), "P(sluice_1: DEALLOCATE ALL) B(sluice_1) E H", "the rest waits for that");
        table.says(server, &answers("1 2 C(DEALLOCATE ALL)"));
        let uses = if behind[0] == b'D' { "D(sluice_1)" } else { "B(sluice_1)" };
        assert_eq!(table.hears(server), format!("P(sluice_1: DEALLOCATE ALL) {uses} S"));
    }
}

#[test]
fn a_query_that_has_not_come_whole_may_take_all_names_away() {
    let (mut table, client, server) = prepared("SELECT 1");
    let long = query(&format!("SELECT 2{}; DEALLOCATE ALL", " ".repeat(40_000)));
    let (begin, rest) = long.split_at(39_000);
    table.says(client, begin);
    table.says(client, &[rest, &parse("b", "SELECT 3"), &run("a")].concat());
    assert!(table.hears(server).ends_with("DEALLOCATE ALL)"), "what a name means is open");
    table.says(server, &answers("C(SELECT 1) C(DEALLOCATE ALL) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "P(sluice_1: SELECT 3) D(sluice_1) B(a) E S", "the server says that there is none");
}

#[test]
fn a_name_is_closed_however_its_client_goes() {
    for tail in [vec![], query("SELECT 2")] {
        let (mut table, client, server) = executed();
        table.says(client, &tail);
        table.hangs_up(client);
        assert_eq!(table.hears(server), "f(the client has gone) S");
        table.says(server, &answers("D(61) C(SELECT 1) Z(I) Z(I)"));
        assert_eq!(table.hears(server), "Q(DISCARD ALL)");
        table.says(server, &answers("C(DISCARD ALL) Z(I)"));
        let other = table.client();
        table.says(other, &run("a"));
        assert_eq!(table.hears(server), "B(a) E S");
    }
    // Also while it is being lent.
    let mut table = Table::new(PoolSettings { ..one() });
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &[parse("a", "SELECT 1"), sync()].concat());
    table.says(server, &answers("1 t n Z(I)"));
    table.says(client, &query("EXECUTE a"));
    table.hears(server);
    table.hangs_up(client);
    assert_eq!(table.hears(server), "f(the client has gone) S");
    table.says(server, &answers("1 Z(I) Z(I)"));
    table.cancels_arrive();
    assert_eq!(table.hears(server), "C(a) S");
}

#[test]
fn a_name_is_lent_behind_a_begin_that_the_client_was_told_of() {
    for refused in [false, true] {
        let (mut table, client, server) = prepared("SELECT 1");
        table.says(client, &query("BEGIN"));
        assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
        table.says(client, &query("EXECUTE a"));
        assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] S", "behind an error the Query would be ignored");
        if refused {
            table.says(server, &answers("E(57014) Z(I)"));
            assert_eq!(table.hears(client), "E(57014) Z(E)");
            table.says(client, &query("ROLLBACK"));
            assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
            assert_eq!(table.hears(server), "");
        } else {
            table.says(server, &answers("1 2 C(BEGIN) 3 Z(T)"));
            assert_eq!(table.hears(server), "P(a: SELECT 1) S");
            table.says(server, &answers("E(42P01) Z(E)"));
            assert_eq!(table.hears(client), "E(42P01) Z(E)");
            table.says(client, &query("ROLLBACK"));
            assert_eq!(table.hears(server), "Q(ROLLBACK)");
        }
    }
}
