//! A plan carried out on one side: at the pool, or on connections of the clients' own.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Message, Random, Raw};
use sluice_wire::{message::backend, startup::ProtocolVersion};

use crate::{
    disturb::Others,
    plan::{Event, Key, Meanwhile, Step, Wait, What},
    wire,
};

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With all that was waited for.
    Whole,
    /// The connection was closed.
    Closed,
    /// Nothing came for as long as the run has patience.
    Stuck,
}

/// The answer to one event.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) messages: Vec<Message>,
    pub(crate) end: End,
}

impl Answer {
    fn nothing() -> Self {
        Self { messages: Vec::new(), end: End::Whole }
    }

    fn has(&self, tag: u8) -> bool {
        self.messages.iter().any(|message| message.tag == tag)
    }
}

#[derive(Default)]
struct Client {
    raw: Option<Raw>,
    /// Its process number and key, also when it has gone.
    key: Option<(u32, Vec<u8>)>,
    /// An error came in an exchange without a Sync: the server answers nothing more before there is one.
    skipped: bool,
}

/// All clients of one side.
pub(crate) struct Side<'a> {
    others: Others<'a>,
    clients: Vec<Client>,
    patience: Duration,
}

impl<'a> Side<'a> {
    pub(crate) fn new(others: Others<'a>, clients: usize, patience: Duration) -> Self {
        Self { others, clients: (0..clients).map(|_| Client::default()).collect(), patience }
    }

    /// Has an event happen.
    pub(crate) fn perform(&mut self, event: &Event) -> Answer {
        let Self { others, clients, patience } = self;
        let keys: Vec<_> = clients.iter().map(|client| client.key.clone()).collect();
        let client = &mut clients[event.client];
        match &event.what {
            What::Open(parameters) => {
                if client.key.is_some() {
                    // The end of its session before is to be over: what that had locked is free.
                    thread::sleep(ENDING);
                }
                let mut raw = others.connect();
                let usual = [("user", "app"), ("database", others.database)];
                let more = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let messages =
                    raw.login_with(ProtocolVersion::V3_0, &usual.into_iter().chain(more).collect::<Vec<_>>());
                let is_in = messages.last().is_some_and(|message| message.tag == backend::READY_FOR_QUERY);
                let key = is_in.then(|| raw.key.clone());
                *client = Client { raw: is_in.then_some(raw), key, skipped: false };
                Answer { messages, end: if is_in { End::Whole } else { End::Closed } }
            }
            What::Say(step) => client.say(step, others, &keys, event.client, *patience),
            What::Cancel(key) => {
                others.cancel(client.key.as_ref(), *key);
                Answer::nothing()
            }
            What::EndServer => client.server_ended(others, *patience),
            What::EndIdle => {
                others.end_idle();
                Answer::nothing()
            }
            What::Leave => {
                if let Some(mut raw) = client.raw.take() {
                    let _gone = raw.try_send(&sluice_testkit::Script::new().terminate().0);
                }
                Answer::nothing()
            }
        }
    }
}

impl Client {
    fn say(
        &mut self,
        step: &Step,
        others: &mut Others<'_>,
        keys: &[Option<(u32, Vec<u8>)>],
        own: usize,
        patience: Duration,
    ) -> Answer {
        let Some(raw) = &mut self.raw else { return Answer::nothing() };
        let (first, rest) = step.parts();
        if send(raw, first, &step.cuts).is_err() {
            self.raw = None;
            return Answer { messages: Vec::new(), end: End::Closed };
        }
        if self.skipped && step.is_open() {
            return Answer::nothing();
        }
        let mut reception = Reception::new(step.wait());
        match step.meanwhile {
            Meanwhile::Nothing | Meanwhile::Others => (),
            Meanwhile::Cancel => {
                while reception.goes_on(raw, PAUSE) && !others.is_asleep() && reception.time() < WAITED {}
                // It may have come too early.
                while reception.goes_on(raw, PAUSE) && reception.time() < patience {
                    others.cancel(keys[own].as_ref(), Key::Own);
                    reception.goes_on(raw, WAITED);
                }
            }
            Meanwhile::CancelOthers => {
                while reception.goes_on(raw, PAUSE) && !others.is_asleep() && reception.time() < WAITED {}
                for (client, key) in keys.iter().enumerate() {
                    others.cancel(key.as_ref(), if client == own { Key::Wrong } else { Key::Own });
                }
            }
            Meanwhile::CancelCopy => {
                let is_told = |reception: &Reception| {
                    reception.has(backend::COPY_IN_RESPONSE) || reception.has(backend::ERROR_RESPONSE)
                };
                while reception.goes_on(raw, PAUSE) && !is_told(&reception) && reception.time() < patience {}
                // A cancel that came before the server reads on would end the COPY a line earlier.
                while reception.goes_on(raw, PAUSE) && !others.is_waiting() && reception.time() < patience {}
                others.cancel(keys[own].as_ref(), Key::Own);
                let _closed = raw.try_send(rest);
            }
            Meanwhile::End => {
                while reception.goes_on(raw, PAUSE) && !others.is_asleep() && reception.time() < WAITED {}
                others.end_sleeper();
            }
        }
        reception.goes_on(raw, patience);
        let answer = reception.answer();
        self.skipped = step.is_open() && answer.has(backend::ERROR_RESPONSE);
        if answer.end != End::Whole {
            self.raw = None;
        }
        answer
    }

