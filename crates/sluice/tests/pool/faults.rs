//! Faults of all kinds under work of all kinds, in clear and by TLS: servers are ended, PostgreSQL crashes, networks are
//! cut, configurations, certificates and processes change, peers stall, stop half-way, and are gone. Whatever happens,
//! each client has the answers of its own session or is told that it has ended; what was acknowledged is there, and
//! nothing else; and nothing is left behind.
//!
//! Clients, the pool and PostgreSQL are on hosts of their own, which are network namespaces. Where those can't be had
//! (they take root) it says so, and goes on without faults of the network.
//!
//! | variable | |
//! |---|---|
//! | `SLUICE_FAULT_SECONDS=1800` | so long for each case |
//! | `SLUICE_FAULT_SEED=7` | the faults in that order |

mod cuts;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{
    Case, Certificates, Database, Network, PoolConfig, Raw, Script, TestPool, TestServer, Version, becomes, eventually,
    matrix, port::free_port, proc, random::Random, raw::transcript,
};
use sluice_tls::{ClientTls, SslMode};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::{SLUICE, upgrade::Stop};

matrix!(transaction: nothing_is_lost_or_mixed_up_by_faults);

const CLIENTS: usize = 12;

/// Sessions that end are told so by these: PostgreSQL's own words, or the pool's.
const ENDS: [&str; 8] = ["57P01", "57P02", "57P03", "08006", "08007", "08001", "53300", "25P03"];

/// The growth of the last process's memory, from the first fifth of its time to the end, at most. In a run of two minutes it
/// was 0.3 MB with epoll, 2.7 in one of eight; and 3 with io_uring, whose buffers, 8 MiB for each of two workers, come into
/// use one by one.
const GROWTH_KB_MAX: u64 = 16 << 10;

/// The files that the pool has more when all is over than at its start, besides its servers, at most: what ties a process to
/// the one before is one.
const FILES_MORE_MAX: usize = 3;

/// More than fits between a server and a client that does not read.
const LARGE: &str = "SELECT repeat('x', 9999) FROM generate_series(1, 2000)";

/// The rows that clients have written.
#[derive(Default)]
struct Books {
    /// Those that were acknowledged.
    kept: BTreeSet<(i64, i64)>,
    /// Those that may have been committed or not: the session ended before the answer.
    unknown: BTreeSet<(i64, i64)>,
}

/// The world that all of them share.
struct World<'a> {
    address: SocketAddr,
    database: &'a str,
    tls: Arc<ClientTls>,
    /// Whether the network is one that can be cut.
    has_network: bool,
    /// Whether there is no time for what takes its time.
    is_brief: bool,
    /// Processes take over until then. The last one stays, so that it can be compared with itself.
    takes_over_until: Duration,
    /// Odd while clients are cut off.
    cuts: AtomicUsize,
    begun: Instant,
    stop: AtomicBool,
    books: Mutex<Books>,
    /// Steps that were answered, and sessions that were ended.
    steps: AtomicUsize,
    ends: AtomicUsize,
}

impl World<'_> {
    /// A connection to the pool.
    fn connect(&self) -> Raw {
        let raw = Raw::tcp(self.address);
        if self.has_network { raw.impatient(cuts::CLIENTS_TIMEOUT) } else { raw }
    }

    /// Notes that clients can be told nothing, until this is dropped.
    fn cuts_clients_off(&self) -> Cut<'_> {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        Cut(&self.cuts)
    }

    /// Whether a client that began at that count of cuts may end without a word.
    fn was_cut(&self, since: usize) -> bool {
        let now = self.cuts.load(Ordering::Relaxed);
        now != since || now % 2 == 1
    }
}

/// Clients are cut off.
struct Cut<'a>(&'a AtomicUsize);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A session that has ended, as it was told.
struct Ended;

