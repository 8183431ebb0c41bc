//! Sessions on shared servers: what one client does to its session, no other client sees; and a client that goes, in
//! whatever state, leaves its server in order.

use std::time::{Duration, Instant};

use sluice_testkit::{Case, Database, Raw, Script, TestPool, becomes, eventually, matrix, raw::transcript};

use crate::{config, database};

matrix!(both_modes:
    terminate_rolls_back_and_keeps_the_server,
    vanishing_in_a_query_frees_what_it_held,
    vanishing_in_a_copy,
    vanishing_inside_a_message,
    vanishing_with_errors_and_batches_open,
    half_closed_clients_end,
);
matrix!(transaction:
    nothing_leaks_between_transactions,
    reported_settings_follow_the_client,
    a_client_is_told_what_its_sequence_gave_it,
);
matrix!(session: a_session_is_the_clients_own, nothing_leaks_between_sessions, a_reset_leaves_other_settings_alone);

/// Statements of one client, each with a query whose answer tells whether another one sees anything of it.
const TRACES: [(&str, &str); 11] = [
    ("SET work_mem = '77MB'", "SELECT current_setting('work_mem') = '77MB'"),
    (
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SELECT current_setting('transaction_isolation') = 'serializable'",
    ),
    ("SET ROLE trusted", "SELECT current_user <> 'app'"),
    ("SET search_path = nowhere", "SELECT current_setting('search_path') = 'nowhere'"),
    ("SET a.b = 'c'", "SELECT coalesce(current_setting('a.b', true), '') <> ''"),
    ("CREATE TEMP TABLE mine (a int)", "SELECT to_regclass('pg_temp.mine') IS NOT NULL"),
    ("CREATE TEMP VIEW seen AS SELECT 1", "SELECT to_regclass('pg_temp.seen') IS NOT NULL"),
    ("CREATE TEMP SEQUENCE counted", "SELECT to_regclass('pg_temp.counted') IS NOT NULL"),
    ("LISTEN news", "SELECT count(*) > 0 FROM pg_listening_channels()"),
    ("PREPARE by_sql AS SELECT 1", "SELECT count(*) > 0 FROM pg_prepared_statements WHERE name = 'by_sql'"),
    ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "SELECT count(*) > 0 FROM pg_cursors WHERE name = 'c'"),
];

fn nothing_leaks_between_transactions(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut backend = pool.raw_app(&database).backend();
    for (act, trace) in TRACES {
        let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
        // By the simple and by the extended protocol, alone and in a transaction.
        for how in ["simple", "extended", "transaction", "and the client goes"] {
            let done = match how {
                "extended" if !act.contains(';') => one.talk(&Script::new().unnamed(act, &[]).sync()),
                "transaction" if !act.contains(';') => one.query(&format!("BEGIN; {act}; COMMIT")),
                _ => one.query(act),
            };
            assert!(!done.contains("E("), "{act}: {done}");
            // For what can't follow it, a client keeps its server until it goes.
            if how == "and the client goes" || !act.starts_with("SET") {
                drop(std::mem::replace(&mut one, pool.raw_app(&database)));
            }
            assert_eq!(other.value(trace), "f", "{act}, {how}");
        }
        // A custom setting leaves its name, and who has not made it gets another server.
        let expected = if act.contains("a.b") { other.backend() } else { backend };
        assert_eq!(other.backend(), expected, "{act}: it is the same server");
        backend = expected;
    }
    // A notification for a client that listened reaches nobody else.
    let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    assert_eq!(one.query("LISTEN news"), "C(LISTEN) Z(I)");
    drop(one);
    assert_eq!(other.query("NOTIFY news, 'hello'"), "C(NOTIFY) Z(I)");
    assert!(other.is_silent(Duration::from_millis(20)));
}

