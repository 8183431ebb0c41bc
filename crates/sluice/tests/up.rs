//! `sluice up` as a user meets it: the real command with the real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{Up, eventually, failure, ordinary_user, place, postmaster, processes_on, sluice};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

#[test]
fn up_twice_with_a_crash_and_an_orderly_end() {
    let place = place();
    let data = place.path().join("da ta");
    let mut up = Up::start(&mut sluice(&data));
    up.line("creating the data directory");
    let typed = up.line("PGPASSFILE=");
    assert!(typed.contains(&format!("PGPASSFILE='{}/pgpass' psql -h 127.0.0.1 -p ", data.display())), "{typed}");
    assert!(typed.ends_with(" -U sluice sluice"), "{typed}");
    let verified = up.line("sslmode=verify-full");
    assert!(verified.ends_with(&format!(" sslrootcert='{}/server.crt'", data.display())), "{verified}");
    let superuser = up.line("Superuser");
    assert!(superuser.contains(&format!(" -h '{}/run' ", data.display())), "{superuser}");
    up.ready();
    for file in ["password", "pgpass", "auth-password", "sluice.toml"] {
        assert_eq!(fs::metadata(data.join(file)).unwrap().mode() & 0o777, 0o600, "{file}");
    }
    let password = fs::read_to_string(data.join("password")).unwrap();
    assert!(password.trim().len() >= 24);

    kill(postmaster(&data), Signal::SIGKILL).unwrap();
    up.line("PostgreSQL ended by itself");
    up.line("PostgreSQL is ready");

    up.signal(Signal::SIGTERM);
    up.line("PostgreSQL has stopped");
    assert!(up.wait().success());
    assert_eq!(processes_on(&data.join("pgdata")), 0);

    let mut up = Up::start(&mut sluice(&data));
    up.ready();
    assert!(!up.seen.iter().any(|line| line.contains("creating")), "{:?}", up.seen);
    assert_eq!(fs::read_to_string(data.join("password")).unwrap(), password);
    up.signal(Signal::SIGINT);
    assert!(up.wait().success());
}

#[test]
fn the_printed_line_works() {
    let place = place();
    let mut up = Up::start(&mut sluice(&place.path().join("data")));
    let typed = up.line("PGPASSFILE=");
    up.ready();
    let output = psql(&typed, "-c 'SELECT current_user'").wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sluice\n", "{typed}: {errors}");
}

