//! Shared statements that prove stale on their server: prepared again, and sent again, before the client hears of it.

use std::time::Duration;

use sluice_control::settings::PoolSettings;

use crate::{
    one, prepared, run, seated,
    sessions::leaves,
    table::{Side, Table, answers, bind, describe, execute, flush, parse, query, sync},
};

#[test]
fn what_functions_have_compiled_ends_with_ddl_that_alters_what_is_there() {
    for (sql, runs, ends) in [
        ("ALTER TABLE t ALTER b TYPE varchar(20)", true, true),
        ("DROP TYPE m", true, true),
        ("ALTER TABLE t ALTER b TYPE varchar(20)", false, false),
        ("CREATE TABLE u (a int)", true, false),
        ("ALTER ROLE other SET work_mem = '5MB'", true, false),
    ] {
        let (mut table, first, server) = seated(one());
        let second = table.client();
        if runs {
            leaves(&mut table, (first, server), "SELECT f()", "SELECT 1", "");
        }
        leaves(&mut table, (first, server), sql, "ALTER TABLE", "");
        table.says(second, &query("SELECT 1"));
        assert_eq!(table.is_closed(server), ends, "{sql}");
        let next = if ends { table.connects()[0] } else { server };
        assert_eq!(table.hears(next), "Q(SELECT 1)", "{sql}");
    }
}

/// One that is idle meanwhile is closed when it is to be given to somebody; unless the extension, which counts changes but
/// for those of temporary tables, has counted none.
#[test]
fn what_functions_have_compiled_outlives_changes_that_nobody_sees() {
    for (report, ends) in [("S(sluice.catalog=7) ", true), ("", false)] {
        let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
        let (first, second) = (table.client(), table.client());
        let idle = table.servers()[0];
        table.says(first, &query("BEGIN READ WRITE"));
        table.says(second, &query("BEGIN READ WRITE"));
        let other = table.connects()[0];
        for (server, client) in [(idle, first), (other, second)] {
            table.says(server, &answers("C(BEGIN) Z(T)"));
            let sql = if client == first { "SELECT f()" } else { "DROP TABLE t" };
            table.says(client, &query(sql));
            table.says(server, &answers("C(SELECT 1) Z(T)"));
            table.says(client, &query("COMMIT"));
            let report = if client == first { "S(sluice.session=ran=functions) " } else { report };
            table.says(server, &answers(&format!("C(COMMIT) {report}Z(I)")));
        }
        table.says(first, &query("BEGIN READ WRITE"));
        table.says(second, &query("BEGIN READ WRITE"));
        assert_eq!((table.is_closed(idle), table.is_closed(other)), (ends, false), "{report}");
        assert_eq!(table.connects().len(), usize::from(ends));
    }
}

#[test]
fn ddl_all_the_time_does_not_close_servers_all_the_time() {
    let (mut table, first, mut server) = seated(one());
    let mut closed = 0;
    for _ in 0..20 {
        leaves(&mut table, (first, server), "SELECT f()", "SELECT 1", "");
        leaves(&mut table, (first, server), "DROP TABLE t", "DROP TABLE", "");
        table.says(first, &query("SELECT 1"));
        if table.is_closed(server) {
            closed += 1;
            server = table.connects()[0];
        }
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        table.hears(server);
    }
    assert_eq!(closed, 10);
    table.passes(Duration::from_secs(1));
    table.says(first, &query("SELECT 1"));
    assert!(table.is_closed(server), "later it is");
}

