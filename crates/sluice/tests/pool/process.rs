//! The process itself: what it leaves in the log, and what it does not.

use std::fs;

use serde_json::Value;
use sluice_testkit::{Auth, Case, matrix};

use crate::{config, database};

matrix!(brief: the_log_may_be_of_json, secrets_are_nowhere_to_be_read);

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
        for text in [pool.log(), proc("cmdline"), proc("environ")] {
            assert!(!text.contains(SECRET) && !text.contains(&stored_key), "{text}");
        }
        let limits = proc("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    }
    database.server.execute(&format!("DROP ROLE {role}"));
}
