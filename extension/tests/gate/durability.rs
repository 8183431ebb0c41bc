//! The worth of an acknowledged commit: the floor of `synchronous_commit`, and cancels that come while a commit waits
//! for its standbys.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use postgres::{Client, Config, NoTls, error::SqlState};
use sluice_instance::StopMode;
use sluice_testkit::{Random, TestServer, Version, becomes, proc, versions};

use crate::server::{code, meanwhile_run, pid_of, run};

mod strings;

versions!(
    nobody_commits_below_the_floor,
    what_a_session_leaves_is_removed_below_the_floor,
    nothing_is_committed_without_the_standbys_that_have_to_be_there,
    what_may_not_write_is_told_so_at_once,
    commits_wait_until_the_checkpointer_knows_their_standbys,
    a_commit_that_waits_for_its_standbys_is_not_cancelled,
    a_command_that_goes_on_behind_its_commit_is_cancelled,
    a_commit_can_be_cancelled_where_that_is_said,
    what_is_acknowledged_was_not_cancelled,
);

const SETTINGS: [(&str, &str); 6] = [
    ("wal_level", "replica"),
    ("max_wal_senders", "4"),
    ("shared_preload_libraries", "sluice"),
    ("synchronous_commit", "on"),
    ("max_prepared_transactions", "10"),
    // Nobody makes others wait for what has no standby.
    ("autovacuum", "off"),
];

/// By then a time-out has passed that leaves a busy machine time to come to the commit.
const TIMED_OUT: Duration = Duration::from_millis(3200);

/// Less than the 5 seconds that a commit waits for standbys to be named.
const AT_ONCE: Duration = Duration::from_millis(2500);

fn start(version: Version) -> TestServer {
    let server = TestServer::start(version, &SETTINGS);
    server.execute("CREATE TABLE t (n int); GRANT ALL ON t TO app");
    server.execute("CREATE TABLE pages (n int) WITH (fillfactor = 30); GRANT ALL ON pages TO app");
    server.execute("INSERT INTO pages SELECT generate_series(1, 200)");
    server
}

/// A session of `app`, with these startup options.
fn session(server: &TestServer, options: &str) -> Client {
    let mut config = Config::new();
    config.host_path(server.socket_dir()).port(server.port()).user("app").dbname("postgres");
    config.options(options).connect(NoTls).unwrap()
}

fn nobody_commits_below_the_floor(version: Version) {
    let server = start(version);
    let mut client = session(&server, "");
    run(&mut client, "SET synchronous_commit = off; RESET synchronous_commit");
    assert_eq!(
        code(client.batch_execute("SET sluice.synchronous_commit_floor = off")),
        SqlState::INSUFFICIENT_PRIVILEGE
    );
    for set in ["ALTER ROLE app SET", "ALTER DATABASE postgres SET", "ALTER SYSTEM SET"] {
        let (target, _) = set.split_once(" SET").unwrap();
        let floor = "sluice.synchronous_commit_floor";
        server.execute(&format!("{set} {floor} = 'remote_write'"));
        server.execute("SELECT pg_reload_conf()");
        becomes(set, "remote_write".to_owned(), || {
            session(&server, "").query_one(&format!("SHOW {floor}"), &[]).unwrap().get(0)
        });
        refuses_what_is_below(&server);
        server.execute(&format!("{target} RESET {floor}"));
        server.execute("SELECT pg_reload_conf()");
        becomes(set, "off".to_owned(), || {
            session(&server, "").query_one(&format!("SHOW {floor}"), &[]).unwrap().get(0)
        });
    }
}

