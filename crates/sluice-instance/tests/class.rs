//! Instance classes on this machine's own control groups. Where it has none that may be written, a test says so and
//! does nothing.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::{Place, eventually, start, superuser};
use postgres::Client;
use sluice_instance::{Class, ClassReport, Event, Outcome, Postgres, StopMode};

fn class(memory: &str, cpus: &str, iops: &str) -> Class {
    Class { memory: memory.parse().ok(), cpus: cpus.parse().ok(), iops: iops.parse().ok(), connections: None }
}

/// A server of that class; `None`, and a line that says why, if this machine does not enforce it.
fn server(place: &Place, class: Class) -> Option<Postgres> {
    let mut config = place.config();
    config.settings.retain(|(name, _)| name != "max_connections" && name != "fsync");
    config.class = class;
    let server = start(config).0.unwrap();
    let report = server.class();
    if !report.is_enforced() {
        eprintln!("skipped: {report}; {:?}", report.remedies());
        return None;
    }
    Some(server)
}

fn groups(report: &ClassReport) -> BTreeSet<PathBuf> {
    let files = report.outcomes.iter().flat_map(|(_, outcome)| match outcome {
        Outcome::Enforced(files) => files.clone(),
        Outcome::NotEnforced(why) => panic!("{why}"),
    });
    files.map(|read| read.file.parent().unwrap().to_owned()).collect()
}

fn members(group: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn backend(client: &mut Client) -> u32 {
    client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get::<_, i32>(0).cast_unsigned()
}

#[test]
fn limits_are_read_back_and_hold_for_all_processes() {
    let place = Place::new();
    let all = Class { connections: "30".parse().ok(), ..class("256MB", "0.5", "400") };
    let Some(server) = server(&place, all) else { return };
    let report = server.class();
    assert_eq!(report.to_string(), "class enforced: memory 256MB, cpus 0.5, iops 400");
    let mut values = Vec::new();
    for (_, outcome) in &report.outcomes {
        let Outcome::Enforced(files) = outcome else { panic!("{report}") };
        for read in files {
            assert!(fs::read_to_string(&read.file).unwrap().contains(&read.value), "{read:?}");
            values.push(read.value.clone());
        }
    }
    for part in ["268435456", "50000", "400"] {
        assert!(values.iter().any(|value| value.contains(part)), "{part} is missing in {values:?}");
    }

    let groups = groups(&report);
    let of_server = |group: &PathBuf| {
        let mut client = superuser(&server);
        let (backend, members) = (backend(&mut client), members(group));
        assert!(members.contains(&server.pid().unwrap()), "{} lacks the postmaster", group.display());
        assert!(members.contains(&backend), "{} lacks backend {backend}", group.display());
        assert!(!members.contains(&std::process::id()), "the pool's process is limited too");
    };
    groups.iter().for_each(of_server);
    let shown: String = superuser(&server).query_one("SHOW max_connections", &[]).unwrap().get(0);
    assert_eq!(shown, "30");

    let first = server.pid();
    server.kill();
    assert!(server.wait_ready(first, Duration::from_secs(30)).is_some());
    groups.iter().for_each(of_server);
    assert_eq!(server.class(), report);

    server.stop(StopMode::Fast);
    assert!(groups.iter().all(|group| !group.exists()), "a group is left of {groups:?}");
    assert!(!place.root().join("cgroups").exists());
}

/// Seconds of processor time that a process has used.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // utime and stime (proc(5)), in hundredths on every Linux.
    let ticks: u32 = fields[11..=12].iter().map(|field| field.parse::<u32>().unwrap()).sum();
    f64::from(ticks) / 100.0
}

#[test]
fn half_a_processor() {
    let place = Place::new();
    let Some(server) = server(&place, class("", "0.5", "")) else { return };
    let mut client = superuser(&server);
    let pid = backend(&mut client);
    let (begin, before) = (Instant::now(), cpu_seconds(pid));
    let busy = "DO $$ DECLARE over timestamptz := clock_timestamp() + '3 s';
                BEGIN WHILE clock_timestamp() < over LOOP PERFORM 1; END LOOP; END $$";
    client.batch_execute(busy).unwrap();
    let share = (cpu_seconds(pid) - before) / begin.elapsed().as_secs_f64();
    assert!(share < 0.75, "{share:.2} processors");
}

/// Each commit writes the log to disk, as one operation at least.
#[test]
fn fifty_writes_a_second() {
    let place = Place::new();
    let Some(server) = server(&place, class("", "", "50")) else { return };
    let mut client = superuser(&server);
    client.batch_execute("CREATE TABLE written (n int)").unwrap();
    let begin = Instant::now();
    let commits = 150;
    for n in 0..commits {
        client.execute("INSERT INTO written VALUES ($1)", &[&n]).unwrap();
    }
    let rate = f64::from(commits) / begin.elapsed().as_secs_f64();
    assert!(rate < 100.0, "{rate:.0} commits a second");
}

/// A backend that needs more than the class is ended by the kernel, and PostgreSQL recovers by itself.
#[test]
fn no_more_memory_than_that() {
    let place = Place::new();
    let Some(server) = server(&place, class("128MB", "", "")) else { return };
    let mut client = superuser(&server);
    client.batch_execute("CREATE TABLE kept AS SELECT 42 AS answer").unwrap();
    assert!(
        client
            .batch_execute("SELECT length(string_agg(repeat('x', 1000000), '')) FROM generate_series(1, 400)")
            .is_err()
    );
    eventually("recovery", || {
        let endpoint = server.endpoint();
        let mut config = postgres::Config::new();
        config.host_path(&endpoint.socket_dir).port(endpoint.port).user("postgres").dbname("postgres");
        let answer = config.connect(postgres::NoTls).and_then(|mut client| client.query_one("TABLE kept", &[]));
        answer.is_ok_and(|row| row.get::<_, i32>(0) == 42)
    });
}

#[test]
fn two_at_once() {
    let places = [Place::new(), Place::new()];
    let Some(small) = server(&places[0], class("256MB", "", "")) else { return };
    let Some(large) = server(&places[1], class("512MB", "", "")) else { return };
    let (one, other) = (groups(&small.class()), groups(&large.class()));
    assert!(one.is_disjoint(&other));
    drop(small);
    assert!(one.iter().all(|group| !group.exists()));
    assert!(other.iter().all(|group| members(group).contains(&large.pid().unwrap())));
}

#[test]
fn a_class_that_is_not_asked_for_is_not_told() {
    let place = Place::new();
    let (server, events) = start(place.config());
    let server = server.unwrap();
    assert_eq!(server.class(), ClassReport::default());
    assert!(!events.try_iter().any(|event| matches!(event, Event::Class { .. })));
    assert!(!place.root().join("cgroups").exists());
}
