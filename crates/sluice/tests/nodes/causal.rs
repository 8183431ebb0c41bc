//! Reads at standbys that find what was committed before, before three nodes: read-only transactions of clients that
//! write, and readers. Standbys replay late, and clients never notice but by the time that it takes.

use std::{
    collections::HashSet,
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use postgres::{Client, error::SqlState};
use sluice_testkit::{Auth, Case, Driver, Mode, PoolConfig, TestCluster, TestPool, Version, eventually};

use crate::{GOING_ON, SLUICE, alike, alone, client_is_lost};

/// Transactions of each kind.
const TURNS: i32 = 100;

/// The time for which standbys are waited for.
const TIMEOUT: Duration = Duration::from_millis(600);

fn pool(cluster: &TestCluster) -> TestPool {
    let timeout = format!("causal_reads_timeout = \"{}ms\"\n", TIMEOUT.as_millis());
    let led = format!("read_only_transactions = \"standby\"\n{timeout}");
    let sections = [
        format!("[[database]]\nname = \"*\"\ncluster = \"main\"\n{led}"),
        "[[database]]\nname = \"all\"\ndbname = \"postgres\"\ncluster = \"main\"\n".to_owned(),
        format!("causal_reads = \"global\"\n{led}"),
        "[[database]]\nname = \"*:ro\"\ncluster = \"main\"\ntarget_session_attrs = \"prefer-standby\"\n".to_owned(),
        format!("causal_reads = \"global\"\n{timeout}"),
    ];
    configuration(cluster, &sections.concat()).start()
}

fn configuration(cluster: &TestCluster, databases: &str) -> PoolConfig {
    let urls: Vec<_> = cluster.rest_urls().iter().map(|url| format!("\"{url}\"")).collect();
    let followed = format!("[[cluster]]\nname = \"main\"\npatroni = [{}]\n", urls.join(", "));
    let app = (cluster.app_name().to_owned(), cluster.password().to_owned());
    let case = Case::new(Version::V15, Driver::Uring, Mode::Transaction);
    PoolConfig::without_databases(SLUICE, case).auth(Auth::Scram(vec![app])).section(&(followed + databases))
}

pub(crate) fn connect(cluster: &TestCluster, pool: &TestPool, database: &str) -> Client {
    pool.connect(cluster.app_name(), Some(cluster.password()), database).unwrap()
}

/// The last number that was written, and whether a standby says so.
fn read_in_block(client: &mut Client) -> (i32, bool) {
    let mut block = client.build_transaction().read_only(true).start().unwrap();
    let last = block.query_one("SELECT max(id) FROM written", &[]).unwrap().get(0);
    let is_standby = block.query_one("SELECT pg_is_in_recovery()", &[]).unwrap().get(0);
    block.commit().unwrap();
    (last, is_standby)
}

fn read(client: &mut Client) -> (i32, bool) {
    let row = client.query_one("SELECT max(id), pg_is_in_recovery() FROM written", &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Everybody reads what was written just before, and that many of the reads are at standbys, at least.
fn find_what_was_written(writer: &mut Client, reader: &mut Client, turns: i32, at_standbys: i32) {
    let (mut own, mut others) = (0, 0);
    for _ in 0..turns {
        let id: i32 = writer.query_one("INSERT INTO written DEFAULT VALUES RETURNING id", &[]).unwrap().get(0);
        let (last, is_standby) = read(reader);
        assert!(last >= id, "a reader finds {last}, and {id} was acknowledged");
        others += i32::from(is_standby);
        let (last, is_standby) = read_in_block(writer);
        assert_eq!(last, id, "it finds its own");
        own += i32::from(is_standby);
    }
    assert!(own >= at_standbys && others >= at_standbys, "{own} and {others} of {turns} at standbys");
}

/// Queries on all standbys that their replay has to wait for.
fn hold_replay(cluster: &TestCluster, writer: &mut Client) -> Vec<Client> {
    writer.batch_execute("CREATE TABLE held ()").unwrap();
    let standbys = (0..cluster.nodes()).filter(|node| *node != cluster.leader());
    let hold = |node| {
        let mut holder = cluster.superuser(node);
        holder.batch_execute("ALTER SYSTEM SET max_standby_streaming_delay = -1").unwrap();
        holder.batch_execute("SELECT pg_reload_conf()").unwrap();
        eventually("the table is there", || holder.batch_execute("SELECT * FROM held").is_ok());
        holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM held").unwrap();
        holder
    };
    let holders = standbys.map(hold).collect();
    writer.batch_execute("DROP TABLE held").unwrap();
    holders
}

fn release(holders: &mut [Client]) {
    for holder in holders {
        holder.batch_execute("COMMIT").unwrap();
        holder.batch_execute("ALTER SYSTEM RESET max_standby_streaming_delay").unwrap();
        holder.batch_execute("SELECT pg_reload_conf()").unwrap();
    }
}

#[test]
fn reads_at_standbys_find_what_was_committed() {
    let _alone = alone();
    let cluster = TestCluster::start(3);
    let pool = pool(&cluster);
    let (mut writer, mut reader) = (connect(&cluster, &pool, "postgres"), connect(&cluster, &pool, "postgres:ro"));
    writer.batch_execute("CREATE TABLE written (id serial PRIMARY KEY)").unwrap();
    writer.batch_execute("INSERT INTO written DEFAULT VALUES").unwrap();
    eventually("blocks are led to standbys", || read_in_block(&mut writer).1);
    eventually("readers are at standbys", || read(&mut reader).1);
    find_what_was_written(&mut writer, &mut reader, TURNS, TURNS * 9 / 10);
    answers_are_the_same(&mut writer);
    alike::compare(&cluster, &pool);

    // The primary is taken where a standby takes too long.
    let mut holders = hold_replay(&cluster, &mut writer);
    let begun = Instant::now();
    let id: i32 = writer.query_one("INSERT INTO written DEFAULT VALUES RETURNING id", &[]).unwrap().get(0);
    assert_eq!(read_in_block(&mut writer), (id, false));
    assert_eq!(read(&mut reader), (id, false));
    assert!(begun.elapsed() >= 2 * TIMEOUT, "both have waited first");
    // What has written nothing waits for nothing, and finds what is there.
    let mut idle = connect(&cluster, &pool, "postgres");
    assert_eq!(read_in_block(&mut idle), (id - 1, true));
    // One that comes in time is waited for.
    let begun = Instant::now();
    let late = thread::spawn(move || {
        thread::sleep(TIMEOUT / 3);
        release(&mut holders);
    });
    assert_eq!(read_in_block(&mut writer), (id, true));
    assert!(begun.elapsed() >= TIMEOUT / 3, "it was not there before");
    late.join().unwrap();
    eventually("readers are back", || read(&mut reader).1);
    what_a_reload_has_found_under_way(&cluster, &mut writer);
    serializable_by_default(&cluster, &mut writer);

    let to = cluster.standby();
    cluster.switchover(to);
    cluster.wait_ready();
    eventually("blocks are led to the standbys of another primary", || read_in_block(&mut writer).1);
    find_what_was_written(&mut writer, &mut reader, 20, 1);
    follow_over_losses(&cluster, &pool);
}

/// A transaction that was open before any database had its reads led to standbys is found, too.
fn what_a_reload_has_found_under_way(cluster: &TestCluster, writer: &mut Client) {
    const PLAIN: &str = "[[database]]\nname = \"*\"\ncluster = \"main\"\n";
    let pool = configuration(cluster, PLAIN).start();
    let mut client = connect(cluster, &pool, "postgres");
    client.batch_execute("BEGIN").unwrap();
    let id: i32 = client.query_one("INSERT INTO written DEFAULT VALUES RETURNING id", &[]).unwrap().get(0);
    pool.reload(&configuration(cluster, &format!("{PLAIN}read_only_transactions = \"standby\"\n")));
    let mut other = connect(cluster, &pool, "postgres");
    eventually("others are led to standbys", || read_in_block(&mut other).1);
    let mut holders = hold_replay(cluster, writer);
    client.batch_execute("COMMIT").unwrap();
    for _ in 0..3 {
        assert_eq!(read_in_block(&mut client), (id, false));
        thread::sleep(TIMEOUT);
    }
    release(&mut holders);
    client.batch_execute("INSERT INTO written DEFAULT VALUES").unwrap();
    eventually("its next commit is one that is known", || read_in_block(&mut client) == (id + 1, true));
}

/// A standby knows no SERIALIZABLE: where that is a role's level, the primary is read.
fn serializable_by_default(cluster: &TestCluster, writer: &mut Client) {
    let id: i32 = writer.query_one("SELECT max(id) FROM written", &[]).unwrap().get(0);
    writer.batch_execute("ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'serializable'").unwrap();
    let pool = pool(cluster);
    let mut client = connect(cluster, &pool, "postgres");
    for _ in 0..3 {
        // Standbys begin with it once they have replayed it.
        thread::sleep(TIMEOUT);
        assert_eq!(read_in_block(&mut client).0, id);
    }
    assert!(!read_in_block(&mut client).1, "it is led to no standby");
    writer.batch_execute("ALTER ROLE CURRENT_USER RESET default_transaction_isolation").unwrap();
}

/// The counts of a client that reads what it has written.
#[derive(Debug, Default)]
struct Followed {
    acknowledged: u32,
    refused: usize,
    unknown: u32,
    at_standbys: u32,
    at_primaries: u32,
}

/// Clients write, and find it in read-only transactions: never less than they were told of, and nothing that was refused,
/// while primaries are lost. `SLUICE_FAILOVER_RUNS=N` has N of them lost.
fn follow_over_losses(cluster: &TestCluster, pool: &TestPool) {
    let runs = env::var("SLUICE_FAILOVER_RUNS").map_or(1, |runs| runs.parse().unwrap());
    cluster.wait_ready();
    let mut maker = connect(cluster, pool, "postgres");
    maker.batch_execute("CREATE TABLE followed (client int, number int)").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = ["postgres", "postgres", "all", "all"].into_iter().enumerate();
        let follow = |(client, database)| {
            let is_over = &is_over;
            scope.spawn(move || follow(cluster, pool, database, client as i32, is_over))
        };
        let clients: Vec<_> = clients.map(follow).collect();
        for run in 0..runs {
            cluster.wait_ready();
            thread::sleep(GOING_ON);
            let primary = cluster.leader();
            match run % 2 {
                0 => cluster.kill_node(primary),
                _ => cluster.kill_postmaster(primary),
            }
            eventually("the next primary takes writes", || {
                let written = connect(cluster, pool, "postgres").batch_execute("INSERT INTO followed VALUES (-1, 0)");
                written.is_ok()
            });
            thread::sleep(GOING_ON);
            if run % 2 == 0 {
                cluster.start_node(primary);
            }
        }
        cluster.wait_ready();
        thread::sleep(GOING_ON);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            let followed = client.join().unwrap();
            println!("{followed:?}");
            assert!(followed.acknowledged > 50 && followed.at_standbys > 50, "{followed:?}");
        }
    });
}

