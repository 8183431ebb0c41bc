//! The console's HOLD and PAUSE while somebody else ends them: neither is answered as done where nobody is held.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use postgres::{Client, NoTls, SimpleQueryMessage, error::DbError};
use sluice_testkit::{Case, Driver, Mode, PoolConfig, TestPool, TestServer, Version, matrix, raw::Raw};

use crate::{HOLD, SLUICE, console::with_console, database};

matrix!(transaction:
    a_pause_goes_on_for_whoever_still_waits,
    a_pause_and_a_drain_that_resume_has_ended_are_errors,
    a_pause_of_all_is_taken_back_without_that_of_one,
);

/// How long it is watched that something does not end.
const A_WHILE: Duration = Duration::from_millis(300);

fn boss(pool: &TestPool) -> Client {
    pool.connect("boss", None, "pgbouncer").unwrap()
}

fn give(pool: &TestPool, command: &str) {
    boss(pool).simple_query(command).unwrap();
}

/// The value of a column in the row of that name.
fn shown(pool: &TestPool, table: &str, name: &str, column: &str) -> Option<String> {
    let messages = boss(pool).simple_query(&format!("SHOW {table}")).unwrap();
    let row = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.get("name") == Some(name) => Some(row),
        _ => None,
    });
    row.and_then(|row| row.get(column).map(str::to_owned))
}

/// A command that waits, with what cancels it.
struct Given<'scope> {
    token: postgres::CancelToken,
    answer: ScopedJoinHandle<'scope, Result<(), postgres::Error>>,
}

impl<'scope> Given<'scope> {
    fn begin(scope: &'scope thread::Scope<'scope, '_>, pool: &TestPool, command: String) -> Self {
        let mut boss = boss(pool);
        let token = boss.cancel_token();
        let given = Self { token, answer: scope.spawn(move || boss.simple_query(&command).map(drop)) };
        given.goes_on();
        given
    }

    fn goes_on(&self) {
        thread::sleep(A_WHILE);
        assert!(!self.answer.is_finished());
    }

    fn cancel(self) -> DbError {
        self.token.cancel_query(NoTls).unwrap();
        self.error("57014")
    }

    /// Its error.
    fn error(self, code: &str) -> DbError {
        let error = self.answer.join().unwrap().unwrap_err();
        let error = error.as_db_error().unwrap().clone();
        assert_eq!(error.code().code(), code, "{error:?}");
        error
    }

    fn ends_well(self) {
        self.answer.join().unwrap().unwrap();
    }
}

fn a_pause_goes_on_for_whoever_still_waits(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    let is_paused = || shown(&pool, "DATABASES", "*", "paused").as_deref() == Some("1");
    for command in ["PAUSE".to_owned(), format!("PAUSE \"{}\"", database.name)] {
        busy.query(HOLD);
        thread::scope(|scope| {
            let begin = || Given::begin(scope, &pool, command.clone());
            let (first, second) = (begin(), begin());
            assert!(first.cancel().detail().unwrap().contains("goes on"));
            second.goes_on();
            assert_eq!(is_paused(), command == "PAUSE");
            // The last one takes it back, and then nobody is held.
            assert!(second.cancel().detail().unwrap().contains("taken back"));
            assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");

            let (first, second) = (begin(), begin());
            assert!(first.cancel().detail().unwrap().contains("goes on"));
            busy.query("COMMIT");
            second.ends_well();
        });
        give(&pool, &command.replace("PAUSE", "RESUME"));
    }
}

fn a_pause_and_a_drain_that_resume_has_ended_are_errors(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let mut busy = pool.raw_app(&database);
    busy.query(HOLD);
    let named = format!("PAUSE \"{}\"", database.name);
    for (command, end) in [("PAUSE", "RESUME"), ("DRAIN", "RESUME"), (&*named, "RESUME"), (&*named, &*named)] {
        let end = end.replace("PAUSE", "RESUME");
        thread::scope(|scope| {
            let (first, second) = (command.to_owned(), command.to_owned());
            let waiting = [first, second].map(|command| Given::begin(scope, &pool, command));
            give(&pool, &end);
            for waiting in waiting {
                let error = waiting.error("55000");
                assert!(error.message().contains("was ended before"), "{error:?}");
                assert!(error.hint().unwrap().contains("RESUME"), "{error:?}");
            }
        });
        assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
    }
}

