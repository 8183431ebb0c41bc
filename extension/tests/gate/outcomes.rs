//! The outcome of transactions whose COMMIT was never answered: what a server says of one is what its data say.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use postgres::{Client, Config, NoTls, error::SqlState};
use sluice_testkit::{Random, TestServer, Version, versions};

use crate::server::{code, meanwhile_run, run};

versions!(
    a_server_says_what_became_of_a_transaction,
    an_id_that_was_given_again_means_another_transaction,
    a_forged_mark_of_the_own_transaction_is_not_waited_for,
    a_parallel_query_flags_nothing,
    what_is_said_is_what_is_there,
);

/// Nothing is written to disk but by commits, so that a crash loses what nobody has committed.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_preload_libraries", "sluice"),
    ("synchronous_commit", "on"),
    ("wal_writer_delay", "10s"),
    ("bgwriter_delay", "10s"),
];

fn start(version: Version) -> TestServer {
    let server = TestServer::start(version, &SETTINGS);
    server.execute(
        "CREATE TABLE t (n int); CREATE TABLE s (n serial, x int); GRANT ALL ON ALL TABLES IN SCHEMA public TO app",
    );
    server.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app");
    server.execute(
        "CREATE FUNCTION adds() RETURNS void LANGUAGE sql AS 'INSERT INTO t VALUES (6)';
         CREATE FUNCTION sets() RETURNS void LANGUAGE plpgsql AS 'BEGIN SET work_mem = ''6MB''; END'",
    );
    server
}

/// A session as a pool begins it.
fn session(server: &TestServer) -> Result<Client, postgres::Error> {
    let mut config = Config::new();
    config.host_path(server.socket_dir()).port(server.port()).user("app").dbname("postgres");
    config.options("-c sluice.report_transactions=on").connect(NoTls)
}

fn mark(client: &mut Client) -> Result<String, postgres::Error> {
    Ok(client.query_one("SELECT current_setting('sluice.transaction')", &[])?.get(0))
}

fn outcome(client: &mut Client, mark: &str) -> Result<String, postgres::Error> {
    Ok(client.query_one("SELECT set_config('sluice.outcome', $1, true)", &[&mark])?.get(0))
}

fn a_server_says_what_became_of_a_transaction(version: Version) {
    let server = start(version);
    let (mut client, mut asker) = (session(&server).unwrap(), session(&server).unwrap());
    assert_eq!(mark(&mut client).unwrap(), "", "no block has written");
    run(&mut client, "BEGIN");
    run(&mut client, "SELECT 1");
    assert_eq!(mark(&mut client).unwrap(), "");
    for (statement, end, expected) in [
        // The session's first function, and again.
        ("SELECT adds()", "COMMIT", "committed"),
        ("SELECT adds()", "ROLLBACK", "aborted"),
        ("INSERT INTO t VALUES (1)", "COMMIT", "committed"),
        ("INSERT INTO t VALUES (2)", "ROLLBACK", "aborted"),
        ("INSERT INTO s (x) VALUES (1)", "COMMIT", "committed"),
        ("SELECT * FROM t FOR UPDATE", "COMMIT", "committed"),
        ("SAVEPOINT a; INSERT INTO t VALUES (3)", "COMMIT", "committed"),
        ("SAVEPOINT a; INSERT INTO t VALUES (4); ROLLBACK TO a; INSERT INTO t VALUES (5)", "COMMIT", "committed"),
    ] {
        run(&mut client, "ROLLBACK; BEGIN");
        run(&mut client, statement);
        let mark = mark(&mut client).unwrap();
        assert!(mark.starts_with("xid=") && !mark.contains("session"), "{statement}: {mark}");
        run(&mut client, end);
        assert_eq!(outcome(&mut asker, &mark).unwrap(), expected, "{statement}");
    }
    for changes in
        ["SET work_mem = '5MB'", "LISTEN a", "CREATE TEMP TABLE x (n int)", "SELECT set_config('a.b', '1', false)"]
    {
        run(&mut client, "BEGIN; INSERT INTO t VALUES (7)");
        run(&mut client, changes);
        assert!(mark(&mut client).unwrap().ends_with(" session=changed"), "{changes}");
        run(&mut client, "ROLLBACK");
    }
    let mut fresh = session(&server).unwrap();
    run(&mut fresh, "BEGIN; INSERT INTO t VALUES (7); SELECT sets()");
    assert!(mark(&mut fresh).unwrap().ends_with(" session=changed"), "what the first function does is seen");
    // Within a subtransaction, without an id of its own; and a mark is never that of another block.
    run(&mut client, "BEGIN; INSERT INTO t VALUES (7)");
    let whole = mark(&mut client).unwrap();
    run(&mut client, "SAVEPOINT a; SET app.tenant = '7'");
    assert_eq!(mark(&mut client).unwrap(), format!("{whole} session=changed"));
    run(&mut client, "RELEASE a; COMMIT; BEGIN; SAVEPOINT a");
    assert_eq!(mark(&mut client).unwrap(), "");
    run(&mut client, "ROLLBACK");
    // What is not in the WAL does not wait for it.
    run(&mut client, "CREATE TEMP TABLE only_here (n int)");
    run(&mut client, "BEGIN; INSERT INTO only_here VALUES (1)");
    assert_eq!(mark(&mut client).unwrap(), "");
    run(&mut client, "COMMIT");
    // One that is under way is waited for.
    run(&mut client, "BEGIN; INSERT INTO t VALUES (8)");
    let waits_for = mark(&mut client).unwrap();
    let running = meanwhile_run(client, "SELECT pg_sleep(0.5); COMMIT");
    assert_eq!(outcome(&mut asker, &waits_for).unwrap(), "committed");
    assert!(running.join().unwrap().1.is_ok());
    let system = server.value("SELECT system_identifier FROM pg_control_system()");
    let of_here = |mark: &str| mark.replace("system=0", &format!("system={system}"));
    for (bad, expected) in [
        ("nonsense", SqlState::INVALID_PARAMETER_VALUE),
        ("xid=1 at=0/0 system=1 key=1", SqlState::INVALID_PARAMETER_VALUE),
        // No record is in the first page, of which a server with assertions does not let itself be asked.
        (&of_here("xid=3 at=0/28 system=0 key=4"), SqlState::INVALID_PARAMETER_VALUE),
        // Before the first segment that there is.
        (&of_here("xid=3 at=0/2028 system=0 key=4"), SqlState::UNDEFINED_FILE),
        ("xid=3 at=0/2028 system=1 key=4", SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE),
    ] {
        assert_eq!(code(outcome(&mut asker, bad)), expected, "{bad}");
    }
    assert_eq!(
        outcome(&mut asker, &of_here("xid=800 at=FF/28 system=0 key=4")).unwrap(),
        "aborted",
        "the WAL has never come so far"
    );
    run(&mut asker, "SELECT * FROM pg_settings; SELECT 1");
    // Without the setting, nothing is written and nothing is told.
    let mut plain = server.connect("app", "postgres");
    run(&mut plain, "BEGIN; INSERT INTO t VALUES (9)");
    assert_eq!(mark(&mut plain).unwrap(), "");
}

