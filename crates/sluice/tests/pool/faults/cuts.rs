//! Faults of the network: it is cut between clients and the pool, or between the pool and PostgreSQL, one way too, for a
//! moment that nobody notices or until each side has given the other one up; and a client's host is gone without a word.

use std::{thread, time::Duration};

use sluice_testkit::{Database, Network, Raw, Script, becomes, network::TEST, random::Random, raw::transcript};
use sluice_wire::startup::{self, ProtocolVersion};

use super::World;

/// The hosts; the clients that stay are on the test's own.
pub(super) const POOL: usize = 0;
pub(super) const POSTGRESQL: usize = 1;
const LEAVING: usize = 2;
pub(super) const HOSTS: usize = 3;

/// The pool's `tcp_user_timeout`.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// The same in a brief run, in which nobody stalls.
pub(super) const USER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The same of clients: they are told by the pool, if it can tell them.
pub(super) const CLIENTS_TIMEOUT: Duration = Duration::from_secs(4);

/// PostgreSQL's own settings for that. Its user timeout ends also sessions whose clients do not read for so long.
pub(super) const OF_POSTGRESQL: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "1"), ("tcp_keepalives_interval", "1"), ("tcp_user_timeout", "10s")];

/// A network that is whole again after less than this is noticed by nobody.
const MOMENT: Duration = Duration::from_millis(300);

/// Has one of these faults happen; gives its name.
pub(super) fn fault(network: &Network, dice: &mut Random, world: &World<'_>, database: &Database<'_>) -> &'static str {
    match dice.below(8) {
        0 => {
            let from = *dice.of(&[TEST, POSTGRESQL]);
            // Programs cut the network and mend it: on a busy machine a moment may become longer than is allowed.
            let _cut = (from == TEST).then(|| world.cuts_clients_off());
            a_moment(network, dice, from)
        }
        1..4 => {
            let _cut = world.cuts_clients_off();
            for_good(network, dice, TEST);
            "clients are cut off"
        }
        4..6 => {
            for_good(network, dice, POSTGRESQL);
            "PostgreSQL is cut off"
        }
        _ => a_host_is_gone(network, world, database),
    }
}

/// Cuts the pool off from a host, in one direction or in both.
fn cut(network: &Network, dice: &mut Random, from: usize) {
    match dice.below(3) {
        0 => network.cut_one_way(POOL, from),
        1 => network.cut_one_way(from, POOL),
        _ => network.cut(POOL, from),
    }
}

fn a_moment(network: &Network, dice: &mut Random, from: usize) -> &'static str {
    cut(network, dice, from);
    thread::sleep(MOMENT);
    network.mend(POOL, from);
    "the network is away for a moment"
}

/// Cuts the pool off until it has no connection with that host any more.
fn for_good(network: &Network, dice: &mut Random, from: usize) {
    cut(network, dice, from);
    becomes("connections that lead nowhere", 0, || network.connections(POOL, from));
    network.mend(POOL, from);
}

/// Clients are gone whose host is: idle, within a transaction, in the midst of logging in, with an answer unread. Nobody
/// tells the pool.
fn a_host_is_gone(network: &Network, world: &World<'_>, database: &Database<'_>) -> &'static str {
    let connect = || network.within(LEAVING, || Raw::tcp(world.address));
    let parameters = [("user", "app"), ("database", world.database), ("application_name", "gone")];
    let login = || {
        let mut raw = connect();
        let said = transcript(&raw.login_with(ProtocolVersion::V3_0, &parameters));
        assert!(said.ends_with("Z(I)"), "{said}");
        raw
    };
    let (mut idle, mut amid, mut unread, mut new) = (login(), login(), login(), connect());
    assert_eq!(idle.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // By a client that nobody knows: it would be found if it were committed.
    amid.send(&Script::new().query("BEGIN").query("INSERT INTO ledger VALUES (-1, 0)"));
    assert_eq!(transcript(&amid.until_ready(2)), "C(BEGIN) Z(T) C(INSERT 0 1) Z(T)");
    if !world.is_brief {
        // It is given up last.
        unread.send(&Script::new().query(super::LARGE));
    }
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, parameters);
    new.send_bytes(&packet[..packet.len() / 2]);
    thread::sleep(MOMENT);
    network.cut(POOL, LEAVING);
    becomes("connections with a host that is gone", 0, || network.connections(POOL, LEAVING));
    becomes("servers of clients that are gone", 0, || database.count("application_name = 'gone' AND state <> 'idle'"));
    drop((idle, amid, unread, new));
    network.mend(POOL, LEAVING);
    "a client's host is gone"
}
