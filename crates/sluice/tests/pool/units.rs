//! The units for systemd: well-formed, closed as far as they can be, and open for what the pool does.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use sluice_testkit::{Auth, Case, Driver, PoolConfig, TestServer, case::repository, eventually, matrix};

use crate::{SLUICE, database};

matrix!(transaction: the_filter_of_system_calls_lets_the_pool_work);

fn unit(name: &str) -> PathBuf {
    repository().join("packaging/systemd").join(name)
}

/// Whether a program is there, which `scripts/test-deps.sh` installs where that can be done.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

#[test]
fn the_units_are_well_formed() {
    if !is_there("systemd-analyze") {
        return;
    }
    // It looks for the program.
    let place = tempfile::tempdir().unwrap();
    let units = ["sluice.service", "sluice.socket", "sluice-node.service"];
    for name in units {
        let text = fs::read_to_string(unit(name)).unwrap().replace("/usr/bin/sluice", SLUICE);
        fs::write(place.path().join(name), text).unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(units.map(|name| place.path().join(name)));
    let output = verify.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    // What it says of other units of this machine is none of our business.
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("sluice")).collect();
    assert!(output.status.success() && ours.is_empty(), "{words}");
}

/// In tenths.
const NODE_EXPOSURE_MAX: u32 = 35;

#[test]
fn the_service_is_closed_as_far_as_it_can_be() {
    if !is_there("systemd-analyze") {
        return;
    }
    // 20 is an exposure of 2.0. A node runs programs as another user, and so can't give up what root may do.
    for (name, threshold) in [("sluice.service", 20), ("sluice-node.service", NODE_EXPOSURE_MAX)] {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={threshold}"));
        let output = security.arg(unit(name)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// By netlink: `samehost` and `samenet` match nobody otherwise, and a rule that rejects by them would be skipped.
#[test]
fn the_services_may_read_the_hosts_addresses() {
    for name in ["sluice.service", "sluice-node.service"] {
        let text = fs::read_to_string(unit(name)).unwrap();
        let families = text.lines().find_map(|line| line.strip_prefix("RestrictAddressFamilies=")).unwrap();
        assert!(families.split_whitespace().any(|family| family == "AF_NETLINK"), "{name}: {families}");
    }
}

/// The system calls that a unit's filter lets pass, as systemd makes it of its lines.
fn allowed(text: &str) -> BTreeSet<String> {
    let mut allowed = names("@default");
    for line in text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (denies, listed) = line.strip_prefix('~').map_or((false, line), |rest| (true, rest));
        for name in listed.split_whitespace().flat_map(names) {
            if denies {
                allowed.remove(&name)
            } else {
                allowed.insert(name)
            };
        }
    }
    allowed
}

/// The system calls of a group, or the one of that name.
fn names(name: &str) -> BTreeSet<String> {
    if !name.starts_with('@') {
        return [name.to_owned()].into();
    }
    let output = Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", name]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let listed = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    listed.flat_map(names).collect()
}

fn the_filter_of_system_calls_lets_the_pool_work(case: Case) {
    if !is_there("systemd-analyze") || !is_there("strace") {
        return;
    }
    let (database, server) = (database(case), TestServer::shared(case.version));
    let place = tempfile::tempdir().unwrap();
    let (traced, calls) = (place.path().join("sluice"), place.path().join("calls"));
    // The pool stays the test's child, and what it starts is watched too.
    let script = format!("#!/bin/sh\nexec strace -D -f -qq -o {} {SLUICE} \"$@\"\n", calls.display());
    fs::write(&traced, script).unwrap();
    fs::set_permissions(&traced, fs::Permissions::from_mode(0o755)).unwrap();
    let config = PoolConfig::new(&traced, case, server).workers(2);
    let config = config.top("http_listen = [\"127.0.0.1:0\"]").auth(Auth::LookUp(String::new()));
    let mut pool = config.start();
    let user = format!("{}_user", database.name);
    database.server.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD 'secret'"));
    let mut client = pool.connect(&user, Some("secret"), &database.name).unwrap();
    client.simple_query("SELECT repeat('x', 1000000)").unwrap();
    pool.reload(&config.size(3));
    pool.upgrade().unwrap();
    pool.connect(&user, Some("secret"), &database.name).unwrap().simple_query("SELECT 1").unwrap();
    client.simple_query("SELECT 1").unwrap();
    drop((client, pool));
    thread::sleep(Duration::from_millis(100));
    let allowed = allowed(&fs::read_to_string(unit("sluice.service")).unwrap());
    eventually("strace writes what it has seen", || calls.exists());
    let seen = fs::read_to_string(&calls).unwrap();
    // `PID name(arguments`; lines of signals and of ends have other signs.
    let name = |line: &str| {
        let call = line.split_once(' ')?.1.trim_start().split_once('(')?.0.to_owned();
        call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(call)
    };
    let made: BTreeSet<String> = seen.lines().filter_map(name).collect();
    let wanted = if case.driver == Driver::Uring { "io_uring_enter" } else { "epoll_wait" };
    assert!(made.iter().any(|call| call.starts_with(wanted)), "{made:?}");
    let denied: Vec<&String> = made.difference(&allowed).collect();
    assert!(denied.is_empty(), "the unit denies {denied:?}");
}