/// One client's session.
struct Session<'a> {
    world: &'a World<'a>,
    raw: Raw,
    client: i64,
    /// The count of cuts when it began.
    cuts: usize,
    /// Whether it reads so slowly that it may be cut short inside a row.
    is_slow: bool,
    /// A text that nobody else's session has.
    mark: String,
    dice: Random,
}

impl<'a> Session<'a> {
    /// Logs in, and leaves its mark.
    fn begin(world: &'a World<'a>, client: i64, number: u64) -> Result<Self, Ended> {
        let mut dice = Random::new(client as u64 * 1_000_003 + number);
        let cuts = world.cuts.load(Ordering::Relaxed);
        let raw = world.connect();
        let mut raw = match dice.below(2) {
            0 => match raw.try_secure(&world.tls, &startup::SSL_REQUEST_PACKET) {
                Err(_) if world.was_cut(cuts) => return Err(Ended),
                secured => secured.unwrap_or_else(|error| panic!("client {client}: TLS: {error}")),
            },
            _ => raw,
        };
        // Whether it was is for `judge` to say.
        raw.may_be_cut = true;
        let (mark, name) = (format!("m{client}_{number}"), format!("client {client}"));
        let parameters = [("user", "app"), ("database", world.database), ("application_name", &name)];
        let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
        let mut session = Self { world, raw, client, cuts, is_slow: false, mark, dice };
        session.judge(&transcript(&messages), messages.last().is_some_and(|message| message.tag == b'Z'))?;
        let set = format!("SET app.mark = '{}'", session.mark);
        session.hears(&Script::new().query(&set), 1, &["C(SET) Z(I)"])?;
        let text = format!("SELECT $1::text || ' of {}'", session.mark);
        session.hears(&Script::new().parse("p", &text).sync(), 1, &["1 Z(I)"])?;
        Ok(session)
    }

    /// Whether the session goes on: one that ends is told why.
    fn judge(&self, heard: &str, is_ready: bool) -> Result<(), Ended> {
        if is_ready {
            return Ok(());
        }
        let code = heard.rsplit_once("E(FATAL ").and_then(|(_, rest)| rest.strip_suffix(')'));
        let is_told = code.is_some_and(|code| ENDS.contains(&code)) && !self.raw.is_amid_message();
        // Inside half a row nothing can be said.
        let is_excused = self.is_slow || self.world.was_cut(self.cuts);
        let at = self.world.begun.elapsed();
        assert!(
            is_told || is_excused,
            "client {} ended without a word, {at:?} after the beginning: {heard}",
            self.client
        );
        self.world.ends.fetch_add(1, Ordering::Relaxed);
        Err(Ended)
    }

    /// Sends a script, and hears one of these answers, or that the session has ended.
    fn hears(&mut self, script: &Script, times: usize, expected: &[&str]) -> Result<String, Ended> {
        // A session that was ended meanwhile has its last word to be read.
        let _ = self.raw.try_send(&script.0);
        let messages = self.raw.until_ready(times);
        let ready = messages.iter().filter(|message| message.tag == b'Z').count();
        let heard = transcript(&messages);
        self.judge(&heard, ready == times)?;
        assert!(expected.contains(&&*heard), "client {}: {heard}, and not one of {expected:?}", self.client);
        self.world.steps.fetch_add(1, Ordering::Relaxed);
        Ok(heard)
    }

    fn asks(&mut self, sql: &str, expected: &str) -> Result<(), Ended> {
        self.hears(&Script::new().query(sql), 1, &[expected]).map(drop)
    }

