//! Instance classes as a user of `sluice up` meets them. Where this machine has no control groups that may be written,
//! a test says so and does nothing.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::{Up, eventually, failure, ordinary_user, place, postmaster, processes_on, sluice};
use nix::sys::signal::Signal;

/// The groups that an instance has noted.
fn groups(data: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(data.join("cgroups")).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

fn is_enforced(up: &mut Up) -> bool {
    let line = up.line("class ");
    let enforced = !line.contains("not enforced");
    if !enforced {
        eprintln!("skipped: {line}");
    }
    enforced
}

/// The answer of the server itself.
fn setting(data: &Path, name: &str) -> String {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-At", "-U", "postgres", "-d", "postgres", "-c", &format!("SHOW {name}")]);
    let output = psql.arg("-h").arg(data.join("run")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_class_is_enforced_and_told() {
    let place = place();
    let data = place.path().join("data");
    let class = ["--memory", "1GB", "--iops", "400", "--cpus", "1", "--connections", "100"];
    let mut up = Up::start(sluice(&data).args(class));
    if !is_enforced(&mut up) {
        return;
    }
    assert!(up.seen.last().unwrap().ends_with("class enforced: memory 1GB, cpus 1, iops 400"), "{:?}", up.seen);
    up.line("Class     memory 1GB, cpus 1, iops 400, connections 100");
    up.ready();
    let made = groups(&data);
    let server = postmaster(&data).to_string();
    assert!(!made.is_empty());
    for group in &made {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert!(members.lines().any(|pid| pid == server), "{server} is not in {}: {members}", group.display());
    }
    for (name, value) in [("shared_buffers", "256MB"), ("effective_cache_size", "512MB"), ("max_connections", "100")] {
        assert_eq!(setting(&data, name), value, "{name}");
    }
    // A review sees what the server has, not what the machine has.
    let dsn = format!("host={} user=postgres dbname=postgres", data.join("run").display());
    let reviewed = Command::new(env!("CARGO_BIN_EXE_sluice")).args(["review", &dsn]).output().unwrap();
    let said = String::from_utf8(reviewed.stdout).unwrap();
    assert!(said.contains("For 1 GB of memory, 1 processor, "), "{said}");
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
    assert!(made.iter().all(|group| !group.exists()), "a group is left of {made:?}");
    assert!(groups(&data).is_empty());
}

#[test]
fn what_a_killed_one_leaves_is_removed_by_the_next() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(sluice(&data).args(["--memory", "256MB", "--cpus", "1"]));
    if !is_enforced(&mut up) {
        return;
    }
    up.ready();
    let left = groups(&data);
    up.signal(Signal::SIGKILL);
    up.wait();
    assert!(left.iter().all(|group| group.exists()));
    let mut next = Up::start(&mut sluice(&data));
    next.line("removed what an interrupted run had left in ");
    next.ready();
    assert!(left.iter().all(|group| !group.exists()), "a group is left of {left:?}");
    next.signal(Signal::SIGTERM);
    assert!(next.wait().success());

    // The next one may have a class, too.
    let mut up = Up::start(sluice(&data).args(["--memory", "256MB"]));
    up.ready();
    up.signal(Signal::SIGKILL);
    up.wait();
    let mut last = Up::start(sluice(&data).args(["--memory", "512MB"]));
    last.line("class enforced: memory 512MB");
    last.ready();
    last.signal(Signal::SIGTERM);
    assert!(last.wait().success());
    eventually("PostgreSQL's end", || processes_on(&data.join("pgdata")) == 0);
    assert!(groups(&data).is_empty());
}

#[test]
fn who_may_not_make_groups_gets_an_instance_all_the_same() {
    let place = place();
    let Some((mut command, _, home)) = ordinary_user(place.path()) else { return };
    let mut up = Up::start(command.args(["--memory", "512MB", "--connections", "40"]));
    up.line("class not enforced: memory (");
    up.line("Class     memory 512MB, connections 40");
    up.line("class not enforced: memory (");
    up.ready();
    let data = home.join(".local/share/sluice");
    let arguments = fs::read_to_string(data.join("pgdata/postmaster.opts")).unwrap();
    assert!(arguments.contains("max_connections=40"), "{arguments}");
    assert!(groups(&data).is_empty());
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
}

#[test]
fn what_can_not_be_is_refused_before_anything_is_made() {
    let place = place();
    let data = place.path().join("data");
    for (arguments, reason) in [
        (["--memory", "64MB"], "PostgreSQL needs at least 128MB"),
        (["--memory", "1"], "a whole number of megabytes with its unit is needed"),
        (["--cpus", "0"], "at least 0.01 of a processor is needed"),
        (["--cpus", "half"], "for example 1 or 0.5"),
        (["--iops", "0"], "operations a second from 1 on"),
        (["--connections", "10"], "10 are kept for superusers"),
    ] {
        let output = sluice(&data).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(arguments[0]) && said.contains(reason), "{said}");
    }
    let said = failure(sluice(&data).args(["--connections", "100", "--pool-size", "95"]));
    assert!(said.contains("choose --pool-size 90 at most, or --connections 105 at least"), "{said}");
    assert!(!data.exists());
}
