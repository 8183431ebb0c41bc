//! A client: it logs in, does what its script says, and compares all it gets with a session of its own.

mod comparing;

use std::{collections::VecDeque, time::Duration};

use sluice_control::{access::Method, settings::PinPolicy};
use sluice_core::time::Time;
use sluice_sim::Rng;
use sluice_wire::{
    ErrorFields, md5,
    message::{self, AuthenticationRequest, framed, frontend, put_cstr},
    scram::{ClientBinding, ClientExchange, ClientFinal, ClientSecret},
    startup::{self, ProtocolVersion},
};

use crate::{
    agenda::{Event, PipeId, SimIo},
    plan::{DATABASES, PASSWORD, Plan, USERS},
    postgres::{RELOADED, describe},
    session::{REPORTED, Session},
};

/// A client that has waited this long for an answer is stuck.
const STUCK: Duration = Duration::from_secs(45);

/// The longest time for which a client does not read: longer than connects and cancels may take.
const STALL_MICROS_MAX: u64 = 6_000_000;

/// A message of so many bytes may be sent on before it has come whole.
const WHOLE_BYTES: usize = 1024;

/// A message that was sent.
pub(crate) type Message = (u8, Vec<u8>);

#[derive(Debug)]
enum Phase {
    /// Not connected yet.
    Away,
    /// It has asked for encryption.
    Ssl,
    /// It has sent its StartupMessage.
    Started,
    Challenged(Box<ClientExchange>),
    Proven(Box<ClientFinal>),
    /// AuthenticationOk has come.
    Accepted,
    Ready,
    /// It has said goodbye or nonsense, or was sent away: the end must come.
    Ending,
    Done,
}

/// The way in which a client differs from a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Good,
    WrongPassword,
    UnknownUser,
    /// It sends nonsense in place of a StartupMessage.
    NoPostgres,
    /// It breaks the protocol after some steps.
    Breaks(u64),
}

/// The reason why a session ended before its script did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost(pub String);

pub(crate) struct Client {
    pub(crate) id: usize,
    pub(crate) kind: Kind,
    pub(crate) pipe: PipeId,
    pub(crate) database: &'static str,
    user: &'static str,
    version: ProtocolVersion,
    pub(crate) startup: Vec<(String, String)>,
    phase: Phase,
    pub(crate) reference: Session,
    /// The session before `current`, and what of the answer to `current` has come.
    before: Session,
    current: Option<Message>,
    matched: Vec<Vec<u8>>,
    /// Parameters that it was told of before it expected that.
    early: Vec<Vec<u8>>,
    sent: VecDeque<Message>,
    expected: VecDeque<Vec<u8>>,
    input: Vec<u8>,
    pub(crate) steps_left: u64,
    pub(crate) sequence: u64,
    /// Cancels sent that have not shown.
    pub(crate) cancels: u32,
    /// Whether it has sent a text that the pool does not read, which might have left anything.
    pub(crate) is_unread: bool,
    /// From its first cancel on, it does nothing whose outcome a late cancel would make unclear.
    pub(crate) careful: bool,
    pub(crate) key: Option<(u32, Vec<u8>)>,
    pub(crate) asked_at: Time,
    deadline: Option<Time>,
    pub(crate) lost: Option<Lost>,
    pub(crate) answers: u64,
    /// The number of times that it was told what the sequence gave it, and that it was told that there is nothing.
    pub(crate) sequences_told: u64,
    pub(crate) sequences_lost: u64,
    pub(crate) longest_stall: Duration,
    saw_application_name: bool,
    /// Whether its session held something when it was between transactions last: that it has let go of it since, the pool
    /// hears at its next rest.
    held_at_rest: bool,
}

