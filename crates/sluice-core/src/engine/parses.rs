//! A client's Parse: answered where the statement is known, shared, or passed on as the client's own.

use std::sync::Arc;

use sluice_wire::{
    FrontendKind,
    message::{self, BindNames, Parse, TransactionStatus},
};

use crate::{
    client::NAMES_MAX,
    io::Io,
    replies::{DescribedAs, Expected, Given, LearnFor, Local, ParseSent, SentFor},
    sql::{self, Effects},
    statement::{Prepared, Statement, known_name},
};

use super::{
    frontend::{ClientRelay, Seen, Step, Stop},
    lending::{Bearer, too_many_names},
};

/// The messages behind a Parse among which a Bind is looked for.
const LOOKED_AHEAD_MAX: usize = 8;

impl<'a, I: Io> ClientRelay<'a, I> {
    /// A Parse; `known` is the shared statement, where it has been looked up.
    pub(super) fn parse(&mut self, seen: Seen<'a>, parse: Parse<'a>, known: Option<Arc<Statement>>) -> Step {
        match parse.name {
            b"" => self.parse_unnamed(seen, parse, known),
            _ => self.parse_named(seen, parse, known),
        }
    }

    fn parse_named(&mut self, seen: Seen<'a>, parse: Parse<'a>, known: Option<Arc<Statement>>) -> Step {
        if self.is_in_failed_transaction() && !sql::ends_transaction(parse.query) {
            return self.pass_parse(seen);
        }
        if self.asks_how_literals_are_read(parse.query) {
            return Step::Stop(Stop::Hold);
        }
        self.follow_settings(parse.name);
        if self.is_lent(parse.name) {
            return self.parse_lent(seen, parse);
        }
        if let Some(step) = self.wait_for_name(parse.name) {
            return step;
        }
        if self.session.named(parse.name).is_some() {
            return self.parse_again(seen, parse);
        }
        if self.is_to_be_lent(parse.name) {
            return self.parse_lent(seen, parse);
        }
        let statement = self.statement_of(parse.definition, false, known);
        if self.server.is_none() && !statement.is_accepted_of_late(self.now) {
            return Step::Stop(Stop::NeedServer);
        }
        if let Some(step) = self.before_parse(&statement) {
            return step;
        }
        self.drop_message(seen);
        let names = self.session.names.get_or_insert_default();
        if names.len() >= NAMES_MAX {
            return self.refuse(too_many_names());
        }
        names.insert(known_name(parse.name).into(), Prepared::new(statement.clone(), self.now));
        self.session.note_named(&statement);
        self.parse_shared(statement, Given::Name(parse.name.into()));
        Step::Next
    }

    /// Sends, or awaits, what has to come before a statement's Parse.
    fn before_parse(&mut self, statement: &Statement) -> Option<Step> {
        // What a DEALLOCATE names is looked up when it is run.
        let effects = if statement.deallocates.is_some() { Effects::empty() } else { statement.effects };
        let meant = self.meant_by_one(effects, statement.query());
        self.lend(&meant, Bearer::Batch).or_else(|| self.forget_before_batch(statement.effects))
    }

    /// A Parse that the server refuses, whatever the pool knows of its text.
    fn pass_parse(&mut self, seen: Seen<'a>) -> Step {
        let sent = ParseSent::unfollowed(SentFor::Parse);
        self.pass_expecting(seen, Expected::Parse(sent.into()))
    }

    fn parse_unnamed(&mut self, seen: Seen<'a>, parse: Parse<'a>, known: Option<Arc<Statement>>) -> Step {
        let is_refused = self.is_in_failed_transaction() && !sql::ends_transaction(parse.query);
        let statement = self.statement_of(parse.definition, true, known);
        let is_worth_it = statement.is_always_accepted()
            || (statement.came_again() && statement.is_accepted() && self.can_be_healed());
        let may_be_shared = self.session.pool.sharing.auto_prepare && statement.terms.is_some();
        let raw = is_refused || !may_be_shared || !is_worth_it;
        if raw && self.server.is_none() {
            return Step::Stop(Stop::NeedServer);
        }
        if let Some(step) = self.before_parse(&statement) {
            return step;
        }
        let given = self.session.set_unnamed(statement.clone(), raw, self.now);
        if !raw {
            self.drop_message(seen);
            self.parse_shared(statement, given);
            return Step::Next;
        }
        let server = self.server();
        server.statements.set_unnamed(Some(statement.id));
        let sent = ParseSent {
            statement: Some(statement),
            given: Some(given),
            infers: true,
            ..ParseSent::unfollowed(SentFor::Parse)
        };
        self.pass_expecting(seen, Expected::Parse(sent.into()))
    }

