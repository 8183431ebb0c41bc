//! Transaction blocks of the stress test: what is in them, how they end, and how they are sent.

use std::{thread, time::Duration};

use sluice_testkit::Script;

use super::{
    ledger::{Outcome, UNDONE},
    session::{Answer, Session},
};

/// The way in which a block's statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// Each one after the answer to the one before; none behind an error but ROLLBACK.
    Careful,
    /// The same, but on and on whatever the answers are.
    Careless,
    /// All in one string.
    OneString,
    /// A Query for each, none of which waits for an answer.
    QueriesAhead,
    /// By the extended protocol, a Sync behind each.
    SyncEach,
    /// By the extended protocol, one Sync behind all.
    SyncOnce,
}

const DELIVERIES: &[Delivery] = &[
    Delivery::Careful,
    Delivery::Careful,
    Delivery::Careless,
    Delivery::OneString,
    Delivery::QueriesAhead,
    Delivery::SyncEach,
    Delivery::SyncOnce,
];

/// A block: its statements, from BEGIN to its end.
#[derive(Debug)]
struct Block {
    number: usize,
    statements: Vec<String>,
    /// It ends by COMMIT, and not by ROLLBACK.
    commits: bool,
}

/// The outcome of a block that has been sent.
struct Sent {
    /// The SQLSTATE with which its BEGIN itself failed, though the rest was sent.
    begin_error: Option<String>,
    /// Its COMMIT or ROLLBACK was sent.
    is_end_sent: bool,
    /// The last answer.
    last: Answer,
}

