//! A real server: started, killed, healed, stopped; and what is said when it can't be.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Place, config, eventually, login, processes, start, superuser};
use sluice_config::{DriverChoice, ServerFile};
use sluice_instance::{
    DataDir, DataDirSpec, Diagnosis, Event, Host, RestartPolicy, Silent, StartError, State, StopMode, Tuning,
    bootstrap::{self, PasswordCopy},
    cluster, write_pool_file,
};

#[test]
fn the_whole_way_twice() {
    let place = Place::new();
    let begin = |created: bool| {
        let mut config = place.config();
        assert_eq!(config.data_dir.created(), created);
        config.tuning = Some(Tuning::new(Host::current(), 20));
        config.settings.retain(|(name, _)| name != "max_connections");
        start(config).0.unwrap()
    };
    let server = begin(true);
    let made = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    assert_eq!(made.login_refused, None);
    for file in [&made.password_file, &made.pgpass_file, &place.root().join("auth-password")] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    let password = fs::read_to_string(&made.password_file).unwrap();
    let password = password.trim();
    let mut user = login(&server, "sluice", "sluice", Some(password)).unwrap();
    user.batch_execute("CREATE TABLE kept AS SELECT 42 AS answer").unwrap();
    assert!(login(&server, "sluice", "sluice", Some("wrong")).is_err());
    let shown: String = user.query_one("SHOW max_connections", &[]).unwrap().get(0);
    assert_eq!(shown, "100");
    drop(user);
    let report = server.stop(StopMode::Fast);
    assert_eq!((report.mode, server.state()), (Some(StopMode::Fast), State::Stopped(report)));
    assert_eq!(processes(server.data_dir().pgdata()), [0_u32; 0]);
    drop(server);

    let server = begin(false);
    let again = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    assert_eq!(again.login_refused, None);
    let mut user = login(&server, "sluice", "sluice", Some(password)).unwrap();
    assert_eq!(user.query_one("SELECT answer FROM kept", &[]).unwrap().get::<_, i32>(0), 42);

    // The operator's own password stays, and is noticed.
    user.batch_execute("ALTER ROLE sluice PASSWORD 'mine'").unwrap();
    let third = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    assert!(third.login_refused.unwrap().contains("password authentication failed"));

    // A password whose file is gone is made anew.
    fs::remove_file(&made.password_file).unwrap();
    let fourth = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    assert_eq!(fourth.login_refused, None);
}

