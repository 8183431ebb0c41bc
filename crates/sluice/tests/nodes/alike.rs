//! Answers to a client that writes, and reads in transactions that are led to a standby, are those that the primary gives
//! alone: the same texts on both, by a seed, each in a schema of its own. Differences of PostgreSQL's own making are left
//! out here, and stand in the reference.
//!
//! `SLUICE_ALIKE_SEEDS=N` has N seeds; `SLUICE_ALIKE_SEED=N` has that one alone.

use std::env;

use postgres::{Client, SimpleQueryMessage};
use sluice_testkit::{Random, TestCluster, TestPool};

use crate::causal::connect;

/// Transactions of a seed.
const TURNS: usize = 120;

/// Outside of blocks, and in those that write; `{n}` is another number each time.
const WRITES: &[&str] = &[
    "INSERT INTO t VALUES ({n}, 'row {n}')",
    "INSERT INTO t SELECT i, 'many' FROM generate_series(1, 20) i",
    "UPDATE t SET n = n + 1 WHERE n % 3 = 0",
    "DELETE FROM t WHERE n % 5 = 0",
    "TRUNCATE t",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS more int DEFAULT {n}",
    "ALTER TABLE t DROP COLUMN IF EXISTS more",
    "CREATE OR REPLACE VIEW v AS SELECT count(*) AS number, {n} AS made FROM t",
    "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT {n}'",
    "SELECT nextval('s')",
    "SELECT count(*) FROM t",
];

const SETTINGS: &[&str] = &[
    "SET work_mem = '{n}kB'",
    "RESET work_mem",
    "SET DateStyle = 'ISO, DMY'",
    "SET DateStyle = 'SQL, MDY'",
    "SELECT set_config('app.tenant', 'tenant {n}', false)",
    "SET statement_timeout = '{n}s'",
    "SET default_transaction_isolation = 'serializable'",
    "SET default_transaction_isolation = 'repeatable read'",
    "RESET default_transaction_isolation",
];

const BEGINS: &[&str] = &[
    "BEGIN READ ONLY",
    "BEGIN READ ONLY",
    "start transaction read only",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY",
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    "BEGIN; SET TRANSACTION READ ONLY",
];

const READS: &[&str] = &[
    "SELECT count(*), coalesce(sum(n), 0) FROM t",
    "SELECT * FROM t ORDER BY 1, 2 LIMIT 5",
    "WITH few AS (SELECT n FROM t ORDER BY n LIMIT 3) SELECT * FROM few",
    "TABLE v",
    "VALUES (1, 'one'), (2, 'two')",
    "SELECT DATE '2/3/2020'",
    "SELECT f()",
    "SELECT * FROM missing",
    "SELECT 1 / (count(*) - count(*)) FROM t",
    "SELECT * FROM t FOR UPDATE",
    "EXPLAIN (COSTS OFF) SELECT * FROM t",
    "SELECT length(repeat('x', {n}))",
];

const IN_BLOCKS: &[&str] = &[
    "SHOW work_mem",
    "SHOW DateStyle",
    "SHOW transaction_isolation",
    "SHOW transaction_read_only",
    "SHOW default_transaction_read_only",
    "SELECT current_setting('app.tenant', true)",
    "SET LOCAL work_mem = '{n}kB'",
    "SET work_mem = '{n}kB'",
    "SET LOCAL search_path = public",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "RELEASE a",
    "INSERT INTO t VALUES ({n}, 'refused')",
    "WITH gone AS (DELETE FROM t RETURNING n) SELECT * FROM gone",
    "SELECT nextval('s')",
    "SELECT setval('s', {n})",
    "CREATE TABLE refused (n int)",
    "CREATE TEMP TABLE refused (n int)",
    "SELECT * INTO refused FROM t",
    "SET TRANSACTION READ WRITE",
    "SET TRANSACTION READ ONLY",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "DECLARE c CURSOR FOR SELECT * FROM t ORDER BY 1, 2",
    "FETCH 3 FROM c",
    "CLOSE c",
    "LOCK TABLE t IN ACCESS SHARE MODE",
    "SELECT 1; SELECT f(); SELECT count(*) FROM t",
    "SELECT 1; no such statement",
    "BEGIN",
    "VACUUM t",
];

pub(crate) fn compare(cluster: &TestCluster, pool: &TestPool) {
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let seeds = match number("SLUICE_ALIKE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SLUICE_ALIKE_SEEDS").unwrap_or(2),
    };
    let mut at_standbys = 0;
    for seed in seeds.clone() {
        at_standbys += try_seed(cluster, pool, seed);
    }
    println!("{at_standbys} transactions of {} were at standbys", seeds.clone().count() * TURNS);
    assert!(at_standbys >= seeds.count() * TURNS / 20, "{at_standbys} transactions were at standbys");
}

/// Two clients, one by the pool and one straight at the primary.
struct Twins {
    clients: [Client; 2],
    random: Random,
    seed: u64,
    /// The texts of both so far, for whoever has to find out why they differ.
    said: Vec<String>,
}

