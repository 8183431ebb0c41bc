//! Prepared statements in transaction mode: a client's names are its own, wherever its transactions run.

use std::time::{Duration, Instant};

use sluice_testkit::{Case, Database, Raw, Script, TestPool, matrix, raw::transcript};

use crate::{HOLD, config, database};

matrix!(transaction:
    statements_follow_their_client_to_other_servers,
    names_are_each_clients_own,
    a_server_keeps_a_bounded_number,
    unnamed_statements_that_come_again_are_not_parsed_again,
    without_auto_prepare_unnamed_statements_stay_unnamed,
    schema_changes_are_seen_by_what_is_parsed_after_them,
    schema_changes_in_a_transaction_are_postgresqls_error,
    a_known_parse_needs_no_server,
    discarding_hurts_nobody_else,
    statements_survive_lost_servers,
    pgbench_runs_to_its_end_by_every_protocol,
);

fn s() -> Script {
    Script::new()
}

/// Two servers, and two clients such that the first one's next transaction is on a server other than its last.
struct Two {
    pool: TestPool,
    one: Raw,
    other: Raw,
}

impl Two {
    fn new(case: Case, database: &Database<'_>) -> Self {
        let pool = config(case).size(2).start();
        let (one, other) = (pool.raw_app(database), pool.raw_app(database));
        Self { pool, one, other }
    }

    /// Has the other client hold the server that is free and was used last.
    fn hold(&mut self) -> u32 {
        assert_eq!(self.other.query(HOLD), "C(BEGIN) Z(T)");
        self.other.backend()
    }

    fn let_go(&mut self) {
        assert_eq!(self.other.query("COMMIT"), "C(COMMIT) Z(I)");
    }
}

fn statements_follow_their_client_to_other_servers(case: Case) {
    let database = database(case);
    let mut two = Two::new(case, &database);
    let prepare = s().parse_typed("p", "SELECT pg_backend_pid(), $1 + 1 AS next", &[23]).describe("p").sync();
    assert_eq!(two.one.talk(&prepare), "1 t(1) T(pg_backend_pid,next) Z(I)");
    // An unnamed one that was parsed in a transaction of its own.
    assert_eq!(two.one.talk(&s().parse("", "SELECT 'unnamed', $1::text").sync()), "1 Z(I)");
    let first = two.one.backend();
    assert_eq!(two.one.talk(&s().parse("", "SELECT 'unnamed', $1::text").sync()), "1 Z(I)");
    assert_eq!(two.hold(), first);
    let bound = two.one.talk(&s().bind("", &[Some("x")]).describe_portal("").execute().sync());
    assert_eq!(bound, "2 T(?column?,text) D(unnamed,x) C(SELECT 1) Z(I)");
    two.one.send(&s().bind("p", &[Some("41")]).execute().sync());
    let messages = two.one.until_ready(1);
    assert_eq!(messages[1].values()[1].as_deref(), Some(&b"42"[..]), "{}", transcript(&messages));
    let second = String::from_utf8(messages[1].values()[0].clone().unwrap()).unwrap();
    assert_ne!(second, first.to_string(), "it ran on the other server");
    two.let_go();
    // Both servers have it now: where it runs makes no difference, nor whether it is described.
    for _ in 0..4 {
        two.hold();
        let script = s().describe("p").bind("p", &[Some("1")]).execute().bind("p", &[None]).execute().sync();
        let talk = two.one.talk(&script);
        assert!(
            talk.starts_with("t(1) T(pg_backend_pid,next) 2 D(") && talk.contains(",NULL) C(SELECT 1) Z(I)"),
            "{talk}"
        );
        two.let_go();
        two.one.backend();
    }
    // In a transaction it stays where the transaction is.
    assert_eq!(two.one.query(HOLD), "C(BEGIN) Z(T)");
    let here = two.one.backend();
    for _ in 0..3 {
        two.one.send(&s().bind("p", &[Some("1")]).execute().sync());
        assert_eq!(transcript(&two.one.until_ready(1)), format!("2 D({here},2) C(SELECT 1) Z(T)"));
    }
    assert_eq!(two.one.query("COMMIT"), "C(COMMIT) Z(I)");
    assert!(two.pool.log().lines().count() == 1, "{}", two.pool.log());
}

