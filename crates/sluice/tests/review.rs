//! `sluice review` as a user meets it: the real command, with real servers, through the pool, and with files.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use nix::unistd::Uid;
use sluice_testkit::{Case, Certificates, Driver, Mode, PoolConfig, TestServer, Version, eventually, traps};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
const REPORT_OF_2015: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sluice-lab/reference/settings_review_2015.csv");

/// The command without anybody's own variables.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(SLUICE);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG").env("HOME", "/nonexistent").stdin(Stdio::null());
    command.arg("review").args(arguments);
    command
}

/// The command's output; it must have succeeded.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The command's complaint; it must have failed.
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    errors(&output)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn socket_of(server: &TestServer, user: &str) -> String {
    format!("host={} port={} user={user} dbname=postgres", server.socket_dir().display(), server.port())
}

/// A local server: memory and processors are this machine's.
#[test]
fn a_local_server() {
    for version in [Version::V15, Version::V18] {
        let text = printed(&mut command(&[&socket_of(TestServer::shared(version), "postgres")]));
        // The line may be broken there.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("PostgreSQL 1") && text.contains(" to change, "), "{text}");
        assert!(text.contains("\ncheckpoint_timeout ") && !text.contains("needs --memory"), "{text}");
    }
}

/// The variables of libpq decide what a string leaves open.
#[test]
fn the_environment_says_where() {
    let server = TestServer::shared(Version::V15);
    let mut command = command(&["--format", "json"]);
    command.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
    command.env("PGUSER", "app").env("PGDATABASE", "postgres");
    let text = printed(&mut command);
    assert!(text.contains("\"name\": \"shared_buffers\"") && text.contains("\"rules_of\": 15"), "{text}");
}

