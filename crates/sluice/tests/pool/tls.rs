//! TLS on both sides: clients that encrypt, or must, and servers that do.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{
    Auth, Case, Certificates, Database, PoolConfig, Raw, Script, TestPool, TestServer, becomes, eventually, matrix,
    raw::transcript,
};
use sluice_tls::SslMode;
use sluice_wire::startup::{ProtocolVersion, SSL_REQUEST_PACKET};

use crate::{CONNECT_TIMEOUT, HOLD, SLUICE, config, database};

// The PostgreSQL 18 of the tests is built without TLS, so that there is one server with it.
matrix!(transaction:
    libpq_connects_by_every_sslmode,
    clients_without_tls_are_refused_where_it_is_required,
    certificates_of_clients_are_checked,
    a_changed_certificate_is_seen_by_new_clients_alone,
    a_handshake_at_once_needs_the_protocols_name,
    what_is_no_handshake_ends_and_nobody_else_notices,
    bytes_behind_a_failed_handshake_harm_nobody,
    handshakes_that_are_left_undone_end,
    long_answers_come_whole,
    requests_for_encryption_are_answered_as_by_postgresql,
    servers_are_reached_by_every_sslmode,
    cancels_are_encrypted_too,
    servers_pass_between_workers,
    secrets_are_looked_up_by_tls,
);

const GSSENC_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

fn certificates() -> &'static Certificates {
    Certificates::shared()
}

/// A server that lets nobody in by TCP without TLS.
fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| TestServer::start_with_tls_for_process(sluice_testkit::Version::V15, &[]))
}

fn users() -> Auth {
    Auth::Scram(vec![("app".to_owned(), "secret".to_owned())])
}

/// The output of psql, or its complaint.
fn psql(pool: &TestPool, database: &str, options: &str, sql: &str) -> Result<String, String> {
    let target = format!("host=localhost port={} user=app dbname={database} {options}", pool.address().port());
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-d", &target, "-c", sql])
        .env("PGPASSWORD", "secret")
        .env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT);
    let done = psql.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

fn libpq_connects_by_every_sslmode(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "").auth(users()).start();
    let path = |name| certificates().path(name).display().to_string();
    let (authority, other) = (path("authority.crt"), path("other.crt"));
    for (options, encrypted) in [
        ("sslmode=disable".to_owned(), false),
        ("sslmode=allow".to_owned(), false),
        ("sslmode=prefer".to_owned(), true),
        ("sslmode=require".to_owned(), true),
        (format!("sslmode=verify-full sslrootcert={authority}"), true),
        ("sslmode=require channel_binding=require".to_owned(), true),
        ("sslmode=require channel_binding=disable".to_owned(), true),
        ("sslmode=require ssl_max_protocol_version=TLSv1.2 channel_binding=require".to_owned(), true),
    ] {
        assert_eq!(psql(&pool, &database.name, &options, "SELECT 1"), Ok("1".to_owned()), "{options}");
        let said = psql(&pool, &database.name, &options, "\\conninfo").unwrap();
        assert_eq!(said.contains("SSL connection (protocol: TLSv1."), encrypted, "{options}: {said}");
    }
    let complaint = psql(&pool, &database.name, &format!("sslmode=verify-ca sslrootcert={other}"), "SELECT 1");
    assert!(complaint.as_ref().is_err_and(|it| it.contains("certificate verify failed")), "{complaint:?}");
    eventually("the log tells of it", || pool.log().contains("client not encrypted: TLS: "));
    let complaint = psql(&pool, &database.name, "sslmode=disable channel_binding=require", "SELECT 1");
    assert!(complaint.is_err(), "{complaint:?}");
}

fn clients_without_tls_are_refused_where_it_is_required(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "required = true").start();
    let mut client = pool.raw_in_clear();
    let said = client.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
    assert_eq!(transcript(&said), "E(FATAL 28000)");
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // A request to cancel is heard in clear, as by PostgreSQL.
    let mut held = pool.raw_app(&database);
    held.send(&Script::new().query("SELECT pg_sleep(60)"));
    std::thread::sleep(Duration::from_millis(300));
    held.cancel(pool.raw_in_clear());
    assert_eq!(transcript(&held.until_ready(1)), "T(pg_sleep) E(57014) Z(I)");
}

