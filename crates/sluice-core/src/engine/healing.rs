//! Healing: a shared statement that its server calls stale, or no longer has, is prepared again there, and the batch
//! that used it is sent again, before the client hears of it (docs/decisions/0004). The client prepared it once, on
//! whatever server; that another server's copy is of no use is not for it to mend.
//!
//! A use that may have had an effect must not be repeated: only the first use in a transaction is healed, and only
//! while all that was sent is at hand. Unless the statement is gone, other types of its parameters and another shape of
//! its result must be no surprise to the client either. Then another statement takes its place, which is the client's
//! own: what others were told of the old one does not hold for it. Where all that does not hold the client gets the
//! error, and the statement is prepared again at its next use.

use std::sync::Arc;

use sluice_wire::{
    BackendKind, ErrorFields, Frame, Framer, FrontendKind,
    message::{self, BindNames, Named, Parse, TransactionStatus},
    sqlstate,
};

use crate::{
    catalog::Catalog,
    io::Io,
    replies::{Called, Expected, LearnFor, ParseSent, SentFor},
    server::Remedy,
    statement::{Knowledge, NameTag, OnServer, Open, Statement},
};

use super::backend::{OutOfStep, ServerRelay, Verdict};

impl<I: Io> ServerRelay<'_, I> {
    /// The first statement of a transaction was stale, and all that was sent can be sent again.
    pub(super) fn begin_healing(&mut self, error: &[u8]) -> bool {
        if self.server.exchange.reported_status() != TransactionStatus::Idle || !is_of_statement(error) {
            return false;
        }
        let Some(Called { statement: failed, by }) = self.called() else { return false };
        let session = &self.server.session;
        if failed.is_spelled_apart(session.knows_settings().then(|| session.profile())) {
            return false;
        }
        let is_only = self.server.exchange.replies().only_use(failed.id, by);
        // The client's own Parse, now, might succeed, where PostgreSQL has found out the types.
        let is_of_types = failed.is_unnamed() || failed.infers_types;
        let remedy = |open: Open| {
            if is_missing(error) {
                return Some(Remedy::Again);
            }
            let helps = if is_of_other_shape(error) { open.shape } else { open.types && is_of_types };
            (helps && is_only).then_some(Remedy::Anew)
        };
        let possible = self.server.exchange.replay().heal(failed.id, remedy);
        if possible {
            note_change(&self.server.pool.catalog, &failed, error);
        }
        possible
    }

    /// The statement that is being used or described, as its client calls it.
    fn called(&self) -> Option<Called> {
        match self.server.exchange.replies().front() {
            Some(Expected::Bind(Some(called), _) | Expected::Describe(Some(called), _)) => {
                Some(Called { statement: called.statement.clone(), by: called.by })
            }
            _ => None,
        }
    }

    pub(super) fn while_healing(&mut self, kind: BackendKind, body: &[u8]) -> Result<Verdict, OutOfStep> {
        match kind {
            BackendKind::ReadyForQuery => {}
            BackendKind::NoticeResponse => return Ok(Verdict::Pass),
            // It says each value once.
            BackendKind::ParameterStatus => return Ok(self.parameter_status(body)),
            _ => return Ok(Verdict::Swallow),
        }
        let (Some((statement, remedy, batch)), Some(b'I')) = (self.server.exchange.replay().take(), body.first())
        else {
            return Err(OutOfStep("a stale statement left it inside a transaction"));
        };
        let (prepared, batch) = match remedy {
            Remedy::Again => {
                // Whether the server has it behind the batch, and what else, has been noted when the batch was sent.
                self.server.statements.forget_shape(statement.id);
                if let Some((_, session)) = &mut self.client {
                    session.forget_shape(statement.id);
                }
                (statement.clone(), batch)
            }
            Remedy::Anew => {
                let Some(Called { by, .. }) = self.called() else {
                    return Err(OutOfStep("a stale statement is not the one that was used"));
                };
                let new = self.supersede(&statement, by);
                self.server.statements.replace(statement.id, &new, self.now);
                if let Some(terms) = statement.terms {
                    self.server.exchange.replay().doubt(terms.catalog);
                }
                let batch = renamed(&batch, &statement.name, &new.name);
                (new, batch)
            }
        };
        let mut out = Vec::with_capacity(batch.len() + statement.definition.len() + 64);
        message::put_statement_message(&mut out, FrontendKind::Close, &statement.name);
        Parse::write(&mut out, &prepared.name, &prepared.to_parse());
        out.extend_from_slice(&batch);
        let sent_for = match self.server.exchange.replies().front() {
            Some(Expected::Describe(..)) => SentFor::Describe,
            _ => SentFor::Use,
        };
        self.server.exchange.expect_first(Expected::Parse(ParseSent::own(prepared, sent_for).into()));
        let gone = OnServer { id: statement.id, name: statement.name.clone() };
        self.server.exchange.expect_first(Expected::Evict(gone));
        self.io.send(self.server.conn, &out);
        self.resumes = true;
        Ok(Verdict::Swallow)
    }

    /// Gives the client another statement in place of a shared one of which it has been told nothing: the same, as it
    /// is parsed by the catalogs of now.
    fn supersede(&mut self, old: &Statement, by: NameTag) -> Arc<Statement> {
        let new = self.server.pool.statements.private(&old.definition, &old.profile, Knowledge::Exact);
        let name = self.client.as_mut().and_then(|(_, session)| session.supersede(old.id, by, &new, self.now));
        self.server.exchange.supersede(old.id, by, &new, name.as_deref());
        new
    }

    /// The server describes the parameters of a statement, ahead of looking whether that is stale.
    pub(super) fn parameters_described(&mut self, types: &[u8]) -> Verdict {
        match self.server.exchange.replies().front() {
            Some(Expected::Describe(Some(called), _)) => {
                let id = called.statement.id;
                if self.server.exchange.replay().hold_parameters(id, types) {
                    return Verdict::Swallow;
                }
                self.note_types(types);
                Verdict::Pass
            }
            Some(Expected::Learn(..)) => {
                self.note_types(types);
                Verdict::Swallow
            }
            _ => Verdict::Pass,
        }
    }

    /// Notes the parameters' types of the statement that is being described. The first server's are a shared
    /// statement's from then on; where another one finds others, the catalogs have changed, and the client has a
    /// statement of its own.
    pub(super) fn note_types(&mut self, types: &[u8]) {
        let (statement, by) = match self.server.exchange.replies().front() {
            Some(Expected::Describe(Some(called), _)) => (called.statement.clone(), Some(called.by)),
            Some(Expected::Learn(statement, LearnFor::Parse(described_as))) => {
                (statement.clone(), Some(described_as.by()))
            }
            Some(Expected::Learn(statement, _)) => (statement.clone(), None),
            _ => return,
        };
        let told = if statement.set_types(types) {
            self.server.statements.set_typed(statement.id);
            statement
        } else {
            if let Some(terms) = statement.terms {
                self.server.pool.catalog.move_on_from(terms.catalog);
            }
            let Some(by) = by else { return };
            let new = self.supersede(&statement, by);
            new.set_types(types);
            new
        };
        if let Some((_, session)) = &mut self.client {
            session.note_told(told.id);
        }
    }

    /// The client is told the parameters' types that were held back, ahead of an error; returns whether there were any.
    pub(super) fn tell_parameters(&mut self) -> bool {
        let types = self.server.exchange.replay().take_parameters();
        types.map(|types| self.send_parameters(&types)).is_some()
    }

    /// A statement has proven not to be stale.
    pub(super) fn note_well(&mut self) {
        let replay = self.server.exchange.replay();
        if let Some(version) = replay.take_doubted() {
            self.server.pool.catalog.move_on_from(version);
        }
        self.resumes |= self.server.exchange.replay().stop();
    }

    /// A shared statement on the server is of no use any more, as that error says; unless a message behind this batch
    /// closes it anyway.
    pub(super) fn drop_stale(&mut self, statement: &Statement, error: &[u8]) {
        note_change(&self.server.pool.catalog, statement, error);
        if !self.server.exchange.replies().closes(statement.id) {
            self.server.statements.retire(statement.id);
        }
    }
}