/// A password from a file, such as `sluice up` leaves.
#[test]
fn a_password_file() {
    let server = TestServer::start(Version::V18, &[]);
    server.execute("CREATE ROLE reviewer LOGIN PASSWORD 'se:cret'");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pgpass");
    let socket = server.socket_dir().display().to_string();
    fs::write(&file, format!("{}:5432:*:reviewer:se\\:cret\n", socket.replace(':', "\\:"))).unwrap();
    let target = socket_of(&server, "reviewer");
    let with_file = || {
        let mut command = command(&[&target]);
        command.env("PGPASSFILE", &file);
        command
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = complaint(&mut with_file());
    assert!(error.contains("open to others") && error.contains("chmod 0600"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(printed(&mut with_file()).contains(" to change, "));
    let error = complaint(&mut command(&[&target]));
    assert!(error.contains("PGPASSFILE") && !error.contains("se:cret"), "{error}");
}

/// As `sslmode` says: encryption alone, or with a look at who is there.
#[test]
fn by_tls() {
    let server = TestServer::start_with_tls(Version::V15, &[]);
    let (port, authority) = (server.port(), Certificates::shared().path("authority.crt"));
    let authority = authority.display();
    let target = |host: &str, more: &str| format!("host={host} port={port} user=app dbname=postgres {more}");
    for dsn in [
        target("127.0.0.1", ""),
        target("127.0.0.1", "sslmode=require"),
        target("127.0.0.1", &format!("sslmode=verify-ca sslrootcert={authority}")),
        format!("postgresql://app@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={authority}"),
    ] {
        assert!(printed(&mut command(&[&dsn])).contains(" to change, "), "{dsn}");
    }
    let others = Certificates::shared().path("other.crt");
    for (dsn, expected) in [
        (target("127.0.0.1", "sslmode=disable"), "no encryption"),
        (target("127.0.0.1", &format!("sslmode=verify-full sslrootcert={authority}")), "certificate"),
        (target("localhost", &format!("sslmode=verify-ca sslrootcert={}", others.display())), "name its authority"),
        (target("localhost", "sslmode=verify-full"), "authorit"),
        (target("localhost", "sslcert=me.crt"), "the option sslcert"),
    ] {
        let error = complaint(&mut command(&[&dsn]));
        assert!(error.contains(expected), "{dsn}: {error}");
    }
    let plain = socket_of(TestServer::shared(Version::V15), "postgres") + " sslmode=disable";
    assert!(printed(&mut command(&[&plain])).contains(" to change, "));
}

/// The pool gives a server for each query by itself.
#[test]
fn through_the_pool() {
    let server = TestServer::shared(Version::V18);
    let database = server.database();
    for mode in [Mode::Transaction, Mode::Session] {
        let pool = PoolConfig::new(SLUICE, Case::new(Version::V18, Driver::Epoll, mode), server).start();
        let port = pool.address().port();
        let text = printed(&mut command(&[&format!("postgresql://app@127.0.0.1:{port}/{}", database.name), "--pool"]));
        assert!(text.contains("behind a pool") && text.contains("\nrandom_page_cost "), "{text}");
    }
    let pool = PoolConfig::new(SLUICE, Case::new(Version::V18, Driver::Epoll, Mode::Transaction), server);
    let pool = pool.limit("[admin]\nusers = [\"app\"]").start();
    let port = pool.address().port();
    let error = complaint(&mut command(&[&format!("postgresql://app@127.0.0.1:{port}/pgbouncer")]));
    assert!(error.contains("admin console") && error.contains("name a database behind the pool"), "{error}");
    assert!(!error.contains("is this PostgreSQL"), "{error}");
}

/// No function of a database's owner is run by a superuser who reviews it, straight or through a PgBouncer, which takes
/// no `search_path` from its clients.
#[test]
fn a_database_s_own_code_is_not_run() {
    let server = TestServer::start(Version::V15, &[]);
    traps::set(&server);
    let bouncer = PgBouncer::start(&server);
    for path in traps::PATHS {
        traps::set_path(&server, path);
        for (dir, port) in [(server.socket_dir(), server.port()), (bouncer.dir.path(), bouncer.port)] {
            let target = format!("host={} port={port} user=boss dbname=shop", dir.display());
            assert!(printed(&mut command(&[&target])).contains(" to change, "));
            assert!(!traps::has_caught(&server), "{path}, {target}");
        }
    }
}

/// A PgBouncer on a socket, for local users.
struct PgBouncer {
    process: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl PgBouncer {
    fn start(server: &TestServer) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), 6432);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let config = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_port = {port}\nunix_socket_dir = {}\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n",
            server.socket_dir().display(),
            server.port(),
            dir.path().display(),
            dir.path().join("users").display(),
        );
        fs::write(&config, text).unwrap();
        fs::write(dir.path().join("users"), "\"boss\" \"\"\n").unwrap();
        // It refuses to run as root.
        let mut command = Command::new("pgbouncer");
        if Uid::effective().is_root() {
            command.args(["-u", "postgres"]);
        }
        command.arg("-q").arg(&config).stdin(Stdio::null());
        let process = command.spawn().unwrap();
        eventually("PgBouncer listens", || dir.path().join(format!(".s.PGSQL.{port}")).exists());
        Self { process, dir, port }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The report of 2015, and a copy of `pg_settings`.
#[test]
fn files() {
    let sized = ["--memory", "1GB", "--cpus", "2", "--iops", "400", "--workload", "oltp"];
    let text = printed(command(&["--csv", REPORT_OF_2015]).args(sized));
    assert!(text.contains("PostgreSQL 9.4.1") && text.contains("Today agrees: "), "{text}");
    assert!(printed(&mut command(&["--csv", REPORT_OF_2015])).contains("needs --memory"));

    let server = TestServer::shared(Version::V15);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("settings.csv");
    copy_of_settings(server, &file);
    let file = file.display().to_string();
    let from_file = printed(command(&["--csv", &file, "--format", "json"]).args(sized));
    let live = printed(command(&[&socket_of(server, "postgres"), "--format", "json"]).args(sized));
    let names = |text: &str| text.lines().filter(|line| line.contains("\"name\": ")).count();
    assert_eq!((names(&from_file), from_file.contains("\"Unknown\"")), (names(&live), false));
}

fn copy_of_settings(server: &TestServer, file: &Path) {
    let mut psql = server.program("psql");
    psql.args(["-X", "-q", "-U", "postgres", "-d", "postgres", "-h"]).arg(server.socket_dir());
    psql.arg("-c").arg(format!("\\copy (select * from pg_settings) to '{}' csv header", file.display()));
    assert!(psql.status().unwrap().success());
}

/// Each format to a file.
#[test]
fn formats_and_files() {
    let place = tempfile::tempdir().unwrap();
    for (format, begin) in
        [("table", "/"), ("markdown", "# Settings review"), ("html", "<!doctype html>"), ("json", "{"), ("sql", "-- ")]
    {
        let file = place.path().join(format);
        let printed = printed(command(&["--csv", REPORT_OF_2015, "--format", format, "--output"]).arg(&file));
        let text = fs::read_to_string(&file).unwrap();
        assert!(printed.is_empty() && text.starts_with(begin), "{format}: {printed}{text}");
    }
}

/// Every complaint says what to do.
#[test]
fn complaints() {
    for (arguments, expected) in [
        (&["hots=db"][..], "write it as postgresql://user@host:5432/database"),
        (&["host=127.0.0.1 port=1 user=u"], "does the server run, and listen there?"),
        (&["--csv", "/nonexistent.csv"], "cannot read /nonexistent.csv"),
        (&["--csv", "/nonexistent.csv"], "make the file in psql by: \\copy (select * from pg_settings)"),
        (&["--memory", "1"], "a size with its unit is needed"),
        (&["--workload", "games"], "oltp, web, analytics, mixed"),
    ] {
        let error = complaint(&mut command(arguments));
        assert!(error.contains(expected), "{error}\nwanted {expected}");
    }
    let server = TestServer::shared(Version::V15);
    let error = complaint(&mut command(&[&socket_of(server, "nobody_knows_me")]));
    assert!(error.contains("cannot connect to postgres on /"), "{error}");
}
