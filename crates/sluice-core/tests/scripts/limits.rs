//! Limits that clients and pools share, and who gets what under them.

use std::time::Duration;

use sluice_control::{
    Database,
    access::Method,
    settings::{Limits, PoolSettings, UserLimits},
};
use sluice_core::pool::Counts;
use sluice_wire::message::framed;

use crate::{
    one, seated,
    table::{Side, Table, answers, limits, query, scripted},
};

fn two_each() -> PoolSettings {
    PoolSettings { size: 2, ..one() }
}

/// The counts of a role's pool.
fn counts(table: &Table, role: &str) -> Counts {
    let mut pools = table.hub().pools().into_iter();
    let pool = pools.find(|pool| pool.upstream.user == role).expect("it has a pool");
    pool.state().counts()
}

/// A client whose transaction has begun, and its server.
fn busy(table: &mut Table, user: &str) -> (Side, Side) {
    let client = table.stranger(user);
    table.connects();
    table.says(client, &query("BEGIN READ WRITE"));
    table.connects();
    let server = *table.servers().iter().rev().find(|server| table.unread(**server) > 0).expect("one gets it");
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(server);
    table.hears(client);
    (client, server)
}

fn commits(table: &mut Table, (client, server): (Side, Side)) {
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}

#[test]
fn a_pool_with_more_than_its_share_gives_up_a_server_to_one_with_less() {
    for limits in [Limits { servers: 2, ..limits() }, Limits { servers_per_host: Some(2), ..limits() }] {
        let mut table = Table::limited(two_each(), limits, Method::Trust);
        let [first, second] = [(); 2].map(|()| busy(&mut table, "ann"));
        let third = table.stranger("ann");
        table.says(third, &query("SELECT 3"));
        let bob = table.stranger("bob");
        assert_eq!((table.hears(bob), table.connects().len()), ("R".to_owned(), 0));
        // Ann's own wait longer, and hers are two already.
        commits(&mut table, first);
        assert!(table.is_closed(first.1));
        let server = table.connects()[0];
        assert!(table.hears(bob).ends_with("Z(I)"), "it has what it waited for");
        assert_eq!((counts(&table, "ann").open, counts(&table, "bob").open), (1, 1));
        // Nobody takes more than that: whoever waits with her gets her other one.
        table.says(bob, &query("BEGIN READ WRITE"));
        table.says(server, &answers("C(BEGIN) Z(T)"));
        let other = table.stranger("bob");
        table.says(other, &query("SELECT 4"));
        table.passes(Duration::from_millis(100));
        commits(&mut table, second);
        assert!(!table.is_closed(second.1));
        table.says(second.1, &answers("C(SELECT 3) Z(I)"));
        assert!(table.hears(third).ends_with("C(SELECT 3) Z(I)"));
    }
}

#[test]
fn where_the_richest_has_nothing_to_give_the_next_one_is_asked() {
    let mut table = Table::limited(PoolSettings { size: 3, ..one() }, Limits { servers: 5, ..limits() }, Method::Trust);
    (0..3).for_each(|_| _ = busy(&mut table, "ann"));
    let [bob, other] = [(); 2].map(|()| busy(&mut table, "bob"));
    let waiting = table.stranger("bob");
    table.says(waiting, &query("SELECT 1"));
    let carl = table.stranger("carl");
    table.passes(Duration::from_millis(100));
    table.passes(Duration::from_millis(100));
    commits(&mut table, bob);
    assert!(table.is_closed(bob.1));
    assert_eq!(table.connects().len(), 1);
    assert!(table.hears(carl).ends_with("Z(I)"));
    // One was asked for: what falls free next is for the pool's own.
    commits(&mut table, other);
    assert!(!table.is_closed(other.1));
}

#[test]
fn pools_that_are_more_than_servers_take_turns() {
    let mut table = Table::limited(two_each(), Limits { servers: 1, ..limits() }, Method::Trust);
    let first = busy(&mut table, "ann");
    let bob = table.stranger("bob");
    table.passes(Duration::from_millis(150));
    let second = table.stranger("ann");
    table.says(second, &query("SELECT 2"));
    table.passes(Duration::from_millis(100));
    commits(&mut table, first);
    assert!(table.is_closed(first.1));
    assert_eq!(table.connects().len(), 1);
    assert!(table.hears(bob).ends_with("Z(I)"));
}

#[test]
fn a_limit_that_has_become_smaller_is_kept() {
    let mut table = Table::limited(PoolSettings { size: 3, ..one() }, limits(), Method::Trust);
    let [first, second, third] = [(); 3].map(|()| busy(&mut table, "ann"));
    commits(&mut table, first);
    table.publishes(Database { servers: Some(1), ..scripted(PoolSettings { size: 3, ..one() }) });
    // What is idle goes, and what falls free.
    table.passes(Duration::from_millis(100));
    assert!(table.is_closed(first.1));
    commits(&mut table, second);
    assert!(table.is_closed(second.1));
    commits(&mut table, third);
    table.passes(Duration::from_millis(200));
    assert_eq!(table.servers(), [third.1]);
}

