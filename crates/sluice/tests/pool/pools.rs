//! Servers and who gets them: sizes, waits, time-outs, limits, cancels, and the end.

use std::{
    net::TcpListener,
    os::unix::fs::symlink,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Case, PoolConfig, Raw, Script, TestPool, becomes, eventually, matrix, proc, raw::transcript};

use crate::{HOLD, SLUICE, config, database};

matrix!(both_modes: no_more_servers_than_the_size, waits_end_with_what_to_change, a_stop_lets_transactions_finish);
matrix!(transaction:
    waiters_are_served_in_order,
    idle_servers_go_and_the_minimum_stays,
    old_servers_are_replaced,
    a_limit_over_all_pools,
    a_server_that_is_not_there,
    servers_that_never_answer,
    a_cancel_reaches_its_query_only,
    cancels_never_hit_another_client,
    a_cancel_while_waiting,
    workers_share_servers,
    a_slow_reader_holds_its_own_server_only,
    figures_are_in_the_log,
    a_database_can_be_copied_by_its_only_client,
    a_database_can_be_dropped_when_its_clients_have_gone,
);

fn s() -> Script {
    Script::new()
}

fn no_more_servers_than_the_size(case: Case) {
    let database = database(case);
    let pool = config(case).size(3).start();
    let most = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let mut client = pool.raw_app(&database);
                    assert_eq!(
                        client.query("BEGIN; SELECT pg_sleep(0.01); COMMIT"),
                        "C(BEGIN) T(pg_sleep) D() C(SELECT 1) C(COMMIT) Z(I)"
                    );
                    let now = database.connections();
                    let mut most = most.lock().unwrap();
                    *most = now.max(*most);
                }
            });
        }
    });
    // All of them were needed, and none more.
    assert_eq!(most.into_inner().unwrap(), 3);
    // In session mode one may still be put in order for the next client.
    becomes("busy servers", 0, || database.count("state <> 'idle'"));
}

fn waits_end_with_what_to_change(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).pool("wait_timeout = \"300ms\"").start();
    let mut holder = pool.raw_app(&database);
    assert_eq!(holder.query(HOLD), "C(BEGIN) Z(T)");
    let begin = Instant::now();
    let mut client = pool.raw();
    let mut messages = client
        .login_with(sluice_wire::startup::ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
    // In session mode as well a client is let in when it is known what it is told, and waits with its first query.
    if messages.last().is_some_and(|message| message.tag == b'Z') {
        client.send(&s().query("SELECT 1"));
        messages = client.until_end();
    }
    let error = messages.last().unwrap();
    assert_eq!(error.to_string(), "E(FATAL 53300)");
    assert!(error.field(b'M').contains("wait_timeout") && error.field(b'H').contains("\"size\""), "{error:?}");
    assert!(error.field(b'D').contains("1 of 1"), "{}", error.field(b'D'));
    let waited = begin.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(20), "{waited:?}");
    // The one that holds it notices nothing; and nobody waits in vain once it is free.
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    drop(holder);
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

fn waiters_are_served_in_order(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE served (place serial, client int)");
    let pool = config(case).size(1).workers(2).start();
    let mut holder = pool.raw_app(&database);
    let mut clients: Vec<Raw> = (0..12).map(|_| pool.raw_app(&database)).collect();
    assert_eq!(holder.query(HOLD), "C(BEGIN) Z(T)");
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&s().query(&format!("INSERT INTO served (client) VALUES ({number})")));
        // By another worker, maybe: it has to be seen before the next one comes.
        thread::sleep(Duration::from_millis(10));
    }
    // One that goes while it waits is passed over; one that comes after all of them is last.
    drop(clients.remove(5));
    thread::sleep(Duration::from_millis(10));
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(holder.query("INSERT INTO served (client) VALUES (99)"), "C(INSERT 0 1) Z(I)");
    for client in &mut clients {
        assert_eq!(transcript(&client.until_ready(1)), "C(INSERT 0 1) Z(I)");
    }
    let order = holder.value("SELECT string_agg(client::text, ' ' ORDER BY place) FROM served");
    assert_eq!(order, "0 1 2 3 4 6 7 8 9 10 11 99");
}

