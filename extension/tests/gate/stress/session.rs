//! A client of the stress test: a connection, made anew when it is lost, and what it has been told.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use sluice_testkit::{Message, Random, Raw, Script, TestServer, raw::transcript};
use sluice_wire::{message::backend, startup::ProtocolVersion};

use super::{
    Done,
    ledger::{Ledger, Outcome},
};

/// SQLSTATEs that a client may meet; anything else is a defect.
const EXPECTED: &[&str] = &[
    "53S01", // the gate's time-out
    "57014", // a cancel, statement_timeout
    "57P01", // terminated
    "25P03", // idle_in_transaction_session_timeout
    "25P02", // in a block that has failed
    "55P03", // lock_timeout
    "40P01", // a deadlock of locks
    "40001", // serialization failure
    "22012", // division by zero, on purpose
    "23505", // a deferred constraint, on purpose
    "57000", // COPY failed at the client's wish
    "57P03", // connecting while the server is busy with that
    "53300", // too many connections, while old ones end
    "42704", // a prepared transaction that somebody else has finished
    "55000", // a prepared transaction is busy
    // What a client runs into that goes on behind an error.
    "26000", "34000", "3B001", "42P03", "42P05", "42P07",
];

/// Warnings that a client may meet.
const EXPECTED_WARNINGS: &[&str] =
    &["there is no transaction in progress", "there is already a transaction in progress"];

/// Another error that a client meets where its BEGIN failed before it ran and the rest was sent all the same. Anywhere
/// else it shows that a statement of a block has run outside of it.
const OUTSIDE: &[&str] = &["25P01"];
const OUTSIDE_WARNINGS: &[&str] = &["SET LOCAL can only be used in transaction blocks"];

/// The messages that came back, and whether the connection still stands.
#[derive(Debug)]
pub(super) struct Answer {
    messages: Vec<Message>,
    /// The connection was lost before all of it came.
    pub(super) is_lost: bool,
}

impl Answer {
    /// The transaction status of the last ReadyForQuery: `I`, `T` or `E`; `I` for a connection that was lost.
    pub(super) fn status(&self) -> char {
        match self.messages.last() {
            Some(last) if !self.is_lost && last.tag == backend::READY_FOR_QUERY => char::from(last.body[0]),
            _ => 'I',
        }
    }

    /// Whether there was an error.
    fn has_error(&self) -> bool {
        self.messages.iter().any(|message| message.tag == backend::ERROR_RESPONSE)
    }

    /// The SQLSTATE of the first command's error, if it failed and the session went on.
    pub(super) fn error_of_first(&self) -> Option<String> {
        let ends = [backend::COMMAND_COMPLETE, backend::ERROR_RESPONSE];
        let first = self.messages.iter().find(|message| ends.contains(&message.tag))?;
        (first.tag == backend::ERROR_RESPONSE && first.field(b'V') == "ERROR").then(|| first.field(b'C'))
    }

    /// The number of errors by which a block failed since its wait at BEGIN had.
    fn refusals(&self) -> usize {
        let context = "while waiting for admission at the BEGIN of this transaction block";
        let errors = self.messages.iter().filter(|message| message.tag == backend::ERROR_RESPONSE);
        errors.filter(|error| error.field(b'W') == context).count()
    }

    /// The tags of the commands that have been completed.
    pub(super) fn tags(&self) -> Vec<String> {
        let completed = self.messages.iter().filter(|message| message.tag == backend::COMMAND_COMPLETE);
        completed.map(|message| String::from_utf8_lossy(&message.body).trim_end_matches('\0').to_owned()).collect()
    }

    /// Whether all went well.
    pub(super) fn is_ok(&self) -> bool {
        !self.is_lost && !self.has_error()
    }
}

