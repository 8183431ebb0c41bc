//! The output plugin `sluice`: what pgoutput says, and nothing that synchronous standbys have not confirmed.

use std::{fs, thread, time::Duration};

use postgres::error::SqlState;
use sluice_instance::StopMode;
use sluice_testkit::{TestServer, Version, becomes, proc, versions};
use sluice_wire::startup::ProtocolVersion;

use crate::server::{code, run};

versions!(
    what_it_says_is_what_pgoutput_says,
    a_transaction_comes_when_standbys_have_it,
    a_subscriber_may_be_what_commits_wait_for,
    a_slot_that_would_leave_something_out_is_refused,
    a_slot_that_was_made_beside_transactions_is_read,
    decoding_can_begin_behind_what_was_written,
);

const SETTINGS: [(&str, &str); 7] = [
    ("wal_level", "logical"),
    ("max_wal_senders", "4"),
    ("shared_preload_libraries", "sluice"),
    ("synchronous_commit", "on"),
    ("max_prepared_transactions", "10"),
    // A transaction is streamed before its end.
    ("logical_decoding_work_mem", "64kB"),
    // Nobody makes others wait for what has no standby.
    ("autovacuum", "off"),
];

/// A server with a publication, and a slot of each plugin.
fn start(version: Version) -> TestServer {
    let server = TestServer::start(version, &SETTINGS);
    server.execute("CREATE TABLE t (n int PRIMARY KEY, text text); CREATE PUBLICATION p FOR ALL TABLES");
    let libraries = "current_setting('output_plugin_libraries', true)";
    // Minor releases of 2026 want it said.
    if server.value(&format!("SELECT {libraries} IS NOT NULL")) == "t" {
        server.execute("ALTER SYSTEM SET output_plugin_libraries = pgoutput, sluice");
        server.execute("SELECT pg_reload_conf()");
        becomes("the plugins", "pgoutput, sluice".to_owned(), || server.value(&format!("SELECT {libraries}")));
    }
    for plugin in ["pgoutput", "sluice"] {
        server
            .value(&format!("SELECT pg_create_logical_replication_slot('by_{plugin}', '{plugin}', false, true)::text"));
    }
    server
}

/// The query for what a plugin's slot has to say, as text.
fn peek(plugin: &str, streaming: &str) -> String {
    format!(
        "SELECT string_agg(lsn || ' ' || encode(data, 'hex'), '\n') FROM pg_logical_slot_peek_binary_changes('by_{plugin}', \
         NULL, NULL, 'proto_version', '3', 'publication_names', 'p', 'messages', 'on', 'two_phase', 'on', 'streaming', \
         '{streaming}')"
    )
}

fn what_it_says_is_what_pgoutput_says(version: Version) {
    let server = start(version);
    for sql in [
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "BEGIN; INSERT INTO t VALUES (3, 'c'); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; UPDATE t SET text = 'd'; COMMIT",
        "BEGIN; INSERT INTO t VALUES (4, 'd'); PREPARE TRANSACTION 'one'",
        "INSERT INTO t SELECT n, repeat('long', 100) FROM generate_series(100, 1000) n",
        "COMMIT PREPARED 'one'",
        "BEGIN; INSERT INTO t SELECT n, repeat('x', 400) FROM generate_series(2000, 3000) n; PREPARE TRANSACTION 'two'",
        "ROLLBACK PREPARED 'two'",
        "SELECT pg_logical_emit_message(false, 'prefix', 'by itself')",
        "BEGIN; SELECT pg_logical_emit_message(true, 'prefix', 'with the rest'); TRUNCATE t; COMMIT",
    ] {
        // Each by itself: one that is prepared can't be part of a text of several.
        let mut client = server.superuser("postgres");
        sql.split("; ").for_each(|sql| run(&mut client, sql));
    }
    for streaming in ["off", "on"] {
        let [theirs, ours] = ["pgoutput", "sluice"].map(|plugin| server.value(&peek(plugin, streaming)));
        assert!(theirs.lines().count() > 20, "{theirs}");
        assert_eq!(ours, theirs, "streaming {streaming}");
    }
}