fn certificates_of_clients_are_checked(case: Case) {
    let database = database(case);
    let authority = certificates().path("authority.crt").display().to_string();
    let pool =
        |lines: &str| config(case).tls(certificates(), &format!("client_ca_file = {authority:?}\n{lines}")).start();
    let attempt = |pool: &TestPool, user: &str, shows: bool| {
        let mut client = pool.raw_in_clear().secure(&certificates().client(SslMode::VerifyFull, shows));
        let said = client.login_with(ProtocolVersion::V3_0, &[("user", user), ("database", &database.name)]);
        transcript(&said).rsplit(' ').next().unwrap().to_owned()
    };
    let refused = "28000)".to_owned();
    for (lines, shown, not_shown, other) in [
        ("", "Z(I)", "Z(I)", "Z(I)"),
        ("client_certificates = \"verify-ca\"", "Z(I)", "28000)", "Z(I)"),
        ("client_certificates = \"verify-full\"", "Z(I)", "28000)", "28000)"),
    ] {
        let pool = pool(lines);
        assert_eq!(attempt(&pool, "app", true), shown, "{lines}");
        assert_eq!(attempt(&pool, "app", false), not_shown, "{lines}");
        // Whoever does not encrypt shows none.
        let mut clear = pool.raw_in_clear();
        let said = clear.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
        assert!(transcript(&said).ends_with(not_shown), "{lines}");
        assert_eq!(attempt(&pool, "peered_app", true) == refused, other == refused, "{lines}");
    }
    // One of another authority is not even let into the handshake: the client hears of it with its first answer.
    let pool = pool("");
    let files = sluice_tls::ClientFiles {
        root_cert: Some(certificates().path("authority.crt")),
        own: Some((certificates().path("other.crt"), certificates().path("other.key"))),
    };
    let stranger = sluice_tls::ClientTls::load(SslMode::VerifyFull, &files).unwrap();
    if let Ok(mut client) = pool.raw_in_clear().try_secure(&stranger, &SSL_REQUEST_PACKET) {
        let error = client.try_send(&[0, 0, 0, 8, 0, 3, 0, 0]).and_then(|()| client.try_byte()).err().unwrap();
        assert!(error.to_string().contains("alert"), "{error}");
    }
}

fn a_changed_certificate_is_seen_by_new_clients_alone(case: Case) {
    let database = database(case);
    let dir = tempfile::tempdir().unwrap();
    let put = |from: &Certificates| {
        for name in ["server.crt", "server.key"] {
            let to = dir.path().join(name);
            fs::copy(from.path(name), &to).unwrap();
        }
    };
    let place = tempfile::tempdir().unwrap();
    let next = Certificates::make_in(place.path().to_owned());
    put(certificates());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let tls = format!("[tls]\ncert_file = {:?}\nkey_file = {:?}\n", path("server.crt"), path("server.key"));
    let config = config(case).section(&tls);
    let pool = config.start();
    let secured =
        |by: &Certificates| pool.raw_in_clear().try_secure(&by.client(SslMode::VerifyFull, false), &SSL_REQUEST_PACKET);
    let mut before = secured(certificates()).unwrap().login("app", &database.name);
    assert!(secured(&next).is_err(), "it is not that one's yet");
    put(&next);
    let words = pool.reload(&config);
    assert!(words.contains("tls: certificates or key changed"), "{words}");
    assert!(secured(certificates()).is_err(), "it is not that one's any more");
    let mut now = secured(&next).unwrap().login("app", &database.name);
    for client in [&mut before, &mut now] {
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
    // One that can't be used changes nothing.
    fs::write(dir.path().join("server.key"), "nothing").unwrap();
    let words = pool.reload(&config);
    assert!(words.contains("tls.key_file") && words.contains("no private key"), "{words}");
    assert_eq!(
        secured(&next).unwrap().login("app", &database.name).query("SELECT 1"),
        "T(?column?) D(1) C(SELECT 1) Z(I)"
    );
}

fn a_handshake_at_once_needs_the_protocols_name(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "").start();
    let tls = certificates().client(SslMode::VerifyFull, false);
    let mut client = pool.raw_in_clear().try_secure(&tls, &[]).unwrap().login("app", &database.name);
    assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    let mut unnamed = (**tls.config()).clone();
    unnamed.alpn_protocols.clear();
    let mut client = pool.raw_in_clear().try_secure_by(unnamed.clone(), &[]).unwrap();
    assert_eq!(transcript(&client.until_end()), "E(FATAL 08P01)");
    // Behind an SSLRequest, nobody asks for it; another protocol's is refused by the handshake itself.
    let mut client = pool.raw_in_clear().try_secure_by(unnamed.clone(), &SSL_REQUEST_PACKET).unwrap();
    assert!(client.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]).len() > 1);
    unnamed.alpn_protocols = vec![b"h2".to_vec()];
    let error = pool.raw_in_clear().try_secure_by(unnamed, &SSL_REQUEST_PACKET).err().unwrap();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

