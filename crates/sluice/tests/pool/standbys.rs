//! A standby as one server, and sessions whose isolation level would have the pool's own queries refused, or wait.

use std::{fs, thread, time::Duration};

use sluice_instance::StopMode;
use sluice_testkit::{Case, PoolConfig, Script, TestPool, TestServer, matrix, raw::Raw};
use sluice_wire::startup::ProtocolVersion;

use crate::{SLUICE, config, database};

matrix!(transaction:
    nobody_waits_for_a_safe_snapshot_by_anothers_settings,
    a_client_that_is_serializable_is_as_at_a_standby_without_the_pool,
    a_promotion_is_told_to_who_logs_in_and_to_who_is_there,
);

/// Logs in with further parameters.
fn log_in(pool: &TestPool, parameters: &[(&str, &str)]) -> Raw {
    let mut raw = pool.raw();
    let all = [&[("user", "app"), ("database", "postgres")], parameters].concat();
    raw.login_with(ProtocolVersion::V3_0, &all);
    raw
}

fn nobody_waits_for_a_safe_snapshot_by_anothers_settings(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let pool = config(case).size(2).start();
    let mut writer = pool.raw_app(&database);
    writer.query("BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE t SET n = 2");
    let [mut first, mut second] = [(); 2].map(|()| pool.raw_app(&database));
    assert_eq!(second.query("SET DateStyle = 'German'"), "C(SET) S(DateStyle=German, DMY) Z(I)");
    for setting in ["isolation = serializable", "read_only = on", "deferrable = on"] {
        first.query(&format!("SET default_transaction_{setting}"));
    }
    second.send(&Script::new().query("SELECT date '2024-02-03'"));
    assert!(!second.is_silent(Duration::from_secs(5)), "it waits for the writer");
    let told = second.until_ready(1);
    assert_eq!(told[1].values(), [Some(b"03.02.2024".to_vec())]);
    // Its own settings count for the first one.
    first.send(&Script::new().query("SELECT n FROM t"));
    assert!(first.is_silent(Duration::from_millis(500)));
    writer.query("COMMIT");
    assert!(!first.until_ready(1).is_empty());
}

/// A standby of nothing, with a role for which transactions are serializable.
fn standby(case: Case, extension: bool) -> TestServer {
    let library: &[_] = if extension { &[("shared_preload_libraries", "sluice")] } else { &[] };
    let server = TestServer::start(case.version, &[&[("wal_level", "replica")], library].concat());
    server.execute("CREATE ROLE careful LOGIN IN ROLE trusted");
    server.execute("ALTER ROLE careful SET default_transaction_isolation = serializable");
    server.down(StopMode::Fast);
    fs::write(server.data().join("standby.signal"), "").unwrap();
    server.up();
    assert_eq!(server.value("SELECT pg_is_in_recovery()"), "t");
    server
}

fn before(case: Case, server: &TestServer) -> TestPool {
    PoolConfig::without_databases(SLUICE, case).database("postgres", server, "").size(1).start()
}

fn a_client_that_is_serializable_is_as_at_a_standby_without_the_pool(case: Case) {
    const ONE: &str = "T(?column?) D(1) C(SELECT 1) Z(I)";
    for extension in [false, true] {
        let server = standby(case, extension);
        let pool = before(case, &server);
        let mut client = log_in(&pool, &[]);
        let mut other = log_in(&pool, &[("TimeZone", "Asia/Tokyo")]);
        assert_eq!(client.query("SET default_transaction_isolation = serializable"), "C(SET) Z(I)");
        assert_eq!(client.query("SELECT 1"), "E(0A000) Z(I)");
        assert_eq!(other.query("SELECT 1"), ONE);
        assert_eq!(client.query("SET default_transaction_isolation = 'repeatable read'"), "C(SET) Z(I)");
        assert_eq!(client.query("SELECT 1"), ONE);
        let mut started = log_in(&pool, &[("options", "-c default_transaction_isolation=serializable")]);
        assert_eq!(log_in(&pool, &[("client_encoding", "LATIN1")]).query("SELECT 1"), ONE);
        assert_eq!(started.query("SELECT 1"), "E(0A000) Z(I)");
        assert_eq!(other.query("SELECT 1"), ONE);
        // What it holds is taken away when it goes.
        started.query("SELECT pg_advisory_lock(1)");
        drop(started);
        assert_eq!(other.query("SELECT 1"), ONE);
        let mut careful = pool.raw();
        let parameters = [("user", "careful"), ("database", "postgres"), ("TimeZone", "Asia/Tokyo")];
        careful.login_with(ProtocolVersion::V3_0, &parameters);
        assert_eq!(careful.query("BEGIN ISOLATION LEVEL REPEATABLE READ"), "C(BEGIN) Z(T)");
        assert_eq!(careful.query("SHOW TimeZone"), "T(TimeZone) D(Asia/Tokyo) C(SHOW) Z(T)");
        assert_eq!(careful.query("COMMIT"), "C(COMMIT) Z(I)");
    }
}

fn a_promotion_is_told_to_who_logs_in_and_to_who_is_there(case: Case) {
    for extension in [false, true] {
        let server = standby(case, extension);
        let pool = before(case, &server);
        let mut client = log_in(&pool, &[]);
        let mut other = log_in(&pool, &[]);
        assert_eq!([&client, &other].map(|raw| raw.parameter("in_hot_standby").to_owned()), ["on", "on"]);
        client.query("SELECT 1");
        server.execute("SELECT pg_promote()");
        thread::sleep(Duration::from_secs(2));
        assert_eq!(log_in(&pool, &[]).parameter("in_hot_standby"), "off");
        for told in ["S(in_hot_standby=off) ", ""] {
            for raw in [&mut client, &mut other] {
                assert_eq!(raw.query("SELECT 1"), format!("T(?column?) D(1) C(SELECT 1) {told}Z(I)"));
            }
        }
        assert_eq!(client.query("CREATE TEMP TABLE t ()"), "C(CREATE TABLE) Z(I)");
    }
}
