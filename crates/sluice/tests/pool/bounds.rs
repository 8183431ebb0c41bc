//! Bounds: things that must not grow without an end, nor last without one, whatever clients do or leave undone.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Auth, Case, Script, matrix, raw::transcript};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::{HOLD, config, database};

matrix!(both_modes: half_a_message_holds_a_server_for_a_time, an_idle_transaction_holds_a_server_for_a_time);
matrix!(transaction:
    answers_that_nobody_reads_are_not_kept,
    look_ups_do_not_wait_for_each_other,
    names_that_are_made_up_leave_nothing,
);

/// The size of the answers that the client asks for without reading any, in bytes.
const UNREAD_BYTES: usize = 32 << 20;

fn answers_that_nobody_reads_are_not_kept(case: Case) {
    let database = database(case);
    let pool = config(case).start();
    pool.raw_app(&database);
    // Each is answered by Sluice itself: a Sync with nothing before it, and a BEGIN with an end.
    for (asked, answered) in [(Script::new().sync(), 6), (Script::new().query("BEGIN").query("ROLLBACK"), 11 + 14 + 12)]
    {
        let mut stream = TcpStream::connect(pool.address()).unwrap();
        let mut packet = Vec::new();
        startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app"), ("database", &*database.name)]);
        stream.write_all(&packet).unwrap();
        read_until_ready(&mut stream);
        let before = pool.rss_kb();
        let count = UNREAD_BYTES / asked.0.len();
        let all = asked.0.repeat(count);
        let mut writing = stream.try_clone().unwrap();
        let grown = thread::scope(|scope| {
            scope.spawn(move || writing.write_all(&all).unwrap());
            // Until it is stopped, or all is sent.
            thread::sleep(Duration::from_secs(1));
            let grown = pool.rss_kb().saturating_sub(before);
            // It gets all of it when it reads.
            stream.set_read_timeout(Some(sluice_testkit::PATIENCE)).unwrap();
            let mut answers = vec![0; answered * count];
            stream.read_exact(&mut answers).unwrap();
            assert_eq!(answers[answers.len() - 6..], *b"Z\0\0\0\x05I");
            grown
        });
        // The worker's receive buffers are among it.
        assert!(grown < 12 << 10, "{grown} KiB more");
    }
}

/// Reads up to the ReadyForQuery that ends a login.
fn read_until_ready(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"Z\0\0\0\x05I") {
        let mut chunk = [0; 4096];
        let bytes = stream.read(&mut chunk).unwrap();
        assert!(bytes > 0, "the login ended");
        read.extend_from_slice(&chunk[..bytes]);
    }
}

fn names_that_are_made_up_leave_nothing(case: Case) {
    let database = database(case);
    let secrets = vec![("app".to_owned(), "secret".to_owned())];
    // Names that need not be proven are known to be made up when the server says so.
    // Each of those takes a server process.
    for (auth, answer, limit, names, grown_kb_max) in [
        (Auth::Scram(secrets), "R", "pools = 1000", 6_000, 3 << 10),
        (Auth::Trust, "R E(FATAL 28000)", "pools = 20", 2_000, 2 << 10),
    ] {
        let pool = config(case).auth(auth).limit(limit).start();
        let login = |number: usize| {
            let mut raw = pool.raw();
            let mut packet = Vec::new();
            let user = format!("made_up_{number}");
            startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", &*user), ("database", &*database.name)]);
            raw.send_bytes(&packet);
            let told = transcript(&raw.messages(answer.split(" E").count()));
            assert!(told == answer, "{told}");
        };
        (0..100).for_each(login);
        let before = pool.rss_kb();
        (100..names).for_each(login);
        let grown = pool.rss_kb().saturating_sub(before);
        assert!(grown < grown_kb_max, "{grown} KiB more for {names} names");
    }
}

fn half_a_message_holds_a_server_for_a_time(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).limit("client_message_timeout = \"500ms\"").start();
    // A shorter one is waited for without a server.
    let message = Script::new().query(&format!("SELECT '{}'", "x".repeat(60_000)));
    let mut halves: Vec<_> = (0..2).map(|_| pool.raw_app(&database)).collect();
    for client in &mut halves {
        assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
        client.send_bytes(&message.0[..30_000]);
    }
    let begin = Instant::now();
    // All servers are held, and then they are not.
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    for client in &mut halves {
        assert_eq!(transcript(&client.until_end()), "E(FATAL 08P01)");
    }
}

fn an_idle_transaction_holds_a_server_for_a_time(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).limit("idle_transaction_timeout = \"700ms\"").start();
    let mut client = pool.raw_app(&database);
    assert_eq!(client.query(HOLD), "C(BEGIN) Z(T)");
    // A client that is not idle is let be, however long a statement takes.
    assert_eq!(client.query("SELECT pg_sleep(1.2)"), "T(pg_sleep) D() C(SELECT 1) Z(T)");
    let mut other = pool.raw_app(&database);
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    let told = client.until_end();
    assert_eq!(transcript(&told), "E(FATAL 25P03)");
    // As PostgreSQL itself words it.
    assert_eq!(told[0].field(b'M'), "terminating connection due to idle-in-transaction timeout");
    assert_eq!(database.count("state LIKE 'idle in transaction%'"), 0);
    // Outside of a transaction a client may be idle for as long as it likes.
    thread::sleep(Duration::from_millis(1_000));
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // A batch is open as well whose answers nobody has asked for.
    other.send(&Script::new().parse("", "SELECT 1").bind("", &[]).execute());
    assert_eq!(transcript(&other.until_end()), "1 2 D(1) C(SELECT 1) E(FATAL 25P03)");
}

fn look_ups_do_not_wait_for_each_other(case: Case) {
    let database = database(case);
    let role = |suffix: &str| {
        let name = format!("{}_{suffix}", database.name);
        database.server.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'"));
        name
    };
    let slow = ["slow_a", "slow_b", "slow_c"].map(role);
    let quick = role("quick");
    let query = "query = \"SELECT rolpassword FROM pg_authid WHERE rolname = $1 \
                 AND CASE WHEN rolname LIKE '%slow%' THEN pg_sleep(3) IS NOT NULL ELSE true END\"";
    let pool = config(case).auth(Auth::LookUp(query.to_owned())).start();
    let login = |user: &str| {
        let begin = Instant::now();
        pool.connect(user, Some("secret"), &database.name).unwrap_or_else(|error| panic!("{user}: {error:?}"));
        begin.elapsed()
    };
    thread::scope(|scope| {
        let slow: Vec<_> = slow.iter().map(|user| scope.spawn(|| login(user))).collect();
        thread::sleep(Duration::from_millis(300));
        login(&quick);
        assert!(slow.iter().all(|login| !login.is_finished()), "the quick one is the first");
        for login in slow {
            let waited = login.join().unwrap();
            assert!(waited < Duration::from_secs(8), "{waited:?}");
        }
    });
}