fn a_transaction_comes_when_standbys_have_it(version: Version) {
    let server = start(version);
    let mut superuser = server.superuser("postgres");
    let mut set = |names: &str| {
        run(&mut superuser, &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        run(&mut superuser, "SELECT pg_reload_conf()");
        becomes("the standbys", names.to_owned(), || server.value("SHOW synchronous_standby_names"));
    };
    let names = |plugin: &str| {
        let changes = server.value(&peek(plugin, "off"));
        changes.matches(&hex("of the client")).count()
    };
    run(&mut server.superuser("postgres"), "INSERT INTO t VALUES (1, 'of the client')");
    assert_eq!(["pgoutput", "sluice"].map(names), [1, 1], "{}", server.value(&peek("pgoutput", "off")));
    set("nobody");
    let writes = [
        &["INSERT INTO t VALUES (2, 'of the client')"][..],
        &["BEGIN", "INSERT INTO t VALUES (3, 'of the client')", "PREPARE TRANSACTION 'one'"],
        &["SELECT pg_logical_emit_message(false, 'prefix', 'of the client')"],
    ];
    let waiting: Vec<_> = writes
        .into_iter()
        .map(|texts| {
            let mut client = server.superuser("postgres");
            thread::spawn(move || texts.iter().for_each(|sql| run(&mut client, sql)))
        })
        .collect();
    becomes("pgoutput sends what no standby has", 4, || names("pgoutput"));
    let peek_with = |timeout: &str| {
        let mut client = server.superuser("postgres");
        run(&mut client, &format!("SET statement_timeout = '{timeout}'"));
        client.query(&peek("sluice", "off"), &[])
    };
    assert_eq!(code(peek_with("1s")), SqlState::QUERY_CANCELED);
    let error = peek_with("60s").expect_err("nobody confirms it");
    let error = error.as_db_error().expect("PostgreSQL says so");
    assert_eq!(*error.code(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(error.message().starts_with("no synchronous standby has confirmed the transaction"), "{error}");
    set("");
    for client in waiting {
        client.join().expect("it has been committed");
    }
    assert_eq!(["pgoutput", "sluice"].map(names), [4, 4]);
}

fn a_subscriber_may_be_what_commits_wait_for(version: Version) {
    let server = start(version);
    let subscriber = TestServer::start(version, &[]);
    subscriber.execute("CREATE TABLE t (n int PRIMARY KEY, text text)");
    let (socket, port) = (server.socket_dir().display(), server.port());
    subscriber.execute(&format!(
        "CREATE SUBSCRIPTION s CONNECTION 'host={socket} port={port} user=postgres dbname=postgres application_name=reader' \
         PUBLICATION p WITH (create_slot = false, slot_name = 'by_sluice', copy_data = false)"
    ));
    let streams = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'reader' AND state = 'streaming'";
    becomes("it streams", "1".to_owned(), || server.value(streams));
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'reader'");
    server.execute("SELECT pg_reload_conf()");
    let is_one = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'reader'";
    becomes("it is waited for", "sync".to_owned(), || server.value(is_one));
    let mut client = server.superuser("postgres");
    run(&mut client, "SET statement_timeout = '30s'; SET sluice.cancel_waiting_commits = on");
    run(&mut client, "INSERT INTO t VALUES (1, 'of the client')");
    assert_eq!(subscriber.value("SELECT text FROM t"), "of the client");
    subscriber.execute("ALTER SUBSCRIPTION s DISABLE");
    subscriber.execute("ALTER SUBSCRIPTION s SET (slot_name = NONE)");
    subscriber.execute("DROP SUBSCRIPTION s");
}

/// Its decoding begins before it is consistent, with records that end where a page does, or cross that.
fn a_slot_that_was_made_beside_transactions_is_read(version: Version) {
    let server = start(version);
    for round in 0..4 {
        let mut open = server.superuser("postgres");
        run(&mut open, "BEGIN; SELECT txid_current()");
        let mut maker = server.superuser("postgres");
        let make = format!("SELECT pg_create_logical_replication_slot('by_sluice{round}', 'sluice')");
        let making = thread::spawn(move || run(&mut maker, &make));
        becomes("it waits", "1".to_owned(), || {
            server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'")
        });
        for bytes in 0..300 {
            let text = format!("repeat('x', {} * {})", bytes, round + 1);
            server.value(&format!("SELECT pg_logical_emit_message(false, 'prefix', {text})::text"));
        }
        run(&mut open, "COMMIT");
        making.join().unwrap();
        run(&mut server.superuser("postgres"), &format!("INSERT INTO t VALUES ({round}, 'of a client')"));
        let mut client = server.superuser("postgres");
        run(&mut client, "SET statement_timeout = '60s'");
        let query = peek("sluice", "off").replace("by_sluice", &format!("by_sluice{round}"));
        let changes: String = client.query_one(&query, &[]).unwrap().get(0);
        assert!(changes.contains(&hex("of a client")), "{changes}");
    }
}

/// A slot that was copied from another server, as Patroni copies them, lacks the snapshots of decoding that this one had
/// written. Then a prepared transaction may keep decoding from a beginning until something else has committed.
fn a_slot_that_would_leave_something_out_is_refused(version: Version) {
    let server = start(version);
    let log = |text: &str| run(&mut server.superuser("postgres"), &format!("INSERT INTO t VALUES ({text})"));
    let mut open = server.superuser("postgres");
    run(&mut open, "BEGIN; SELECT txid_current()");
    server.execute("CHECKPOINT");
    let mut prepared = server.superuser("postgres");
    for sql in ["BEGIN", "INSERT INTO t VALUES (1, 'prepared')", "PREPARE TRANSACTION 'one'"] {
        run(&mut prepared, sql);
    }
    run(&mut open, "COMMIT");
    server.execute("CHECKPOINT");
    for plugin in ["pgoutput", "sluice"] {
        server.value(&peek(plugin, "off").replace("_peek_", "_get_"));
        log(&format!("{}, 'of a client'", if plugin == "sluice" { 2 } else { 3 }));
        assert_ne!(server.value(&peek(plugin, "off")), "", "its own snapshots are there");
    }
    server.down(StopMode::Fast);
    for snapshot in fs::read_dir(server.data().join("pg_logical/snapshots")).unwrap() {
        fs::remove_file(snapshot.unwrap().path()).unwrap();
    }
    server.up();
    log("4, 'of a client'");
    let refused = || {
        let error = server.superuser("postgres").query(&peek("sluice", "off"), &[]).expect_err("something is missing");
        let error = error.as_db_error().expect("PostgreSQL says so").clone();
        assert_eq!(*error.code(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error}");
        assert!(error.message().starts_with("replication slot \"by_sluice\" would leave out"), "{error}");
    };
    // Decoding waits for what is open.
    let mut client = server.superuser("postgres");
    run(&mut client, "SET statement_timeout = '1s'");
    assert_eq!(code(client.query(&peek("sluice", "off"), &[])), SqlState::QUERY_CANCELED);
    server.execute("ROLLBACK PREPARED 'one'");
    for text in ["5, 'of a client'", "6, 'of a client'"] {
        server.execute("CHECKPOINT");
        log(text);
    }
    let (theirs, of_client) = (server.value(&peek("pgoutput", "off")), hex("of a client"));
    assert_eq!(theirs.matches(&of_client).count(), 2, "pgoutput leaves three out, and says nothing: {theirs}");
    refused();
    // Also when such snapshots have been written again.
    refused();
}

/// The background writer would do that every 15 seconds; here it does nothing.
fn decoding_can_begin_behind_what_was_written(version: Version) {
    const INSERTED: &str = "SELECT pg_current_wal_insert_lsn()::text";
    const A_PART: Duration = Duration::from_millis(500);
    const SEVERAL_TIMES: Duration = Duration::from_secs(5);

    let server = start(version);
    let writer = server.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'");
    let writer = writer.parse().unwrap();
    proc::send(writer, proc::Kind::SIGSTOP);
    let insert = |n: i32| {
        server.execute(&format!("INSERT INTO t VALUES ({n}, 'new') ON CONFLICT (n) DO UPDATE SET text = 'newer'"));
        server.value(INSERTED)
    };
    // Nobody has begun to stream who might have a fresh copy.
    let inserted = insert(1);
    thread::sleep(SEVERAL_TIMES);
    assert_eq!(server.value(INSERTED), inserted, "no walsender has begun");
    let database = server.database();
    let mut standby = server.raw();
    standby.login_with(
        ProtocolVersion::V3_0,
        &[("user", "postgres"), ("database", &database.name), ("replication", "database")],
    );
    becomes("a record behind a commit", true, || {
        let inserted = insert(1);
        thread::sleep(A_PART);
        server.value(INSERTED) != inserted
    });
    thread::sleep(SEVERAL_TIMES);
    let inserted = server.value(INSERTED);
    thread::sleep(SEVERAL_TIMES);
    assert_eq!(server.value(INSERTED), inserted, "nothing was written since");
    server.execute("SELECT pg_drop_replication_slot('by_sluice')");
    let inserted = insert(2);
    thread::sleep(SEVERAL_TIMES);
    assert_eq!(server.value(INSERTED), inserted, "no slot of the plugin is there");
    proc::send(writer, proc::Kind::SIGCONT);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