fn nothing_leaks_between_sessions(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let session_only = [
        ("SELECT set_config('work_mem', '78MB', false)", "SELECT current_setting('work_mem') = '78MB'"),
        ("CREATE TEMP TABLE copied AS SELECT 1", "SELECT to_regclass('pg_temp.copied') IS NOT NULL"),
        (
            "SELECT pg_advisory_lock(1)",
            "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        ),
        ("SET TimeZone = 'Asia/Tokyo'", "SELECT current_setting('TimeZone') = 'Asia/Tokyo'"),
        ("SET application_name = 'mine'", "SELECT current_setting('application_name') = 'mine'"),
    ];
    for (act, trace) in TRACES.iter().chain(&session_only) {
        for goodbye in [true, false] {
            let mut one = pool.raw_app(&database);
            let backend = one.backend();
            let done = one.query(act);
            assert!(!done.contains("E("), "{act}: {done}");
            if goodbye {
                one.send(&Script::new().terminate());
                assert_eq!(one.until_end(), []);
            }
            drop(one);
            let mut other = pool.raw_app(&database);
            assert_eq!(other.value(trace), "f", "{act}");
            // What DISCARD ALL takes away, and the text shows to be no more than that, leaves the server.
            let is_plain = (act.starts_with("SET ") && !act.contains("a.b")) || act.starts_with("LISTEN");
            assert_eq!(other.backend() == backend, is_plain, "{act}");
        }
    }
    // Named statements too.
    let mut one = pool.raw_app(&database);
    assert_eq!(one.talk(&Script::new().parse("a", "SELECT 1").sync()), "1 Z(I)");
    drop(one);
    let mut other = pool.raw_app(&database);
    assert_eq!(
        other.talk(&Script::new().parse("a", "SELECT 2").bind("a", &[]).execute().sync()),
        "1 2 D(2) C(SELECT 1) Z(I)"
    );
}

fn a_reset_leaves_other_settings_alone(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    // The server was opened for another one, and does not know what this client began with.
    drop(pool.app(&database));
    let mut settings = pool.client_config("app", &database.name);
    let mut client = settings.application_name("start").connect(postgres::NoTls).unwrap();
    let mut shown = |sql: &str| {
        client.batch_execute("BEGIN; SET application_name = 'mine'; SET work_mem = '5MB'").unwrap();
        // By the extended protocol, whose texts nobody reads in session mode.
        client.execute(sql, &[]).unwrap();
        let name: String = client.query_one("SELECT current_setting('application_name')", &[]).unwrap().get(0);
        client.batch_execute("COMMIT").unwrap();
        name
    };
    assert_eq!(shown("RESET work_mem"), "mine");
    assert_eq!(shown("RESET application_name"), "start");
    assert_eq!(shown("RESET ALL"), "start");
}

fn a_session_is_the_clients_own(case: Case) {
    let database = database(case);
    let pool = config(case).size(3).start();
    let mut clients: Vec<Raw> = (0..3).map(|_| pool.raw_app(&database)).collect();
    let backends: Vec<u32> = clients.iter_mut().map(Raw::backend).collect();
    for (act, _) in TRACES {
        for client in &mut clients {
            let done = client.query(act);
            assert!(!done.contains("E("), "{act}: {done}");
        }
    }
    for (place, client) in clients.iter_mut().enumerate() {
        for (act, trace) in TRACES {
            assert_eq!(client.value(trace), "t", "{act}");
        }
        assert_eq!(client.backend(), backends[place]);
    }
    let [listener, .., teller] = &mut clients[..] else { unreachable!("there are three") };
    assert_eq!(teller.query("NOTIFY news, 'hello'"), "C(NOTIFY) A(news,hello) Z(I)");
    // It comes without being asked for.
    assert_eq!(transcript(&listener.messages(1)), "A(news,hello)");
}

fn reported_settings_follow_the_client(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    let usual = other.value("SHOW TimeZone");
    assert_eq!(one.query("SET TimeZone = 'Asia/Tokyo'"), "C(SET) S(TimeZone=Asia/Tokyo) Z(I)");
    assert_eq!(other.value("SHOW TimeZone"), usual);
    assert_eq!(one.value("SHOW TimeZone"), "Asia/Tokyo");
    assert_eq!(one.query("SET client_encoding = 'LATIN1'"), "C(SET) S(client_encoding=LATIN1) Z(I)");
    assert_eq!(other.value("SHOW client_encoding"), "UTF8");
    assert_eq!(
        one.value("SELECT current_setting('client_encoding') || current_setting('TimeZone')"),
        "LATIN1Asia/Tokyo"
    );
    // What is taken back is gone.
    assert_eq!(one.query("BEGIN; SET application_name = 'brief'"), "C(BEGIN) C(SET) S(application_name=brief) Z(T)");
    assert_eq!(one.query("ROLLBACK"), "C(ROLLBACK) S(application_name=) Z(I)");
    assert_eq!(one.query("BEGIN; SET LOCAL TimeZone = 'UTC'"), "C(BEGIN) C(SET) S(TimeZone=UTC) Z(T)");
    assert_eq!(one.query("COMMIT"), "C(COMMIT) S(TimeZone=Asia/Tokyo) Z(I)");
    assert_eq!(other.value("SHOW application_name"), "");
    assert_eq!(one.value("SHOW TimeZone"), "Asia/Tokyo");
    // DISCARD ALL goes back to where the session began.
    assert!(!one.query("DISCARD ALL").contains("E("));
    assert_eq!(one.value("SHOW client_encoding"), "UTF8");
    assert_eq!(one.value("SHOW TimeZone"), usual);
}

/// A pool of one server before a table `t` with a row, and that server's process.
fn one_server<'a>(case: Case, database: &Database<'a>) -> (TestPool, u32) {
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old')");
    let pool = config(case).size(1).start();
    let backend = pool.raw_app(database).backend();
    (pool, backend)
}

