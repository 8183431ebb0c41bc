//! The pool's secret: guesses at it are few and seen, and one that could be guessed is not used.

use std::{
    fs,
    time::{Duration, Instant},
};

use postgres::{Client, error::SqlState};
use sluice_testkit::{TestServer, Version, becomes, versions};

use crate::server::{START, run};

versions!(a_secret_is_hard_to_guess, guesses_by_new_sessions_are_counted, a_secret_without_the_background_worker,);

/// A secret, and another one.
const SECRETS: [&str; 2] = ["NfuL9fbvZq0T4Ymf3d1Rr0uW", "q8Cz1yJ3k0aTgP5LxWm2Vh7N"];

/// A server whose secret is in that file, relative to its data directory.
fn server(version: Version, file: &str) -> TestServer {
    server_with(version, &[("sluice.pool_secret_file", file)])
}

fn server_with(version: Version, settings: &[(&str, &str)]) -> TestServer {
    let settings: Vec<_> = START.into_iter().chain(settings.iter().copied()).collect();
    let server = TestServer::start(version, &settings);
    server.execute("CREATE EXTENSION sluice");
    server
}

/// Has the server's own user write a file that is closed to others, and the server read it.
fn write(server: &TestServer, file: &str, secret: &str) {
    server.execute(&format!("COPY (SELECT '{secret}') TO PROGRAM 'umask 077; cat > {file}'"));
    server.execute("SELECT pg_reload_conf()");
}

/// The call of a pool that takes that for the secret.
fn call(secret: &str) -> String {
    format!("sluice_set_client('\\x{:02x}'::bytea || '{secret}'::bytea || '\\x000000'::bytea)", secret.len())
}

fn is_believed(client: &mut Client, secret: &str) -> bool {
    client.query_one(&format!("SELECT {}", call(secret)), &[]).unwrap().get(0)
}

fn a_secret_is_hard_to_guess(version: Version) {
    let (simple, [first, second]) = ("aaaabbbbaaaabbbbaaaabbbb", SECRETS);
    let server = server(version, "../run/theirs");
    let log = || fs::read_to_string(server.log_file()).unwrap();
    let mut app = server.connect("app", "postgres");
    write(&server, "../run/theirs", simple);
    becomes("a secret that is too simple", true, || {
        log().contains("LOG:  sluice: the secret in \"../run/theirs\" is too simple, and is ignored")
    });
    assert!(!is_believed(&mut app, simple));
    write(&server, "../run/theirs", first);
    // Another session for each try: those that are wrong have to wait.
    becomes("a secret that is used", true, || is_believed(&mut server.connect("app", "postgres"), first));
    // Guesses have one line in the log, and behind a few each takes its time; the right one is believed all the same,
    // at once: it may be the pool's, by the same session.
    let mut guesser = server.connect("app", "postgres");
    assert!(!is_believed(&mut guesser, second));
    let guesses = format!("SELECT count({}) FROM generate_series(1, 100000)", call("guessed guessed guessed"));
    run(&mut guesser, "SET statement_timeout = '2500ms'");
    let begin = Instant::now();
    let cancelled = guesser.batch_execute(&guesses).unwrap_err();
    assert_eq!(cancelled.code(), Some(&SqlState::QUERY_CANCELED), "{cancelled}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    let begin = Instant::now();
    assert!(is_believed(&mut guesser, first) && begin.elapsed() < Duration::from_millis(900));
    let begin = Instant::now();
    assert!(!is_believed(&mut guesser, second) && begin.elapsed() >= Duration::from_millis(900));
    assert!(is_believed(&mut app, first));
    let told = "calls of sluice_set_client() with a wrong secret since the last report";
    assert_eq!(log().matches(told).count(), 1, "{}", log());
    assert!(log().contains("DETAIL:  The last one was by role \"app\" in database \"postgres\"."));
    assert!(!log().contains(first) && !log().contains("is in the data directory"));
    // It is heard when the secret is another one.
    write(&server, "../run/theirs", second);
    becomes("another secret", true, || is_believed(&mut server.connect("app", "postgres"), second));
    assert!(is_believed(&mut guesser, second));
    // One that is in every backup is used, with a word of warning.
    drop(server);
    let server = self::server(version, "ours");
    write(&server, "ours", first);
    becomes("the warning", true, || {
        fs::read_to_string(server.log_file()).unwrap().contains("is in the data directory, and so in every base backup")
    });
    assert!(is_believed(&mut server.connect("app", "postgres"), first));
}

/// A guesser who connects anew has three more tries. They are logged, but stop neither the guesser nor the pool.
fn guesses_by_new_sessions_are_counted(version: Version) {
    let server = server(version, "../run/theirs");
    let [secret, guess] = SECRETS;
    write(&server, "../run/theirs", secret);
    let mut pool = server.connect("app", "postgres");
    becomes("a secret that is used", true, || is_believed(&mut server.connect("app", "postgres"), secret));
    let log = || fs::read_to_string(server.log_file()).unwrap();
    let told = "calls of sluice_set_client() with a wrong secret since the last report";
    let before = log().matches(told).count();
    for _ in 0..10 {
        let mut guesser = server.connect("app", "postgres");
        assert!((0..3).all(|_| !is_believed(&mut guesser, guess)));
        assert!(is_believed(&mut pool, secret));
    }
    assert!(log().matches(told).count() <= before + 1, "{}", log());
    // Ten seconds after the line before, the next wrong one tells of all.
    becomes("the log", true, || {
        assert!(!is_believed(&mut server.connect("app", "postgres"), guess));
        let log = log();
        let lines = log.lines().filter(|line| line.contains(told));
        let counts =
            lines.map(|line| line.rsplit_once("sluice: ").unwrap().1.split(' ').next().unwrap().parse::<u32>());
        counts.map(Result::unwrap).sum::<u32>() >= 30
    });
}

/// The server has no slot for it: sessions read a new secret with their next transaction.
fn a_secret_without_the_background_worker(version: Version) {
    let server = server_with(version, &[("sluice.pool_secret_file", "../run/theirs"), ("max_worker_processes", "0")]);
    let mut pool = server.connect("app", "postgres");
    for (secret, other) in [(SECRETS[0], SECRETS[1]), (SECRETS[1], SECRETS[0])] {
        write(&server, "../run/theirs", secret);
        becomes("a secret that is used", true, || is_believed(&mut server.connect("app", "postgres"), secret));
        assert!(is_believed(&mut pool, secret));
        assert!((0..4).all(|_| !is_believed(&mut pool, other)));
        assert!(is_believed(&mut pool, secret));
    }
    // No file, no secret.
    server.execute("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; rm ../run/theirs'");
    server.execute("SELECT pg_reload_conf()");
    becomes("no secret is used", false, || is_believed(&mut server.connect("app", "postgres"), SECRETS[1]));
}