fn try_seed(cluster: &TestCluster, pool: &TestPool, seed: u64) -> usize {
    let mut superuser = cluster.superuser(cluster.leader());
    let clients = [connect(cluster, pool, "postgres"), cluster.app(cluster.leader()).unwrap()];
    let mut twins = Twins { clients, random: Random::new(seed), seed, said: Vec::new() };
    for (schema, client) in ["pooled", "alone"].into_iter().zip(&mut twins.clients) {
        let make = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema} AUTHORIZATION app");
        superuser.batch_execute(&make).unwrap();
        client.batch_execute(&format!("SET search_path = {schema}")).unwrap();
        let tables = "CREATE TABLE t (n int, text text); CREATE SEQUENCE s; CREATE VIEW v AS SELECT 1";
        client.batch_execute(tables).unwrap();
        client.batch_execute("CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 0'").unwrap();
    }
    (0..TURNS).filter(|_| twins.turn()).count()
}

impl Twins {
    /// A transaction; whether it was at a standby.
    fn turn(&mut self) -> bool {
        match self.random.below(10) {
            0..3 => self.say(WRITES),
            3 => self.say(SETTINGS),
            4 => {
                self.say(&["BEGIN"]);
                self.say(WRITES);
                self.say(&["COMMIT", "COMMIT", "ROLLBACK"]);
            }
            _ => return self.read(),
        }
        false
    }

    fn read(&mut self) -> bool {
        self.say(BEGINS);
        let from = if self.random.percent(80) { READS } else { IN_BLOCKS };
        self.say(from);
        let is_asked_first = self.random.percent(50);
        let mut is_at_standby = is_asked_first && self.is_at_standby();
        for _ in 0..self.random.below(6) {
            let from = if self.random.percent(40) { READS } else { IN_BLOCKS };
            self.say(from);
        }
        if !is_asked_first {
            is_at_standby = self.is_at_standby();
        }
        self.say(&["COMMIT", "COMMIT", "ROLLBACK"]);
        self.say(&["SHOW work_mem", "SHOW search_path", "SELECT current_setting('app.tenant', true)"]);
        is_at_standby
    }

    /// Whether the pool's client has its block at a standby. One that has failed does not say.
    fn is_at_standby(&mut self) -> bool {
        self.said.push("SELECT pg_is_in_recovery()".to_owned());
        let said = self.clients.each_mut().map(|client| client.simple_query("SELECT pg_is_in_recovery()"));
        assert_eq!(said[0].is_ok(), said[1].is_ok(), "seed {}: {:#?}", self.seed, self.said);
        let is_true =
            |said: &SimpleQueryMessage| matches!(said, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
        said[0].as_ref().is_ok_and(|said| said.iter().any(is_true))
    }

    /// Both say one of these, and hear the same.
    fn say(&mut self, texts: &[&str]) {
        let number = 64 + self.random.below(1000);
        let text = self.random.of(texts).replace("{n}", &number.to_string());
        let is_prepared = !text.contains(';') && self.random.percent(40);
        self.said.push(format!("{text}{}", if is_prepared { " -- prepared" } else { "" }));
        let [pooled, alone] = self.clients.each_mut().map(|client| match is_prepared {
            true => prepared(client, &text),
            false => simple(client, &text),
        });
        let context = self.said.iter().rev().take(30).rev().collect::<Vec<_>>();
        assert_eq!(pooled, alone, "seed {}, {context:#?}", self.seed);
    }
}

/// An error's code and text, without the schema's name.
fn told(error: &postgres::Error) -> String {
    let Some(error) = error.as_db_error() else { return format!("{error:?}") };
    let hint = error.hint().unwrap_or_default();
    format!("{}: {} {hint}", error.code().code(), error.message()).replace("pooled", "alone")
}

fn simple(client: &mut Client, text: &str) -> Vec<String> {
    let said = match client.simple_query(text) {
        Ok(said) => said,
        Err(error) => return vec![told(&error)],
    };
    let shown = |said: &SimpleQueryMessage| match said {
        SimpleQueryMessage::Row(row) => {
            format!("{:?}", (0..row.len()).map(|column| row.get(column)).collect::<Vec<_>>()).replace("pooled", "alone")
        }
        other => format!("{other:?}"),
    };
    said.iter().map(shown).collect()
}

/// By the extended protocol: the shape of the result, and how many rows it has, or how many it has changed.
fn prepared(client: &mut Client, text: &str) -> Vec<String> {
    let statement = match client.prepare(text) {
        Ok(statement) => statement,
        Err(error) => return vec![told(&error)],
    };
    let shape: Vec<_> =
        statement.columns().iter().map(|column| format!("{} {}", column.name(), column.type_())).collect();
    let done = match statement.columns().is_empty() {
        true => client.execute(&statement, &[]).map(|rows| rows as usize),
        false => client.query(&statement, &[]).map(|rows| rows.len()),
    };
    vec![shape.join(", "), done.map_or_else(|error| told(&error), |rows| rows.to_string())]
}