#[test]
fn roles_of_a_cluster_that_begins_again_keep_their_passwords() {
    let place = Place::new();
    let server = start(place.config()).0.unwrap();
    let begin = || bootstrap::bootstrap_host(server.data_dir(), server.endpoint()).unwrap();
    let secrets = || -> Vec<String> {
        let query = "SELECT rolpassword FROM pg_authid WHERE rolname IN ('sluice', 'sluice_auth') ORDER BY rolname";
        superuser(&server).query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    let roles = begin();
    assert_eq!([&roles.first_user.copy, &roles.lookup.copy], [&PasswordCopy::Good; 2]);
    let made = secrets();
    assert_eq!(made.len(), 2);

    // Another host than the one on which the cluster first began has no files of them.
    let paths = [&roles.first_user.path, &roles.lookup.path];
    paths.iter().for_each(|path| fs::rename(path, path.with_extension("elsewhere")).unwrap());
    let roles = begin();
    assert_eq!([&roles.first_user.copy, &roles.lookup.copy], [&PasswordCopy::None; 2]);
    assert!(paths.iter().all(|path| !path.exists()), "a file that nobody's password is in");

    // One that is left of something else changes nothing either.
    fs::write(paths[1], "not-the-one\n").unwrap();
    let roles = begin();
    assert!(
        matches!(&roles.lookup.copy, PasswordCopy::Other(why) if why.contains("password authentication failed")),
        "{roles:?}"
    );
    assert_eq!(secrets(), made);
    fs::rename(paths[1].with_extension("elsewhere"), paths[1]).unwrap();
    assert_eq!(begin().lookup.copy, PasswordCopy::Good);
    let mut client =
        login(&server, "sluice_auth", "postgres", Some(fs::read_to_string(paths[1]).unwrap().trim())).unwrap();
    assert!(client.query_opt(roles.lookup_query, &[&"sluice"]).unwrap().is_some());
}

#[test]
fn secrets_are_looked_up_by_one_role_only() {
    let place = Place::new();
    let server = start(place.config()).0.unwrap();
    let made = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    superuser(&server)
        .batch_execute(
            "CREATE ROLE expired LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01';
             CREATE ROLE later LOGIN PASSWORD 'x' VALID UNTIL '2120-01-01';
             CREATE ROLE no_login PASSWORD 'x';
             CREATE ROLE no_password LOGIN;
             CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'x';",
        )
        .unwrap();
    let lookup = &made.lookup;
    let mut client = login(&server, &lookup.user, &lookup.database, Some(lookup.password.expose())).unwrap();
    for (role, found) in [
        ("sluice", true),
        ("later", true),
        ("boss", true),
        ("expired", false),
        ("no_login", false),
        ("no_password", false),
        ("postgres", false),
        ("nobody' OR true --", false),
        ("", false),
    ] {
        let row = client.query_opt(&lookup.query, &[&role]).unwrap();
        assert_eq!(row.is_some(), found, "{role}");
        if let Some(row) = row {
            assert!(row.get::<_, String>(0).starts_with("SCRAM-SHA-256$4096:"), "{role}");
        }
    }
    // PostgreSQL takes a password up to and with the moment until which it is valid. In a transaction time stands still.
    let mut boss = superuser(&server);
    let mut moment = boss.transaction().unwrap();
    moment.batch_execute("DO $$ BEGIN EXECUTE format('ALTER ROLE later VALID UNTIL %L', now()); END $$").unwrap();
    assert!(moment.query_opt(&lookup.query, &[&"later"]).unwrap().is_some());
    let password = fs::read_to_string(&made.password_file).unwrap();
    let mut user = login(&server, "sluice", "postgres", Some(password.trim())).unwrap();
    let refused = user.query_opt(&lookup.query, &[&"sluice"]).unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
    assert!(client.batch_execute("SELECT rolpassword FROM pg_authid").is_err());
}

#[test]
fn the_pools_file() {
    let place = Place::new();
    let server = start(place.config()).0.unwrap();
    let made = bootstrap::bootstrap(server.data_dir(), server.endpoint()).unwrap();
    let path = place.root().join("sluice.toml");
    let file = ServerFile {
        client_address_secret_file: None,
        listen: vec!["127.0.0.1:6432".parse().unwrap()],
        driver: DriverChoice::Auto,
        server: server.endpoint().for_pool(),
        lookup: made.lookup.to_config(),
        admin_users: Vec::new(),
        stats_users: Vec::new(),
        certificate: None,
        pool_size: 20,
        wait_timeout: None,
        servers_max: 90,
        clients_max: 10_000,
    };
    write_pool_file(&path, &file).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&path).unwrap().contains("listen = [\"127.0.0.1:6432\"]"));
}