/// The table is as it was and nobody holds it; gives the process of the server that says so.
fn untouched(pool: &TestPool, database: &Database<'_>, what: &str) -> u32 {
    let begin = Instant::now();
    let mut client = pool.raw_app(database);
    let lock = "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; COMMIT";
    assert_eq!(client.query(lock), "C(BEGIN) C(LOCK TABLE) C(COMMIT) Z(I)", "{what}");
    assert_eq!(client.value("SELECT string_agg(v, ',') FROM t"), "old", "{what}");
    let backend = client.backend();
    client.send(&Script::new().terminate());
    assert_eq!(client.until_end(), []);
    assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {:?}", begin.elapsed());
    backend
}

fn terminate_rolls_back_and_keeps_the_server(case: Case) {
    let database = database(case);
    let (pool, backend) = one_server(case, &database);
    let begun = ["BEGIN; UPDATE t SET v = 'new'", "BEGIN; UPDATE t SET v = 'new'; SELECT 1/0", "SELECT 1"];
    for sql in begun {
        let mut client = pool.raw_app(&database);
        client.query(sql);
        client.send(&Script::new().terminate());
        assert_eq!(client.until_end(), []);
        assert_eq!(untouched(&pool, &database, sql), backend, "{sql}: the server is kept");
    }
    // With the goodbye in the same packet as the query.
    let mut client = pool.raw_app(&database);
    client.send(&Script::new().query("BEGIN").query("UPDATE t SET v = 'new'").terminate());
    client.until_end();
    untouched(&pool, &database, "a goodbye behind the query");
    // What was not in a transaction is done.
    let mut client = pool.raw_app(&database);
    client.send(&Script::new().query("SELECT pg_sleep(0.2)").query("UPDATE t SET v = 'kept'").terminate());
    client.until_end();
    let mut client = pool.raw_app(&database);
    becomes("rows that were changed", 1, || client.value("SELECT count(*) FROM t WHERE v = 'kept'").parse().unwrap());
    drop(client);
    becomes("open server connections", 1, || database.connections());
}

fn vanishing_in_a_query_frees_what_it_held(case: Case) {
    let database = database(case);
    let (pool, backend) = one_server(case, &database);
    let asleep = |count| becomes("sleepers", count, || database.count("wait_event = 'PgSleep'"));
    let begin = Script::new().query("BEGIN; UPDATE t SET v = 'new'");
    let sleeping = [
        ("a query", begin.clone().query("SELECT pg_sleep(60)")),
        ("a query without a transaction", Script::new().query("SELECT pg_sleep(60)")),
        ("a batch", begin.clone().unnamed("SELECT pg_sleep(60)", &[]).sync()),
        ("a batch without a sync", begin.clone().unnamed("SELECT pg_sleep(60)", &[]).flush()),
        ("a pipeline", begin.clone().query("SELECT pg_sleep(60)").query("SELECT 2").query("COMMIT")),
        ("a function call", begin.query("SELECT 1").call(2626, &[&60f64.to_be_bytes()])),
    ];
    for (what, script) in sleeping {
        let mut client = pool.raw_app(&database);
        client.send(&script);
        asleep(1);
        drop(client);
        let stays = case.is_transaction() || what != "a function call";
        assert!(untouched(&pool, &database, what) == backend || !stays, "{what}: cancelled, not closed");
        asleep(0);
    }
    // While rows flow that nobody takes.
    let mut client = pool.raw_app(&database);
    client.send(&Script::new().query("SELECT repeat('x', 1000) FROM generate_series(1, 10000000)"));
    assert_eq!(transcript(&client.messages(1)), "T(repeat)");
    drop(client);
    untouched(&pool, &database, "a long result");
    becomes("open server connections", 1, || database.connections());
}

fn vanishing_in_a_copy(case: Case) {
    let database = database(case);
    let (pool, mut backend) = one_server(case, &database);
    let data = Script::new().copy_data(b"2\tnew\n").copy_data(b"3\tne");
    let extended = Script::new().parse("", "COPY t FROM STDIN").bind("", &[]).execute();
    let copies = [
        ("a copy", Script::new().query("COPY t FROM STDIN").then(&data)),
        ("a copy in a transaction", Script::new().query("BEGIN").query("COPY t FROM STDIN").then(&data)),
        ("an extended copy", extended.clone().then(&data)),
        ("an extended copy behind its flush", extended.clone().flush().then(&data)),
        ("an extended copy behind its sync", extended.sync().then(&data)),
    ];
    for (what, script) in copies {
        for wait_for_it in [true, false] {
            let mut client = pool.raw_app(&database);
            client.send(&script);
            if wait_for_it && what != "an extended copy" {
                while client.message().is_some_and(|message| message.tag != b'G') {}
            }
            drop(client);
            let now = untouched(&pool, &database, what);
            // A Sync that a COPY may or may not have read leaves the server in doubt: that one is given up.
            if what == "an extended copy behind its sync" {
                backend = now;
            }
            assert_eq!(now, backend, "{what}, {wait_for_it}");
        }
    }
    // Copying out, with nobody who reads.
    let mut client = pool.raw_app(&database);
    client.send(&Script::new().query("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 10000000)) TO STDOUT"));
    assert_eq!(transcript(&client.messages(1)), "H");
    drop(client);
    assert_eq!(untouched(&pool, &database, "copying out"), backend);
}

