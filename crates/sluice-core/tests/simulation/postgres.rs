//! The server behind the pool: it accepts connections, checks logins, runs sessions, passes cancels on, and crashes.

use std::collections::{BTreeMap, HashMap};

use sluice_control::{
    address::{Address, PeerAddress},
    settings::PoolMode,
};
use sluice_core::{
    client_address,
    lsn::Lsn,
    outcome::{COMMIT_PARAMETER, REPORT_COMMITS, REPORT_TRANSACTIONS},
    profile::Profile,
};
use sluice_wire::{
    message::{self, AUTHENTICATION_OK, AuthenticationRequest, backend, framed, frontend},
    scram::{ServerBinding, ServerExchange, Verifier},
    startup::{self, Startup},
};

use crate::{
    agenda::{Event, PipeId, SimIo},
    language::{is_own, sleeps},
    marks::{self, Marks},
    plan::PRIMARY,
    session::{Ends, Session, put_error},
};

/// A server that has this much unread stops reading while it works; one that has this much unsent stops working.
const BUFFER_BYTES: usize = 64 << 10;

/// Answers are kept until this many bytes are there, or something asks for them.
const OUTPUT_BYTES: usize = 8 << 10;

/// The function by which the pool tells where its clients are, and the secret that goes with it.
const TELLER: u32 = 7777;
pub(crate) const SECRET: &str = "known to both of them";

/// The setting that is reported after a reload: one that does not follow a client.
pub(crate) const RELOADED: &str = "in_hot_standby";

enum State {
    Startup,
    Sasl,
    Proof(Box<ServerExchange>),
    Running(Box<Session>),
    Gone,
}

/// A server process.
pub(crate) struct Backend {
    pub(crate) pipe: PipeId,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
    key: [u8; 32],
    /// Counts what was to come and does not any more.
    generation: u32,
    scheduled: bool,
    /// The settings that it was opened with.
    startup: Vec<(String, String)>,
    /// The length of the message that is being worked on.
    at_work: Option<usize>,
    cancelled: bool,
    /// The client whose work is under way.
    holder: Option<String>,
    /// The marks of its blocks, if it is to report them.
    marks: Option<Marks>,
    /// The client's address as the pool tells it, once it has found out how.
    told: Option<PeerAddress>,
    pub(crate) is_session: bool,
}

/// All server processes.
pub(crate) struct Postgres {
    pub(crate) backends: Vec<Backend>,
    by_pid: HashMap<u32, usize>,
    /// The transactions by their marks: whether they have committed. The same on each node.
    committed: BTreeMap<u64, bool>,
    pub(crate) schema: u32,
    /// The number of times that the configuration has been read.
    conf: u32,
    /// `None` trusts everybody.
    pub(crate) verifier: Option<Verifier>,
    pub(crate) crashes: u32,
    pub(crate) served: u64,
    /// The number of times that a standby was asked how far it has replayed.
    pub(crate) asked: u64,
    /// The number of blocks that only read and were begun at one.
    pub(crate) led: u64,
}

/// The end of what a standby is asked.
const HOW_FAR: &[u8] = b"SELECT pg_catalog.pg_last_wal_replay_lsn()\0";

/// A standby's answer to that, which stands alone or behind others.
fn replayed(asked: &[u8], end: Lsn) -> Vec<u8> {
    let mut out = Vec::new();
    let statements = asked.split(|byte| *byte == b';').count();
    for number in 1..=statements {
        let text = if number == statements { end.to_string() } else { String::new() };
        framed(&mut out, backend::DATA_ROW, |out| {
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&(text.len() as u32).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        });
        message::put_command_complete(&mut out, "SELECT 1");
    }
    out.extend_from_slice(&message::TransactionStatus::Idle.ready_for_query());
    out
}

/// Whether a connection is one to the primary.
fn is_primary(pipe: PipeId, io: &SimIo) -> bool {
    io.network.place(pipe) == Some(Address::Unix(PRIMARY.into()))
}

/// The setting that a parameter of a StartupMessage is for: `options` has one at most.
fn of_options(name: String, value: String) -> (String, String) {
    let in_options = value.strip_prefix("-c ").and_then(|option| option.split_once('='));
    match in_options.filter(|_| name == "options") {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (name, value),
    }
}

