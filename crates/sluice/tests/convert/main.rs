//! A configuration of PgBouncer's, by which PgBouncer and Sluice both serve.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod noticed;
mod random;
mod upstream;
mod widened;

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::{Child, Command, Stdio},
};

use postgres::SimpleQueryMessage;
use sluice_testkit::{TestServer, Version, eventually, port::free_port};

/// A pool of either kind, which ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listens(port: u16) {
    eventually("a pool that listens", || TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_ok());
}

/// The answer that a client gets there: a row, or the error.
fn answer(port: u16, user: &str, password: &str, database: &str) -> String {
    let mut config = postgres::Config::new();
    config.host("127.0.0.1").port(port).user(user).password(password).dbname(database);
    let asked = config.connect(postgres::NoTls).and_then(|mut client| {
        let row =
            client.query_one("SELECT current_database()::text || ' ' || current_user || ' ' || $1::text", &[&"x"])?;
        Ok(row.get::<_, String>(0))
    });
    asked.unwrap_or_else(|error| match error.as_db_error() {
        Some(error) => format!("refused with {}", error.code().code()),
        None => format!("no answer: {error}"),
    })
}

/// The columns of a table that the admin console shows.
fn columns(port: u16, password: &str, table: &str) -> Vec<String> {
    let mut config = postgres::Config::new();
    config.host("127.0.0.1").port(port).user("converted").password(password).dbname("pgbouncer");
    let messages = config.connect(postgres::NoTls).unwrap().simple_query(&format!("SHOW {table}")).unwrap();
    let columns = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::RowDescription(columns) => Some(columns.iter().map(|it| it.name().to_owned()).collect()),
        _ => None,
    });
    columns.unwrap_or_default()
}

fn sluice(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments);
    command
}

fn write_for_postgres(path: &Path, text: &str, owner: &Path) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let uid = fs::metadata(owner).unwrap().uid();
    chown(path, Some(uid), None).unwrap();
}

/// PgBouncer by a file of its own, as the user to whom that file belongs: it refuses to run as root.
fn bouncer(ini: &Path, owner: &Path) -> Running {
    let mut bouncer = Command::new("setpriv");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let uid = fs::metadata(owner).unwrap().uid().to_string();
        bouncer.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    }
    bouncer.args(["--pdeathsig", "KILL", "--", "/usr/sbin/pgbouncer"]).arg(ini);
    Running(bouncer.spawn().unwrap())
}

#[test]
fn both_serve_by_it() {
    let server = TestServer::shared(Version::V15);
    let database = server.database();
    server.execute(&format!("CREATE ROLE converted LOGIN PASSWORD 'it''s {}'", database.name));
    let password = format!("it's {}", database.name);
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [users, theirs, ini, toml] =
        ["users.txt", "theirs.ini", "pgbouncer.ini", "sluice.toml"].map(|name| place.path().join(name));
    // What PostgreSQL runs as.
    let owner = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
    write_for_postgres(&users, &format!("\"converted\" \"{password}\"\n"), &owner);
    let [bouncers, sluices] = [free_port(), free_port()];
    let written = |port: u16| {
        format!(
            "[databases]\nother = host={host} port={at} dbname={name}\n* = host={host} port={at}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {dir}\nauth_type = scram-sha-256\n\
             auth_file = {users}\npool_mode = session\nmax_client_conn = 50\ndefault_pool_size = 5\n\
             server_reset_query = DISCARD ALL\nignore_startup_parameters = extra_float_digits\n\
             server_idle_timeout = 2\nserver_login_retry = 1\nquery_wait_timeout = 9\nadmin_users = somebody converted\n",
            host = server.socket_dir().display(),
            at = server.port(),
            name = database.name,
            dir = place.path().display(),
            users = users.display(),
        )
    };
    write_for_postgres(&theirs, &written(bouncers), &owner);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let _bouncer = bouncer(&theirs, &owner);

    write_for_postgres(&ini, &written(sluices), &owner);
    let arguments = ["convert", ini.to_str().unwrap(), "--output", toml.to_str().unwrap()];
    let converted = sluice(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&converted.stderr).into_owned();
    assert!(converted.status.success(), "{said}");
    assert!(said.contains("not needed: line 13, server_reset_query: "), "{said}");
    let noticed: Vec<_> = said.lines().filter(|line| line.contains("not as before")).collect();
    assert!(noticed.len() == 1 && noticed[0].contains("takes a server with its log-in"), "{said}");
    assert_eq!(fs::metadata(&toml).unwrap().permissions().mode() & 0o777, 0o600);
    // It overwrites nothing.
    let again = sluice(&arguments).output().unwrap();
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("sluice.toml"));
    assert!(sluice(&["check", "-c", toml.to_str().unwrap()]).status().unwrap().success());
    let serving = sluice(&["serve", "-c", toml.to_str().unwrap()]).stderr(Stdio::null()).spawn();
    let _sluice = Running(serving.unwrap());

    listens(bouncers);
    listens(sluices);
    for (user, password, name, expected) in [
        ("converted", &*password, &*database.name, format!("{} converted x", database.name)),
        ("converted", &password, "other", format!("{} converted x", database.name)),
    ] {
        for port in [bouncers, sluices] {
            assert_eq!(answer(port, user, password, name), expected, "{user} {name}, {}", port == sluices);
        }
    }
    for table in
        ["DATABASES", "POOLS", "STATS", "STATS_TOTALS", "STATS_AVERAGES", "LISTS", "USERS", "CONFIG", "VERSION"]
    {
        let columns = |port| columns(port, &password, table);
        assert_eq!(columns(sluices), columns(bouncers), "{table}");
    }
    // PgBouncer's code for a wrong password is its own; Sluice's is PostgreSQL's.
    assert!(answer(bouncers, "converted", "wrong", "other").starts_with("refused with "));
    assert_eq!(answer(sluices, "converted", "wrong", "other"), "refused with 28P01");
}

#[test]
fn debians_own_file_is_read() {
    let ini = Path::new("/etc/pgbouncer/pgbouncer.ini");
    let converted = sluice(&["convert", ini.to_str().unwrap()]).output().unwrap();
    let (toml, said) = (String::from_utf8_lossy(&converted.stdout), String::from_utf8_lossy(&converted.stderr));
    assert!(converted.status.success(), "{said}");
    // localhost has ::1 besides on some machines.
    assert!(toml.contains("listen = [\"127.0.0.1:6432\"") && toml.contains("mode = \"session\""), "{toml}");
}
