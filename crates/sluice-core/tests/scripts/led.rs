//! Transactions that are led to another server than their session's: what they leave there, and when they are not.

use std::time::Duration;

use sluice_control::reading::Scope;

use crate::{
    causal::{
        BEGIN, HOW_FAR, answers_first, database, ends, of_readers, opened, readers, reads, reads_at_primary, seated,
        settings, standby,
    },
    run,
    table::{Side, Table, answers, parse, query},
};

/// Each change of what log-ins go by has the next read ask for a server that was opened since.
#[test]
fn servers_of_before_a_change_of_log_ins_do_not_pile_up_at_a_standby() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    let mut before = None;
    for turn in 0..4 {
        let sql = "ALTER ROLE app SET statement_timeout = 0";
        table.says(client, &query(sql));
        assert_eq!(table.hears(primary), format!("Q({sql})"));
        table.says(primary, &answers("C(ALTER ROLE) Z(I)"));
        table.hears(client);
        reads(&mut table, client);
        let server = opened(&mut table);
        assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
        ends(&mut table, server, client);
        if let Some(before) = before.replace(server) {
            assert!(table.is_closed(before), "{turn}: nobody can want it any more");
        }
        assert!(!table.is_closed(primary), "its own client is of before, too");
    }
}

/// Each request stands for itself, also where its client does not wait for the answer to the one before.
#[test]
fn what_is_sent_behind_the_end_of_a_block_at_a_standby_goes_to_the_primary() {
    let insert = "INSERT INTO t VALUES (1)";
    let batch = || [parse("", insert), run("")].concat();
    for (end, next) in [
        (query("COMMIT"), query(insert)),
        (query("COMMIT"), batch()),
        ([parse("", "ROLLBACK"), run("")].concat(), batch()),
    ] {
        let (mut table, client, primary) = seated(database(Scope::Local));
        reads(&mut table, client);
        let server = opened(&mut table);
        table.hears(server);
        answers_first(&mut table, server, client);
        table.says(client, &[end.clone(), next].concat());
        let (heard, answer) = match end[0] {
            b'Q' => ("Q(COMMIT)", "C(COMMIT) Z(I)"),
            _ => ("P(: ROLLBACK) B() E S", "1 2 C(ROLLBACK) Z(I)"),
        };
        assert_eq!(table.hears(server), heard);
        assert_eq!(table.hears(primary), "");
        table.says(server, &answers(answer));
        assert!(table.hears(primary).contains(insert));
        assert_eq!(table.hears(server), "");
    }
    // A block that goes on goes on there.
    let (mut table, client, _) = seated(database(Scope::Local));
    reads(&mut table, client);
    let server = opened(&mut table);
    table.hears(server);
    answers_first(&mut table, server, client);
    table.says(client, &[query("SAVEPOINT a"), query("ROLLBACK TO a"), query("SELECT 2")].concat());
    assert_eq!(table.hears(server), "Q(SAVEPOINT a) Q(ROLLBACK TO a) Q(SELECT 2)");
}

/// They go by the latest log-ins there, other than those who are at home at the primary.
#[test]
fn readers_who_are_led_to_the_primary_leave_no_servers_of_before_there() {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(of_readers(), Some("p"));
    table.has_nodes(vec![standby("s")]);
    let (client, _) = readers(&mut table);
    table.reports_at_login("in_hot_standby", "off");
    let mut before = None;
    for turn in 0..4 {
        // Nobody knows where its commits are, so it is at the primary; its change is refused, and counts all the same.
        table.says(client, &query("ALTER ROLE app SET statement_timeout = 0"));
        let primary = table.connects()[0];
        assert!(table.hears(primary).starts_with("Q(ALTER"));
        table.says(primary, &answers("E(25006) Z(I)"));
        table.hears(client);
        if let Some(before) = before.replace(primary) {
            assert!(table.is_closed(before), "{turn}: nobody can want it any more");
        }
    }
}

/// Others may commit what no server of this process's clients tells of.
#[test]
fn where_the_primarys_log_has_not_been_looked_at_for_long_reads_are_at_the_primary() {
    let (mut table, client, primary) = seated(database(Scope::Global));
    table.looks_at_log(0x30);
    table.passes(Duration::from_secs(4));
    reads(&mut table, client);
    let server = opened(&mut table);
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"), "one answer may be missing");
    ends(&mut table, server, client);
    table.passes(Duration::from_secs(1));
    reads_at_primary(&mut table, primary, client, "SELECT 1");
    table.looks_at_log(0x30);
    reads(&mut table, client);
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
    // A client's own commits are known in any case.
    let (mut table, client, _) = seated(database(Scope::Local));
    table.passes(Duration::from_secs(60));
    reads(&mut table, client);
    opened(&mut table);
}

