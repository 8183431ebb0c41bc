//! A cluster's primary: while nobody knows which node that is, when another one becomes it, and a node that is none.

use std::time::Duration;

use sluice_control::{
    Database,
    address::Address,
    settings::{PoolMode, PoolSettings, Sharing},
};

use sluice_wire::message::framed;

use crate::{
    losing::{in_block, run_unnamed, shutdown},
    messages::describe_portal,
    one, seated,
    table::{Side, Table, answers, bind, execute, parse, query, scripted, sync},
};

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

pub(crate) fn settings() -> PoolSettings {
    PoolSettings { failover_timeout: Some(FAILOVER_TIMEOUT), ..one() }
}

/// The database of a cluster.
pub(crate) fn clustered(settings: PoolSettings) -> Database {
    Database { address: Address::Primary("main".into()), cluster: Some("main".into()), ..scripted(settings) }
}

#[test]
fn clients_wait_for_a_primary_that_nobody_knows_yet() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), None);
    let client = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT - Duration::from_secs(1));
    assert_eq!((table.hears(client), table.connects().len()), ("R".to_owned(), 0));
    table.has_primary(clustered(settings()), Some("a"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn they_do_not_wait_for_ever() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), None);
    let client = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT);
    let error = table.hears_error(client);
    assert!(error.contains("57P03") && error.contains("the primary of cluster \"main\" is not known"), "{error}");
}