impl Postgres {
    pub(crate) fn new(verifier: Option<Verifier>) -> Self {
        Self {
            backends: Vec::new(),
            by_pid: HashMap::new(),
            committed: BTreeMap::new(),
            schema: 1,
            conf: 1,
            verifier,
            crashes: 0,
            served: 0,
            asked: 0,
            led: 0,
        }
    }

    /// A connection has come.
    pub(crate) fn accept(&mut self, pipe: PipeId, io: &mut SimIo) -> usize {
        let mut key = [0; 32];
        key.iter_mut().for_each(|b| *b = io.rng.next() as u8);
        self.backends.push(Backend {
            pipe,
            state: State::Startup,
            input: Vec::new(),
            output: Vec::new(),
            key,
            generation: 0,
            scheduled: false,
            startup: Vec::new(),
            at_work: None,
            cancelled: false,
            holder: None,
            marks: None,
            told: None,
            is_session: false,
        });
        self.backends.len() - 1
    }

    /// Those that run a session, or are about to.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Backend)> {
        self.backends.iter().enumerate().filter(|(_, b)| b.is_session && !matches!(b.state, State::Gone))
    }

    pub(crate) fn received(&mut self, index: usize, bytes: &[u8], io: &mut SimIo) {
        let backend = &mut self.backends[index];
        if matches!(backend.state, State::Gone) {
            return;
        }
        backend.input.extend_from_slice(bytes);
        if backend.at_work.is_some() && backend.input.len() > BUFFER_BYTES {
            io.stall(backend.pipe, io.now + std::time::Duration::from_micros(500));
        }
        backend.schedule(index, 0, io);
    }

    /// The pool has closed the connection.
    pub(crate) fn ended(&mut self, index: usize, io: &mut SimIo) {
        io.trace(|| format!("server {index} ends"));
        self.backends[index].state = State::Gone;
    }

    /// A process dies.
    pub(crate) fn crash(&mut self, index: usize, io: &mut SimIo) {
        io.trace(|| format!("server {index} crashes"));
        self.crashes += 1;
        let backend = &mut self.backends[index];
        if io.rng.percent(50) {
            let text = "terminating connection due to administrator command";
            let mut out = Vec::new();
            // Only between messages: what a process says last is never inside another message.
            put_error(&mut out, b'E', "FATAL", "57P01", text);
            io.write_up(backend.pipe, &out);
        }
        backend.state = State::Gone;
        let lossy = io.rng.percent(50);
        io.close_up(backend.pipe, lossy);
    }

    /// The configuration is reloaded: processes with nothing to do say at once what has changed.
    pub(crate) fn reload(&mut self, io: &mut SimIo) {
        self.conf += 1;
        for backend in &self.backends {
            let State::Running(session) = &backend.state else { continue };
            if session.is_at_rest() && backend.output.is_empty() && backend.at_work.is_none() {
                let mut out = Vec::new();
                message::put_parameter_status(&mut out, RELOADED, "whatever");
                put_error(&mut out, b'N', "NOTICE", "00000", &format!("{RELOADED} {}", "x".repeat(300)));
                io.write_up(backend.pipe, &out);
            }
        }
    }

    fn cancel(&mut self, pid: u32, key: &[u8], io: &mut SimIo) {
        let Some(&index) = self.by_pid.get(&pid) else { return };
        let backend = &mut self.backends[index];
        if backend.key == *key && backend.at_work.is_some() {
            io.trace(|| format!("server {index} is cancelled at {:?}", backend.holder));
            backend.cancelled = true;
            backend.generation += 1;
            backend.scheduled = false;
            backend.schedule(index, 10, io);
        }
    }

    /// A process goes on with what it has.
    pub(crate) fn run(&mut self, index: usize, generation: u32, io: &mut SimIo) {
        let backend = &mut self.backends[index];
        if backend.generation != generation {
            return;
        }
        backend.scheduled = false;
        loop {
            let backend = &mut self.backends[index];
            let pipe = backend.pipe;
            if io.network.unread(pipe) > BUFFER_BYTES {
                backend.schedule(index, 300, io);
                return;
            }
            match &mut backend.state {
                State::Gone => return,
                State::Startup => {
                    let input = std::mem::take(&mut backend.input);
                    match startup::read(&input) {
                        Ok(None) => {
                            self.backends[index].input = input;
                            return;
                        }
                        Ok(Some((Startup::Cancel { process_id, key }, _))) => {
                            self.cancel(process_id, &key, io);
                            self.backends[index].state = State::Gone;
                            io.close_up(pipe, false);
                            return;
                        }
                        Ok(Some((Startup::Session(mut request), used))) => {
                            let is_shared = io.plan.pool.sharing.mode == PoolMode::Transaction;
                            let is_report = |(name, _): &(String, String)| *name == REPORT_TRANSACTIONS.0;
                            let reports = request.parameters.iter().any(is_report);
                            let reads = io.plan.reads;
                            assert_eq!(reports, is_shared && io.plan.in_cluster && !reads, "who reports transactions");
                            let is_read_only = |(name, _): &(String, String)| name == "default_transaction_read_only";
                            assert_eq!(request.parameters.iter().any(is_read_only), reads, "who only reads");
                            let is_commits = |(name, _): &(String, String)| *name == REPORT_COMMITS.0;
                            let commits = request.parameters.iter().any(is_commits);
                            assert_eq!(commits, io.plan.is_causal && is_primary(pipe, io), "who reports commits");
                            request.parameters.retain(|it| !is_report(it) && !is_read_only(it) && !is_commits(it));
                            assert!(!is_shared || request.parameters.len() == 2, "the pool starts with settings");
                            let backend = &mut self.backends[index];
                            // A transaction at a standby has none.
                            let has_marks = reports && io.plan.reports && (!io.plan.leads || is_primary(pipe, io));
                            backend.marks = has_marks.then(Marks::default);
                            let settings = request.parameters.into_iter().skip(2);
                            backend.startup = settings.map(|(name, value)| of_options(name, value)).collect();
                            backend.input = input[used..].to_vec();
                            self.begin_login(index, io);
                        }
                        other => panic!("the pool began with {other:?}"),
                    }
                }
                State::Sasl | State::Proof(_) => {
                    let Some(total) = message_length(&backend.input) else { return };
                    let message: Vec<u8> = backend.input.drain(..total).collect();
                    if message[0] == frontend::TERMINATE {
                        backend.state = State::Gone;
                        io.close_up(pipe, false);
                        return;
                    }
                    self.login(index, &message, io);
                }
                State::Running(_) => {
                    let Some(total) = message_length(&backend.input) else { return };
                    if backend.at_work.take() != Some(total) {
                        backend.at_work = Some(total);
                        let micros = backend.service(io);
                        if micros > 0 {
                            backend.schedule(index, micros, io);
                            return;
                        }
                        backend.at_work = None;
                    }
                    let message: Vec<u8> = backend.input.drain(..total).collect();
                    let cancelled = std::mem::take(&mut backend.cancelled);
                    self.work(index, message[0], &message[5..], cancelled, io);
                }
            }
        }
    }

    fn begin_login(&mut self, index: usize, io: &mut SimIo) {
        self.backends[index].is_session = true;
        if io.plan.login_trouble && io.rng.percent(30) && io.now < io.plan.trouble_until {
            let mut out = Vec::new();
            put_error(&mut out, b'E', "FATAL", "57P03", "the database system is starting up");
            io.write_up(self.backends[index].pipe, &out);
            self.backends[index].state = State::Gone;
            io.close_up(self.backends[index].pipe, false);
            return;
        }
        if self.verifier.is_some() {
            let mut out = Vec::new();
            AuthenticationRequest::Sasl(b"SCRAM-SHA-256\0\0").write(&mut out);
            io.write_up(self.backends[index].pipe, &out);
            self.backends[index].state = State::Sasl;
        } else {
            self.accepted(index, io);
        }
    }

    fn login(&mut self, index: usize, message: &[u8], io: &mut SimIo) {
        assert_eq!(message[0], frontend::PASSWORD, "the pool answers a challenge with a password message");
        let mut out = Vec::new();
        let backend = &mut self.backends[index];
        match std::mem::replace(&mut backend.state, State::Gone) {
            State::Sasl => {
                let (_, first) = message::read_sasl_initial(&message[5..]).expect("a SASLInitialResponse");
                let verifier = self.verifier.clone().expect("it asked for SCRAM");
                let (exchange, challenge) =
                    ServerExchange::begin(verifier, ServerBinding::None, first, [7; 18]).expect("SCRAM");
                AuthenticationRequest::SaslContinue(challenge.as_bytes()).write(&mut out);
                backend.state = State::Proof(Box::new(exchange));
                io.write_up(backend.pipe, &out);
            }
            State::Proof(exchange) => {
                let (signature, _) = exchange.finish(&message[5..]).expect("the pool logs in with the right keys");
                AuthenticationRequest::SaslFinal(signature.as_bytes()).write(&mut out);
                io.write_up(backend.pipe, &out);
                self.accepted(index, io);
            }
            _ => {}
        }
    }

    fn accepted(&mut self, index: usize, io: &mut SimIo) {
        let backend = &mut self.backends[index];
        let session = match io.plan.reports {
            true => Session::reporting(self.schema, &backend.startup),
            false => Session::new(&backend.startup),
        };
        let mut out = AUTHENTICATION_OK.to_vec();
        out.extend(session.welcome());
        if io.plan.has_nodes() {
            let is_primary = is_primary(backend.pipe, io);
            message::put_parameter_status(&mut out, "in_hot_standby", if is_primary { "off" } else { "on" });
            message::put_parameter_status(&mut out, COMMIT_PARAMETER, "0/0");
        }
        let pid = 1000 + index as u32;
        message::put_backend_key_data(&mut out, pid, &backend.key);
        out.extend_from_slice(&message::TransactionStatus::Idle.ready_for_query());
        io.write_up(backend.pipe, &out);
        backend.state = State::Running(Box::new(session));
        self.by_pid.insert(pid, index);
    }

    fn work(&mut self, index: usize, tag: u8, body: &[u8], cancelled: bool, io: &mut SimIo) {
        let (schema, conf) = (self.schema, self.conf);
        let backend = &mut self.backends[index];
        if backend.teller_message(tag, body, cancelled, io) {
            return;
        }
        let begins = tag == frontend::PARSE && body.starts_with(b"\0BEGIN READ ONLY\0");
        self.led += u64::from(begins && !is_primary(backend.pipe, io));
        if tag == frontend::QUERY && body.ends_with(HOW_FAR) {
            assert!(!cancelled, "a cancel has hit what the pool itself asked for");
            self.asked += 1;
            let answer = replayed(body, Lsn(io.now.0.saturating_sub(io.rng.below(300_000))));
            io.write_up(backend.pipe, &answer);
            return;
        }
        if let Some(mark) = marks::asked_for(tag, body) {
            assert!(!cancelled, "a cancel has hit what the pool itself asked for");
            let has_committed = *self.committed.entry(mark).or_insert(false);
            io.trace(|| format!("server {index} is asked for transaction {mark}: {has_committed}"));
            let answer = marks::answer((!io.rng.percent(5)).then_some(has_committed));
            io.write_up(backend.pipe, &answer);
            return;
        }
        let State::Running(session) = &mut backend.state else { return };
        if tag == frontend::TERMINATE {
            io.trace(|| format!("server {index} is told to end"));
            backend.state = State::Gone;
            io.close_up(backend.pipe, false);
            return;
        }
        io.trace(|| format!("server {index} handles {}", describe(tag, body)));
        let ends_block = session.rolls_back(tag, body);
        if ends_block && io.plan.in_cluster && io.plan.crashes > 0 && io.rng.percent(30) {
            // Before the answer has gone.
            self.crash(index, io);
            return;
        }
        if tag == frontend::QUERY && is_own(session.text_of(tag, body)) {
            assert!(session.is_between_messages(), "the pool asks server {index} in the midst of a client's messages");
            assert!(!cancelled, "a cancel has hit what the pool itself asked of server {index}");
        }
        if let Some(tagged) = client_tag(body) {
            let made = session.temp.as_deref().or(session.cursor.as_deref());
            let maker = made.and_then(|text| client_tag(text.as_bytes()));
            assert!(
                maker.as_ref().is_none_or(|maker| *maker == tagged),
                "server {index} gets work of client {tagged}, and has a temporary table or a cursor of client {maker:?}"
            );
            let is_elsewhere = |told| told != place_of(tagged.parse().expect("digits"));
            assert!(
                !backend.told.is_some_and(is_elsewhere),
                "server {index} thinks that client {tagged} is at {:?}",
                backend.told
            );
            match &backend.holder {
                Some(holder) if *holder != tagged => {
                    panic!("server {index} gets work of client {tagged} in the middle of client {holder}'s")
                }
                _ => backend.holder = Some(tagged),
            }
        }
        self.served += 1;
        let is_of_settings = io.plan.crashes > 0 && String::from_utf8_lossy(body).contains("set ");
        if is_of_settings && io.rng.percent(4) {
            // Just when the pool is about to ask what that has left.
            let at = io.rng.below(2_000);
            io.after(at, Event::CrashSoon(index));
        }
        let before = backend.output.len();
        let begins = session.text_of(tag, body).to_ascii_lowercase().starts_with("begin") && session.is_at_gate();
        let refused = begins && io.rng.percent(io.plan.refused_percent);
        let fail = cancelled.then_some("57014").or(refused.then_some("53S01"));
        session.handle(tag, body, Ends { schema, conf, fail, described: true, ..Ends::default() }, &mut backend.output);
        if let Some(marks) = &mut backend.marks {
            let ended = marks.follow(session, before, &mut backend.output, || io.rng.next());
            self.committed.extend(ended);
        }
        if session.is_at_rest() {
            backend.holder = None;
        }
        let new = &backend.output[before..];
        let urgent = matches!(tag, frontend::FLUSH | frontend::SYNC | frontend::QUERY | frontend::FUNCTION_CALL)
            || matches!(new.first(), Some(b'E' | b'G'))
            || session.copy.is_some()
            || matches!(tag, frontend::COPY_DONE | frontend::COPY_FAIL);
        if urgent || backend.output.len() > OUTPUT_BYTES {
            let out = std::mem::take(&mut backend.output);
            io.write_up(backend.pipe, &out);
        }
    }

    /// A server is free in its pool, which thinks that these settings are in place there.
    pub(crate) fn check_idle(&self, index: usize, noted: &Profile) {
        let backend = &self.backends[index];
        let State::Running(session) = &backend.state else { return };
        assert!(session.is_at_rest(), "server {index} is free in the middle of something");
        assert_eq!(session.cursor, None, "server {index} is free, and has a client's cursor");
        assert_eq!(session.temp, None, "server {index} is free, and has a client's temporary table");
        let made: Vec<_> = session.made().map(|(name, value)| (name, value.as_bytes())).collect();
        let noted: Vec<_> = noted.settings().iter().map(|(name, value)| (name.as_str(), &**value)).collect();
        assert_eq!(made, noted, "server {index} has other settings than its pool thinks");
    }

    /// Checks that hold for every process when all is quiet.
    pub(crate) fn check_rest(&self) {
        for (index, backend) in self.live() {
            let State::Running(session) = &backend.state else {
                panic!("server {index} is still logging in when all is quiet")
            };
            assert!(backend.input.is_empty(), "server {index} has half a message: {:?}", backend.input);
            assert!(backend.output.is_empty(), "server {index} has output that nobody asked for");
            assert!(session.is_at_rest(), "server {index} is idle in the pool in the middle of something");
        }
    }

    /// Statements on each process, at most.
    pub(crate) fn statements_max(&self) -> usize {
        let count = |b: &Backend| match &b.state {
            State::Running(session) => session.statement_count(),
            _ => 0,
        };
        self.live().map(|(_, b)| count(b)).max().unwrap_or(0)
    }
}