#[test]
fn readers_are_at_the_primary_while_its_log_has_not_been_looked_at_for_long_if_there_is_one() {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(of_readers(), Some("p"));
    table.has_nodes(vec![standby("s")]);
    table.looks_at_log(0x30);
    let (client, server) = readers(&mut table);
    table.passes(Duration::from_secs(5));
    table.says(client, &query("SELECT 1"));
    table.reports_at_login("in_hot_standby", "off");
    table.reports_at_login("sluice.commit_lsn", "0/0");
    let primary = table.connects()[0];
    assert_eq!(table.hears(primary), "Q(SELECT 1)");
    table.says(primary, &answers("C(SELECT 1) Z(I)"));
    table.hears(client);
    table.looks_at_log(0x30);
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(server), HOW_FAR);
}

#[test]
fn what_has_failed_in_a_block_has_left_nothing_there() {
    let failed = |table: &mut Table, server: Side, client: Side, sql: &str, code: &str| {
        table.says(client, &query(sql));
        assert_eq!(table.hears(server), format!("Q({sql})"));
        table.says(server, &answers(&format!("E({code}) Z(E)")));
        assert_eq!(table.hears(client), format!("E({code}) Z(E)"), "{sql}");
    };
    let seeds = "SELECT setseed(5)";
    for (first, code, next) in [
        (seeds, "22023", None),
        ("SELECT 1/0", "22012", Some("LOAD 'auto_explain'")),
        ("SELECT 1/0", "22012", Some("SELECT pg_advisory_lock(1)")),
    ] {
        let (mut table, client, primary) = seated(database(Scope::Local));
        reads(&mut table, client);
        let server = opened(&mut table);
        table.hears(server);
        answers_first(&mut table, server, client);
        failed(&mut table, server, client, first, code);
        if let Some(next) = next {
            failed(&mut table, server, client, next, "25P02");
        }
        table.says(client, &query("ROLLBACK"));
        assert_eq!(table.hears(server), "Q(ROLLBACK)");
        // The extension tells of a call before it has failed.
        let report = if first == seeds { "S(sluice.session=pins=seed) " } else { "" };
        table.says(server, &answers(&format!("C(ROLLBACK) {report}Z(I)")));
        assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)", "{first}");
        assert_eq!(table.is_closed(server), next != Some("SELECT pg_advisory_lock(1)"), "{first}: nobody else gets it");
        reads_at_primary(&mut table, primary, client, "SELECT f()");
    }
}

#[test]
fn what_has_succeeded_in_a_block_may_have_left_something_there() {
    for (failed, sql) in [(false, "SELECT setseed(0.5)"), (true, "SELECT setseed(0.5); SELECT 1/0")] {
        let (mut table, client, _) = seated(database(Scope::Local));
        reads(&mut table, client);
        let server = opened(&mut table);
        table.hears(server);
        answers_first(&mut table, server, client);
        table.says(client, &query(sql));
        table.hears(server);
        table.says(server, &answers(if failed { "C(SELECT 1) E(22012) Z(E)" } else { "C(SELECT 1) Z(T)" }));
        table.hears(client);
        table.says(client, &query("ROLLBACK"));
        table.says(server, &answers("C(ROLLBACK) S(sluice.session=pins=seed) Z(I)"));
        assert_eq!(table.hears(client), "C(ROLLBACK) Z(I) E(0A000)", "{sql}");
    }
}

/// Its text could end the failed block first.
#[test]
fn an_advisory_lock_behind_the_end_of_a_failed_block_is_refused() {
    let (mut table, client, _) = seated(database(Scope::Local));
    reads(&mut table, client);
    let server = opened(&mut table);
    table.hears(server);
    answers_first(&mut table, server, client);
    table.says(client, &query("SELECT 1/0"));
    table.says(server, &answers("E(22012) Z(E)"));
    table.hears(client);
    table.says(client, &query("ROLLBACK; SELECT pg_advisory_lock(1)"));
    assert_eq!(table.hears(client), "E(0A000)");
}