/// The output of psql.
fn printed(typed: &str, query: &str) -> String {
    let output = psql(typed, &format!("-c \"{query}\"")).wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_database_is_dumped_and_restored_by_its_owner() {
    const BIN: &str = "/usr/lib/postgresql/15/bin";
    let place = place();
    let data = place.path().join("data");
    let start = || {
        let mut command = sluice(&data);
        Up::start(command.args(["--pg-bin", BIN]))
    };
    let mut up = start();
    let superuser = up.line("Superuser").replace("Superuser", "");
    up.line("Gate      on");
    up.ready();
    let superuser = |database: &str| format!("{} {database}", superuser.trim());
    // A cluster of before, whose template has given its comment to the databases made of it.
    let before = "COMMENT ON EXTENSION sluice IS 'admission gate: how many transactions run at once'";
    for database in ["template1", "sluice"] {
        assert_eq!(printed(&superuser(database), before), "COMMENT\n");
    }
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
    let mut up = start();
    let typed = up.line("PGPASSFILE=");
    up.ready();

    assert_eq!(printed(&superuser("postgres"), "ALTER ROLE sluice CREATEDB"), "ALTER ROLE\n");
    // `PGPASSFILE=… psql -h … -p … -U sluice sluice`, for the other programs.
    let typed = typed.trim().strip_suffix(" sluice").unwrap();
    let (pass, server) = typed.split_once(" psql ").unwrap();
    let run = |command: &str| {
        let script = format!("export {pass}; cd {} && {command}", place.path().display());
        let output = Command::new("/bin/sh").args(["-ec", &script]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        said
    };
    for database in ["first", "second", "third"] {
        run(&format!("{BIN}/createdb {server} {database}"));
    }
    run(&format!("psql {server} -c 'CREATE TABLE t AS SELECT 4711 AS n; CREATE INDEX ON t (n)' first"));
    run(&format!("{BIN}/pg_dump {server} -Fc -f d.dump first && {BIN}/pg_dump {server} -f d.sql first"));
    assert_eq!(run(&format!("{BIN}/pg_restore {server} -j 4 -d second d.dump")), "");
    run(&format!("psql {server} -v ON_ERROR_STOP=1 -q -f d.sql third"));
    for database in ["second", "third"] {
        assert_eq!(run(&format!("psql {server} -XAtc 'SELECT n FROM t' {database}")), "4711\n");
    }
    // As docs/operate.md says, for a PostgreSQL without the extension: nothing of it is left.
    let list = format!("{BIN}/pg_restore -l d.dump | grep -v ' EXTENSION - sluice' >d.list");
    assert!(!run(&format!("{list}; {BIN}/pg_restore -L d.list -f - d.dump")).contains("CREATE EXTENSION"));
    let left = run("sed '/^CREATE EXTENSION IF NOT EXISTS sluice /d' d.sql");
    assert!(left.contains("4711") && !left.contains("CREATE EXTENSION"), "{left}");
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
}

/// With Debian's PostgreSQL, for which `scripts/test-deps.sh` has installed the gate.
#[test]
fn a_certificate_of_its_own_is_offered_and_stays() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(&mut sluice(&data));
    let typed = up.line("PGPASSFILE=");
    up.line("sslmode=verify-full");
    up.ready();
    let verified = format!("PGSSLMODE=verify-full PGSSLROOTCERT={} {typed}", data.join("server.crt").display());
    let output = psql(&verified, "-c '\\conninfo'").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("SSL connection (protocol: TLSv1.3"), "{said}");
    let clear = psql(&format!("PGSSLMODE=disable {typed}"), "-c 'SELECT 1'").wait_with_output().unwrap();
    assert_eq!(clear.stdout, b"1\n");

    let certificate = fs::read(data.join("server.crt")).unwrap();
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
    let mut up = Up::start(&mut sluice(&data));
    up.ready();
    assert_eq!(fs::read(data.join("server.crt")).unwrap(), certificate);
}

#[test]
fn the_gate_is_on_unless_an_operator_takes_it_out() {
    let place = place();
    let data = place.path().join("data");
    let command = || {
        let mut command = sluice(&data);
        command.args(["--pg-bin", "/usr/lib/postgresql/15/bin"]);
        command
    };
    let mut up = Up::start(&mut command());
    let typed = up.line("PGPASSFILE=");
    up.line("Gate      on");
    up.ready();
    let query = "SELECT bool_and(is_auto AND concurrency > 0) FROM sluice_gate WHERE name <> 'bigquery'";
    assert_eq!(printed(&typed, query), "t\n");
    assert_eq!(
        printed(&typed, "BEGIN; SELECT running FROM sluice_gate WHERE name = 'transaction'; COMMIT"),
        "BEGIN\n1\nCOMMIT\n"
    );
    let console = typed.trim_end().strip_suffix(" sluice").unwrap().to_owned() + " pgbouncer";
    assert!(printed(&console, "SHOW POOLS").contains("sluice|sluice|"));
    assert_eq!(printed(&typed, "SELECT host(inet_client_addr())"), "127.0.0.1\n", "the pool tells where psql is");
    let secret = data.join("sluice.secret");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());

    // An earlier version kept it there, in each base backup.
    let old = data.join("pgdata/sluice.secret");
    fs::copy(&secret, &old).unwrap();

    let mut conf = fs::OpenOptions::new().append(true).open(data.join("pgdata/postgresql.conf")).unwrap();
    writeln!(conf, "shared_preload_libraries = ''").unwrap();
    let mut up = Up::start(&mut command());
    let typed = up.line("PGPASSFILE=");
    up.line("Gate      off");
    up.ready();
    assert!(!old.exists() && secret.exists());
    assert_eq!(printed(&typed, "SELECT 1"), "1\n");
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
}

