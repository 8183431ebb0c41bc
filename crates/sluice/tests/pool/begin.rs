//! A BEGIN without a server: when a client has one, what it may not change, and how it is turned off. What clients get
//! for it is compared with PostgreSQL's own answers in `protocol`.

use std::time::Duration;

use sluice_testkit::{Case, Raw, Script, matrix, raw::transcript};

use crate::{config, database};

matrix!(transaction:
    a_transaction_without_statements_holds_no_server,
    what_is_begun_is_one_transaction,
    a_cancelled_wait_fails_the_transaction,
    servers_that_go_between_begin_and_statement,
    it_can_be_turned_off,
);

fn s() -> Script {
    Script::new()
}

/// Sessions that have begun, each in another way.
fn begun(pool: &sluice_testkit::TestPool, database: &sluice_testkit::Database<'_>) -> Vec<Raw> {
    let ways = [
        s().query("BEGIN"),
        s().query("start transaction read only"),
        s().unnamed("BEGIN", &[]).sync(),
        s().parse("b", "BEGIN").bind("b", &[]).execute().sync(),
    ];
    let begin = |way: &Script| {
        let mut client = pool.raw_app(database);
        let answer = client.talk(way);
        assert!(answer.ends_with("Z(T)"), "{answer}");
        client
    };
    ways.iter().map(begin).collect()
}

fn a_transaction_without_statements_holds_no_server(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).pool("wait_timeout = \"5s\"").start();
    let mut clients = begun(&pool, &database);
    assert_eq!(database.count("state LIKE 'idle in transaction%'"), 0);
    // One server serves them all in turn, and is held from the first statement to the last.
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
        assert_eq!(database.count("state = 'idle in transaction'"), 1);
        assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    }
    // A client that leaves costs nothing.
    drop(begun(&pool, &database));
    assert_eq!(clients[0].query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert_eq!(database.connections(), 1);
}

fn what_is_begun_is_one_transaction(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE t (id int)");
    let pool = config(case).size(2).start();
    let mut watcher = pool.raw_app(&database);
    let insert = "INSERT INTO t VALUES (1)";
    for (end, rows) in [("ROLLBACK", "0"), ("COMMIT", "1")] {
        let mut client = pool.raw_app(&database);
        assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
        assert_eq!(client.query(insert), "C(INSERT 0 1) Z(T)");
        assert_eq!(watcher.value("SELECT count(*) FROM t"), "0");
        assert_eq!(client.talk(&s().unnamed(insert, &[]).sync()), "1 2 n C(INSERT 0 1) Z(T)");
        assert_eq!(client.value("SELECT count(DISTINCT xmin::text) FROM t"), "1");
        assert_eq!(client.value("DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t) RETURNING 'one'"), "one");
        assert_eq!(client.query(end), format!("C({end}) Z(I)"));
        assert_eq!(watcher.value("SELECT count(*) FROM t"), rows);
    }
    // One that leaves in the midst of it has done nothing.
    let mut client = pool.raw_app(&database);
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query(insert), "C(INSERT 0 1) Z(T)");
    drop(client);
    sluice_testkit::becomes("in a transaction", 0, || database.count("state <> 'idle'"));
    assert_eq!(watcher.value("SELECT count(*) FROM t"), "1");
}

fn a_cancelled_wait_fails_the_transaction(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut holder = pool.raw_app(&database);
    let mut clients: Vec<Raw> = begun(&pool, &database);
    assert_eq!(holder.query(crate::HOLD), "C(BEGIN) Z(T)");
    for client in &mut clients {
        client.send(&s().query("SELECT 1"));
        assert!(client.is_silent(Duration::from_millis(30)));
        client.cancel(pool.raw());
        assert_eq!(transcript(&client.until_ready(1)), "E(57014) Z(E)");
        assert_eq!(client.talk(&s().sync()), "Z(E)");
    }
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
        assert_eq!(client.talk(&s().unnamed("SELECT 1", &[]).sync()), "E(25P02) Z(E)");
        assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
}

fn servers_that_go_between_begin_and_statement(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    for (gone, mut client) in begun(&pool, &database).into_iter().enumerate() {
        // Nothing of the transaction was there yet, so nothing is lost with the server.
        let mut other = pool.raw_app(&database);
        let pid = other.backend();
        database.server.execute(&format!("SELECT pg_terminate_backend({pid})"));
        sluice_testkit::becomes("of that server", 0, || database.count(&format!("pid = {pid}")));
        sluice_testkit::eventually("the pool has seen it", || {
            pool.log().matches("server connection lost").count() > gone
        });
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
        assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    }
}

fn it_can_be_turned_off(case: Case) {
    let database = database(case);
    let pool = config(case).size(4).pool("lazy_begin = false").start();
    let clients = begun(&pool, &database);
    assert_eq!(database.count("state = 'idle in transaction'"), clients.len());
}
