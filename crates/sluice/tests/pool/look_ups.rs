//! Look-ups of secrets that fail or hang: those who come next are not kept waiting.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Auth, Case, PoolConfig, Raw, TestPool, TestServer, eventually, matrix};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::SLUICE;

matrix!(transaction:
    made_up_names_keep_nobody_waiting_before_a_cluster,
    kept_connections_that_were_forgotten_cost_a_moment,
);

/// Look-ups under way at once, all of them taken.
const AT_ONCE: usize = 4;

/// Longer than a log-in takes, and shorter than the time for which a primary is waited for.
const LITTLE: Duration = Duration::from_secs(4);

/// A look-up that has errors of its own for names that it does not know, and counts how often it is asked.
const FIND: &str = "
CREATE SEQUENCE asked;
CREATE FUNCTION find(name text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM nextval('asked');
    IF name LIKE 'nobody%' THEN RAISE no_data_found; END IF;
    IF name LIKE 'starting%' THEN RAISE SQLSTATE '57P03'; END IF;
    RETURN (SELECT rolpassword FROM pg_authid WHERE rolname = name);
END $$;
GRANT EXECUTE ON FUNCTION find(text) TO lookup;
CREATE ROLE someone LOGIN PASSWORD 'secret'";

fn made_up_names_keep_nobody_waiting_before_a_cluster(case: Case) {
    let server = TestServer::start_with_tcp(case.version, &[]);
    server.execute(FIND);
    let config = PoolConfig::without_databases(SLUICE, case)
        .auth(Auth::LookUp("cache = \"1s\"\nquery = \"SELECT find($1)\"".to_owned()))
        .section(&format!(
            "[[cluster]]\nname = \"main\"\npatroni = [\"http://127.0.0.1:{}\"]\nfailover_timeout = \"20s\"\n",
            patroni(&server)
        ))
        .section("[[database]]\nname = \"postgres\"\ncluster = \"main\"\nsslmode = \"disable\"\n");
    let pool = config.start();
    log_in(&pool);
    for name in ["nobody", "starting"] {
        // Until the secret is no longer known.
        thread::sleep(Duration::from_millis(1200));
        let knocks: Vec<Raw> = (0..AT_ONCE).map(|number| knock(&pool, &format!("{name}{number}"))).collect();
        thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        log_in(&pool);
        assert!(begun.elapsed() < LITTLE, "beside {name} a log-in took {:?}", begun.elapsed());
        drop(knocks);
    }
    let asked = || server.value("SELECT last_value FROM asked");
    eventually("nobody is looked up for those who are gone", || {
        let before = asked();
        thread::sleep(Duration::from_secs(1));
        asked() == before
    });
}

fn kept_connections_that_were_forgotten_cost_a_moment(case: Case) {
    let server = TestServer::start_with_tcp(case.version, &[]);
    server.execute("CREATE ROLE someone LOGIN PASSWORD 'secret'");
    let firewall = Firewall::before(server.port());
    let pool = PoolConfig::without_databases(SLUICE, case)
        .auth(Auth::LookUp("cache = \"1s\"".to_owned()))
        .database_at("postgres", "127.0.0.1", firewall.port, "sslmode = \"disable\"")
        .start();
    let knocks: Vec<Raw> = (0..AT_ONCE).map(|number| knock(&pool, &format!("nobody{number}"))).collect();
    log_in(&pool);
    drop(knocks);
    thread::sleep(Duration::from_millis(1200));
    firewall.forget();
    let begun = Instant::now();
    log_in(&pool);
    assert!(begun.elapsed() < LITTLE, "the first log-in took {:?}", begun.elapsed());
    thread::sleep(Duration::from_millis(1200));
    let begun = Instant::now();
    log_in(&pool);
    assert!(begun.elapsed() < Duration::from_secs(1), "the next one took {:?}", begun.elapsed());
}

/// Something between the pool and the server that forgets connections: what comes by one is dropped then.
struct Firewall {
    port: u16,
    /// Counts how often it has forgotten those of before.
    forgotten: Arc<AtomicU32>,
}

impl Firewall {
    fn before(port_of_server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, forgotten) = (listener.local_addr().unwrap().port(), Arc::<AtomicU32>::default());
        let known = forgotten.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port_of_server)).unwrap());
                let begun = known.load(Ordering::SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, known) = (from.try_clone().unwrap(), to.try_clone().unwrap(), known.clone());
                    thread::spawn(move || pass_on(from, to, || known.load(Ordering::SeqCst) == begun));
                }
            }
        });
        Self { port, forgotten }
    }

    fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_known: impl Fn() -> bool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_known() && to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    if is_known() {
        // It may be closed already.
        let _ = to.shutdown(Shutdown::Both);
    }
}

fn log_in(pool: &TestPool) {
    pool.connect("someone", Some("secret"), "postgres").map(drop).unwrap();
}

/// Somebody who has said a name.
fn knock(pool: &TestPool, name: &str) -> Raw {
    let mut raw = pool.raw();
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", name), ("database", "postgres")]);
    raw.send_bytes(&packet);
    raw
}

/// A member that says that the server is the primary; its port.
fn patroni(server: &TestServer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let system = server.value("SELECT system_identifier FROM pg_control_system()");
    let own = format!(
        r#"{{"state": "running", "role": "primary", "timeline": 1, "database_system_identifier": "{system}"}}"#
    );
    let of_postgres = server.port();
    let cluster = format!(
        r#"{{"members": [{{"name": "n1", "role": "leader", "state": "running", "timeline": 1, "host": "127.0.0.1",
            "port": {of_postgres}, "api_url": "http://127.0.0.1:{port}/patroni"}}]}}"#
    );
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut question) = (stream.unwrap(), [0; 1024]);
            let count = stream.read(&mut question).unwrap_or(0);
            let body = if question[..count].starts_with(b"GET /cluster") { &cluster } else { &own };
            // Whoever asks may have had enough.
            let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes());
        }
    });
    port
}