/// What a session's end and DISCARD ALL remove is acknowledged to nobody, and must not stay.
fn what_a_session_leaves_is_removed_below_the_floor(version: Version) {
    let server = start(version);
    server.execute("ALTER ROLE app SET sluice.synchronous_commit_floor = 'on'");
    server.execute("ALTER ROLE app SET synchronous_commit = 'off'");
    server.execute("GRANT TEMPORARY ON DATABASE postgres TO app");
    let temporary = || server.value("SELECT count(*) FROM pg_class WHERE relname = 'made'");
    let make = "SET synchronous_commit = on; CREATE TEMP TABLE made (n int)";
    let mut client = session(&server, "");
    run(&mut client, make);
    run(&mut client, "DISCARD ALL");
    assert_eq!(temporary(), "0");
    // That does not open it for anything else.
    for write in [
        "INSERT INTO t VALUES (1)",
        "DO $$ BEGIN BEGIN EXECUTE 'DISCARD ALL'; EXCEPTION WHEN OTHERS THEN NULL; END; INSERT INTO t VALUES (1); END $$",
        "DISCARD TEMP; INSERT INTO t VALUES (1)",
    ] {
        assert_eq!(code(client.batch_execute(write)), SqlState::INVALID_PARAMETER_VALUE, "{write}");
    }
    run(&mut client, make);
    run(&mut client, "RESET synchronous_commit");
    drop(client);
    becomes("the session's tables are gone", "0".to_owned(), temporary);
    // Nor is anything waited for there.
    server.execute("ALTER ROLE app RESET sluice.synchronous_commit_floor");
    server.execute("ALTER ROLE app RESET synchronous_commit");
    let mut client = session(&server, "");
    run(&mut client, make);
    server.execute("ALTER SYSTEM SET sluice.synchronous_standbys_required = on");
    server.execute("SELECT pg_reload_conf()");
    let required = "SHOW sluice.synchronous_standbys_required";
    becomes(required, "on".to_owned(), || client.query_one(required, &[]).unwrap().get(0));
    let began = Instant::now();
    drop(client);
    becomes("the session's tables are gone", "0".to_owned(), temporary);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

/// A new primary whose configuration can't be read goes on without standbys: nobody is told that it has committed.
fn nothing_is_committed_without_the_standbys_that_have_to_be_there(version: Version) {
    let server = start(version);
    let required = "sluice.synchronous_standbys_required";
    server.execute(&format!("ALTER SYSTEM SET {required} = on"));
    server.execute("SELECT pg_reload_conf()");
    let mut client = session(&server, "");
    becomes(required, "on".to_owned(), || client.query_one(&format!("SHOW {required}"), &[]).unwrap().get(0));
    for set in [format!("SET {required} = off"), format!("SET LOCAL {required} = off")] {
        assert_eq!(code(client.batch_execute(&set)), SqlState::CANT_CHANGE_RUNTIME_PARAM, "{set}");
    }
    run(&mut client, "SELECT count(*) FROM t; BEGIN; SELECT count(*) FROM t; COMMIT; BEGIN; ROLLBACK");
    let writes = [
        "INSERT INTO t VALUES (1)",
        "BEGIN; INSERT INTO t VALUES (1); COMMIT",
        "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'alone'",
        "DO $$ BEGIN INSERT INTO t VALUES (1); COMMIT; END $$",
        "SELECT txid_current()",
        "CREATE TEMP TABLE made (n int)",
    ];
    // Each of them waits some seconds for the standbys to be named.
    thread::scope(|scope| {
        for sql in writes {
            let server = &server;
            scope.spawn(move || refused_alone(&mut session(server, ""), sql));
        }
    });
    assert_eq!(client.query_one("SELECT count(*) FROM t", &[]).unwrap().get::<_, i64>(0), 0);
    // Who has said that it waits for nobody does not, unless there is a floor.
    run(&mut client, "BEGIN; SET LOCAL synchronous_commit = local; INSERT INTO t VALUES (1); COMMIT");
    run(&mut client, "BEGIN; SET LOCAL synchronous_commit = local; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'a'");
    refused_alone(&mut client, "COMMIT PREPARED 'a'");
    refused_alone(&mut client, "ROLLBACK PREPARED 'a'");
    for sql in ["SET synchronous_commit = local", "ROLLBACK PREPARED 'a'", "RESET synchronous_commit"] {
        run(&mut client, sql);
    }
    // What no rollback would take back is refused before it is done.
    let mut owner = server.superuser("postgres");
    for sql in ["SET synchronous_commit = local", "CREATE DATABASE kept"] {
        run(&mut owner, sql);
    }
    thread::scope(|scope| {
        for sql in ["DROP DATABASE kept", "CREATE DATABASE made", "CREATE TABLESPACE apart LOCATION ''"] {
            let mut owner = server.superuser("postgres");
            run(&mut owner, "SET allow_in_place_tablespaces = on");
            scope.spawn(move || refused_alone(&mut owner, sql));
        }
    });
    let databases = "SELECT string_agg(datname || datconnlimit, ' ' ORDER BY datname) FROM pg_database WHERE datname IN \
                     ('kept', 'made')";
    assert_eq!(server.value(databases), "kept-1");
    server.superuser("kept");
    assert_eq!(server.value("SELECT count(*) FROM pg_ls_dir('pg_tblspc')"), "0");
    // Named in time, they are waited for.
    let pid = pid_of(&mut client);
    let running = meanwhile_run(client, "INSERT INTO t VALUES (2)");
    becomes("the commit waits", true, || waits(&server, pid));
    alter(&server, "SET synchronous_standby_names = 'nobody'", "nobody");
    becomes("the commit waits for nobody", true, || has_committed_here(pid));
    need_no_standby(&server);
    running.join().unwrap().1.unwrap();
}

/// Neither a standby nor a read-only transaction commits anything: there is nothing to wait for.
fn what_may_not_write_is_told_so_at_once(version: Version) {
    let server = start(version);
    run(&mut session(&server, ""), "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'a'");
    let required = "sluice.synchronous_standbys_required";
    server.execute(&format!("ALTER SYSTEM SET {required} = on"));
    server.execute("SELECT pg_reload_conf()");
    becomes(required, "on".to_owned(), || server.value(&format!("SHOW {required}")));
    let mut owner = server.superuser("postgres");
    run(&mut owner, "SET default_transaction_read_only = on");
    refuses_to_write(&mut owner);
    let mut app = session(&server, "-c default_transaction_read_only=on");
    // PostgreSQL does not take this for a write.
    refused_alone(&mut app, "COMMIT PREPARED 'a'");
    server.down(StopMode::Fast);
    fs::write(server.data().join("standby.signal"), "").unwrap();
    server.up();
    refuses_to_write(&mut server.superuser("postgres"));
    let mut app = session(&server, "");
    for end in ["COMMIT PREPARED", "ROLLBACK PREPARED"] {
        is_refused_at_once(&mut app, &format!("{end} 'a'"), &format!("cannot execute {end} during recovery"));
    }
}

fn refuses_to_write(client: &mut Client) {
    for (command, rest) in [
        ("CREATE DATABASE", "made"),
        ("DROP DATABASE", "postgres"),
        ("ALTER DATABASE", "template1 SET TABLESPACE pg_default"),
        ("CREATE TABLESPACE", "apart LOCATION ''"),
        ("DROP TABLESPACE", "pg_default"),
        ("CREATE SUBSCRIPTION", "s CONNECTION '' PUBLICATION p WITH (connect = false)"),
        ("DROP SUBSCRIPTION", "s"),
    ] {
        let sql = format!("{command} {rest}");
        is_refused_at_once(client, &sql, &format!("cannot execute {command} in a read-only transaction"));
    }
}

fn is_refused_at_once(client: &mut Client, sql: &str, message: &str) {
    let began = Instant::now();
    let error = client.batch_execute(sql).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code(), error.message()), (&SqlState::READ_ONLY_SQL_TRANSACTION, message), "{sql}");
    assert!(began.elapsed() < AT_ONCE, "{sql}: {:?}", began.elapsed());
}

