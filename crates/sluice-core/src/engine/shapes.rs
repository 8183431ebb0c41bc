//! Shapes of results, as a client was told: PostgreSQL fixes a named statement's at its Parse, and a server that prepares
//! it later must give the same.

use std::sync::Arc;

use sluice_wire::{
    FrontendKind,
    message::{self, FLUSH, NO_DATA, TransactionStatus},
};

use crate::{
    io::Io,
    replies::{Expected, LearnFor, Local, ParseSent, SentFor},
    shape::Shape,
    sql::Effects,
    statement::{Prepared, Statement, parameter_description},
};

use super::{
    BACKLOG_HIGH_BYTES,
    frontend::{ClientRelay, Seen, Step, Stop},
    statements::changed_result,
};

impl<'a, I: Io> ClientRelay<'a, I> {
    /// The shape that a statement's result had when the client sent its Parse: as it was told, or as whoever prepared
    /// it first was, if the catalogs have changed since, or the client has used it like that. Where they have not, as
    /// far as is known, and PostgreSQL calls the statement stale, that Parse may have come behind the change.
    pub(super) fn shape_as_parsed(&self, prepared: &Prepared, name: &[u8]) -> Option<Shape> {
        let Prepared { statement, described, is_bound, .. } = prepared;
        if statement.effects.intersects(Effects::SESSION) {
            // An EXECUTE or FETCH returns what that returns which has the name now.
            return None;
        }
        let version = self.session.pool.catalog.version();
        let has_changed = statement.terms.is_none_or(|terms| terms.catalog != version);
        described.or_else(|| statement.shape().filter(|_| (has_changed || *is_bound) && !name.is_empty()))
    }

    /// Sees that a statement's result has the shape that it had when the client sent its Parse, before it is used; `there`
    /// is the one that it has on the server, if that is known. Returns a step where it has not, or where the server has to
    /// be asked.
    pub(super) fn check_shape(
        &mut self,
        seen: Seen<'a>,
        statement: &Arc<Statement>,
        described: Option<Shape>,
        there: Option<Shape>,
    ) -> Option<Step> {
        let is_describe = seen.kind == FrontendKind::Describe;
        let sent_for = if is_describe { SentFor::Describe } else { SentFor::Use };
        match self.is_as_described(statement, described?, there, sent_for) {
            Some(true) => None,
            Some(false) => {
                self.drop_message(seen);
                if is_describe {
                    // PostgreSQL describes the parameters before it looks at the result.
                    self.answer(Local::Message(statement.parameter_description().into(), None));
                }
                Some(self.refuse(changed_result()))
            }
            None => Some(Step::Stop(Stop::Hold)),
        }
    }

    /// Whether the result still has the shape that the client was told. `None`: the server has been asked, and the
    /// message has to wait for the answer.
    fn is_as_described(
        &mut self,
        statement: &Arc<Statement>,
        described: Shape,
        there: Option<Shape>,
        sent_for: SentFor,
    ) -> Option<bool> {
        let learnt = std::mem::take(&mut self.session.learnt);
        let server = self.server();
        match there {
            Some(shape) if shape == described => return Some(true),
            Some(_) if learnt => return Some(false),
            // In a failed transaction the server refuses whatever comes.
            _ if server.exchange.expected_status() == TransactionStatus::Failed => return Some(true),
            // What returns no rows does not begin to.
            None if described == Shape::none() => return Some(true),
            Some(_) => {
                // It may be the server's statement that is old: it is prepared again.
                server.statements.retire(statement.id);
            }
            None => {}
        }
        // PostgreSQL has analyzed it anew, of the same characters.
        if self.is_spelled_apart(statement) && self.prepare_apart(statement, sent_for, false) {
            return None;
        }
        let there = self.server().statements.find(statement.id);
        if self.usable(statement, there, true).is_none() {
            self.send_parse(ParseSent::own(statement.clone(), sent_for));
        }
        self.session.preparations += 1;
        self.scratch.clear();
        message::put_statement_message(self.scratch, FrontendKind::Describe, &statement.name);
        self.scratch.extend_from_slice(&FLUSH);
        let learn_for = if sent_for == SentFor::Describe { LearnFor::Describe } else { LearnFor::Use };
        let server = self.server();
        server.exchange.expect(Expected::Learn(statement.clone(), learn_for));
        self.send_scratch();
        None
    }

    /// Whether a shared statement's parameters' types are what PostgreSQL found out of late, and nothing under way may show
    /// others.
    fn knows_types(&self, statement: &Statement) -> bool {
        let exchange = self.server.as_ref().map(|server| &server.exchange);
        statement.is_accepted_of_late(self.now)
            && !exchange.is_some_and(|exchange| exchange.replies().learn(statement.id))
    }

    /// Answers a Describe of a named statement that returns no rows: PostgreSQL tells what it knows since the Parse,
    /// whatever has become of the tables that it names. `None` where it may return some.
    pub(super) fn describe_without_result(&mut self, seen: Seen<'a>, name: &[u8], prepared: &Prepared) -> Option<Step> {
        let types = parameters_without_result(prepared, name)?;
        let Prepared { statement, described, .. } = prepared;
        if described.is_none() && statement.infers_types && !self.knows_types(statement) {
            return None;
        }
        let own_bytes = self.server.as_ref().map_or(0, |server| server.exchange.replies().own_bytes());
        if own_bytes > BACKLOG_HIGH_BYTES {
            return Some(self.wait_for_answers());
        }
        self.drop_message(seen);
        self.session.note_shape(name, prepared.statement.id, Some(Shape::none()));
        self.answer(Local::Message(parameter_description(&types).into(), None));
        self.answer(Local::Message(NO_DATA.into(), None));
        Some(Step::Next)
    }
}

/// The parameters' types of a named statement that is known to return no rows. An EXECUTE or FETCH returns what that
/// returns which has the name now.
fn parameters_without_result(prepared: &Prepared, name: &[u8]) -> Option<Box<[u8]>> {
    let Prepared { statement, described, .. } = prepared;
    let returns_nothing = described.or(statement.shape()) == Some(Shape::none());
    let is_fixed = !name.is_empty() && !statement.effects.intersects(Effects::SESSION);
    statement.known_types().filter(|_| returns_nothing && is_fixed)
}
