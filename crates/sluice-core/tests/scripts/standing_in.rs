//! Statements that answer in place of a client's which the server does not have: what PostgreSQL would have said, it says.

use crate::{
    one, prepared, run,
    table::{Side, Table, answers, bind, describe, execute, own, parse, parse_typed, query, sync},
};
use sluice_control::settings::PoolSettings;

/// A client that has prepared `a`, which was closed on the server since to make room for another, and whose
/// transaction has failed.
fn failed(types: &[u32], sql: &str) -> (Table, Side, Side) {
    let mut table = Table::new(PoolSettings { prepared_per_server: 1, ..one() });
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &[parse_typed("a", sql, types), parse("b", "SELECT 'rows'"), sync()].concat());
    let shape = if sql.starts_with("SELECT") { "T(x)" } else { "n" };
    table.says(server, &answers(&format!("1 t {shape} 3 1 t T(x) Z(I)")));
    table.says(client, &query("BEGIN; SELECT 1/0"));
    table.says(server, &answers("C(BEGIN) E(22012) Z(E)"));
    table.hears(server);
    table.hears(client);
    (table, client, server)
}

#[test]
fn a_bind_in_a_failed_transaction_needs_no_statement() {
    let (mut table, client, server) = failed(&[], "INSERT INTO t VALUES ($1, $3)");
    table.says(client, &run("a"));
    assert_eq!(
        table.hears(server),
        "C(sluice_stand_in) P(sluice_stand_in:  of 0 0 0) B(sluice_stand_in) E S",
        "no other is parsed now"
    );
    let error = "bind message supplies 0 parameters, but prepared statement \"sluice_stand_in\" requires 3";
    table.says(server, &answers(&format!("3 1 E(08P01: {error}) Z(E)")));
    assert_eq!(table.hears(client), format!("E(08P01: {}) Z(E)", error.replace("sluice_stand_in", "a")));
    // What ends the transaction is parsed.
    table.says(client, &[parse("end", "ROLLBACK"), run("end")].concat());
    assert_eq!(table.hears(server), "C(sluice_1) P(sluice_2: ROLLBACK) D(sluice_2) B(sluice_2) E S");
}

#[test]
fn an_error_of_a_statement_with_two_names_speaks_of_the_one_that_was_used() {
    let (mut table, client, server) = prepared("SELECT $1");
    table.says(client, &[parse("b", "SELECT $1"), sync()].concat());
    assert_eq!(table.hears(client), "1 Z(I)");
    for name in ["a", "b"] {
        table.says(client, &run(name));
        assert_eq!(table.hears(server), "B(sluice_0) E S");
        let error = "bind message supplies 0 parameters, but prepared statement \"sluice_0\" requires 1";
        table.says(server, &answers(&format!("E(08P01: {error}) Z(I)")));
        assert_eq!(table.hears(client), format!("E(08P01: {}) Z(I)", error.replace("sluice_0", name)));
    }
}

#[test]
fn a_describe_in_a_failed_transaction_is_refused_for_rows_only() {
    let (mut table, client, server) = failed(&[25], "INSERT INTO t VALUES ($1)");
    table.says(client, &[describe("a"), sync()].concat());
    assert_eq!(table.hears(server), "", "what has no rows is what it was at its Parse");
    assert_eq!(table.hears(client), "t n Z(E)");
    let (mut table, client, server) = failed(&[], "SELECT 1");
    table.says(client, &[describe("a"), sync()].concat());
    assert_eq!(table.hears(server), "D(sluice_1) S", "that one has rows, too");
    table.says(server, &answers("E(25P02) Z(E)"));
    assert_eq!(table.hears(client), "E(25P02) Z(E)");
}

#[test]
fn a_statement_is_not_prepared_before_it_is_known_whether_it_can_be() {
    let (mut table, client, server) = failed(&[], "SELECT 1");
    table.says(client, &[query("ROLLBACK"), run("a")].concat());
    assert_eq!(table.hears(server), "Q(ROLLBACK)");
    table.says(server, &answers("C(ROLLBACK) Z(I)"));
    assert_eq!(table.hears(server), "C(sluice_1) P(sluice_0: SELECT 1) D(sluice_0) H", "its result may be another");
}