fn refused_alone(client: &mut Client, sql: &str) {
    let error = client.batch_execute(sql).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(*error.code(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{sql}");
    assert!(error.detail().is_some_and(|detail| detail.contains("sluice.synchronous_standbys_required")), "{error}");
    run(client, "ROLLBACK");
}

/// Whether this process waits for its standbys behind its commit: it shows what it waits for.
fn has_committed_here(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|title| title.contains("waiting for "))
}

/// PostgreSQL's commits wait for whom the checkpointer knows, which may be late to read what sessions have read.
fn commits_wait_until_the_checkpointer_knows_their_standbys(version: Version) {
    let server = start(version);
    let pid = server.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
    let checkpointer = pid.parse().unwrap();
    let required = "sluice.synchronous_standbys_required";
    for (is_required, insert) in [("off", "INSERT INTO t VALUES (0)"), ("on", "INSERT INTO t VALUES (1)")] {
        server.execute(&format!("ALTER SYSTEM SET {required} = {is_required}"));
        proc::send(checkpointer, proc::Kind::SIGSTOP);
        alter(&server, "SET synchronous_standby_names = 'nobody'", "nobody");
        let mut client = session(&server, "");
        let named: String = client.query_one("SHOW synchronous_standby_names", &[]).unwrap().get(0);
        assert_eq!(named, "nobody");
        let pid = pid_of(&mut client);
        // Nothing has been committed: this can be cancelled.
        let running = meanwhile_run(client, "INSERT INTO t VALUES (-1)");
        becomes("the commit waits", true, || waits(&server, pid));
        server.value(&format!("SELECT pg_cancel_backend({pid})"));
        let (client, result) = running.join().unwrap();
        assert_eq!(code(result), SqlState::QUERY_CANCELED);
        let running = meanwhile_run(client, insert);
        becomes("the commit waits", true, || waits(&server, pid));
        proc::send(checkpointer, proc::Kind::SIGCONT);
        becomes("the commit waits for nobody", true, || has_committed_here(pid));
        need_no_standby(&server);
        running.join().unwrap().1.unwrap();
    }
    assert_eq!(server.value("SELECT string_agg(n::text, ' ' ORDER BY n) FROM t"), "0 1");
    // Where the names are taken back there is nobody to wait for.
    server.execute(&format!("ALTER SYSTEM SET {required} = off"));
    server.execute("SELECT pg_reload_conf()");
    proc::send(checkpointer, proc::Kind::SIGSTOP);
    alter(&server, "SET synchronous_standby_names = 'nobody'", "nobody");
    let mut client = session(&server, "");
    let pid = pid_of(&mut client);
    let running = meanwhile_run(client, "INSERT INTO t VALUES (2)");
    becomes("the commit waits", true, || waits(&server, pid));
    need_no_standby(&server);
    running.join().unwrap().1.unwrap();
    proc::send(checkpointer, proc::Kind::SIGCONT);
}

/// The floor is `remote_write`.
fn refuses_what_is_below(server: &TestServer) {
    let mut client = session(server, "");
    for level in ["remote_write", "on", "remote_apply"] {
        run(&mut client, &format!("SET synchronous_commit = {level}; INSERT INTO t VALUES (1)"));
    }
    run(&mut client, "RESET synchronous_commit");
    let lowers = [
        "SET synchronous_commit = off",
        "SET SESSION synchronous_commit TO 'local'",
        "BEGIN; SET LOCAL synchronous_commit = off",
        "SELECT set_config('synchronous_commit', 'off', false)",
        "SELECT set_config('synchronous_commit', 'local', true)",
        "DO $$ BEGIN SET LOCAL synchronous_commit = off; END $$",
        "DO $$ BEGIN PERFORM set_config('synchronous_commit', 'off', false); END $$",
        "BEGIN; INSERT INTO t VALUES (2); SAVEPOINT a; SET synchronous_commit = off",
        // What PL/pgSQL evaluates runs no command.
        "DO $$ DECLARE x text; BEGIN INSERT INTO t VALUES (2); x := set_config('synchronous_commit', 'off', true); \
             COMMIT; END $$",
    ];
    for lower in lowers {
        let error = client.batch_execute(lower).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(*error.code(), SqlState::INVALID_PARAMETER_VALUE, "{lower}");
        assert!(error.message().contains("\"remote_write\""), "{lower}: {error}");
        run(&mut client, "ROLLBACK");
        let now: String = client.query_one("SHOW synchronous_commit", &[]).unwrap().get(0);
        assert_eq!(now, "on", "{lower}");
    }
    // Within a function, which commits nothing.
    server.execute(
        "CREATE OR REPLACE FUNCTION writes() RETURNS int LANGUAGE plpgsql SET synchronous_commit = off AS $$ \
             DECLARE c refcursor := 'c'; r int; BEGIN INSERT INTO public.t VALUES (1); FETCH c INTO r; RETURN r; END $$",
    );
    run(&mut client, "BEGIN; DECLARE c CURSOR FOR SELECT 1; SELECT writes(); COMMIT");
    // Who begins below it may read, and go up.
    for begins in ["-c synchronous_commit=off", "-c synchronous_commit=local"] {
        writes_nothing(&mut session(server, begins), server);
    }
    server.execute("ALTER ROLE app SET synchronous_commit = off");
    writes_nothing(&mut session(server, ""), server);
    // Nor is it a fault to go back there.
    let mut reset = session(server, "");
    for reset_to in ["RESET ALL", "SET synchronous_commit TO DEFAULT", "DISCARD ALL"] {
        run(&mut reset, "SET synchronous_commit = on; INSERT INTO kept VALUES (1); DELETE FROM kept");
        run(&mut reset, reset_to);
        writes_nothing(&mut reset, server);
    }
    server.execute(
        "CREATE OR REPLACE PROCEDURE inner_() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1); COMMIT; END $$",
    );
    run(&mut reset, "RESET ALL");
    run(&mut reset, "DO $$ BEGIN SET LOCAL synchronous_commit = on; CALL inner_(); END $$");
    server.execute("ALTER ROLE app RESET synchronous_commit");
    // A transaction that another session has prepared.
    run(&mut client, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'a'");
    let mut below = session(server, "-c synchronous_commit=local");
    assert_eq!(code(below.batch_execute("COMMIT PREPARED 'a'")), SqlState::INVALID_PARAMETER_VALUE);
    // The next primary would have it still.
    assert_eq!(code(below.batch_execute("ROLLBACK PREPARED 'a'")), SqlState::INVALID_PARAMETER_VALUE);
    run(&mut client, "ROLLBACK PREPARED 'a'");
}

fn writes_nothing(client: &mut Client, server: &TestServer) {
    server.execute("CREATE TABLE IF NOT EXISTS kept (n int); GRANT ALL ON kept TO app");
    run(client, "SELECT * FROM t; BEGIN; SELECT 1; COMMIT; SHOW synchronous_commit; SET work_mem = '5MB'");
    for write in [
        "INSERT INTO kept VALUES (1)",
        "BEGIN; INSERT INTO kept VALUES (1); COMMIT",
        "INSERT INTO kept VALUES (1); SELECT 1",
        "CREATE TEMP TABLE x (n int)",
        "SELECT n FROM t LIMIT 1 FOR UPDATE",
        "BEGIN; INSERT INTO kept VALUES (1); PREPARE TRANSACTION 'b'",
        "DO $$ BEGIN INSERT INTO kept VALUES (1); COMMIT; END $$",
    ] {
        assert_eq!(code(client.batch_execute(write)), SqlState::INVALID_PARAMETER_VALUE, "{write}");
        run(client, "ROLLBACK");
    }
    assert_eq!(server.value("SELECT count(*) FROM kept"), "0");
    run(client, "SET synchronous_commit = on; INSERT INTO kept VALUES (1); DELETE FROM kept");
}

/// From here on commits wait for a standby that never comes.
fn lose_standby(server: &TestServer) {
    alter(server, "SET synchronous_standby_names = 'nobody'", "nobody");
    // The checkpointer tells sessions of it when it has heard itself, as it has when it is asked for something later. Up to
    // then commits wait for it, in the same words, and can be cancelled.
    (0..2).for_each(|_| server.execute("CHECKPOINT"));
    let mut first = server.superuser("postgres");
    let pid = pid_of(&mut first);
    let waits_now = Arc::new(AtomicBool::new(false));
    let is_over = waits_now.clone();
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            run(&mut first, "INSERT INTO t VALUES (0)");
        }
    });
    becomes("commits wait", true, || waits(server, pid));
    waits_now.store(true, Ordering::Relaxed);
}

