//! Statements whose literals were read by other settings than those in place, prepared again as they were parsed.

use std::sync::Arc;

use sluice_wire::message::{SYNC, TransactionStatus};

use crate::{
    holding::Pins,
    io::Io,
    profile::{self, Context, literals},
    replies::{Expected, Own, ParseSent, SentFor},
    server::{Preparation, Question},
    sql::{self, Effects, Reset, effects},
    statement::{Prepared, Statement},
};

use super::{
    frontend::{ClientRelay, Step},
    own_queries::put_statement,
};

/// The statement and the portal by which settings are switched within a batch.
const SWITCH: &[u8] = b"sluice_switch";

/// The times that something is prepared for one message, at most: it is one statement, and what has to come before it.
const PREPARATIONS_MAX: u32 = 16;

impl<I: Io> ClientRelay<'_, I> {
    /// Whether nothing more is prepared for a message that waits for it: there is a defect then, and nobody is to wait for
    /// ever.
    pub(super) fn prepares_in_vain(&self) -> bool {
        self.session.preparations > PREPARATIONS_MAX
    }

    /// The settings in place, as far as they are known.
    pub(super) fn context_in_place(&self) -> Option<Context> {
        let is_known = self.server.as_ref().is_none_or(|server| server.session.knows_settings());
        is_known.then(|| self.session.profile.context())
    }

    /// Whether a statement's characters were read by other settings than those in place, or may have been.
    pub(super) fn is_spelled_apart(&self, statement: &Statement) -> bool {
        let is_known = self.context_in_place().is_some();
        statement.is_spelled_apart(is_known.then_some(&self.session.profile))
    }

    /// Whether a batch that begins now must wait for answers: what is under way decides under which settings, and
    /// whether in a block, and the server lacks a statement of the client's whose literals were read by others.
    pub(super) fn waits_for_settings(&self) -> bool {
        if !self.session.has_literals() {
            return false;
        }
        let in_place = self.context_in_place();
        let Some(server) = self.server.as_deref().filter(|_| self.session.may_be_apart(in_place)) else { return false };
        let exchange = &server.exchange;
        // What comes in the midst of a COPY is the server's to refuse, before it answers anything else.
        let is_open = exchange.has_open_batch() || exchange.is_copying();
        if !exchange.owes() || is_open || !exchange.replies().decide_status() {
            return false;
        }
        // Under other settings it is another statement on the server.
        let stays = |statement: &Statement| statement.terms.is_none_or(|terms| Some(terms.run) == in_place);
        let mut prepared = self.session.names.iter().flat_map(|names| names.values());
        prepared.any(|Prepared { statement, .. }| {
            let is_there = stays(statement) && server.statements.has(statement.id);
            !is_there && statement.is_parsed_apart(in_place)
        })
    }

    /// Prepares a statement ahead of the message that needs it: under the settings that it was parsed under, if others
    /// may be in place by which its literals might mean something else; and for a Describe that begins a batch, which may
    /// go on with what must not find a snapshot taken. Returns whether the message has to wait for that.
    pub(super) fn prepare_apart(&mut self, statement: &Arc<Statement>, sent_for: SentFor, infers: bool) -> bool {
        let is_apart = statement.is_parsed_apart(self.context_in_place());
        if !is_apart && sent_for != SentFor::Describe {
            return false;
        }
        self.flush();
        let Some(server) = self.server.as_deref_mut() else { return false };
        let begins = !server.exchange.has_open_batch() && server.exchange.reported_status() == TransactionStatus::Idle;
        if !(is_apart || begins) || !server.exchange.prepares() || server.statements.touch(statement.id) {
            return false;
        }
        let is_within = server.exchange.has_open_batch();
        if is_within && is_apart && server.exchange.replies().end_requests() {
            // Whether this stands in a block is open.
            self.wait_for_answers();
            return true;
        }
        if !is_within && (server.exchange.owes() || server.cancels.are_under_way()) {
            // A cancel of what stands before this could hit it.
            if server.exchange.owes() {
                server.exchange.await_answers();
            }
            return true;
        }
        let in_block = server.exchange.expected_status() == TransactionStatus::InTransaction;
        if is_within && !in_block && server.exchange.only_prepares() && !server.exchange.replies().begin_block() {
            // Nothing has run in this batch, and what comes may have to stand alone: what prepares it, or is asked for
            // it, goes before it.
            self.scratch.clear();
            self.send_own_sync(None);
            return true;
        }
        if !in_block && !server.session.knows_settings() {
            if !is_within {
                return false;
            }
            if self.asks_for_settings() {
                return true;
            }
        }
        self.parse_apart(statement, None, sent_for, infers);
        if !is_within {
            self.end_preparation();
        }
        !is_within
    }

    /// Asks the server by which settings literals are read, where nobody knows and a named statement with some is parsed:
    /// it may have to be prepared again. Returns whether its Parse has to wait for the answer.
    pub(super) fn asks_how_literals_are_read(&mut self, text: &[u8]) -> bool {
        let is_known = self.server.as_ref().is_none_or(|server| {
            server.session.knows_settings()
                || server.session.answers.literals().is_some()
                || !server.exchange.prepares()
        });
        // The answer takes a snapshot, as the Parse of a query does and that of another command does not.
        let reads = || effects(text).intersects(Effects::LITERAL) && sql::reads_literals(text);
        !is_known && reads() && self.asks_for_settings()
    }

    /// Asks the server by which settings literals are read, in the midst of what has set nobody knows what: for a Parse,
    /// or to put them back behind one where there is no savepoint to go back to. Returns whether the client's message has
    /// to wait for the answer. Where they are too large to be told, they stay unknown behind each answer as well.
    pub(super) fn asks_for_settings(&mut self) -> bool {
        if self.server().session.pins().intersects(Pins::SETTINGS) {
            return false;
        }
        let questions =
            [(Question::Defaults, literals::defaults_query as fn() -> String), (Question::Literals, literals::query)];
        self.asks(questions).is_some()
    }

    /// Asks the server in the midst of a batch what it has not been asked yet. Returns a step where the client's message
    /// has to wait for an answer.
    pub(super) fn asks<Q: FnOnce() -> String>(
        &mut self,
        questions: impl IntoIterator<Item = (Question, Q)>,
    ) -> Option<Step> {
        if !self.server().exchange.owes() {
            let mut is_new = false;
            for (question, query) in questions {
                if self.server().session.answers.ask(question) {
                    self.put_own(Some(&query()));
                    is_new = true;
                }
            }
            if !is_new {
                return None;
            }
        }
        Some(self.wait_for_answers())
    }

    /// The answer has served: what comes may set something else.
    pub(super) fn forget_answer(&mut self) {
        if let Some(server) = self.server.as_deref_mut() {
            server.session.answers.forget();
        }
    }

    /// Sends what stands in `scratch` with a Sync of Sluice's own behind it, which ends what resets these settings.
    pub(super) fn send_own_sync(&mut self, resets: Option<Reset>) {
        self.scratch.extend_from_slice(&SYNC);
        self.server().exchange.expect(Expected::OwnSync(resets.map(Into::into)));
        self.send_scratch();
        self.server().exchange.replay().seal();
    }

    /// Ends a batch of nothing but the pool's own: the client's message waits until the server has answered.
    pub(super) fn end_preparation(&mut self) {
        self.session.preparations += 1;
        self.scratch.clear();
        self.scratch.extend_from_slice(&SYNC);
        let server = self.server();
        server.exchange.expect(Expected::Own(Own::Prepare));
        server.preparation = Preparation::UnderWay;
        self.send_scratch();
    }

    /// Prepares a statement as part of the batch, under the settings that its literals were read by where those are
    /// known and can be put in place: under its shared name, or under that name of the client's.
    pub(super) fn parse_apart(
        &mut self,
        statement: &Arc<Statement>,
        lent: Option<&[u8]>,
        sent_for: SentFor,
        infers: bool,
    ) {
        let in_place = self.context_in_place();
        let (is_apart, profile) = match lent {
            None => (statement.is_parsed_apart(in_place), statement.profile.clone()),
            Some(_) => (statement.is_lent_apart(in_place), statement.to_lend()),
        };
        let server = self.server();
        let in_block = server.exchange.expected_status() == TransactionStatus::InTransaction;
        let (before, after) = match () {
            () if is_apart && in_block => {
                // It may have set whatever it likes. What is set here goes with the savepoint, and the statement stays.
                self.put_own(Some("SAVEPOINT sluice_switch"));
                let set = literals::set(&profile);
                (Some(set), Some("ROLLBACK TO SAVEPOINT sluice_switch".to_owned()))
            }
            () if is_apart && server.session.knows_settings() => {
                let here = server.session.profile();
                (profile::switch(here, &profile), profile::switch(&profile, here))
            }
            () if is_apart => {
                // Up to the transaction's end, so that nothing stays of it.
                let set = |profile: &_| Some(literals::set(profile));
                server.session.answers.literals().map_or((None, None), |here| (set(&profile), set(here)))
            }
            () => (None, None),
        };
        self.put_own(before.as_deref());
        match lent {
            Some(name) => self.send_lent(name, statement),
            None => self.send_parse(ParseSent::own_of(statement.clone(), sent_for, infers)),
        }
        self.put_own(after.as_deref());
        if is_apart && in_block {
            self.put_own(Some("RELEASE SAVEPOINT sluice_switch"));
        }
    }

    /// Sends a statement of Sluice's own by the extended protocol, as part of the batch.
    pub(super) fn put_own(&mut self, sql: Option<&str>) {
        let Some(sql) = sql else { return };
        self.scratch.clear();
        let Some(server) = self.server.as_deref_mut() else { return };
        put_statement(self.scratch, &mut server.exchange, SWITCH, sql);
        self.send_scratch();
    }
}