fn names_are_each_clients_own(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    let mut clients: Vec<Raw> = (0..10).map(|_| pool.raw_app(&database)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // The same name for other texts, and for the same text with other types.
        let types = if number % 2 == 0 { [23] } else { [25] };
        let script =
            s().parse("mine", &format!("SELECT {}", number / 5)).parse_typed("typed", "SELECT pg_typeof($1)", &types);
        assert_eq!(client.talk(&script.sync()), "1 1 Z(I)");
    }
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let talk = client.talk(&s().bind("mine", &[]).execute().bind("typed", &[Some("1")]).execute().sync());
            let kind = if number % 2 == 0 { "integer" } else { "text" };
            assert_eq!(talk, format!("2 D({}) C(SELECT 1) 2 D({kind}) C(SELECT 1) Z(I)", number / 5), "{round}");
        }
    }
    // What one closes, others keep; and nobody sees the names of another.
    assert_eq!(clients[0].talk(&s().close("mine").sync()), "3 Z(I)");
    assert_eq!(clients[0].talk(&s().bind("mine", &[]).execute().sync()), "E(26000) Z(I)");
    assert_eq!(clients[1].talk(&s().bind("mine", &[]).execute().sync()), "2 D(0) C(SELECT 1) Z(I)");
    let mut stranger = pool.raw_app(&database);
    assert_eq!(stranger.talk(&s().bind("mine", &[]).execute().sync()), "E(26000) Z(I)");
    for name in ["sluice_0", "sluice_1", "sluice_2"] {
        assert_eq!(stranger.talk(&s().bind(name, &[]).execute().sync()), "E(26000) Z(I)", "{name}");
        assert_eq!(stranger.talk(&s().describe(name).sync()), "E(26000) Z(I)", "{name}");
        assert_eq!(stranger.talk(&s().close(name).sync()), "3 Z(I)", "{name}");
    }
    assert_eq!(clients[1].talk(&s().bind("mine", &[]).execute().sync()), "2 D(0) C(SELECT 1) Z(I)");
    // The messages of the errors name what the client named.
    stranger.send(&s().bind("ünknown", &[]).sync());
    assert_eq!(stranger.until_ready(1)[0].field(b'M'), "prepared statement \"ünknown\" does not exist");
}

const SHARED: &str = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'sluice%'";

fn a_server_keeps_a_bounded_number(case: Case) {
    const STATEMENTS: usize = 20;
    let database = database(case);
    let pool = config(case).size(1).pool("prepared_per_server = 3").start();
    let mut clients = [pool.raw_app(&database), pool.raw_app(&database)];
    for (number, client) in clients.iter_mut().enumerate() {
        // One at a time, and many in one batch.
        for i in 0..STATEMENTS / 2 {
            assert_eq!(client.talk(&s().parse(&format!("s{i}"), &format!("SELECT {i}, $1::int")).sync()), "1 Z(I)");
        }
        let rest = STATEMENTS / 2..STATEMENTS;
        let batch = rest.clone().fold(s(), |s, i| s.parse(&format!("s{i}"), &format!("SELECT {i}, $1::int")));
        assert_eq!(client.talk(&batch.sync()), "1 ".repeat(rest.len()) + "Z(I)", "client {number}");
    }
    let mut random = 12345_usize;
    for _ in 0..150 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (client, i) = (&mut clients[(random >> 20) % 2], (random >> 30) % STATEMENTS);
        let script = s().bind(&format!("s{i}"), &[Some("7")]).execute().sync();
        assert_eq!(client.talk(&script), format!("2 D({i},7) C(SELECT 1) Z(I)"));
    }
    let kept: usize = clients[0].value(SHARED).parse().unwrap();
    assert!(kept <= 3, "{kept} prepared statements");
    // More of them in one batch, and in one transaction, than the server may keep.
    let all = (0..STATEMENTS).fold(s(), |s, i| s.bind(&format!("s{i}"), &[Some("8")]).execute());
    let expected: String = (0..STATEMENTS).map(|i| format!("2 D({i},8) C(SELECT 1) ")).collect();
    assert_eq!(clients[0].talk(&all.clone().sync()), format!("{expected}Z(I)"));
    assert_eq!(clients[1].query(HOLD), "C(BEGIN) Z(T)");
    assert_eq!(clients[1].talk(&all.sync()), format!("{expected}Z(T)"));
    assert_eq!(clients[1].query("COMMIT"), "C(COMMIT) Z(I)");
    // An error while some are being replaced.
    let failing = s().bind("s1", &[Some("x")]).execute().bind("s2", &[Some("1")]).execute().sync();
    assert_eq!(clients[0].talk(&failing), "E(22P02) Z(I)");
    for i in 0..STATEMENTS {
        let script = s().bind(&format!("s{i}"), &[None]).execute().sync();
        assert_eq!(clients[0].talk(&script), format!("2 D({i},NULL) C(SELECT 1) Z(I)"));
    }
    let kept: usize = clients[0].value(SHARED).parse().unwrap();
    assert!(kept <= 3, "{kept} prepared statements");
}