fn follow(cluster: &TestCluster, pool: &TestPool, database: &str, client: i32, is_over: &AtomicBool) -> Followed {
    let mut followed = Followed::default();
    let (mut number, mut told, mut refused) = (0, 0, HashSet::new());
    'sessions: while !is_over.load(Ordering::Relaxed) {
        let Ok(mut session) = pool.connect(cluster.app_name(), Some(cluster.password()), database) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        // By `local`, a session finds what it was told itself.
        let mut least = if database == "all" { told } else { 0 };
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let is_retried = |error: &postgres::Error| error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE);
            match write(&mut session, client, number) {
                Ok(()) => {
                    followed.acknowledged += 1;
                    (told, least) = (number, number);
                }
                Err(error) if is_retried(&error) => _ = refused.insert(number),
                Err(error) => {
                    assert!(client_is_lost(&error), "{error:?}");
                    followed.unknown += 1;
                    continue 'sessions;
                }
            }
            match read_followed(&mut session, client) {
                Ok((last, is_standby)) => {
                    assert!(last >= least, "{last} is found, and {least} was acknowledged");
                    assert!(!refused.contains(&last), "{last} is found, and was refused");
                    followed.at_standbys += u32::from(is_standby);
                    followed.at_primaries += u32::from(!is_standby);
                }
                Err(error) if is_retried(&error) => {}
                Err(error) => {
                    assert!(client_is_lost(&error), "{error:?}");
                    continue 'sessions;
                }
            }
        }
    }
    followed.refused = refused.len();
    followed
}