/// The first database is the first user's, who may have a superuser that enters it find his own functions there.
#[test]
fn the_first_user_gains_nothing_by_the_next_start_and_does_not_prevent_it() {
    const TRAP: &str = "
        CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO PUBLIC;
        CREATE FUNCTION trap.eq(a name, b name) RETURNS bool LANGUAGE plpgsql AS ' BEGIN
            IF (SELECT rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)
            THEN EXECUTE ''ALTER ROLE sluice SUPERUSER''; END IF;
            RETURN a OPERATOR(pg_catalog.=) b; END ';
        CREATE OPERATOR trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = trap.eq);
        ALTER DATABASE sluice SET search_path = trap, pg_catalog";
    const IS_SUPERUSER: &str = "SELECT rolsuper FROM pg_roles WHERE rolname OPERATOR(pg_catalog.=) 'sluice'";
    let place = place();
    let data = place.path().join("data");
    let does = |database: &str, sql: &str| {
        let mut command = sluice(&data);
        let mut up = Up::start(command.args(["--pg-bin", "/usr/lib/postgresql/15/bin"]));
        let typed = up.line("PGPASSFILE=");
        let gate = up.line("Gate ") + &up.line("");
        up.ready();
        let typed = typed.trim_end().strip_suffix(" sluice").unwrap().to_owned();
        let did = printed(&format!("{typed} {database}"), sql);
        up.signal(Signal::SIGTERM);
        assert!(up.wait().success());
        (gate, did)
    };
    let (gate, did) = does("sluice", TRAP);
    assert!(gate.contains("on:") && did.ends_with("ALTER DATABASE\n"), "{gate}{did}");
    assert_eq!(does("sluice", IS_SUPERUSER).1, "f\n");
    assert_eq!(does("postgres", "ALTER DATABASE sluice ALLOW_CONNECTIONS false").1, "ALTER DATABASE\n");
    let (gate, is_superuser) = does("postgres", IS_SUPERUSER);
    assert_eq!(is_superuser, "f\n");
    assert!(
        gate.contains("on:") && gate.contains("database \"sluice\" is not currently accepting connections"),
        "{gate}"
    );
}

#[test]
fn killed_it_leaves_nothing_behind() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(&mut sluice(&data));
    up.ready();
    up.signal(Signal::SIGKILL);
    up.wait();
    // The next one need not wait by hand.
    let mut next = Up::start(&mut sluice(&data));
    next.ready();
    next.signal(Signal::SIGTERM);
    assert!(next.wait().success());

    let mut last = Up::start(&mut sluice(&data));
    last.ready();
    last.signal(Signal::SIGKILL);
    last.wait();
    eventually("PostgreSQL's end", || processes_on(&data.join("pgdata")) == 0);
}

/// A stopped backend can't follow a fast shutdown; without haste that takes a minute.
#[test]
fn further_signals_hasten() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(&mut sluice(&data));
    up.ready();
    let client = Client::connect(&data);
    kill(client.backend, Signal::SIGSTOP).unwrap();
    up.signal(Signal::SIGINT);
    up.line("stopping PostgreSQL (fast shutdown)");
    up.signal(Signal::SIGINT);
    up.line("stopping PostgreSQL (immediate shutdown)");
    up.wait();
    eventually("PostgreSQL's end", || processes_on(&data.join("pgdata")) == 0);
}

/// A psql straight on the server, which stays.
struct Client {
    psql: Child,
    backend: Pid,
}

