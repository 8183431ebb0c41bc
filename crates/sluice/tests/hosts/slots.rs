//! What a host asks the others' PostgreSQL: whether they could serve slots of logical replication, and take their settings.

use sluice_testkit::eventually;

use crate::{
    SLUICE,
    hosts::{Hosts, name},
    ledger::Servers,
};

/// Before the hosts are started again, one by one.
pub(crate) fn prepare(hosts: &Hosts) {
    cluster(hosts, 0, &["config", "set", "postgresql.parameters.wal_level=logical"]).unwrap();
}

/// A slot that nobody reads can't be served by nodes that have a fresh copy of it.
pub(crate) fn of_other_hosts_are_asked_for(hosts: &Hosts) {
    const SLOT: &str = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'unread'";

    let leader = hosts.leader();
    cluster(hosts, leader, &["restart", "--pending"]).unwrap();
    hosts.wait_streaming(2);
    let leader = hosts.leader();
    let [to, other] = [1, 2].map(|next| (leader + next) % 3);
    let plugin = ["slots.unread.type=logical", "slots.unread.database=postgres", "slots.unread.plugin=pgoutput"];
    cluster(hosts, leader, &[&["config", "set"][..], &plugin].concat()).unwrap();
    eventually("each host has the slot", || {
        (0..3).all(|host| {
            let row = hosts.try_superuser(host).and_then(|mut client| client.query_one(SLOT, &[]));
            row.is_ok_and(|row| row.get::<_, i64>(0) == 1)
        })
    });
    hosts.wait_streaming(2);
    let reason = format!("{} might leave out transactions for slot unread", name(to));
    let said = cluster(hosts, other, &["switchover", "--to", &name(to)]).unwrap_err();
    assert!(said.contains("subscribers would not be served") && said.contains(&reason), "{said}");
    for host in 0..3 {
        let said = cluster(hosts, host, &["status"]).unwrap();
        assert!(said.contains(&reason), "{host}: {said}");
    }
    assert_eq!(hosts.leader(), leader);
    cluster(hosts, other, &["config", "set", "slots.unread="]).unwrap();
}

/// What PostgreSQL does not take is heard of all hosts, whichever of them asks.
pub(crate) fn settings_are_judged_by_all_hosts(hosts: &Hosts) {
    let other = (hosts.leader() + 1) % 3;
    let set = |setting: &str| cluster(hosts, other, &["config", "set", &format!("postgresql.parameters.{setting}")]);
    let said = set("timezone=Nowhere/Atall").unwrap_err();
    assert!(said.contains("nothing is changed") && said.contains(r#"parameter "TimeZone""#), "{said}");
    let said = set("log_timezone=Nowhere/Atall").unwrap_err();
    for host in 0..3 {
        assert!(said.contains(&format!("{}: PostgreSQL does not take log_timezone", name(host))), "{said}");
    }
    let said = cluster(hosts, other, &["switchover"]).unwrap_err();
    assert!(said.contains(r#"invalid value for parameter "log_timezone""#), "{said}");
    set("log_timezone=").unwrap();
}

/// What `sluice cluster` says on a host; an error if it fails.
fn cluster(hosts: &Hosts, host: usize, words: &[&str]) -> Result<String, String> {
    let mut command = hosts.network.command(host, SLUICE);
    let output = command.arg("cluster").args(words).arg("--data").arg(hosts.data(host)).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}
