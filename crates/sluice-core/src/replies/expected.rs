//! An answer that a server still owes, with all that its coming or failing means.

use std::sync::Arc;

use sluice_wire::ErrorResponse;

use crate::{
    amended::Amended,
    sql::{Begin, Reset},
    statement::{NameTag, OnServer, Prepared, Statement, StatementId, Unnamed},
};

/// An answer that is still to come. Small, since each is moved into a queue and out of it: what is large and rare stands
/// elsewhere.
#[derive(Debug)]
pub enum Expected {
    /// To a Query or FunctionCall: anything, then ReadyForQuery.
    Query {
        /// Whether it takes all names away: what they mean behind it is open until it is answered.
        clears: bool,
        /// The settings that it resets.
        resets: Option<Box<Reset>>,
        /// The commands that were added to its text.
        amended: Option<Box<Amended>>,
        /// Whether it stands amid a batch that has run something outside of a block: from PostgreSQL 18 on, the batch's
        /// transaction goes on behind it.
        is_amid: bool,
    },
    /// To a Sync: ReadyForQuery. With the settings that its batch resets.
    Sync(Option<Box<Reset>>),
    /// To a Sync of Sluice's own, in place of a client's Flush or in the midst of a batch: the client never sees the
    /// answer. With the settings that what it ends resets.
    OwnSync(Option<Box<Reset>>),
    /// To a Parse.
    Parse(Box<ParseSent>),
    /// To a Bind, of a shared statement or of one the server alone knows.
    Bind(Option<Called>, Portal),
    /// To a Bind of a stand-in for the statement that the client knows by that name.
    BindStandIn(Box<[u8]>),
    /// To a Describe of a statement or portal; with the name by which its shape is to be noted.
    Describe(Option<Called>, Option<DescribedAs>),
    /// To a Describe of Sluice's own, of a shared statement: the client never sees the answer.
    Learn(Arc<Statement>, LearnFor),
    /// To a message that makes no sense, or speaks of a statement that is not there: an error.
    Fault,
    /// To an Execute.
    Execute {
        /// The portal.
        portal: Portal,
        /// The rows that it gives at most; 0: all.
        rows_max: u32,
    },
    /// To a client's Close; of a statement whose name is lent, if one stands here.
    Close(Option<Box<[u8]>>),
    /// To a Close of a shared statement that had to make room: the client never sees the answer.
    Evict(OnServer),
    /// To a Close of Sluice's own, of an unnamed portal or statement: the client never sees the answer.
    OwnClose,
    /// To a Parse, Bind or Execute of Sluice's own, which switches settings within a batch: the client sees nothing of
    /// it.
    Switch,
    /// Nothing comes from the server: when its turn comes, the client gets this.
    Local(Box<Local>),
    /// Nothing comes: here the client ended so many COPYs, which the server may not have begun.
    CopyEnd(u32),
    /// An error that Sluice provoked, to be replaced by this one.
    Refused(Box<ErrorResponse>),
    /// To a Query of Sluice's own: the client sees nothing of it.
    Own(Own),
    /// To a Parse, Bind or Execute of a BEGIN that the client was told of before; it sees nothing of it.
    Begin(Begin),
    /// An error that Sluice provoked, and that the client was told of before.
    Failure,
}

/// A shared statement, and which of its client's names for it is meant.
#[derive(Debug)]
pub struct Called {
    /// The statement.
    pub statement: Arc<Statement>,
    /// The name, in short.
    pub by: NameTag,
}

impl Called {
    /// Whether it is that one, by that name.
    pub fn is(&self, id: StatementId, by: NameTag) -> bool {
        self.statement.id == id && self.by == by
    }
}

/// A portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portal {
    /// The unnamed one.
    Unnamed,
    /// Another one.
    Named,
}

impl Portal {
    /// The one of that name.
    pub fn of(name: &[u8]) -> Self {
        if name.is_empty() { Self::Unnamed } else { Self::Named }
    }
}

/// The client's message for which a statement is described.
#[derive(Debug)]
pub enum LearnFor {
    /// Its Parse by that name, which has been sent.
    Parse(DescribedAs),
    /// A Describe, which waits for the answer.
    Describe,
    /// Another one that waits for it.
    Use,
}

/// The client's name of a statement that is described, empty for the unnamed one.
#[derive(Debug)]
pub struct DescribedAs(pub Box<[u8]>);