#[test]
fn a_pool_whose_server_does_not_answer_takes_one_from_others() {
    let mut table = Table::limited(PoolSettings { size: 3, ..one() }, Limits { servers: 3, ..limits() }, Method::Trust);
    let all = [(); 3].map(|()| busy(&mut table, "ann"));
    all.into_iter().for_each(|one| commits(&mut table, one));
    (0..3).for_each(|_| _ = table.stranger("bob"));
    for _ in 0..5 {
        table.passes(Duration::from_millis(100));
    }
    assert_eq!((counts(&table, "ann").open, counts(&table, "bob").connecting), (2, 1));
}

#[test]
fn an_idle_server_of_a_pool_that_shares_the_limit_makes_room() {
    let own = UserLimits { servers: Some(1), ..UserLimits::default() };
    let users = [("ann".to_owned(), own)].into();
    let mut table = Table::limited(two_each(), Limits { servers: 2, users, ..limits() }, Method::Trust);
    let first = busy(&mut table, "ann");
    let bob = busy(&mut table, "bob");
    commits(&mut table, bob);
    // Bob's is idle, and of no use to her: she may have one.
    let second = table.stranger("ann");
    table.says(second, &query("SELECT 2"));
    table.passes(Duration::from_millis(200));
    assert_eq!((table.connects().len(), table.is_closed(bob.1)), (0, false));
    commits(&mut table, first);
    table.says(first.1, &answers("C(SELECT 2) Z(I)"));
    assert!(table.hears(second).ends_with("C(SELECT 2) Z(I)"));
    // Carl is under the limit of the process alone.
    let carl = table.stranger("carl");
    assert_eq!(table.connects().len(), 1);
    assert!(table.hears(carl).ends_with("Z(I)"));
    assert_eq!(table.servers().len(), 2);
}

#[test]
fn whoever_waits_in_vain_hears_of_the_limit() {
    let limits = Limits { servers_per_user: Some(1), ..limits() };
    let mut table = Table::limited(two_each(), limits, Method::Trust);
    busy(&mut table, "ann");
    let second = table.stranger("ann");
    table.hears(second);
    table.says(second, &query("SELECT 2"));
    table.passes(two_each().wait_timeout);
    let heard = table.hears_error(second);
    assert!(
        heard.contains("1 of 2 server connections are open; the limit is the server connections of user \"ann\"."),
        "{heard}"
    );
}

#[test]
fn a_user_has_as_many_clients_as_it_may() {
    let own = UserLimits { clients: Some(2), ..UserLimits::default() };
    let users = [("ann".to_owned(), own)].into();
    let mut table = Table::limited(two_each(), Limits { clients_per_user: Some(1), users, ..limits() }, Method::Trust);
    let first = table.client_of("ann");
    table.client_of("ann");
    table.client_of("bob");
    for user in ["ann", "bob"] {
        let refused = table.stranger(user);
        assert_eq!(table.hears(refused), format!("R E(53300: too many connections for role \"{user}\")"));
        assert!(table.is_closed(refused));
    }
    table.hangs_up(first);
    table.client_of("ann");
}

#[test]
fn who_has_proven_nothing_takes_nobodys_place() {
    let mut table = Table::limited(two_each(), Limits { clients_per_user: Some(1), ..limits() }, Method::ScramSha256);
    let strangers = [(); 3].map(|()| table.stranger("ann"));
    assert!(strangers.iter().all(|client| table.hears(*client) == "R" && !table.is_closed(*client)));
}

/// Messages that name or end something are small (`PQ_SMALL_MESSAGE_LIMIT`): by a larger one PostgreSQL ends the session,
/// once it has answered what came before.
#[test]
fn what_is_too_large_for_its_kind_ends_the_session() {
    let message = |kind: u8, length: usize| {
        let mut out = Vec::new();
        framed(&mut out, kind, |out| out.resize(out.len() + length - 4, b'S'));
        out
    };
    for kind in *b"CDEHScf" {
        for is_known in [false, true] {
            let (mut table, client, server) = seated(one());
            let before = if is_known { query("SELECT 1") } else { Vec::new() };
            table.says(client, &[before, message(kind, 10_001), query("SELECT 2")].concat());
            if is_known {
                assert_eq!(table.hears(server), "Q(SELECT 1)", "{}", kind as char);
                assert_eq!(table.hears(client), "", "{}", kind as char);
                table.says(server, &answers("C(SELECT 1) Z(I)"));
                assert_eq!(table.hears(client), "C(SELECT 1) Z(I) E(08P01)", "{}", kind as char);
            } else {
                assert_eq!(table.hears(client), "E(08P01)", "{}", kind as char);
            }
            assert!(table.is_closed(client) && !table.is_closed(server), "{}", kind as char);
        }
    }
    // A length that no message has is no other case.
    let (mut table, client, server) = seated(one());
    table.says(client, &[query("SELECT 1"), b"Q\0\0\0\x03".to_vec()].concat());
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I) E(08P01)");
}