fn an_id_that_was_given_again_means_another_transaction(version: Version) {
    let server = start(version);
    let mut client = session(&server).unwrap();
    run(&mut client, "BEGIN; INSERT INTO t VALUES (1)");
    let mark = mark(&mut client).unwrap();
    let id: i64 = mark.split(' ').next().unwrap().strip_prefix("xid=").unwrap().parse().unwrap();
    server.crash();
    let mut other = session(&server).unwrap();
    loop {
        run(&mut other, "BEGIN; INSERT INTO t VALUES (2)");
        let now: String = other.query_one("SELECT pg_current_xact_id()::text", &[]).unwrap().get(0);
        run(&mut other, "COMMIT");
        if now.parse::<i64>().unwrap() >= id {
            break;
        }
    }
    assert_eq!(server.value(&format!("SELECT pg_xact_status('{id}')")), "committed", "it is another one's now");
    assert_eq!(outcome(&mut other, &mark).unwrap(), "aborted");
    assert_eq!(server.value("SELECT count(*) FROM t WHERE n = 1"), "0");
}

/// The record that a mark names may stand in a message, which everybody may write into the WAL.
fn a_forged_mark_of_the_own_transaction_is_not_waited_for(version: Version) {
    let server = start(version);
    let mut client = session(&server).unwrap();
    run(&mut client, "SET statement_timeout = '10s'");
    for (epoch, before) in [(0, ""), (1, ""), (0, "SAVEPOINT a; INSERT INTO t VALUES (1)"), (1, "SAVEPOINT a")] {
        run(&mut client, &format!("BEGIN; INSERT INTO t VALUES (1); {before}"));
        let xid = "SELECT max(transactionid::text::int8) FROM pg_locks WHERE pid = pg_backend_pid()";
        let xid: i64 = client.query_one(xid, &[]).unwrap().get(0);
        let mark = forge(&mut client, (epoch << 32) | xid as u64);
        assert_eq!(code(outcome(&mut client, &mark)), SqlState::ACTIVE_SQL_TRANSACTION, "{mark}");
        run(&mut client, "ROLLBACK");
    }
    // Nobody has had that id.
    let mark = forge(&mut client, (1 << 32) | 9);
    assert_eq!(code(outcome(&mut client, &mark)), SqlState::INVALID_PARAMETER_VALUE);
}

