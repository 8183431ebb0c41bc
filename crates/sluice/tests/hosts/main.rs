//! `sluice node` on hosts of their own: three network namespaces, with the real command, etcd, Patroni and PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod again;
mod authority;
mod cuts;
mod disk;
mod etcd;
mod faults;
mod hosts;
#[path = "../common/ledger.rs"]
mod ledger;
mod phases;
mod programs;
mod refused;
mod slots;
mod strangers;

use std::{
    fs,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use sluice_testkit::proc;

use hosts::Hosts;
use ledger::{Ledger, Servers};
use programs::Program;

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Held by the test that has its cluster: two of them at once want more of the machine than elections have time for.
static ONE_CLUSTER: Mutex<()> = Mutex::new(());

/// The time for which writers go on behind a fault, so that there is something to lose.
const GOING_ON: Duration = Duration::from_secs(1);

/// The time in which processes end that have lost their postmaster.
const SETTLING: Duration = Duration::from_millis(300);

fn alone() -> MutexGuard<'static, ()> {
    ONE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster of three that has begun, and is complete.
fn three() -> Option<Hosts> {
    let hosts = Hosts::new(3, false)?;
    // Nobody begins a cluster who is not told to; and who waits, can be stopped.
    for host in [1, 2] {
        hosts.start(host);
        hosts.wait_said(host, "no other member of etcd answers");
    }
    hosts.stop(2);
    hosts.init();
    hosts.start(0);
    hosts.wait_placed(0);
    hosts.start(2);
    hosts.wait_placed(1);
    hosts.wait_placed(2);
    hosts.wait_streaming(hosts.nodes() - 1);
    hosts.make_app();
    Some(hosts)
}

/// The same by the shortest way; the last one may be a witness.
fn begun(has_witness: bool) -> Option<Hosts> {
    let hosts = Hosts::new(3, has_witness)?;
    hosts.init();
    (0..3).for_each(|host| hosts.start(host));
    (0..3).for_each(|host| hosts.wait_placed(host));
    hosts.wait_streaming(hosts.nodes() - 1);
    hosts.make_app();
    Some(hosts)
}

/// From nothing to writes through the pool; a host dies and comes back; one loses its disk and gets a new one; one is
/// stopped in order.
#[test]
fn three_hosts() {
    let _alone = alone();
    let Some(hosts) = three() else { return };
    phases::leaders_part(&hosts);
    an_idle_primary_is_quiet(&hosts);
    strangers::are_refused(&hosts);
    slots::prepare(&hosts);
    let pool = hosts.pool();
    let ledger = Ledger::begin(&hosts, &pool);
    thread::sleep(GOING_ON);

    let lost = hosts.leader();
    ledger.longest();
    hosts.kill(lost);
    ledger.wait_for_writes();
    thread::sleep(GOING_ON);
    let waited = ledger.longest();
    let next = hosts.leader();
    let said: String = (0..3).filter(|host| *host != lost).map(|host| hosts.said(host)).collect();
    assert!(said.contains("is gone, as all standbys agree"), "{said}");
    hosts.start(lost);
    hosts.wait_placed(lost);
    hosts.wait_streaming(2);

    // A host with a new disk is taken in by the others.
    let renewed = (0..3).find(|host| *host != next && *host != lost).unwrap();
    hosts.stop(renewed);
    fs::remove_dir_all(hosts.data(renewed)).unwrap();
    hosts.start(renewed);
    let mut said = String::new();
    if let Some(disk) = hosts.disk(renewed) {
        // It is full before the copy is there, which is said, and goes on once there is room.
        hosts.wait_said(renewed, &format!("starting {} (process", hosts::name(renewed)));
        thread::sleep(SETTLING);
        let added = hosts.said(renewed);
        disk.fill();
        // Where etcd is the first that has no room, the host ends, and its service manager would start it again.
        let goes_on = hosts.says(renewed, "the last error there: ");
        hosts.wait_said(renewed, "the disk is full: make room");
        disk.empty();
        said += &added;
        if !goes_on {
            hosts.start(renewed);
        }
    }
    hosts.wait_placed(renewed);
    said += &hosts.said(renewed);
    assert!(said.contains("is removed, since its data are gone") && said.contains("is given its vote"), "{said}");
    hosts.wait_streaming(2);

    // A primary that is stopped hands over.
    hosts.stop(next);
    ledger.wait_for_writes();
    assert_ne!(hosts.leader(), next);
    // Another one follows at once: the quorum of the new one is not written yet.
    let follows = |options: &[&str]| {
        let before = hosts.leader();
        let output = Command::new(SLUICE).args(["cluster", "switchover"]).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("is the primary, in the place of"), "{said}");
        assert_ne!(hosts.leader(), before, "{said}");
    };
    let data = |host: usize| hosts.data(host).display().to_string();
    follows(&["--data", &data(hosts.leader())]);
    hosts.start(next);
    hosts.wait_placed(next);
    hosts.wait_streaming(2);
    // The same, by who can't ask etcd.
    let next = hosts.leader();
    hosts.stop(next);
    ledger.wait_for_writes();
    let rest = format!("https://{}:8008", hosts.network.address(hosts.leader()));
    let [ca, cert, key] =
        ["ca.crt", "node1/node.crt", "node1/node.key"].map(|file| hosts.ca(file).display().to_string());
    follows(&["--rest", &rest, "--ca-file", &ca, "--cert-file", &cert, "--key-file", &key]);
    hosts.start(next);
    hosts.wait_placed(next);
    hosts.wait_streaming(2);

    what_dies_is_started_again(&hosts);
    etcd_that_stands_still_is_said(&hosts);
    ledger.wait_for_writes();

    let told = ledger.end(&hosts);
    assert!(told.acknowledged > 100, "{told}");
    println!("a lost host: {:.1} s without an answer; {told}", waited.as_secs_f64());

    slots::of_other_hosts_are_asked_for(&hosts);
    slots::settings_are_judged_by_all_hosts(&hosts);
    refused::what_is_not_the_clusters(&hosts);
    (0..3).for_each(|host| assert!(hosts.told(host).contains("READY=1\nSTATUS=its PostgreSQL is "), "{host}"));
    // At once: each waits for an etcd without a majority, which the last one has in any case.
    thread::scope(|scope| {
        for host in 0..3 {
            let hosts = &hosts;
            scope.spawn(move || hosts.stop(host));
        }
    });
    (0..3).for_each(|host| assert!(hosts.told(host).contains("STOPPING=1"), "{host}"));
}

