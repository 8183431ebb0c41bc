//! A plan: a list of events in the order in which they happen, each at one client.

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

impl Event {
    /// The number of messages that are sent.
    pub(crate) fn messages(&self) -> usize {
        let What::Say(step) = &self.what else { return 0 };
        wire::messages(&step.bytes).len()
    }

    /// The number of statements that are sent, a Query with several of them counted once.
    pub(crate) fn statements(&self) -> usize {
        let What::Say(step) = &self.what else { return 0 };
        let sends = [frontend::QUERY, frontend::EXECUTE, frontend::FUNCTION_CALL];
        wire::messages(&step.bytes).iter().filter(|(tag, _)| sends.contains(tag)).count()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// It connects, with these startup parameters besides user and database.
    Open(Vec<(String, String)>),
    /// It says something and waits for the answer.
    Say(Step),
    /// It is cancelled while nothing of it runs.
    Cancel(Key),
    /// Somebody ends its server, if it is in a transaction.
    EndServer,
    /// Somebody ends all servers of the pool that are idle.
    EndIdle,
    /// It goes away.
    Leave,
}

/// The key of a CancelRequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Own,
    Wrong,
}

/// A disturbance while a client waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    /// It does not wait: others go on, and the answer comes with that to its next step.
    Others,
    /// Its statement is cancelled once it is asleep, or has waited for a server.
    Cancel,
    /// All other clients are cancelled once it is asleep, and it itself by a wrong key.
    CancelOthers,
    /// Its COPY is cancelled when the server has asked for the data, which come then.
    CancelCopy,
    /// Its server is ended once it is asleep.
    End,
}

/// The messages that a client sends before it waits.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Whole messages.
    pub(crate) bytes: Vec<u8>,
    /// Places in them at which a packet ends.
    pub(crate) cuts: Vec<usize>,
    /// The category of acts that made it.
    pub(crate) category: &'static str,
    /// Whether state may stay behind in the session for which a pool may have to keep its server for the client.
    pub(crate) pins: bool,
    /// Whether nothing but the session's end takes that state away.
    pub(crate) spends: bool,
    /// Whether that state is gone afterwards, if it is done outside of a transaction and without an error.
    pub(crate) unpins: bool,
    pub(crate) meanwhile: Meanwhile,
}

/// The messages that must have come before the answer is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So many ReadyForQuery.
    Ready(usize),
    /// Without a Sync behind: so many closing answers, one for each message, or an error.
    Replies(usize),
    /// The answer to [`wire::ended`].
    Mark,
    /// The end of the connection, which the last message asks for.
    Closing,
    /// None.
    Nothing,
}

impl Step {
    pub(crate) fn wait(&self) -> Wait {
        if self.meanwhile == Meanwhile::Others {
            return Wait::Nothing;
        }
        let messages = wire::messages(&self.bytes);
        if wire::before_end(&messages).is_some() {
            return Wait::Mark;
        }
        if messages.last().is_some_and(|(tag, _)| *tag == frontend::TERMINATE) {
            return Wait::Closing;
        }
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

    /// Its messages in two parts: the second is sent once the server has asked for the data of a COPY.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        if self.meanwhile != Meanwhile::CancelCopy {
            return (&self.bytes, &[]);
        }
        let before = wire::messages(&self.bytes).into_iter().take_while(|(tag, _)| *tag != frontend::COPY_DATA);
        self.bytes.split_at(before.map(|(_, body)| body.len() + 5).sum())
    }

    /// Whether it has anything executed.
    pub(crate) fn runs(&self) -> bool {
        wire::messages(&self.bytes).iter().any(|(tag, _)| [frontend::QUERY, frontend::EXECUTE].contains(tag))
    }

    /// Whether a Query of it has bytes that are not ASCII.
    pub(crate) fn has_query_beyond_ascii(&self) -> bool {
        wire::messages(&self.bytes).iter().any(|(tag, body)| *tag == frontend::QUERY && !body.is_ascii())
    }

    /// Whether it may come where others have all servers: it waits in the pool until it is cancelled, and PostgreSQL
    /// would not have said anything of it by then either.
    pub(crate) fn may_wait(&self) -> bool {
        let is_silent =
            |sql: &[u8]| [&b"INSERT"[..], b"CREATE"].iter().any(|begin| sql.starts_with(begin)) && !sql.contains(&b';');
        self.meanwhile == Meanwhile::Cancel
            && wire::messages(&self.bytes).iter().all(|(tag, sql)| *tag == frontend::QUERY && is_silent(sql))
    }

    /// Whether its last message leaves the exchange open: more belongs to it.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.wait(), Wait::Replies(_) | Wait::Nothing)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Open(parameters) => write!(f, "client {} connects {parameters:?}", self.client),
            What::Leave => write!(f, "client {} leaves", self.client),
            What::Cancel(key) => write!(f, "client {} is cancelled by its {key:?} key", self.client),
            What::EndServer => write!(f, "client {}'s server is ended", self.client),
            What::EndIdle => write!(f, "idle servers are ended"),
            What::Say(step) => {
                let messages = wire::messages(&step.bytes);
                let shown: Vec<_> = messages.iter().map(|(tag, body)| wire::show(*tag, body)).collect();
                let shown = match wire::before_end(&messages) {
                    Some(end) => format!("{} | the end {}", shown[..end].join(" | "), shown[end + 1]),
                    None => shown.join(" | "),
                };
                write!(f, "client {} [{}]: {shown}", self.client, step.category)?;
                if !step.cuts.is_empty() {
                    write!(f, " -- in packets up to {:?}", step.cuts)?;
                }
                match step.meanwhile {
                    Meanwhile::Nothing => Ok(()),
                    meanwhile => write!(f, " -- meanwhile {meanwhile:?}"),
                }
            }
        }
    }
}
