//! Commands that Sluice carries out by itself, in transaction mode: a `DEALLOCATE` of what only it knows, and a `BEGIN`
//! that no server has to see before there is something to do (docs/decisions/0008).

use std::ops::RangeInclusive;

use sluice_wire::{
    BackendKind, ErrorResponse, FrontendKind,
    message::{self, BIND_COMPLETE, BindNames, NO_DATA, Named, Parse, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Begun, OwnPortal},
    io::Io,
    replies::{Expected, Local, Taken},
    server::Left,
    sql::{self, Command, Effects, Ending, Reset, effects, effects_of_beginning},
    statement,
};

use super::{
    begin::send_begin,
    frontend::{ClientRelay, Seen, Step, Stop},
    lending::{Bearer, effects_with, may_copy, resets_with, run},
    standing_in::{in_failed_transaction, is_bare},
};

/// ParameterDescription of a statement without parameters.
const NO_PARAMETERS: [u8; 7] = [BackendKind::ParameterDescription.byte(), 0, 0, 0, 6, 0, 0];

/// By the simple protocol.
impl<'a, I: Io> ClientRelay<'a, I> {
    /// A Query with a server.
    pub(super) fn query(&mut self, seen: Seen<'a>) -> Step {
        if !self.is_transaction_mode() {
            if seen.is_to_come_whole() {
                // It may leave what DISCARD ALL does not take away.
                return Step::Incomplete(seen.total);
            }
            let text = seen.body.strip_suffix(b"\0").unwrap_or(seen.body);
            self.server().expect_for_session(text, seen.is_whole());
            return self.pass_query(seen, false, None);
        }
        let can_be_read = !seen.is_whole() && seen.total <= self.message_bytes_max;
        if seen.is_to_come_whole() || (can_be_read && !self.server().session.reports()) {
            // A server that does not say what its session holds is asked for what a text may do.
            return Step::Incomplete(seen.total);
        }
        if self.drop_failed(seen) {
            return Step::Next;
        }
        if self.may_keep_unnamed() {
            return self.wait_for_answers();
        }
        if seen.is_whole() && !matches!(message::split_cstr(seen.body), Some((_, []))) {
            // PostgreSQL refuses it before it takes anything away.
            return self.pass_query(seen, false, None);
        }
        let command = self.command_in(seen);
        let server = self.server();
        let is_quiet = server.is_settled() && server.exchange.reported_status() != TransactionStatus::Failed;
        if is_quiet && self.query_of_own(seen, command.as_ref(), false) {
            return Step::Next;
        }
        if self.waits_to_forget(command.as_ref()) {
            return self.wait_for_answers();
        }
        if let Some(step) = self.part_batch() {
            return step;
        }
        let text = seen.body.strip_suffix(b"\0").unwrap_or(seen.body);
        let mut effects = if seen.is_whole() { effects(text) } else { effects_of_beginning(text) };
        let meant = self.meant_by(effects, text);
        if !seen.is_whole() {
            // What is still to come may take all of them away.
            effects.insert(Effects::NAMES);
        }
        if let Some(step) = self.lend(&meant, Bearer::Query) {
            return step;
        }
        self.restore_within(text);
        self.session.drop_unnamed();
        let clears = matches!(command, Some(Command::DeallocateAll | Command::DiscardAll));
        if let Some(step) = self.prepare_for(effects_with(effects, &meant), text) {
            return step;
        }
        let may_reset = effects.intersects(Effects::STATE | Effects::CONTEXT) && seen.is_whole();
        let resets = may_reset.then(|| sql::reset(text)).flatten();
        self.server().statements.set_unnamed(None);
        // A statement that SQL executes may have the tag of a SET as well.
        if resets.is_some()
            && run(&meant).next().is_none()
            && let Some(step) = self.query_amended(seen, clears)
        {
            return step;
        }
        let resets = resets_with(resets, &meant);
        let leads_to = match self.server().exchange.reported_status() {
            TransactionStatus::Failed => sql::leads_to(text),
            // What is waited for when the server is lost.
            _ if self.follows_blocks() && seen.is_whole() => sql::end(text).and(Some(TransactionStatus::Idle)),
            _ => None,
        };
        let step = self.pass_query(seen, clears, resets);
        let exchange = &mut self.server().exchange;
        exchange.lead_to(leads_to);
        if may_copy(&meant) {
            exchange.may_begin_copy();
        }
        step
    }

