//! The end of a commit in the WAL, as a session is told: what has written moves it, and nothing else does.

use postgres::{Client, Config, NoTls};
use sluice_testkit::{TestServer, Version, versions};

use crate::server::run;

versions!(a_session_is_told_where_its_commits_end);

const SETTINGS: [(&str, &str); 2] = [("shared_preload_libraries", "sluice"), ("max_prepared_transactions", "5")];

fn session(server: &TestServer, options: &str) -> Client {
    let mut config = Config::new();
    config.host_path(server.socket_dir()).port(server.port()).user("app").dbname("postgres");
    config.options(options).connect(NoTls).unwrap()
}

/// The end of the session's last commit, and how far the log goes.
fn ends(client: &mut Client) -> (u64, u64) {
    let bytes = |lsn: &str| {
        let (high, low) = lsn.split_once('/').unwrap();
        u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap()
    };
    let row = client
        .query_one("SELECT current_setting('sluice.commit_lsn'), pg_current_wal_insert_lsn()::text", &[])
        .unwrap();
    (bytes(row.get(0)), bytes(row.get(1)))
}

fn a_session_is_told_where_its_commits_end(version: Version) {
    let server = TestServer::start(version, &SETTINGS);
    server.execute("CREATE TABLE t (n int); GRANT ALL ON t TO app; GRANT CREATE ON SCHEMA public TO app");
    let mut client = session(&server, "-c sluice.report_commits=on");
    assert_eq!(ends(&mut client).0, 0, "it has committed nothing");
    for writes in [
        "INSERT INTO t VALUES (1)",
        "BEGIN; UPDATE t SET n = 2; COMMIT",
        "DO $$ BEGIN INSERT INTO t VALUES (3); COMMIT; INSERT INTO t VALUES (4); END $$",
        "BEGIN; SAVEPOINT a; DELETE FROM t; RELEASE a; COMMIT AND CHAIN; SELECT 1; ROLLBACK",
        "CREATE TABLE made (n int)",
        "SET synchronous_commit = off; INSERT INTO t VALUES (5); RESET synchronous_commit",
        "BEGIN; INSERT INTO t VALUES (6); PREPARE TRANSACTION 'a'; COMMIT PREPARED 'a'",
    ] {
        let before = ends(&mut client).1;
        // As a client may send them, each by itself.
        match writes.starts_with("DO") {
            true => run(&mut client, writes),
            false => writes.split("; ").for_each(|statement| run(&mut client, statement)),
        }
        let (end, after) = ends(&mut client);
        assert!(before < end && end <= after, "{writes}: {before:X} {end:X} {after:X}");
    }
    // What is committed within a statement stays so if that fails behind it.
    let before = ends(&mut client).1;
    let fails = "DO $$ BEGIN INSERT INTO t VALUES (7); COMMIT; PERFORM 1 / 0; END $$";
    client.batch_execute(fails).unwrap_err();
    let (end, _) = ends(&mut client);
    assert!(before < end, "{fails}: {before:X} {end:X}");
    for leaves in [
        "SELECT count(*) FROM t",
        "BEGIN; INSERT INTO t VALUES (7); ROLLBACK",
        "BEGIN; INSERT INTO t VALUES (8); PREPARE TRANSACTION 'b'",
        "ROLLBACK PREPARED 'b'",
        "BEGIN READ ONLY; SELECT * FROM t; COMMIT",
        "SET work_mem = '5MB'",
    ] {
        leaves.split("; ").for_each(|statement| run(&mut client, statement));
        assert_eq!(ends(&mut client).0, end, "{leaves}");
    }
    let mut plain = session(&server, "");
    run(&mut plain, "INSERT INTO t VALUES (9)");
    assert_eq!(ends(&mut plain).0, 0, "nobody has asked");
}
