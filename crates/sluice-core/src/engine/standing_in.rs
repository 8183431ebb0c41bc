//! Stand-ins: statements that a server gives PostgreSQL's own answer to, in place of a client's that it lacks.
//!
//! PostgreSQL has a client's named statement from its Parse on, whatever becomes of the tables that it names. A server
//! of the pool may not have it, and preparing it there again is no answer where that would fail: in a failed
//! transaction, or where the name is only to be refused.

use std::sync::Arc;

use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{self, BindNames, Parse, TransactionStatus},
    sqlstate,
};

use crate::{
    io::Io,
    replies::{Expected, ParseSent, SentFor},
    server::There,
    shape::Shape,
    sql,
    statement::Statement,
};

use super::frontend::{ClientRelay, Seen, Step};

/// The name of a statement that says nothing: PostgreSQL takes it in a failed transaction as well, with as many
/// parameters as it is told.
pub(super) const STAND_IN: &[u8] = b"sluice_stand_in";

/// Whether a client's statement is missing on its server, where it can't be prepared.
pub(super) enum Absence {
    /// It is there.
    Here,
    /// It can be prepared.
    None,
    /// Answers that are still to come decide whether it can be.
    Open,
    /// It can't be: PostgreSQL takes nothing but the end of the transaction now.
    Final,
}

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Whether a statement is missing on the server, and can't be prepared there. One that is `there` may have to be
    /// prepared again as well: `is_told` says that the client may know its parameters' types.
    pub(super) fn absence(&mut self, statement: &Arc<Statement>, there: Option<There>, is_told: bool) -> Absence {
        let is_usable = there.is_some_and(|there| self.is_usable(statement, there, is_told));
        let server = self.server();
        // What serves as an unnamed statement is renewed every second: nobody waits for answers because of that.
        let is_to_come = there.is_some() && statement.is_unnamed();
        if is_usable || (is_to_come && server.exchange.expected_status() != TransactionStatus::Failed) {
            return Absence::Here;
        }
        if server.exchange.replies().end_requests() {
            return Absence::Open;
        }
        let exchange = &server.exchange;
        let is_refused = exchange.expected_status() == TransactionStatus::Failed && !exchange.replies().runs();
        if is_refused && !sql::ends_transaction(statement.query()) { Absence::Final } else { Absence::None }
    }

    /// Whether it is open if the client has its unnamed statement: an error before its Parse, whose answer is still to
    /// come, would have that skipped.
    pub(super) fn is_unnamed_open(&self) -> bool {
        let given = self.server.as_ref().zip(self.session.unnamed_turn());
        given.is_some_and(|(server, turn)| server.exchange.replies().gives_before_sync(turn))
    }

    /// Has a DEALLOCATE of a name that the client does not have bound to the unnamed portal: the server says so when it
    /// is run.
    pub(super) fn put_deallocate(&mut self, name: &[u8]) {
        let quoted = String::from_utf8_lossy(name).replace('"', "\"\"");
        self.flush();
        self.scratch.clear();
        message::put_statement_message(self.scratch, FrontendKind::Close, STAND_IN);
        message::put_parse(self.scratch, STAND_IN, &format!("DEALLOCATE \"{quoted}\""), &[]);
        message::put_bind(self.scratch, b"", STAND_IN, &[]);
        let server = self.server();
        server.exchange.expect(Expected::OwnClose);
        (0..2).for_each(|_| server.exchange.expect(Expected::Switch));
        self.send_scratch();
    }

    /// A Parse by a name that the client has given already. PostgreSQL finds that out last of all: it gets the text by
    /// a name that it has.
    pub(super) fn parse_again(&mut self, seen: Seen<'a>, parse: Parse<'a>) -> Step {
        self.drop_message(seen);
        self.put_stand_in(&[0, 0]);
        self.scratch.clear();
        Parse::write(self.scratch, STAND_IN, parse.definition);
        let sent = ParseSent { again: Some(parse.name.into()), ..ParseSent::unfollowed(SentFor::Parse) };
        self.server().exchange.expect(Expected::Parse(sent.into()));
        self.send_scratch();
        Step::Next
    }

    /// A Bind that PostgreSQL refuses, in the failed transaction, or because of its parameters, of which the statement
    /// has those types.
    pub(super) fn bind_stand_in(&mut self, seen: Seen<'a>, names: &BindNames<'a>, types: &[u8]) -> Step {
        self.put_stand_in(types);
        let rest = seen.total - 5 - names.bytes;
        self.scratch.clear();
        BindNames::write(self.scratch, names.portal, STAND_IN, rest);
        self.send_scratch();
        let server = self.server();
        server.exchange.expect(Expected::BindStandIn(names.statement.into()));
        self.replace_head(seen, names.bytes);
        Step::Next
    }

    /// A Describe in a failed transaction: PostgreSQL refuses it only for statements that return rows.
    pub(super) fn describe_stand_in(
        &mut self,
        seen: Seen<'a>,
        statement: &Statement,
        described: Option<Shape>,
    ) -> Step {
        self.drop_message(seen);
        let has_rows = described
            .or(statement.shape())
            .map_or_else(|| sql::returns_rows(statement.query()), |shape| shape != Shape::none());
        let name = if has_rows {
            // One that returns rows, whichever it is.
            let Some(other) = self.server().statements.with_rows() else {
                return self.refuse(in_failed_transaction("exec_describe_statement_message"));
            };
            other
        } else {
            self.put_stand_in(&types_of(statement));
            STAND_IN.into()
        };
        self.scratch.clear();
        message::put_statement_message(self.scratch, FrontendKind::Describe, &name);
        let server = self.server();
        server.exchange.expect(Expected::Describe(None, None));
        self.send_scratch();
        Step::Next
    }

    /// Prepares the stand-in with parameters of these types, which stand as in Parse.
    fn put_stand_in(&mut self, types: &[u8]) {
        self.flush();
        self.scratch.clear();
        message::put_statement_message(self.scratch, FrontendKind::Close, STAND_IN);
        Parse::write(self.scratch, STAND_IN, &[&[0], types].concat());
        let server = self.server();
        server.exchange.expect(Expected::OwnClose);
        let sent = ParseSent::unfollowed(SentFor::Use);
        server.exchange.expect(Expected::Parse(sent.into()));
        self.send_scratch();
    }
}