    /// Something that a client does.
    fn step(&mut self, number: i64) -> Result<(), Ended> {
        let mark = self.mark.clone();
        match self.dice.below(13) {
            0 => self.asks("SHOW app.mark", &format!("T(app.mark) D({mark}) C(SHOW) Z(I)")),
            1 => {
                let name = format!("T(application_name) D(client {}) C(SHOW) Z(I)", self.client);
                self.asks("SHOW application_name", &name)
            }
            2 | 3 => {
                let script = Script::new().bind("p", &[Some("something")]).execute().sync();
                self.hears(&script, 1, &[&format!("2 D(something of {mark}) C(SELECT 1) Z(I)")]).map(drop)
            }
            4 => {
                // What SQL's own settings make of a literal.
                let zone = self.dice.of(&["UTC", "Asia/Tokyo"]);
                let reported = format!("C(SET) S(TimeZone={zone}) Z(I)");
                self.hears(&Script::new().query(&format!("SET timezone = '{zone}'")), 1, &[&reported, "C(SET) Z(I)"])?;
                self.asks("SHOW timezone", &format!("T(TimeZone) D({zone}) C(SHOW) Z(I)"))
            }
            5 => self.asks("SELECT 1/0", "E(22012) Z(I)"),
            6 => {
                let script = Script::new().query("BEGIN").unnamed("SELECT 1/$1::int", &[Some("0")]).sync();
                // When it is run, or when it is planned with its parameter.
                let heard = ["C(BEGIN) Z(T) 1 2 T(?column?) E(22012) Z(E)", "C(BEGIN) Z(T) 1 E(22012) Z(E)"];
                self.hears(&script, 2, &heard)?;
                self.asks("ROLLBACK", "C(ROLLBACK) Z(I)")
            }
            7 => {
                self.asks(&format!("CREATE TEMP TABLE mine AS SELECT '{mark}' AS m"), "C(SELECT 1) Z(I)")?;
                self.asks("SELECT m FROM mine", &format!("T(m) D({mark}) C(SELECT 1) Z(I)"))?;
                self.asks("DROP TABLE mine", "C(DROP TABLE) Z(I)")
            }
            8 => {
                let slow = Script::new().query("SELECT pg_sleep(0.2)");
                let _ = self.raw.try_send(&slow.0);
                thread::sleep(Duration::from_millis(self.dice.below(20) as u64));
                self.raw.cancel(self.world.connect());
                let slept = "T(pg_sleep) D() C(SELECT 1) Z(I)";
                let cancelled = ["T(pg_sleep) D() E(57014) Z(I)", "T(pg_sleep) E(57014) Z(I)", "E(57014) Z(I)"];
                self.hears(&Script::new(), 1, &[&[slept][..], &cancelled].concat()).map(drop)
            }
            9 => {
                // More than the pool keeps for a client that does not read.
                self.is_slow = true;
                let _ =
                    self.raw.try_send(&Script::new().query("SELECT repeat('x', 999) FROM generate_series(1, 2000)").0);
                thread::sleep(Duration::from_millis(self.dice.below(100) as u64));
                let row = format!(" D({}..999 bytes)", "x".repeat(20));
                self.hears(&Script::new(), 1, &[&format!("T(repeat){} C(SELECT 2000) Z(I)", row.repeat(2000))])?;
                self.is_slow = false;
                Ok(())
            }
            10 => self.writes(number, false),
            _ => self.writes(number, true),
        }
    }

    /// Writes a row, and notes what has become of it.
    fn writes(&mut self, number: i64, in_block: bool) -> Result<(), Ended> {
        let row = (self.client, number);
        let insert = format!("INSERT INTO ledger VALUES ({}, {number})", self.client);
        let note = |books: &mut Books, result: &Result<(), Ended>| match result {
            Ok(()) => books.kept.insert(row),
            Err(Ended) => books.unknown.insert(row),
        };
        let result = if !in_block {
            self.asks(&insert, "C(INSERT 0 1) Z(I)")
        } else {
            self.asks("BEGIN", "C(BEGIN) Z(T)")?;
            self.asks(&insert, "C(INSERT 0 1) Z(T)")?;
            if self.dice.below(4) == 0 {
                // It is not to be found afterwards.
                return self.asks("ROLLBACK", "C(ROLLBACK) Z(I)");
            }
            self.asks("COMMIT", "C(COMMIT) Z(I)")
        };
        note(&mut self.world.books.lock().unwrap(), &result);
        result
    }
}