impl Client {
    fn connect(data: &Path) -> Self {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-At", "-U", "postgres", "-d", "postgres", "-c", "SELECT pg_backend_pid()"]);
        psql.args(["-c", "SELECT pg_sleep(600)"]).arg("-h").arg(data.join("run"));
        let mut psql = psql.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(psql.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { psql, backend: Pid::from_raw(line.trim().parse().unwrap()) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// psql as printed, with more arguments.
fn psql(typed: &str, more: &str) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{typed} -w -X -At {more}")]);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether somebody runs pg_sleep on the server.
fn is_asleep(data: &Path) -> bool {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let mut psql = Command::new("psql");
    psql.args(["-X", "-At", "-U", "postgres", "-d", "postgres", "-c", query]).arg("-h").arg(data.join("run"));
    psql.output().unwrap().stdout == b"1\n"
}

#[test]
fn transactions_finish_unless_hastened() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(&mut sluice(&data));
    let typed = up.line("PGPASSFILE=");
    up.ready();
    let in_transaction = psql(&typed, "-c 'BEGIN; SELECT pg_sleep(5); CREATE TABLE finished (); COMMIT'");
    eventually("a transaction", || is_asleep(&data));
    up.signal(Signal::SIGINT);
    up.line("stopping: transactions may finish");
    let output = in_transaction.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(up.wait().success());

    let mut up = Up::start(&mut sluice(&data));
    let typed = up.line("PGPASSFILE=");
    up.ready();
    let output = psql(&typed, "-c 'SELECT count(*) FROM finished'").wait_with_output().unwrap();
    assert_eq!(output.stdout, b"0\n");
    let long = psql(&typed, "-c 'SELECT pg_sleep(600)'");
    eventually("a query", || is_asleep(&data));
    let begin = Instant::now();
    up.signal(Signal::SIGINT);
    up.line("stopping: transactions may finish");
    up.signal(Signal::SIGINT);
    assert!(!long.wait_with_output().unwrap().status.success());
    up.wait();
    // The grace period alone takes 10 s.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

#[test]
fn interrupted_while_creating_it_starts_afresh() {
    let place = place();
    let data = place.path().join("data");
    let mut up = Up::start(&mut sluice(&data));
    up.line("creating the data directory");
    up.signal(Signal::SIGINT);
    up.line("interrupted while starting");
    assert_eq!(up.wait().code(), Some(1));
    assert!(!data.join("pgdata").exists());
    let mut up = Up::start(&mut sluice(&data));
    up.ready();
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
}

#[test]
fn check_tells_good_from_bad() {
    let place = place();
    let file = place.path().join("sluice.toml");
    let check = || Command::new(env!("CARGO_BIN_EXE_sluice")).args(["check", "-c"]).arg(&file).output().unwrap();
    fs::write(&file, "[auth]\nmethod = \"trust\"\n[[database]]\nname = \"*\"\n").unwrap();
    let output = check();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(&file, "colour = 1\n").unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("sluice.toml:1") && said.contains("colour"), "{said}");
}

#[test]
fn what_is_wrong_is_said_before_anything_is_made() {
    let place = place();
    let data = place.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut in_use = Command::new(env!("CARGO_BIN_EXE_sluice"));
    in_use.args(["up", "--listen", &address, "--data"]).arg(&data);
    let said = failure(&mut in_use);
    let holder = format!("{address} is in use by ");
    assert!(said.contains(&holder) && said.contains("choose another address: --listen"), "{said}");

    let said = failure(sluice(&data).arg("--pg-bin").arg(place.path()));
    assert!(said.contains("holds no postgres"), "{said}");
    let said = failure(sluice(&data).args(["--run-as", "no-such-user"]));
    assert!(said.contains("no-such-user"), "{said}");
    assert!(!data.exists());

    for (data, remedy) in [("/etc/passwd", "it is not a directory"), ("/proc/x", "no directory can be made there")] {
        let said = failure(&mut sluice(Path::new(data)));
        assert!(said.contains(&format!("cannot create {data}")) && said.contains(remedy), "{said}");
    }
}

/// An ordinary user, with the directory by default.
#[test]
fn as_an_ordinary_user() {
    let place = place();
    let Some((mut command, user, home)) = ordinary_user(place.path()) else { return };
    let mut up = Up::start(&mut command);
    up.ready();
    let data = home.join(".local/share/sluice");
    let metadata = fs::metadata(&data).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o700, user.uid.as_raw()));
    up.signal(Signal::SIGTERM);
    assert!(up.wait().success());
    assert_eq!(processes_on(&data.join("pgdata")), 0);
}
