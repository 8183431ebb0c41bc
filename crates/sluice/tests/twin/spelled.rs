//! Statements that leave something in a session, each written in one of the very many ways that PostgreSQL reads: what
//! they left is there for the client that sent them, wherever it goes, and for nobody else. The pool has to read the
//! texts as PostgreSQL does, above all where no extension tells it what they did.
//!
//! `SLUICE_TWIN_SPELLINGS=5000` has so many of them, and `SLUICE_TWIN_SEED=7` begins with that one.

use sluice_testkit::{Case, Random, matrix};

use crate::{
    beside::{beside, s},
    number,
};

matrix!(transaction: what_statements_leave_is_seen_in_any_spelling);

/// As many for each case, unless the environment says otherwise.
const SPELLINGS: u64 = 40;

/// Says nothing that differs from run to run.
const EXPLAIN: &str = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT";

/// Asks for all that the statements may leave, with `§` for the number of the case: names that nobody has heard of
/// before. The other number is the first one of a seed that they give.
const ASKS: &str = "SELECT current_setting('app.tenant§', true), current_setting('a.b§', true), \
    current_setting('app.user§', true), current_setting('work_mem'), current_setting('DateStyle'), \
    current_setting('TimeZone'), pg_try_advisory_lock(42), pg_advisory_unlock(42), \
    to_regclass('pg_temp.tt') IS NULL, (SELECT count(*) FROM pg_cursors), \
    (SELECT count(*) FROM pg_listening_channels()), random() = 0.9851677175347999";

fn what_statements_leave_is_seen_in_any_spelling(case: Case) {
    let first = number("SLUICE_TWIN_SEED").unwrap_or(0);
    let count = number("SLUICE_TWIN_SPELLINGS").unwrap_or(SPELLINGS);
    beside(case, &[], |b| {
        for seed in first..first + count {
            let mut writer = Writer { random: Random::new(seed), text: String::new() };
            let is_single = writer.statements();
            let [text, asks] = [&writer.text, ASKS].map(|text| text.replace('§', &seed.to_string()));
            let script = match is_single && writer.random.percent(40) {
                true => s().unnamed(&text, &[]).sync(),
                false => s().query(&text),
            };
            eprintln!("seed {seed}: {text}");
            b.clients(&[&[], &[], &[]]);
            b.says(0, &script);
            b.query(1, &asks);
            // There is one server for both others, or two.
            b.query(2, "BEGIN READ WRITE");
            b.query(0, &asks);
            b.query(2, "COMMIT");
            b.query(0, &asks);
            b.query(2, &asks);
            // Locks are gone before the next ones ask for them.
            b.query(0, "ROLLBACK");
            b.query(0, "DISCARD ALL");
        }
    });
}

struct Writer {
    random: Random,
    text: String,
}

impl Writer {
    /// One statement or several; returns whether it is one.
    fn statements(&mut self) -> bool {
        match self.random.below(6) {
            0 => {
                self.harmless();
                self.semicolon();
                self.statement();
            }
            1 => {
                self.statement();
                self.semicolon();
                self.harmless();
            }
            2 => {
                self.words("BEGIN");
                self.semicolon();
                self.statement();
                self.semicolon();
                let end = *self.random.of(&["COMMIT", "END", "ROLLBACK", "COMMIT"]);
                self.words(end);
            }
            _ => {
                self.statement();
                if self.random.percent(30) {
                    self.semicolon();
                }
                return true;
            }
        }
        false
    }

    fn statement(&mut self) {
        match self.random.below(16) {
            0..7 => self.set(),
            7 => {
                self.words("RESET");
                self.gap();
                self.name();
            }
            8 | 9 => {
                let select = *self.random.of(&["SELECT", "VALUES (", "WITH x AS (SELECT", EXPLAIN]);
                self.words(select);
                self.gap();
                self.set_config();
                match select {
                    "VALUES (" => self.text.push(')'),
                    "WITH x AS (SELECT" => self.words(") SELECT count(*) >= 0 FROM x"),
                    _ => {}
                }
            }
            10 => self.block(),
            11 => {
                self.words("PREPARE");
                self.gap();
                self.words("p AS SELECT");
                self.gap();
                self.set_config();
                self.semicolon();
                self.words("EXECUTE p");
                self.semicolon();
                self.words("DEALLOCATE p");
            }
            12 => {
                let seed = *self.random.of(&["SET seed = 0.5", "SET SEED TO .5", "SELECT setseed(.5)"]);
                self.words(seed);
            }
            13 => {
                self.words("SELECT");
                self.gap();
                let call =
                    *self.random.of(&["pg_advisory_lock", "pg_catalog . pg_advisory_lock", "\"pg_advisory_lock\""]);
                self.words(call);
                self.space();
                self.text.push_str("(42)");
            }
            14 => {
                let temporary = *self.random.of(&[
                    "CREATE TEMP TABLE tt (a int)",
                    "CREATE LOCAL TEMPORARY TABLE tt AS SELECT 1.5 AS a",
                    "SELECT 1.AS a INTO TEMP tt",
                    "CREATE TABLE pg_temp . tt (a numeric DEFAULT 7.)",
                    "CREATE TABLE \"pg_temp\".\"tt\"()",
                ]);
                self.words(temporary);
            }
            _ => {
                let other = *self.random.of(&[
                    "LISTEN a",
                    "DECLARE c CURSOR WITH HOLD FOR SELECT 1.5",
                    "SET TIME ZONE -7.5",
                    "SET TIME ZONE 'Asia/Tokyo'",
                    "SET LOCAL TIME ZONE INTERVAL '1:30' HOUR TO MINUTE",
                    "SET DateStyle TO ISO, DMY",
                    "UPDATE pg_settings SET setting = '5000' WHERE name = 'work_mem'",
                ]);
                self.words(other);
            }
        }
    }