    /// Its server is ended, if it is in a transaction that has not failed.
    fn server_ended(&mut self, others: &mut Others<'_>, patience: Duration) -> Answer {
        let Some(raw) = &mut self.raw else { return Answer::nothing() };
        let ask = sluice_testkit::Script::new().query("SELECT pg_backend_pid()");
        if self.skipped || raw.try_send(&ask.0).is_err() {
            return Answer::nothing();
        }
        let mut asked = Reception::new(Wait::Ready(1));
        asked.goes_on(raw, patience);
        let asked = asked.answer();
        let row = asked.messages.iter().find(|message| message.tag == backend::DATA_ROW);
        let is_inside = asked.messages.last().is_some_and(|last| last.body == b"T");
        let (Some(row), true) = (row, is_inside) else { return Answer::nothing() };
        let process = row.values()[0].clone().unwrap_or_default();
        others.end(&String::from_utf8_lossy(&process));
        let mut reception = Reception::new(Wait::Ready(1));
        reception.goes_on(raw, patience);
        self.raw = None;
        reception.answer()
    }
}

/// Sends bytes as packets that end at these places; what comes behind the first may find the connection closed.
fn send(raw: &mut Raw, bytes: &[u8], cuts: &[usize]) -> std::io::Result<()> {
    let ends = cuts.iter().copied().filter(|cut| *cut < bytes.len()).chain([bytes.len()]);
    let mut begin = 0;
    for end in ends {
        let sent = raw.try_send(&bytes[begin..end]);
        if begin == 0 {
            sent?;
        }
        if end < bytes.len() {
            std::thread::sleep(BETWEEN_PACKETS);
        }
        begin = end;
    }
    Ok(())
}

/// Between two packets of a step: the first has been read by then, as a rule.
const BETWEEN_PACKETS: Duration = Duration::from_millis(1);

/// Time in which a session that its client has left comes to its end.
const ENDING: Duration = Duration::from_millis(40);

/// Between two looks at what happens.
const PAUSE: Duration = Duration::from_millis(3);

/// A statement that is not asleep by then waits for a server.
const WAITED: Duration = Duration::from_millis(400);

/// An answer that is coming.
struct Reception {
    wait: Wait,
    begin: Instant,
    messages: Vec<Message>,
    closing: usize,
    end: Option<End>,
}

impl Reception {
    fn new(wait: Wait) -> Self {
        Self { wait, begin: Instant::now(), messages: Vec::new(), closing: 0, end: None }
    }

    fn time(&self) -> Duration {
        self.begin.elapsed()
    }

    fn has(&self, tag: u8) -> bool {
        self.messages.iter().any(|message| message.tag == tag)
    }

    /// Takes what comes within a time; whether more is to come.
    fn goes_on(&mut self, raw: &mut Raw, time: Duration) -> bool {
        let begin = Instant::now();
        while self.end.is_none() {
            let done = match self.wait {
                Wait::Ready(wanted) | Wait::Replies(wanted) => self.closing >= wanted,
                Wait::Mark => self.closing > wire::MARKS,
                Wait::Closing => false,
                Wait::Nothing => true,
            };
            if done {
                self.end = Some(End::Whole);
                break;
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() || raw.is_silent(left) {
                return true;
            }
            let Some(message) = raw.message() else {
                self.end = Some(End::Closed);
                break;
            };
            self.closing = match (self.wait, message.tag) {
                (Wait::Ready(_), tag) => self.closing + usize::from(tag == backend::READY_FOR_QUERY),
                (Wait::Replies(all), backend::ERROR_RESPONSE) => all,
                (Wait::Replies(_), tag) => self.closing + usize::from(CLOSING.contains(&tag)),
                (Wait::Mark, backend::CLOSE_COMPLETE) => self.closing + 1,
                (Wait::Mark, backend::READY_FOR_QUERY) if self.closing >= wire::MARKS => wire::MARKS + 1,
                (Wait::Mark | Wait::Closing | Wait::Nothing, _) => 0,
            };
            self.messages.push(message);
        }
        false
    }

    fn answer(self) -> Answer {
        Answer { messages: self.messages, end: self.end.unwrap_or(End::Stuck) }
    }
}

/// The messages of which each message of the extended protocol is answered with exactly one, if all goes well.
const CLOSING: [u8; 9] = [
    backend::PARSE_COMPLETE,
    backend::BIND_COMPLETE,
    backend::CLOSE_COMPLETE,
    backend::ROW_DESCRIPTION,
    backend::NO_DATA,
    backend::COMMAND_COMPLETE,
    backend::EMPTY_QUERY_RESPONSE,
    backend::PORTAL_SUSPENDED,
    backend::COPY_IN_RESPONSE,
];

/// The clients that need a server of their own, as far as can be told from outside: the plan must never need more
/// servers than there are.
pub(crate) struct Holders {
    servers: usize,
    clients: Vec<Holder>,
}

#[derive(Clone, Default)]
struct Holder {
    in_transaction: bool,
    in_exchange: bool,
    pinned: bool,
    spent: bool,
    gone: bool,
}

impl Holder {
    fn holds(&self) -> bool {
        self.in_transaction || self.in_exchange || self.pinned || self.spent
    }
}

impl Holders {
    pub(crate) fn new(servers: usize, clients: usize) -> Self {
        Self { servers, clients: vec![Holder::default(); clients] }
    }

