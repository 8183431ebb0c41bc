//! Access rules: whoever PostgreSQL would let in by a `pg_hba.conf` is let in, and whoever it turns away hears the same.

use std::{
    env,
    fmt::Write as _,
    fs,
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
};

use sluice_testkit::{Auth, Case, Certificates, PoolConfig, TestServer, Version, eventually, matrix, random::Random};

use crate::SLUICE;

matrix!(servers_with_tls: whoever_is_let_in_by_postgresql_is_let_in);
matrix!(servers_with_tls: rules_are_read_again);

/// The users: each way of keeping a secret, and none.
const USERS: [&str; 4] = ["app", "hashed_user", "scram_user", "nobody_s"];

/// The server, whose rules each test sets, one after the other.
fn server() -> &'static Mutex<TestServer> {
    static SERVER: OnceLock<Mutex<TestServer>> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = TestServer::start_with_tls_for_process(Version::V15, &[]);
        server.execute(
            "SET password_encryption = md5; CREATE ROLE hashed_user LOGIN PASSWORD 'secret';
             SET password_encryption = 'scram-sha-256'; CREATE ROLE scram_user LOGIN PASSWORD 'secret';
             CREATE ROLE nobody_s LOGIN",
        );
        for database in ["app", "elsewhere"] {
            server.execute(&format!("CREATE DATABASE {database}"));
        }
        Mutex::new(server)
    })
}

/// The users and their secrets, as the server has them.
fn users(server: &TestServer) -> Vec<(String, String)> {
    let secret = |user: &str| {
        let sql = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{user}'");
        server.try_value(&sql).filter(|secret| !secret.is_empty()).map(|secret| (user.to_owned(), secret))
    };
    USERS.iter().filter_map(|user| secret(user)).collect()
}

/// Has the server go by these rules, which its own pool need not mind.
fn set_rules(server: &TestServer, rules: &str, maps: &str) {
    let data = server.data();
    let marked = format!("local all all trust\n{rules}");
    fs::write(data.join("pg_hba.conf"), &marked).unwrap();
    fs::write(data.join("pg_ident.conf"), maps).unwrap();
    let loaded = server.try_value("SELECT pg_conf_load_time()::text");
    server.execute("SELECT pg_reload_conf()");
    eventually("the server has read its rules", || server.try_value("SELECT pg_conf_load_time()::text") != loaded);
}

/// psql's words on a log-in: the role that it has come to be, or why not.
fn log_in(port: u16, user: &str, database: &str, more: &str) -> String {
    let to = format!("host=127.0.0.1 port={port} user={user} dbname={database} gssencmode=disable {more}");
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-At", "-c", "SELECT current_user, current_database()", &to]);
    let output = psql.env("PGCONNECT_TIMEOUT", "20").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    said.replace(&format!("port {port}"), "port N")
}

/// Ways to connect: in clear, by TLS, with a certificate of the user `app`; with the right password, a wrong one, none.
fn ways() -> Vec<String> {
    let certificates = Certificates::shared();
    let path = |name: &str| certificates.path(name).display().to_string();
    let shown = format!("sslmode=require sslcert={} sslkey={}", path("client.crt"), path("client.key"));
    let unshown = "sslmode=require sslcert=/nowhere/none.crt";
    let encryption = ["sslmode=disable", unshown, &shown];
    let passwords = ["password=secret", "password=wrong", ""];
    encryption.iter().flat_map(|way| passwords.map(|password| format!("{way} {password}"))).collect()
}