    /// Calls a function by its number.
    pub(super) fn function_call(&mut self, seen: Seen<'a>) -> Step {
        if self.drop_failed(seen) {
            return Step::Next;
        }
        if !self.is_transaction_mode() {
            // Whatever it leaves.
            self.server().session.add_effects(Effects::SPENDS_SERVER);
            return self.pass_query(seen, false, None);
        }
        let Some((oid, arguments)) = seen.body.split_first_chunk() else {
            return if seen.is_whole() { self.pass_query(seen, false, None) } else { Step::Incomplete(5 + 4) };
        };
        if self.may_keep_unnamed() || self.may_end_portal() {
            return self.wait_for_answers();
        }
        if let Some(step) = self.part_batch() {
            return step;
        }
        self.restore_within(b"");
        let oid = u32::from_be_bytes(*oid);
        let effects = function_effects(oid);
        if self.may_name_custom(effects, seen) {
            return Step::Incomplete(seen.total);
        }
        if let Some(step) = self.prepare_for(effects, b"") {
            return step;
        }
        // Its answer has no command tag that would tell of its success.
        self.server().session.has_run();
        if LOCK_SESSION.contains(&oid) || effects.intersects(Effects::SEED) {
            self.server().exchange.leave(Left::Within);
        }
        // They stand there as the parameters do in a Bind.
        self.note_customs(effects, seen, seen.body.len() - arguments.len());
        self.end_portal();
        self.pass_query(seen, false, None)
    }

    /// Lets a Query or FunctionCall through, which brings its own ReadyForQuery: the batch before it needs no Sync.
    pub(super) fn pass_query(&mut self, seen: Seen<'a>, clears: bool, resets: Option<Reset>) -> Step {
        let server = self.server();
        if server.exchange.runs() && server.exchange.reported_status() == TransactionStatus::Idle {
            // PostgreSQL 18 may refuse the next statement behind such a batch, whoever sends it; 15 does not.
            server.is_worn |= server.parameters.version().is_none_or(|version| version >= 16);
        }
        let resets = Reset::both(self.server().exchange.take_resets(), resets.as_ref());
        let text = seen.body.strip_suffix(b"\0").unwrap_or(seen.body);
        let may_copy = seen.kind == FrontendKind::Query && (!seen.is_whole() || sql::may_copy_in(text));
        let resets = resets.map(Into::into);
        self.pass_expecting(seen, Expected::Query { clears, resets, amended: None, is_amid: false });
        if seen.kind == FrontendKind::Query {
            let text = seen.body.strip_suffix(b"\0").filter(|_| seen.is_whole());
            if let Some(ending) = text.map(Ending::of).or_else(|| self.follows_blocks().then_some(Ending::Open)) {
                self.note_ending(ending);
            }
        }
        let exchange = &mut self.server().exchange;
        match may_copy {
            true => exchange.may_begin_copy(),
            false => exchange.note_text(),
        }
        Step::Next
    }

    /// A text is sent that does that to the block which is open.
    pub(super) fn note_ending(&mut self, ending: Ending) {
        match self.follows_blocks() {
            true => self.server().exchange.end_block(ending),
            false => self.server().exchange.note_end(ending),
        }
    }

    /// Whether it matters which texts may end a block: where its server may be lost and the client stays.
    pub(super) fn follows_blocks(&self) -> bool {
        self.session.pool.upstream.cluster.is_some()
    }

