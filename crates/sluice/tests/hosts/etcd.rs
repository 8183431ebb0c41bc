//! A member of etcd whose data vanish while it runs: it has forgotten how it voted, and must never vote again as the one
//! that it was.

use std::{fs, thread};

use sluice_testkit::{eventually, proc};

use crate::{GOING_ON, hosts::Hosts, programs::Program};

/// The host's own member is taken out and added anew; its PostgreSQL goes on meanwhile.
pub(crate) fn joins_anew(hosts: &Hosts, host: usize) {
    let postmaster = hosts.pid(host, Program::Postmaster);
    lose(hosts, host);
    wait_rejoined(hosts, host);
    assert_eq!(hosts.pid(host, Program::Postmaster), postmaster, "{}", hosts.said(host));
    hosts.wait_streaming(2);
    assert!(!hosts.status(host).contains("Note:"), "{}", hosts.status(host));
}

/// The host on which the cluster began, alone: it begins no second one, and joins again when the others are there.
pub(crate) fn begins_no_second(hosts: &Hosts, first: usize) {
    let others = || (0..3).filter(|host| *host != first);
    // Once that all three vote has come to the others' disks, behind which something is written.
    thread::sleep(GOING_ON);
    others().for_each(|host| hosts.kill(host));
    lose(hosts, first);
    hosts.wait_said(first, "no other member of etcd answers");
    thread::sleep(GOING_ON);
    assert_eq!(hosts.pid(first, Program::Etcd), None, "{}", hosts.said(first));
    assert!(!hosts.data(first).join("etcd/member").exists());
    others().for_each(|host| hosts.start(host));
    wait_rejoined(hosts, first);
    others().for_each(|host| hosts.wait_placed(host));
    hosts.wait_streaming(2);
}

/// What etcd can't start with: damaged data are told of with the remedy, and a folder without a log is none.
pub(crate) fn cannot_start(hosts: &Hosts, host: usize) {
    hosts.stop(host);
    let etcd = hosts.data(host).join("etcd");
    for file in fs::read_dir(etcd.join("member/wal")).unwrap() {
        fs::write(file.unwrap().path(), [7; 4096]).unwrap();
    }
    hosts.start(host);
    assert!(!hosts.wait_end(host), "{}", hosts.said(host));
    let said = hosts.said(host);
    let remedy = format!("move {} away and start sluice node again: its etcd joins anew", etcd.display());
    assert!(said.contains("etcd does not come up") && said.contains(&remedy) && !said.contains("{\"level\""), "{said}");
    fs::remove_dir_all(etcd.join("member/wal")).unwrap();
    hosts.start(host);
    hosts.wait_placed(host);
    assert!(hosts.said(host).contains("is removed, since its data are gone"), "{}", hosts.said(host));
    assert!(etcd.join("member.old/snap").is_dir());
    hosts.wait_streaming(2);
}

fn wait_rejoined(hosts: &Hosts, host: usize) {
    hosts.wait_said(host, "is removed, since its data are gone");
    eventually("it is given a vote behind that", || {
        let said = hosts.said(host);
        said.rsplit("is removed, since its data are gone").next().is_some_and(|after| after.contains("given its vote"))
    });
}

fn lose(hosts: &Hosts, host: usize) {
    let etcd = hosts.pid(host, Program::Etcd).unwrap();
    fs::remove_dir_all(hosts.data(host).join("etcd/member")).unwrap();
    proc::send(etcd, proc::Kind::SIGKILL);
}