#[test]
fn a_name_is_refused_whatever_has_become_of_its_statement() {
    let (mut table, client, server) = failed(&[], "SELECT 1");
    table.says(client, &[parse("a", "ROLLBACK"), sync()].concat());
    assert_eq!(table.hears(server), "C(sluice_stand_in) P(sluice_stand_in: ) P(sluice_stand_in: ROLLBACK) S");
    table.says(server, &answers("3 1 E(42P05: prepared statement \"sluice_stand_in\" already exists) Z(E)"));
    assert_eq!(table.hears(client), "E(42P05: prepared statement \"a\" already exists) Z(E)");
}

#[test]
fn an_unnamed_statement_stays_until_another_is_read() {
    for (second, error) in [("SELECT 'x'", "22021"), ("SELECT 'x' \\ 1", "22021"), ("nonsense", "42601")] {
        let (mut table, client, server) = prepared("SELECT 1");
        table.says(client, &[parse("", "SELECT 2"), sync(), parse("", second), sync()].concat());
        table.says(server, &answers(&format!("1 Z(I) E({error}) Z(I)")));
        table.hears(server);
        table.says(client, &run(""));
        let is_there = error == "22021" && !second.contains('\\');
        let expected = if is_there { "P(sluice_1: SELECT 2) B(sluice_1) E S" } else { "C() B() E S" };
        assert_eq!(table.hears(server), expected, "{second}");
    }
}