const COUNTED: &str = "SELECT concat_ws('|', count(*), sum(generic_plans), sum(custom_plans)) \
                       FROM pg_prepared_statements WHERE name LIKE 'sluice%' AND statement LIKE '%counted%'";

fn unnamed_statements_that_come_again_are_not_parsed_again(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut clients = [pool.raw_app(&database), pool.raw_app(&database)];
    let sql = "SELECT $1::int AS counted";
    let begin = Instant::now();
    for i in 0..20 {
        let n = i.to_string();
        let talk = clients[i % 2].talk(&s().unnamed(sql, &[Some(&n)]).sync());
        assert_eq!(talk, format!("1 2 T(counted) D({n}) C(SELECT 1) Z(I)"));
    }
    let counted = clients[0].value(COUNTED);
    if begin.elapsed() > Duration::from_millis(900) {
        // One that is a second old may have been parsed by other catalogs. A machine that is so slow shows nothing.
        eprintln!("not judged: it took {:?}", begin.elapsed());
        return;
    }
    let figures: Vec<u32> = counted.split('|').map(|n| n.parse().unwrap()).collect();
    // The first one or two were PostgreSQL's own unnamed statement. A generic plan serves from the sixth on.
    assert!(figures[0] == 1 && figures[1] >= 13 && figures[2] == 5, "{counted}");
    // Other types are another statement.
    for _ in 0..3 {
        let typed = s().parse_typed("", sql, &[25]).bind("", &[Some("5")]).execute().sync();
        assert_eq!(clients[0].talk(&typed), "1 2 D(5) C(SELECT 1) Z(I)");
    }
    assert!(clients[0].value(COUNTED).starts_with("2|"));
    // One that never comes again is left to PostgreSQL.
    clients[0].talk(&s().unnamed("SELECT 'counted once'", &[]).sync());
    assert!(clients[0].value(COUNTED).starts_with("2|"));
    // Nor does one that can't be parsed become known.
    for _ in 0..3 {
        assert_eq!(
            clients[0].talk(&s().unnamed("SELECT counted WRONG", &[]).sync()),
            "E(42703) Z(I)".replace("42703", &wrong(&database))
        );
    }
    assert!(clients[0].value(COUNTED).starts_with("2|"));
}

/// The SQLSTATE that PostgreSQL gives for that text.
fn wrong(database: &Database<'_>) -> String {
    let mut straight = database.server.raw().login("app", &database.name);
    straight.send(&s().unnamed("SELECT counted WRONG", &[]).sync());
    straight.until_ready(1)[0].field(b'C')
}

fn without_auto_prepare_unnamed_statements_stay_unnamed(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).pool("auto_prepare = false").start();
    let mut client = pool.raw_app(&database);
    for i in 0..8 {
        let n = i.to_string();
        let talk = client.talk(&s().unnamed("SELECT $1::int AS counted", &[Some(&n)]).sync());
        assert_eq!(talk, format!("1 2 T(counted) D({n}) C(SELECT 1) Z(I)"));
    }
    assert_eq!(client.value(SHARED), "0");
    // Bound in a later transaction, on another server: it is the client's all the same.
    assert_eq!(client.talk(&s().parse("", "SELECT $1::int AS counted").sync()), "1 Z(I)");
    let mut other = pool.raw_app(&database);
    assert_eq!(other.query(HOLD), "C(BEGIN) Z(T)");
    assert_eq!(other.talk(&s().unnamed("SELECT 'other'", &[]).sync()), "1 2 T(?column?) D(other) C(SELECT 1) Z(T)");
    assert_eq!(client.talk(&s().bind("", &[Some("9")]).execute().sync()), "2 D(9) C(SELECT 1) Z(I)");
    assert_eq!(other.query("COMMIT"), "C(COMMIT) Z(I)");
    // Named ones are followed nevertheless.
    assert_eq!(client.talk(&s().parse("n", "SELECT 1").sync()), "1 Z(I)");
    assert_eq!(client.talk(&s().bind("n", &[]).execute().sync()), "2 D(1) C(SELECT 1) Z(I)");
}