    /// A Query without a server.
    pub(super) fn query_without_server(&mut self, seen: Seen<'a>) -> Step {
        if self.drop_failed(seen) || self.end_without_server(seen) {
            return Step::Next;
        }
        // What a failed transaction refuses is PostgreSQL's to say.
        let has_failed = self.session.status() == TransactionStatus::Failed;
        let command = self.command_in(seen).filter(|_| !has_failed);
        if self.query_of_own(seen, command.as_ref(), true) { Step::Next } else { Step::Stop(Stop::NeedServer) }
    }

    /// Ends a transaction that no server knows of; `false` if there is none, or the Query is something else.
    fn end_without_server(&mut self, seen: Seen<'a>) -> bool {
        let Some(begun) = self.session.begun else { return false };
        let Some(tag) = text_of(seen).and_then(sql::end) else { return false };
        self.session.begun = None;
        self.answer_query(seen, if begun.failed { "ROLLBACK" } else { tag });
        true
    }

    /// Carries out a Query that no server has to see: about names that only Sluice knows, or a BEGIN. `alone` says that
    /// the client has no server that could be concerned too.
    fn query_of_own(&mut self, seen: Seen<'a>, command: Option<&Command>, alone: bool) -> bool {
        let tag = match command {
            Some(Command::Deallocate(name)) if self.session.forget(name).is_some() => {
                self.drop_servers_portal();
                "DEALLOCATE"
            }
            Some(Command::DeallocateAll) if alone => {
                self.session.names = None;
                "DEALLOCATE ALL"
            }
            Some(Command::DiscardAll)
                if alone && self.session.begun.is_none() && self.session.profile == self.session.start =>
            {
                self.session.names = None;
                self.session.forget_sequences();
                "DISCARD ALL"
            }
            Some(Command::Begin(begin)) if alone && self.may_begin() => {
                self.session.begun = Some(Begun::new(*begin, true));
                begin.tag
            }
            _ => return false,
        };
        self.answer_query(seen, tag);
        true
    }

    /// Takes the unnamed portal away that the client may have on its server, as each Query does.
    fn drop_servers_portal(&mut self) {
        self.flush();
        let Some(server) = &mut self.server else { return };
        if server.exchange.reported_status() != TransactionStatus::InTransaction {
            return;
        }
        self.scratch.clear();
        message::put_portal_message(self.scratch, FrontendKind::Close, b"");
        server.exchange.expect(Expected::OwnClose);
        self.send_own_sync(None);
    }

    /// Keeps a Query from the server, and tells the client that it is done.
    fn answer_query(&mut self, seen: Seen<'a>, tag: &str) {
        self.session.drop_unnamed();
        self.drop_message(seen);
        let status = self.server.as_ref().map_or_else(|| self.session.status(), |s| s.exchange.reported_status());
        self.scratch.clear();
        message::put_command_complete(self.scratch, tag);
        self.scratch.append(&mut self.session.reports.take());
        self.scratch.extend_from_slice(&status.ready_for_query());
        self.io.send(self.client, self.scratch);
        self.scratch.clear();
    }

    /// The command that a Query is, if it is one alone, and not of a name that is lent.
    fn command_in(&self, seen: Seen<'_>) -> Option<Command> {
        // Few texts begin like one: only those are searched for a zero byte.
        let command = seen.body.strip_suffix(b"\0").and_then(sql::command)?;
        text_of(seen)?;
        let is_servers = matches!(&command, Command::Deallocate(name) if self.is_lent(name));
        (!is_servers).then_some(command)
    }

    /// Whether a Query forgets a name that only Sluice knows, and answers are still to come that it must stand behind.
    /// Inside a batch those come with a Sync that may never be sent: there the server answers that it has no such name.
    fn waits_to_forget(&mut self, command: Option<&Command>) -> bool {
        let server = self.server();
        if !server.exchange.owes() || !server.exchange.is_closed() {
            return false;
        }
        matches!(command, Some(Command::Deallocate(name)) if self.session.named(name).is_some())
    }
}

