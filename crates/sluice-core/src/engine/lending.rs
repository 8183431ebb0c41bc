//! Names that are lent. In PostgreSQL, prepared statements of the protocol and of SQL share their names. A client's
//! names of the protocol are known to the pool alone, so those that SQL speaks of are lent to the server
//! (docs/decisions/0016): it has the statements under these names while SQL may mean them, and the client's messages
//! that name one of them go to it as they are.
//!
//! A name is lent before a text that speaks of it is sent, and from its Parse on where SQL may have made it. When the
//! transaction has ended, the server is asked which of them are left; before it goes to anybody else, all are closed.

use std::{collections::BTreeMap, sync::Arc};

use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{self, Parse, SYNC, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{NAMES_MAX, Waiting},
    holding::Pins,
    io::Io,
    replies::{By, Expected, Own, ParseSent, SentFor},
    server::{Left, Preparation, Server, may_be_lent},
    sql::{self, CustomNames, Effects, Reset, StatementNamed},
    statement::{Statement, Unnamed, known_name},
};

use super::{
    frontend::{ClientRelay, Seen, Step, Stop},
    own_queries::send_own,
};

/// Statements of the protocol that a text of SQL speaks of.
pub(super) type Meant = Vec<Spoken>;

/// One of them.
pub(super) struct Spoken {
    name: Box<[u8]>,
    statement: Arc<Statement>,
    /// Whether the text may run it, or what it runs: else its name is only given, or forgotten.
    is_run: bool,
}

/// A step on the way through statements that speak of each other.
enum Visit {
    /// This name is spoken of.
    Name(StatementNamed),
    /// All is known that this statement speaks of.
    Done(Spoken),
}

