//! Through the pool to a server with a full gate: a BEGIN that the client was told of waits there, and may be refused.

use std::time::Duration;

use sluice_testkit::{Case, PoolConfig, Raw, Script, TestPool, TestServer, matrix, raw::transcript};

use crate::SLUICE;

matrix!(transaction: a_begin_may_be_refused, a_begin_that_waits_can_be_cancelled);

/// A server that lets one block in, and that one is inside: its session, and a pool with a client.
fn full_gate(case: Case, timeout: &str, test: impl FnOnce(Raw, &TestPool, Raw)) {
    let settings = [
        ("shared_preload_libraries", "sluice"),
        ("sluice.transaction_concurrency", "1"),
        ("sluice.gate_timeout", timeout),
        // Nobody is let in because the one inside does nothing.
        ("deadlock_timeout", "1min"),
    ];
    let server = TestServer::start(case.version, &settings);
    let database = server.database();
    database.execute("CREATE TABLE t (n int)");
    let mut inside = server.raw().login("app", &database.name);
    inside.query("BEGIN");
    let pool = PoolConfig::new(SLUICE, case, &server).size(1).start();
    let client = pool.raw_app(&database);
    test(inside, &pool, client);
}

fn a_begin_may_be_refused(case: Case) {
    full_gate(case, "100ms", |mut inside, pool, mut client| {
        assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
        let refused = client.query("INSERT INTO t VALUES (1)");
        assert!(refused.starts_with("E(53S01") && refused.ends_with("Z(E)"), "{refused}");
        // Ended without asking the gate again.
        assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
        // By the extended protocol, with more behind it that belongs to the transaction.
        let insert = |n: &str| Script::new().unnamed("INSERT INTO t VALUES ($1::int)", &[Some(n)]).sync();
        let both = Script::new().unnamed("BEGIN", &[]).sync();
        assert!(client.talk(&both).ends_with("C(BEGIN) Z(T)"));
        client.send(&insert("2").then(&insert("3")));
        let answers = transcript(&client.until_ready(1));
        assert_eq!(answers, "1 2 n E(53S01) Z(E)");
        // The second batch waits for a transaction that has failed, and there is room now.
        inside.query("COMMIT");
        let answers = transcript(&client.until_ready(1));
        assert!(answers.starts_with("E(25P02") && answers.ends_with("Z(E)"), "{answers}");
        assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
        assert_eq!(client.value("SELECT count(*) FROM t"), "0");
        assert!(!pool.log().contains("server connection lost"), "{}", pool.log());
    });
}

fn a_begin_that_waits_can_be_cancelled(case: Case) {
    full_gate(case, "0", |mut inside, pool, mut client| {
        client.query("BEGIN");
        client.send(&Script::new().query("INSERT INTO t VALUES (1)"));
        assert!(client.is_silent(Duration::from_millis(300)), "it waits at the gate");
        client.cancel(pool.raw());
        let answers = transcript(&client.until_ready(1));
        assert!(answers.starts_with("E(57014") && answers.ends_with("Z(E)"), "{answers}");
        assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
        inside.query("COMMIT");
        assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
        assert_eq!(client.query("INSERT INTO t VALUES (2)"), "C(INSERT 0 1) Z(T)");
        assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
        assert_eq!(client.value("SELECT string_agg(n::text, ',') FROM t"), "2");
    });
}
