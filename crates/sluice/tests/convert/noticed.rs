//! What clients notice of PgBouncer and of Sluice by the converted file: the same, unless the difference is said.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sluice_testkit::Certificates;

use super::widened::Pair;

const USERS: &str = "\"ann\" \"secret\"\n\"app\" \"secret\"\n";

/// psql's answer, or the code of the error at its log-in or of its query.
fn asked(port: u16, to: &str, sql: &str) -> String {
    let to = format!("host=127.0.0.1 port={port} gssencmode=disable {to}");
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-At", "-v", "VERBOSITY=verbose", "-c", sql, &to]).stdin(Stdio::null());
    let output = psql.env("PGCONNECT_TIMEOUT", "10").output().unwrap();
    let words = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    if output.status.success() { words[0].clone() } else { format!("refused: {}", words[1]) }
}

impl Pair {
    /// The answers of both.
    fn ask(&self, to: &str, sql: &str) -> [String; 2] {
        self.ports.map(|port| asked(port, to, sql))
    }

    fn notes(&self, part: &str) -> usize {
        self.notes.iter().filter(|note| note.contains(part)).count()
    }
}

#[test]
fn parameters_that_pgbouncer_drops_are_applied() {
    let settings =
        "auth_type = trust\nauth_file = @/users.txt\nignore_startup_parameters = extra_float_digits, options";
    let pair = Pair::start(settings, &[("users.txt", USERS)]);
    let ask = |options: &str| pair.ask(&format!("user=ann dbname=forced options='{options}'"), "SHOW search_path");
    assert_eq!(ask("-c search_path=pg_catalog"), ["\"$user\", public", "pg_catalog"]);
    let [dropped, refused] = ask("-c log_statement=none");
    assert_eq!(dropped, "\"$user\", public");
    assert!(refused.contains("permission denied to set parameter"), "{refused}");
    assert_eq!(pair.notes("drops what clients send for options,"), 1, "{:?}", pair.notes);
}

#[test]
fn simple_queries_are_let_through() {
    let settings = "auth_type = trust\nauth_file = @/users.txt\ndisable_pqexec = 1";
    let pair = Pair::start(settings, &[("users.txt", USERS)]);
    let [refused, answered] = pair.ask("user=ann dbname=forced", "SELECT 1");
    assert!(refused.starts_with("refused: ") && answered == "1", "{refused} {answered}");
    assert_eq!(pair.notes("simple queries"), 1, "{:?}", pair.notes);
}

#[test]
fn a_server_that_is_not_there_is_said_sooner() {
    let settings = "auth_type = trust\nauth_file = @/users.txt\nquery_wait_timeout = 4\nserver_connect_timeout = 1\n\
                    [databases]\nnowhere = host=127.0.0.1 port=1 user=ann";
    let pair = Pair::start(settings, &[("users.txt", USERS)]);
    let waits = pair.ports.map(|port| {
        let begun = Instant::now();
        let said = asked(port, "user=ann dbname=nowhere", "SELECT 1");
        assert!(said.starts_with("refused: "), "{said}");
        begun.elapsed()
    });
    assert!(waits[0] > Duration::from_secs(3) && waits[1] < Duration::from_secs(3), "{waits:?}");
    assert_eq!(pair.notes("connect_timeout, 1s"), 1, "{:?}", pair.notes);
}

#[test]
fn certificates_that_clients_need_not_show_are_checked() {
    let certificates = Certificates::shared();
    certificates.make("new App capitals '' csr; sign capitals; chmod 600 capitals.key");
    let read = |name: &str| fs::read_to_string(certificates.path(name)).unwrap();
    fs::set_permissions(certificates.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let files = ["server.crt", "server.key", "authority.crt"].map(|name| (name, read(name)));
    let rules = "hostssl forced app 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 md5\n";
    let mut all: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    all.extend([("users.txt", USERS), ("hba.conf", rules)]);
    let settings = "auth_type = hba\nauth_hba_file = @/hba.conf\nauth_file = @/users.txt\n\
                    client_tls_sslmode = require\nclient_tls_cert_file = @/server.crt\n\
                    client_tls_key_file = @/server.key\nclient_tls_ca_file = @/authority.crt";
    let pair = Pair::start(settings, &all);
    for (user, shown, expected) in [
        ("app", "client", [true; 2]),
        ("app", "none", [false; 2]),
        ("app", "other", [false; 2]),
        ("ann", "client", [true; 2]),
        ("ann", "none", [true; 2]),
        // It is none of that authority's.
        ("ann", "other", [false; 2]),
        // PgBouncer does not mind its capital letter.
        ("app", "capitals", [true, false]),
    ] {
        let path = |ending: &str| certificates.path(&format!("{shown}.{ending}")).display().to_string();
        let to = format!(
            "user={user} password=secret dbname=forced sslmode=require sslcert={} sslkey={}",
            path("crt"),
            path("key")
        );
        let answers = pair.ask(&to, "SELECT 1");
        assert_eq!(answers.each_ref().map(|answer| answer == "1"), expected, "{user} {shown}: {answers:?}");
    }
    assert_eq!(pair.notes("alternative names, too"), 1, "{:?}", pair.notes);
}

#[test]
fn what_is_included_behind_a_tab_is_read() {
    let files = [("users.txt", USERS), ("more.ini", "auth_type = trust\n")];
    let pair = Pair::start("auth_type = md5\nauth_file = @/users.txt\n%include\t@/more.ini", &files);
    assert_eq!(pair.ask("user=ann dbname=forced", "SELECT 1"), ["1", "1"]);
}

#[test]
fn a_limit_of_0_at_a_database_is_that_of_all() {
    let settings = "auth_type = trust\nauth_file = @/users.txt\nmax_db_connections = 2\nquery_wait_timeout = 1";
    let pair = Pair::of(["max_db_connections=0", ""], settings, &[("users.txt", USERS)]);
    for port in pair.ports {
        let mut config = postgres::Config::new();
        config.host("127.0.0.1").port(port).user("ann").dbname("forced");
        let ask = || {
            let mut client = config.connect(postgres::NoTls)?;
            client.simple_query("SELECT 1").map(|_| client)
        };
        let held = [ask().unwrap(), ask().unwrap()];
        assert!(ask().is_err(), "a third server, {}", port == pair.ports[1]);
        drop(held);
    }
}