/// Has `count` servers of a pool busy at the same time, and then idle.
fn use_servers(pool: &TestPool, database: &sluice_testkit::Database<'_>, count: usize) {
    let mut clients: Vec<Raw> = (0..count).map(|_| pool.raw_app(database)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)"));
    assert_eq!(database.connections(), count);
    clients.iter_mut().for_each(|client| assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)"));
}

fn idle_servers_go_and_the_minimum_stays(case: Case) {
    let database = database(case);
    let pool = config(case).size(5).pool("min = 2").pool("server_idle_timeout = \"1s\"").start();
    assert_eq!(database.connections(), 0, "a pool that nobody uses opens nothing");
    let mut client = pool.raw_app(&database);
    becomes("open after the first use", 2, || database.connections());
    use_servers(&pool, &database, 5);
    becomes("open after a while", 2, || database.connections());
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(database.connections(), 2);
    // Lost ones are opened again. Only when both are new has the pool seen both losses.
    let servers = "pid FROM pg_stat_activity WHERE usename = 'app' AND datname";
    let lost = database
        .server
        .value(&format!("SELECT string_agg(pid::text, ',') FROM (SELECT {servers} = '{}') _", database.name));
    database.server.execute(&format!("SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{lost}]) pid"));
    becomes("opened after a loss", 2, || database.count(&format!("pid NOT IN ({lost})")));
    assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

fn old_servers_are_replaced(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).pool("server_lifetime = \"1s\"").start();
    let mut client = pool.raw_app(&database);
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    let first = client.backend();
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(client.backend(), first, "never inside a transaction");
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    let second = client.backend();
    assert_ne!(second, first);
    // An idle one goes as well.
    becomes("open after a while", 0, || database.connections());
    assert_ne!(client.backend(), second);
    assert!(!pool.log().contains("WARN"), "{}", pool.log());
}

fn a_limit_over_all_pools(case: Case) {
    let (one, other) = (database(case), database(case));
    let pool = config(case).size(2).limit("servers = 2").pool("wait_timeout = \"2s\"").start();
    use_servers(&pool, &one, 2);
    // Idle ones of one pool make room for the other.
    let mut client = pool.raw_app(&other);
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    becomes("open over all", 2, || one.connections() + other.connections());
    let mut second = pool.raw_app(&other);
    assert_eq!(second.query(HOLD), "C(BEGIN) Z(T)");
    becomes("open in the first pool", 0, || one.connections());
    assert_eq!(other.connections(), 2);
    // All are busy: the first pool has to wait, and gets one as soon as there is one.
    let mut waiting = pool.raw_app(&one);
    waiting.send(&s().query("SELECT 'mine'"));
    assert!(waiting.is_silent(Duration::from_millis(200)));
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(transcript(&waiting.until_ready(1)), "T(?column?) D(mine) C(SELECT 1) Z(I)");
    becomes("open over all", 2, || one.connections() + other.connections());
}

fn a_server_that_is_not_there(case: Case) {
    let database = database(case);
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("socket");
    let host = link.display().to_string();
    let config = PoolConfig::without_databases(SLUICE, case).database_at("*", &host, database.server.port(), "");
    let pool = config.pool("connect_timeout = \"500ms\"").pool("backoff_max = \"200ms\"").start();
    thread::scope(|scope| {
        let mut all = Vec::new();
        for _ in 0..10 {
            let login = || {
                let begin = Instant::now();
                let error = pool.connect("app", None, &database.name).err().unwrap();
                let error = error.as_db_error().unwrap().clone();
                assert_eq!((error.severity(), error.code().code()), ("FATAL", "08001"), "{error}");
                assert!(error.message().contains(&host), "{error}");
                begin.elapsed()
            };
            all.push(scope.spawn(login));
        }
        for waited in all {
            let waited = waited.join().unwrap();
            assert!(waited < Duration::from_secs(20), "{waited:?}");
        }
    });
    // The server appears: nobody has to do anything.
    symlink(database.server.socket_dir(), &link).unwrap();
    eventually("the pool has found its server", || pool.connect("app", None, &database.name).is_ok());
    let mut client = pool.raw_app(&database);
    // It goes again: open connections live on, and new ones wait no longer than they may.
    std::fs::remove_file(&link).unwrap();
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    symlink(database.server.socket_dir(), &link).unwrap();
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
}

