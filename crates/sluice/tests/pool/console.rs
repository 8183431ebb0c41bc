//! The admin console.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use postgres::{NoTls, SimpleQueryMessage, SimpleQueryRow};
use sluice_testkit::{Auth, Case, PoolConfig, Script, TestPool, eventually, matrix, port::free_port, raw::transcript};

use crate::{HOLD, SLUICE, config, database};

matrix!(transaction:
    its_tables_say_what_there_is,
    figures_count_what_clients_do,
    who_may_do_what,
    trust_of_known_users_is_no_file_of_rules,
    clients_and_servers_are_listed_one_by_one,
    statements_are_counted_as_they_are_run,
    statements_are_shown_without_their_constants,
    prometheus_is_told_by_an_exporter_of_pgbouncers,
    a_pause_holds_clients_until_it_is_over,
    a_pause_waits_for_what_a_reload_takes_away,
    servers_are_opened_anew,
    a_server_that_a_client_could_do_without_is_closed_by_a_pause_and_a_reconnect,
    clients_of_a_database_are_ended,
    a_cancel_takes_back_what_waits,
    a_drain_is_ended_by_resume_once,
    a_reload_says_what_is_wrong,
    the_extended_protocol_is_refused_and_the_session_goes_on,
    a_query_with_more_than_its_text_is_refused,
);

/// A pool with a console for `boss`, and for `monitor` to look at.
pub(crate) fn with_console(case: Case) -> PoolConfig {
    config(case).limit("[admin]\nusers = [\"boss\"]\nstats_users = [\"monitor\"]")
}

/// As by PostgreSQL.
fn a_query_with_more_than_its_text_is_refused(case: Case) {
    let (database, pool) = (database(case), with_console(case).start());
    for mut session in [pool.raw().login("boss", "pgbouncer"), database.server.raw().login("app", &database.name)] {
        for text in ["SHOW server_version\0SHUTDOWN", "SHOW server_version\0\0", "SHOW server_version", ""] {
            let length = (4 + text.len() as u32).to_be_bytes();
            session.send(&Script::new().bytes(&[b"Q", &length[..], text.as_bytes()].concat()));
            assert_eq!(transcript(&session.until_ready(1)), "E(08P01) Z(I)", "{text:?}");
        }
    }
}

fn trust_of_known_users_is_no_file_of_rules(case: Case) {
    // The first lines end the table [auth].
    let known = |users: &str| {
        let lines = format!("known_users_only = true\nusers_without_secret = [\"monitor\", {users}]\n");
        with_console(case).section(&lines)
    };
    let pool = known("\"app\"").start();
    let auth_type = |pool: &TestPool| row(pool, "CONFIG", "key", "auth_type").unwrap();
    assert!(auth_type(&pool).starts_with("key=auth_type value=trust "), "{}", auth_type(&pool));
    let words = pool.reload(&known("\"app\", \"bob\""));
    assert!(words.contains("1 change\n") && words.contains("auth: known users changed"), "{words}");
    let words = pool.reload(&with_console(case));
    assert!(words.contains("auth.method: trust, was trust, for known users only"), "{words}");
    let rules = Auth::Rules("local all all trust\nhost all all all trust\n".to_owned(), String::new(), Vec::new());
    let words = pool.reload(&with_console(case).auth(rules));
    assert!(words.contains("auth.method: by hba_file, was trust"), "{words}");
    assert!(auth_type(&pool).starts_with("key=auth_type value=hba "), "{}", auth_type(&pool));
}

/// The first row of a table for which a column has that value, as `column=value` each.
fn row(pool: &TestPool, table: &str, column: &str, value: &str) -> Option<String> {
    rows(pool, table, |row| row.get(column) == Some(value)).into_iter().next()
}

/// The rows of a table that are such, as `column=value` each.
fn rows(pool: &TestPool, table: &str, is_such: impl Fn(&SimpleQueryRow) -> bool) -> Vec<String> {
    let mut console = pool.connect("monitor", None, "pgbouncer").unwrap();
    let messages = console.simple_query(&format!("SHOW {table}")).unwrap();
    let such = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) if is_such(row) => Some(row),
        _ => None,
    });
    let shown = |row: &SimpleQueryRow| {
        let values = row.columns().iter().enumerate();
        let values = values.map(|(at, column)| format!("{}={}", column.name(), row.get(at).unwrap_or("-")));
        values.collect::<Vec<_>>().join(" ")
    };
    such.map(shown).collect()
}