impl Backend {
    /// Answers what has to do with telling it where clients are; `false` if it is something else.
    fn teller_message(&mut self, tag: u8, body: &[u8], cancelled: bool, io: &mut SimIo) -> bool {
        let State::Running(session) = &self.state else { return false };
        let is_find = tag == frontend::QUERY && body.strip_suffix(b"\0") == Some(client_address::FIND.as_bytes());
        let is_call = tag == frontend::FUNCTION_CALL && body.starts_with(&TELLER.to_be_bytes());
        if !is_find && !is_call {
            return false;
        }
        assert!(session.is_at_rest() && io.plan.tells(), "a server is told in the middle of something, or unasked");
        assert!(!cancelled, "a cancel has hit what the pool itself asked for");
        let trouble = io.rng.percent(3);
        let mut out = Vec::new();
        if is_find {
            self.told = None;
            if !trouble {
                framed(&mut out, backend::DATA_ROW, |out| out.extend_from_slice(b"\0\x01\0\0\0\x047777"));
            }
            message::put_command_complete(&mut out, "SELECT 1");
        } else if trouble && io.rng.percent(50) {
            // The function is gone.
            self.told = None;
            put_error(&mut out, backend::ERROR_RESPONSE, "ERROR", "42883", "there is no such function");
        } else {
            let told = read_call(body);
            self.told = (!trouble).then_some(told);
            framed(&mut out, backend::FUNCTION_CALL_RESPONSE, |out| {
                out.extend_from_slice(&[0, 0, 0, 1, u8::from(!trouble)]);
            });
        }
        out.extend_from_slice(&message::TransactionStatus::Idle.ready_for_query());
        io.write_up(self.pipe, &out);
        true
    }