impl Client {
    pub(crate) fn new(id: usize, kind: Kind, io: &mut SimIo) -> Self {
        let rng = &mut io.rng;
        let mut startup = Vec::new();
        if rng.percent(60) {
            startup.push(("application_name".to_owned(), format!("app{}", rng.below(4))));
        }
        if rng.percent(20) {
            startup.push(("geqo".to_owned(), "off".to_owned()));
        }
        if rng.percent(20) {
            startup.push(("timezone".to_owned(), "Mars".to_owned()));
        }
        if rng.percent(10) {
            startup.push(("statement_timeout".to_owned(), "7s".to_owned()));
        }
        if rng.percent(10) {
            startup.push(("app.tenant".to_owned(), "t1".to_owned()));
        }
        let reference = Session::new(&startup);
        Self {
            id,
            kind,
            pipe: usize::MAX,
            database: rng.pick(&DATABASES),
            user: if kind == Kind::UnknownUser { "mallory" } else { rng.pick(&USERS) },
            version: rng.pick(&[ProtocolVersion::V3_0, ProtocolVersion::V3_2]),
            startup,
            phase: Phase::Away,
            before: reference.clone(),
            reference,
            current: None,
            matched: Vec::new(),
            early: Vec::new(),
            sent: VecDeque::new(),
            expected: VecDeque::new(),
            input: Vec::new(),
            steps_left: io.plan.steps,
            sequence: 0,
            cancels: 0,
            is_unread: false,
            careful: false,
            key: None,
            asked_at: Time(0),
            deadline: None,
            lost: None,
            answers: 0,
            sequences_told: 0,
            sequences_lost: 0,
            longest_stall: Duration::ZERO,
            saw_application_name: false,
            held_at_rest: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether it is connected and wants to stay.
    pub(crate) fn stays(&self) -> bool {
        !matches!(self.phase, Phase::Away | Phase::Ending | Phase::Done)
    }

    /// Says what is wrong, and who found it.
    fn violation(&self, what: &str) -> ! {
        let current = self.current.as_ref().map(|(tag, body)| describe(*tag, body));
        panic!(
            "client {} ({:?}): {what}\n  at work: {current:?}\n  still expected: {:?}\n  still to be answered: {:?}",
            self.id,
            self.phase,
            self.expected.iter().take(4).map(|f| describe(f[0], &f[5..])).collect::<Vec<_>>(),
            self.sent.iter().take(6).map(|(tag, body)| describe(*tag, body)).collect::<Vec<_>>(),
        );
    }

    /// It has connected.
    pub(crate) fn begin(&mut self, pipe: PipeId, io: &mut SimIo) {
        self.pipe = pipe;
        self.ask(io);
        if self.kind == Kind::NoPostgres {
            let mut rng = Rng::new(io.rng.next());
            let mut nonsense: Vec<u8> = (0..rng.range(8, 60)).map(|_| rng.next() as u8).collect();
            nonsense[0] |= 0x80;
            io.write_up(pipe, &nonsense);
            self.phase = Phase::Ending;
            return;
        }
        if io.rng.percent(15) {
            self.phase = Phase::Ssl;
            io.write_up(pipe, &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
        } else {
            self.start(io);
        }
    }

    fn start(&mut self, io: &mut SimIo) {
        self.phase = Phase::Started;
        let mut out = Vec::new();
        let mut parameters = vec![("user", self.user), ("database", self.database)];
        let options: Vec<String> =
            self.startup.iter().filter(|(n, _)| n == "geqo").map(|(n, v)| format!("-c {n}={v}")).collect();
        parameters.extend(options.iter().map(|o| ("options", o.as_str())));
        let others = self.startup.iter().filter(|(n, _)| n != "geqo");
        parameters.extend(others.map(|(n, v)| (n.as_str(), v.as_str())));
        startup::put_session(&mut out, self.version, parameters);
        io.write_up(self.pipe, &out);
    }

    /// From now on, an answer is due.
    fn ask(&mut self, io: &SimIo) {
        self.asked_at = io.now;
        self.deadline = Some(io.now + STUCK);
    }

    pub(crate) fn check_deadline(&self, io: &SimIo) {
        if self.deadline.is_some_and(|d| io.now > d) && !self.is_done() {
            self.violation("is stuck");
        }
    }

    /// Nobody accepts it any more.
    pub(crate) fn turned_away(&mut self) {
        self.lost = Some(Lost("not accepted".to_owned()));
        self.phase = Phase::Done;
    }

    /// It is gone without a word.
    pub(crate) fn vanish(&mut self, io: &mut SimIo) {
        if !self.is_done() && self.pipe != usize::MAX {
            io.trace(|| format!("client {} vanishes", self.id));
            self.phase = Phase::Done;
            let lossy = io.rng.percent(50);
            io.close_up(self.pipe, lossy);
        }
    }

    /// The pool has closed the connection.
    pub(crate) fn ended(&mut self, io: &mut SimIo) {
        io.trace(|| format!("client {} is disconnected", self.id));
        if matches!(self.phase, Phase::Ending) {
            self.phase = Phase::Done;
        } else if matches!(self.phase, Phase::Ready)
            && !self.input.is_empty()
            && (io.plan.loses_servers() || io.plan.stops_after_micros.is_some())
        {
            // Half a message has come: no error can follow that.
            self.lost = Some(Lost("08006".to_owned()));
            self.phase = Phase::Done;
        } else if !self.is_done() {
            self.violation("was disconnected without a reason");
        }
    }

    /// Bytes have come.
    pub(crate) fn received(&mut self, bytes: &[u8], io: &mut SimIo) {
        if self.is_done() {
            return;
        }
        self.input.extend_from_slice(bytes);
        if matches!(self.phase, Phase::Ssl) && !self.input.is_empty() {
            match self.input.remove(0) {
                b'N' => self.start(io),
                b'E' => {
                    self.input.insert(0, b'E');
                    self.phase = Phase::Started;
                }
                _ => self.violation("got a wrong answer to its request for encryption"),
            }
        }
        let mut at = 0;
        while let Some(header) = self.input[at..].first_chunk::<5>() {
            let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
            if !header[0].is_ascii_alphanumeric() || !(4..1 << 24).contains(&length) {
                self.violation(&format!("got what is no message: {header:?}"));
            }
            if self.input.len() - at <= length {
                break;
            }
            let frame = self.input[at..=at + length].to_vec();
            at += length + 1;
            self.frame(&frame, io);
            if self.is_done() {
                return;
            }
        }
        self.input.drain(..at);
    }

    fn frame(&mut self, frame: &[u8], io: &mut SimIo) {
        let (tag, body) = (frame[0], &frame[5..]);
        io.trace(|| format!("client {} gets {}", self.id, describe(tag, body)));
        if tag == b'E' && ErrorFields(body).get(b'V') == Some(b"FATAL") {
            self.sent_away(body, io);
            return;
        }
        let unasked = match tag {
            b'S' => body.starts_with(RELOADED.as_bytes()),
            b'N' => ErrorFields(body).get(b'M').is_some_and(|m| m.starts_with(RELOADED.as_bytes())),
            _ => false,
        };
        if unasked {
            return;
        }
        match self.phase {
            Phase::Ready => {
                self.answer(frame, io);
                if (tag, body) == (b'Z', b"I") {
                    self.held_at_rest = self.has_pins();
                }
            }
            Phase::Ending => {}
            _ => self.login_frame(tag, body, io),
        }
    }

    /// Whether it has a block open in a cluster, has sent nothing that might end it, or a ROLLBACK alone, nor a message
    /// that may have gone in part, and holds nothing that goes with its server: it is to be told that the block was lost,
    /// or has been rolled back, and stays.
    fn outlasts_loss(&self, plan: &Plan) -> bool {
        let is_known = matches!(self.phase, Phase::Ready) && !self.has_pins() && !self.held_at_rest;
        let is_told = plan.in_cluster && plan.is_transaction_mode() && !plan.has_nodes();
        let is_whole = |(_, body): &Message| body.len() < WHOLE_BYTES;
        let are_whole = self.sent.iter().chain(&self.current).all(is_whole);
        let was_open = self.current.is_none() || self.before.keeps_block([]);
        let goes_on = was_open && self.reference.keeps_block(&self.sent);
        is_known && is_told && are_whole && (goes_on || self.rolls_back())
    }

    /// Whether the answer to a ROLLBACK is all that is still to come, or to a COMMIT that comes to that.
    fn rolls_back(&self) -> bool {
        let is_alone = self.sent.is_empty() && self.matched.is_empty() && self.before.is_between_messages();
        let is_it = |(tag, body): &Message| self.before.rolls_back(*tag, body);
        is_alone && self.current.as_ref().is_some_and(is_it)
    }

    /// A FATAL error has come: is there a reason for it?
    fn sent_away(&mut self, body: &[u8], io: &mut SimIo) {
        self.advance();
        let field = |f| String::from_utf8_lossy(ErrorFields(body).get(f).unwrap_or_default()).into_owned();
        let (code, text) = (field(b'C'), field(b'M'));
        let plan = &io.plan;
        let waited = io.now.since(self.asked_at);
        let trouble = plan.connect_trouble || plan.login_trouble;
        let known = match (&self.phase, code.as_str()) {
            (Phase::Ending, _) => true,
            (Phase::Ready, "28P01") => false,
            (_, "28P01") => self.kind == Kind::WrongPassword || self.kind == Kind::UnknownUser,
            (_, "53300") if text.contains("too many clients") => plan.clients as u32 >= plan.client_limit,
            (Phase::Ready, "53300") if text.contains("too many other sessions already have one") => {
                plan.pool.sharing.pins == PinPolicy::Pin && self.has_pins() && plan.is_transaction_mode()
            }
            (Phase::Ready, "0A000") if text.contains("its transaction was led") => plan.is_causal && self.has_pins(),
            (Phase::Ready, "0A000") => {
                plan.pool.sharing.pins == PinPolicy::Refuse && self.has_pins() && plan.is_transaction_mode()
            }
            (_, "53300") => waited >= plan.pool.wait_timeout,
            (_, "57P01" | "57P03") if text.contains("shutting down") => plan.stops_after_micros.is_some(),
            (_, "08006" | "08007" | "57P01") => (trouble || plan.loses_servers()) && !self.outlasts_loss(plan),
            (_, "08001" | "57P03") => trouble || plan.crashes > 0 && waited >= plan.pool.connect_timeout,
            _ => false,
        };
        if !known {
            self.violation(&format!("was sent away without a reason: {code} {text}"));
        }
        if !matches!(self.phase, Phase::Ending) {
            self.lost = Some(Lost(code));
        }
        self.phase = Phase::Ending;
        self.ask(io);
    }

    /// Whether its session holds, or held a moment ago, what can't follow it.
    fn has_pins(&self) -> bool {
        [&self.reference, &self.before].iter().any(|session| session.temp.is_some() || session.cursor.is_some())
            || self.is_unread
    }

    fn login_frame(&mut self, tag: u8, body: &[u8], io: &mut SimIo) {
        match tag {
            b'R' => {
                let request = AuthenticationRequest::read(body).expect("the pool's messages are whole");
                self.authenticate(request, io);
            }
            b'S' if matches!(self.phase, Phase::Accepted) => {
                let (name, value) = message::read_parameter_status(body).expect("the pool's messages are whole");
                if name == "application_name" {
                    self.saw_application_name = true;
                }
                let name = name.to_ascii_lowercase();
                let is_known = REPORTED.iter().any(|(known, _, _)| *known == name);
                if is_known && self.reference.value(&name) != value {
                    self.violation(&format!("is told {name} = {value} at login"));
                }
            }
            b'K' if matches!(self.phase, Phase::Accepted) => {
                let (pid, key) = body.split_first_chunk::<4>().expect("the pool's messages are whole");
                self.key = Some((u32::from_be_bytes(*pid), key.to_vec()));
            }
            b'Z' if matches!(self.phase, Phase::Accepted) && body == b"I" => {
                if self.key.is_none() || !self.saw_application_name || self.kind == Kind::WrongPassword {
                    self.violation("was let in too easily");
                }
                self.phase = Phase::Ready;
                self.idle(io);
            }
            _ => self.violation(&format!("got {} at login", describe(tag, body))),
        }
    }

    fn authenticate(&mut self, request: AuthenticationRequest<'_>, io: &mut SimIo) {
        let password = if self.kind == Kind::WrongPassword { "falsch" } else { PASSWORD };
        let mut out = Vec::new();
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Done), request) {
            (Phase::Started, AuthenticationRequest::Md5Password(salt)) => {
                let answer = md5::answer(&md5::hash_password(self.user, password), salt);
                framed(&mut out, frontend::PASSWORD, |out| put_cstr(out, answer.as_bytes()));
                Phase::Started
            }
            (Phase::Started, AuthenticationRequest::Sasl(_)) => {
                let random = [io.rng.next() as u8; 18];
                let (exchange, first) =
                    ClientExchange::begin(ClientSecret::Password(password.into()), ClientBinding::None, random);
                message::put_sasl_initial(&mut out, "SCRAM-SHA-256", first.as_bytes());
                Phase::Challenged(Box::new(exchange))
            }
            (Phase::Challenged(exchange), AuthenticationRequest::SaslContinue(challenge)) => {
                let (last, proof) = exchange.answer(challenge).expect("a challenge");
                framed(&mut out, frontend::PASSWORD, |out| out.extend_from_slice(proof.as_bytes()));
                Phase::Proven(Box::new(last))
            }
            (Phase::Proven(last), AuthenticationRequest::SaslFinal(signature)) => {
                last.verify(signature).expect("the pool knows the secret");
                Phase::Proven(last)
            }
            (Phase::Proven(_), AuthenticationRequest::Ok) => Phase::Accepted,
            (Phase::Started, AuthenticationRequest::Ok) if io.plan.method != Method::ScramSha256 => Phase::Accepted,
            (_, request) => self.violation(&format!("got {request:?} at login")),
        };
        if !out.is_empty() {
            io.write_up(self.pipe, &out);
        }
    }

    /// All is answered: think, then go on.
    fn idle(&mut self, io: &mut SimIo) {
        self.deadline = None;
        let think = match io.rng.below(10) {
            0..6 => 0,
            6..9 => io.rng.below(2_000),
            _ => io.rng.below(200_000),
        };
        io.after(think, Event::Client(self.id));
    }

    /// Goes on with its script.
    pub(crate) fn go_on(&mut self, io: &mut SimIo) {
        if !self.is_ready() || !self.expected.is_empty() || !self.sent.is_empty() || self.deadline.is_some() {
            return;
        }
        let breaks = matches!(self.kind, Kind::Breaks(after) if self.steps_left <= after);
        let may_go_on = breaks && self.reference.copy.is_none() && io.rng.percent(20);
        if may_go_on {
            self.kind = Kind::Good;
        } else if breaks {
            let nonsense = self.nonsense(io);
            io.trace(|| format!("client {} breaks the protocol", self.id));
            io.write_up(self.pipe, &nonsense);
            self.phase = Phase::Ending;
            self.ask(io);
            return;
        }
        if self.steps_left == 0 && self.reference.copy.is_none() {
            io.trace(|| format!("client {} says goodbye", self.id));
            io.write_up(self.pipe, &message::TERMINATE);
            self.phase = Phase::Ending;
            self.ask(io);
            return;
        }
        self.steps_left = self.steps_left.saturating_sub(1);
        let cancels = io.rng.percent(io.plan.cancel_percent);
        self.careful |= cancels;
        let messages = if may_go_on {
            // Messages that make no sense, and are no reason to part.
            vec![(frontend::DESCRIBE, b"Q".to_vec()), (frontend::SYNC, Vec::new())]
        } else {
            self.next_step(io)
        };
        let mut out = Vec::new();
        for (tag, body) in &messages {
            io.trace(|| format!("client {} sends {}", self.id, describe(*tag, body)));
            framed(&mut out, *tag, |out| out.extend_from_slice(body));
        }
        self.ask(io);
        if io.rng.percent(io.plan.stall_percent) {
            let most = if io.rng.percent(10) { STALL_MICROS_MAX } else { 300_000 };
            let stall = Duration::from_micros(io.rng.below(most));
            self.longest_stall = self.longest_stall.max(stall);
            io.stall(self.pipe, io.now + stall);
        }
        if cancels {
            let delay = io.rng.below(8) * io.rng.below(1_000);
            io.after(delay, Event::ClientCancels(self.id));
        }
        if io.rng.percent(io.plan.vanish_percent) {
            let part = io.rng.index(out.len() + 1);
            io.write_up(self.pipe, &out[..part]);
            let delay = io.rng.below(3_000);
            io.after(delay, Event::ClientVanishes(self.id));
            self.phase = Phase::Ending;
            return;
        }
        io.write_up(self.pipe, &out);
        self.sent.extend(messages);
        self.advance();
        if self.expected.is_empty() && self.sent.is_empty() {
            self.idle(io);
        }
    }
}