/// Rules by a seed, which PostgreSQL takes.
fn rules(random: &mut Random) -> String {
    let mut rules = String::new();
    for _ in 0..1 + random.below(5) {
        let kind = *random.of(&["host", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"]);
        let database =
            *random.of(&["all", "all", "app", "elsewhere,app", "sameuser", "\"all\"", "replication", "nothing"]);
        let user = *random.of(&["all", "all", "app", "scram_user, hashed_user", "nobody_s", "\"all\"", "somebody"]);
        let address = *random.of(&[
            "127.0.0.1/32",
            "127.0.0.0/8",
            "all",
            "0.0.0.0/0",
            "127.0.0.1 255.255.255.255",
            "samehost",
            "samenet",
            "10.0.0.0/8",
            "::1/128",
            "::/0",
            "127.0.0.2/32",
            "127.0.0.1/31",
        ]);
        let method = match kind {
            "hostssl" => *random.of(&[
                "trust",
                "reject",
                "md5",
                "scram-sha-256",
                "cert",
                "cert map=alias",
                "trust clientcert=verify-ca",
                "trust clientcert=verify-full",
                "scram-sha-256 clientcert=verify-full",
                "md5 clientcert=verify-ca",
                "cert map=missing",
            ]),
            _ => *random.of(&["trust", "trust", "reject", "md5", "scram-sha-256", "scram-sha-256"]),
        };
        writeln!(rules, "{kind} {database} {user} {address} {method}").unwrap();
    }
    rules
}

/// The files of rules that are tried, if nobody says by `SLUICE_HBA_FILES`.
const FILES: u32 = 10;

const MAPS: &str = "alias app scram_user\nalias app nobody_s\nalias \"/^(.*)p$\" hashed_user\n";

fn whoever_is_let_in_by_postgresql_is_let_in(case: Case) {
    let server = server().lock().unwrap();
    let users = users(&server);
    let config = |rules: &str| {
        PoolConfig::new(SLUICE, case, &server)
            .tls(
                Certificates::shared(),
                &format!("client_ca_file = {:?}", Certificates::shared().path("authority.crt")),
            )
            .auth(Auth::Rules(rules.to_owned(), MAPS.to_owned(), users.clone()))
            .size(2)
    };
    let pool = config("host all all all trust\n").start();
    let mut random = Random::new(case.driver as u64);
    let ways = ways();
    let files = env::var("SLUICE_HBA_FILES").map_or(FILES, |text| text.parse().unwrap());
    for _ in 0..files {
        let rules = rules(&mut random);
        set_rules(&server, &rules, MAPS);
        let said = pool.reload(&config(&rules));
        assert!(!said.contains("not reloaded"), "{rules}{said}");
        for _ in 0..8 {
            let (user, way) = (*random.of(&USERS), random.of(&ways));
            let database = *random.of(&["app", "app", "elsewhere"]);
            let [alone, pooled] = [server.port(), pool.address().port()].map(|port| log_in(port, user, database, way));
            assert_eq!(pooled, alone, "{user} in {database} by {way}:\n{rules}");
        }
    }
}

fn rules_are_read_again(case: Case) {
    let server = server().lock().unwrap();
    let config = |rules: &str| {
        let auth = Auth::Rules(rules.to_owned(), String::new(), vec![("app".to_owned(), "secret".to_owned())]);
        PoolConfig::new(SLUICE, case, &server).auth(auth)
    };
    set_rules(&server, "host all all all trust\n", "");
    let pool = config("host all app 127.0.0.1/32 trust\n").start();
    let let_in = "app|app\n";
    assert_eq!(log_in(pool.address().port(), "app", "app", ""), let_in);
    assert!(pool.reload(&config("host all app 127.0.0.1/32 reject\n")).contains("auth.hba_file"));
    let refused = log_in(pool.address().port(), "app", "app", "");
    assert!(refused.contains("pg_hba.conf rejects connection for host \"127.0.0.1\""), "{refused}");
    // What is wrong is told by line, and nothing changes.
    let said = pool.reload(&config("host all all 127.0.0.1/32 trust\nhost all all 127.0.0.1/64 ldap\n"));
    assert!(said.contains("not reloaded") && said.contains("pg_hba.conf:2"), "{said}");
    let said = pool.reload(&config("host all +app all trust\n"));
    assert!(said.contains("name the users themselves"), "{said}");
    assert_eq!(log_in(pool.address().port(), "app", "app", ""), refused);
}
