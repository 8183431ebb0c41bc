//! What is done: a list of events in the order in which they happen, each at one client.

use std::fmt;

use sluice_wire::message::frontend;

use crate::wire;

/// One thing that happens at one client.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The client's number.
    pub(crate) client: usize,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// It connects, with these startup parameters besides user and database.
    Open(Vec<(String, String)>),
    /// It says something and waits for the answer.
    Say(Step),
    /// It goes away.
    Leave,
}

/// What a client says before it waits.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Whole messages.
    pub(crate) bytes: Vec<u8>,
    /// Which part of the generator made it.
    pub(crate) category: &'static str,
    /// Whether state may stay behind in the session for which a pool may have to keep its server for the client.
    pub(crate) pins: bool,
    /// Whether nothing but the session's end takes that state away.
    pub(crate) spends: bool,
    /// Whether that state is gone afterwards, if it is done outside of a transaction and without an error.
    pub(crate) unpins: bool,
}

/// What must have come before the answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So many ReadyForQuery.
    Ready(usize),
    /// Without a Sync behind: so many closing answers, one for each message, or an error.
    Replies(usize),
}

impl Step {
    pub(crate) fn wait(&self) -> Wait {
        let messages = wire::messages(&self.bytes);
        let count = |tags: &[u8]| messages.iter().filter(|(tag, _)| tags.contains(tag)).count();
        match count(&[frontend::SYNC, frontend::QUERY, frontend::FUNCTION_CALL]) {
            0 => Wait::Replies(count(&[
                frontend::PARSE,
                frontend::BIND,
                frontend::DESCRIBE,
                frontend::EXECUTE,
                frontend::CLOSE,
            ])),
            ready => Wait::Ready(ready),
        }
    }

    /// Whether its last message leaves the exchange open: more belongs to it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.wait(), Wait::Replies(_))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Open(parameters) => write!(f, "client {} connects {parameters:?}", self.client),
            What::Leave => write!(f, "client {} leaves", self.client),
            What::Say(step) => {
                let messages = wire::messages(&step.bytes);
                let shown: Vec<_> = messages.iter().map(|(tag, body)| wire::show(*tag, body)).collect();
                write!(f, "client {} [{}]: {}", self.client, step.category, shown.join(" | "))
            }
        }
    }
}