/// The kind of message that brings a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bearer {
    /// A Query.
    Query,
    /// One of the extended protocol.
    Batch,
}

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Whether it is the server's to say what that name means.
    pub(super) fn is_lent(&self, name: &[u8]) -> bool {
        self.server.as_ref().is_some_and(|server| server.lent.has(known_name(name)))
    }

    /// The statement behind one of the client's names, or behind that which a Parse on its way gives to one that is lent.
    /// The empty name is that of the unnamed one.
    pub(super) fn statement_named(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        if name.is_empty() {
            return self.session.unnamed.as_ref().map(|unnamed| &unnamed.prepared.statement);
        }
        let name = known_name(name);
        let replies =
            self.server.as_ref().filter(|server| server.lent.has(name)).map(|server| server.exchange.replies());
        let given = replies.and_then(|replies| replies.given_to_lent(name));
        given.or_else(|| Some(&self.session.named(name)?.statement))
    }

    /// Whether a new statement is to have its name on the server from the beginning: SQL may have given that name to
    /// another.
    pub(super) fn is_to_be_lent(&self, name: &[u8]) -> bool {
        let Some(server) = &self.server else { return false };
        let has_sqls =
            server.session.pins().intersects(Pins::PREPARE) || server.session.effects().intersects(Effects::PREPARES);
        has_sqls && may_be_lent(known_name(name))
    }

    /// Whether answers that are still to come may take names away: those of the client, and all shared ones with them.
    #[inline]
    fn may_lose_names(&self) -> bool {
        let Some(server) = self.server.as_deref() else { return false };
        let speaks = server.session.effects().intersects(Effects::NAMES);
        speaks && server.exchange.owes() && !server.exchange.is_copying()
    }

    /// Whether that unnamed statement of the client's is the server's own.
    pub(super) fn is_servers_unnamed(&self, Unnamed { prepared, raw, .. }: &Unnamed) -> bool {
        *raw && self.server.as_ref().is_some_and(|s| s.statements.unnamed() == Some(prepared.statement.id))
    }

    /// Whether a shared statement serves as the client's unnamed one.
    fn has_shared_unnamed(&self) -> bool {
        self.session.unnamed.as_ref().is_some_and(|unnamed| !self.is_servers_unnamed(unnamed))
    }

    /// Has a message wait that speaks of a name which answers that are still to come may take away. PostgreSQL keeps the
    /// unnamed statement; but what serves it may be a shared one, which has a name. A new unnamed one need not wait: what
    /// may take names away may change settings as well, and nothing that is parsed behind it is shared.
    pub(super) fn wait_for_name(&mut self, name: &[u8]) -> Option<Step> {
        if !self.may_lose_names() {
            return None;
        }
        let is_the_servers = if name.is_empty() { !self.has_shared_unnamed() } else { self.is_lent(name) };
        (!is_the_servers).then(|| self.wait_for_answers())
    }

    /// The client's statements that a text speaks of, directly or by others: each behind those that it speaks of
    /// itself.
    pub(super) fn meant_by(&mut self, effects: Effects, text: &[u8]) -> Meant {
        let mut meant = Meant::new();
        if !effects.intersects(Effects::NAMES) {
            return meant;
        }
        let mut seen = BTreeMap::<Box<[u8]>, bool>::new();
        // Those that are run come first: that counts where a text speaks of one in both ways.
        let named = |text: &[u8], runs: bool| {
            let mut named = sql::statements_named(text);
            named.sort_by_key(|named| named.is_run);
            named.into_iter().map(move |named| Visit::Name(StatementNamed { is_run: named.is_run && runs, ..named }))
        };
        let mut stack: Vec<Visit> = named(text, true).collect();
        while let Some(visit) = stack.pop() {
            let (name, is_run) = match visit {
                Visit::Name(named) => (Box::<[u8]>::from(known_name(&named.name)), named.is_run),
                Visit::Done(spoken) => {
                    meant.push(spoken);
                    continue;
                }
            };
            let is_known = seen.get(&name).is_some_and(|was_run| *was_run || !is_run);
            if !may_be_lent(&name) || is_known {
                continue;
            }
            if seen.insert(name.clone(), is_run).is_some() {
                // One that is run speaks of it as well.
                meant.retain(|spoken| spoken.name != name);
            }
            self.follow_settings(&name);
            if let Some(statement) = self.statement_named(&name).cloned() {
                let speaks = statement.effects.intersects(Effects::NAMES);
                let further = speaks.then(|| named(statement.query(), is_run));
                stack.push(Visit::Done(Spoken { name, statement: statement.clone(), is_run }));
                stack.extend(further.into_iter().flatten());
            }
        }
        meant
    }

    /// The same of a text that is to be prepared, as which PostgreSQL takes no more than one command.
    pub(super) fn meant_by_one(&mut self, effects: Effects, text: &[u8]) -> Meant {
        let is_refused = effects.intersects(Effects::NAMES) && sql::has_several(text);
        if is_refused { Meant::new() } else { self.meant_by(effects, text) }
    }

    /// Lends the server the names that a text speaks of, which is about to be sent. Returns a step where that has to be
    /// waited for.
    pub(super) fn lend(&mut self, meant: &Meant, bearer: Bearer) -> Option<Step> {
        if meant.is_empty() {
            return None;
        }
        let is_probed = self.is_probed();
        for statement in run(meant).filter(|statement| statement.effects.intersects(Effects::STATE)) {
            if is_probed {
                self.server().expect_customs(CustomNames::of_text(statement.query()));
            }
        }
        if run(meant).any(|statement| sql::may_outlast_rollback(statement.effects, statement.query())) {
            self.server().exchange.leave(Left::Within);
        }
        let server = self.server.as_deref()?;
        let missing: Vec<_> = meant.iter().filter(|spoken| !server.lent.has(&spoken.name)).collect();
        if missing.is_empty() || server.exchange.is_copying() {
            return None;
        }
        if bearer == Bearer::Query && server.exchange.has_open_batch() {
            // It may be nothing but an early BEGIN. Behind an error in it, the server would ignore the Query.
            return self.end_batch();
        }
        if server.exchange.owes() {
            // What is still to come may end the transaction, or take names away.
            return Some(self.wait_for_answers());
        }
        if !server.exchange.prepares() {
            // A failed transaction refuses whatever the text says.
            return None;
        }
        let is_within = server.exchange.has_open_batch();
        if !is_within && server.cancels.are_under_way() {
            return Some(Step::Stop(Stop::Hold));
        }
        let is_apart = |spoken: &&Spoken| spoken.statement.is_lent_apart(self.context_in_place());
        let in_block = server.exchange.expected_status() == TransactionStatus::InTransaction;
        let in_doubt = is_within && !in_block && !server.session.knows_settings();
        if in_doubt && missing.iter().any(is_apart) && self.asks_for_settings() {
            return Some(Step::Stop(Stop::Hold));
        }
        self.flush();
        for Spoken { name, statement, .. } in missing {
            self.parse_apart(statement, Some(name), SentFor::Use, false);
        }
        if is_within {
            return None;
        }
        if bearer == Bearer::Query {
            self.session.next = Waiting::ForNames;
        }
        self.end_preparation();
        Some(Step::Stop(Stop::Hold))
    }

    /// Ends a batch that a Query follows without a Sync of the client's, unless it has run something: that would be
    /// ended as well.
    fn end_batch(&mut self) -> Option<Step> {
        if self.server().exchange.runs() {
            return None;
        }
        self.session.next = Waiting::ForNames;
        self.flush();
        self.scratch.clear();
        self.send_own_sync(None);
        Some(Step::Stop(Stop::Hold))
    }

    /// Prepares a statement under a name of the client's, as part of the batch.
    pub(super) fn send_lent(&mut self, name: &[u8], statement: &Arc<Statement>) {
        self.scratch.clear();
        Parse::write(self.scratch, name, &statement.to_parse());
        let server = self.server();
        server.lent.lend(name);
        let by = By::Lent(name.into());
        let sent = ParseSent { statement: Some(statement.clone()), by, ..ParseSent::unfollowed(SentFor::Use) };
        server.exchange.expect(Expected::Parse(sent.into()));
        self.send_scratch();
    }

    /// Drops and answers a Query or FunctionCall for which the client has heard an error already; `false` if that is not so.
    pub(super) fn drop_failed(&mut self, seen: Seen<'a>) -> bool {
        let has_failed = std::mem::take(&mut self.session.next) == Waiting::Failed;
        if has_failed {
            if seen.kind == FrontendKind::Query {
                self.session.drop_unnamed();
            }
            self.drop_message(seen);
            let server = self.server.as_ref().filter(|_| self.session.begun.is_none());
            let status = server.map_or_else(|| self.session.status(), |server| server.exchange.reported_status());
            self.send_ready(status);
        }
        has_failed
    }

    /// A Parse by a name that is lent.
    pub(super) fn parse_lent(&mut self, seen: Seen<'a>, parse: Parse<'a>) -> Step {
        let statement = self.statement_of(parse.definition, false, None);
        let meant = self.meant_by_one(statement.effects, statement.query());
        if let Some(step) = self.lend(&meant, Bearer::Batch) {
            return step;
        }
        let name = known_name(parse.name);
        let names = self.session.names.get_or_insert_default();
        if names.len() >= NAMES_MAX && !names.contains_key(name) {
            self.drop_message(seen);
            return self.refuse(too_many_names());
        }
        let server = self.server();
        server.lent.lend(name);
        let by = By::Lent(name.into());
        let sent = ParseSent { statement: Some(statement), by, infers: true, ..ParseSent::unfollowed(SentFor::Parse) };
        self.pass_expecting(seen, Expected::Parse(sent.into()))
    }
}

