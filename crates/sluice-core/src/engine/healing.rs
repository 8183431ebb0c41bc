//! Healing: a shared statement that its server calls stale, or no longer has, is prepared again there, and the batch
//! that used it is sent again, before the client hears of it (docs/decisions/0004). The client prepared it once, on
//! whatever server; that another server's copy is of no use is not for it to mend.
//!
//! A use that may have had an effect must not be repeated: only the first use in a transaction is healed, and only
//! while all that was sent is at hand. Unless the statement is gone, another shape of its result must be no surprise
//! to the client either. Where that does not hold the client gets the error, and the statement is prepared again at
//! its next use.

use sluice_wire::{
    BackendKind, ErrorFields, FrontendKind,
    message::{self, Parse, TransactionStatus},
    sqlstate,
};

use crate::{
    catalog::Catalog,
    io::Io,
    replies::{Called, Expected, ParseSent, SentFor},
    statement::{OnServer, Statement},
};

use super::backend::{OutOfStep, ServerRelay, Verdict};

impl<I: Io> ServerRelay<'_, I> {
    /// The first statement of a transaction was stale, and all that was sent can be sent again.
    pub(super) fn begin_healing(&mut self, error: &[u8]) -> bool {
        if self.server.exchange.reported_status() != TransactionStatus::Idle {
            return false;
        }
        let failed = match self.server.exchange.replies().front() {
            Some(Expected::Bind(Some(Called { statement: failed, .. }), _) | Expected::Describe(Some(failed), _)) => {
                failed.clone()
            }
            _ => return false,
        };
        let session = &self.server.session;
        if failed.is_spelled_apart(session.knows_settings().then(|| session.profile())) {
            return false;
        }
        let possible = self.server.exchange.replay().heal(failed.id, |shape_free| match is_stale(error) {
            true => shape_free || is_missing(error),
            // The client's own Parse, now, might succeed.
            false => failed.is_unnamed(),
        });
        if possible {
            note_change(&self.server.pool.catalog, &failed, error);
        }
        possible
    }

    pub(super) fn while_healing(&mut self, kind: BackendKind, body: &[u8]) -> Result<Verdict, OutOfStep> {
        match kind {
            BackendKind::ReadyForQuery => {}
            BackendKind::NoticeResponse => return Ok(Verdict::Pass),
            // It says each value once.
            BackendKind::ParameterStatus => return Ok(self.parameter_status(body)),
            _ => return Ok(Verdict::Swallow),
        }
        let (Some((statement, batch)), Some(b'I')) = (self.server.exchange.replay().take(), body.first()) else {
            return Err(OutOfStep("a stale statement left it inside a transaction"));
        };
        let mut out = Vec::with_capacity(batch.len() + statement.definition.len() + 64);
        message::put_statement_message(&mut out, FrontendKind::Close, &statement.name);
        Parse::write(&mut out, &statement.name, &statement.to_parse());
        out.extend_from_slice(batch);
        let sent_for = match self.server.exchange.replies().front() {
            Some(Expected::Describe(..)) => SentFor::Describe,
            _ => SentFor::Use,
        };
        self.server.exchange.expect_first(Expected::Parse(ParseSent::own(statement.clone(), sent_for).into()));
        let gone = OnServer { id: statement.id, name: statement.name.clone() };
        self.server.exchange.expect_first(Expected::Evict(gone));
        // Whether the server has it behind the batch, and what else, has been noted when the batch was sent.
        self.server.statements.forget_shape(statement.id);
        if let Some((_, session)) = &mut self.client {
            session.forget_shape(statement.id);
        }
        self.io.send(self.server.conn, &out);
        self.resumes = true;
        Ok(Verdict::Swallow)
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