/// Writes a message with a mark's record inside, and returns the mark.
fn forge(client: &mut Client, xid: u64) -> String {
    let system = "SELECT system_identifier FROM pg_control_system()";
    let system: i64 = client.query_one(system, &[]).unwrap().get(0);
    let mut body = vec![255, 32];
    body.extend_from_slice(b"sluice\0\0");
    for part in [77, system as u64, xid] {
        body.extend_from_slice(&part.to_le_bytes());
    }
    // Its length, no transaction, nothing before it, an XLOG_NOOP of the first resource manager.
    let mut record = (24 + body.len() as u32).to_le_bytes().to_vec();
    record.extend_from_slice(&[0; 12]);
    record.extend_from_slice(&[0x20, 0, 0, 0]);
    let checksum = crc32c(&[&body[..], &record[..]].concat());
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(&body);
    // Behind the heads of the message's own record, its prefix and a byte, at an aligned place; all on one page.
    let (begin, length) = (56, 360);
    let mut message = vec![0];
    message.extend_from_slice(&record);
    message.resize(length - 55, 0);
    for _ in 0..100 {
        let emit = "SELECT (pg_logical_emit_message(false, 'p', $1::bytea) - '0/0'::pg_lsn)::int8";
        let end = client.query_one(emit, &[&message]).unwrap().get::<_, i64>(0) as u64;
        let at = end - length as u64 + begin;
        if at / 8192 == (end - 1) / 8192 && at % 8192 >= 96 {
            return format!("xid={xid} at={:X}/{:X} system={system} key=77", at >> 32, at & 0xFFFF_FFFF);
        }
    }
    panic!("no place for the record");
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Settings can't be changed while it runs; that its leader tried, the log said for each statement of its functions.
fn a_parallel_query_flags_nothing(version: Version) {
    let server = start(version);
    server.execute(
        "CREATE TABLE big AS SELECT n FROM generate_series(1, 2000) n; ANALYZE big; GRANT ALL ON big TO app;
         CREATE FUNCTION looks(int) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
           AS 'DECLARE n bigint; BEGIN SELECT count(*) INTO n FROM pg_class WHERE oid = 0; RETURN n; END'",
    );
    let mut client = session(&server).unwrap();
    run(&mut client, "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0");
    // In one string: the block has its id, and its mark is not told yet.
    run(&mut client, "BEGIN; INSERT INTO t VALUES (1); SELECT sum(looks(n)) FROM big");
    assert!(mark(&mut client).unwrap().starts_with("xid="));
    run(&mut client, "COMMIT");
    let log = fs::read_to_string(server.log_file()).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains("parallel operation")).count(), 0);
}

/// Crashes by seed; `SLUICE_OUTCOME_CRASHES` says how many.
fn what_is_said_is_what_is_there(version: Version) {
    let crashes: u64 = std::env::var("SLUICE_OUTCOME_CRASHES").map_or(4, |text| text.parse().unwrap());
    let server = Arc::new(start(version));
    let next = Arc::new(AtomicU32::new(100));
    // A crash between two transactions shows nothing, so it does not count; on a slow machine there are such.
    let mut interrupted = 0;
    for crash in 0..crashes * 10 {
        if interrupted == crashes {
            break;
        }
        let mut random = Random::new(crash);
        let open = Arc::new(Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let (server, next, open) = (server.clone(), next.clone(), open.clone());
                let mut random = Random::new(crash * 100 + writer);
                thread::spawn(move || write(&server, &mut random, &next, &open))
            })
            .collect();
        thread::sleep(Duration::from_millis(100 + random.below(300) as u64));
        server.crash();
        for writer in writers {
            writer.join().unwrap();
        }
        let mut asker = session(&server).unwrap();
        // Others get the ids that were lost.
        for _ in 0..20 {
            run(&mut asker, "BEGIN; INSERT INTO t VALUES (0); COMMIT");
        }
        let open = std::mem::take(&mut *open.lock().unwrap());
        interrupted += u64::from(!open.is_empty());
        for (entry, mark) in open {
            let is_there = server.value(&format!("SELECT count(*) FROM t WHERE n = {entry}")) == "1";
            let expected = if is_there { "committed" } else { "aborted" };
            assert_eq!(outcome(&mut asker, &mark).unwrap(), expected, "crash {crash}: entry {entry}, {mark}");
        }
    }
    assert_eq!(interrupted, crashes, "crashes that interrupted somebody");
}

/// Writes entries up to the crash, and notes the one that it could not end, with its mark.
fn write(server: &TestServer, random: &mut Random, next: &AtomicU32, open: &Mutex<Vec<(u32, String)>>) {
    // On a slow machine, the crash may come first.
    let Ok(mut client) = session(server) else { return };
    loop {
        let entry = next.fetch_add(1, Ordering::Relaxed);
        let mut told = None;
        let mut entered = || {
            let insert = format!("INSERT INTO t VALUES ({entry})");
            client.batch_execute(if random.percent(20) {
                "BEGIN; SET LOCAL synchronous_commit = off"
            } else {
                "BEGIN"
            })?;
            client.batch_execute(&insert)?;
            told = Some(mark(&mut client)?);
            if random.percent(30) {
                thread::sleep(Duration::from_millis(random.below(30) as u64));
            }
            client.batch_execute("COMMIT")
        };
        if entered().is_err() {
            open.lock().unwrap().extend(told.map(|mark| (entry, mark)));
            return;
        }
    }
}