fn what_is_no_handshake_ends_and_nobody_else_notices(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "").start();
    let mut client = pool.raw_app(&database);
    let mut random = sluice_testkit::Random::new(7);
    for round in 0..40 {
        let mut stream = TcpStream::connect(pool.address()).unwrap();
        stream.set_read_timeout(Some(sluice_testkit::PATIENCE)).unwrap();
        if round % 2 == 0 {
            stream.write_all(&SSL_REQUEST_PACKET).unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"S");
        }
        let mut garbage: Vec<u8> = (0..random.below(3000) + 5).map(|_| random.below(256) as u8).collect();
        match round % 3 {
            // A record of a handshake, with anything in it.
            0 => garbage[..5].copy_from_slice(&[22, 3, 1, 0, 200]),
            1 => garbage[0] = 22,
            _ => {}
        }
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        // What is said, if anything, is an alert or an error; then comes the end.
        let _ = stream.read_to_end(&mut rest);
        assert!(matches!(rest.first(), None | Some(0x15 | b'E')), "{rest:?}");
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
    becomes("connections", 1, || open_connections(&pool));
}

/// Of a handshake that has failed, the rest is nobody's, however it comes.
fn bytes_behind_a_failed_handshake_harm_nobody(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "").start();
    let records: [&[u8]; 3] =
        [b"\x16\x03\x01\0\x05words", b"\xff\xff\xff\xff\xff", b"\x16\x03\x01\0\x04\x01\xff\xff\xff"];
    for (round, record) in records.iter().cycle().take(60).enumerate() {
        let mut stream = TcpStream::connect(pool.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&SSL_REQUEST_PACKET).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        // It may have been closed by then.
        for _ in 0..6 {
            let _ = stream.write_all(record);
            thread::sleep(Duration::from_micros(100 * (round as u64 % 5)));
        }
    }
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

/// The connections of clients to a pool that there are, as the system sees them.
fn open_connections(pool: &TestPool) -> usize {
    let port = format!(":{:04X} ", pool.address().port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_its = |line: &&str| line.split_whitespace().nth(1).is_some_and(|local| format!("{local} ").ends_with(&port));
    table.lines().filter(is_its).filter(|line| line.split_whitespace().nth(3) == Some("01")).count()
}

fn handshakes_that_are_left_undone_end(case: Case) {
    let pool = config(case).tls(certificates(), "").limit("login_timeout = \"500ms\"").start();
    let mut undone = Vec::new();
    for bytes in [&[][..], &[22, 3, 1, 1, 0, 1], &[22]] {
        let mut stream = TcpStream::connect(pool.address()).unwrap();
        stream.set_read_timeout(Some(sluice_testkit::PATIENCE)).unwrap();
        stream.write_all(&SSL_REQUEST_PACKET).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        stream.write_all(bytes).unwrap();
        undone.push(stream);
    }
    for mut stream in undone {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "nothing in clear within a handshake: {rest:?}");
    }
}

