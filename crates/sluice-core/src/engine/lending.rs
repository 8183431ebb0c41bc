//! Names that are lent. In PostgreSQL, prepared statements of the protocol and of SQL share their names. A client's
//! names of the protocol are known to the pool alone, so those that SQL speaks of are lent to the server
//! (docs/decisions/0016): it has the statements under these names while SQL may mean them, and the client's messages
//! that name one of them go to it as they are.
//!
//! A name is lent before a text that speaks of it is sent, and from its Parse on where SQL may have made it. When the
//! transaction has ended, the server is asked which of them are left; before it goes to anybody else, all are closed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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
    standing_in::types_of,
};

/// Statements of the protocol that a text of SQL speaks of.
pub(super) type Meant = Vec<Spoken>;

/// One of them.
pub(super) struct Spoken {
    name: Box<[u8]>,
    statement: Arc<Statement>,
    /// Whether the text may run it, or what it runs: else its name is only given, or forgotten.
    is_run: bool,
    /// Whether a stand-in serves as well, which can always be parsed.
    may_stand_in: bool,
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
                let query = statement.clone();
                stack.push(Visit::Done(Spoken { name, statement, is_run, may_stand_in: false }));
                if query.effects.intersects(Effects::NAMES) {
                    stack.extend(named(query.query(), is_run));
                }
            }
        }
        meant
    }

    /// The same of a Query. What it does not run can be a stand-in where nothing can use that before the server is asked
    /// which names it has: no block is open that could go on behind a failure, by a savepoint, and the text has one
    /// reading.
    pub(super) fn meant_by_query(&mut self, effects: Effects, text: &[u8], is_whole: bool) -> Meant {
        let mut meant = self.meant_by(effects, text);
        self.take_stand_ins_from(text, &meant);
        let has_one_reading = is_whole && text.is_ascii() && !text.contains(&b'\\');
        if meant.iter().all(|spoken| spoken.is_run)
            || !has_one_reading
            || sql::has_word(text, b"savepoint")
            || self.server().exchange.expected_status() != TransactionStatus::Idle
        {
            return meant;
        }
        let names_in = |text: &[u8]| {
            sql::statements_named(text).into_iter().map(|named| Box::<[u8]>::from(known_name(&named.name)))
        };
        let in_text: BTreeSet<_> = names_in(text).collect();
        let in_run: BTreeSet<_> = run(&meant).flat_map(|statement| names_in(statement.query())).collect();
        // Nothing has to be known of what a stand-in would have spoken of.
        meant.retain(|spoken| spoken.is_run || in_text.contains(&spoken.name) || in_run.contains(&spoken.name));
        for spoken in meant.iter_mut().filter(|spoken| !spoken.is_run && !in_run.contains(&spoken.name)) {
            spoken.may_stand_in = !sql::ends_transaction(spoken.statement.query());
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
        let is_apart = |Spoken { statement, may_stand_in, .. }: &&Spoken| {
            !may_stand_in && statement.is_lent_apart(self.context_in_place())
        };
        let in_block = server.exchange.expected_status() == TransactionStatus::InTransaction;
        let in_doubt = is_within && !in_block && !server.session.knows_settings();
        if in_doubt && missing.iter().any(is_apart) && self.asks_for_settings() {
            return Some(Step::Stop(Stop::Hold));
        }
        self.flush();
        for Spoken { name, statement, may_stand_in, .. } in missing {
            match may_stand_in {
                true => self.send_stand_in(name, statement),
                false => self.parse_apart(statement, Some(name), SentFor::Use, false),
            }
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

    /// Prepares a stand-in under a name of the client's, for a text that only gives that name, or forgets it. PostgreSQL
    /// refuses it in a failed transaction as it would refuse the statement.
    fn send_stand_in(&mut self, name: &[u8], statement: &Statement) {
        let types = types_of(statement);
        // Where it has none, PostgreSQL has to be told them all: 0 and 705 are types to be found out.
        let (numbers, _) = types[2..].as_chunks();
        let are_known = numbers.iter().all(|number| !matches!(u32::from_be_bytes(*number), 0 | 705));
        let has_rows = are_known && sql::returns_rows(statement.query());
        let text: &[u8] = if has_rows { b"SELECT 1\0" } else { b"\0" };
        self.scratch.clear();
        Parse::write(self.scratch, name, &[text, &types].concat());
        let server = self.server();
        server.lent.lend_stand_in(name);
        let sent = ParseSent { by: By::Lent(name.into()), ..ParseSent::unfollowed(SentFor::Use) };
        server.exchange.expect(Expected::Parse(sent.into()));
        self.send_scratch();
    }

    /// Has a Query not run stand-ins that are left in a failed transaction, which it ends first.
    fn take_stand_ins_from(&mut self, text: &[u8], meant: &Meant) {
        let server = self.server();
        let is_failed = server.lent.has_stand_ins() && server.exchange.reported_status() == TransactionStatus::Failed;
        if !is_failed || !sql::ends_transaction(text) {
            return;
        }
        let left = meant.iter().filter(|spoken| spoken.is_run && server.lent.has_stand_in(&spoken.name));
        let left: Vec<_> = left.map(|spoken| &spoken.name).collect();
        self.flush();
        self.scratch.clear();
        for name in left {
            message::put_statement_message(self.scratch, FrontendKind::Close, name);
            self.server().exchange.expect(Expected::OwnClose);
        }
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

/// Closes the stand-ins that a server has under names of its client's, which a text has not forgotten.
pub(super) fn close_stand_ins(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let names = server.lent.take_stand_ins();
    send_closes(server, names, scratch, io);
    server.preparation = Preparation::UnderWay;
}

/// Closes the statements that a server has under names of its client's; `false` if there are none.
pub(super) fn close_lent(server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) -> bool {
    if server.lent.is_empty() {
        return false;
    }
    let names = server.lent.take_all();
    send_closes(server, names, scratch, io);
    true
}

fn send_closes(server: &mut Server, names: BTreeSet<Box<[u8]>>, scratch: &mut Vec<u8>, io: &mut impl Io) {
    scratch.clear();
    for name in names {
        message::put_statement_message(scratch, FrontendKind::Close, &name);
        server.exchange.expect(Expected::OwnClose);
    }
    scratch.extend_from_slice(&SYNC);
    server.exchange.expect(Expected::Own(Own::Prepare));
    io.send(server.conn, scratch);
}