impl DescribedAs {
    /// The name, in short.
    pub fn by(&self) -> NameTag {
        NameTag::of(&self.0)
    }
}

/// A Parse on its way.
#[derive(Debug)]
pub struct ParseSent {
    /// The statement; `None` where statements are not followed.
    pub statement: Option<Arc<Statement>>,
    /// The name that it is sent by.
    pub by: By,
    /// The client's message for which it is sent.
    pub sent_for: SentFor,
    /// The name that the client has by it, unless it fails.
    pub given: Option<Given>,
    /// Whether PostgreSQL finds out itself the parameters' types that the client left open: it has been told none.
    pub infers: bool,
    /// The name in the client's Parse, where it was sent by another one that is not its own.
    pub again: Option<Box<[u8]>>,
}

impl ParseSent {
    /// One of Sluice's own, of a shared statement; with the parameters' types that clients were told, unless `infers`.
    pub fn own_of(statement: Arc<Statement>, sent_for: SentFor, infers: bool) -> Self {
        Self { infers, ..Self::own(statement, sent_for) }
    }

    /// One of Sluice's own, of a shared statement.
    pub fn own(statement: Arc<Statement>, sent_for: SentFor) -> Self {
        Self { statement: Some(statement), by: By::Shared, ..Self::unfollowed(sent_for) }
    }

    /// The client's own, of a shared statement.
    pub fn asked(statement: Arc<Statement>, given: Given) -> Self {
        Self { given: Some(given), infers: true, ..Self::own(statement, SentFor::Parse) }
    }

    /// One that makes nothing which is followed.
    pub fn unfollowed(sent_for: SentFor) -> Self {
        Self { statement: None, by: By::None, sent_for, given: None, infers: false, again: None }
    }

    /// Whether the client asked for it and gets the answer.
    pub fn is_asked(&self) -> bool {
        self.sent_for == SentFor::Parse
    }

    /// Whether it is of a plain COMMIT or ROLLBACK, by a name that nothing else has: that does not fail.
    pub fn ends_block(&self) -> bool {
        let is_free = !matches!(self.by, By::Lent(_));
        is_free && self.statement.as_ref().is_some_and(|statement| statement.ends.is_known())
    }
}

/// The client's message for which a Parse is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentFor {
    /// Its Parse: it gets the answer.
    Parse,
    /// A Describe, which tells the parameters' types before all that may fail.
    Describe,
    /// Another one that uses the statement.
    Use,
}

/// The name that a statement is sent by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// None, or one that is not followed.
    None,
    /// Its shared one.
    Shared,
    /// The client's own, which is lent to the server.
    Lent(Box<[u8]>),
}

/// The name that a Parse gives the client, and its failure takes away.
#[derive(Debug)]
pub enum Given {
    /// A name.
    Name(Box<[u8]>),
    /// The unnamed statement, by its [turn](crate::statement::Unnamed::turn): a later one stays. And the one that was
    /// there before, which is there again if the Parse was skipped.
    Unnamed(u32, Option<Unnamed>),
}

impl Given {
    /// The name, which is empty for the unnamed statement.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Name(name) => name,
            Self::Unnamed(..) => b"",
        }
    }
}

/// An answer that Sluice gives by itself, in its place among the server's.
#[derive(Debug)]
pub enum Local {
    /// ParseComplete of a statement that is known; an error before its turn undoes what it gave.
    ParseComplete(Given),
    /// CloseComplete of a shared statement; an error before its turn brings the name back.
    CloseComplete(Option<Taken>),
    /// Some other message, whole; an error before its turn brings the name back that it took.
    Message(Box<[u8]>, Option<Taken>),
}

/// A client's name that was taken away, and what it meant.
pub type Taken = (Box<[u8]>, Prepared);

/// Sluice's own queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Brings the server to a client's settings.
    Settings,
    /// Asks what the session holds.
    Probe,
    /// Stands for the Sync behind statements that are prepared or closed apart from what the client sends.
    Prepare,
    /// Asks which of the names that are lent have statements of the protocol.
    Names,
    /// Takes away what sequences gave to others.
    Sequences,
    /// Ends a transaction that a client left open.
    Rollback,
    /// Removes what a client left behind in the session.
    Reset,
    /// Asks whether DISCARD ALL may have left something in the session, or a new one would have more.
    Remains,
    /// Asks what has become of a COMMIT whose answer was lost with another server.
    Outcome,
    /// Asks a standby how far it has replayed.
    Replayed,
    /// Has the server report whether it is in recovery, if that is news.
    Recovery,
    /// Asks whether a role or a database has a `DateStyle` of its own.
    DateStyles,
    /// Asks for the function to which clients' addresses are reported.
    FindAddressFunction,
    /// Reports a client's address to it.
    ReportAddress,
    /// Takes the time-out or the cancel that came while the server waited for the data of a COPY: the next command
    /// meets it.
    AfterCopy,
}