/// The survivors ask it whether it is there, several times a second.
fn an_idle_primary_is_quiet(hosts: &Hosts) {
    thread::sleep(3 * GOING_ON);
    let log = fs::read(hosts.data(hosts.leader()).join("log/node.log")).unwrap();
    let log = String::from_utf8_lossy(&log);
    let noise: Vec<&str> = log.lines().filter(|line| line.contains("could not accept SSL connection")).collect();
    assert!(noise.is_empty(), "{noise:?}");
}

/// Each program of a standby's host is killed in turn.
fn what_dies_is_started_again(hosts: &Hosts) {
    let host = (0..3).find(|host| *host != hosts.leader()).unwrap();
    for (program, said) in [
        (Program::Etcd, "'s etcd ended by itself"),
        (Program::Patroni, " ended by itself (signal: 9"),
        (Program::Postmaster, ""),
    ] {
        let pid = hosts.pid(host, program).unwrap();
        proc::send(pid, proc::Kind::SIGKILL);
        if !said.is_empty() {
            hosts.wait_said(host, &format!("{}{said}", hosts::name(host)));
        }
        hosts.wait_streaming(2);
    }
}

/// Patroni answers late while it waits for etcd; the status says what is the matter all the same, and at once.
fn etcd_that_stands_still_is_said(hosts: &Hosts) {
    let frozen: Vec<u32> = [0, 1].iter().map(|host| hosts.pid(*host, Program::Etcd).unwrap()).collect();
    frozen.iter().for_each(|pid| proc::send(*pid, proc::Kind::SIGSTOP));
    let said = hosts.status(2);
    // Who can't ask etcd hears of it once Patroni does, which answers late then.
    let by_rest = || {
        let rest = format!("https://{}:8008", hosts.network.address(2));
        let mut status = Command::new(SLUICE);
        status.args(["cluster", "status", "--rest", &rest, "--ca-file"]).arg(hosts.ca("ca.crt"));
        let output = status.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let mut heard = by_rest();
    while !heard.contains("Not certain: ") && !heard.contains("etcd may have no majority") {
        assert!(heard.starts_with("Cluster main: primary node"), "{heard}");
        heard = by_rest();
    }
    frozen.iter().for_each(|pid| proc::send(*pid, proc::Kind::SIGCONT));
    assert!(said.contains("etcd has no majority: Patroni can change nothing"), "{said}");
    println!("{said}\n{heard}");
    hosts.wait_streaming(2);
}

/// Faults that two nodes go through without waiting for a lease: a postmaster that is killed, a standby that is cut off,
/// and one whose disk is full.
const WITH_TWO: [u64; 3] = [0, 9, 13];

/// Two hosts with data, and one that votes: the standby takes over when the primary's lease has ended.
#[test]
fn two_hosts_and_a_witness() {
    let _alone = alone();
    let Some(hosts) = begun(true) else { return };
    let pool = hosts.pool();
    let ledger = Ledger::begin(&hosts, &pool);
    thread::sleep(GOING_ON);
    let lost = hosts.leader();
    hosts.kill(lost);
    ledger.wait_for_writes();
    thread::sleep(GOING_ON);
    assert_ne!(hosts.leader(), lost);
    hosts.start(lost);
    hosts.wait_placed(lost);
    hosts.wait_streaming(1);
    // The witness has no data, and nothing waits for it.
    hosts.stop(2);
    ledger.wait_for_writes();
    hosts.start(2);
    hosts.wait_placed(2);
    assert!(!hosts.data(2).join("node").exists());
    let told = ledger.end(&hosts);
    assert!(told.acknowledged > 100, "{told}");
    println!("two hosts and a witness: {told}");
    drop(pool);
    faults::happen(&hosts, WITH_TWO);

    // etcd is lost on all of them; the data are not.
    let last = hosts.leader();
    let before = secrets(&hosts);
    let others = (0..3).filter(|host| *host != last);
    others.clone().chain([last]).for_each(|host| hosts.stop(host));
    (0..3).for_each(|host| fs::remove_dir_all(hosts.data(host).join("etcd")).unwrap());
    let (said, is_good) = hosts.command(last, &["init"]);
    assert!(!is_good && said.contains("sluice node init --again"), "{said}");
    // Without a majority of etcd it may have become a standby before it was stopped.
    let (said, is_good) = hosts.command(last, &["init", "--again"]);
    let (said, is_good) = match said.contains("init --again --force") {
        true => hosts.command(last, &["init", "--again", "--force"]),
        false => (said, is_good),
    };
    assert!(is_good && said.contains("end of its log"), "{said}");
    std::iter::once(last).chain(others).for_each(|host| hosts.start(host));
    (0..3).for_each(|host| hosts.wait_placed(host));
    hosts.wait_streaming(1);
    let count = hosts.try_superuser(hosts.leader()).unwrap().query_one("SELECT count(*) FROM ledger", &[]).unwrap();
    assert!(count.get::<_, i64>(0) >= told.acknowledged as i64);
    assert_eq!(secrets(&hosts), before, "pools are locked out");
    a_member_that_was_removed(&hosts);
}

/// The secrets of the roles that Sluice has made.
fn secrets(hosts: &Hosts) -> Vec<String> {
    let query = "SELECT rolpassword FROM pg_authid WHERE rolname IN ('sluice', 'sluice_auth') ORDER BY rolname";
    let found = hosts.try_superuser(hosts.leader()).unwrap().query(query, &[]).unwrap();
    found.iter().map(|row| row.get(0)).collect()
}

/// A host is gone for good, and another one takes its place, as docs/hosts.md has it.
#[test]
fn a_successor() {
    let _alone = alone();
    let Some(hosts) = Hosts::new(4, false) else { return };
    for host in 0..3 {
        hosts.set_members(host, &[0, 1, 2]);
    }
    hosts.init();
    // Somebody has another one begin, before the first can be asked.
    let (said, is_good) = hosts.command(1, &["init"]);
    assert!(is_good, "{said}");
    hosts.start(0);
    hosts.wait_placed(0);
    hosts.start(1);
    assert!(!hosts.wait_end(1) && hosts.said(1).contains("this host was told to begin a cluster"), "{}", hosts.said(1));
    fs::remove_file(hosts.data(1).join("host.json")).unwrap();
    fs::remove_dir_all(hosts.data(1).join("node/pgdata")).unwrap();
    [1, 2].iter().for_each(|host| hosts.start(*host));
    [1, 2].iter().for_each(|host| hosts.wait_placed(*host));
    hosts.wait_streaming(2);
    assert!(!hosts.status(0).contains("Note:"), "{}", hosts.status(0));

    let (said, is_good) = hosts.command(0, &["remove", "node2"]);
    assert!(!is_good && said.contains("node2 is not gone: its etcd answers at"), "{said}");
    hosts.kill(1);
    let status = hosts.status(0);
    assert!(status.contains("Note: etcd's member node2 (") && status.contains(") does not answer"), "{status}");
    assert!(status.contains("2 have to be there: none of the others may be lost now"), "{status}");
    let (said, is_good) = hosts.command(0, &["remove", "node2"]);
    assert!(is_good && said.contains("node2 is no longer a member of etcd"), "{said}");
    let status = hosts.status(0);
    assert!(status.contains("Note: etcd has no member at") && status.contains("etcd has 2 votes: none of"), "{status}");

    // It comes before the others know it.
    hosts.set_members(3, &[0, 3, 2]);
    hosts.start(3);
    hosts.wait_said(3, "put its [[member]] into the files of all hosts");
    for host in [0, 2] {
        hosts.set_members(host, &[0, 3, 2]);
        hosts.reload(host);
    }
    hosts.wait_placed(3);
    hosts.wait_streaming(2);
    assert!(!hosts.status(0).contains("Note:"), "{}", hosts.status(0));

    // The one that is gone for good is switched on.
    hosts.start(1);
    assert!(!hosts.wait_end(1) && hosts.said(1).contains("permanently removed"), "{}", hosts.said(1));
    fs::remove_dir_all(hosts.data(1).join("etcd")).unwrap();
    hosts.start(1);
    assert!(!hosts.wait_end(1) && hosts.said(1).contains("that is not named here: node4"), "{}", hosts.said(1));
    assert!(!hosts.status(0).contains("Note:"), "{}", hosts.status(0));
}

#[test]
fn a_beginning_with_the_wrong_host() {
    let _alone = alone();
    let Some(hosts) = begun(false) else { return };
    again::with_the_wrong_host(&hosts);
}

#[test]
fn another_authority() {
    let _alone = alone();
    let Some(hosts) = begun(false) else { return };
    authority::is_changed(&hosts);
}

#[test]
fn etcd_that_loses_its_data() {
    let _alone = alone();
    let Some(hosts) = begun(false) else { return };
    etcd::joins_anew(&hosts, 1);
    etcd::begins_no_second(&hosts, 0);
    etcd::cannot_start(&hosts, 2);
}

#[test]
fn files_that_will_not_do() {
    let _alone = alone();
    let Some(hosts) = begun(false) else { return };
    let leader = hosts.leader();
    refused::a_full_disk(&hosts, (leader + 1) % 3);
    refused::an_expired_certificate(&hosts, leader);
    refused::half_a_file(&hosts, hosts.leader());
}

/// It is told so, and joins anew once its data are out of the way.
fn a_member_that_was_removed(hosts: &Hosts) {
    hosts.stop(2);
    let (said, is_good) = hosts.command(0, &["remove", "node3"]);
    assert!(is_good && said.contains("node3 is no longer a member of etcd"), "{said}");
    let (said, is_good) = hosts.command(0, &["remove", "node3"]);
    assert!(!is_good && said.contains("etcd has no member node3; its members are"), "{said}");
    hosts.start(2);
    assert!(!hosts.wait_end(2), "{}", hosts.said(2));
    let etcd = hosts.data(2).join("etcd");
    let said = hosts.said(2);
    assert!(said.contains("permanently removed") && said.contains(&format!("move {} away", etcd.display())), "{said}");
    fs::remove_dir_all(etcd).unwrap();
    hosts.start(2);
    hosts.wait_placed(2);
}