fn need_no_standby(server: &TestServer) {
    alter(server, "RESET synchronous_standby_names", "");
}

fn alter(server: &TestServer, change: &str, becomes_this: &str) {
    let mut looks = server.superuser("postgres");
    run(&mut looks, "SET synchronous_commit = local");
    run(&mut looks, &format!("ALTER SYSTEM {change}"));
    run(&mut looks, "SELECT pg_reload_conf()");
    becomes(change, becomes_this.to_owned(), || {
        looks.query_one("SHOW synchronous_standby_names", &[]).unwrap().get::<_, String>(0)
    });
}

fn waits(server: &TestServer, pid: i32) -> bool {
    server.value(&format!("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {pid}")) == "t"
}

fn a_commit_that_waits_for_its_standbys_is_not_cancelled(version: Version) {
    let server = start(version);
    for (before, commits) in [
        ("SELECT 1", "INSERT INTO t VALUES (1)"),
        ("BEGIN; INSERT INTO t VALUES (1)", "COMMIT"),
        ("SET statement_timeout = '3s'", "INSERT INTO t VALUES (1)"),
        ("SET statement_timeout = '3s'; BEGIN; INSERT INTO t VALUES (1)", "COMMIT"),
        ("BEGIN; INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'a'"),
        ("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'b'", "COMMIT PREPARED 'b'"),
        ("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'c'", "ROLLBACK PREPARED 'c'"),
        ("SELECT 1", "NOTIFY news; CREATE TEMP TABLE x (n int)"),
        // It is given its id late, and has written by vacuuming a page.
        (
            "UPDATE pages SET n = n + 1; UPDATE pages SET n = n + 1; BEGIN; SELECT count(*) FROM pages",
            "NOTIFY news; COMMIT",
        ),
    ] {
        let warnings = Arc::new(AtomicUsize::new(0));
        let mut client = noting(&server, &warnings);
        let pid = pid_of(&mut client);
        run(&mut client, before);
        lose_standby(&server);
        let running = meanwhile_run(client, commits);
        becomes(commits, true, || waits(&server, pid));
        for _ in 0..5 {
            server.value(&format!("SELECT pg_cancel_backend({pid})"));
            thread::sleep(Duration::from_millis(20));
        }
        if before.contains("statement_timeout") {
            thread::sleep(TIMED_OUT);
        }
        assert!(waits(&server, pid) && !running.is_finished(), "{commits}");
        need_no_standby(&server);
        let (mut client, outcome) = running.join().unwrap();
        outcome.unwrap_or_else(|error| panic!("{commits}: {error}"));
        assert_eq!(warnings.load(Ordering::Relaxed), 0, "{commits}");
        // Nothing is left of the cancels, nor of a commit that could not be tried.
        assert!(client.batch_execute("BEGIN; SAVEPOINT a; COMMIT PREPARED 'none'").is_err());
        run(&mut client, "ROLLBACK TO a; SET LOCAL statement_timeout = '20ms'");
        assert_eq!(code(client.batch_execute("SELECT pg_sleep(60)")), SqlState::QUERY_CANCELED);
        run(&mut client, "ROLLBACK");
        run(&mut client, "RESET statement_timeout; SELECT pg_sleep(0.05)");
        assert_eq!(
            code(client.batch_execute("SET statement_timeout = '20ms'; SELECT pg_sleep(60)")),
            SqlState::QUERY_CANCELED
        );
        run(&mut client, "SET statement_timeout = 0");
        let _ = client.batch_execute("ROLLBACK PREPARED 'a'");
    }
    // The session can still be ended, and has acknowledged nothing.
    let mut client = session(&server, "");
    let pid = pid_of(&mut client);
    lose_standby(&server);
    let running = meanwhile_run(client, "INSERT INTO t VALUES (1)");
    becomes("it waits", true, || waits(&server, pid));
    server.value(&format!("SELECT pg_terminate_backend({pid})"));
    let (client, outcome) = running.join().unwrap();
    outcome.unwrap_err();
    assert!(client.is_closed());
    need_no_standby(&server);
}