/// By one statement, or in a block.
fn write(session: &mut Client, client: i32, number: i32) -> Result<(), postgres::Error> {
    let insert = format!("INSERT INTO followed VALUES ({client}, {number})");
    if number % 2 == 0 {
        return session.batch_execute(&insert);
    }
    let mut block = session.transaction()?;
    block.batch_execute(&insert)?;
    block.commit()
}

/// The last number that the client has written, and whether a standby says so.
fn read_followed(session: &mut Client, client: i32) -> Result<(i32, bool), postgres::Error> {
    let mut block = session.build_transaction().read_only(true).start()?;
    let last = block.query_one("SELECT coalesce(max(number), 0) FROM followed WHERE client = $1", &[&client])?.get(0);
    let is_standby = block.query_one("SELECT pg_is_in_recovery()", &[])?.get(0);
    block.commit()?;
    Ok((last, is_standby))
}

/// Settings, prepared statements, errors and catalogs are in a block at a standby what they are at the primary.
fn answers_are_the_same(client: &mut Client) {
    client.batch_execute("SET work_mem = '7MB'").unwrap();
    let shown = client.prepare("SELECT current_setting('work_mem')").unwrap();
    let count = client.prepare("SELECT count(*) FROM written WHERE id <= $1").unwrap();
    for turn in 0..3 {
        // The catalogs are those of the client's last transaction.
        client.batch_execute(&format!("ALTER TABLE written ADD COLUMN c{turn} int DEFAULT {turn}")).unwrap();
        let mut block = client.build_transaction().read_only(true).start().unwrap();
        let row = block.query_one("SELECT * FROM written LIMIT 1", &[]).unwrap();
        assert_eq!((row.len(), row.get::<_, i32>(&*format!("c{turn}"))), (2 + turn, turn as i32));
        assert!(block.query_one("SELECT pg_is_in_recovery()", &[]).unwrap().get::<_, bool>(0));
        assert_eq!(block.query_one(&shown, &[]).unwrap().get::<_, String>(0), "7MB");
        assert_eq!(block.query_one(&count, &[&1]).unwrap().get::<_, i64>(0), 1);
        for (refused, code) in [
            ("INSERT INTO written DEFAULT VALUES", SqlState::READ_ONLY_SQL_TRANSACTION),
            ("SELECT nextval('written_id_seq')", SqlState::READ_ONLY_SQL_TRANSACTION),
            ("SET TRANSACTION READ WRITE", SqlState::ACTIVE_SQL_TRANSACTION),
            ("SELECT 1 / 0", SqlState::DIVISION_BY_ZERO),
        ] {
            block.batch_execute("SAVEPOINT a").unwrap();
            let error = block.batch_execute(refused).unwrap_err();
            assert_eq!(error.code(), Some(&code), "{refused}");
            block.batch_execute("ROLLBACK TO a").unwrap();
        }
        block.batch_execute("SET LOCAL work_mem = '8MB'").unwrap();
        assert_eq!(block.query_one(&shown, &[]).unwrap().get::<_, String>(0), "8MB");
        block.rollback().unwrap();
        assert_eq!(client.query_one(&shown, &[]).unwrap().get::<_, String>(0), "7MB");
    }
    // What is set in a block at a standby stays set.
    client.batch_execute("BEGIN READ ONLY").unwrap();
    client.batch_execute("SELECT 1").unwrap();
    client.batch_execute("SET work_mem = '9MB'").unwrap();
    client.batch_execute("COMMIT").unwrap();
    assert_eq!(client.query_one(&shown, &[]).unwrap().get::<_, String>(0), "9MB");
    client.batch_execute("RESET work_mem").unwrap();
}
