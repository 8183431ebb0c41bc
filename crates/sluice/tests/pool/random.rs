//! Sessions made up at random, by seed: what each client gets from the pool, with others on the same few servers, is what
//! it gets from PostgreSQL alone.
//!
//! `SLUICE_TEST_SEEDS=5000 cargo test -p sluice --test pool random` looks at more of them.

use std::{ops::Range, thread};

use sluice_testkit::{Case, Database, Raw, Script, matrix, raw::transcript};

use crate::{config, database};

matrix!(both_modes: random_sessions_answer_as_postgresql_does);

const SEEDS: u64 = 25;
const CLIENTS: usize = 3;
const STEPS: usize = 25;

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn of<'a, T: ?Sized>(&mut self, choice: &[&'a T]) -> &'a T {
        choice[self.below(choice.len())]
    }
}

const NAMES: [&str; 4] = ["", "a", "b", "c"];

/// `TABLE` is the client's own.
const COMMANDS: [&str; 18] = [
    "SELECT 1 AS one",
    "SELECT 1 AS one",
    "SELECT 2 AS two, NULL AS n",
    "SELECT $1::int + 1 AS next",
    "SELECT $1::int + 1 AS next",
    "SELECT 10 / $1::int AS part",
    "SELECT count(*) FROM TABLE",
    "INSERT INTO TABLE VALUES (1)",
    "INSERT INTO TABLE VALUES ($1)",
    "BEGIN",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "SELEC",
    "SELECT no_such_column",
    "",
];

const QUERIES: [&str; 14] = [
    "SELECT 1 AS one",
    "SELECT count(*) FROM TABLE",
    "INSERT INTO TABLE VALUES (1)",
    "SELECT 1; SELECT 1/0; SELECT 3",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "BEGIN; INSERT INTO TABLE VALUES (1); SELECT 5",
    "DEALLOCATE a",
    "DEALLOCATE ALL",
    "PREPARE by_sql AS SELECT 1; DEALLOCATE by_sql",
    "COPY TABLE TO STDOUT",
    "",
];

/// What the client sends before it waits: a query, or a batch of the extended protocol.
struct Step {
    script: Script,
    /// Whether it uses an unnamed statement that it has not parsed. After an error behind which another one was to be
    /// parsed the pool has none, where PostgreSQL still has the one before.
    relies_on_unnamed: bool,
}

fn step(random: &mut Random, table: &str) -> Step {
    let mut script = Script::new();
    if random.below(4) == 0 {
        script = script.query(&random.of(&QUERIES).replace("TABLE", table));
        return Step { script, relies_on_unnamed: false };
    }
    let (mut unnamed, mut relies_on_unnamed) = (false, false);
    for _ in 0..1 + random.below(5) {
        let name = random.of(&NAMES);
        let value = random.of(&["0", "5", "x"]);
        let values: &[Option<&str>] = if random.below(2) == 0 { &[] } else { &[Some(value)] };
        let kind = random.below(9);
        relies_on_unnamed |= (2..=4).contains(&kind) && name.is_empty() && !unnamed;
        unnamed |= kind == 6;
        script = match kind {
            0 | 1 => {
                let command = random.of(&COMMANDS);
                unnamed |= name.is_empty();
                script.parse(name, &command.replace("TABLE", table))
            }
            2 => script.bind(name, values).execute(),
            3 => script.bind(name, values).describe_portal("").execute(),
            4 => script.describe(name),
            5 => script.close(name),
            6 => script.unnamed(&random.of(&COMMANDS).replace("TABLE", table), values),
            7 => script.execute(),
            _ => script.flush(),
        };
    }
    Step { script: script.sync(), relies_on_unnamed }
}

fn session(seed: u64, client: usize) -> Vec<Step> {
    let mut random = Random::new(seed * 31 + client as u64 + 1);
    let table = format!("t{client}");
    (0..STEPS).map(|_| step(&mut random, &table)).collect()
}

fn answers(mut raw: Raw, client: usize, steps: &[Step]) -> Vec<String> {
    assert_eq!(raw.query(&format!("TRUNCATE t{client}")), "C(TRUNCATE TABLE) Z(I)");
    let answers = steps.iter().map(|step| {
        raw.send(&step.script);
        // A Parse may be wrong in several ways at once; which one is told first is not the same everywhere.
        let refusals = ["42601", "42703", "42P05"].map(|code| format!("E({code})"));
        let answer = transcript(&raw.until_ready(1));
        // Nor is what is said of a portal that has run to its end.
        let answer = answer.replace("E(55000)", "E(34000)");
        refusals.iter().fold(answer, |text, code| text.replace(code, "E(25P02)"))
    });
    answers.collect()
}

fn seeds() -> Range<u64> {
    let wanted = std::env::var("SLUICE_TEST_SEEDS").ok().and_then(|text| text.parse().ok());
    0..wanted.unwrap_or(SEEDS)
}

fn check(seed: u64, database: &Database<'_>, connect: &(impl Fn() -> Raw + Sync)) {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let steps = session(seed, client);
                    let expected = answers(database.server.raw().login("app", &database.name), client, &steps);
                    let got = answers(connect(), client, &steps);
                    for (place, (got, expected)) in got.iter().zip(&expected).enumerate() {
                        let sent = || show(&steps[..=place]);
                        if got != expected && steps[place].relies_on_unnamed && got.contains("E(26000)") {
                            break;
                        }
                        // In a failed transaction a statement can't be brought to a server that does not have it, so
                        // not even a Describe that PostgreSQL would answer.
                        let failed = |answer: &str| answer.ends_with("Z(E)");
                        if failed(got) && failed(expected) && got.ends_with("E(25P02) Z(E)") {
                            continue;
                        }
                        assert_eq!(got, expected, "seed {seed}, client {client}, after\n{}", sent());
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// What was sent, one step a line.
fn show(steps: &[Step]) -> String {
    let readable = |byte: &u8| if (32..127).contains(byte) { char::from(*byte) } else { '.' };
    steps.iter().map(|step| step.script.0.iter().map(readable).collect::<String>() + "\n").collect()
}

fn random_sessions_answer_as_postgresql_does(case: Case) {
    let database = database(case);
    for client in 0..CLIENTS {
        database.execute(&format!("CREATE TABLE t{client} (a int)"));
    }
    let size = if case.is_transaction() { 2 } else { CLIENTS as u32 };
    let pool = config(case).size(size).workers(2).pool("prepared_per_server = 4").start();
    for seed in seeds() {
        check(seed, &database, &|| pool.raw_app(&database));
    }
}