    fn schedule(&mut self, index: usize, micros: u64, io: &mut SimIo) {
        if !std::mem::replace(&mut self.scheduled, true) {
            io.after(micros, Event::Backend(index, self.generation));
        }
    }

    /// The time that the message at the front takes, in microseconds.
    fn service(&self, io: &mut SimIo) -> u64 {
        let State::Running(session) = &self.state else { return 0 };
        let (tag, total) = (self.input[0], message_length(&self.input).unwrap_or(5));
        if !matches!(tag, b'Q' | b'E' | b'P' | b'B' | b'F') || session.copy.is_some() || session.skipping {
            return 0;
        }
        let text = session.text_of(tag, &self.input[5..total]);
        match sleeps(text) {
            Some(ms) => ms * 1000,
            None if io.rng.percent(40) => io.moment(),
            None => 0,
        }
    }
}

/// The address of a client.
pub(crate) fn place_of(id: usize) -> PeerAddress {
    let [.., high, low] = id.to_be_bytes();
    PeerAddress::Tcp([10, 0, high, low].into(), id as u16)
}

/// The address in a call of the teller.
fn read_call(body: &[u8]) -> PeerAddress {
    let argument = body[14..].strip_suffix(&[0, 1]).expect("the result is to be binary");
    let (secret, address) = argument[1..].split_at(usize::from(argument[0]));
    assert_eq!(secret, SECRET.as_bytes());
    let [4, port @ .., a, b, c, d] = address else { panic!("an address of IPv4, not {address:?}") };
    PeerAddress::Tcp([*a, *b, *c, *d].into(), u16::from_be_bytes(port.try_into().expect("a port has two bytes")))
}

fn message_length(input: &[u8]) -> Option<usize> {
    let header = input.first_chunk::<5>()?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    assert!(length >= 4 && header[0].is_ascii_alphabetic(), "the pool sends nonsense to a server: {header:?}");
    (input.len() > length).then_some(length + 1)
}

/// The client that a text or parameter names: `@12.` is client 12.
fn client_tag(body: &[u8]) -> Option<String> {
    body.split(|&b| b == b'@').skip(1).find_map(|after| {
        let digits: Vec<u8> = after.iter().copied().take_while(u8::is_ascii_digit).collect();
        let marked = !digits.is_empty() && after.get(digits.len()) == Some(&b'.');
        marked.then(|| String::from_utf8(digits).expect("digits"))
    })
}

/// A message for the trace.
pub(crate) fn describe(tag: u8, body: &[u8]) -> String {
    let text: String =
        body.iter().take(90).map(|&b| if b.is_ascii_graphic() || b == b' ' { b as char } else { '.' }).collect();
    format!("{} ({} bytes) {text}", tag as char, body.len())
}