#[test]
fn connects_that_fail_are_tried_until_there_is_a_primary() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.stranger("app");
    for _ in 0..200 {
        table.refuses("E(57P03)");
        table.passes(Duration::from_millis(200));
    }
    assert_eq!(table.hears(client), "R", "40 s, and neither connect_timeout nor wait_timeout count");
    table.has_primary(clustered(settings()), Some("b"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

/// Two clients that ask for something in a moment in which the primary's servers have gone.
fn without_a_server() -> (Table, [Side; 2]) {
    let (mut table, first, server) = seated(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let second = table.client();
    table.servers().into_iter().chain([server]).for_each(|server| table.hangs_up(server));
    table.says(first, &query("SELECT 1"));
    table.says(second, &query("SELECT 2"));
    (table, [first, second])
}

/// `wait_timeout` counts from when there is a primary again.
#[test]
fn who_has_waited_for_a_primary_has_the_time_of_others_for_a_server() {
    let (mut table, [_, second]) = without_a_server();
    for _ in 0..200 {
        table.refuses("E(57P03)");
        table.passes(Duration::from_millis(200));
    }
    let server = table.connects()[0];
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.passes(Duration::from_secs(5));
    assert_eq!((table.hears(second).as_str(), table.is_closed(second)), ("", false));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
    table.passes(Duration::from_secs(60));
    assert!(!table.is_closed(second));
}

/// Each time that one is back for a moment, whoever waits begins anew, but not for ever.
#[test]
fn a_primary_that_comes_and_goes_makes_no_wait_endless() {
    let (mut table, [first, second]) = without_a_server();
    for _ in 0..30 {
        for _ in 0..20 {
            table.refuses("E(57P03)");
            table.passes(Duration::from_millis(200));
        }
        for server in table.connects() {
            table.hangs_up(server);
        }
    }
    assert!(table.is_closed(first) && table.is_closed(second), "two minutes");
}

#[test]
fn a_standby_is_not_taken_for_the_primary() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    table.reports_at_login("in_hot_standby", "on");
    let client = table.stranger("app");
    table.connects();
    assert_eq!((table.hears(client), table.servers().len()), ("R".to_owned(), 0), "it is not promoted yet");
    table.reports_at_login("in_hot_standby", "off");
    table.passes(Duration::from_millis(200));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

/// A table with the primary `a`, a client that is idle and one amid a block, and the server of the second.
fn amid_a_block() -> (Table, [Side; 2], Side) {
    let mut table = Table::new(PoolSettings { size: 3, ..settings() });
    table.has_primary(clustered(PoolSettings { size: 3, ..settings() }), Some("a"));
    let (idle, amid) = (table.client(), table.client());
    table.says(amid, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(amid), "C(BEGIN) Z(T)");
    (table, [idle, amid], server)
}

#[test]
fn all_servers_of_a_node_that_is_not_the_primary_any_more_are_closed_at_once() {
    let (mut table, [idle, amid], server) = amid_a_block();
    table.has_primary(clustered(PoolSettings { size: 3, ..settings() }), Some("b"));
    assert!(table.is_closed(server), "what it said from now on might be true there only");
    assert_eq!(table.hears(amid), "");
    table.says(amid, &query("COMMIT"));
    assert_eq!(table.hears(amid), "E(40001) Z(I)");
    assert!(!table.is_closed(idle));
    table.says(idle, &query("SELECT 1"));
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn nobody_is_served_where_the_primary_has_other_data() {
    let (mut table, [idle, amid], server) = amid_a_block();
    table.has_data("a", "8");
    assert!(table.is_closed(server) && table.servers().is_empty(), "whatever it says is of other data");
    table.says(amid, &query("COMMIT"));
    assert_eq!(table.hears(amid), "E(40001) Z(I)");
    table.says(idle, &query("SELECT 1"));
    let comes = table.stranger("app");
    table.passes(FAILOVER_TIMEOUT - Duration::from_secs(1));
    assert_eq!((table.hears(idle), table.hears(comes), table.connects().len()), (String::new(), "R".to_owned(), 0));
    table.passes(Duration::from_secs(1));
    for client in [idle, comes] {
        let error = table.hears_error(client);
        assert!(error.contains("57P03") && error.contains("its system identifier is 8, not 7"), "{error}");
        assert!(error.contains("restart the pool"), "{error}");
    }
    table.says(amid, &query("SELECT 1"));
    table.has_data("a", "7");
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)", "it is there again");
}

#[test]
fn a_session_with_a_server_of_its_own_ends_with_the_node() {
    let sharing = Sharing { mode: PoolMode::Session, ..Sharing::default() };
    let session = PoolSettings { sharing, ..settings() };
    let mut table = Table::new(session.clone());
    table.has_primary(clustered(session.clone()), Some("a"));
    let client = table.client();
    table.has_primary(clustered(session.clone()), Some("b"));
    assert_eq!(table.hears(client), "E(08006)");
}

#[test]
fn a_database_that_an_operator_moves_out_of_a_cluster_ends_its_transactions_there() {
    let (mut table, _, _) = seated(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.publishes(scripted(settings()));
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}

/// The same, where the block has written something, and the server has said by what it can be known.
pub(crate) fn in_marked_block(more: &str) -> (Table, Side, Side) {
    let (mut table, client, server) = in_block();
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table
        .says(server, &answers(&format!("C(INSERT 0 1) S(sluice.transaction=xid=7 at=0/A system=9 key=5{more}) Z(T)")));
    assert_eq!(table.hears(client), "C(INSERT 0 1) Z(T)");
    table.hears(server);
    (table, client, server)
}

/// The server that is asked for the COMMIT that was lost.
pub(crate) fn asked(table: &mut Table) -> Side {
    table.passes(Duration::from_millis(200));
    let server = table.connects().first().copied().unwrap_or_else(|| table.servers()[0]);
    assert_eq!(
        table.hears(server),
        "Q(SET LOCAL statement_timeout = 0; SELECT pg_catalog.set_config('sluice.outcome', 'xid=7 at=0/A system=9 key=5', true))"
    );
    server
}

fn commit_in_full() -> Vec<u8> {
    [parse("", "COMMIT"), bind("", 0), describe_portal(), execute(), sync()].concat()
}

#[test]
fn the_next_server_says_what_has_become_of_a_commit() {
    for (commit, ahead) in [
        (query("COMMIT"), ""),
        (query("end transaction;"), ""),
        ([parse("", "COMMIT"), bind("", 0), execute(), sync()].concat(), "1 2"),
        (commit_in_full(), "1 2 n"),
    ] {
        for (outcome, heard) in [("committed", "C(COMMIT) Z(I)"), ("aborted", "E(40001) Z(I)")] {
            for is_shut_down in [false, true] {
                let (mut table, client, server) = in_marked_block("");
                table.says(client, &commit);
                if is_shut_down {
                    table.says(server, &shutdown());
                }
                table.hangs_up(server);
                let server = asked(&mut table);
                assert_eq!(table.hears(client), ahead);
                table.says(server, &answers(&format!("T(set_config) D({outcome})")));
                assert_eq!(table.hears(client), "", "it is not durable yet");
                table.says(server, &answers("C(SELECT 1) Z(I)"));
                assert_eq!(table.hears(client), heard);
                table.says(client, &query("SELECT 2"));
                let server = table.servers()[0];
                assert_eq!(table.hears(server), "Q(SELECT 2)");
                table.says(server, &answers("C(SELECT 1) Z(I)"));
                assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
            }
        }
    }
}

#[test]
fn what_the_client_sends_meanwhile_waits_for_the_answer() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    table.says(client, &query("SELECT 2"));
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
    let server = table.servers()[0];
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

#[test]
fn a_server_that_is_lost_while_it_is_asked_is_replaced() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    for fails in [false, true, false] {
        let server = asked(&mut table);
        if fails {
            table.says(server, &answers("E(40001) Z(I)"));
        } else {
            table.says(server, &answers("T(set_config) D(committed)"));
            table.hangs_up(server);
        }
        assert_eq!(table.hears(client), "");
    }
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(aborted) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "E(40001) Z(I)");
}

#[test]
fn what_can_not_be_found_out_is_said_to_be_unknown() {
    for answer in ["E(58P01) Z(I)", "E(42704) Z(I)", "T(set_config) D(in progress) C(SELECT 1) Z(I)"] {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &query("COMMIT"));
        table.hangs_up(server);
        let server = asked(&mut table);
        table.says(server, &answers(answer));
        assert_eq!(table.hears(client), "E(08007)", "{answer}");
        assert!(table.is_closed(client));
    }
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    asked(&mut table);
    table.passes(FAILOVER_TIMEOUT);
    assert_eq!(table.hears(client), "E(08007)", "it does not answer");
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    table.has_primary(clustered(settings()), None);
    table.passes(FAILOVER_TIMEOUT);
    assert_eq!(table.hears(client), "E(08007)", "there is no primary");
}

#[test]
fn a_session_ends_behind_a_commit_that_may_have_changed_it() {
    for (outcome, heard) in [("committed", "C(COMMIT) Z(I) E(08006)"), ("aborted", "E(40001) Z(I)")] {
        let (mut table, client, server) = in_marked_block(" session=changed");
        table.says(client, &query("COMMIT"));
        table.hangs_up(server);
        let server = asked(&mut table);
        table.says(server, &answers(&format!("T(set_config) D({outcome}) C(SELECT 1) Z(I)")));
        assert_eq!(table.hears(client), heard);
    }
}

#[test]
fn nothing_else_than_a_plain_commit_is_asked_for() {
    for asked in [
        query("COMMIT AND CHAIN"),
        query("INSERT INTO t VALUES (1); COMMIT"),
        query("PREPARE TRANSACTION 'a'"),
        [run_unnamed(), parse("", "COMMIT"), bind("", 0), execute(), sync()].concat(),
        [parse("", "COMMIT"), bind("", 0), execute(), sync(), run_unnamed(), sync()].concat(),
        [parse("", "COMMIT"), bind("", 0), execute()].concat(),
        [query("COMMIT"), query("INSERT INTO t VALUES (1)")].concat(),
    ] {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &asked);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)");
    }
    // Whatever else is under way in a block that a COMMIT has been prepared for is no COMMIT.
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &[parse("c", "COMMIT"), sync()].concat());
    table.says(server, &answers("1 Z(T)"));
    table.hears(client);
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
}

