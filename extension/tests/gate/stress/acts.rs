//! Acts of the stress test's sessions besides transaction blocks.

use std::{thread, time::Duration};

use sluice_testkit::Script;

use super::{
    ledger::{Outcome, UNDONE},
    session::{Answer, Session},
};

/// Functions and tables, besides those of the ledger.
pub(super) const OBJECTS: &str = "
    CREATE TABLE big AS SELECT n, repeat('x', 100) AS filler FROM generate_series(1, 8000) n;
    ANALYZE big;
    CREATE TABLE scratch (n int);
    CREATE TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO deferred VALUES (1);
    CREATE FUNCTION planned(int) RETURNS int LANGUAGE plpgsql STABLE AS $$
      BEGIN RETURN (SELECT count(*) FROM scratch) + $1; END $$;
    CREATE FUNCTION write(int, int, int) RETURNS void LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO ledger VALUES ($1, $2, $3, false);
        BEGIN
          INSERT INTO ledger VALUES ($1, $2, 100, false);
          PERFORM 1/0;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
      END $$;
    CREATE PROCEDURE write_twice(int, int, int) LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO ledger VALUES ($1, $2, 0, false);
        INSERT INTO ledger VALUES ($1, $2, 1, false);
        COMMIT;
        INSERT INTO ledger VALUES ($1, $2, 100, false);
        ROLLBACK;
        INSERT INTO ledger VALUES ($1, $3, 0, false);
        INSERT INTO ledger VALUES ($1, $3, 1, false);
      END $$;";

