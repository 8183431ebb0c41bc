//! SIGUSR2: a new process takes over from the one that runs, and no client is refused.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt, symlink},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use sluice_testkit::{
    Auth, Case, PoolConfig, Raw, Script, TestPool, TestServer, eventually, matrix, port::free_port, proc,
    raw::transcript,
};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::{HOLD, SLUICE, config, database};

matrix!(both_modes: clients_stay_until_they_leave);
matrix!(transaction:
    nobody_is_refused_in_five_upgrades,
    a_cancel_finds_its_client_in_an_old_process,
    after_its_time_the_old_process_shuts_down,
    a_new_process_that_fails_changes_nothing,
    a_new_process_that_fails_says_why_in_a_log_of_json,
    the_new_process_goes_by_the_new_configuration,
    nobody_waits_where_nobody_listens,
    a_made_up_user_is_asked_the_same_by_the_new_process,
    an_end_amid_an_upgrade_leaves_nothing_behind,
);

const ONE: &str = "T(?column?) D(1) C(SELECT 1) Z(I)";

fn nobody_is_refused_in_five_upgrades(case: Case) {
    let database = database(case);
    let sockets = tempfile::tempdir().unwrap();
    let dir = format!("unix_socket_dir = \"{}\"", sockets.path().display());
    let http = "http_listen = [\"127.0.0.1:0\"]";
    let mut pool = config(case).port(free_port()).top(&dir).top(http).workers(2).size(4).start();
    let (address, http) = (pool.address(), http_address(&pool));
    let path = sockets.path().join(format!(".s.PGSQL.{}", address.port()));
    let (stop, connects, stays) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |raw: &mut Raw| assert_eq!(raw.query("SELECT 1"), ONE);
    let connect = |how: &dyn Fn() -> Raw| {
        while !stop.load(Ordering::Relaxed) {
            work(&mut how().login("app", &database.name));
            connects.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..3 {
            scope.spawn(|| connect(&|| Raw::tcp(address)));
        }
        scope.spawn(|| connect(&|| Raw::unix(&path)));
        // Clients that stay for a while, as those of an application's pool.
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut raw = Raw::tcp(address).login("app", &database.name);
                    for _ in 0..50 {
                        work(&mut raw);
                        stays.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(ready(http), "ready\n");
            }
        });
        for _ in 0..5 {
            let sofar = connects.load(Ordering::Relaxed);
            eventually("clients come", || connects.load(Ordering::Relaxed) > sofar + 20);
            let old = pool.upgrade().unwrap();
            eventually("the old process ends with its last client", || !proc::is_alive(old));
        }
    });
    assert!(path.exists(), "the socket's file is the last process's");
    assert!(connects.load(Ordering::Relaxed) > 100 && stays.load(Ordering::Relaxed) > 100);
    drop(pool);
    assert!(!path.exists());
}

/// Ends the clients, however a test ends.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn http_address(pool: &TestPool) -> SocketAddr {
    let log = pool.log();
    let rest = log.split_once("metrics at http://").expect("the log says where").1;
    rest.split_once("/metrics").unwrap().0.parse().unwrap()
}

fn ready(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: pool\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(answer)
}

fn clients_stay_until_they_leave(case: Case) {
    let database = database(case);
    let mut pool = config(case).size(4).start();
    let (mut busy, mut idle) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query("BEGIN; SET LOCAL work_mem = '5MB'");
    idle.query("SET application_name = 'idle'");
    let old = pool.upgrade().unwrap();
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), ONE);
    assert_eq!(busy.value("SHOW work_mem"), "5MB");
    assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(idle.value("SHOW application_name"), "idle");
    drop(busy);
    thread::sleep(Duration::from_millis(300));
    assert!(proc::is_alive(old), "one client is still there");
    drop(idle);
    eventually("the old process ends with its last client", || !proc::is_alive(old));
    assert!(pool.log().contains("stopping: the last client has left"), "{}", pool.log());
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), ONE);
}

