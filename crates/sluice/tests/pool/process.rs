//! The process itself: what it leaves in the log, and what it does not.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    thread,
    time::Duration,
};

use serde_json::Value;
use sluice_testkit::{Auth, Case, PoolConfig, TestPool, eventually, matrix, port::free_port, proc};

use sluice_wire::startup::ProtocolVersion;

use crate::{HOLD, SLUICE, config, database};

matrix!(transaction:
    the_log_may_be_of_json,
    a_log_that_nobody_reads_ends_nothing,
    secrets_are_nowhere_to_be_read,
    requests_that_take_long_are_logged,
    an_address_that_is_about_to_be_free_is_waited_for,
);

fn the_log_may_be_of_json(case: Case) {
    let database = database(case);
    let pool = config(case).limit("clients = 1").start_with(&[("SLUICE_LOG_FORMAT", "json")], Vec::new());
    let _only = pool.app(&database);
    assert!(pool.connect("app", None, &database.name).is_err());
    let lines: Vec<Value> = pool.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = lines.iter().find(|line| line["code"] == "53300").unwrap();
    assert_eq!(refused["message"], "client refused: sorry, too many clients already");
    assert!(refused["peer"].as_str().unwrap().starts_with("127.0.0.1:") && refused["level"] == "INFO", "{refused}");
    assert!(refused["timestamp"].is_string());
}

/// Whoever reads the log goes after its first line, as on a disk that is full, or stops reading: what comes then is lost,
/// and nothing else.
fn a_log_that_nobody_reads_ends_nothing(case: Case) {
    let database = database(case);
    let place = tempfile::tempdir().unwrap();
    for (reader, refused) in [("exec head -n 1 >&2", 3), ("head -n 1 >&2; exec tail -f --pid=$$ /dev/null", 1000)] {
        let program = place.path().join("sluice");
        fs::write(&program, format!("#!/bin/bash\nexec {SLUICE} \"$@\" 2> >({reader})\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut pool = PoolConfig::new(program, case, database.server).limit("clients = 1").start();
        let mut client = pool.app(&database);
        for _ in 0..refused {
            pool.raw().login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
        }
        client.simple_query("SELECT 1").unwrap();
        pool.signal(proc::Kind::SIGUSR1);
        client.simple_query("SELECT 1").unwrap();
        assert_eq!(pool.log().lines().count(), 1);
        drop(client);
        pool.signal(proc::Kind::SIGTERM);
        assert!(pool.wait().success());
    }
}

/// With the log at its fullest, what a client and the pool prove themselves by is not in it, nor in `/proc`; and no core
/// file would have it.
fn secrets_are_nowhere_to_be_read(case: Case) {
    const SECRET: &str = "a-secret-of-this-test";
    let database = database(case);
    let role = format!("{}_secretive", database.name);
    database.server.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'"));
    let verifier = database.server.value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'"));
    let stored_key = verifier.split(['$', ':']).nth(3).unwrap().to_owned();
    for auth in [Auth::Scram(vec![(role.clone(), SECRET.to_owned())]), Auth::LookUp(String::new())] {
        let pool = config(case).auth(auth).start_with(&[("RUST_LOG", "trace")], Vec::new());
        let mut client = pool.connect(&role, Some(SECRET), &database.name).unwrap();
        client.simple_query("SELECT 1").unwrap();
        assert!(pool.connect(&role, Some("wrong"), &database.name).is_err());
        let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", pool.pid())).unwrap();
        // Only root may read that of a process that is not dumpable.
        let environ = fs::read_to_string(format!("/proc/{}/environ", pool.pid())).unwrap_or_default();
        for text in [pool.log(), proc("cmdline"), environ] {
            assert!(!text.contains(SECRET) && !text.contains(&stored_key), "{text}");
        }
        let limits = proc("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    }
    database.server.execute(&format!("DROP ROLE {role}"));
}

/// The lines of slow requests in a log of JSON.
fn slow(pool: &TestPool) -> Vec<Value> {
    let lines = pool.log();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"].as_str().unwrap().starts_with("slow: ")).collect()
}

fn requests_that_take_long_are_logged(case: Case) {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let database = database(case);
    let pool = config(case).size(1).pool("log_min_duration_statement = \"80ms\"");
    let pool = pool.start_with(&[("SLUICE_LOG_FORMAT", "json")], Vec::new());
    let mut client = pool.app(&database);
    client.simple_query("SELECT 'quick'").unwrap();
    client.simple_query(&format!("SELECT pg_sleep(0.1), 'hush' /*route='x',traceparent='{TRACE}'*/")).unwrap();
    client.query("SELECT pg_sleep($1), 'hush'", &[&0.1_f64]).unwrap();
    let lines = slow(&pool);
    let texts: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(texts, ["slow: SELECT pg_sleep(?), ?", "slow: SELECT pg_sleep($1), ?"]);
    assert_eq!((&lines[0]["traceparent"], &lines[1]["traceparent"]), (&Value::from(TRACE), &Value::Null));
    for line in &lines {
        let number = |name: &str| line[name].as_f64().unwrap();
        assert!(number("duration_ms") >= 100.0 && number("duration_ms") < 60_000.0 && number("statements") == 1.0);
        assert_eq!((line["database"].as_str(), line["role"].as_str()), (Some(&*database.name), Some("app")));
    }
    // The wait for a server counts.
    client.simple_query(&format!("{HOLD}; SELECT 1")).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.app(&database).simple_query("SELECT 'waited'").map(drop));
        thread::sleep(Duration::from_millis(200));
        client.simple_query("COMMIT").unwrap();
        waiting.join().unwrap().unwrap();
    });
    eventually("the wait is told", || {
        let lines = slow(&pool);
        let line = lines.iter().find(|line| line["message"] == "slow: SELECT ?");
        line.is_some_and(|line| line["waited_ms"].as_f64().unwrap() >= 80.0)
    });
}

fn an_address_that_is_about_to_be_free_is_waited_for(case: Case) {
    let database = database(case);
    // As that of a process with io_uring is for some milliseconds after it was killed.
    let port = free_port();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(listener);
    });
    let mut pool = config(case).port(port).start();
    leaves.join().unwrap();
    for _ in 0..5 {
        pool.app(&database).simple_query("SELECT 1").unwrap();
        pool.kill();
        pool = config(case).port(port).start();
    }
}