fn servers_that_never_answer(case: Case) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let rude = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let config = PoolConfig::without_databases(SLUICE, case)
        .database_at("silent", "127.0.0.1", port(&silent), "")
        .database_at("rude", "127.0.0.1", port(&rude), "");
    let pool = config.pool("connect_timeout = \"500ms\"").start();
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let rude = &rude;
        scope.spawn(move || {
            rude.set_nonblocking(true).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                if let Ok((mut stream, _)) = rude.accept() {
                    let _ = std::io::Write::write_all(&mut stream, b"SSH-2.0-OpenSSH_9.2\r\nwhatever it says\r\n");
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        for name in ["silent", "rude"] {
            let begin = Instant::now();
            let error = pool.connect("app", None, name).err().unwrap();
            let code = error.as_db_error().map(|error| error.code().code().to_owned());
            assert!(matches!(code.as_deref(), Some("08001" | "08P01")), "{name}: {error:?}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{name}: {:?}", begin.elapsed());
        }
        drop(stop);
    });
}

fn a_cancel_reaches_its_query_only(case: Case) {
    let database = database(case);
    let pool = config(case).size(10).workers(2).start();
    let login = |version| {
        let mut raw = pool.raw();
        raw.login_with(version, &[("user", "app"), ("database", &database.name)]);
        raw
    };
    // Short keys and long ones.
    let versions = [sluice_wire::startup::ProtocolVersion::V3_0, sluice_wire::startup::ProtocolVersion::V3_2];
    let mut clients: Vec<Raw> = (0..10).map(|i| login(versions[i % 2])).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&s().query(&format!("SELECT {number} FROM pg_sleep(2)")));
    }
    becomes("sleepers", 10, || database.count("wait_event = 'PgSleep'"));
    for chosen in [3, 4] {
        clients[chosen].cancel(pool.raw());
        assert_eq!(transcript(&clients[chosen].until_ready(1)), "T(?column?) E(57014) Z(I)");
    }
    // A wrong key, a wrong number, and a client that runs nothing.
    let key = clients[6].key.clone();
    clients[6].key.1[0] ^= 1;
    clients[6].cancel(pool.raw());
    clients[6].key = (key.0 ^ 0x00ff_0000, key.1.clone());
    clients[6].cancel(pool.raw());
    clients[6].key = (0, vec![0]);
    clients[6].cancel(pool.raw());
    clients[6].key = key;
    clients[3].cancel(pool.raw());
    for (number, client) in clients.iter_mut().enumerate().filter(|(number, _)| ![3, 4].contains(number)) {
        assert_eq!(transcript(&client.until_ready(1)), format!("T(?column?) D({number}) C(SELECT 1) Z(I)"));
    }
    assert_eq!(clients[3].query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // In a transaction, which fails and goes on to its end.
    assert_eq!(clients[0].query(HOLD), "C(BEGIN) Z(T)");
    clients[0].send(&s().query("SELECT pg_sleep(20)"));
    becomes("sleepers", 1, || database.count("wait_event = 'PgSleep'"));
    clients[0].cancel(pool.raw());
    assert_eq!(transcript(&clients[0].until_ready(1)), "T(pg_sleep) E(57014) Z(E)");
    assert_eq!(clients[0].query("ROLLBACK"), "C(ROLLBACK) Z(I)");
}