fn vanishing_inside_a_message(case: Case) {
    let database = database(case);
    let (pool, _) = one_server(case, &database);
    let update = "UPDATE t SET v = 'new'";
    let value = vec![b'v'; 100_000];
    let whole = [
        ("a query", Script::new().query(&format!("{update} WHERE v <> '{}'", "x".repeat(100_000)))),
        ("a parse", Script::new().parse("a", &format!("{update} WHERE v <> '{}'", "x".repeat(100_000)))),
        ("a bind", Script::new().query("BEGIN").query(update).parse("", "SELECT $1").bind_to("", "", &[Some(&value)])),
        ("copy data", Script::new().query("COPY t FROM STDIN").copy_data(b"2\tnew\n").copy_data(&value)),
        ("a header", Script::new().query("BEGIN").query(update).bytes(b"Q\0\0\0\x10SELE")),
    ];
    for (what, script) in whole {
        for cut in [script.0.len() / 2, script.0.len() - 3, 3] {
            let mut client = pool.raw_app(&database);
            client.send_bytes(&script.0[..cut]);
            // Some of it is on its way to the server when the client goes.
            std::thread::sleep(Duration::from_millis(20));
            drop(client);
            untouched(&pool, &database, what);
        }
    }
    becomes("open server connections", 1, || database.connections());
}

fn vanishing_with_errors_and_batches_open(case: Case) {
    let database = database(case);
    let (pool, backend) = one_server(case, &database);
    let update = "UPDATE t SET v = 'new'";
    let batches = [
        ("a batch without an end", Script::new().unnamed(update, &[]).flush()),
        ("a batch that begins", Script::new().unnamed("BEGIN", &[]).unnamed(update, &[]).flush()),
        ("an error without a sync", Script::new().unnamed(update, &[]).unnamed("SELECT 1/0", &[]).flush()),
        ("an error and more", Script::new().unnamed("SELEC", &[]).unnamed(update, &[]).flush().parse("a", update)),
        ("a parse", Script::new().parse("", update).flush()),
        ("a failed transaction", Script::new().query("BEGIN").query(update).query("SELECT 1/0")),
    ];
    for (what, script) in batches {
        for pause in [0, 20] {
            let mut client = pool.raw_app(&database);
            client.send(&script);
            std::thread::sleep(Duration::from_millis(pause));
            drop(client);
            // In session mode nobody says what a text does that makes no sense.
            let stays = case.is_transaction();
            assert!(untouched(&pool, &database, what) == backend || !stays, "{what}");
        }
    }
}

fn half_closed_clients_end(case: Case) {
    let database = database(case);
    let (pool, _) = one_server(case, &database);
    for sql in ["SELECT 1", "BEGIN; UPDATE t SET v = 'new'", "SELECT pg_sleep(60)"] {
        let mut client = pool.raw_app(&database);
        client.send(&Script::new().query(sql));
        client.end_sending();
        // Whatever it still gets, the connection ends.
        client.until_end();
        untouched(&pool, &database, sql);
    }
    eventually("nothing sleeps", || database.count("wait_event = 'PgSleep'") == 0);
}

/// As `lastInsertId()` of many frameworks asks: in a transaction of its own, and while others wait for servers.
fn a_client_is_told_what_its_sequence_gave_it(case: Case) {
    let database = database(case);
    let pool = config(case).size(3).start();
    let mut first = pool.raw_app(&database);
    first.query("CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY)");
    assert_eq!(first.query("SELECT lastval()"), "T(lastval) E(55000) Z(I)", "from now on it is known that clients ask");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = pool.raw_app(&database);
            scope.spawn(move || {
                for _ in 0..40 {
                    let begin = Instant::now();
                    let id = client.value("INSERT INTO numbered DEFAULT VALUES RETURNING id");
                    let answer = client.query("SELECT lastval()");
                    // Others wait, so who asks later than a tenth of a second may ask in vain.
                    let is_late = answer.ends_with("E(55000) Z(I)") && begin.elapsed() > Duration::from_millis(100);
                    assert!(is_late || answer == format!("T(lastval) D({id}) C(SELECT 1) Z(I)"), "{id}: {answer}");
                }
            });
        }
    });
}
