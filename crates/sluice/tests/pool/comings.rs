//! Clients who come and go, as the log tells of them.

use std::time::Duration;

use serde_json::Value;
use sluice_testkit::{Case, PoolConfig, TestPool, eventually, matrix, raw::transcript};
use sluice_wire::startup::ProtocolVersion;

use crate::{config, database};

matrix!(both_modes: clients_are_logged_as_they_come_and_go, who_is_refused_is_named, nobody_is_logged_unless_asked_for);

fn logged(case: Case) -> PoolConfig {
    config(case).section("[admin]\nusers = [\"boss\"]\n")
}

fn start(config: &PoolConfig) -> TestPool {
    config.start_with(&[("SLUICE_LOG_FORMAT", "json")], Vec::new())
}

/// The lines of a pool's log that begin so.
fn lines(pool: &TestPool, beginning: &str) -> Vec<Value> {
    let log = pool.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"].as_str().is_some_and(|it| it.starts_with(beginning))).collect()
}

fn named<'a>(line: &'a Value, keys: &[&str]) -> Vec<&'a str> {
    keys.iter().map(|key| line[*key].as_str().unwrap_or("-")).collect()
}

fn clients_are_logged_as_they_come_and_go(case: Case) {
    let database = database(case);
    let pool = start(&logged(case).top("log_connections = true\nlog_disconnections = true"));
    let names = [("user", "app"), ("database", &*database.name), ("application_name", "till 7")];
    let mut client = pool.raw();
    assert!(transcript(&client.login_with(ProtocolVersion::V3_0, &names)).ends_with("Z(I)"));
    eventually("a word on it", || lines(&pool, "client logged in").len() == 1);
    let line = &lines(&pool, "client logged in")[0];
    let keys = ["database", "user", "tls", "application_name"];
    assert_eq!(named(line, &keys), [&*database.name, "app", "no", "till 7"]);
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    drop(client);
    eventually("a word on its end", || lines(&pool, "client gone: ").len() == 1);
    let line = &lines(&pool, "client gone: ")[0];
    assert_eq!(named(line, &keys), [&*database.name, "app", "no", "till 7"]);
    assert!(line["message"].as_str().unwrap().contains("closed the connection"), "{line}");
    assert!(line["age_s"].as_f64().is_some_and(|age| age < 60.0), "{line}");
    // One that says goodbye, and one of the console.
    drop(pool.app(&database));
    eventually("its goodbye", || !lines(&pool, "client gone: it said goodbye").is_empty());
    let mut config = pool.client_config("boss", "pgbouncer");
    drop(config.application_name("desk").connect(postgres::NoTls).unwrap());
    let console = ["pgbouncer", "boss", "no", "desk"];
    for beginning in ["client logged in", "client gone: it said goodbye"] {
        eventually("a word on the console", || lines(&pool, beginning).iter().any(|it| named(it, &keys) == console));
    }
    // A reload is enough to end it.
    pool.write(&logged(case));
    pool.signal(sluice_testkit::proc::Kind::SIGHUP);
    eventually("a reload", || pool.log().contains("log_connections: false, was true"));
    let before = lines(&pool, "client logged in").len();
    eventually("workers know", || {
        drop(pool.app(&database));
        lines(&pool, "client logged in").len() == before
    });
}

fn who_is_refused_is_named(case: Case) {
    let database = database(case);
    let pool = start(&logged(case).limit("clients = 1\nidle_client_timeout = \"1s\""));
    let mut first = pool.app(&database);
    let crooked = "a\u{202e}b\nc";
    assert!(pool.connect(crooked, None, &database.name).is_err());
    assert!(pool.connect("boss", None, "nowhere").is_err());
    let keys = ["user", "database"];
    let refused = lines(&pool, "client refused: sorry, too many clients already");
    let said: Vec<_> = refused.iter().map(|line| named(line, &keys)).collect();
    assert_eq!(said, [[crooked, &*database.name], ["boss", "nowhere"]]);
    assert!(pool.connect("app", None, "pgbouncer").is_err());
    let refused = &lines(&pool, "client refused: ")[2];
    assert_eq!(named(refused, &keys), ["app", "pgbouncer"], "{refused}");
    // One that was let in, and is sent away.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(first.simple_query("SELECT 1").is_err());
    let refused = lines(&pool, "client refused: ");
    assert_eq!(named(refused.last().unwrap(), &keys), ["app", &*database.name], "{refused:?}");
}

fn nobody_is_logged_unless_asked_for(case: Case) {
    let database = database(case);
    let pool = logged(case).start();
    drop(pool.app(&database));
    assert!(pool.connect("a\u{202e}b\u{200b}", None, "nowhere").is_err());
    eventually("a refusal", || pool.log().contains("client refused: "));
    let log = pool.log();
    assert!(!log.contains("client logged in") && !log.contains("client gone"), "{log}");
    assert!(!log.contains(['\u{202e}', '\u{200b}']) && log.contains("user=\"a\\u{202e}b\\u{200b}\""), "{log}");
}