/// One client's life: session after session.
fn live(world: &World<'_>, client: i64) {
    let (mut number, mut row) = (0, 0);
    while !world.stop.load(Ordering::Relaxed) {
        number += 1;
        let Ok(mut session) = Session::begin(world, client, number) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        for _ in 0..session.dice.below(60) {
            row += 1;
            if world.stop.load(Ordering::Relaxed) || session.step(row).is_err() {
                break;
            }
        }
        match session.dice.below(3) {
            // Gone in the midst of a message, of a query, or with a goodbye.
            0 => drop(session.raw.try_send(&Script::new().query("SELECT 1").0[..7])),
            1 => drop(session.raw.try_send(&Script::new().query("SELECT pg_sleep(0.05)").0)),
            _ => drop(session.raw.try_send(&Script::new().terminate().0)),
        }
    }
}

/// Peers that never become clients: some stop half-way and stay for a while, some cancel what is not theirs.
fn strangers(address: SocketAddr, dice: &mut Random) {
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app")]);
    let staying: Vec<Raw> = (0..10)
        .map(|_| {
            let mut raw = Raw::tcp(address);
            let _ = raw.try_send(&packet[..dice.below(packet.len())]);
            raw
        })
        .collect();
    for _ in 0..10 {
        let mut packet = Vec::new();
        startup::put_cancel(&mut packet, dice.below(1 << 32) as u32, &(dice.below(1 << 32) as u32).to_be_bytes());
        let mut raw = Raw::tcp(address);
        let _ = raw.try_send(&packet);
    }
    thread::sleep(Duration::from_millis(30));
    drop(staying);
}

/// Two certificates of the same authority, in turn.
struct Keys {
    folder: tempfile::TempDir,
    /// Each as a client sees it.
    shown: [Vec<u8>; 2],
}

impl Keys {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shown = ["0", "1"].map(|number| {
            let place = folder.path().join(number);
            fs::create_dir(&place).unwrap();
            Certificates::shared().make_another_in(&place)
        });
        let keys = Self { folder, shown };
        keys.put(0);
        keys
    }

    /// Puts one where the pool looks.
    fn put(&self, number: usize) {
        for name in ["server.crt", "server.key"] {
            fs::copy(self.folder.path().join(number.to_string()).join(name), self.path(name)).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Arc<ClientTls> {
        Certificates::shared().client(SslMode::VerifyFull, false)
    }
}

/// A client reads nothing for longer than the network may be away, and then all.
fn a_client_stalls(address: SocketAddr, database: &str) {
    let mut raw = Raw::tcp(address).login("app", database);
    raw.send(&Script::new().query(LARGE));
    thread::sleep(cuts::USER_TIMEOUT * 5 / 2);
    let messages = raw.until_ready(1);
    let rows = messages.iter().filter(|message| message.tag == b'D').count();
    let last = transcript(&messages[messages.len().saturating_sub(2)..]);
    assert!(rows == 2000 && last == "C(SELECT 2000) Z(I)", "{rows} rows, then {last}");
}

/// Between two crashes of PostgreSQL: of one that crashes sooner, its keeper takes it that it can't run.
const CALM: Duration = Duration::from_secs(35);

/// The things that faults happen to.
struct Setup<'a> {
    network: Option<&'a Network>,
    pool: TestPool,
    base: PoolConfig,
    database: &'a Database<'a>,
    keys: &'a Keys,
    crashed: Option<Instant>,
}

/// The numbers of faults, and the first of the network's.
const FAULTS: usize = 24;
const OF_NETWORK: usize = 21;

