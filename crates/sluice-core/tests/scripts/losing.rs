//! Blocks that are lost with a cluster's primary.

use std::time::Duration;

use sluice_control::{Database, Secret, settings::PoolSettings};
use sluice_wire::{
    ErrorResponse,
    startup::{self, ProtocolVersion},
};

use crate::{
    clusters::{asked, clustered, in_marked_block, settings},
    holds, one, seated,
    table::{Side, Table, answers, bind, close, execute, flush, parse, query, sync},
};

/// A table before a cluster's primary, with a client that has a block open there, and its server.
pub(crate) fn in_block() -> (Table, Side, Side) {
    let mut table = Table::new(settings());
    table.reports_at_login("application_name", "");
    table.has_primary(clustered(settings()), Some("a"));
    let (client, server) = holds::in_block(&mut table);
    (table, client, server)
}

/// The client's transaction has failed, ends by its ROLLBACK, and the next one is another server's.
fn goes_on(table: &mut Table, client: Side) {
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
    has_another(table, client);
}

/// The client's next transaction is another server's.
pub(crate) fn has_another(table: &mut Table, client: Side) {
    table.says(client, &query("SELECT 2"));
    table.passes(Duration::from_millis(200));
    let server = table.connects().first().copied().unwrap_or_else(|| table.servers()[0]);
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

/// A request has one error, whatever becomes of its server: drivers take a second one for an end of the connection.
#[test]
fn a_request_that_has_failed_is_not_told_of_the_loss() {
    for (asked, heard) in [
        (query("INSERT INTO t VALUES (1)"), "Z(E)"),
        ([run_unnamed(), sync()].concat(), "Z(E)"),
        ([run_unnamed(), sync(), run_unnamed(), sync()].concat(), "Z(E) E(25P02) Z(E)"),
    ] {
        let (mut table, client, server) = in_block();
        table.says(client, &asked);
        table.says(server, &answers("E(42P03)"));
        assert_eq!(table.hears(client), "E(42P03)");
        table.hangs_up(server);
        assert_eq!(table.hears(client), heard);
        goes_on(&mut table, client);
    }
    let (mut table, client, server) = in_block();
    table.says(client, &[run_unnamed(), flush()].concat());
    table.says(server, &answers("E(42P03)"));
    assert_eq!(table.hears(client), "E(42P03)");
    table.hangs_up(server);
    table.says(client, &sync());
    assert_eq!(table.hears(client), "Z(E)");
    goes_on(&mut table, client);
}

#[test]
fn a_batch_that_is_lost_ahead_of_its_sync_fails_with_that() {
    let (mut table, client, server) = in_block();
    table.says(client, &[run_unnamed(), flush()].concat());
    table.hears(server);
    table.says(server, &answers("1 2 C(INSERT 0 1)"));
    assert_eq!(table.hears(client), "1 2 C(INSERT 0 1)");
    table.hangs_up(server);
    assert_eq!(table.hears(client), "");
    table.says(client, &sync());
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    table.says(client, &sync());
    assert_eq!(table.hears(client), "Z(E)");
    goes_on(&mut table, client);
}

#[test]
fn a_sync_behind_a_request_that_is_lost_has_no_error_of_its_own() {
    for (behind, heard) in [(sync(), "Z(E)"), ([run_unnamed(), sync()].concat(), "E(25P02) Z(E)")] {
        let (mut table, client, server) = in_block();
        table.says(client, &[query("SELECT 1"), behind].concat());
        table.hangs_up(server);
        assert_eq!(table.hears(client), format!("E(40001) Z(E) {heard}"));
        goes_on(&mut table, client);
    }
}

#[test]
fn several_commands_of_which_none_may_end_a_block_fail_with_it() {
    let asked = "INSERT INTO t VALUES (1); SELECT pending, end_of FROM t";
    let (mut table, client, server) = in_block();
    table.says(client, &query(asked));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    goes_on(&mut table, client);
    // The one behind a BEGIN that the pool sends is no other.
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &query("BEGIN"));
    table.hears(client);
    table.says(client, &query(asked));
    let server = table.servers()[0];
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    goes_on(&mut table, client);
    for asked in ["SELECT 1; END", "SELECT 1;COMMIT;", "SELECT 1; SELECT 1ROLLBACK", "SELECT ';'; execute a"] {
        let (mut table, client, server) = in_block();
        table.says(client, &query(asked));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)", "{asked}");
    }
}

#[test]
fn a_block_that_is_open_behind_what_might_have_ended_one_is_rolled_back() {
    for asked in ["EXECUTE a", "COMMIT AND CHAIN", "INSERT INTO t VALUES (1); COMMIT; BEGIN"] {
        let (mut table, client, server) = in_block();
        table.says(client, &query(asked));
        table.says(server, &answers("C(?) Z(T)"));
        assert_eq!(table.hears(client), "C(?) Z(T)");
        table.hangs_up(server);
        table.says(client, &query("SELECT 1"));
        assert_eq!(table.hears(client), "E(40001) Z(E)");
        goes_on(&mut table, client);
    }
}