fn long_answers_come_whole(case: Case) {
    let database = database(case);
    let pool = config(case).tls(certificates(), "").size(2).start();
    let sql = "SELECT n, repeat(md5(n::text), n % 300) AS text FROM generate_series(1, 3000) n";
    let alone = transcript_of(&mut database.server.raw().login("app", &database.name), sql);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = pool.raw_app(&database);
                for _ in 0..3 {
                    assert!(transcript_of(&mut client, sql) == alone);
                }
            });
        }
    });
    let mut client = pool.raw_app(&database);
    client.query("CREATE TABLE copied (n int, text text)");
    let rows: String = (1..20_000).map(|n| format!("{n}\t{}\n", "x".repeat(n % 400))).collect();
    let mut script = Script::new().query("COPY copied FROM STDIN");
    // Parts that no record and no buffer is as long as.
    for part in rows.as_bytes().chunks(10_007) {
        script = script.copy_data(part);
    }
    assert_eq!(client.talk(&script.copy_done()), "G C(COPY 19999) Z(I)");
    let sum = "SELECT sum(n), sum(length(text)) FROM copied";
    assert_eq!(client.query(sum), database.server.raw().login("app", &database.name).query(sum));
}

fn transcript_of(client: &mut Raw, sql: &str) -> Vec<sluice_testkit::Message> {
    client.send(&Script::new().query(sql));
    client.until_ready(1)
}

/// The answers to a sequence of first packets, and how it ends.
fn first_answers(mut raw: Raw, packets: &[&[u8]]) -> String {
    let mut said = String::new();
    for packet in packets {
        if raw.try_send(packet).is_err() {
            break;
        }
        match raw.byte() {
            Some(byte @ (b'N' | b'S')) => said.push(char::from(byte)),
            Some(byte) => {
                said.push_str(&format!("{} ends", char::from(byte)));
                break;
            }
            None => {
                said.push_str("ends");
                break;
            }
        }
        if said.ends_with('S') {
            break;
        }
    }
    said
}

fn requests_for_encryption_are_answered_as_by_postgresql(case: Case) {
    let database = database(case);
    let (ssl, gss) = (&SSL_REQUEST_PACKET[..], &GSSENC_REQUEST[..]);
    let without = config(case).start();
    let with = config(case).tls(certificates(), "").start();
    for packets in [
        &[ssl][..],
        &[gss],
        &[gss, ssl],
        &[ssl, ssl],
        &[gss, gss],
        &[ssl, gss, ssl],
        &[gss, ssl, gss],
        &[ssl, gss, gss],
    ] {
        let by_postgresql = first_answers(database.server.raw(), packets);
        assert_eq!(first_answers(without.raw_in_clear(), packets), by_postgresql, "{packets:?}");
        // By TCP, PostgreSQL has GSSAPI.
        if !packets.contains(&gss) {
            let by_postgresql = first_answers(server().raw_tcp(), packets);
            assert_eq!(first_answers(with.raw_in_clear(), packets), by_postgresql, "{packets:?}");
        }
    }
}

/// A pool before the server with TLS, with further lines for its database.
fn before_tls(case: Case, lines: &str) -> PoolConfig {
    PoolConfig::without_databases(SLUICE, case).database_at("*", "localhost", server().port(), lines)
}

fn is_encrypted(pool: &TestPool, database: &Database<'_>) -> Result<String, String> {
    let sql = "SELECT coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)";
    psql(pool, &database.name, "sslmode=disable", sql)
}

