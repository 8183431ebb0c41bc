//! Another configuration while clients are there: who goes on, with which server, and who ends.

use std::time::Duration;

use sluice_control::{
    Database,
    access::Method,
    address::Address,
    settings::{Limits, PoolMode, PoolSettings, Sharing},
};
use sluice_core::{hub::Hub, time::Time};

use crate::{
    one, prepared, prepared_apart, run, seated,
    table::{Side, Table, answers, limits, parse, query, scripted, sync},
};

/// The same database on another server.
fn moved(settings: PoolSettings) -> Database {
    Database { address: Address::Unix("/another".into()), ..scripted(settings) }
}

/// One that no table's client names.
fn other(settings: PoolSettings) -> Database {
    Database { name: Some("other".to_owned()), ..scripted(settings) }
}

const ENDED: &str = "E(57P01)";

#[test]
fn another_size_counts_at_once_and_no_server_is_closed() {
    let (mut table, client, server) = seated(one());
    let later = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.says(later, &query("SELECT 1"));
    assert_eq!(table.connects().len(), 0);
    table.publishes(scripted(PoolSettings { size: 2, ..one() }));
    table.says(later, &[]);
    table.passes(Duration::from_millis(200));
    let servers = table.connects();
    assert_eq!(servers.len(), 1, "who waits gets the server that may be opened now");
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
    assert!(!table.is_closed(server));
}

#[test]
fn clients_go_on_with_the_server_at_the_new_address() {
    let (mut table, client, server) = prepared("SELECT 1");
    let waiting = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
    table.says(waiting, &query("SELECT 2"));
    table.publishes(moved(one()));
    // Whoever waited waits there.
    let servers = table.connects();
    assert_eq!(servers.len(), 1);
    assert_eq!(table.hears(servers[0]), "Q(SELECT 2)");
    table.says(servers[0], &answers("C(SELECT 1) Z(I)"));
    // A transaction ends where it has begun.
    table.hears(server);
    table.says(client, &query("COMMIT"));
    assert_eq!(table.hears(server), "Q(COMMIT)");
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
    assert!(table.is_closed(server), "that server is nobody's any more");
    // Its prepared statement goes along, under a name that nothing else has.
    table.says(client, &run("a"));
    assert!(table.hears(servers[0]).starts_with("P(sluice_0: SELECT 1)"));
}

#[test]
fn statements_of_two_pools_have_no_name_in_common() {
    let (mut table, client, _) = prepared("SELECT 1");
    table.publishes(moved(one()));
    table.says(client, &[parse("b", "SELECT 2"), sync()].concat());
    let server = table.connects()[0];
    assert!(table.hears(server).starts_with("P(sluice_1: SELECT 2)"));
}

#[test]
fn what_is_idle_is_closed_and_a_server_that_is_being_opened_is_not_waited_for() {
    let (mut table, client, server) = seated(PoolSettings { size: 2, ..one() });
    table.publishes(moved(one()));
    assert!(table.is_closed(server) && !table.is_closed(client));
    table.says(client, &query("SELECT 1"));
    table.publishes(scripted(one()));
    let servers = table.connects();
    assert_eq!(servers.len(), 1, "the one that was begun to the other address is given up");
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn clients_of_a_database_that_is_gone_end_when_they_have_no_transaction() {
    let (mut table, client, server) = seated(one());
    let idle = table.client();
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    let waiting = table.stranger("app");
    assert!(table.hears(waiting).ends_with("Z(I)"));
    table.says(waiting, &query("SELECT 1"));
    table.hears(client);
    table.publishes(other(one()));
    for gone in [idle, waiting] {
        assert_eq!(table.hears(gone), ENDED);
        assert!(table.is_closed(gone));
    }
    assert_eq!(table.hears(client), "");
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), format!("C(COMMIT) Z(I) {ENDED}"));
    assert!(table.is_closed(client) && table.is_closed(server));
    let late = table.stranger("app");
    assert!(table.hears(late).contains("E(3D000"));
}

#[test]
fn a_client_that_keeps_its_server_ends_with_its_database_as_well() {
    let mut table = Table::reporting(one());
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &query("LISTEN a"));
    table.says(server, &answers("C(LISTEN) S(sluice.session=pins=listen) Z(I)"));
    assert_eq!(table.hears(client), "C(LISTEN) Z(I)");
    // A database under another name there is not the one that clients know.
    table.publishes(Database { dbname: Some("elsewhere".to_owned()), ..scripted(one()) });
    assert_eq!(table.hears(client), ENDED);
    assert!(table.is_closed(server));
}

#[test]
fn a_session_with_a_server_of_its_own_keeps_it_where_the_address_changes() {
    let settings = PoolSettings { sharing: Sharing { mode: PoolMode::Session, ..Sharing::default() }, ..one() };
    let (mut table, client, server) = seated(settings.clone());
    table.publishes(moved(settings.clone()));
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    // In transaction mode it could not go on as it is.
    table.publishes(moved(one()));
    assert_eq!(table.hears(client), ENDED);
}

/// A client that could do without its server: a sequence has given it something there. It rests, or its transaction is
/// still to end.
fn dispensable(is_idle: bool) -> (Table, Side, Side) {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(other, &query("SELECT lastval()"));
    table.says(server, &answers("E(55000) Z(I)"));
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table.hears(server);
    if is_idle {
        inserted(&mut table, server);
        assert!(!table.is_closed(server), "nobody else needs it");
    }
    (table, client, server)
}