impl Own {
    /// Whether it goes by the usual level where the session's own may withhold snapshots.
    pub fn goes_by_usual_level(self) -> bool {
        match self {
            Self::Settings | Self::Probe | Self::Remains | Self::Outcome => true,
            Self::DateStyles | Self::FindAddressFunction | Self::Sequences => true,
            // Where a standby refuses this one, it would refuse what is to come there.
            Self::Replayed => false,
            // Each sets its own level, takes none, or has to be alone in its query.
            Self::Names | Self::Prepare | Self::Rollback | Self::Reset => false,
            Self::ReportAddress | Self::AfterCopy | Self::Recovery => false,
        }
    }

    /// Whether the server is of use without it.
    pub fn is_optional(self) -> bool {
        match self {
            Self::DateStyles | Self::FindAddressFunction | Self::ReportAddress | Self::Recovery => true,
            Self::Settings | Self::Probe | Self::Sequences | Self::Rollback | Self::Reset => false,
            Self::Prepare | Self::Names | Self::Remains | Self::Outcome | Self::Replayed | Self::AfterCopy => false,
        }
    }
}

impl Expected {
    /// Whether a request of the client's ends with it.
    pub(super) fn ends_client_request(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Sync(_))
    }

    /// Whether it ends with a ReadyForQuery.
    pub fn is_request(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Sync(_) | Self::OwnSync(_) | Self::Own(_))
    }

    /// The turn of the unnamed statement that it gives.
    pub(super) fn unnamed_turn(&self) -> Option<u32> {
        match self.given()? {
            Given::Unnamed(turn, _) => Some(*turn),
            Given::Name(_) => None,
        }
    }

    /// The name that it gives the client.
    pub(super) fn given(&self) -> Option<&Given> {
        match self {
            Self::Parse(sent) => sent.given.as_ref(),
            Self::Local(local) => match &**local {
                Local::ParseComplete(given) => Some(given),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn given_mut(&mut self) -> Option<&mut Given> {
        match self {
            Self::Parse(sent) => sent.given.as_mut(),
            Self::Local(local) => match &mut **local {
                Local::ParseComplete(given) => Some(given),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is to a report of the client's address, for which nothing waits.
    pub(super) fn reports_address(&self) -> bool {
        matches!(self, Self::Own(Own::ReportAddress))
    }

    /// Whether it is to a message of Sluice's own that other ones end.
    pub(super) fn is_of_own_batch(&self) -> bool {
        matches!(self, Self::Switch | Self::OwnClose)
    }

    /// The settings that a Query or a batch resets, which its ReadyForQuery ends.
    pub(super) fn resets_mut(&mut self) -> Option<&mut Option<Box<Reset>>> {
        match self {
            Self::Query { resets, .. } | Self::Sync(resets) | Self::OwnSync(resets) => Some(resets),
            _ => None,
        }
    }

    /// Whether it is to something that has run, or ends a batch that may have.
    pub(super) fn decides_status(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Execute { .. } | Self::Sync(_))
    }

    pub(super) fn is_resetting(&self) -> bool {
        matches!(self, Self::Query { resets: Some(_), .. } | Self::Sync(Some(_)) | Self::OwnSync(Some(_)))
    }

    /// The bytes of a message of Sluice's own.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            Self::Local(local) => match &**local {
                Local::Message(bytes, _) => bytes.len(),
                _ => 0,
            },
            _ => 0,
        }
    }

    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Parse(sent) => sent.by == By::Shared || matches!(sent.given, Some(Given::Name(_))),
            Self::Evict(_) | Self::Query { clears: true, .. } => true,
            Self::Local(local) => matches!(
                **local,
                Local::ParseComplete(Given::Name(_)) | Local::CloseComplete(Some(_)) | Local::Message(_, Some(_))
            ),
            _ => false,
        }
    }
}