    fn set(&mut self) {
        self.words("SET");
        self.gap();
        let scope = *self.random.of(&["", "", "SESSION", "LOCAL"]);
        if !scope.is_empty() {
            self.words(scope);
            self.gap();
        }
        self.name();
        if self.random.percent(50) {
            self.space();
            self.text.push('=');
            self.space();
        } else {
            self.gap();
            self.words("TO");
            self.gap();
        }
        self.value();
    }

    /// A setting's name, as SQL has it.
    fn name(&mut self) {
        let name = *self.random.of(&["app.tenant§", "app.tenant§", "a.b§", "app.user§", "work_mem"]);
        for (nth, part) in name.split('.').enumerate() {
            if nth > 0 {
                self.space();
                self.text.push('.');
                self.space();
            }
            match self.random.below(8) {
                0 => self.text.push_str(&format!("\"{part}\"")),
                1 => self.text.push_str(&format!("U&\"{}\"", part.replace('a', "\\0061"))),
                _ => self.words(part),
            }
        }
    }

    fn value(&mut self) {
        let values = [
            "0.9",
            ".5",
            "7.",
            "-1.5",
            "+2",
            "1e3",
            "1.5e-3",
            "-.5E+2",
            "100",
            "0.9",
            "'x'",
            "E'\\x41'",
            "'it''s'",
            "U&'\\0041'",
            "$$x$$",
            "$q$a.b§$q$",
            "on",
            "FALSE",
            "DEFAULT",
            "abc",
            "\"Quoted\"",
            "'a.b', 'c'",
            "a, 1.5",
            "'a'\n'b'",
            "N'x'",
            "''",
            "5000",
        ];
        let value = *self.random.of(&values);
        self.text.push_str(value);
    }

    fn set_config(&mut self) {
        let call =
            *self.random.of(&["set_config", "pg_catalog.set_config", "\"set_config\"", "pg_catalog . \"set_config\""]);
        self.words(call);
        self.space();
        self.text.push('(');
        self.space();
        let name = *self.random.of(&[
            "'app.tenant§'",
            "'APP.Tenant§'",
            "E'app\\x2etenant§'",
            "'app.' || 'tenant§'",
            "$$a.b§$$",
            "'a'\n'.b§'",
            "U&'a\\002eb§'",
            "'work_mem'",
            "lower('A.B§')",
            "('a.b§')",
            "'a.b§'::text",
            "CAST('a.b§' AS text)",
        ]);
        self.text.push_str(name);
        self.space();
        let value = *self.random.of(&[", '5000'", ", 1.5::text", ", '0.9' || ''", ", 5000::text"]);
        self.text.push_str(value);
        self.space();
        let is_local = *self.random.of(&[", false", ", 'f'", ", 1 = 2", ", true"]);
        self.words(is_local);
        self.space();
        self.text.push(')');
    }

    fn block(&mut self) {
        let block = *self.random.of(&[
            "DO $$ BEGIN SET app.tenant§ = 0.9; END $$",
            "DO 'BEGIN SET LOCAL a.b§ TO 7.; END'",
            "DO $x$ BEGIN PERFORM set_config('app.tenant§', 1.5::text, false); END $x$ LANGUAGE plpgsql",
            "DO LANGUAGE plpgsql 'BEGIN PERFORM set_config(''a.b§'', ''x'', false); END'",
            "DO E'BEGIN\\nSET app.user§ = .5;\\nEND'",
            "DO $$ BEGIN PERFORM setseed(.5); END $$",
            "DO $$ DECLARE i numeric := 1.5; BEGIN PERFORM pg_advisory_lock(42); END $$",
        ]);
        self.text.push_str(block);
    }

    fn harmless(&mut self) {
        let harmless = *self.random.of(&[
            "SELECT 1.5 AS a",
            "SELECT 'app.user§', .5",
            "VALUES (7.)",
            "SELECT 1.AS \"a.b§\"",
            "SHOW work_mem",
            "",
        ]);
        self.text.push_str(harmless);
    }

    /// Words in letters of any case.
    fn words(&mut self, words: &str) {
        let way = self.random.below(3);
        for letter in words.chars() {
            let is_upper = match way {
                0 => letter.is_uppercase(),
                1 => false,
                _ => self.random.percent(50),
            };
            // What stands in quotes keeps its case.
            let is_plain = !words.contains(['\'', '"']);
            self.text.push(match letter {
                letter if !is_plain => letter,
                letter if is_upper => letter.to_ascii_uppercase(),
                letter => letter.to_ascii_lowercase(),
            });
        }
    }

    fn semicolon(&mut self) {
        self.space();
        self.text.push(';');
        self.space();
    }

    /// Space, or none.
    fn space(&mut self) {
        if self.random.percent(40) {
            self.gap();
        }
    }

    /// Space of any kind.
    fn gap(&mut self) {
        let gap = *self.random.of(&[
            " ",
            " ",
            " ",
            "\n",
            "\t",
            "  ",
            "/* 'a.b' */",
            " -- it's so\n",
            "/* /* */ ; */",
            "\r\n",
            "\x0c",
        ]);
        self.text.push_str(gap);
    }
}