/// Whether an error may be one of the statement's own, which another Parse would not raise: not a cancel, a time-out, a
/// lock that could not be had, or a server's end or want of something.
fn is_of_statement(error: &[u8]) -> bool {
    ErrorFields(error)
        .get(b'C')
        .is_some_and(|code| [b"42", b"0A", b"26", b"22", b"3F"].iter().any(|class| code.starts_with(*class)))
}

/// Notes a change to the catalogs that nobody has told of, if that is what the error shows.
fn note_change(catalog: &Catalog, statement: &Statement, error: &[u8]) {
    if let Some(terms) = statement.terms
        && is_of_other_shape(error)
    {
        catalog.move_on_from(terms.catalog);
    }
}

/// Whether an error says that a prepared statement no longer fits the schema, or is gone.
pub(super) fn is_stale(body: &[u8]) -> bool {
    is_of_other_shape(body) || is_missing(body)
}

/// Whether an error says that a prepared statement's result has changed with the schema. The routine's name is the same
/// in every language (`plancache.c`).
pub(super) fn is_of_other_shape(body: &[u8]) -> bool {
    let fields = ErrorFields(body);
    fields.get(b'C') == Some(b"0A000") && fields.get(b'R') == Some(b"RevalidateCachedQuery")
}

/// Whether an error says that the statement is gone.
pub(super) fn is_missing(body: &[u8]) -> bool {
    ErrorFields(body).get(b'C') == Some(sqlstate::INVALID_STATEMENT_NAME.as_bytes())
}

/// A batch with a statement's uses by another name on the server.
fn renamed(batch: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let framer = Framer::default();
    let (mut rest, mut out) = (batch, Vec::with_capacity(batch.len() + 64));
    while let Ok(Frame::Message { tag, total, .. }) = framer.next(rest)
        && let Some((message, behind)) = rest.split_at_checked(total)
    {
        let body = &message[5..];
        match FrontendKind::from(tag) {
            FrontendKind::Bind => match BindNames::read(body).filter(|names| names.statement == old) {
                Some(names) => {
                    BindNames::write(&mut out, names.portal, new, body.len() - names.bytes);
                    out.extend_from_slice(&body[names.bytes..]);
                }
                None => out.extend_from_slice(message),
            },
            kind @ FrontendKind::Describe if matches!(Named::read(body, ""), Ok(Named::Statement(name)) if name == old) =>
            {
                message::put_statement_message(&mut out, kind, new);
            }
            _ => out.extend_from_slice(message),
        }
        rest = behind;
    }
    out
}