    /// Answers a Parse of a shared statement: by the server if none of its kind has accepted it yet. Without a server,
    /// one has.
    fn parse_shared(&mut self, statement: Arc<Statement>, given: Given) {
        let Some(server) = &mut self.server else {
            self.answer(Local::ParseComplete(given));
            return;
        };
        // Where there is a server, an error comes at the Parse, as it should.
        let there = server.statements.find(statement.id);
        let is_open = server.exchange.replies().decide_status();
        let is_known = self.usable(&statement, there, false).is_some() || statement.is_always_accepted();
        let is_sure = self.server.as_ref().is_some_and(|server| server.knows_catalogs(self.now))
            || statement.is_accepted_of_late(self.now);
        let holds =
            self.is_in_transaction() && !statement.is_always_accepted() && !self.is_bound_behind(given.name(), 0);
        if is_known && (is_open || holds || statement.is_remarked() || !is_sure) {
            // What runs may fail, and the transaction with it: then PostgreSQL parses nothing. Nor does the pool know
            // what a server has to remark, or what catalogs say that have changed unseen. And a Parse takes its
            // transaction's snapshot, and locks tables.
            self.server().statements.retire(statement.id);
        } else if is_known {
            self.answer(Local::ParseComplete(given));
            return;
        }
        // It is new there for the Bind as well.
        self.session.renewed |= statement.is_unnamed() && (!is_known || !is_sure) && !statement.is_remarked();
        self.send_parse(ParseSent::asked(statement, given));
    }

    /// Whether the server is in a transaction that holds on to what a Parse takes: a block, or a batch that runs
    /// something.
    fn is_in_transaction(&self) -> bool {
        self.server.as_ref().is_some_and(|server| {
            let exchange = &server.exchange;
            let in_block = exchange.expected_status() == TransactionStatus::InTransaction;
            in_block || exchange.runs() || exchange.replies().begin_block()
        })
    }

    /// Whether the client was told of a BEGIN by which the first Parse takes the snapshot that all that follows goes by.
    /// The locks of other transactions can wait for the first statement, as their `now()` does.
    pub(super) fn has_begun_with_snapshot(&self) -> bool {
        let default = || self.session.profile.get("default_transaction_isolation");
        self.session.begun.as_ref().is_some_and(|begun| begun.begin.has_one_snapshot(default()))
    }

    /// Whether a statement is bound behind so many messages, or behind others that only prepare: then nobody can tell
    /// when it was parsed.
    pub(super) fn is_bound_behind(&self, name: &[u8], messages: usize) -> bool {
        let only_prepares =
            |seen: &Seen<'_>| matches!(seen.kind, FrontendKind::Parse | FrontendKind::Describe | FrontendKind::Close);
        let mut coming = self.coming().take(LOOKED_AHEAD_MAX).skip(messages).skip_while(only_prepares);
        coming.next().is_some_and(|seen| {
            let names = BindNames::read(seen.body).filter(|_| seen.kind == FrontendKind::Bind);
            names.is_some_and(|names| names.statement == name)
        })
    }

    /// Whether PostgreSQL would parse nothing but the end of the transaction now. Not where an answer that is still to
    /// come decides that: then the server says so.
    pub(super) fn is_in_failed_transaction(&self) -> bool {
        self.server.as_ref().is_some_and(|server| {
            let exchange = &server.exchange;
            exchange.expected_status() == TransactionStatus::Failed && !exchange.replies().decide_status()
        })
    }

    /// Prepares a shared statement on the server, and makes room for it there.
    pub(super) fn send_parse(&mut self, sent: ParseSent) {
        let Some(statement) = sent.statement.clone() else { return };
        self.scratch.clear();
        let server = self.server.as_deref_mut().expect("the caller has seen that there is a server");
        let is_typed = statement.has_types() && !sent.infers;
        let asks_types = statement.infers_types && !statement.is_accepted_of_late(self.now);
        for gone in server.statements.insert(&statement, self.now, is_typed) {
            message::put_statement_message(self.scratch, FrontendKind::Close, &gone.name);
            server.exchange.expect(Expected::Evict(gone));
        }
        match is_typed {
            true => Parse::write(self.scratch, &statement.name, &statement.to_parse()),
            false => Parse::write(self.scratch, &statement.name, &statement.definition),
        }
        let described_as = match &sent.given {
            Some(Given::Name(name)) if statement.shape().is_none() || asks_types => Some(DescribedAs(name.clone())),
            _ => None,
        };
        server.exchange.expect(Expected::Parse(sent.into()));
        if let Some(described_as) = described_as {
            // Its parameters and its result are from now on what they are now.
            message::put_statement_message(self.scratch, FrontendKind::Describe, &statement.name);
            server.exchange.expect(Expected::Learn(statement, LearnFor::Parse(described_as)));
        }
        self.send_scratch();
    }
}