fn a_cancel_finds_its_client_in_an_old_process(case: Case) {
    let database = database(case);
    let mut pool = config(case).workers(2).size(6).start();
    let mut clients = Vec::new();
    // One in each of three processes, all of which have clients with the same numbers.
    for _ in 0..2 {
        clients.push([pool.raw_app(&database), pool.raw_app(&database)]);
        pool.upgrade().unwrap();
    }
    clients.push([pool.raw_app(&database), pool.raw_app(&database)]);
    for [client, _] in &mut clients {
        client.send(&Script::new().query("SELECT pg_sleep(20)"));
        // A cancel that comes before that has nothing described.
        eventually("it sleeps", || database.count("wait_event = 'PgSleep' AND query LIKE '%pg_sleep(20)%'") == 1);
        client.cancel(pool.raw());
        assert_eq!(transcript(&client.until_ready(1)), "T(pg_sleep) E(57014) Z(I)");
        assert_eq!(client.query("SELECT 1"), ONE);
    }
    for [_, other] in &mut clients {
        assert_eq!(other.query("SELECT 1"), ONE);
    }
    // A cancel for nobody ends as any other.
    let mut stranger = pool.raw();
    stranger.send_bytes(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 64, 0, 1, 1, 2, 3, 4]);
    assert_eq!(stranger.until_end(), []);
}

fn after_its_time_the_old_process_shuts_down(case: Case) {
    let database = database(case);
    let mut pool = config(case).top("upgrade_grace = \"500ms\"").size(4).start();
    let (mut busy, mut idle) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query(HOLD);
    let old = pool.upgrade().unwrap();
    assert_eq!(transcript(&idle.until_end()), "E(FATAL 57P01)");
    assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
    assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(transcript(&busy.until_end()), "E(FATAL 57P01)");
    eventually("the old process ends", || !proc::is_alive(old));
    assert!(pool.log().contains("upgrade_grace"), "{}", pool.log());
}

fn a_new_process_that_fails_changes_nothing(case: Case) {
    let database = database(case);
    let mut pool = config(case).size(2).start();
    let mut client = pool.raw_app(&database);
    pool.write(&config(case).size(2).limit("clients = \"many\""));
    let words = pool.upgrade().unwrap_err();
    assert!(words.contains("limits.clients: a whole number was expected"), "{words}");
    assert!(words.contains("it ended with exit status: 1 before it was ready"), "{words}");
    assert_eq!(client.query("SELECT 1"), ONE);
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), ONE);
    // Mended, it goes well.
    pool.write(&config(case).size(2));
    let old = pool.upgrade().unwrap();
    drop(client);
    eventually("the old process ends", || !proc::is_alive(old));
}

fn a_new_process_that_fails_says_why_in_a_log_of_json(case: Case) {
    let pool = config(case).size(2).start_with(&[("SLUICE_LOG_FORMAT", "json")], Vec::new());
    pool.write(&config(case).size(2).limit("clients = \"many\""));
    let before = pool.log().len();
    pool.signal(proc::Kind::SIGUSR2);
    eventually("a word on the upgrade", || pool.log()[before..].contains("this one goes on as before"));
    let log = pool.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let failure = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("does not take over: it ended with exit status: 1 before it was ready"), "{message}");
    assert!(message.contains("limits.clients: a whole number was expected"), "{message}");
}

fn the_new_process_goes_by_the_new_configuration(case: Case) {
    let (database, port) = (database(case), free_port());
    let config = |case| config(case).port(port);
    let mut pool = config(case).workers(1).start();
    let sockets = tempfile::tempdir().unwrap();
    let dir = format!("unix_socket_dir = \"{}\"", sockets.path().display());
    pool.write(&config(case).workers(2).top(&dir));
    pool.upgrade().unwrap();
    let path = sockets.path().join(format!(".s.PGSQL.{}", pool.address().port()));
    assert_eq!(Raw::unix(&path).login("app", &database.name).query("SELECT 1"), ONE);
    // What is not listened on any more goes away with its file.
    pool.write(&config(case).workers(1));
    pool.upgrade().unwrap();
    assert!(!path.exists());
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), ONE);
}