fn servers_are_reached_by_every_sslmode(case: Case) {
    let there = server().database();
    let path = |name| certificates().path(name).display().to_string();
    let (authority, other) = (path("authority.crt"), path("other.crt"));
    let own = format!("sslcert = {:?}\nsslkey = {:?}", path("client.crt"), path("client.key"));
    let encrypted = Ok("t".to_owned());
    for lines in [
        String::new(),
        // In clear it is refused, and so it is tried again.
        "sslmode = \"allow\"".to_owned(),
        "sslmode = \"require\"".to_owned(),
        format!("sslmode = \"verify-ca\"\nsslrootcert = {authority:?}"),
        format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}"),
        format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}\n{own}"),
        // As libpq, a server that can't be verified is as good as one without TLS here, and is refused by that.
    ] {
        assert_eq!(is_encrypted(&before_tls(case, &lines).start(), &there), encrypted, "{lines}");
    }
    for (lines, expected) in [
        ("sslmode = \"disable\"".to_owned(), "no encryption"),
        (format!("sslmode = \"verify-ca\"\nsslrootcert = {other:?}"), "sslrootcert"),
        (format!("sslmode = \"require\"\nsslrootcert = {other:?}"), "UnknownIssuer"),
    ] {
        // Somebody has to mend it: there is nothing to wait for.
        let pool = before_tls(case, &lines).pool("connect_timeout = \"1min\"\nwait_timeout = \"1min\"").start();
        let begin = Instant::now();
        let complaint = is_encrypted(&pool, &there).unwrap_err();
        assert!(complaint.contains(expected), "{lines}: {complaint}");
        assert!(begin.elapsed() < Duration::from_secs(30), "{lines}: {:?}", begin.elapsed());
    }
    let by_address = |lines: &str| {
        PoolConfig::without_databases(SLUICE, case).database_at("*", "127.0.0.1", server().port(), lines).start()
    };
    let lines = format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}");
    let complaint = is_encrypted(&by_address(&lines), &there).unwrap_err();
    assert!(
        complaint.contains("not valid for name") && complaint.contains("HINT:  In the pool's configuration, \"host\""),
        "{complaint}"
    );
    // Keys that a client has shown by SCRAM log in by the server's channel binding.
    let role = format!("{}_role", there.name);
    there.server.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    let secret = there.server.value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'"));
    let pool = before_tls(case, &lines).auth(Auth::Scram(vec![(role.clone(), secret)])).tls(certificates(), "").start();
    let options = format!("user={role} sslmode=require channel_binding=require");
    assert_eq!(psql(&pool, &there.name, &options, "SELECT current_user"), Ok(role));
    // Where there is no TLS: as the mode says.
    let plain = TestServer::start_with_tcp(case.version, &[]);
    let database = plain.database();
    let before_plain = |lines: &str| {
        PoolConfig::without_databases(SLUICE, case).database_at("*", "localhost", plain.port(), lines).start()
    };
    for lines in ["", "sslmode = \"disable\"", "sslmode = \"allow\"", "sslmode = \"prefer\""] {
        assert_eq!(is_encrypted(&before_plain(lines), &database), Ok("f".to_owned()), "{lines}");
    }
    let complaint = is_encrypted(&before_plain("sslmode = \"require\""), &database).unwrap_err();
    assert!(complaint.contains("server does not support SSL, but SSL was required"), "{complaint}");
}

fn cancels_are_encrypted_too(case: Case) {
    let there = server().database();
    let pool = before_tls(case, "sslmode = \"require\"").tls(certificates(), "").size(1).start();
    let mut client = pool.raw_app(&there);
    for _ in 0..5 {
        client.send(&Script::new().query("SELECT pg_sleep(60)"));
        std::thread::sleep(Duration::from_millis(200));
        client.cancel(pool.raw());
        assert_eq!(transcript(&client.until_ready(1)), "T(pg_sleep) E(57014) Z(I)");
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
}

fn servers_pass_between_workers(case: Case) {
    let there = server().database();
    let pool = before_tls(case, "sslmode = \"require\"").tls(certificates(), "").size(2).workers(3).start();
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for number in 0..9 {
            let (pool, there) = (&pool, &there);
            scope.spawn(move || {
                let mut client = pool.raw_app(there);
                let mut turn = 0;
                while Instant::now() < end {
                    turn += 1;
                    let text = format!("{number} {turn} {}", "x".repeat(turn * 37 % 20_000));
                    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
                    assert_eq!(client.value(&format!("SELECT '{text}'")), text);
                    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
                }
            });
        }
    });
}

fn secrets_are_looked_up_by_tls(case: Case) {
    let there = server().database();
    let role = format!("{}_role", there.name);
    there.server.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    let authority = certificates().path("authority.crt").display().to_string();
    for lines in [
        String::new(),
        "sslmode = \"allow\"".to_owned(),
        format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}"),
    ] {
        let pool = before_tls(case, &lines).auth(Auth::LookUp(String::new())).start();
        let mut client = pool.connect(&role, Some("secret"), &there.name).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(client.query_one("SELECT current_user::text", &[]).unwrap().get::<_, String>(0), role);
    }
}