/// One client cancels its quick queries all the time; those who get its server next must not feel it.
fn cancels_never_hit_another_client(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    let end = Instant::now() + Duration::from_millis(1500);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut hasty = pool.raw_app(&database);
                let mut hits = 0;
                while Instant::now() < end {
                    hasty.send(&s().query("SELECT pg_sleep(0.002)"));
                    hasty.cancel(pool.raw());
                    let talk = transcript(&hasty.until_ready(1));
                    hits += usize::from(talk.contains("57014"));
                    assert!(
                        talk == "E(57014) Z(I)"
                            || talk == "T(pg_sleep) D() C(SELECT 1) Z(I)"
                            || talk == "T(pg_sleep) E(57014) Z(I)",
                        "{talk}"
                    );
                }
                assert!(hits > 0, "no cancel arrived");
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                let mut patient = pool.raw_app(&database);
                while Instant::now() < end {
                    assert_eq!(patient.query("SELECT 1 FROM pg_sleep(0.001)"), "T(?column?) D(1) C(SELECT 1) Z(I)");
                }
            });
        }
    });
}

fn a_cancel_while_waiting(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut holder = pool.raw_app(&database);
    let mut clients: Vec<Raw> = (0..3).map(|_| pool.raw_app(&database)).collect();
    assert_eq!(holder.query(HOLD), "C(BEGIN) Z(T)");
    clients[0].send(&s().query("SELECT 'first'").query("SELECT 'second'"));
    clients[1].send(&s().unnamed("SELECT 'one batch'", &[]).sync());
    clients[2].send(&s().query("SELECT 'not cancelled'"));
    thread::sleep(Duration::from_millis(50));
    clients[0].cancel(pool.raw());
    assert_eq!(transcript(&clients[0].until_ready(1)), "E(57014) Z(I)");
    clients[1].cancel(pool.raw());
    assert_eq!(transcript(&clients[1].until_ready(1)), "E(57014) Z(I)");
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(transcript(&clients[2].until_ready(1)), "T(?column?) D(not cancelled) C(SELECT 1) Z(I)");
    // What came behind the query that was cancelled was not.
    assert_eq!(transcript(&clients[0].until_ready(1)), "T(?column?) D(second) C(SELECT 1) Z(I)");
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
}

fn figures_are_in_the_log(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).top("stats_period = \"100ms\"").start();
    let (mut busy, mut waiting) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query("BEGIN; SELECT 1");
    waiting.send(&s().query("SELECT 2"));
    let last = |figures: &str| {
        let begin = format!("INFO pool database=\"{}\" user=\"app\" up_s=", database.name);
        pool.log().lines().rfind(|line| line.contains(&begin)).is_some_and(|line| line.contains(figures))
    };
    // The first was given a server at its login too, to hear what it reports.
    eventually("a client that waits", || {
        last(" active=1 idle=0 connecting=0 pinned=0 served=2 ") && last(" waiting=1 ")
    });
    busy.query("COMMIT");
    waiting.until_ready(1);
    eventually("its end", || {
        last(" waiting=0 longest_wait_s=0.0 active=0 idle=1 connecting=0 pinned=0 served=3 waited_s=0.")
    });
    waiting.query("LISTEN news; SELECT pg_advisory_lock(1)");
    eventually("a server that is kept", || {
        last(" active=1 idle=0 connecting=0 pinned=1 pins=\"lock=1 listen=1\" served=4 ")
    });
}