fn a_pause_of_all_is_taken_back_without_that_of_one(case: Case) {
    let database = database(case);
    let pool = with_console(case).database("other", database.server, "dbname = \"postgres\"").size(2).start();
    let mut busy = pool.raw_app(&database);
    give(&pool, "PAUSE other");
    busy.query(HOLD);
    thread::scope(|scope| {
        let all = Given::begin(scope, &pool, "PAUSE".to_owned());
        assert!(all.cancel().detail().unwrap().contains("taken back"));
    });
    assert_eq!(shown(&pool, "DATABASES", "other", "paused").as_deref(), Some("1"));
    assert_eq!(shown(&pool, "DATABASES", "*", "paused").as_deref(), Some("0"));
    give(&pool, "RESUME other");
}

/// A cluster of one node, whose Patroni always says the same.
fn cluster_of(server: &TestServer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rest = listener.local_addr().unwrap().port();
    let members = format!(
        r#"{{"scope":"main","members":[{{"name":"node1","role":"leader","state":"running","timeline":1,
        "api_url":"http://127.0.0.1:{rest}/patroni","host":"127.0.0.1","port":{}}}]}}"#,
        server.port()
    );
    let own = r#"{"state":"running","role":"primary","timeline":1,"database_system_identifier":"7",
        "postmaster_start_time":"2026-01-01","patroni":{"name":"node1"}}"#;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut asked = String::new();
            while reader.read_line(&mut asked).is_ok_and(|length| length > 2) {}
            let body = if asked.starts_with("GET /cluster ") { &*members } else { own };
            // Whoever has asked may be gone.
            _ = write!(reader.get_mut(), "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    rest
}

/// A transaction that is open in a cluster with a console before it.
fn open_transaction(server: &TestServer, case: Case) -> (TestPool, Raw) {
    let rest = cluster_of(server);
    let lines = format!(
        "[admin]\nusers = [\"boss\"]\n[[cluster]]\nname = \"main\"\npatroni = [\"http://127.0.0.1:{rest}\"]\n\
         [[database]]\nname = \"app\"\ncluster = \"main\"\ndbname = \"postgres\"\nsslmode = \"disable\"\n"
    );
    let pool = PoolConfig::without_databases(SLUICE, case).section(&lines).start();
    let mut busy = pool.raw().login("app", "app");
    busy.query(HOLD);
    (pool, busy)
}

#[test]
fn a_hold_that_is_too_short_or_that_others_have_ended_is_no_success() {
    let case = Case::new(Version::V15, Driver::Uring, Mode::Transaction);
    let server = TestServer::start_with_tcp(case.version, &[]);
    let (pool, mut busy) = open_transaction(&server, case);
    let is_held = || shown(&pool, "CLUSTERS", "main", "held").as_deref() == Some("1");
    thread::scope(|scope| {
        let begin = |command: &str| Given::begin(scope, &pool, command.to_owned());
        for command in ["HOLD main 60 30", "HOLD main 10 10", "HOLD main 0 0"] {
            let error = boss(&pool).simple_query(command).unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "22023", "{command}: {error:?}");
            assert!(error.message().starts_with("clients would go on after "), "{error:?}");
            assert!(error.hint().is_some() && !is_held());
        }

        let (first, second) = (begin("HOLD main 10 20"), begin("HOLD main 10 20"));
        give(&pool, "RELEASE main");
        for waiting in [first, second] {
            let error = waiting.error("55000");
            assert!(error.message().contains("another session has ended the hold"), "{error:?}");
        }

        // Whoever still waits has it go on, and the last one takes it back.
        let (first, second) = (begin("HOLD main 10 20"), begin("HOLD main 10 20"));
        assert!(first.cancel().detail().unwrap().contains("goes on"));
        second.goes_on();
        assert!(is_held());
        assert!(second.cancel().detail().unwrap().contains("taken back"));
        assert!(!is_held());

        let given = begin("HOLD main 10 20");
        busy.query("COMMIT");
        given.ends_well();
        assert!(is_held());
        give(&pool, "RELEASE main");
    });
}