#[test]
fn a_crash_is_seen_and_healed() {
    let place = Place::new();
    let (server, events) = start(place.config());
    let server = server.unwrap();
    let first = server.pid().unwrap();
    superuser(&server).batch_execute("CREATE TABLE kept AS SELECT 42 AS answer").unwrap();

    // A backend that does not notice its postmaster's death would stop the next start.
    let mut busy = superuser(&server);
    let loops = "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$";
    let busy = thread::spawn(move || busy.batch_execute(loops).is_err());
    eventually("a busy backend", || {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'";
        superuser(&server).query_one(query, &[]).unwrap().get::<_, i64>(0) == 1
    });

    server.kill();
    let second = server.wait_ready(Some(first), Duration::from_secs(30)).unwrap();
    assert_ne!(first, second);
    assert!(busy.join().unwrap(), "the busy backend survived");
    let answer = superuser(&server).query_one("SELECT answer FROM kept", &[]).unwrap();
    assert_eq!(answer.get::<_, i32>(0), 42);

    let told: Vec<Event> = events.try_iter().collect();
    let position = |wanted: fn(&Event) -> bool| told.iter().position(wanted).unwrap_or_else(|| panic!("{told:?}"));
    let crashed = position(|event| matches!(event, Event::Crashed { .. }));
    let restarting = position(|event| matches!(event, Event::Restarting { failures: 1, .. }));
    let orphans = position(|event| matches!(event, Event::EndedOrphans { count: 1.. }));
    assert!(crashed < restarting && restarting < orphans, "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::StalePidFile { .. })), "{told:?}");
}

#[test]
fn crashes_without_end_are_given_up_with_the_reason() {
    let place = Place::new();
    let mut config = place.config();
    config.restart =
        RestartPolicy { failures_max: 2, delay_min: Duration::from_millis(10), ..RestartPolicy::default() };
    let (server, events) = start(config);
    let server = server.unwrap();
    let auto = server.data_dir().pgdata().join("postgresql.auto.conf");
    fs::write(auto, "no_such_setting = 1\n").unwrap();
    server.kill();
    assert_eq!(server.wait_ready(server.pid(), Duration::from_secs(30)), None);
    let State::Failed { error } = server.state() else { panic!("{:?}", server.state()) };
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
    eventually("GaveUp", || events.try_iter().any(|event| matches!(event, Event::GaveUp { failures: 3, .. })));
    assert_eq!(server.stop(StopMode::Fast).mode, None);
}

#[test]
fn stale_pid_files() {
    let place = Place::new();
    let data_dir = place.open().unwrap();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let pid_file = data_dir.pgdata().join("postmaster.pid");
    // A process that is gone; one that is no PostgreSQL; one that PostgreSQL itself would take for another postmaster,
    // since it belongs to the same user.
    let mut same_user =
        data_dir.run_as().command("sleep", nix::sys::signal::Signal::SIGKILL).arg("60").spawn().unwrap();
    for pid in [gone.id(), std::process::id(), same_user.id()] {
        fs::write(&pid_file, format!("{pid}\n{}\n1\n5432\n\n\n", data_dir.pgdata().display())).unwrap();
        let (server, events) = start(config(Arc::clone(&data_dir)));
        server.unwrap_or_else(|error| panic!("{pid}: {error}"));
        let stale = Event::StalePidFile { pid: pid.cast_signed() };
        assert!(events.try_iter().any(|event| event == stale));
    }
    same_user.kill().unwrap();
    same_user.wait().unwrap();
}

#[test]
fn a_server_that_is_not_ours() {
    let place = Place::new();
    let data_dir = place.open().unwrap();
    let program = &data_dir.binaries().postgres;
    let mut other = data_dir.run_as().command(program, nix::sys::signal::Signal::SIGKILL);
    other.arg("-D").arg(data_dir.pgdata()).args(["-c", "listen_addresses=", "-k"]).arg(data_dir.socket_dir());
    let mut other = other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the other server", || data_dir.socket_dir().join(".s.PGSQL.5432").exists());

    let error = start(config(Arc::clone(&data_dir))).0.unwrap_err();
    let expected = other.id().cast_signed();
    assert!(matches!(error, StartError::AlreadyRunning { pid, .. } if pid == expected), "{error}");

    // One that is leaving is waited for.
    let pid = nix::unistd::Pid::from_raw(expected);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let reaper = thread::spawn(move || other.wait().unwrap());
    start(config(data_dir)).0.unwrap();
    reaper.join().unwrap();
}

#[test]
fn tcp_and_an_address_in_use() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = place.config();
    config.tcp = Some(taken.local_addr().unwrap());
    let Err(StartError::Exited { tail, .. }) = start(config.clone()).0 else { panic!("it started") };
    assert_eq!(tail.diagnosis, Some(Diagnosis::AddressInUse), "{tail}");

    drop(taken);
    let server = start(config).0.unwrap();
    assert!(std::net::TcpStream::connect(server.endpoint().tcp.unwrap()).is_ok());
    superuser(&server);
    server.reload();
}