    /// Whether this may happen now.
    fn may(&self, event: &Event) -> bool {
        let others = self.clients.iter().enumerate().filter(|(client, _)| *client != event.client);
        let (mut holding, mut pinned) = (0, 0);
        others.for_each(|(_, other)| {
            holding += usize::from(other.holds());
            pinned += usize::from(other.pinned || other.spent);
        });
        let own = &self.clients[event.client];
        let (pins, waits) = match &event.what {
            What::Say(step) => (step.pins, step.may_wait()),
            // A server that is idle may be one that a client keeps.
            What::EndIdle => {
                return !self.clients.iter().any(|client| client.pinned || client.spent || client.in_exchange);
            }
            _ => (false, false),
        };
        own.holds() || waits || (holding < self.servers && !(pins && pinned + 1 >= self.servers))
    }

    /// Keeps up with what has happened, by the answer that a client got alone.
    fn note(&mut self, event: &Event, answer: &Answer) {
        let own = &mut self.clients[event.client];
        if matches!(event.what, What::Open(_)) {
            *own = Holder::default();
        }
        if answer.end != End::Whole || matches!(event.what, What::Leave) {
            *own = Holder { gone: true, ..Holder::default() };
            return;
        }
        let What::Say(step) = &event.what else { return };
        own.in_exchange = step.is_open();
        if let Some(ready) = answer.messages.iter().rfind(|message| message.tag == backend::READY_FOR_QUERY) {
            own.in_transaction = ready.body != b"I";
        }
        own.pinned |= step.pins;
        own.spent |= step.spends;
        if step.unpins && !own.in_transaction && !answer.has(backend::ERROR_RESPONSE) {
            own.pinned = false;
        }
    }
}

/// Carries out what each client does, in an order made up on the way: the events in that order, and their answers.
pub(crate) fn arrange(
    mut tracks: Vec<VecDeque<Event>>,
    side: &mut Side<'_>,
    mut holders: Holders,
    random: &mut Random,
) -> Vec<(Event, Answer)> {
    let mut done = Vec::new();
    loop {
        let ready: Vec<_> = (0..tracks.len())
            .filter(|client| tracks[*client].front().is_some_and(|event| holders.may(event)))
            .collect();
        if let Some(client) = stuck_behind_pins(&tracks, &ready) {
            tracks[client].pop_front();
            continue;
        }
        if ready.is_empty() {
            assert!(tracks.iter().all(VecDeque::is_empty), "those who hold servers can always go on");
            return done;
        }
        let client = *random.of(&ready);
        let event = tracks[client].pop_front().expect("it is not empty");
        let answer = side.perform(&event);
        holders.note(&event, &answer);
        if holders.clients[client].gone {
            // It may come again.
            let track = &mut tracks[client];
            let next = track.iter().position(|event| matches!(event.what, What::Open(_)));
            track.drain(..next.unwrap_or(track.len()));
        }
        done.push((event, answer));
    }
}

/// A client whose next event is to end idle servers, where nobody else can go on: that is left out.
fn stuck_behind_pins(tracks: &[VecDeque<Event>], ready: &[usize]) -> Option<usize> {
    let ends = |track: &VecDeque<Event>| track.front().is_some_and(|event| matches!(event.what, What::EndIdle));
    ready.is_empty().then(|| tracks.iter().position(ends)).flatten()
}

/// Carries out a plan as it is; `None` if the clients would need more servers than there are, or if it gets stuck.
pub(crate) fn repeat(events: &[Event], side: &mut Side<'_>, mut holders: Holders) -> Option<Vec<Answer>> {
    let mut answers = Vec::new();
    for event in events {
        if !holders.may(event) {
            return None;
        }
        let answer = side.perform(event);
        if answer.end == End::Stuck {
            return None;
        }
        holders.note(event, &answer);
        answers.push(answer);
    }
    Some(answers)
}