/// By the extended protocol: the unnamed portal may be such a command.
impl<'a, I: Io> ClientRelay<'a, I> {
    /// Whether a Parse is of a BEGIN that may be answered without a server: it needs none to be right.
    pub(super) fn begins(&self, parse: &Parse<'_>) -> bool {
        self.may_begin() && statement::begin_of(parse.definition).is_some()
    }

    /// Whether a BEGIN may be answered here and now.
    fn may_begin(&self) -> bool {
        let session = &self.session;
        let may = self.server.is_none() && session.pool.sharing.lazy_begin && session.begun.is_none();
        // The time that the client has for its transaction is the server's to measure.
        may && !session.profile.limits().in_transactions
    }

    /// The portal of one of the client's statements, if Sluice carries that out.
    fn own_portal_of(&self, statement: &[u8]) -> Option<OwnPortal> {
        let has_lent = self.server.as_ref().is_some_and(|server| !server.lent.is_empty());
        if !statement.is_empty() && !self.session.may_have_commands() && !has_lent {
            return None;
        }
        let statement = self.statement_named(statement)?;
        if !statement.is_command() {
            return None;
        }
        if let Some(name) = statement.deallocates.as_deref() {
            let is_known = self.session.named(name).is_some() && !self.is_lent(name);
            let is_known = is_known && !self.is_in_failed_transaction();
            return is_known.then(|| OwnPortal::Deallocate(name.into()));
        }
        if !self.may_begin() {
            return None;
        }
        Some(OwnPortal::Begin(statement.begins?))
    }

    /// A Bind; `None` if it is not of such a command.
    pub(super) fn bind_own(&mut self, seen: Seen<'a>, names: &BindNames<'a>) -> Option<Step> {
        if !names.portal.is_empty() {
            return None;
        }
        let portal = self.own_portal_of(names.statement)?;
        if self.server.as_ref().is_some_and(|server| server.exchange.replies().decide_status()) {
            // What is under way may fail, and the transaction with it.
            return Some(self.wait_for_answers());
        }
        if seen.is_to_come_whole() {
            return Some(Step::Incomplete(seen.total));
        }
        let is_bare = seen.is_whole() && is_bare(&seen.body[names.bytes..]);
        // With parameters it is an error, and so is one that makes no sense: the server's to raise.
        match portal {
            OwnPortal::Deallocate(_) if !is_bare => {
                self.server.as_ref()?;
                return Some(self.bind_stand_in(seen, names, &[0, 0]));
            }
            OwnPortal::Begin(_) if !is_bare => return None,
            _ => {}
        }
        self.session.bound = None;
        self.session.portal = Some(portal);
        self.answer_own(seen, &[&BIND_COMPLETE]);
        Some(Step::Next)
    }

    /// A Describe; `false` if it is not of such a command.
    pub(super) fn describe_own(&mut self, seen: Seen<'a>, named: &Named<'_>) -> bool {
        match named {
            Named::Statement(name) if self.own_portal_of(name).is_some() => {
                self.answer_own(seen, &[&NO_PARAMETERS, &NO_DATA]);
            }
            Named::Portal(b"") if self.session.portal.is_some() => self.answer_own(seen, &[&NO_DATA]),
            _ => return false,
        }
        true
    }