/// Whether a Bind brings another number of parameters than its statement has, for certain: PostgreSQL refuses it before
/// it looks at anything else. `rest` is its body behind the names, as far as it has come.
pub(super) fn has_other_count(rest: &[u8], statement: &Statement) -> bool {
    let (_, Some(bound)) = counts_of_bind(rest) else { return false };
    let is_certain = sql::parameters_of_query(statement.query()).is_some();
    let Some(has) = types_of(statement).first_chunk().map(|count| u16::from_be_bytes(*count)) else { return false };
    is_certain && bound != has
}

/// The numbers of formats and of parameters in a Bind, behind its names, as far as they have come.
fn counts_of_bind(rest: &[u8]) -> (Option<u16>, Option<u16>) {
    let count_at = |at: usize| rest.get(at..).and_then(<[u8]>::first_chunk).map(|count| u16::from_be_bytes(*count));
    let formats = count_at(0);
    (formats, formats.and_then(|formats| count_at(2 + 2 * usize::from(formats))))
}

/// Whether a Bind, behind its names, has no parameters, and ends where it should.
pub(super) fn is_bare(rest: &[u8]) -> bool {
    let (Some(formats @ 0..=1), Some(0)) = counts_of_bind(rest) else { return false };
    let results = rest.get(4 + 2 * usize::from(formats)..).and_then(<[u8]>::split_first_chunk);
    results.is_some_and(|(count, codes)| codes.len() == 2 * usize::from(u16::from_be_bytes(*count)))
}

/// The parameter types of a statement, as they stand in Parse: those that clients were told, or else as many as its
/// text has.
pub(super) fn types_of(statement: &Statement) -> Vec<u8> {
    let definition = statement.to_parse();
    let types = definition.get(statement.query().len() + 1..).unwrap_or_default();
    let given = types.first_chunk().map_or(0, |count| u16::from_be_bytes(*count));
    let written = sql::parameters(statement.query()).unwrap_or_else(|| sql::highest_written(statement.query()));
    let count = given.max(written);
    let mut out = count.to_be_bytes().to_vec();
    out.extend_from_slice(types.get(2..).unwrap_or_default());
    out.resize(2 + usize::from(count) * 4, 0);
    out
}

/// The error of a failed transaction, which that routine of PostgreSQL's raises.
pub(super) fn in_failed_transaction(routine: &'static str) -> ErrorResponse {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    ErrorResponse::error(sqlstate::IN_FAILED_TRANSACTION, message).routine(routine)
}