/// Has the fault of that number happen, something that goes wrong or changes; gives its name.
fn fault(number: usize, dice: &mut Random, setup: &mut Setup<'_>, world: &World<'_>) -> &'static str {
    let Setup { network, pool, base, database, keys, crashed } = setup;
    let server = database.server;
    match number {
        0..7 => {
            let sql = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND usename = 'app' \
                 ORDER BY random() LIMIT 1",
                database.name
            );
            let _ = server.try_value(&sql);
            "a server is ended"
        }
        7 if crashed.is_none_or(|at| at.elapsed() > CALM) => {
            *crashed = Some(Instant::now());
            server.crash();
            "PostgreSQL crashes"
        }
        8..12 => {
            pool.reload(&base.clone().size(2 + dice.below(5) as u32));
            "the configuration changes"
        }
        12..14 if world.begun.elapsed() < world.takes_over_until => {
            pool.upgrade().unwrap_or_else(|error| panic!("another process does not take over: {error}"));
            "another process takes over"
        }
        20 if !world.is_brief => {
            a_client_stalls(pool.address(), world.database);
            "a client stalls"
        }
        OF_NETWORK.. if network.is_some() => cuts::fault(network.expect("it has been seen"), dice, world, database),
        14 => {
            let column = dice.below(1 << 32);
            database.execute(&format!(
                "ALTER TABLE ledger ADD IF NOT EXISTS c{column} int; ALTER TABLE ledger DROP c{column}"
            ));
            "a table changes"
        }
        15 => {
            let number = dice.below(2);
            keys.put(number);
            pool.reload(base);
            let client = Raw::tcp(pool.address()).secure(&keys.client());
            assert_eq!(client.certificate(), Some(&*keys.shown[number]), "the certificate that was put there last");
            "certificates are swapped"
        }
        _ => {
            strangers(pool.address(), dice);
            "strangers come and stop half-way"
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// The pool's configuration, as far as its server is concerned.
fn config(case: Case, network: Option<&Network>, server: &TestServer, has_tls: bool) -> PoolConfig {
    let authority = Certificates::shared().path("authority.crt");
    let lines = |mode| match has_tls {
        true => format!("sslmode = \"{mode}\"\nsslrootcert = {authority:?}"),
        false => "sslmode = \"disable\"".to_owned(),
    };
    let base = PoolConfig::without_databases(SLUICE, case);
    match network {
        Some(network) => {
            let host = network.address(cuts::POSTGRESQL).to_string();
            let base = base.listen((network.address(cuts::POOL), 0).into());
            base.database_at("*", &host, server.port(), &lines("verify-ca"))
        }
        None if has_tls => base.database_at("*", "localhost", server.port(), &lines("verify-full")),
        None => PoolConfig::new(SLUICE, case, server),
    }
}

fn nothing_is_lost_or_mixed_up_by_faults(case: Case) {
    let seconds = number("SLUICE_FAULT_SECONDS");
    let (time, is_brief) = (Duration::from_secs(seconds.unwrap_or(4)), seconds.is_none());
    let user_timeout = if is_brief { cuts::USER_TIMEOUT_MIN } else { cuts::USER_TIMEOUT };
    let mut dice = Random::new(number("SLUICE_FAULT_SEED").unwrap_or(1));
    // A cluster of its own: the others' tests go on. It keeps what it acknowledges.
    let keeps: [(&str, &str); 1] = [("synchronous_commit", "on")];
    let network = Network::new(cuts::HOSTS);
    let network = network.as_ref();
    // The tests' PostgreSQL 18 is built without TLS.
    let has_tls = case.version == Version::V15;
    let server = match network {
        Some(network) => {
            let settings = [&keeps[..], &cuts::OF_POSTGRESQL].concat();
            TestServer::start_on(network, cuts::POSTGRESQL, case.version, &settings, has_tls)
        }
        None if has_tls => TestServer::start_with_tls(case.version, &keeps),
        None => TestServer::start(case.version, &keeps),
    };
    let database = server.database();
    database.execute("CREATE TABLE ledger (client bigint, number bigint); GRANT SELECT, INSERT ON ledger TO app");
    let keys = Keys::make();
    let base = config(case, network, &server, has_tls);
    let (cert, key) = (keys.path("server.crt"), keys.path("server.key"));
    let base = base.section(&format!("[tls]\ncert_file = {cert:?}\nkey_file = {key:?}\n"));
    let base = base.port(free_port()).workers(2).pool("backoff_max = \"200ms\"").top("upgrade_grace = \"5s\"");
    let base = base.top(&format!("tcp_user_timeout = \"{}s\"", user_timeout.as_secs()));
    let start = || base.clone().size(4).start();
    let pool = network.map_or_else(start, |network| network.within(cuts::POOL, start));
    let world = World {
        address: pool.address(),
        database: &database.name,
        tls: keys.client(),
        has_network: network.is_some(),
        is_brief,
        takes_over_until: if is_brief { Duration::MAX } else { time / 2 },
        cuts: AtomicUsize::new(0),
        begun: Instant::now(),
        stop: AtomicBool::new(false),
        books: Mutex::default(),
        steps: AtomicUsize::new(0),
        ends: AtomicUsize::new(0),
    };
    let (first, files) = (pool.pid(), pool.open_files());
    let mut warm = None;
    let mut setup = Setup { network, pool, base, database: &database, keys: &keys, crashed: None };
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    thread::scope(|scope| {
        let _stop = Stop(&world.stop);
        let world = &world;
        for client in 0..CLIENTS {
            scope.spawn(move || live(world, client as i64));
        }
        while world.begun.elapsed() < time {
            if !is_brief && warm.is_none() && world.begun.elapsed() > time * 3 / 5 {
                warm = Some((setup.pool.pid(), setup.pool.rss_kb()));
            }
            let sofar = world.steps.load(Ordering::Relaxed);
            // A brief run has one of these, too.
            let number = if faults.is_empty() { OF_NETWORK } else { dice.below(FAULTS) };
            *faults.entry(fault(number, &mut dice, &mut setup, world)).or_default() += 1;
            eventually("work is done", || world.steps.load(Ordering::Relaxed) > sofar + 50);
        }
    });
    let pool = setup.pool;
    let (steps, ends) = (world.steps.load(Ordering::Relaxed), world.ends.load(Ordering::Relaxed));
    println!("{steps} steps, {ends} sessions ended; {faults:?}");
    let books = world.books.lock().unwrap();
    let written: Vec<(i64, i64)> = {
        let rows = database.superuser().query("SELECT client, number FROM ledger", &[]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let there: BTreeSet<_> = written.iter().copied().collect();
    assert_eq!(there.len(), written.len(), "something is there twice");
    let lost: Vec<_> = books.kept.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let odd: Vec<_> = there.iter().filter(|row| !books.kept.contains(row) && !books.unknown.contains(row)).collect();
    assert!(odd.is_empty(), "there without having been committed: {odd:?}");
    assert!(!books.kept.is_empty());
    // Nothing is left of all that.
    if pool.pid() != first {
        eventually("the first process ends", || !proc::is_alive(first));
    }
    becomes("busy servers", 0, || database.count("usename = 'app' AND state <> 'idle'"));
    let others = || pool.open_files().saturating_sub(database.connections());
    eventually("clients are gone", || others() <= files + FILES_MORE_MAX);
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
    println!("{files} files at the start, and {} besides servers in the end", others());
    nothing_has_leaked(&pool, warm);
    assert_eq!(pool.raw_app(&database).value("SELECT 1"), "1");
}

/// Compares the memory of a process with what it was when it was warm; a brief run has no time for that.
fn nothing_has_leaked(pool: &TestPool, warm: Option<(u32, u64)>) {
    let memory_kb = pool.rss_kb();
    let Some((pid, before_kb)) = warm else {
        assert!(memory_kb < 200 << 10, "{memory_kb} kB");
        return;
    };
    println!("{before_kb} kB when warm, {memory_kb} kB in the end");
    assert_eq!(pid, pool.pid(), "the process is the same");
    assert!(memory_kb <= before_kb + GROWTH_KB_MAX, "{before_kb} kB became {memory_kb} kB");
}