fn a_stop_lets_transactions_finish(case: Case) {
    let database = database(case);
    database.execute("CREATE TABLE kept (a int)");
    let mut pool = config(case).size(3).top("shutdown_grace = \"30s\"").start();
    let (mut idle, mut busy, mut asking) = (pool.raw_app(&database), pool.raw_app(&database), pool.raw_app(&database));
    assert_eq!(idle.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert_eq!(busy.query("BEGIN; INSERT INTO kept VALUES (1)"), "C(BEGIN) C(INSERT 0 1) Z(T)");
    asking.send(&s().query("SELECT 'slept' FROM pg_sleep(2)"));
    becomes("sleepers", 1, || database.count("wait_event = 'PgSleep'"));
    pool.note_servers(&database);
    pool.signal(proc::Kind::SIGTERM);
    // In session mode an idle session ends as soon as it is at rest.
    assert_eq!(transcript(&idle.until_end()), "E(FATAL 57P01)");
    let talk = transcript(&asking.until_ready(1));
    assert_eq!(talk, "T(?column?) D(slept) C(SELECT 1) Z(I)");
    assert_eq!(transcript(&asking.until_end()), "E(FATAL 57P01)");
    // Those who come now hear why they can't, cancels are heard, and who says nothing keeps nobody waiting.
    let refused = pool.connect("app", None, &database.name).err().unwrap();
    let refused = refused.as_db_error().unwrap();
    assert_eq!((refused.code().code(), refused.message()), ("57P03", "the connection pool is shutting down"));
    let _silent = pool.raw();
    busy.send(&s().query("SAVEPOINT a; SELECT pg_sleep(60)"));
    becomes("sleepers", 1, || database.count("wait_event = 'PgSleep'"));
    busy.cancel(pool.raw());
    assert_eq!(transcript(&busy.until_ready(1)), "C(SAVEPOINT) T(pg_sleep) E(57014) Z(E)");
    assert_eq!(busy.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    assert_eq!(busy.query("INSERT INTO kept VALUES (2)"), "C(INSERT 0 1) Z(T)");
    assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(transcript(&busy.until_end()), "E(FATAL 57P01)");
    let begin = Instant::now();
    assert!(pool.wait().success(), "{}", pool.log());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    becomes("open server connections", 0, || database.connections());
    assert_eq!(database.superuser().query_one("SELECT count(*) FROM kept", &[]).unwrap().get::<_, i64>(0), 2);

    // Those who do not end in time are ended.
    let mut pool = config(case).size(3).top("shutdown_grace = \"300ms\"").start();
    let (mut busy, mut asking) = (pool.raw_app(&database), pool.raw_app(&database));
    assert_eq!(busy.query("BEGIN; INSERT INTO kept VALUES (3)"), "C(BEGIN) C(INSERT 0 1) Z(T)");
    asking.send(&s().query("SELECT pg_sleep(2)"));
    becomes("sleepers", 1, || database.count("wait_event = 'PgSleep'"));
    pool.signal(proc::Kind::SIGTERM);
    let begin = Instant::now();
    assert_eq!(transcript(&busy.until_end()), "E(FATAL 57P01)");
    assert_eq!(transcript(&asking.until_end()), "E(FATAL 57P01)");
    assert!(pool.wait().success(), "{}", pool.log());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(database.superuser().query_one("SELECT count(*) FROM kept", &[]).unwrap().get::<_, i64>(0), 2);
}

fn workers_share_servers(case: Case) {
    const CLIENTS: usize = 30;
    let database = database(case);
    database.execute(
        "CREATE TABLE sums (client int PRIMARY KEY, n int); INSERT INTO sums SELECT i, 0 FROM generate_series(0, 29) i",
    );
    for workers in [2, 4] {
        let pool = config(case).size(3).workers(workers).start();
        let turns = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (pool, database) = (&pool, &database);
                    scope.spawn(move || {
                        let mut client = pool.raw_app(database);
                        let sql = "UPDATE sums SET n = n + 1 WHERE client = $1::int";
                        assert_eq!(client.talk(&s().parse("u", sql).sync()), "1 Z(I)");
                        let n = number.to_string();
                        for turn in 0..40 {
                            let batch = s().bind("u", &[Some(&n)]).execute().sync();
                            if turn % 4 == 0 {
                                assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
                                assert_eq!(client.talk(&batch), "2 C(UPDATE 1) Z(T)");
                                assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
                            } else {
                                assert_eq!(client.talk(&batch), "2 C(UPDATE 1) Z(I)");
                            }
                        }
                        40
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
        });
        assert_eq!(turns, CLIENTS * 40);
        assert!(database.connections() <= 3);
    }
    let sums = database.superuser().query_one("SELECT min(n), max(n) FROM sums", &[]).unwrap();
    assert_eq!((sums.get::<_, i32>(0), sums.get::<_, i32>(1)), (80, 80));
}

fn a_slow_reader_holds_its_own_server_only(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    let mut other = pool.raw_app(&database);
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    let before = pool.rss_kb();
    let mut slow = pool.raw_app(&database);
    // 100 MB that it does not read.
    slow.send(&s().query("SELECT repeat('x', 10000) FROM generate_series(1, 10000)"));
    becomes("the server waits", 1, || database.count("wait_event = 'ClientWrite'"));
    for _ in 0..50 {
        assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
    let grown = pool.rss_kb().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
    // It gets all of it when it reads.
    assert_eq!(slow.until_ready(1).len(), 10_003);
    // And the other way round: a server that does not read, since it is busy, stops its client only.
    let mut writer = pool.raw_app(&database);
    writer.send(&s().query("SELECT pg_sleep(0.5)"));
    let rows = vec![b'y'; 1 << 20];
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..30 {
                writer.send(&s().parse("", "SELECT length($1)").bind_to("", "", &[Some(&rows)]).execute());
            }
            writer.send(&s().sync());
        });
        thread::sleep(Duration::from_millis(100));
        for _ in 0..20 {
            assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
        }
    });
    let grown = pool.rss_kb().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    assert_eq!(writer.until_ready(2).len(), 4 + 30 * 4 + 1);
}

