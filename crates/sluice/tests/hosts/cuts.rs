//! A primary that the others can't reach any more, while clients still can: it acknowledges nothing, and nothing that
//! was acknowledged is lost.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use sluice_testkit::{Network, TestPool, eventually};

use crate::{
    hosts::Hosts,
    ledger::{Allowed, Ledger, Servers},
};

/// The time in which a write is not acknowledged that would be within a moment.
const SILENT: Duration = Duration::from_secs(3);

/// A round that no fault has.
const ROUND: u64 = 1 << 32;

pub(crate) fn a_primary_that_is_cut_off_acknowledges_nothing(hosts: &Hosts, pool: &TestPool) {
    let ledger = Ledger::begin_round(hosts, pool, ROUND, Allowed::default());
    for (what, cut) in [("both ways", Network::cut as fn(&Network, usize, usize)), ("unheard", Network::cut_one_way)] {
        ledger.wait_for_writes();
        ledger.longest();
        let before = hosts.leader();
        let others: Vec<usize> = (0..3).filter(|host| *host != before).collect();
        others.iter().for_each(|other| cut(&hosts.network, before, *other));
        let answer = write_at(hosts, before);
        let silence = answer.recv_timeout(SILENT);
        assert!(matches!(silence, Err(RecvTimeoutError::Timeout)), "{what}: {silence:?}");
        ledger.wait_for_writes();
        println!("cut off, {what}: {:.1} s without an answer", ledger.longest().as_secs_f64());
        let next = others.iter().find(|host| hosts.is_primary(**host));
        assert!(next.is_some(), "{what}: one of the others takes the writes");
        others.iter().for_each(|other| hosts.network.mend(before, *other));
        // Its session ends with its time as the primary; it may have ended already.
        let answer = answer.recv().unwrap();
        assert!(answer.is_err(), "{what}: it was acknowledged");
        hosts.wait_streaming(2);
        assert_ne!(hosts.leader(), before);
    }
    let told = ledger.end(hosts);
    assert!(told.acknowledged > 100, "{told}");
    println!("{told}");
}

/// The times for which the primary's link is down: behind each of them its Patroni has given up, or is about to, and what
/// it knows of etcd is from before.
const CUTS_SECONDS: [u64; 4] = [7, 6, 8, 7];

pub(crate) fn a_primary_whose_link_comes_back_follows_the_next_one(hosts: &Hosts, pool: &TestPool) {
    let ledger = Ledger::begin_round(hosts, pool, ROUND + 1, Allowed::default());
    for lasts in CUTS_SECONDS {
        ledger.wait_for_writes();
        ledger.longest();
        let before = hosts.leader();
        let etcd = if hosts.etcd_leader() == before { ", with etcd's leader" } else { "" };
        let others: Vec<usize> = (0..3).filter(|host| *host != before).collect();
        others.iter().for_each(|other| hosts.network.cut(before, *other));
        thread::sleep(Duration::from_secs(lasts));
        others.iter().for_each(|other| hosts.network.mend(before, *other));
        ledger.wait_for_writes();
        let waited = ledger.longest().as_secs_f64();
        // Until then it has a view of its own, in which it has its standbys.
        eventually("the old primary has given up", || !hosts.is_primary(before));
        hosts.wait_streaming(2);
        println!("a link down for {lasts} s{etcd}: {waited:.1} s without an answer");
    }
    let told = ledger.end(hosts);
    assert!(told.acknowledged > 100, "{told}");
    println!("{told}");
}

/// Has an entry written straight on that host, whoever is the primary; the answer comes some time.
fn write_at(hosts: &Hosts, host: usize) -> mpsc::Receiver<Result<u64, postgres::Error>> {
    let mut client = hosts.try_superuser(host).unwrap();
    client.batch_execute("SET statement_timeout = 0").unwrap();
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may be there to hear it any more.
        let _ = sender.send(client.execute("INSERT INTO ledger VALUES (-1 - (random() * 1e9)::bigint)", &[]));
    });
    answer
}
