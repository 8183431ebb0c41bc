//! A cluster that is begun again when etcd is lost on all hosts, with the wrong host's data: what the others have more, and
//! was acknowledged, is not rewound away.

use std::{fs, thread};

use crate::{hosts::Hosts, ledger::Servers};

pub(crate) fn with_the_wrong_host(hosts: &Hosts) {
    let last = hosts.leader();
    let [behind, other] = [1, 2].map(|next| (last + next) % 3);
    hosts.stop(behind);
    // The other one has it as well.
    let acknowledged = "CREATE TABLE acknowledged AS SELECT generate_series(1, 1000)";
    hosts.try_superuser(last).unwrap().batch_execute(acknowledged).unwrap();
    stop_all(hosts, &[last, other]);
    let controls =
        || [last, other].map(|host| fs::read(hosts.data(host).join("node/pgdata/global/pg_control")).unwrap());
    let before = controls();

    lose_etcd(hosts);
    let (said, is_good) = hosts.command(behind, &["init", "--again"]);
    assert!(!is_good && said.contains("\"shut down in recovery\", timeline ") && said.contains("--force"), "{said}");
    let (said, is_good) = hosts.command(behind, &["init", "--again", "--force"]);
    assert!(is_good && said.contains("\"shut down in recovery\", timeline "), "{said}");
    hosts.start(behind);
    hosts.wait_placed(behind);
    let (said, is_good) = hosts.command(last, &["init", "--again", "--force"]);
    assert!(!is_good && said.contains("the other hosts have a cluster already"), "{said}");
    for host in [last, other] {
        hosts.start(host);
        assert!(!hosts.wait_end(host), "{}", hosts.said(host));
        let said = hosts.said(host);
        assert!(said.contains("goes further than the data that cluster main was begun again with"), "{said}");
    }
    assert!(controls() == before, "the data were touched");

    // Begun with those, and the ones of the first attempt are another history.
    stop_all(hosts, &[behind]);
    lose_etcd(hosts);
    let (said, is_good) = hosts.command(last, &["init", "--again", "--force"]);
    assert!(is_good, "{said}");
    [last, other].iter().for_each(|host| hosts.start(*host));
    [last, other].iter().for_each(|host| hosts.wait_placed(*host));
    hosts.start(behind);
    assert!(
        !hosts.wait_end(behind) && hosts.said(behind).contains("has another history than"),
        "{}",
        hosts.said(behind)
    );
    fs::remove_dir_all(hosts.data(behind).join("node/pgdata")).unwrap();
    hosts.start(behind);
    hosts.wait_placed(behind);
    hosts.wait_streaming(2);
    let mut client = hosts.try_superuser(hosts.leader()).unwrap();
    let count: i64 = client.query_one("SELECT count(*) FROM acknowledged", &[]).unwrap().get(0);
    assert_eq!(count, 1000);
    // It has joined since: what is rewound from now on was never acknowledged.
    hosts.stop(other);
    hosts.start(other);
    hosts.wait_placed(other);
}

fn lose_etcd(hosts: &Hosts) {
    for host in 0..hosts.count() {
        let etcd = hosts.data(host).join("etcd");
        if etcd.exists() {
            fs::remove_dir_all(etcd).unwrap();
        }
    }
}

/// At once: each waits for an etcd without a majority, which the last one has in any case.
fn stop_all(hosts: &Hosts, which: &[usize]) {
    thread::scope(|scope| {
        for host in which {
            scope.spawn(move || hosts.stop(*host));
        }
    });
}