fn a_database_can_be_dropped_when_its_clients_have_gone(case: Case) {
    let (database, doomed) = (database(case), database(case));
    let maker = format!("{}_maker", database.name);
    doomed.server.execute(&format!(
        "CREATE ROLE {maker} LOGIN IN ROLE trusted; ALTER DATABASE {} OWNER TO {maker}; ALTER ROLE {maker} CREATEDB",
        doomed.name
    ));
    let pool = config(case).start();
    let mut client = pool.app(&doomed);
    client.simple_query("SELECT 1").unwrap();
    let mut owner = pool.connect(&maker, None, &database.name).unwrap();
    let drop = format!("DROP DATABASE {}", doomed.name);
    assert_eq!(owner.simple_query(&drop).unwrap_err().code().unwrap().code(), "55006", "a client is connected");
    client.simple_query("SELECT 1").unwrap();
    client.close().unwrap();
    owner.simple_query(&drop).unwrap();
}

fn a_database_can_be_copied_by_its_only_client(case: Case) {
    let database = database(case);
    let maker = format!("{}_maker", database.name);
    let copy = format!("{}_copy", database.name);
    database.server.execute(&format!(
        "CREATE ROLE {maker} LOGIN CREATEDB IN ROLE trusted; ALTER DATABASE {} OWNER TO {maker}",
        database.name
    ));
    let pool = config(case).start();
    let [mut owner, mut other] = [(); 2].map(|()| pool.connect(&maker, None, &database.name).unwrap());
    // Two servers.
    for client in [&mut owner, &mut other] {
        client.batch_execute("BEGIN; SELECT 1").unwrap();
    }
    for client in [&mut owner, &mut other] {
        client.batch_execute("COMMIT").unwrap();
    }
    let create = format!("CREATE DATABASE {copy} TEMPLATE {}", database.name);
    assert_eq!(owner.simple_query(&create).unwrap_err().code().unwrap().code(), "55006", "another client is connected");
    other.batch_execute("SELECT 1").unwrap();
    other.close().unwrap();
    owner.simple_query(&create).unwrap();
    database.server.execute(&format!("DROP DATABASE {copy}"));
}
