//! A cluster's primary: while nobody knows which node that is, when another one becomes it, and a node that is none.

use std::time::Duration;

use sluice_control::{
    Database,
    address::Address,
    settings::{PoolMode, PoolSettings, Sharing},
};

use sluice_wire::{ErrorResponse, message::framed};

use crate::{
    messages::describe_portal,
    one, seated,
    table::{Side, Table, answers, bind, close, execute, flush, parse, query, scripted, sync},
};

const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

fn settings() -> PoolSettings {
    PoolSettings { failover_timeout: Some(FAILOVER_TIMEOUT), ..one() }
}

/// The database of a cluster.
fn clustered(settings: PoolSettings) -> Database {
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

#[test]
fn all_servers_of_a_node_that_is_not_the_primary_any_more_are_closed_at_once() {
    let mut table = Table::new(PoolSettings { size: 3, ..settings() });
    table.has_primary(clustered(PoolSettings { size: 3, ..settings() }), Some("a"));
    let (idle, amid) = (table.client(), table.client());
    table.says(amid, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(amid), "C(BEGIN) Z(T)");
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

/// A table before a cluster's primary, with a client that has a block open there, and its server.
fn in_block() -> (Table, Side, Side) {
    let mut table = Table::new(settings());
    table.reports_at_login("application_name", "");
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    let server = table.servers()[0];
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
    table.hears(server);
    (table, client, server)
}

/// The client's transaction has failed, ends by its ROLLBACK, and the next one is another server's.
fn goes_on(table: &mut Table, client: Side) {
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
    table.says(client, &query("SELECT 2"));
    table.passes(Duration::from_millis(200));
    let servers = table.connects();
    let server = servers.first().copied().unwrap_or_else(|| table.servers()[0]);
    assert_eq!(table.hears(server), "Q(SELECT 2)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn a_block_that_is_lost_between_its_statements_fails_with_the_next_one() {
    for (asked, heard) in [
        (query("SELECT 1"), "E(40001) Z(E)"),
        ([run_unnamed(), sync()].concat(), "E(40001) Z(E)"),
        ([sync(), query("SELECT 1")].concat(), "Z(E) E(40001) Z(E)"),
        (query("SAVEPOINT a"), "E(40001) Z(E)"),
        (query("ROLLBACK TO a"), "E(40001) Z(E)"),
    ] {
        let (mut table, client, server) = in_block();
        table.hangs_up(server);
        assert_eq!(table.hears(client), "");
        table.says(client, &asked);
        assert_eq!(table.hears(client), heard);
        goes_on(&mut table, client);
    }
}

#[test]
fn a_commit_of_a_block_that_is_lost_fails_and_a_rollback_does_not() {
    let (mut table, client, server) = in_block();
    table.hangs_up(server);
    table.says(client, &query("COMMIT"));
    assert_eq!(table.hears(client), "E(40001) Z(I)");
    let (mut table, client, server) = in_block();
    table.hangs_up(server);
    goes_on(&mut table, client);
}

#[test]
fn a_commit_fails_though_the_client_has_not_looked_at_the_error_before() {
    for asked in [[close("a"), sync()].concat(), query("SELECT 1")] {
        for commit in [query("COMMIT"), query("END")] {
            let (mut table, client, server) = in_block();
            table.says(client, &asked);
            table.hangs_up(server);
            assert_eq!(table.hears(client), "E(40001) Z(E)");
            // Tidying up is no reason for an error, and takes no server.
            table.says(client, &[close("a"), sync()].concat());
            assert_eq!(table.hears(client), "3 Z(E)");
            table.says(client, &query("SELECT 1"));
            assert_eq!(table.hears(client), "E(40001) Z(E)");
            table.says(client, &commit);
            assert_eq!(table.hears(client), "E(40001) Z(I)");
        }
        let (mut table, client, server) = in_block();
        table.says(client, &asked);
        table.hangs_up(server);
        table.hears(client);
        table.says(client, &[parse("", "COMMIT"), bind("", 0), execute(), sync()].concat());
        assert_eq!(table.hears(client), "E(40001) Z(E)");
        // By the extended protocol, a server rolls back what it never had.
        table.says(client, &[parse("", "ROLLBACK"), bind("", 0), execute(), sync()].concat());
        table.passes(Duration::from_millis(200));
        let server = table.connects().first().copied().unwrap_or_else(|| table.servers()[0]);
        assert!(table.hears(server).starts_with("P(: BEGIN)"));
    }
}

#[test]
fn a_statement_that_is_under_way_in_a_block_fails_with_it() {
    for (asked, heard) in [
        (query("INSERT INTO t VALUES (1)"), "E(40001) Z(E)"),
        ([run_unnamed(), sync()].concat(), "E(40001) Z(E)"),
        ([run_unnamed(), sync(), run_unnamed(), sync()].concat(), "E(40001) Z(E) E(25P02) Z(E)"),
        ([query("SELECT 1"), query("SELECT 2")].concat(), "E(40001) Z(E) E(25P02) Z(E)"),
    ] {
        for says_why in [false, true] {
            let (mut table, client, server) = in_block();
            table.says(client, &asked);
            if says_why {
                table.says(server, &shutdown());
            }
            table.hangs_up(server);
            assert_eq!(table.hears(client), heard);
            goes_on(&mut table, client);
        }
    }
}

#[test]
fn a_batch_that_is_not_ended_fails_at_once() {
    let (mut table, client, server) = in_block();
    table.says(client, &[run_unnamed(), flush()].concat());
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001)");
    table.says(client, &[run_unnamed(), sync()].concat());
    assert_eq!(table.hears(client), "Z(E)");
    goes_on(&mut table, client);
}

#[test]
fn the_first_statement_behind_a_begin_of_the_pools_fails_as_well() {
    for asked in [query("INSERT INTO t VALUES (1)"), [run_unnamed(), sync()].concat()] {
        let mut table = Table::new(settings());
        table.has_primary(clustered(settings()), Some("a"));
        let client = table.client();
        table.says(client, &query("BEGIN"));
        assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
        table.says(client, &asked);
        let server = table.servers()[0];
        assert!(table.hears(server).starts_with("P(: BEGIN)"));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(40001) Z(E)");
        goes_on(&mut table, client);
    }
}

#[test]
fn what_may_have_been_committed_is_not_said_to_be_rolled_back() {
    for asked in [
        query("COMMIT"),
        query("INSERT INTO t VALUES (1); COMMIT"),
        query("COMMIT AND CHAIN"),
        query("PREPARE TRANSACTION 'a'"),
        query("EXECUTE a"),
        [parse("", "COMMIT"), bind("", 0), execute(), sync()].concat(),
        [parse("", "COMMIT"), bind("", 0), sync()].concat(),
        [run_unnamed(), parse("", "END"), bind("", 0), execute(), sync(), run_unnamed(), sync()].concat(),
    ] {
        let (mut table, client, server) = in_block();
        table.says(client, &asked);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)");
        assert!(table.is_closed(client));
    }
}

#[test]
fn a_statement_outside_of_a_block_may_have_been_committed() {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    let server = table.servers()[0];
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08007)");
}