impl Session<'_> {
    /// The statement that leaves a part of a transaction.
    pub(super) fn insert(&self, number: usize, part: u32) -> String {
        format!("INSERT INTO ledger VALUES ({}, {number}, {part}, false)", self.number)
    }

    /// The text of a part that also takes the lock of a row that many want. It is two statements.
    fn insert_hot(&mut self, number: usize, part: u32) -> [String; 2] {
        let hot = self.random.below(4);
        [
            format!("INSERT INTO ledger VALUES ({}, {number}, {part}, true)", self.number),
            format!("UPDATE hot SET n = n + 1 WHERE id = {hot}"),
        ]
    }

    /// Other things that a block may do, besides leaving rows.
    fn aside(&mut self, number: usize, part: u32) -> Vec<String> {
        let undone = self.insert(number, UNDONE);
        // Of this aside alone: a client that goes on behind errors would otherwise go back to an earlier one's, and with
        // that out of a failed block, whose COMMIT would then stand for some of its parts only.
        let [savepoint, back, release] = ["SAVEPOINT", "ROLLBACK TO", "RELEASE"].map(|verb| format!("{verb} s{part}"));
        let texts: &[&[&str]] = &[
            &["SELECT pg_sleep(0.005)"],
            &["SELECT pg_sleep(0.3)"],
            &["SELECT count(*) FROM big WHERE n % 7 = 3"],
            &[&savepoint, &undone, &back],
            &[&savepoint, "SAVEPOINT t", &undone, "RELEASE t", &back, &release],
            &["DECLARE c SCROLL CURSOR FOR SELECT n FROM big ORDER BY n DESC", "FETCH 5 FROM c", "CLOSE c"],
            &["DO $$ BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END $$"],
            &["SELECT planned(1) FROM big LIMIT 1"],
            &["CREATE TEMP TABLE x ON COMMIT DROP AS SELECT 1 AS n"],
            &["SELECT pg_advisory_xact_lock(1 + (random() * 2)::int)"],
            &["SET LOCAL lock_timeout = '50ms'", "SELECT pg_advisory_xact_lock(1)"],
            &["LOCK TABLE ledger IN ROW EXCLUSIVE MODE"],
            &["SELECT 1 FROM hot WHERE id = 1 FOR UPDATE SKIP LOCKED"],
        ];
        self.random.of(texts).iter().map(|text| (*text).to_owned()).collect()
    }

    fn make_block(&mut self) -> Block {
        let parts = 1 + self.random.below(3) as u32;
        let number = self.ledger.begin(parts);
        let begins = ["BEGIN", "BEGIN", "BEGIN", "START TRANSACTION", "BEGIN ISOLATION LEVEL SERIALIZABLE"];
        let mut statements = vec![(*self.random.of(&begins)).to_owned()];
        if self.is_counted() {
            statements.push("SELECT pg_advisory_xact_lock_shared(77)".to_owned());
        }
        for part in 0..parts {
            if self.random.percent(30) {
                let aside = self.aside(number, part);
                statements.extend(aside);
            }
            if self.random.percent(15) {
                let hot = self.insert_hot(number, part);
                statements.extend(hot);
            } else {
                statements.push(self.insert(number, part));
            }
        }
        let ends = ["COMMIT", "COMMIT", "COMMIT", "COMMIT", "END", "ROLLBACK"];
        let end = *self.random.of(&ends);
        statements.push(end.to_owned());
        Block { number, statements, commits: end != "ROLLBACK" }
    }

    /// A block, sent in one of several ways.
    pub(super) fn block(&mut self) {
        let block = self.make_block();
        if self.random.percent(8) {
            self.vanish_in(&block);
            return;
        }
        let all = &block.statements;
        let sent = match *self.random.of(DELIVERIES) {
            Delivery::Careful => self.one_by_one(all, false),
            Delivery::Careless => self.one_by_one(all, true),
            Delivery::OneString => self.at_once(&block, &Script::new().query(&all.join("; ")), 1),
            Delivery::QueriesAhead => {
                let script = all.iter().fold(Script::new(), |script, text| script.query(text));
                self.at_once(&block, &script, all.len())
            }
            Delivery::SyncEach => {
                let script = all.iter().fold(Script::new(), |script, text| script.unnamed(text, &[]).sync());
                self.at_once(&block, &script, all.len())
            }
            Delivery::SyncOnce => {
                let script = all.iter().fold(Script::new(), |script, text| script.unnamed(text, &[]));
                self.at_once(&block, &script.sync(), 1)
            }
        };
        let outcome = if let Some(code) = sent.begin_error {
            assert_eq!(code, "57014", "a BEGIN does not fail because its wait did");
            self.begins_failed += 1;
            // What follows such a BEGIN runs by itself, as it would without a gate.
            Outcome::Loose
        } else if block.commits && sent.is_end_sent {
            Self::outcome_of(&sent.last, "COMMIT")
        } else {
            Outcome::Aborted
        };
        self.ledger.end(block.number, outcome);
        self.is_outside = false;
        self.tidy(&sent.last);
    }

    /// Sends all of a block without waiting for an answer.
    fn at_once(&mut self, block: &Block, script: &Script, readies: usize) -> Sent {
        let last = self.send(&format!("{readies} Z: {}", block.statements.join("; ")), script, readies);
        // With a single Sync, what follows a BEGIN that failed is skipped.
        let begin_error = last.error_of_first().filter(|_| readies > 1);
        Sent { begin_error, is_end_sent: true, last }
    }

    /// Sends a block's statements one after the other.
    fn one_by_one(&mut self, statements: &[String], is_careless: bool) -> Sent {
        let mut begin_error = None;
        for (place, text) in statements.iter().enumerate() {
            if self.random.percent(10) {
                let ms = *self.random.of(&[1, 5, 30, 300]);
                thread::sleep(Duration::from_millis(ms));
            }
            let answer = self.query(text);
            let is_end_sent = place + 1 == statements.len();
            let is_over = is_end_sent || answer.is_lost || !(answer.is_ok() || is_careless);
            if place == 0 && is_careless {
                begin_error = answer.error_of_first();
                self.is_outside = begin_error.is_some();
            }
            if is_over {
                return Sent { begin_error, is_end_sent, last: answer };
            }
        }
        unreachable!("a block has an end")
    }

    /// Sends a block, or its first part, and goes away in the midst of it.
    fn vanish_in(&mut self, block: &Block) {
        let count = 1 + self.random.below(block.statements.len());
        let statements = &block.statements[..count];
        let after = Duration::from_millis(*self.random.of(&[0, 1, 10, 100]));
        let script = if self.random.percent(50) {
            Script::new().query(&statements.join("; "))
        } else {
            statements.iter().fold(Script::new(), |script, text| script.query(text))
        };
        self.vanish(&format!("vanish in: {}", statements.join("; ")), &script, after);
        let may_be_there = block.commits && count == block.statements.len();
        self.ledger.end(block.number, if may_be_there { Outcome::Unknown } else { Outcome::Aborted });
    }
}