fn its_tables_say_what_there_is(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query(HOLD);
    other.query("SELECT 1");
    let pools = || row(&pool, "POOLS", "database", &database.name).unwrap();
    assert!(pools().contains(" user=app cl_active=2 cl_waiting=0 "), "{}", pools());
    assert!(pools().contains(" sv_active=1 ") && pools().contains(" sv_idle=1 "), "{}", pools());
    assert!(pools().ends_with(" pool_mode=transaction"));
    let databases = row(&pool, "DATABASES", "name", "*").unwrap();
    let place = format!(
        "host={} port={} database=* force_user=- ",
        database.server.socket_dir().display(),
        database.server.port()
    );
    assert!(databases.contains(&place) && databases.contains(" pool_size=2 "), "{databases}");
    let used = row(&pool, "DATABASES", "name", &database.name).unwrap();
    assert!(used.contains(" current_connections=2 "), "{used}");
    assert_eq!(row(&pool, "LISTS", "list", "used_clients").as_deref(), Some("list=used_clients items=3"));
    assert_eq!(row(&pool, "USERS", "name", "app").as_deref(), Some("name=app pool_mode=-"));
    assert_eq!(row(&pool, "PINS", "user", "app"), None);
    other.query("CREATE TEMP TABLE kept ()");
    eventually("a pin", || row(&pool, "PINS", "user", "app").is_some_and(|pin| pin.contains("reasons=temp=1")));
    let config = row(&pool, "CONFIG", "key", "stats_users").unwrap();
    assert_eq!(config, "key=stats_users value=monitor default= changeable=yes");
}