/// A client.
pub(super) struct Session<'a> {
    server: &'a TestServer,
    database: &'a str,
    role: &'a str,
    /// The number by which its rows are known.
    pub(super) number: usize,
    pub(super) random: Random,
    pub(super) ledger: Ledger,
    /// The number of BEGINs that failed themselves, by an interrupt before they ran.
    pub(super) begins_failed: usize,
    /// The BEGIN of the block that is being sent is one of those.
    pub(super) is_outside: bool,
    /// The number of waits at a BEGIN that ended with an error of the next statement.
    pub(super) begins_refused: usize,
    raw: Option<Raw>,
    stopped: &'a AtomicBool,
    /// The last texts that were sent, for who looks for the cause of a failure.
    recent: VecDeque<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        server: &'a TestServer,
        database: &'a str,
        role: &'a str,
        number: usize,
        seed: u64,
        stopped: &'a AtomicBool,
    ) -> Self {
        let random = Random::new(seed.wrapping_mul(1009).wrapping_add(number as u64));
        let (ledger, recent) = (Ledger::default(), VecDeque::new());
        let (begins_failed, begins_refused) = (0, 0);
        Self {
            server,
            database,
            role,
            number,
            random,
            ledger,
            begins_failed,
            is_outside: false,
            begins_refused,
            raw: None,
            stopped,
            recent,
        }
    }

    /// Its result.
    pub(super) fn done(mut self) -> Done {
        let ledger = std::mem::take(&mut self.ledger);
        Done { ledger, begins_failed: self.begins_failed, begins_refused: self.begins_refused }
    }

    /// Whether the test is over.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether its blocks are counted from outside, by a lock that they hold.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self.role, "postgres" | "spared")
    }

    /// The connection, made anew if there is none; none if that failed.
    fn connection(&mut self) -> Option<&mut Raw> {
        if self.raw.is_none() {
            let mut raw = self.server.raw();
            raw.may_be_cut = true;
            let parameters = [("user", self.role), ("database", self.database)];
            let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
            check(&messages, false);
            if messages.last().is_some_and(|message| message.tag == backend::READY_FOR_QUERY) {
                self.raw = Some(raw);
            }
        }
        self.raw.as_mut()
    }

    fn note(&mut self, text: &str) {
        if self.recent.len() == 30 {
            self.recent.pop_front();
        }
        self.recent.push_back(text.to_owned());
    }

    /// Sends a script, and reads as many ReadyForQuery.
    pub(super) fn send(&mut self, what: &str, script: &Script, readies: usize) -> Answer {
        self.note(what);
        let lost = Answer { messages: Vec::new(), is_lost: true };
        let Some(raw) = self.connection() else {
            thread::sleep(Duration::from_millis(10));
            return lost;
        };
        // Behind a connection that has been closed there may still be a message that says why.
        let is_sent = raw.try_send(&script.0).is_ok();
        let messages = raw.until_ready(readies);
        let came = messages.iter().filter(|message| message.tag == backend::READY_FOR_QUERY).count();
        let is_lost = !is_sent || came < readies;
        if is_lost {
            self.raw = None;
        }
        self.note(&format!("  -> {}{}", transcript(&messages), if is_lost { " lost" } else { "" }));
        let answer = Answer { messages, is_lost };
        let begin_failed = readies > 1 && answer.error_of_first().is_some();
        check(&answer.messages, self.is_outside || begin_failed);
        self.begins_refused += answer.refusals();
        answer
    }

    /// Runs a text by the simple protocol.
    pub(super) fn query(&mut self, sql: &str) -> Answer {
        self.send(sql, &Script::new().query(sql), 1)
    }

    /// Ends the transaction that an answer has left open.
    pub(super) fn tidy(&mut self, answer: &Answer) {
        let mut status = answer.status();
        while status != 'I' {
            status = self.query("ROLLBACK").status();
        }
    }

    /// Sends a script, and goes away without reading, after a while.
    pub(super) fn vanish(&mut self, what: &str, script: &Script, after: Duration) {
        self.note(what);
        if let Some(raw) = self.connection() {
            let _may_be_lost = raw.try_send(&script.0);
            thread::sleep(after);
        }
        self.raw = None;
        self.note("  vanished");
    }

    /// Ends the connection in order.
    pub(super) fn leave(&mut self) {
        if let Some(mut raw) = self.raw.take() {
            let _may_be_lost = raw.try_send(&Script::new().terminate().0);
        }
    }

    /// The outcome of a transaction whose last command's answer that is, and which was to commit.
    pub(super) fn outcome_of(answer: &Answer, commit: &str) -> Outcome {
        let is_committed = answer.tags().iter().any(|tag| tag == commit);
        match (is_committed, answer.is_lost) {
            (true, _) => Outcome::Committed,
            // An error before the connection was lost is the transaction's end only if that did not end it.
            (false, true) => Outcome::Unknown,
            (false, false) => Outcome::Aborted,
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("session {} ({}), last:", self.number, self.role);
            self.recent.iter().for_each(|text| eprintln!("  {text}"));
        }
    }
}

/// Errors and warnings have to be such as a client may meet.
fn check(messages: &[Message], is_outside: bool) {
    for message in messages {
        let is_expected = match message.tag {
            backend::ERROR_RESPONSE => {
                let code = message.field(b'C');
                EXPECTED.contains(&code.as_str()) || (is_outside && OUTSIDE.contains(&code.as_str()))
            }
            backend::NOTICE_RESPONSE => {
                let text = message.field(b'M');
                message.field(b'V') != "WARNING"
                    || EXPECTED_WARNINGS.contains(&text.as_str())
                    || (is_outside && OUTSIDE_WARNINGS.contains(&text.as_str()))
            }
            _ => true,
        };
        assert!(is_expected, "{message}: {}", message.field(b'M'));
    }
}