#[test]
fn a_commit_behind_something_that_has_run_in_its_request_is_not_asked_for() {
    let (mut table, client, server) = in_marked_block("");
    let set = [parse("", "SET app.tenant = '7'"), bind("", 0), execute()].concat();
    table.says(client, &[set, parse("", "COMMIT"), bind("", 0), execute(), sync()].concat());
    table.says(server, &answers("1 2 C(SET) 1 2"));
    assert_eq!(table.hears(client), "1 2 C(SET) 1 2");
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08007)");
}

#[test]
fn an_answer_with_a_warning_is_none() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    let server = asked(&mut table);
    let mut warning = Vec::new();
    framed(&mut warning, b'N', |out| out.extend_from_slice(b"SWARNING\0C01000\0Mcanceling the wait\0\0"));
    table.says(server, &[answers("T(set_config) D(committed)"), warning, answers("C(SELECT 1) Z(I)")].concat());
    assert_eq!(table.hears(client), "E(08007)", "the wait for standbys has been cancelled");
}

#[test]
fn a_commit_may_hide_behind_a_backslash() {
    for text in ["SELECT '\\''; COMMIT; --'", "INSERT INTO t VALUES ('\\''); COMMIT; --')"] {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &query(text));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)", "with standard_conforming_strings off it is one: {text}");
    }
}

#[test]
fn a_mark_is_of_one_transaction() {
    // That of the one before says nothing of a chained one,
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT AND CHAIN"));
    table.says(server, &answers("C(COMMIT) Z(T)"));
    table.hears(client);
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08007)");
    // nor of the next one.
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    table.says(client, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08007)");
}

#[test]
fn a_commit_that_the_client_has_heard_of_is_not_asked_for() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT)"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "C(COMMIT) E(08007)");
}

#[test]
fn a_cancel_does_not_hit_a_commit_that_is_asked_for() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    table.says(client, &query("SELECT 2"));
    table.cancel(client);
    assert_eq!(table.hears(client), "");
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}