fn clients_and_servers_are_listed_one_by_one(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(1).workers(2).start();
    let mut busy = pool.raw_app(&database);
    busy.query("SET application_name = 'first'");
    let process = busy.query(&format!("{HOLD}; SELECT pg_backend_pid()"));
    let process = process.split_once("D(").unwrap().1.split_once(')').unwrap().0.to_owned();
    let mut waiting = pool.raw_app(&database);
    waiting.send(&Script::new().query("SELECT 1"));
    let field = |row: &str, name: &str| {
        let rest = row.split_once(&format!("{name}=")).unwrap().1;
        let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    eventually("somebody waits", || row(&pool, "CLIENTS", "state", "waiting").is_some());
    let address = busy.local_address();
    let client = row(&pool, "CLIENTS", "application_name", "first").unwrap();
    let expected = format!(
        "type=C user=app database={} state=active addr={} port={} local_addr={} local_port={} ",
        database.name,
        address.ip(),
        address.port(),
        pool.address().ip(),
        pool.address().port()
    );
    assert!(client.starts_with(&expected), "{client}");
    let server = row(&pool, "SERVERS", "remote_pid", &process).unwrap();
    assert!(server.starts_with(&format!("type=S user=app database={} state=active ", database.name)), "{server}");
    let port = database.server.port().to_string();
    assert_eq!((field(&server, "local_addr"), field(&server, "local_port")), ("unix".to_owned(), port));
    assert_eq!((field(&client, "ptr"), field(&client, "link")), (field(&server, "link"), field(&server, "ptr")));
    let wait = row(&pool, "WAITS", "database", &database.name).unwrap();
    assert_eq!(field(&wait, "client"), field(&row(&pool, "CLIENTS", "state", "waiting").unwrap(), "ptr"));
    let console = row(&pool, "CLIENTS", "user", "monitor").unwrap();
    assert!(console.contains(" database=pgbouncer state=active "), "{console}");
    busy.query("COMMIT");
    assert_eq!(transcript(&waiting.until_ready(1)), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert_eq!(row(&pool, "WAITS", "database", &database.name), None);
    eventually("it is idle", || row(&pool, "SERVERS", "state", "idle").is_some());
}

fn statements_are_counted_as_they_are_run(case: Case) {
    const TEXT: &str = "SELECT i FROM generate_series(1, $1::int) i /* hush */";
    const SHOWN: &str = "SELECT i FROM generate_series(?, $1::int) i";
    let database = database(case);
    let pool = with_console(case).size(1).start();
    let mut clients = [pool.raw_app(&database), pool.raw_app(&database)];
    for client in &mut clients {
        client.talk(&Script::new().parse("s", TEXT).sync());
        // Three times in one batch, one of them by a portal with a name, which is not counted, and another one between.
        let script = Script::new().bind("s", &[Some("4")]).execute().unnamed("SELECT 1", &[]);
        let script =
            script.bind_to("p", "s", &[Some(b"2")]).bind("s", &[Some("3")]).execute().execute_some("p", 0).sync();
        client.talk(&script);
    }
    let row = row(&pool, "STATEMENTS", "query", SHOWN).unwrap();
    assert!(row.starts_with(&format!("database={} user=app calls=4 rows=14 ", database.name)), "{row}");
    let time = |row: &str, name: &str| -> u64 {
        row.split_once(&format!("{name}=")).unwrap().1.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(time(&row, "total_time") > 0, "{row}");
    // One waits for the other's transaction.
    let [holding, waiting] = &mut clients;
    holding.query(HOLD);
    waiting.send(&Script::new().bind("s", &[Some("1")]).execute().sync());
    thread::sleep(Duration::from_millis(300));
    holding.query("COMMIT");
    waiting.until_ready(1);
    let row = self::row(&pool, "STATEMENTS", "query", SHOWN).unwrap();
    assert!(row.contains(" calls=5 rows=15 ") && time(&row, "wait_time") >= 250_000, "{row}");
}

/// Whoever may look at the console need not see what clients put into their texts.
fn statements_are_shown_without_their_constants(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(1).start();
    let mut client = pool.raw_app(&database);
    for (number, text) in
        ["'hush'", "$$hush$$ /* hush */", "'the ''hush' -- hush\n", "E'hush\\'hush'"].into_iter().enumerate()
    {
        let text = format!("SELECT {text}, $1::int + {number}");
        client.talk(&Script::new().parse("s", &text).bind("s", &[Some("4")]).execute().close("s").sync());
    }
    // It ends in an error, and would set a password.
    let text = "ALTER ROLE nobody_is_this PASSWORD 'hush'";
    client.talk(&Script::new().parse("s", text).bind("s", &[]).execute().sync());
    let all = rows(&pool, "STATEMENTS", |_| true).join("\n");
    assert!(all.contains("query=SELECT ?, $1::int + ?") && all.contains("query=SELECT ?…"), "{all}");
    assert!(!all.contains("hush"), "{all}");
}

fn figures_count_what_clients_do(case: Case) {
    let database = database(case);
    let pool = with_console(case).start();
    let mut client = pool.raw_app(&database);
    for _ in 0..3 {
        client.query("BEGIN READ WRITE; SELECT pg_sleep(0.01)");
        client.query("SELECT 1");
        client.query("COMMIT");
    }
    client.talk(&Script::new().unnamed("SELECT 1", &[]).sync());
    let stats = row(&pool, "STATS_TOTALS", "database", &database.name).unwrap();
    assert!(stats.contains(" xact_count=4 query_count=10 "), "{stats}");
    let number = |name: &str| {
        let rest = stats.split_once(&format!(" {name}=")).unwrap().1;
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(number("xact_time") >= number("query_time") && number("query_time") >= 30_000, "{stats}");
    assert!(number("bytes_received") > 200 && number("bytes_sent") > 200, "{stats}");
}

/// An exporter that is made for PgBouncer, as it is.
fn prometheus_is_told_by_an_exporter_of_pgbouncers(case: Case) {
    let database = database(case);
    // A log-in may still be at its server when the next transaction wants one: more of them might be opened.
    let pool = with_console(case).size(1).start();
    pool.raw_app(&database).query("SELECT 1");
    let port = free_port();
    let program = sluice_testkit::case::repository().join("tests/drivers/pgbouncer-exporter/run");
    let mut exporter = Command::new("setpriv");
    exporter.args(["--pdeathsig", "KILL", "--"]).arg(program).args(["127.0.0.1", &port.to_string()]);
    let target = [("PGHOST", "127.0.0.1"), ("PGUSER", "monitor"), ("PGPASSWORD", "none"), ("PGDATABASE", "pgbouncer")];
    exporter.envs(target).env("PGPORT", pool.address().port().to_string()).stdin(Stdio::null());
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut exporter = exporter.stdout(Stdio::null()).stderr(said.reopen().unwrap()).spawn().unwrap();
    let of_pool = format!("{{database=\"{}\",user=\"app\"}}", database.name);
    let wanted = [
        "pgbouncer_up 1.0".to_owned(),
        "pgbouncer_config_max_client_conn 10000.0".to_owned(),
        "pgbouncer_databases_database_pool_size{backend_database=\"*\",database=\"*\"} 1.0".to_owned(),
        format!("pgbouncer_pools_server_idle_connections{of_pool} 1.0"),
        format!("pgbouncer_stats_transactions_total{{database=\"{}\"}} 1.0", database.name),
    ];
    let mut ended = None;
    let mut metrics = String::new();
    let lacks = |metrics: &str| wanted.iter().find(|line| !metrics.lines().any(|it| it == **line));
    // It may have to be installed first, behind others that are.
    for _ in 0..3_000 {
        ended = exporter.try_wait().unwrap();
        metrics = get(port).unwrap_or_default();
        if ended.is_some() || lacks(&metrics).is_none() {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    if ended.is_some_and(|status| status.code() == Some(77)) {
        eprintln!("skipped: there is no python with venv");
        return;
    }
    let _ = exporter.kill();
    let _ = exporter.wait();
    let said = std::fs::read_to_string(said.path()).unwrap();
    assert_eq!(lacks(&metrics), None, "{ended:?}: {said}\n{metrics}");
}

/// The page that is served there, if any is.
fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.0 200").then_some(answer)
}

fn who_may_do_what(case: Case) {
    let database = database(case);
    let secrets = ["boss", "monitor", "app"].map(|user| (user.to_owned(), format!("{user}'s own")));
    let pool = with_console(case).auth(Auth::Scram(secrets.into())).start();
    let connect = |user: &str, password: &str| pool.connect(user, Some(password), "pgbouncer");
    let code = |error: postgres::Error| error.code().unwrap().code().to_owned();
    assert_eq!(code(connect("boss", "wrong").err().unwrap()), "28P01");
    assert_eq!(code(connect("app", "app's own").err().unwrap()), "28000");
    let mut monitor = connect("monitor", "monitor's own").unwrap();
    monitor.simple_query("SHOW POOLS").unwrap();
    for command in ["RELOAD", "SHUTDOWN"] {
        assert_eq!(code(monitor.simple_query(command).err().unwrap()), "42501");
    }
    let mut boss = connect("boss", "boss's own").unwrap();
    assert_eq!(code(boss.simple_query("SHOW NONSENSE").err().unwrap()), "42601");
    for verb in ["PAUSE", "RECONNECT", "KILL"] {
        let error = boss.simple_query(&format!("{verb} pgbouncer")).err().unwrap();
        let said = error.as_db_error().unwrap().message().to_owned();
        assert_eq!(said, format!("cannot {} admin db: pgbouncer", verb.to_lowercase()));
    }
    for command in ["HOLD nowhere", "RELEASE nowhere"] {
        assert_eq!(code(boss.simple_query(command).err().unwrap()), "42704");
        assert_eq!(code(monitor.simple_query(command).err().unwrap()), "42501");
    }
    boss.simple_query("RELOAD").unwrap();
    assert!(pool.log().contains("read again: nothing has changed"));
    // What others are told is not told by the console.
    assert!(pool.connect("app", Some("app's own"), &database.name).is_ok());
    // The answer and the end may be read as one, and the driver reports the end then.
    let answer = boss.simple_query("SHUTDOWN");
    assert!(answer.is_ok() || code(answer.err().unwrap()) == "57P01");
    let mut pool = pool;
    assert!(pool.wait().success());
}

fn a_pause_holds_clients_until_it_is_over(case: Case) {
    let database = database(case);
    let pool = with_console(case).pool("wait_timeout = \"1s\"").size(2).start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query(HOLD);
    other.query("SELECT 1");
    let boss = || pool.connect("boss", None, "pgbouncer").unwrap();
    thread::scope(|scope| {
        let pausing = scope.spawn(|| boss().simple_query("PAUSE").map(|_| ()));
        eventually("idle servers are closed", || database.connections() == 1);
        // A transaction goes on to its end, and the command waits for that.
        assert!(!pausing.is_finished());
        assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(T)");
        assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
        pausing.join().unwrap().unwrap();
        // PostgreSQL takes its time to end a session that it has been told to.
        eventually("the last server is closed", || database.connections() == 0);
        assert!(row(&pool, "DATABASES", "name", "*").unwrap().contains(" paused=1 "));
        // Nobody is refused for waiting meanwhile, nor right behind it.
        let waiting = scope.spawn(|| other.query("SELECT 2"));
        thread::sleep(Duration::from_millis(1_500));
        assert!(!waiting.is_finished());
        boss().simple_query("RESUME").unwrap();
        assert_eq!(waiting.join().unwrap(), "T(?column?) D(2) C(SELECT 1) Z(I)");
    });
    assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // One that is paused alone leaves the others, and a new pool of it is paused as well.
    let mut boss = boss();
    boss.simple_query("PAUSE elsewhere").unwrap();
    assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    boss.simple_query("RESUME elsewhere").unwrap();
    // What is not paused so can't be resumed, in PgBouncer's words.
    let mut refused = |command: &str| {
        let error = boss.simple_query(command).unwrap_err();
        let error = error.as_db_error().unwrap();
        (error.message().to_owned(), error.hint().is_some())
    };
    assert_eq!(refused("RESUME elsewhere"), ("database elsewhere is not paused".to_owned(), false));
    assert_eq!(refused("RESUME"), ("pooler is not paused/suspended".to_owned(), false));
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    boss.simple_query("PAUSE").unwrap();
    let error = boss.simple_query("RESUME elsewhere").unwrap_err();
    assert!(error.as_db_error().unwrap().hint().unwrap().contains("RESUME without a name"));
    assert!(row(&pool, "DATABASES", "name", "*").unwrap().contains(" paused=1 "));
    boss.simple_query("RESUME").unwrap();
    assert_eq!(busy.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

fn a_cancel_takes_back_what_waits(case: Case) {
    let database = database(case);
    let pool = with_console(case).pool("wait_timeout = \"10s\"").size(2).start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    busy.query(HOLD);
    let named = format!("PAUSE \"{}\"", database.name);
    // Each one's wait ends with PostgreSQL's error, and clients go on.
    let cancelled = |command: &str, left: &str| {
        let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
        let token = boss.cancel_token();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let error = boss.simple_query(command).unwrap_err();
                boss.simple_query("SHOW VERSION").unwrap();
                error
            });
            // One that comes before the command does nothing.
            eventually("it is cancelled", || {
                token.cancel_query(NoTls).unwrap();
                waiting.is_finished()
            });
            let error = waiting.join().unwrap();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "57014");
            assert_eq!(error.message(), "canceling statement due to user request");
            assert!(error.detail().unwrap().contains(left), "{error:?}");
        });
    };
    cancelled("PAUSE", "taken back");
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    cancelled(&named, "taken back");
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    cancelled("DRAIN", "taken back");
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    // What somebody else has begun goes on.
    thread::scope(|scope| {
        let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
        let first = scope.spawn(move || boss.simple_query("PAUSE").map(|_| ()));
        eventually("it is paused", || row(&pool, "DATABASES", "name", "*").unwrap().contains(" paused=1 "));
        cancelled("PAUSE", "goes on");
        assert!(!first.is_finished());
        assert!(row(&pool, "DATABASES", "name", "*").unwrap().contains(" paused=1 "));
        assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
        first.join().unwrap().unwrap();
    });
}

fn a_drain_is_ended_by_resume_once(case: Case) {
    let database = database(case);
    let pool = with_console(case).start();
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    boss.simple_query("DRAIN").unwrap();
    let error = pool.connect("app", None, &database.name).err().unwrap();
    assert_eq!(error.code().unwrap().code(), "57P03");
    boss.simple_query("RESUME").unwrap();
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert_eq!(boss.simple_query("RESUME").err().unwrap().code().unwrap().code(), "55000");
}

/// The servers of a pool that a reload has taken away are left by a pause, too.
fn a_pause_waits_for_what_a_reload_takes_away(case: Case) {
    let database = database(case);
    let config = |name: &str| {
        let config = PoolConfig::without_databases(SLUICE, case).limit("[admin]\nusers = [\"boss\"]");
        config.database("left", database.server, "").database(name, database.server, "")
    };
    let pool = config(&database.name).start();
    let mut busy = pool.raw_app(&database);
    busy.query(HOLD);
    let boss = || pool.connect("boss", None, "pgbouncer").unwrap();
    let pause = |command: String| boss().simple_query(&command).map(|_| ()).unwrap();
    let is_told = |count| eventually("it is told to pause", || pool.log().matches("console: PAUSE").count() == count);
    thread::scope(|scope| {
        let before = scope.spawn(|| pause(format!("PAUSE \"{}\"", database.name)));
        is_told(1);
        thread::sleep(Duration::from_millis(200));
        pool.reload(&config("another"));
        let behind = scope.spawn(|| pause("PAUSE".to_owned()));
        is_told(2);
        thread::sleep(Duration::from_millis(300));
        assert!(!before.is_finished() && !behind.is_finished());
        assert_eq!(busy.query("COMMIT"), "C(COMMIT) Z(I)");
        behind.join().unwrap();
        // That of all pools has taken the place of the one of that name.
        before.join().unwrap();
    });
    eventually("all are closed", || database.connections() == 0);
}

fn servers_are_opened_anew(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(1).start();
    let mut client = pool.raw_app(&database);
    let before = client.backend();
    client.query(HOLD);
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    boss.simple_query(&format!("RECONNECT \"{}\"", database.name)).unwrap();
    assert_eq!(client.backend(), before, "not amid a transaction");
    client.query("COMMIT");
    assert_ne!(client.backend(), before);
    let now = client.backend();
    assert_eq!(client.backend(), now);
    boss.simple_query("RECONNECT").unwrap();
    eventually("an idle one is closed", || database.connections() == 0);
}

fn a_server_that_a_client_could_do_without_is_closed_by_a_pause_and_a_reconnect(case: Case) {
    let database = database(case);
    let pool = with_console(case).size(2).start();
    let mut client = pool.raw_app(&database);
    client.query("CREATE SEQUENCE s");
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    for (command, is_pause) in [("PAUSE", true), ("RECONNECT", false)] {
        // It is kept for what the sequence has given, which the client asks for.
        client.query("SELECT nextval('s'), lastval()");
        let before = client.backend();
        assert_eq!(client.backend(), before);
        boss.simple_query(command).unwrap();
        eventually("the server is closed", || database.connections() == 0);
        assert_eq!(boss.simple_query("RESUME").is_ok(), is_pause);
        assert_ne!(client.backend(), before, "{command}");
    }
}

fn clients_of_a_database_are_ended(case: Case) {
    let database = database(case);
    let pool = PoolConfig::without_databases(SLUICE, case)
        .limit("[admin]\nusers = [\"boss\"]\nstats_users = [\"monitor\"]")
        .database(&database.name, database.server, "")
        .database("other", database.server, &format!("dbname = \"{}\"", database.name))
        .start();
    let (mut busy, mut other) = (pool.raw_app(&database), pool.raw().login("app", "other"));
    busy.query(HOLD);
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    let error = boss.simple_query("KILL nobody").err().unwrap();
    assert_eq!(error.code().unwrap().code(), "3D000");
    boss.simple_query(&format!("KILL {}", database.name)).unwrap();
    assert_eq!(transcript(&busy.until_end()), "E(FATAL 57P01)");
    assert_eq!(other.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    boss.simple_query(&format!("RESUME {}", database.name)).unwrap();
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
}

fn a_reload_says_what_is_wrong(case: Case) {
    let pool = with_console(case).start();
    let mut boss = pool.connect("boss", None, "pgbouncer").unwrap();
    pool.write(&with_console(case).pool("sise = 3"));
    let error = boss.simple_query("RELOAD").err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "F0000");
    assert!(error.detail().unwrap().contains("sise"), "{error:?}");
    pool.write(&with_console(case).size(7));
    boss.simple_query("RELOAD").unwrap();
    assert!(row(&pool, "DATABASES", "name", "*").unwrap().contains(" pool_size=7 "));
    // Whoever is no longer named may do nothing more.
    let mut revoked = pool.raw().login("boss", "pgbouncer");
    pool.reload(&config(case));
    revoked.send(&Script::new().query("SHOW VERSION"));
    assert_eq!(transcript(&revoked.until_end()), "E(FATAL 28000)");
    assert!(pool.connect("boss", None, "pgbouncer").is_err());
}

fn the_extended_protocol_is_refused_and_the_session_goes_on(case: Case) {
    let pool = with_console(case).start();
    let mut console = pool.raw().login("boss", "pgbouncer");
    assert_eq!(console.talk(&Script::new().unnamed("SHOW POOLS", &[]).sync()), "E(0A000) Z(I)");
    assert_eq!(console.query(""), "I Z(I)");
    // As drivers do at their log-in.
    assert_eq!(console.query("SET client_encoding TO 'UTF8'"), "N(SET ignored) C(SET) Z(I)");
    assert_eq!(
        console.talk_to(&Script::new().query("SHOW VERSION").query("nonsense").query("RELOAD"), 3),
        "T(version) D(Sluice 0.1.0) C(SHOW) Z(I) E(42601) Z(I) C(RELOAD) Z(I)"
    );
}
