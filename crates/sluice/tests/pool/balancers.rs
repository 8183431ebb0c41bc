//! Clients that come through a balancer: HAProxy itself, and connections whose headers the test writes.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use postgres::NoTls;
use sluice_testkit::{
    Auth, Case, Certificates, Database, PoolConfig, Raw, Script, TestPool, TestServer, eventually, matrix,
    port::free_address, raw::transcript,
};
use sluice_tls::SslMode;
use sluice_wire::startup::{ProtocolVersion, SSL_REQUEST_PACKET};

use crate::{
    CONNECT_TIMEOUT, HOLD, SLUICE,
    addresses::{Place, SEEN, twice},
    config, database,
};

matrix!(transaction:
    clients_come_through_haproxy,
    the_server_hears_where_a_client_behind_a_balancer_is,
    headers_come_in_any_pieces,
    a_header_that_is_none_ends_the_connection,
    a_reload_counts_for_new_connections,
);

/// The address by which HAProxy connects to the pool, and no client does.
const BALANCER: &str = "127.0.0.9";

/// HAProxy before a pool.
struct Haproxy {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Haproxy {
    /// Passes connections on to a pool, and says so by `send` (`send-proxy`, `send-proxy-v2`).
    fn start(pool: SocketAddr, send: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("sluice-haproxy-").tempdir().unwrap();
        let address = free_address();
        let file = dir.path().join("haproxy.cfg");
        let text = format!(
            "global\n  maxconn 100\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  \
             timeout server 1m\nlisten pool\n  bind {address}\n  \
             server pool {pool} source {BALANCER} {send} check inter 100ms\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "haproxy", "-db", "-f"]).arg(&file);
        // Debian has it where only root looks.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        eventually("HAProxy listens", || std::net::TcpStream::connect(address).is_ok());
        Self { child, address, _dir: dir }
    }

    /// psql's words through it.
    fn psql(&self, database: &str, options: &str) -> String {
        let target = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user=app dbname={database} {options}",
            self.address.port()
        );
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-d", &target, "-c", "SELECT 'in'"]).env("PGPASSWORD", "secret");
        let output = psql.env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
        said.trim().to_owned()
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pool that goes by these rules, and takes the word of those balancers.
fn ruled(case: Case, rules: &str, balancers: &str) -> PoolConfig {
    let users = vec![("app".to_owned(), "secret".to_owned())];
    config(case).top(&format!("proxy_protocol_from = {balancers}")).auth(Auth::Rules(
        rules.to_owned(),
        String::new(),
        users,
    ))
}

/// The header of version 1 of a client at that address.
fn line(source: SocketAddr) -> Vec<u8> {
    let (family, to) = if source.is_ipv4() { ("TCP4", "127.0.0.1") } else { ("TCP6", "::1") };
    format!("PROXY {family} {} {to} {} 6432\r\n", source.ip(), source.port()).into_bytes()
}

/// The same of version 2, with an extension of so many bytes.
fn binary(source: SocketAddr, extension: usize) -> Vec<u8> {
    let (family, octets) = match source {
        SocketAddr::V4(v4) => (0x11, v4.ip().octets().to_vec()),
        SocketAddr::V6(v6) => (0x21, v6.ip().octets().to_vec()),
    };
    let extension = [&[0xe0][..], &(extension as u16).to_be_bytes(), &vec![b'x'; extension]].concat();
    let addresses = [&octets[..], &octets, &source.port().to_be_bytes(), &[0x19, 0x20], &extension].concat();
    let length = (addresses.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21", &[family][..], &length, &addresses].concat()
}

/// A connection that has said these bytes.
fn beginning(pool: &TestPool, header: &[u8]) -> Raw {
    let mut raw = pool.raw_in_clear();
    raw.send_bytes(header);
    raw
}

/// The answer to a log-in as `app`.
fn log_in(mut raw: Raw, database: &Database<'_>) -> String {
    let said = raw.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
    said.iter().find(|message| message.tag == b'E').map_or("in".to_owned(), |error| error.field(b'M'))
}

fn clients_come_through_haproxy(case: Case) {
    let database = database(case);
    let rules = "hostssl all app 127.0.0.1/32 scram-sha-256\nhostnossl all app 127.0.0.1/32 md5\n";
    let certificates = Certificates::shared();
    let authority = certificates.path("authority.crt").display().to_string();
    let pool = ruled(case, rules, &format!("[\"{BALANCER}\"]")).tls(certificates, "").start();
    for send in ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options unique-id"] {
        let balancer = Haproxy::start(pool.address(), send);
        for options in [
            "sslmode=disable",
            "sslmode=prefer",
            &format!("sslmode=verify-full sslrootcert={authority} channel_binding=require"),
        ] {
            assert_eq!(balancer.psql(&database.name, options), "in", "{send}, {options}");
        }
        // A driver, and a cancel that takes the same way.
        let mut client = client_at(&balancer, &database);
        let token = client.cancel_token();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            token.cancel_query(NoTls).unwrap();
        });
        let error = client.batch_execute("SELECT pg_sleep(60)").unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
        canceller.join().unwrap();
    }
    // Its health checks have a header, too.
    assert!(!pool.log().contains("connection closed"), "{}", pool.log());
    // Another balancer is not believed, and the rules go by its address.
    let pool = ruled(case, rules, "[\"127.0.0.10\"]").start();
    let balancer = Haproxy::start(pool.address(), "");
    let said = balancer.psql(&database.name, "sslmode=disable");
    assert!(said.contains(&format!("no pg_hba.conf entry for host \"{BALANCER}\"")), "{said}");
    let balancer = Haproxy::start(pool.address(), "send-proxy-v2");
    let said = balancer.psql(&database.name, "sslmode=disable");
    assert!(said.contains("FATAL:  invalid length of startup packet"), "{said}");
}

/// A client through HAProxy, by the driver.
fn client_at(balancer: &Haproxy, database: &Database<'_>) -> postgres::Client {
    let mut config = postgres::Config::new();
    config.host("127.0.0.1").port(balancer.address.port()).user("app").password("secret").dbname(&database.name);
    config.connect(NoTls).unwrap()
}

fn the_server_hears_where_a_client_behind_a_balancer_is(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.config(case).top("proxy_protocol_from = [\"127.0.0.1\"]").start();
    for address in ["203.0.113.5:51000", "[2001:db8::7]:1", "198.51.100.255:65535"] {
        let source: SocketAddr = address.parse().unwrap();
        for header in [line(source), binary(source, 0), binary(source, 3000)] {
            let mut client = beginning(&pool, &header).login("app", &database.name);
            assert_eq!(client.value(SEEN), twice(source));
        }
    }
    // What the balancer asks in its own name comes from itself.
    let balancer = beginning(&pool, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    let own = twice(balancer.local_address());
    assert_eq!(balancer.login("app", &database.name).value(SEEN), own);
}

fn headers_come_in_any_pieces(case: Case) {
    let database = database(case);
    let rules = "host all app 203.0.113.5/32 trust\n";
    let pool = ruled(case, rules, "[\"127.0.0.0/8\"]").tls(Certificates::shared(), "").start();
    let source = "203.0.113.5:51000".parse().unwrap();
    let other = "203.0.113.6:51000".parse().unwrap();
    let tls = Certificates::shared().client(SslMode::VerifyFull, true);
    for header in [line(source), binary(source, 40)] {
        for piece in [1, 7, header.len()] {
            let mut raw = pool.raw_in_clear();
            raw.send_in_pieces(&header, piece);
            assert_eq!(log_in(raw, &database), "in");
        }
        // The request for encryption behind it, and a handshake at once.
        let mut raw = beginning(&pool, &header).secure(&tls);
        let said = raw.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
        assert!(transcript(&said).ends_with("Z(I)"));
        let raw = beginning(&pool, &header).try_secure(&tls, &[]).unwrap();
        assert_eq!(log_in(raw, &database), "in");
        // In the same packet.
        let mut raw = beginning(&pool, &[&header[..], &SSL_REQUEST_PACKET].concat());
        assert_eq!(raw.byte(), Some(b'S'));
    }
    for header in [line(other), binary(other, 40)] {
        let said = log_in(beginning(&pool, &header).secure(&tls), &database);
        let wanted = "no pg_hba.conf entry for host \"203.0.113.6\", user \"app\"";
        assert!(said.starts_with(wanted) && said.ends_with("SSL encryption"), "{said}");
    }
    eventually("the log names the client", || pool.log().contains("peer=203.0.113.6:51000"));
    // A cancel through it.
    let mut held = beginning(&pool, &line(source)).login("app", &database.name);
    held.query(HOLD);
    held.send(&Script::new().query("SELECT pg_sleep(60)"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    held.cancel(beginning(&pool, &binary(other, 0)));
    assert_eq!(transcript(&held.until_ready(1)), "T(pg_sleep) E(57014) Z(E)");
}

fn a_header_that_is_none_ends_the_connection(case: Case) {
    let database = database(case);
    let pool = ruled(case, "host all app all trust\n", "[\"127.0.0.1\"]").start();
    for (words, fault) in [
        (&b"\0\0\0\x08\x04\xd2\x16\x2f"[..], "there is no PROXY header at its beginning"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 99999\r\n", "the PROXY header of version 1 has a port that is none"),
        (b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c", "the PROXY header is of version 3"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "the PROXY header has 65551 bytes, and at most 4096 are read"),
    ] {
        let mut raw = beginning(&pool, words);
        let address = raw.local_address();
        assert_eq!(raw.byte(), None, "{fault}");
        eventually(fault, || {
            let log = pool.log();
            log.lines().any(|line| line.contains(fault) && line.contains(&format!("peer={address}")))
        });
    }
    assert_eq!(log_in(beginning(&pool, &line("192.0.2.1:1".parse().unwrap())), &database), "in");
}

fn a_reload_counts_for_new_connections(case: Case) {
    let database = database(case);
    let server = TestServer::shared(case.version);
    let without = PoolConfig::new(SLUICE, case, server);
    let pool = without.start();
    let mut before = pool.raw_app(&database);
    let half = pool.raw_in_clear();
    let with = PoolConfig::new(SLUICE, case, server).top("proxy_protocol_from = [\"127.0.0.0/8\"]");
    let said = pool.reload(&with);
    assert!(said.contains("proxy_protocol_from: 127.0.0.0/8, was none"), "{said}");
    assert_eq!(before.value("SELECT 7"), "7");
    // Whoever connected before says what he says.
    assert_eq!(log_in(half, &database), "in");
    assert_eq!(log_in(beginning(&pool, &line("192.0.2.1:1".parse().unwrap())), &database), "in");
    let mut raw = beginning(&pool, &SSL_REQUEST_PACKET);
    assert_eq!(raw.byte(), None);
    pool.reload(&without);
    let mut raw = beginning(&pool, &SSL_REQUEST_PACKET);
    assert_eq!(raw.byte(), Some(b'N'));
}
