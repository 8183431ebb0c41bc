//! A plan carried out on one side: at the pool, or on connections of the clients' own.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sluice_testkit::{Message, Raw};
use sluice_wire::{message::backend, startup::ProtocolVersion};

use crate::{
    plan::{Event, Step, Wait, What},
    random::Random,
};

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With all that was waited for.
    Whole,
    /// The connection was closed.
    Closed,
    /// Nothing came for as long as the run has patience.
    Stuck,
}

/// What came back for one event.
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
    /// An error came in an exchange without a Sync: the server answers nothing more before there is one.
    skipped: bool,
}

/// All clients of one side.
pub(crate) struct Side<'a> {
    connect: &'a dyn Fn() -> Raw,
    database: &'a str,
    clients: Vec<Client>,
    patience: Duration,
}

impl<'a> Side<'a> {
    pub(crate) fn new(connect: &'a dyn Fn() -> Raw, database: &'a str, clients: usize, patience: Duration) -> Self {
        Self { connect, database, clients: (0..clients).map(|_| Client::default()).collect(), patience }
    }

    /// Has an event happen.
    pub(crate) fn perform(&mut self, event: &Event) -> Answer {
        let client = &mut self.clients[event.client];
        match &event.what {
            What::Open(parameters) => {
                let mut raw = (self.connect)();
                let usual = [("user", "app"), ("database", self.database)];
                let more = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let messages =
                    raw.login_with(ProtocolVersion::V3_0, &usual.into_iter().chain(more).collect::<Vec<_>>());
                let is_in = messages.last().is_some_and(|message| message.tag == backend::READY_FOR_QUERY);
                *client = Client { raw: is_in.then_some(raw), skipped: false };
                Answer { messages, end: if is_in { End::Whole } else { End::Closed } }
            }
            What::Say(step) => client.say(step, self.patience),
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
    fn say(&mut self, step: &Step, patience: Duration) -> Answer {
        let Some(raw) = &mut self.raw else { return Answer::nothing() };
        if raw.try_send(&step.bytes).is_err() {
            self.raw = None;
            return Answer { messages: Vec::new(), end: End::Closed };
        }
        let wait = step.wait();
        if self.skipped && step.is_open() {
            return Answer::nothing();
        }
        let answer = receive(raw, wait, patience);
        self.skipped = step.is_open() && answer.has(backend::ERROR_RESPONSE);
        if answer.end != End::Whole {
            self.raw = None;
        }
        answer
    }
}

fn receive(raw: &mut Raw, wait: Wait, patience: Duration) -> Answer {
    let begin = Instant::now();
    let mut messages = Vec::new();
    let mut closing = 0;
    loop {
        let done = match wait {
            Wait::Ready(wanted) | Wait::Replies(wanted) => closing >= wanted,
        };
        if done {
            return Answer { messages, end: End::Whole };
        }
        let left = patience.saturating_sub(begin.elapsed());
        if left.is_zero() || raw.is_silent(left) {
            return Answer { messages, end: End::Stuck };
        }
        let Some(message) = raw.message() else { return Answer { messages, end: End::Closed } };
        closing += match (wait, message.tag) {
            (Wait::Ready(_), tag) => usize::from(tag == backend::READY_FOR_QUERY),
            (Wait::Replies(all), backend::ERROR_RESPONSE) => all,
            (Wait::Replies(_), tag) => usize::from(CLOSING.contains(&tag)),
        };
        messages.push(message);
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

/// Who needs a server of its own, as far as can be told from outside: the plan must never need more than there are.
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
        let pins = matches!(&event.what, What::Say(step) if step.pins);
        own.holds() || (holding < self.servers && !(pins && pinned + 1 >= self.servers))
    }

    /// Keeps up with what has happened, by the answer that a client got alone.
    fn note(&mut self, event: &Event, answer: &Answer) {
        let own = &mut self.clients[event.client];
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
        if ready.is_empty() {
            assert!(tracks.iter().all(VecDeque::is_empty), "those who hold servers can always go on");
            return done;
        }
        let client = *random.of(&ready);
        let event = tracks[client].pop_front().expect("it is not empty");
        let answer = side.perform(&event);
        holders.note(&event, &answer);
        if holders.clients[client].gone {
            tracks[client].clear();
        }
        done.push((event, answer));
    }
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