#[test]
fn a_block_that_has_failed_is_lost_as_well() {
    for asked in [None, Some("SELECT 1"), Some("ROLLBACK TO a")] {
        let (mut table, client, server) = in_block();
        table.says(client, &query("SELECT nonsense"));
        table.says(server, &answers("E(42703) Z(E)"));
        assert_eq!(table.hears(client), "E(42703) Z(E)");
        table.hears(server);
        if let Some(asked) = asked {
            table.says(client, &query(asked));
            table.hangs_up(server);
            assert_eq!(table.hears(client), "E(40001) Z(E)");
        } else {
            table.hangs_up(server);
            assert_eq!(table.hears(client), "");
        }
        goes_on(&mut table, client);
    }
}

#[test]
fn half_a_message_of_a_server_that_is_lost_is_dropped() {
    for bytes in [1, 4, 5, 20] {
        let (mut table, client, server) = in_block();
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers("E(42703)")[..bytes]);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(40001) Z(E)", "{bytes} bytes");
        goes_on(&mut table, client);
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

/// A client that the pool's only server, of a cluster's primary, has not served: it is told where that client is first.
fn taken_over() -> (Table, Side, Side) {
    let database = Database { client_address_secret: Some(Secret("a secret".to_owned())), ..clustered(one()) };
    let mut table = Table::new(one());
    table.has_primary(database, Some("a"));
    let other = table.client();
    let client = table.comes_from("203.0.113.5:51000");
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app"), ("database", "app")]);
    table.says(client, &packet);
    table.hears(client);
    let server = table.servers()[0];
    table.says(other, &query("SELECT 1"));
    table.hears(server);
    table.says(server, &answers("V(t) Z(I) C(SELECT 1) Z(I)"));
    table.hears(other);
    (table, client, server)
}

#[test]
fn a_block_whose_server_is_told_first_where_the_client_is_fails_as_any_other() {
    for (asked, heard) in [
        (query("INSERT INTO t VALUES (1)"), "E(40001) Z(E)"),
        ([run_unnamed(), sync()].concat(), "E(40001) Z(E)"),
        ([query("INSERT INTO t VALUES (1)"), query("SELECT 1")].concat(), "E(40001) Z(E) E(40001) Z(E)"),
    ] {
        for told in ["", "V(t)", "V(t) Z(I)", "V(t) Z(I) 1"] {
            let (mut table, client, server) = taken_over();
            table.says(client, &[query("BEGIN"), asked.clone()].concat());
            assert!(table.hears(server).starts_with("F(77) P(: BEGIN)"));
            table.says(server, &answers(told));
            table.says(server, &shutdown());
            table.hangs_up(server);
            assert_eq!(table.hears(client), format!("C(BEGIN) Z(T) {heard}"), "behind {told}");
            table.says(client, &query("ROLLBACK"));
            assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
        }
    }
}

#[test]
fn what_stands_behind_the_words_of_where_a_client_is_may_have_been_committed() {
    for asked in [query("INSERT INTO t VALUES (1)"), query("BEGIN; COMMIT"), [run_unnamed(), sync()].concat()] {
        let (mut table, client, server) = taken_over();
        table.says(client, &asked);
        assert!(table.hears(server).starts_with("F(77)"));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)");
    }
    for asked in ["SELECT 1; COMMIT", "EXECUTE a"] {
        let (mut table, client, server) = taken_over();
        table.says(client, &[query("BEGIN"), query(asked)].concat());
        assert!(table.hears(server).starts_with("F(77) P(: BEGIN)"));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(08007)", "{asked}");
    }
}

/// A client of a cluster that has a statement by the name of `p`, and the server that has parsed it.
fn with_statement() -> (Table, Side, Side) {
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &[parse("p", "SELECT 1"), sync()].concat());
    let server = table.servers()[0];
    table.says(server, &answers("1 t n Z(I)"));
    (table, client, server)
}