fn schema_changes_are_seen_by_what_is_parsed_after_them(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let pool = config(case).size(2).start();
    let (mut client, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    let unnamed = s().unnamed("SELECT * FROM t", &[]).sync();
    assert_eq!(client.talk(&s().parse("named", "SELECT * FROM t WHERE true").sync()), "1 Z(I)");
    for _ in 0..3 {
        assert_eq!(client.talk(&unnamed), "1 2 T(a) D(1) C(SELECT 1) Z(I)");
    }
    let named = s().bind("named", &[]).describe_portal("").execute().sync();
    let mut straight = database.server.raw().login("app", &database.name);
    assert_eq!(straight.talk(&s().parse("named", "SELECT * FROM t WHERE true").sync()), "1 Z(I)");
    assert_eq!(client.talk(&named), "2 T(a) D(1) C(SELECT 1) Z(I)");
    // Both servers have them.
    assert_eq!(other.query(HOLD), "C(BEGIN) Z(T)");
    assert_eq!(client.talk(&named), "2 T(a) D(1) C(SELECT 1) Z(I)");
    assert_eq!(client.talk(&unnamed), "1 2 T(a) D(1) C(SELECT 1) Z(I)");
    assert_eq!(other.query("COMMIT"), "C(COMMIT) Z(I)");

    database.execute("ALTER TABLE t ADD b int DEFAULT 2");
    for held in [false, true] {
        if held {
            assert_eq!(other.query(HOLD), "C(BEGIN) Z(T)");
        }
        assert_eq!(client.talk(&unnamed), "1 2 T(a,b) D(1,2) C(SELECT 1) Z(I)", "{held}");
        // What was prepared before the change has the result that it had, or none.
        assert_eq!(client.talk(&named), straight.talk(&named), "{held}");
        assert_eq!(client.talk(&named), "E(0A000) Z(I)", "{held}");
    }
    assert_eq!(other.query("COMMIT"), "C(COMMIT) Z(I)");
    // In the middle of a pipeline as well, and where the table is gone and back.
    for table in ["x text) AS SELECT 'y'", "a int) AS SELECT 7"] {
        let (columns, query) = table.split_once(" AS ").unwrap();
        database.execute(&format!("DROP TABLE t; CREATE TABLE t ({columns}; INSERT INTO t {query}"));
        let pipeline = s().unnamed("SELECT 1", &[]).sync().then(&unnamed).then(&named);
        for _ in 0..3 {
            assert_eq!(client.talk_to(&pipeline, 3), straight.talk_to(&pipeline, 3), "{table}");
        }
    }
    assert_eq!(client.talk(&named), "2 T(a) D(7) C(SELECT 1) Z(I)");
}

fn schema_changes_in_a_transaction_are_postgresqls_error(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let pool = config(case).size(1).start();
    let mut client = pool.raw_app(&database);
    let bind = s().bind("p", &[]).execute().sync();
    assert_eq!(client.talk(&s().parse("p", "SELECT * FROM t").sync()), "1 Z(I)");
    assert_eq!(client.talk(&bind), "2 D(1) C(SELECT 1) Z(I)");
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    assert_eq!(client.query("ALTER TABLE t ADD b int DEFAULT 2"), "C(ALTER TABLE) Z(T)");
    assert_eq!(client.talk(&bind), "E(0A000) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(client.talk(&bind), "2 D(1) C(SELECT 1) Z(I)");
    database.execute("ALTER TABLE t ADD b int DEFAULT 2");
    // The transaction's own statement comes first: too late to begin anew.
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    assert_eq!(client.talk(&bind), "E(0A000) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(client.talk(&bind), "E(0A000) Z(I)", "it stays what it was");
}

fn a_known_parse_needs_no_server(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).pool("wait_timeout = \"400ms\"").start();
    let (mut holder, mut client) = (pool.raw_app(&database), pool.raw_app(&database));
    assert_eq!(holder.talk(&s().parse("p", "SELECT 1 AS one").sync()), "1 Z(I)");
    for _ in 0..2 {
        assert_eq!(holder.talk(&s().parse("", "SELECT 1 AS one").sync()), "1 Z(I)");
    }
    assert_eq!(holder.query(HOLD), "C(BEGIN) Z(T)");
    // All servers are busy, and who waits for one is refused. Nothing of this needs one.
    for name in ["a", "b"] {
        assert_eq!(client.talk(&s().parse(name, "SELECT 1 AS one").sync()), "1 Z(I)");
    }
    assert_eq!(client.talk(&s().parse("", "SELECT 1 AS one").sync()), "1 Z(I)");
    assert_eq!(client.talk(&s().close("b").sync()), "3 Z(I)");
    assert_eq!(client.query("DEALLOCATE a"), "C(DEALLOCATE) Z(I)");
    assert_eq!(client.talk(&s().parse("a", "SELECT 1 AS one").flush().sync()), "1 Z(I)");
    assert_eq!(client.talk(&s().sync()), "Z(I)");
    // One that is not known has to wait, and so has every use.
    let mut waiting = pool.raw_app(&database);
    waiting.send(&s().parse("new", "SELECT 'never seen'").sync());
    let messages = waiting.until_end();
    assert_eq!(transcript(&messages), "E(FATAL 53300)");
    // With a server, the statement is there.
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(client.talk(&s().bind("a", &[]).execute().sync()), "2 D(1) C(SELECT 1) Z(I)");
}

fn discarding_hurts_nobody_else(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    let prepare = s().parse("p", "SELECT 1").sync();
    let run = s().bind("p", &[]).execute().sync();
    for discard in ["DISCARD ALL", "DEALLOCATE ALL", "BEGIN; DEALLOCATE ALL; COMMIT"] {
        assert_eq!(one.talk(&s().close("p").then(&prepare)), "3 1 Z(I)");
        assert_eq!(other.talk(&s().close("p").then(&prepare)), "3 1 Z(I)");
        assert_eq!(
            (one.talk(&run), other.talk(&run)),
            ("2 D(1) C(SELECT 1) Z(I)".into(), "2 D(1) C(SELECT 1) Z(I)".into())
        );
        let done = one.query(discard);
        assert!(!done.contains("E("), "{done}");
        assert_eq!(other.talk(&run), "2 D(1) C(SELECT 1) Z(I)", "{discard}");
        assert_eq!(one.talk(&run), "E(26000) Z(I)", "{discard}");
        // By the extended protocol too.
        if !discard.contains(';') {
            let done = one.talk(&s().unnamed(discard, &[]).sync());
            assert!(!done.contains("E("), "{done}");
            assert_eq!(other.talk(&run), "2 D(1) C(SELECT 1) Z(I)", "{discard}, extended");
        }
    }
}

fn statements_survive_lost_servers(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut client = pool.raw_app(&database);
    assert_eq!(client.talk(&s().parse("p", "SELECT 1").sync()), "1 Z(I)");
    let run = s().bind("p", &[]).execute().sync();
    for _ in 0..3 {
        assert_eq!(client.talk(&run), "2 D(1) C(SELECT 1) Z(I)");
        let backend = client.backend();
        // An idle client does not notice.
        database.server.execute(&format!("SELECT pg_terminate_backend({backend}, 5000)"));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(client.talk(&run), "2 D(1) C(SELECT 1) Z(I)");
        assert_ne!(client.backend(), backend);
    }
}

fn pgbench_runs_to_its_end_by_every_protocol(case: Case) {
    let database = database(case);
    let server = database.server;
    let pool = config(case).size(20).start();
    let at = |port: String, host: &str| {
        ["-h".to_owned(), host.to_owned(), "-p".to_owned(), port, "-U".to_owned(), "app".to_owned()]
    };
    let mut fill = server.program("pgbench");
    fill.args(["-i", "-q", "-s", "5"]).args(at(server.port().to_string(), &server.socket_dir().display().to_string()));
    let output = fill.arg(&database.name).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for protocol in ["prepared", "extended", "simple"] {
        for read_only in [false, true] {
            let mut run = server.program("pgbench");
            run.args(["-n", "-c", "64", "-j", "2", "-t", "10", "-M", protocol]);
            if read_only {
                run.arg("-S");
            }
            run.args(at(pool.address().port().to_string(), "127.0.0.1"));
            let begin = Instant::now();
            let output = run.arg(&database.name).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{protocol}, -S {read_only}: {said}");
            assert!(said.contains("actually processed: 640/640"), "{protocol}, -S {read_only}: {said}");
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        }
    }
    assert!(database.connections() <= 20);
    let expected = server.superuser(&database.name).query_one("SELECT count(*) FROM pgbench_history", &[]).unwrap();
    assert_eq!(expected.get::<_, i64>(0), 3 * 640);
}
