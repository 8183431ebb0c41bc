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
    // The others have to know that all three vote: killed before, they would wait for the one that has lost its data.
    thread::sleep(3 * GOING_ON);
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