/// Those that a text runs.
pub(super) fn run(meant: &Meant) -> impl Iterator<Item = &Arc<Statement>> {
    meant.iter().filter(|spoken| spoken.is_run).map(|spoken| &spoken.statement)
}

/// The effects of a text and of what it has run.
pub(super) fn effects_with(effects: Effects, meant: &Meant) -> Effects {
    run(meant).fold(effects, |effects, statement| effects | statement.effects)
}

/// Whether one of those that a text has run is a COPY which the server reads.
pub(super) fn may_copy(meant: &Meant) -> bool {
    run(meant).any(|statement| statement.may_copy)
}

/// The settings that a text resets, and what it has run.
pub(super) fn resets_with(resets: Option<Reset>, meant: &Meant) -> Option<Reset> {
    run(meant).fold(resets, |resets, statement| Reset::both(resets, statement.resets.as_ref()))
}

/// The answer to a Parse of one name too many.
pub(super) fn too_many_names() -> ErrorResponse {
    let message = format!("a client can't have more than {NAMES_MAX} prepared statements at once");
    ErrorResponse::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
}

/// Asks a server which of the names that are lent have statements of the protocol.
pub(super) fn ask_for_names(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let sql = server.lent.ask(server.session.profile());
    send_own(server, scratch, Own::Names, &sql, io);
    server.preparation = Preparation::UnderWay;
}

/// Closes the statements that a server has under names of its client's; `false` if there are none.
pub(super) fn close_lent(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    if server.lent.is_empty() {
        return false;
    }
    scratch.clear();
    for name in server.lent.take_all() {
        message::put_statement_message(scratch, FrontendKind::Close, &name);
        server.exchange.expect(Expected::OwnClose);
    }
    scratch.extend_from_slice(&SYNC);
    server.exchange.expect(Expected::Own(Own::Prepare));
    io.send(server.conn, scratch);
    true
}