#[test]
fn a_block_is_lost_in_the_midst_of_what_is_the_pools_own() {
    // A statement that the client prepared elsewhere is lent to the server, for its EXECUTE,
    let (mut table, client, server) = with_statement();
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.hears(server);
    table.says(client, &query("EXECUTE p"));
    assert_eq!(table.hears(server), "P(p: SELECT 1) S");
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    goes_on(&mut table, client);
    // and the settings that it began with are brought back.
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.stranger_with("app", &[("application_name", "start")]);
    let server = table.connects()[0];
    table.says(server, &answers("C(SET) S(application_name=start) Z(I)"));
    table.says(server, &answers("D(set=6170706c69636174696f6e5f6e616d65:7374617274) C(SELECT 1) Z(I)"));
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.says(client, &query("RESET application_name"));
    table.says(server, &answers("C(RESET) S(application_name=) Z(T)"));
    table.hears(client);
    assert!(table.hears(server).contains("P(sluice_own: SET"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "");
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
}

#[test]
fn a_block_is_lost_while_the_server_forgets_what_sequences_gave_to_another() {
    let mut table = Table::new(PoolSettings { size: 1, ..settings() });
    table.has_primary(clustered(PoolSettings { size: 1, ..settings() }), Some("a"));
    let (client, other) = (table.client(), table.client());
    let server = table.servers()[0];
    table.says(other, &query("SELECT nextval('s')"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(client);
    table.hears(server);
    table.says(client, &query("SELECT lastval()"));
    assert!(table.hears(server).contains("P(sluice_own: DISCARD SEQUENCES)"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
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
fn what_a_sequence_gave_a_client_is_no_reason_for_it_to_end_with_its_server() {
    for (asked, heard) in [("SELECT 1", "E(40001) Z(E)"), ("ROLLBACK", "C(ROLLBACK) Z(I)")] {
        let mut table = Table::new(settings());
        table.has_primary(clustered(settings()), Some("a"));
        let client = table.client();
        table.says(client, &query("SELECT lastval()"));
        let server = table.servers()[0];
        table.says(server, &answers("E(55000) Z(I)"));
        // It may ask for that, and keeps its server.
        table.says(client, &query("INSERT INTO t VALUES (1)"));
        table.says(server, &answers("C(INSERT 0 1) Z(I)"));
        table.says(client, &query("BEGIN READ WRITE"));
        table.says(server, &answers("C(BEGIN) Z(T)"));
        table.hears(client);
        table.says(client, &query(asked));
        table.hangs_up(server);
        assert_eq!(table.hears(client), heard);
        if asked == "SELECT 1" {
            goes_on(&mut table, client);
        }
    }
}

#[test]
fn what_a_rollback_would_not_have_taken_away_ends_with_its_server() {
    for left in ["SELECT pg_advisory_lock(1)", "PREPARE p AS SELECT 1", "LOAD 'auto_explain'"] {
        for asked in ["SELECT 1", "ROLLBACK", ""] {
            let (mut table, client, server) = in_block();
            table.says(client, &query(left));
            table.says(server, &answers("C(SELECT 1) Z(T)"));
            table.hears(client);
            if !asked.is_empty() {
                table.says(client, &query(asked));
            }
            table.hangs_up(server);
            let heard = if asked == "ROLLBACK" { "E(08007)" } else { "E(08006)" };
            assert_eq!(table.hears(client), heard, "{left}; {asked}");
        }
    }
    // What a transaction took is gone with it, and the next one is another matter.
    for left in ["SELECT pg_advisory_xact_lock(1)", "LISTEN a"] {
        let (mut table, client, server) = in_block();
        table.says(client, &query(left));
        table.says(server, &answers("C(SELECT 1) Z(T)"));
        table.hears(client);
        table.says(client, &query("SELECT 1"));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(40001) Z(E)", "{left}");
    }
}

#[test]
fn a_query_that_has_failed_before_it_was_sent_is_answered_once() {
    let (mut table, client, server) = with_statement();
    table.hears(server);
    table.says(client, &[query("BEGIN"), query("EXECUTE p")].concat());
    assert_eq!(table.hears(client), "1 Z(I) C(BEGIN) Z(T)");
    assert!(table.hears(server).starts_with("P(: BEGIN)"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    goes_on(&mut table, client);
}

#[test]
fn what_was_committed_before_a_lost_block_and_is_not_known_elsewhere_ends_with_its_server() {
    // Committed by a COMMIT that has begun the next block at once,
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &query("SET search_path = a"));
    table.says(server, &answers("C(SET) Z(T)"));
    table.says(client, &query("COMMIT AND CHAIN"));
    table.says(server, &answers("C(COMMIT) Z(T)"));
    table.hears(client);
    table.says(client, &query("SELECT 1"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08006)");
    // or ahead of a BEGIN that was sent behind it.
    let mut table = Table::new(settings());
    table.has_primary(clustered(settings()), Some("a"));
    let client = table.client();
    table.says(client, &[query("SET search_path = a"), query("BEGIN READ WRITE")].concat());
    let server = table.servers()[0];
    table.says(server, &answers("C(SET) Z(I)"));
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(client), "C(SET) Z(I) C(BEGIN) Z(T)");
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(08006)");
}

#[test]
fn a_session_that_the_server_has_ended_by_itself_is_over() {
    let (mut table, client, server) = in_block();
    table.says(server, &ErrorResponse::fatal("25P03", "terminating connection due to idle-in-transaction").to_bytes());
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(25P03)");
    assert!(table.is_closed(client));
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

/// The messages of an INSERT by the extended protocol.
pub(crate) fn run_unnamed() -> Vec<u8> {
    [parse("", "INSERT INTO t VALUES (1)"), bind("", 0), execute()].concat()
}

/// PostgreSQL's last words in a shutdown.
pub(crate) fn shutdown() -> Vec<u8> {
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