    /// An Execute; `false` if it is not of such a command.
    pub(super) fn execute_own(&mut self, seen: Seen<'a>) -> bool {
        // The unnamed one, and a number of rows.
        let is_its = seen.body.first() == Some(&0) && seen.body.len() == 5;
        if !is_its {
            return false;
        }
        if self.session.portal.is_some() && self.is_in_failed_transaction() {
            // The server has no such portal.
            self.drop_message(seen);
            self.refuse(in_failed_transaction("exec_execute_message"));
            return true;
        }
        let Some(portal) = self.session.portal.take() else { return false };
        let (tag, taken) = match portal {
            OwnPortal::Begin(begin) => {
                self.begin(Begun::new(begin, false));
                (begin.tag, None)
            }
            OwnPortal::Deallocate(name) if self.is_lent(&name) => {
                // Since it was bound.
                self.server().expect_text(Effects::STATE | Effects::NAMES, b"");
                self.put_deallocate(&name);
                return false;
            }
            OwnPortal::Deallocate(name) => match self.session.forget(&name) {
                Some(prepared) => {
                    // What stands behind it in its batch does not stand alone, as `SET TRANSACTION` would find.
                    self.flush();
                    self.put_own(Some("SHOW TimeZone"));
                    ("DEALLOCATE", Some((name, prepared)))
                }
                None if self.server.is_some() => {
                    self.put_deallocate(&name);
                    return false;
                }
                None => {
                    self.session.portal = Some(OwnPortal::Deallocate(name));
                    return false;
                }
            },
            OwnPortal::Done if self.server.is_some() => {
                self.drop_message(seen);
                self.refuse(has_run());
                return true;
            }
            OwnPortal::Done => {
                self.session.portal = Some(OwnPortal::Done);
                return false;
            }
        };
        self.session.portal = Some(OwnPortal::Done);
        let mut complete = Vec::with_capacity(32);
        message::put_command_complete(&mut complete, tag);
        self.drop_message(seen);
        self.answer_bytes(&complete, taken);
        true
    }

    /// The client's transaction begins: on its server, or on the one that it will get.
    fn begin(&mut self, begun: Begun) {
        self.flush();
        match &mut self.server {
            Some(server) => send_begin(self.now, server, self.scratch, begun, self.io),
            None => self.session.begun = Some(begun),
        }
    }

    /// Keeps a message from the server, and answers it.
    fn answer_own(&mut self, seen: Seen<'a>, answers: &[&[u8]]) {
        self.drop_message(seen);
        for answer in answers {
            self.answer_bytes(answer, None);
        }
    }

    /// Gives the client an answer of Sluice's own, when those before it have come.
    fn answer_bytes(&mut self, bytes: &[u8], taken: Option<Taken>) {
        match &mut self.server {
            Some(server) if server.exchange.owes() => {
                server.exchange.expect(Expected::Local(Local::Message(bytes.into(), taken).into()));
            }
            _ => self.io.send(self.client, bytes),
        }
    }
}

/// PostgreSQL's error for the unnamed portal where that has run.
fn has_run() -> ErrorResponse {
    ErrorResponse::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "portal \"\" cannot be run")
        .routine("MarkPortalActive")
}

/// `currval` and `lastval`, by their numbers in `pg_proc.dat`.
const READ_SEQUENCES: [u32; 2] = [1575, 2559];

/// `setseed`.
const SETS_SEED: u32 = 1599;

/// The functions that take and free advisory locks of the session.
const LOCK_SESSION: RangeInclusive<u32> = 2880..=2892;

/// The functions for large objects, by which drivers write and read them. Their names are among those that leave nothing
/// (`sql/harmless.txt`), and bytes that are written are no code.
const LARGE_OBJECTS: [u32; 20] =
    [715, 764, 765, 767, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172, 3457, 3458, 3459, 3460];

/// The effects of a function that is called by its number.
fn function_effects(oid: u32) -> Effects {
    match oid {
        oid if LARGE_OBJECTS.contains(&oid) => Effects::empty(),
        SETS_SEED => Effects::ANYTHING | Effects::SEED,
        oid if READ_SEQUENCES.contains(&oid) => Effects::ANYTHING | Effects::READS_SEQUENCE,
        _ => Effects::ANYTHING,
    }
}

/// The text of a Query, if all of it has come.
fn text_of(seen: Seen<'_>) -> Option<&[u8]> {
    match seen.is_whole().then(|| message::split_cstr(seen.body)).flatten() {
        Some((text, [])) => Some(text),
        _ => None,
    }
}
