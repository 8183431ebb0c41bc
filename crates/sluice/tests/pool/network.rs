//! A network that is cut without a word: for less than `tcp_user_timeout` nobody notices, for longer each side is told.
//! Who is there and does not read is waited for, as PostgreSQL and clients wait for each other.
//!
//! It is the loopback device of a namespace that the test has to itself, by which the pool reaches its server. Clients
//! come by a Unix socket, which goes on, but for one. Or clients are on a host of their own, which is gone.
//!
//! And names that a test makes up, by a file of hosts that it has to itself.

use std::{
    env, fs,
    net::ToSocketAddrs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::unistd::Uid;
use sluice_instance::StopMode;
use sluice_testkit::{
    Auth, Case, Network, PoolConfig, Raw, Script, TestServer, becomes, eventually, matrix, network::TEST,
    raw::transcript,
};

use crate::{HOLD, SLUICE, config, database};

matrix!(transaction:
    who_does_not_read_is_waited_for,
    clients_that_are_gone_hold_nothing,
    a_network_that_is_cut_keeps_nobody_waiting,
    a_name_with_several_addresses_is_tried_at_each,
);

/// Set for the process that has the namespace.
pub(crate) const INSIDE: &str = "SLUICE_TEST_NAMESPACE";

/// The file of hosts for such a process; without one it has a network to itself.
const HOSTS: &str = "SLUICE_TEST_HOSTS";

const USER_TIMEOUT: Duration = Duration::from_secs(2);

fn a_network_that_is_cut_keeps_nobody_waiting(case: Case) {
    match env::var_os(INSIDE) {
        Some(_) => inside(case),
        None => in_namespace(Command::new("unshare").arg("--net")),
    }
}

/// More than fits between a server and a client that does not read.
const LARGE: &str = "SELECT repeat('x', 9999) FROM generate_series(1, 2000)";

/// Longer than `tcp_user_timeout`, by far: the kernel gives up who has no room for that long.
const STALL: Duration = Duration::from_secs(6);

pub(crate) const ONE: &str = "T(?column?) D(1) C(SELECT 1) Z(I)";

/// For longer than a peer may be silent: a client with an answer unread, and a server at work with a message unread.
fn who_does_not_read_is_waited_for(case: Case) {
    let server = TestServer::start_with_tcp(case.version, &[]);
    let pool = PoolConfig::without_databases(SLUICE, case)
        .database_at("*", "127.0.0.1", server.port(), "sslmode = \"disable\"")
        .top(&format!("tcp_user_timeout = \"{}s\"", USER_TIMEOUT.as_secs()))
        .size(3)
        .start();
    let client = || pool.raw().login("app", "postgres");
    let (mut slow, mut asks, mut other) = (client(), client(), client());
    slow.send(&query(LARGE));
    let long = "x".repeat(24 << 20);
    let sending = thread::spawn(move || {
        asks.send(&query(&format!("SELECT pg_sleep({})", STALL.as_secs())).query(&format!("SELECT length('{long}')")));
        asks
    });
    let begin = Instant::now();
    while begin.elapsed() < STALL {
        assert_eq!(other.query("SELECT 1"), ONE);
        thread::sleep(Duration::from_millis(50));
    }
    let messages = slow.until_ready(1);
    let rows = messages.iter().filter(|message| message.tag == b'D').count();
    let last = transcript(&messages[messages.len().saturating_sub(2)..]);
    assert!(rows == 2000 && last == "C(SELECT 2000) Z(I)", "{rows} rows, then {last}");
    let answers = transcript(&sending.join().unwrap().until_ready(2));
    let length = format!("T(length) D({}) C(SELECT 1) Z(I)", 24 << 20);
    assert_eq!(answers, format!("T(pg_sleep) D() C(SELECT 1) Z(I) {length}"));
}

/// Half-open connections, as those of clients whose host has lost its power: within a transaction, with an answer
/// unread, half-way into a message, and idle.
fn clients_that_are_gone_hold_nothing(case: Case) {
    let Some(network) = Network::new(1) else { return };
    let database = database(case);
    let pool = config(case)
        .listen((network.test_address(), 0).into())
        .top("tcp_user_timeout = \"1s\"")
        .workers(2)
        .size(4)
        .start();
    let client = || network.within(0, || Raw::tcp(pool.address())).login("app", &database.name);
    let (mut amid, mut unread, mut half, mut idle) = (client(), client(), client(), client());
    assert_eq!(amid.talk_to(&query(HOLD).query("SELECT 1"), 2), "C(BEGIN) Z(T) T(?column?) D(1) C(SELECT 1) Z(T)");
    half.query(HOLD);
    half.send_bytes(&query("SELECT 1").0[..8]);
    assert_eq!(idle.query("SELECT 1"), ONE);
    unread.send(&query(LARGE));
    becomes("servers in use", 3, || database.count("state <> 'idle'"));
    // For so long that it has said more than once that it has no room.
    thread::sleep(Duration::from_secs(2));
    network.cut(0, TEST);
    becomes("servers in use by clients that are gone", 0, || database.count("state <> 'idle'"));
    becomes("connections with a host that is gone", 0, || network.connections(TEST, 0));
    drop((amid, unread, half, idle));
    network.mend(0, TEST);
    assert_eq!(client().query("SELECT 1"), ONE);
}

fn a_name_with_several_addresses_is_tried_at_each(case: Case) {
    if env::var_os(INSIDE).is_some() {
        return with_names(case);
    }
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let others = fs::read_to_string("/etc/hosts").unwrap();
    fs::write(&hosts, format!("{others}\n::1 db.test\n127.0.0.1 db.test\n")).unwrap();
    fs::set_permissions(&hosts, fs::Permissions::from_mode(0o644)).unwrap();
    let script = format!("mount --bind \"${HOSTS}\" /etc/hosts && exec \"$@\"");
    let mut command = Command::new("unshare");
    in_namespace(command.args(["--mount", "sh", "-c", &script, "sh"]).env(HOSTS, hosts.path()));
}

/// Runs this test again by that command, in a namespace of its own.
pub(crate) fn in_namespace(command: &mut Command) {
    if !Uid::current().is_root() {
        println!("left out: only root may have a namespace of its own");
        return;
    }
    command.arg(env::current_exe().unwrap());
    command.args([thread::current().name().expect("a test's name"), "--exact", "--nocapture"]);
    let output = command.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// Has the network be there, or not.
pub(crate) fn set(state: &str) {
    let mut ip = Command::new("ip");
    ip.args(["link", "set", "lo", state]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    assert!(ip.status().unwrap().success());
}

fn query(sql: &str) -> Script {
    Script::new().query(sql)
}

fn inside(case: Case) {
    set("up");
    let server = TestServer::start_with_tcp(case.version, &[]);
    let folder = tempfile::tempdir().unwrap();
    let pool = PoolConfig::without_databases(SLUICE, case)
        .database_at("*", "127.0.0.1", server.port(), "sslmode = \"disable\"")
        .top(&format!("unix_socket_dir = {:?}\ntcp_user_timeout = \"{}s\"", folder.path(), USER_TIMEOUT.as_secs()))
        .pool("backoff_max = \"200ms\"\nconnect_timeout = \"15s\"")
        // Nobody else is there.
        .port(6432)
        .size(3)
        .start();
    let socket = folder.path().join(format!(".s.PGSQL.{}", pool.address().port()));
    let client = || Raw::unix(&socket).login("app", "postgres");
    let (mut idle, mut late, mut amid, mut asks) = (client(), client(), client(), client());
    let distant = pool.raw().login("app", "postgres");
    assert_eq!(idle.query("SET app.mark = 'mine'"), "C(SET) Z(I)");
    amid.talk_to(&query(HOLD).query("SELECT 1"), 2);
    asks.query("SELECT 1");

    // Less than the limit: it takes longer, and that is all.
    set("down");
    asks.send(&query("SELECT 'in spite of that'"));
    amid.send(&query("SELECT 2"));
    thread::sleep(USER_TIMEOUT / 4);
    set("up");
    assert_eq!(transcript(&asks.until_ready(1)), "T(?column?) D(in spite of that) C(SELECT 1) Z(I)");
    assert_eq!(transcript(&amid.until_ready(1)), "T(?column?) D(2) C(SELECT 1) Z(T)");

    // More than that: who has a server is told that it is gone, asking it or not.
    let files = pool.open_files();
    set("down");
    let cut = Instant::now();
    asks.send(&query("SELECT 'lost'"));
    for (client, what) in [(&mut asks, "asks"), (&mut amid, "is in a transaction")] {
        let said = transcript(&client.until_end());
        assert!(said.starts_with("E(FATAL 0800"), "who {what}: {said}");
    }
    assert!(cut.elapsed() > USER_TIMEOUT / 2, "it was gone too soon: {:?}", cut.elapsed());
    eventually("a client that the network has cut off is gone", || pool.open_files() < files - 3);
    // Who has no server has nothing to be told, and waits for one.
    idle.send(&query("SHOW app.mark"));
    late.send(&query("SELECT 'here'"));
    thread::sleep(Duration::from_millis(300));
    set("up");
    assert_eq!(transcript(&idle.until_ready(1)), "T(app.mark) D(mine) C(SHOW) Z(I)");
    assert_eq!(transcript(&late.until_ready(1)), "T(?column?) D(here) C(SELECT 1) Z(I)");
    drop(distant);
}

/// Nobody listens at the first address of the name, as where `localhost` is `::1` first and PostgreSQL has IPv4 alone.
fn with_names(case: Case) {
    let server = TestServer::start_with_tcp(case.version, &[]);
    server.execute("CREATE ROLE named LOGIN PASSWORD 'secret' IN ROLE trusted");
    let addresses: Vec<_> = ("db.test", server.port()).to_socket_addrs().unwrap().collect();
    assert!(addresses.len() == 2 && addresses[0].is_ipv6(), "{addresses:?}");
    let pool = PoolConfig::without_databases(SLUICE, case)
        .database_at("*", "db.test", server.port(), "sslmode = \"disable\"")
        .auth(Auth::LookUp("cache = \"1s\"".to_owned()))
        .pool("wait_timeout = \"5s\"\nbackoff_min = \"20s\"\nbackoff_max = \"20s\"")
        .workers(2)
        .size(4)
        .start();
    let connected = || pool.connect("named", Some("secret"), "postgres");
    let mut clients: Vec<_> = (0..4).map(|_| connected().expect("it is let in, at the other address")).collect();
    for client in &mut clients {
        client.batch_execute("BEGIN; SELECT 1").unwrap();
    }
    let failed = "no connection to the server";
    assert!(!pool.log().contains(failed), "at the first attempt: {}", pool.log());
    // Where there is nobody at either, both are told of.
    clients[0].batch_execute("COMMIT").unwrap();
    server.down(StopMode::Fast);
    assert!(clients[0].batch_execute("SELECT 1").is_err());
    let both = |line: &str| addresses.iter().all(|address| line.contains(&format!("{address}: ")));
    let is_told = |words: &str| pool.log().lines().any(|line| line.contains(words) && both(line));
    eventually("the log has both", || is_told(failed));
    assert!(connected().is_err() && is_told("a user could not be looked up"), "{}", pool.log());
    assert!(is_told("(is PostgreSQL running there? "), "{}", pool.log());
}