#[test]
fn a_long_path_gets_its_socket_elsewhere() {
    let place = Place::new();
    let root = place.path().join("d".repeat(100));
    let spec = DataDirSpec { root, ..place.spec() };
    let data_dir = Arc::new(DataDir::open(spec, &Silent).unwrap());
    let socket_dir = data_dir.socket_dir().to_owned();
    assert!(!socket_dir.starts_with(data_dir.root()));
    let server = start(config(data_dir)).0.unwrap();
    superuser(&server);
    drop(server);
    fs::remove_dir(socket_dir).unwrap();
}

#[test]
fn a_checkpoint_of_a_server_that_says_nothing_is_not_waited_for() {
    let place = Place::new();
    let server = start(place.config()).0.unwrap();
    let pgdata = server.data_dir().pgdata().to_owned();
    assert!(cluster::checkpoint(&pgdata).unwrap());
    let file = fs::read_to_string(pgdata.join("postmaster.pid")).unwrap();
    let postmaster = nix::unistd::Pid::from_raw(file.lines().next().unwrap().parse().unwrap());
    nix::sys::signal::kill(postmaster, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let asked = cluster::checkpoint(&pgdata);
    nix::sys::signal::kill(postmaster, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(asked.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    drop(server);
    assert!(!cluster::checkpoint(&pgdata).unwrap(), "there is none");
}

#[test]
fn a_stop_that_is_not_in_order_is_reported() {
    let place = Place::new();
    let (server, events) = start(place.config());
    let server = server.unwrap();
    superuser(&server).batch_execute("CREATE TABLE kept AS SELECT 42 AS answer").unwrap();
    // The last checkpoint can't be written down, as on a disk that fails.
    let control = server.data_dir().pgdata().join("global/pg_control");
    let away = control.with_file_name("away");
    fs::rename(&control, &away).unwrap();
    let report = server.stop(StopMode::Fast);
    assert_eq!(report.failed.map(|status| status.code()), Some(Some(1)), "{report:?}");
    let stopped = events.try_iter().find(|event| matches!(event, Event::Stopped { .. })).unwrap().to_string();
    assert!(stopped.contains("not in order"), "{stopped}");
    drop(server);

    fs::rename(&away, &control).unwrap();
    let server = start(place.config()).0.unwrap();
    assert_eq!(superuser(&server).query_one("SELECT answer FROM kept", &[]).unwrap().get::<_, i32>(0), 42);
    assert_eq!(server.stop(StopMode::Fast).failed, None);
}

#[test]
fn stopping_is_bounded_and_can_be_hastened() {
    let place = Place::new();
    let mut config = place.config();
    config.stop_timeout = Duration::from_secs(15);
    let server = start(config.clone()).0.unwrap();
    let pgdata = server.data_dir().pgdata().to_owned();
    // A stopped backend can't follow a fast shutdown, nor an immediate one: PostgreSQL kills it after 5 s.
    let mut client = superuser(&server);
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let backend = nix::unistd::Pid::from_raw(backend);
    nix::sys::signal::kill(backend, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        let first = scope.spawn(|| server.stop(StopMode::Fast));
        eventually("stopping", || server.state() == State::Stopping);
        assert_eq!(server.stop(StopMode::Kill).mode, Some(StopMode::Kill));
        assert_eq!(first.join().unwrap().mode, Some(StopMode::Kill));
    });
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert_eq!(processes(&pgdata), [0_u32; 0]);

    // And without help.
    config.stop_timeout = Duration::from_millis(200);
    let server = start(config).0.unwrap();
    let mut client = superuser(&server);
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(backend), nix::sys::signal::Signal::SIGSTOP).unwrap();
    assert_eq!(server.stop(StopMode::Fast).mode, Some(StopMode::Immediate));
    assert_eq!(processes(&pgdata), [0_u32; 0]);
}