#[test]
fn what_an_unnamed_statement_is_waits_for_what_may_have_skipped_it() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[parse("", "SELECT 2"), sync()].concat());
    table.says(server, &answers("1 Z(I)"));
    table.says(client, &[bind("nowhere", 0), parse("", "SELECT 3"), sync(), run("")].concat());
    assert_eq!(table.hears(server), "P(: SELECT 2) S B(nowhere) P(: SELECT 3) S");
    table.says(server, &answers("E(26000) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "P(sluice_1: SELECT 2) B(sluice_1) E S");
    // Within its own batch it need not be asked.
    table.says(server, &answers("1 2 C(SELECT 1) Z(I)"));
    table.says(client, &[parse("", "SELECT 4"), bind("", 0), execute(), sync()].concat());
    assert_eq!(table.hears(server), "P(: SELECT 4) B() E S");
}

#[test]
fn an_unnamed_statement_that_was_skipped_is_not_brought_back_by_another() {
    let (mut table, client, server) = prepared("SELECT 1");
    let batch = |sql: &str| [bind("nowhere", 0), parse("", sql), sync()].concat();
    table.says(client, &[batch("SELECT 2"), batch("SELECT 3"), run("")].concat());
    assert_eq!(table.hears(server), "B(nowhere) P(: SELECT 2) S B(nowhere) P(: SELECT 3) S");
    table.says(server, &answers("E(26000) Z(I) E(26000) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "C() B() E S", "there is none");
}

#[test]
fn a_begin_is_not_parsed_where_the_transaction_may_have_failed() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[query("BEGIN; SELECT 1/0"), parse("b", "BEGIN"), sync()].concat());
    assert_eq!(table.hears(server), "Q(BEGIN; SELECT 1/0) P(sluice_1: BEGIN) D(sluice_1) S");
    table.says(server, &answers("C(BEGIN) E(22012) Z(E) E(25P02) Z(E)"));
    assert_eq!(table.hears(client), "C(BEGIN) E(22012) Z(E) E(25P02) Z(E)");
    // Nor where the BEGIN has been answered, and not what stood behind it.
    table.says(client, &query("ROLLBACK"));
    table.says(server, &answers("C(ROLLBACK) Z(I)"));
    table
        .says(client, &[parse("", "BEGIN READ WRITE"), bind("", 0), execute(), parse("", "nonsense"), sync()].concat());
    table.hears(server);
    table.says(server, &answers("1 2 C(BEGIN)"));
    table.says(client, &[parse("c", "BEGIN"), sync()].concat());
    assert_eq!(table.hears(server), "P(sluice_1: BEGIN) D(sluice_1) S");
    table.says(server, &answers("E(42601) Z(E) E(25P02) Z(E)"));
    // Nor where nothing has been run: a Describe may have failed.
    table.says(client, &query("ROLLBACK AND CHAIN"));
    table.says(server, &answers("C(ROLLBACK) Z(T)"));
    table.hears(server);
    table.says(client, &[describe("nowhere"), sync(), parse("c", "SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "D(nowhere) S C(sluice_0) P(sluice_0: SELECT 1) S");
}

#[test]
fn parameters_are_described_before_a_statement_is_found_to_fit_no_more() {
    let (mut table, client, server) = prepared("SELECT 1");
    let other = table.client();
    table.says(client, &[parse("", "SELECT 2"), sync()].concat());
    table.says(server, &answers("1 Z(I)"));
    table.says(other, &query("DROP TABLE t"));
    table.says(server, &answers("C(DROP TABLE) Z(I)"));
    table.hears(server);
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    table.hears(client);
    table.says(client, &[describe(""), sync()].concat());
    assert_eq!(table.hears(server), "P(sluice_1: SELECT 2) S", "it was another's server meanwhile");
    table.says(server, &answers("E(42P01) Z(I)"));
    assert_eq!(table.hears(client), "t E(42P01) Z(I)");
}

#[test]
fn a_name_that_is_deallocated_twice_is_missed_when_that_is_run() {
    let (mut table, client, server) = prepared("SELECT 1");
    let again = [bind("", 0), execute()].concat();
    table.says(client, &[parse("", "DEALLOCATE a"), again.clone(), again, sync()].concat());
    let shows = own("SHOW TimeZone");
    assert_eq!(table.hears(server), format!("P(: DEALLOCATE a) {shows} B() E S"));
    table.says(server, &answers("1 3 1 2 D() C(SHOW) 3 3 2 E(26000: prepared statement \"a\" does not exist) Z(I)"));
    assert_eq!(table.hears(client), "1 2 C(DEALLOCATE) 2 E(26000: prepared statement \"a\" does not exist) Z(I)");
}

#[test]
fn what_follows_a_bind_that_fails_is_taken_up() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let (client, other) = (table.client(), table.client());
    let first = table.servers()[0];
    table.says(client, &[parse("", "SET work_mem = '5MB'"), run("")].concat());
    table.says(first, &answers("1 2 C(SET) S(sluice.session=set=776f726b5f6d656d:354d42) Z(I)"));
    table.says(other, &query("BEGIN; SELECT 1"));
    table.hears(first);
    table.hears(client);
    // Its unnamed statement is shared now, and what comes behind the batch waits until that is known to be of use.
    table.says(client, &[bind("", 1), sync(), query("SELECT 2")].concat());
    let second = table.connects()[0];
    table.hears(second);
    table.says(second, &answers("C(SET) Z(I)"));
    table.says(second, &answers("3 1 2 D() C(SELECT 1) 3 3 1 3 1 2 D() C(SELECT 1) 3 3 Z(I)"));
    assert!(table.hears(second).ends_with(" S B(sluice_0) S"));
    table.says(second, &answers("E(08P01) Z(I)"));
    assert_eq!(table.hears(second), "Q(SELECT 2)");
}

#[test]
fn a_wrong_count_is_refused_before_an_unnamed_statement_is_parsed_again() {
    let mut table = Table::new(one());
    let (client, other) = (table.client(), table.client());
    let server = table.servers()[0];
    table.says(client, &[parse("", "SELECT $1 FROM t"), sync()].concat());
    table.says(server, &answers("1 Z(I)"));
    table.says(other, &[parse("", "SELECT 2"), sync()].concat());
    table.says(server, &answers("1 Z(I)"));
    table.hears(server);
    table.says(client, &run(""));
    let sent = "C(sluice_stand_in) P(sluice_stand_in:  of 0) B(sluice_stand_in) E S";
    assert_eq!(table.hears(server), sent, "the table may be out of sight by now");
    // What its Parse comes to now is another matter.
    table.says(server, &answers("3 1 E(08P01) Z(I)"));
    table.says(client, &[parse("", "SELECT $1 FROM t"), run("")].concat());
    assert_eq!(table.hears(server), "P(sluice_0: SELECT $1 FROM t) B(sluice_0) E S");
}
