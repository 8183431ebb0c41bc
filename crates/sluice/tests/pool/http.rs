//! Metrics and health by HTTP.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use sluice_testkit::{Case, Raw, TestPool, TestServer, eventually, matrix, proc, raw::transcript};
use sluice_wire::startup::ProtocolVersion;

use crate::{config, database};

matrix!(transaction: figures_are_told_as_prometheus_reads_them, health_is_told, nobody_holds_up_others,
    the_dashboard_shows_what_there_is, odd_names_stay_within_their_quotes,
    databases_that_do_not_exist_are_not_told);

fn pool(case: Case) -> TestPool {
    config(case).top("http_listen = [\"127.0.0.1:0\"]").size(2).start()
}

fn address(pool: &TestPool) -> SocketAddr {
    let log = pool.log();
    let rest = log.split_once("metrics at http://").expect("the log says where").1;
    rest.split_once("/metrics").unwrap().0.parse().unwrap()
}

/// The status line, the headers, and the body of an answer.
fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: pool\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_lowercase(), body.to_owned())
}

/// The samples by name and labels.
fn samples(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, headers, body) = ask(address, "GET", "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(headers.contains("content-type: application/openmetrics-text; version=1.0.0"), "{headers}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap())).unwrap())
        .collect()
}

fn figures_are_told_as_prometheus_reads_them(case: Case) {
    let database = database(case);
    let pool = pool(case);
    let address = address(&pool);
    let (mut busy, mut idle) = (pool.raw_app(&database), pool.raw_app(&database));
    idle.query("SELECT 1");
    busy.query("BEGIN; SELECT pg_sleep(2.5)");
    let labels = format!("database=\"{}\",user=\"app\"", database.name);
    let seen = samples(address);
    let figure = |name: &str| seen.get(&format!("sluice_{name}")).copied();
    let of_pool = |name: &str, more: &str| figure(&format!("pool_{name}{{{labels}{more}}}"));
    assert_eq!((figure("clients"), figure("configuration_version")), (Some(2.0), Some(1.0)), "{seen:?}");
    assert_eq!(of_pool("clients", ""), Some(2.0), "{seen:?}");
    assert_eq!(of_pool("servers", ",state=\"active\""), Some(1.0));
    assert_eq!((of_pool("waiting_clients", ""), of_pool("paused", "")), (Some(0.0), Some(0.0)));
    assert_eq!(of_pool("transaction_seconds_count", ""), Some(1.0));
    assert_eq!(of_pool("query_seconds_count", ""), Some(2.0));
    assert!(of_pool("query_seconds_sum", "").unwrap() >= 2.5);
    assert!(of_pool("received_bytes_total", "").unwrap() > 20.0);
    // A long one is beyond the short ones, and in all that are longer.
    let bucket = |end: &str| seen.get(&format!("sluice_pool_query_seconds_bucket{{le=\"{end}\",{labels}}}")).copied();
    assert_eq!((bucket("2.097152"), bucket("+Inf")), (Some(1.0), Some(2.0)), "{seen:?}");
    busy.query("COMMIT");
    assert_eq!(samples(address)[&format!("sluice_pool_transaction_seconds_count{{{labels}}}")], 2.0);
}

/// Clients choose names, and some would end a label's value, or the line.
fn odd_names_stay_within_their_quotes(case: Case) {
    let (server, plain) = (TestServer::shared(case.version), database(case));
    let odd = format!("{}\\n\"}} 0\nsluice_clients 666", plain.name);
    let quoted = format!("\"{}\"", odd.replace('"', "\"\""));
    server.execute(&format!("CREATE DATABASE {quoted} OWNER app TEMPLATE template0"));
    let pool = pool(case);
    let client = pool.raw().login("app", &odd);
    let seen = samples(address(&pool));
    let told =
        format!("sluice_pool_clients{{database=\"{}\\\\n\\\"}} 0\\nsluice_clients 666\",user=\"app\"}}", plain.name);
    assert_eq!((seen.get("sluice_clients"), seen.get(&told)), (Some(&1.0), Some(&1.0)), "{seen:?}");
    drop((client, pool));
    server.execute(&format!("DROP DATABASE {quoted} WITH (FORCE)"));
}

/// A pool is made for whatever a client names; it is told once there is a server, and while somebody waits for one.
fn databases_that_do_not_exist_are_not_told(case: Case) {
    let database = database(case);
    let pool = config(case).top("http_listen = [\"127.0.0.1:0\"]").limit("[admin]\nusers = [\"boss\"]").start();
    let address = address(&pool);
    pool.raw_app(&database).query("SELECT 1");
    let log_in = |mut raw: Raw| {
        let parameters = [("user", "app"), ("database", "nowhere")];
        transcript(&raw.login_with(ProtocolVersion::V3_0, &parameters))
    };
    assert!(log_in(pool.raw()).ends_with("E(FATAL 3D000)"));
    let is_told = |name: &str| samples(address).keys().any(|sample| sample.contains(&format!("=\"{name}\"")));
    eventually("nowhere is not told", || !is_told("nowhere"));
    assert!(is_told(&database.name));
    let shown = pool.raw().login("boss", "pgbouncer").query("SHOW POOLS");
    assert!(shown.contains(&database.name) && !shown.contains("nowhere"), "{shown}");
}

fn health_is_told(case: Case) {
    let database = database(case);
    let mut pool = pool(case);
    let address = address(&pool);
    assert_eq!(ask(address, "GET", "/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(ask(address, "GET", "/readyz").2, "ready\n");
    assert_eq!(ask(address, "GET", "/nowhere").0, "HTTP/1.1 404 Not Found");
    assert_eq!(ask(address, "HEAD", "/metrics").2, "");
    let (status, headers, _) = ask(address, "POST", "/metrics");
    assert!(status.contains("405") && headers.contains("allow: get, head"), "{status} {headers}");
    let mut busy = pool.raw_app(&database);
    busy.query("BEGIN");
    pool.signal(proc::Kind::SIGTERM);
    eventually("it is not ready any more", || ask(address, "GET", "/readyz").0.contains("503"));
    assert_eq!(ask(address, "GET", "/healthz").0, "HTTP/1.1 200 OK");
    drop(busy);
    assert!(pool.wait().success());
}

fn nobody_holds_up_others(case: Case) {
    let database = database(case);
    let pool = pool(case);
    let address = address(&pool);
    // As many as are answered at once, and more, that say nothing.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    drop(silent);
    assert_eq!(ask(address, "GET", "/healthz").2, "ok\n");
}

/// The dashboard for Grafana names metrics and labels that are told, and names all of them.
fn the_dashboard_shows_what_there_is(case: Case) {
    let database = database(case);
    let pool = pool(case);
    pool.raw_app(&database).query("SELECT 1");
    let told = samples(address(&pool));
    let name_of = |sample: &str| sample.split('{').next().unwrap().to_owned();
    let told: BTreeSet<_> = told.keys().map(|sample| name_of(sample)).collect();
    let file = sluice_testkit::case::repository().join("docs/grafana/sluice.json");
    let dashboard: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut shown = BTreeSet::new();
    for expression in targets.map(|target| target["expr"].as_str().unwrap()) {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        shown.extend(words.filter(|word| word.starts_with("sluice_")).map(str::to_owned));
    }
    assert_eq!(shown.difference(&told).next(), None);
    let is_shown = |name: &&String| shown.contains(*name) || name.ends_with("_info");
    assert_eq!(told.iter().find(|name| !is_shown(name)), None);
}