#[test]
fn a_stale_statement_is_prepared_again_before_a_client_hears_of_it_that_came_later() {
    let (mut table, client, server) = prepared("SELECT 1");
    let other = table.client();
    table.says(other, &[parse("a", "SELECT 1"), sync(), run("a")].concat());
    assert_eq!(table.hears(server), "B(sluice_0) E S", "its Parse may have come behind the change");
    table.says(server, &answers("E(0A000) Z(I)"));
    assert_eq!(table.hears(server), "C(sluice_0) P(sluice_1: SELECT 1) B(sluice_1) E S");
    table.says(server, &answers("3 1 2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(other), "1 Z(I) 2 C(SELECT 1) Z(I)");
    // From now on it is known that there was one.
    table.says(other, &[parse("b", "SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "P(sluice_2: SELECT 1) D(sluice_2) S");
    table.says(server, &answers("1 t n Z(I)"));
    table.says(client, &run("a"));
    table.says(server, &answers("E(0A000) Z(I)"));
    assert_eq!(table.hears(client), "E(0A000) Z(I)", "its own came before");
}

/// PostgreSQL describes the parameters of a statement before it looks whether its result is what it was.
#[test]
fn a_statement_that_proves_stale_as_it_is_described_is_described_anew() {
    for (outcome, heard) in [("3 1 t T(a) Z(I)", "1 t T Z(I)"), ("3 E(42P01) Z(I)", "1 t E(42P01) Z(I)")] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[parse("a", "SELECT a FROM t"), sync()].concat());
        table.says(server, &answers("1 t T(a) Z(I)"));
        table.hears(server);
        let other = table.client();
        table.says(other, &[parse("a", "SELECT a FROM t"), describe("a"), sync()].concat());
        assert_eq!(table.hears(server), "D(sluice_0) S");
        table.says(server, &answers("t E(0A000) Z(I)"));
        assert_eq!(table.hears(server), "C(sluice_0) P(sluice_1: SELECT a FROM t) D(sluice_1) S");
        table.says(server, &answers(outcome));
        assert_eq!(table.hears(other), heard);
        // The next one hears all of it.
        let next = table.client();
        table.says(next, &[parse("a", "SELECT a FROM t"), describe("a"), sync()].concat());
        let asked = table.hears(server);
        let closed = if asked.starts_with("C(") { "3 " } else { "" };
        let described = "t T(a) ".repeat(asked.matches(" D(").count());
        table.says(server, &answers(&format!("{closed}1 {described}Z(I)")));
        assert_eq!(table.hears(next), "1 t T Z(I)", "{asked}");
    }
}

/// What is bound behind the Describe goes again with it, also where nothing but that shows that it is not stale.
#[test]
fn an_unnamed_statement_that_proves_stale_as_it_is_described_is_described_and_run_anew() {
    let batch = [parse("", "SELECT a FROM t"), describe(""), run("")].concat();
    let (mut table, client, server) = seated(one());
    table.says(client, &batch);
    table.says(server, &answers("1 t T(a) 2 C(SELECT 1) Z(I)"));
    let other = table.client();
    table.says(other, &batch);
    table.hears(server);
    table.says(server, &answers("1 Z(I)"));
    assert_eq!(table.hears(server), "D(sluice_0) B(sluice_0) E S");
    table.says(server, &answers("t E(0A000) Z(I)"));
    assert_eq!(table.hears(server), "C(sluice_0) P(sluice_1: SELECT a FROM t) D(sluice_1) B(sluice_1) E S");
    table.says(server, &answers("3 1 t T(a) 2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(other), "1 t T 2 C(SELECT 1) Z(I)");
}

/// What is too long to be kept, to be sent again, is parsed by the server before it is used.
#[test]
fn an_unnamed_statement_with_a_long_value_is_none_that_could_be_stale() {
    let (mut table, client, server) = seated(one());
    let batch = |bytes| [parse("", "SELECT $1"), bind("", bytes), execute(), sync()].concat();
    for _ in 0..2 {
        table.says(client, &batch(1));
        let prepares = table.hears(server).starts_with("P(sluice_0");
        table.says(server, &answers(if prepares { "1 t T(a) 2 C(SELECT 1) Z(I)" } else { "1 2 C(SELECT 1) Z(I)" }));
        table.hears(client);
    }
    for (length, asked) in [(10_000, "B(sluice_0) E S"), (20_000, "C(sluice_0) P(sluice_0: SELECT $1) B(sluice_0) E S")]
    {
        table.says(client, &batch(length));
        assert_eq!(table.hears(server), asked, "{length}");
        let parsed = if asked.starts_with("C(") { "3 1 " } else { "" };
        table.says(server, &answers(&format!("{parsed}2 C(SELECT 1) Z(I)")));
        assert_eq!(table.hears(client), "1 2 C(SELECT 1) Z(I)", "{length}");
    }
}

/// A cancel, a time-out or a lock that could not be had is not an error of the statement: it is not sent again.
#[test]
fn what_has_stopped_a_statement_is_not_healed() {
    for code in ["57014", "55P03", "40P01", "53100"] {
        let (mut table, client, server) = seated(one());
        let batch = [parse("", "SELECT a FROM t"), run("")].concat();
        for _ in 0..2 {
            table.says(client, &batch);
            let prepares = table.hears(server).starts_with("P(sluice_0");
            table.says(server, &answers(if prepares { "1 t T(a) 2 C(SELECT 1) Z(I)" } else { "1 2 C(SELECT 1) Z(I)" }));
            table.hears(client);
        }
        table.says(client, &batch);
        let asked = table.hears(server);
        table.says(server, &answers(&format!("E({code}) Z(I)")));
        assert_eq!((table.hears(server).as_str(), table.hears(client)), ("", format!("1 E({code}) Z(I)")), "{asked}");
    }
}

/// The server parses and describes what it is asked to, up to the last.
fn answers_all(table: &mut Table, server: Side) {
    loop {
        let asked = table.hears(server);
        if asked.is_empty() {
            return;
        }
        let parsed = "1 ".repeat(asked.matches("P(").count());
        let described = "t(23) T(a) ".repeat(asked.matches("D(").count());
        table.says(server, &answers(&format!("{parsed}{described}Z(I)")));
    }
}

/// A batch that runs a statement with a parameter.
fn uses(name: &str) -> Vec<u8> {
    [bind(name, 1), execute(), sync()].concat()
}

/// What PostgreSQL finds out of a parameter's type is what it is when the client's Parse comes, not what others were told.
#[test]
fn a_parameter_has_the_type_that_its_clients_own_parse_would_find() {
    const SQL: &str = "SELECT a FROM t WHERE a = $1";
    for (name, of, times) in [("a", "named", 1), ("", "unnamed", 3)] {
        let (mut table, client, server) = seated(one());
        // Unnamed ones are shared when they come again.
        for _ in 0..times {
            table.says(client, &[parse(name, SQL), sync()].concat());
            answers_all(&mut table, server);
        }
        table.says(client, &[describe(name), sync()].concat());
        answers_all(&mut table, server);
        assert!(table.hears(client).ends_with("t(23) T Z(I)"), "{of}");
        // The column is of another type now, and the server's statement still of the old one.
        let other = table.client();
        table.says(other, &[parse(name, SQL), uses(name)].concat());
        let asked = table.hears(server);
        assert!(asked.ends_with("B(sluice_0) E S"), "{of}: {asked}");
        table.says(server, &answers("E(42883) Z(I)"));
        let asked = table.hears(server);
        assert_eq!(asked, format!("C(sluice_0) P(sluice_1: {SQL}) B(sluice_1) E S"), "{of}");
        table.says(server, &answers("3 1 2 C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(other), "1 2 C(SELECT 1) Z(I)", "{of}");
        // Who was told the old one is to have that, or PostgreSQL's error.
        table.says(client, &uses(name));
        let asked = table.hears(server);
        assert_eq!(asked, format!("P(sluice_0: {SQL} of 23) D(sluice_0) H"), "{of}");
        table.says(server, &answers("E(42883)"));
        assert_eq!(table.hears(server), "S", "{of}");
        table.says(server, &answers("Z(I)"));
        assert_eq!(table.hears(client), "E(42883) Z(I)", "{of}");
        // From now on all know.
        let next = table.client();
        table.says(next, &[parse(name, SQL), sync()].concat());
        let asked = table.hears(server);
        assert!(asked.starts_with("P(") && !asked.contains("sluice_0"), "{of}: {asked}");
    }
}

/// The client hears of the parameters once, and of those that are there now.
#[test]
fn parameters_that_have_changed_are_described_as_they_are() {
    const SQL: &str = "SELECT a FROM t WHERE a = $1";
    for (end, ends) in [(sync(), " Z(I)"), (flush(), "")] {
        let (mut table, client, server) = seated(one());
        table.says(client, &[parse("a", SQL), sync()].concat());
        table.says(server, &answers("1 t(23) T(a) Z(I)"));
        table.hears(server);
        let other = table.client();
        table.says(other, &[parse("a", SQL), describe("a"), end].concat());
        assert_eq!(table.hears(server), "D(sluice_0) S");
        table.says(server, &answers("t(23) E(42883) Z(I)"));
        assert_eq!(table.hears(server), format!("C(sluice_0) P(sluice_1: {SQL}) D(sluice_1) S"));
        table.says(server, &answers("3 1 t(25) T(a) Z(I)"));
        assert_eq!(table.hears(other), format!("1 t(25) T{ends}"));
        // What it was told holds from then on, on any server.
        table.says(other, &uses("a"));
        assert_eq!(table.hears(server), "B(sluice_1) E S");
        table.says(server, &answers("E(26000: prepared statement \"sluice_1\" does not exist) Z(I)"));
        assert_eq!(table.hears(server), format!("C(sluice_1) P(sluice_1: {SQL} of 25) B(sluice_1) E S"));
    }
}

/// A Parse that a server answers finds the types of now as well, whatever others were told.
#[test]
fn parameters_that_have_changed_unseen_are_seen_by_the_next_parse() {
    const SQL: &str = "SELECT a FROM t WHERE a = $1";
    let (mut table, client, server) = seated(PoolSettings { size: 2, ..PoolSettings::default() });
    table.says(client, &[parse("a", SQL), sync()].concat());
    table.says(server, &answers("1 t(23) T(a) Z(I)"));
    table.says(client, &query("BEGIN; SELECT 1"));
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    let other = table.client();
    table.says(other, &[parse("a", SQL), describe("a"), sync()].concat());
    let second = table.connects()[0];
    assert_eq!(table.hears(second), format!("P(sluice_0: {SQL}) S"), "ahead of the Describe");
    table.says(second, &answers("1 Z(I)"));
    assert_eq!(table.hears(second), "D(sluice_0) S");
    table.says(second, &answers("t(25) T(a) Z(I)"));
    assert_eq!(table.hears(other), "1 t(25) T Z(I)");
    table.says(other, &uses("a"));
    assert_eq!(table.hears(second), format!("P(sluice_1: {SQL} of 25) D(sluice_1) H"));
    table.says(second, &answers("1 t(25) T(a)"));
    assert_eq!(table.hears(second), "B(sluice_1) E S");
}

/// What fails for another reason fails, once for its client, and nothing is prepared anew because of it.
#[test]
fn what_fails_anyway_is_not_held_against_the_catalogs() {
    const SQL: &str = "SELECT 1 / $1";
    let (mut table, client, server) = seated(one());
    table.says(client, &[parse("a", SQL), sync()].concat());
    table.says(server, &answers("1 t(23) T(a) Z(I)"));
    table.hears(server);
    let other = table.client();
    table.says(other, &[parse("a", SQL), uses("a")].concat());
    table.hears(server);
    table.says(server, &answers("E(22012) Z(I)"));
    assert_eq!(table.hears(server), format!("C(sluice_0) P(sluice_1: {SQL}) B(sluice_1) E S"));
    table.says(server, &answers("3 1 E(22012) Z(I)"));
    assert_eq!(table.hears(other), "1 E(22012) Z(I)");
    table.says(other, &uses("a"));
    assert_eq!(table.hears(server), "B(sluice_1) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    table.hears(other);
    let next = table.client();
    table.says(next, &[parse("a", SQL), uses("a")].concat());
    assert_eq!(table.hears(server), format!("P(sluice_0: {SQL}) B(sluice_0) E S"), "it is shared as before");
}