/// The salt and the iterations by which a user is asked for the password.
fn asked(pool: &TestPool, user: &str) -> String {
    let mut raw = pool.raw();
    let mut bytes = Vec::new();
    startup::put_session(&mut bytes, ProtocolVersion::V3_0, [("user", user), ("database", "app")]);
    raw.send_bytes(&bytes);
    assert_eq!(raw.message().unwrap().body[..4], [0, 0, 0, 10]);
    let first = "n,,n=,r=nonce";
    let mut bytes = vec![b'p'];
    bytes.extend((4 + 14 + 4 + first.len() as u32).to_be_bytes());
    bytes.extend(b"SCRAM-SHA-256\0");
    bytes.extend((first.len() as u32).to_be_bytes());
    bytes.extend(first.as_bytes());
    raw.send_bytes(&bytes);
    let said = String::from_utf8(raw.message().unwrap().body[4..].to_vec()).unwrap();
    said.split_once(",s=").expect("a salt").1.to_owned()
}

/// Otherwise two log-ins would tell who exists.
fn a_made_up_user_is_asked_the_same_by_the_new_process(case: Case) {
    let database = database(case);
    let mut pool = config(case).auth(Auth::Scram(vec![("app".to_owned(), "secret".to_owned())])).start();
    let all = |pool: &TestPool| ["app", "nobody", "no_one"].map(|user| asked(pool, user));
    let before = all(&pool);
    assert!(before[1] != before[2] && before[1].ends_with(",i=4096"), "{before:?}");
    for _ in 0..2 {
        pool.upgrade().unwrap();
        assert_eq!(all(&pool), before);
    }
    pool.connect("app", Some("secret"), &database.name).unwrap();
}

fn an_end_amid_an_upgrade_leaves_nothing_behind(case: Case) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("sluice");
    symlink(SLUICE, &program).unwrap();
    let server = TestServer::shared(case.version);
    let mut pool = PoolConfig::new(&program, case, server).start();
    let address = pool.address();
    // One whose start takes long, by a process of its own, which has the sockets as well.
    fs::remove_file(&program).unwrap();
    fs::write(&program, format!("#!/bin/sh\nsleep 5\nexec {SLUICE} \"$@\"\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    pool.signal(proc::Kind::SIGUSR2);
    eventually("a new process is started", || pool.log().contains(" again, as process "));
    let log = pool.log();
    let (_, rest) = log.split_once(" again, as process ").unwrap();
    let new: u32 = rest.lines().next().unwrap().parse().unwrap();
    // It sleeps by then.
    thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    pool.signal(proc::Kind::SIGTERM);
    assert!(pool.wait().success());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(!proc::is_alive(new), "{}", pool.log());
    let error = TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    PoolConfig::new(SLUICE, case, server).port(address.port()).start();
}

/// The old process, which has a client yet, keeps no socket at which others would wait in vain.
fn nobody_waits_where_nobody_listens(case: Case) {
    let (database, ports) = (database(case), [free_port(), free_port()]);
    let config = |port| config(case).port(port).workers(2);
    let mut pool = config(ports[0]).start();
    let mut client = pool.raw_app(&database);
    let is_refused = |port: u16| {
        let error = TcpStream::connect(("127.0.0.1", port)).err();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    pool.write(&config(ports[1]));
    let old = pool.upgrade().unwrap();
    assert!(is_refused(ports[0]), "an address that the new process has not taken");
    let new = pool.pid();
    assert!(!is_refused(ports[1]));
    proc::send(new, proc::Kind::SIGKILL);
    eventually("it is gone, with its last trace", || !std::path::Path::new(&format!("/proc/{new}")).exists());
    assert!(is_refused(ports[1]), "an address of a process that is gone");
    assert_eq!(client.query("SELECT 1"), ONE);
    drop(client);
    eventually("the old process ends", || !proc::is_alive(old));
}