/// An act, and how often it comes in comparison with the others.
type Act = (usize, fn(&mut Session<'_>));

const ACTS: &[Act] = &[
    (40, |session| session.block()),
    (10, |session| session.single_write()),
    (8, |session| session.implicit_block()),
    (4, |session| session.block_behind_a_write()),
    (6, |session| session.prepared_transaction()),
    (6, |session| session.procedure()),
    (5, |session| session.copy_in()),
    (3, |session| session.vanish_in_a_copy()),
    (3, |session| session.chained_blocks()),
    (3, |session| session.deferred_failure()),
    (3, |session| session.portal_in_parts()),
    (4, |session| session.lock_held_across()),
    (3, |session| session.idle_in_transaction()),
    (15, |session| session.reads()),
    (4, |session| session.ddl()),
    (5, |session| session.settings()),
    (3, |session| session.leave()),
    (4, |session| session.vanish_in_a_read()),
];

impl Session<'_> {
    /// Acts until the test is over.
    pub(super) fn act(&mut self) {
        let weights: Vec<usize> = ACTS.iter().map(|(weight, _)| *weight).collect();
        while !self.is_stopped() {
            let act = self.random.weighted(&weights);
            (ACTS[act].1)(self);
        }
        self.leave();
    }

    /// A transaction that is one text and leaves all its rows if all of it goes well.
    fn all_or_nothing(&mut self, number: usize, answer: &Answer) {
        let outcome = match answer {
            answer if answer.is_ok() => Outcome::Committed,
            answer if answer.is_lost => Outcome::Unknown,
            _ => Outcome::Aborted,
        };
        self.ledger.end(number, outcome);
        self.tidy(answer);
    }

    /// A single statement that writes, in one of several forms.
    fn single_write(&mut self) {
        let number = self.ledger.begin(1);
        let insert = self.insert(number, 0);
        let key = format!("{}, {number}, 0", self.number);
        let texts = [
            insert.clone(),
            insert.clone(),
            format!("EXPLAIN (ANALYZE, COSTS OFF) {insert}"),
            format!("SELECT write({key})"),
            format!("DO $$ BEGIN PERFORM write({key}); END $$"),
            format!("COPY ({insert} RETURNING *) TO STDOUT"),
            format!("WITH w AS ({insert} RETURNING part) SELECT * FROM w"),
            format!("INSERT INTO ledger SELECT {key}, planned(0) < 0 FROM big WHERE n = 1"),
        ];
        let text = self.random.of(&texts).clone();
        let answer = if self.random.percent(50) {
            self.query(&text)
        } else {
            self.send(&format!("extended: {text}"), &Script::new().unnamed(&text, &[]).sync(), 1)
        };
        self.all_or_nothing(number, &answer);
    }

    /// Several statements in one string, or behind one Sync, without BEGIN.
    fn implicit_block(&mut self) {
        let parts = 2 + self.random.below(2) as u32;
        let number = self.ledger.begin(parts);
        let texts: Vec<String> = (0..parts).map(|part| self.insert(number, part)).collect();
        let answer = if self.random.percent(50) {
            self.query(&texts.join("; "))
        } else {
            let script = texts.iter().fold(Script::new(), |script, text| script.unnamed(text, &[]));
            self.send(&format!("one Sync: {}", texts.join("; ")), &script.sync(), 1)
        };
        self.all_or_nothing(number, &answer);
    }

    /// A BEGIN behind another statement of the same string.
    fn block_behind_a_write(&mut self) {
        let number = self.ledger.begin(3);
        let [first, second, third] = [0, 1, 2].map(|part| self.insert(number, part));
        let answer = self.query(&format!("{first}; BEGIN; {second}; {third}; COMMIT"));
        self.all_or_nothing(number, &answer);
    }

    fn prepared_transaction(&mut self) {
        let number = self.ledger.begin(2);
        let name = format!("p_{}_{number}", self.number);
        let (first, second) = (self.insert(number, 0), self.insert(number, 1));
        let answer = self.query(&format!("BEGIN; {first}; {second}; PREPARE TRANSACTION '{name}'"));
        let is_prepared = answer.tags().iter().any(|tag| tag == "PREPARE TRANSACTION");
        if !is_prepared {
            self.ledger.end(number, if answer.is_lost { Outcome::Unknown } else { Outcome::Aborted });
            self.tidy(&answer);
            return;
        }
        if self.random.percent(30) {
            thread::sleep(Duration::from_millis(20));
        }
        let (end, outcome) = match self.random.below(3) {
            0 => ("ROLLBACK PREPARED", Outcome::Aborted),
            _ => ("COMMIT PREPARED", Outcome::Committed),
        };
        let answer = self.query(&format!("{end} '{name}'"));
        // If that fails, somebody else will roll it back, or has.
        self.ledger.end(number, if answer.is_ok() { outcome } else { Outcome::Unknown });
    }

    /// A procedure that commits one transaction, rolls another one back, and ends within a third one.
    fn procedure(&mut self) {
        let (first, second) = (self.ledger.begin(2), self.ledger.begin(2));
        let answer = self.query(&format!("CALL write_twice({}, {first}, {second})", self.number));
        let is_ok = answer.is_ok();
        self.ledger.end(first, if is_ok { Outcome::Committed } else { Outcome::Unknown });
        self.all_or_nothing(second, &answer);
    }

    fn copy_in(&mut self) {
        let number = self.ledger.begin(2);
        let rows: String = (0..2).map(|part| format!("{}\t{number}\t{part}\tf\n", self.number)).collect();
        let copy = Script::new().query("COPY ledger FROM STDIN").copy_data(rows.as_bytes());
        let is_ended = self.random.percent(70);
        let script = if is_ended { copy.copy_done() } else { copy.copy_fail("the client does not want to") };
        let answer = self.send("COPY in", &script, 1);
        assert!(is_ended || !answer.is_ok(), "a COPY that failed");
        self.all_or_nothing(number, &answer);
    }

    /// Goes away with rows of a COPY sent, and no end.
    fn vanish_in_a_copy(&mut self) {
        let number = self.ledger.begin(1);
        let row = format!("{}\t{number}\t0\tf\n", self.number);
        let script = Script::new().query("COPY ledger FROM STDIN").copy_data(row.as_bytes());
        let after = Duration::from_millis(*self.random.of(&[0, 5, 60]));
        self.vanish("COPY in", &script, after);
    }

    /// Blocks that follow each other by AND CHAIN.
    fn chained_blocks(&mut self) {
        let (first, second, third) = (self.ledger.begin(1), self.ledger.begin(1), self.ledger.begin(1));
        let mut answer = self.query("BEGIN");
        for (number, end, tag) in
            [(first, "COMMIT AND CHAIN", "COMMIT"), (second, "ROLLBACK AND CHAIN", ""), (third, "COMMIT", "COMMIT")]
        {
            if answer.status() != 'T' {
                break;
            }
            let insert = self.insert(number, 0);
            if self.query(&insert).is_lost {
                return;
            }
            // In a block that has failed, this is a ROLLBACK.
            answer = self.query(end);
            self.ledger.end(number, if tag.is_empty() { Outcome::Aborted } else { Self::outcome_of(&answer, tag) });
        }
        self.tidy(&answer);
    }

    /// A block whose COMMIT fails.
    fn deferred_failure(&mut self) {
        let number = self.ledger.begin(1);
        let insert = self.insert(number, 0);
        let answer = self.query(&format!("BEGIN; {insert}; INSERT INTO deferred VALUES (1); COMMIT"));
        assert!(!answer.is_ok(), "a constraint that is not met");
        self.tidy(&answer);
    }

    /// A portal of which some rows are read at a time.
    fn portal_in_parts(&mut self) {
        let is_block = self.random.percent(50);
        let script = Script::new().parse("", "SELECT n FROM big ORDER BY n").bind("", &[]);
        let script = script.execute_some("", 3).flush().execute_some("", 3).execute_some("", 5).sync();
        let (script, readies) =
            if is_block { (Script::new().query("BEGIN").then(&script).query("COMMIT"), 3) } else { (script, 1) };
        let answer = self.send("a portal in parts", &script, readies);
        self.tidy(&answer);
    }

    /// An advisory lock that is held from one transaction to the next, while others may want it.
    fn lock_held_across(&mut self) {
        let lock = 1 + self.random.below(3);
        let mut answer = self.query(&format!("SET lock_timeout = '300ms'; SELECT pg_advisory_lock({lock})"));
        if answer.is_ok() {
            self.block();
            self.single_write();
            // By a function in a transaction of its own, which may have to wait as well.
            answer = self.query("SELECT pg_advisory_unlock_all()");
        }
        if answer.is_lost {
            return;
        }
        while !answer.is_ok() && !answer.is_lost && !self.is_stopped() {
            answer = self.query("SELECT pg_advisory_unlock_all()");
        }
        self.query("RESET lock_timeout");
    }

    fn idle_in_transaction(&mut self) {
        let number = self.ledger.begin(1);
        let insert = self.insert(number, 0);
        let answer = self.query(&format!("BEGIN; {insert}"));
        thread::sleep(Duration::from_millis(*self.random.of(&[50, 400, 1200])));
        let answer = if answer.status() == 'T' { self.query("ROLLBACK") } else { answer };
        self.tidy(&answer);
    }

    fn reads(&mut self) {
        let text = *self.random.of(&[
            "SELECT 1",
            "SELECT count(*) FROM ledger WHERE part = 0",
            "SELECT count(*) FROM big",
            "SELECT count(*), max(b.filler) FROM big b JOIN big c USING (n)",
            "SELECT planned(n) FROM big WHERE n = planned(7)",
            "EXPLAIN SELECT planned(3) FROM big",
            "COPY big TO STDOUT",
            "COPY (SELECT n FROM big ORDER BY n) TO STDOUT",
            "DECLARE h CURSOR WITH HOLD FOR SELECT n FROM big; FETCH 3 FROM h; CLOSE h",
            "SELECT pg_sleep(0.02)",
            "SELECT 1/0",
            "SELECT 1; SELECT 2; SELECT 3",
            "PREPARE q AS SELECT count(*) FROM big WHERE n < $1; EXECUTE q(100); DEALLOCATE q",
            "SHOW work_mem",
        ]);
        let answer = self.query(text);
        self.tidy(&answer);
    }

    /// DDL, which never waits itself, but has others wait for its locks.
    fn ddl(&mut self) {
        let text = *self.random.of(&[
            "TRUNCATE scratch",
            "ALTER TABLE scratch ADD COLUMN IF NOT EXISTS m int",
            "ALTER TABLE scratch DROP COLUMN IF EXISTS m",
            "CREATE TEMP TABLE IF NOT EXISTS kept AS SELECT 1 AS n",
            "ANALYZE scratch",
            "VACUUM scratch",
            "DISCARD ALL",
            "NOTIFY heard",
            "LISTEN heard",
            "UNLISTEN *",
        ]);
        self.query("SET lock_timeout = '500ms'");
        let answer = self.query(text);
        self.tidy(&answer);
        self.query("RESET lock_timeout");
    }

    /// Time-outs of its own, and whether its queries are parallel.
    fn settings(&mut self) {
        let text = *self.random.of(&[
            "SET sluice.gate_timeout = '1ms'",
            "SET sluice.gate_timeout = '30ms'",
            "SET sluice.gate_timeout = 0",
            "RESET sluice.gate_timeout",
            "SET statement_timeout = '40ms'",
            "SET statement_timeout = '400ms'",
            "RESET statement_timeout",
            "RESET statement_timeout",
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
            "SET idle_in_transaction_session_timeout = '300ms'",
            "RESET ALL",
        ]);
        self.query(text);
    }

    fn vanish_in_a_read(&mut self) {
        let text =
            *self.random.of(&["SELECT count(*) FROM big", "SELECT pg_sleep(0.05)", "COPY big TO STDOUT", "BEGIN"]);
        let after = Duration::from_millis(*self.random.of(&[0, 1, 20]));
        self.vanish(text, &Script::new().query(text), after);
    }
}

// Rows that are rolled back within their transaction carry that number, which the functions above write as it is.
const _: () = assert!(UNDONE == 100);