#[test]
fn a_lost_block_ends_with_its_server_where_there_is_no_cluster() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08006)");
}

/// The same, where the block has written something, and the server has said by what it can be known.
fn in_marked_block(more: &str) -> (Table, Side, Side) {
    let (mut table, client, server) = in_block();
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table
        .says(server, &answers(&format!("C(INSERT 0 1) S(sluice.transaction=xid=7 at=0/A system=9 key=5{more}) Z(T)")));
    assert_eq!(table.hears(client), "C(INSERT 0 1) Z(T)");
    table.hears(server);
    (table, client, server)
}

/// The server that is asked for the COMMIT that was lost.
fn asked(table: &mut Table) -> Side {
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
        ([parse("", "COMMIT"), bind("", 0), execute(), sync()].concat(), "1 2 "),
        (commit_in_full(), "1 2 n "),
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
                assert_eq!(table.hears(client), "");
                table.says(server, &answers(&format!("T(set_config) D({outcome})")));
                assert_eq!(table.hears(client), "", "it is not durable yet");
                table.says(server, &answers("C(SELECT 1) Z(I)"));
                assert_eq!(table.hears(client), format!("{ahead}{heard}"));
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

/// The messages of an INSERT by the extended protocol.
fn run_unnamed() -> Vec<u8> {
    [parse("", "INSERT INTO t VALUES (1)"), bind("", 0), execute()].concat()
}

/// PostgreSQL's last words in a shutdown.
fn shutdown() -> Vec<u8> {
    ErrorResponse::fatal("57P01", "terminating connection due to administrator command").to_bytes()
}

#[test]
fn what_a_lost_block_has_set_is_reported_to_be_what_it_was() {
    let (mut table, client, server) = in_block();
    table.says(client, &query("SET application_name = 'x'"));
    table.says(server, &answers("C(SET) S(application_name=x) Z(T)"));
    assert_eq!(table.hears(client), "C(SET) S(application_name=x) Z(T)");
    table.hangs_up(server);
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(client), "E(40001) S(application_name=) Z(E)");
    let set = |local: &str| {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &query(&format!("SET {local} application_name = 'x'")));
        table.says(server, &answers("C(SET) S(application_name=x) Z(T)"));
        assert_eq!(table.hears(client), "C(SET) S(application_name=x) Z(T)");
        table.hears(server);
        (table, client, server)
    };
    let (mut table, client, server) = set("");
    table.hangs_up(server);
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) S(application_name=) Z(I)");
    let (mut table, client, server) = set("");
    table.says(client, &query("SELECT 1"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) S(application_name=) Z(E)");
    for (outcome, heard) in [("committed", "C(COMMIT)"), ("aborted", "E(40001)")] {
        let (mut table, client, server) = set("LOCAL");
        table.says(client, &query("COMMIT"));
        table.hangs_up(server);
        let server = asked(&mut table);
        table.says(server, &answers(&format!("T(set_config) D({outcome}) C(SELECT 1) Z(I)")));
        assert_eq!(table.hears(client), format!("{heard} S(application_name=) Z(I)"));
    }
}