/// A session of `app` that counts the warnings about waits that were cancelled.
fn noting(server: &TestServer, warnings: &Arc<AtomicUsize>) -> Client {
    let counted = warnings.clone();
    let mut config = Config::new();
    config.host_path(server.socket_dir()).port(server.port()).user("app").dbname("postgres");
    config.notice_callback(move |notice| {
        let is_cancelled = notice.message().starts_with("canceling wait for synchronous replication");
        counted.fetch_add(usize::from(is_cancelled), Ordering::Relaxed);
    });
    config.connect(NoTls).unwrap()
}

fn a_command_that_goes_on_behind_its_commit_is_cancelled(version: Version) {
    let server = start(version);
    for timeout in [false, true] {
        let mut client = session(&server, "");
        let pid = pid_of(&mut client);
        if timeout {
            run(&mut client, "SET statement_timeout = '3s'");
        }
        lose_standby(&server);
        let running =
            meanwhile_run(client, "DO $$ BEGIN INSERT INTO t VALUES (7); COMMIT; PERFORM pg_sleep(600); END $$");
        becomes("it waits", true, || waits(&server, pid));
        if !timeout {
            server.value(&format!("SELECT pg_cancel_backend({pid})"));
        }
        if timeout {
            thread::sleep(TIMED_OUT);
        }
        assert!(waits(&server, pid) && !running.is_finished());
        need_no_standby(&server);
        let (_, outcome) = running.join().unwrap();
        assert_eq!(code(outcome), SqlState::QUERY_CANCELED);
    }
    assert_eq!(server.value("SELECT count(*) FROM t WHERE n = 7"), "2");
}