fn inserted(table: &mut Table, server: Side) {
    table.says(server, &answers("C(INSERT 0 1) Z(I)"));
    table.passes(Duration::from_millis(200));
}

#[test]
fn a_server_that_its_client_could_do_without_is_not_kept_where_the_address_changes() {
    for is_idle in [true, false] {
        let (mut table, client, server) = dispensable(is_idle);
        table.publishes(moved(one()));
        if !is_idle {
            inserted(&mut table, server);
        }
        // What the sequence gave it is forgotten, and the server closed.
        assert!(table.is_closed(server), "{is_idle}");
        table.says(client, &query("INSERT INTO t VALUES (2)"));
        let servers = table.connects();
        assert_eq!(table.hears(servers[0]), "Q(INSERT INTO t VALUES (2))");
    }
}

#[test]
fn a_server_that_its_client_could_do_without_is_closed_where_an_operator_says_so() {
    let commands: [fn(&Hub, Time) -> _; 2] = [|hub, now| hub.pause(now, None), |hub, now| hub.renew(now, None)];
    for (command, is_idle) in commands.into_iter().flat_map(|command| [(command, true), (command, false)]) {
        let (mut table, _, server) = dispensable(is_idle);
        table.passes(Duration::from_millis(1));
        table.operates(command);
        if !is_idle {
            inserted(&mut table, server);
        }
        assert!(table.is_closed(server), "{is_idle}");
    }
}

#[test]
fn an_idle_server_of_before_is_not_given_out() {
    let (mut table, client, server) = seated(one());
    table.passes(Duration::from_millis(1));
    table.operates(|hub, now| hub.renew(now, None));
    table.says(client, &query("SELECT 1"));
    assert!(table.is_closed(server));
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn clients_go_on_however_many_pools_there_may_be() {
    let limits = Limits { pools: 1, ..limits() };
    let mut table = Table::limited(one(), limits, Method::Trust);
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.publishes(moved(one()));
    // Another role has taken the one place there is.
    let other = table.stranger("another");
    table.connects();
    assert!(table.hears(other).ends_with("Z(I)"));
    table.hears(client);
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
    table.says(client, &query("SELECT 1"));
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn a_report_that_comes_before_a_clients_first_message_is_not_of_its_doing() {
    let (mut table, client, server) = prepared_apart();
    table.says(client, &run("a"));
    assert!(table.hears(server).contains("'timezone','X'"));
    // The configuration is read again.
    table.says(server, &answers("C(SELECT 1) Z(I) S(in_hot_standby=on)"));
    assert_eq!(table.hears(client), "S(in_hot_standby=on)");
    let heard = table.hears(server);
    assert!(heard.contains("'timezone',NULL") && heard.contains("P(sluice_1: SELECT 'x')"), "{heard}");
}

/// The time that both limits of clients who say nothing have from now on, or that they have none.
fn limits_idle(table: &mut Table, seconds: Option<u64>) {
    let limit = seconds.map(Duration::from_secs);
    table.changes(|it| (it.limits.idle_client_timeout, it.limits.idle_transaction_timeout) = (limit, limit));
    table.passes(Duration::from_millis(100));
}

fn session_mode() -> PoolSettings {
    PoolSettings { sharing: Sharing { mode: PoolMode::Session, ..Sharing::default() }, ..one() }
}

#[test]
fn another_limit_counts_for_those_who_say_nothing_already() {
    // One that is idle, one that has only begun, and the same where they have a server.
    for (settings, begin, error) in [
        (one(), "", "E(57P05)"),
        (one(), "BEGIN", "E(25P03)"),
        (session_mode(), "", "E(57P05)"),
        (session_mode(), "BEGIN", "E(25P03)"),
        (one(), "BEGIN READ WRITE", "E(25P03)"),
    ] {
        for before in [None, Some(3600)] {
            let (mut table, client, server) = seated(settings.clone());
            if before.is_some() {
                limits_idle(&mut table, before);
            }
            if !begin.is_empty() {
                table.says(client, &query(begin));
                if table.unread(server) > 0 {
                    table.says(server, &answers("C(BEGIN) Z(T)"));
                }
                assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
            }
            table.passes(Duration::from_secs(10));
            limits_idle(&mut table, Some(15));
            table.passes(Duration::from_millis(4_600));
            assert!(!table.is_closed(client), "{begin:?} after {before:?}: too early");
            table.passes(Duration::from_millis(400));
            assert_eq!(table.hears(client), error, "{begin:?} after {before:?}");
        }
    }
}

#[test]
fn a_limit_that_is_raised_or_taken_away_ends_nobody_by_what_was_before() {
    for (settings, after) in [(one(), Some(60)), (one(), None), (session_mode(), Some(60)), (session_mode(), None)] {
        let (mut table, client, _) = seated(settings);
        limits_idle(&mut table, Some(5));
        table.passes(Duration::from_secs(4));
        limits_idle(&mut table, after);
        table.passes(Duration::from_secs(30));
        assert!(!table.is_closed(client), "{after:?}");
    }
}