fn a_commit_can_be_cancelled_where_that_is_said(version: Version) {
    let server = start(version);
    server.execute("ALTER ROLE app SET sluice.cancel_waiting_commits = on");
    let warnings = Arc::new(AtomicUsize::new(0));
    let mut client = noting(&server, &warnings);
    let pid = pid_of(&mut client);
    lose_standby(&server);
    let running = meanwhile_run(client, "INSERT INTO t VALUES (1)");
    becomes("it waits", true, || waits(&server, pid));
    server.value(&format!("SELECT pg_cancel_backend({pid})"));
    running.join().unwrap().1.unwrap();
    assert_eq!(warnings.load(Ordering::Relaxed), 1, "it may not have been replicated");
    need_no_standby(&server);
}

/// Cancels at any time, by seed: what was acknowledged is there without a warning, and what has failed is not there.
fn what_is_acknowledged_was_not_cancelled(version: Version) {
    let server = Arc::new(start(version));
    let (warnings, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (server, warnings, done) = (server.clone(), warnings.clone(), done.clone());
            thread::spawn(move || {
                let mut client = noting(&server, &warnings);
                let (mut there, mut gone) = (Vec::new(), Vec::new());
                for entry in (0..).take_while(|_| !done.load(Ordering::Relaxed)).map(|n| writer * 1_000_000 + n) {
                    let insert = format!("INSERT INTO t VALUES ({entry})");
                    let write = match entry % 3 {
                        0 => insert,
                        1 => format!("BEGIN; {insert}; COMMIT"),
                        _ => format!("BEGIN; {insert}; NOTIFY news; COMMIT"),
                    };
                    match client.batch_execute(&write) {
                        Ok(()) => there.push(entry),
                        Err(error) => {
                            assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error:?}");
                            gone.push(entry);
                            // A cancel may be on its way.
                            while client.batch_execute("ROLLBACK").is_err() {}
                        }
                    }
                }
                (there, gone)
            })
        })
        .collect();
    let mut random = Random::new(7);
    let mut looks = server.superuser("postgres");
    run(&mut looks, "SET synchronous_commit = local");
    for turn in 0..60 {
        let change =
            if turn % 2 == 0 { "SET synchronous_standby_names = 'nobody'" } else { "RESET synchronous_standby_names" };
        run(&mut looks, &format!("ALTER SYSTEM {change}"));
        run(&mut looks, "SELECT pg_reload_conf()");
        run(&mut looks, "CHECKPOINT");
        for _ in 0..40 {
            run(&mut looks, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
            thread::sleep(Duration::from_micros(random.below(2000) as u64));
        }
    }
    done.store(true, Ordering::Relaxed);
    need_no_standby(&server);
    let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let entries: Vec<i32> =
        looks.query("SELECT n FROM t ORDER BY n", &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let mut there: Vec<i32> = outcomes.iter().flat_map(|(there, _)| there.clone()).collect();
    there.sort_unstable();
    assert_eq!(entries, there);
    assert!(outcomes.iter().any(|(_, gone)| !gone.is_empty()), "a cancel has come in time");
    assert_eq!(warnings.load(Ordering::Relaxed), 0);
}
