//! Prepared statements among what a client says. In transaction mode a client's names are its own, and the statements
//! behind them are shared.

use std::sync::Arc;

use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{self, BindNames, Named, Parse},
    sqlstate,
};

use crate::{
    client::NAMES_MAX,
    io::Io,
    replies::{Called, DescribedAs, Expected, Local, ParseSent, Portal, SentFor},
    server::{There, Turn},
    shape::Shape,
    sql::{self, Effects, Ending},
    statement::{NameTag, Open, Prepared, Statement, StatementId, Terms, Unnamed, known_name},
};

use super::{
    frontend::{ClientRelay, Seen, Step, Stop},
    lending::{Bearer, effects_with, may_copy, resets_with},
    losing::turn_of,
    standing_in::{Absence, has_other_count, types_of},
};

/// The meaning of a client's statement name.
enum Meaning {
    /// The shared statement.
    Shared(Prepared),
    /// The server's own unnamed statement, which is this client's.
    Raw,
    /// Nothing that Sluice knows, or a name that is lent; the server may know it (SQL's PREPARE).
    Servers,
    /// Nothing at all.
    Missing,
}

/// Bytes that may follow a Bind in its batch: a Describe, an Execute and a Sync.
pub(super) const REST_BYTES: usize = 64;

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Without a server: names can be given and forgotten, and that is all.
    pub(super) fn statement_without_server(&mut self, seen: Seen<'a>) -> Step {
        let need_server = Step::Stop(Stop::NeedServer);
        if !seen.is_whole() {
            return match seen.kind {
                FrontendKind::Parse | FrontendKind::Describe | FrontendKind::Close => self.incomplete(seen),
                _ => need_server,
            };
        }
        match seen.kind {
            FrontendKind::Parse => {
                let Ok(parse) = Parse::read(seen.body) else { return need_server };
                // Held until it is used, so that no other worker makes room in its place.
                let terms = self.terms(parse.name.is_empty());
                let known = terms.and_then(|terms| self.known(parse.definition, terms));
                let known = known.filter(|statement| statement.is_accepted_of_late(self.now));
                let servable = (!self.has_begun_with_snapshot() || self.is_bound_behind(parse.name, 1))
                    && (known.is_some() || self.begins(&parse))
                    && if parse.name.is_empty() {
                        self.session.pool.sharing.auto_prepare
                    } else {
                        // An error has to come from a server.
                        self.session.named(parse.name).is_none()
                            && self.session.names.as_ref().is_none_or(|names| names.len() < NAMES_MAX)
                    };
                if !servable {
                    return need_server;
                }
                self.note_parse(parse.query);
                self.parse(seen, parse, known)
            }
            FrontendKind::Close => match Named::read(seen.body, "Close") {
                Ok(Named::Statement(_)) => self.close(seen),
                _ => need_server,
            },
            FrontendKind::Bind => {
                let names = BindNames::read(seen.body);
                names.and_then(|names| self.bind_own(seen, &names)).unwrap_or(need_server)
            }
            FrontendKind::Describe => match Named::read(seen.body, "Describe") {
                Ok(named) if self.describe_own(seen, &named) => Step::Next,
                _ => need_server,
            },
            FrontendKind::Execute if self.execute_own(seen) => Step::Next,
            _ => need_server,
        }
    }

    /// The shared statement of a definition, if there is one. Many clients send one and the same over and over: it is the
    /// one that they have.
    fn known(&self, definition: &[u8], terms: Terms) -> Option<Arc<Statement>> {
        match self.session.unnamed_of(definition, terms) {
            Some(statement) => Some(statement.clone()),
            None => self.session.pool.statements.find(definition, terms),
        }
    }

    /// With a server.
    pub(super) fn statement(&mut self, seen: Seen<'a>) -> Step {
        if self.waits_for_settings() {
            self.flush();
            return self.wait_for_answers();
        }
        let step = self.statement_now(seen);
        if matches!(step, Step::Next) {
            // What comes may set others.
            self.forget_answer();
        }
        step
    }

    /// Session mode: the names are the server's own, only the answers are counted.
    pub(super) fn statement_as_it_is(&mut self, seen: Seen<'a>) -> Step {
        if seen.kind == FrontendKind::Parse {
            if seen.is_to_come_whole() {
                return Step::Incomplete(seen.total);
            }
            let text = match Parse::read(seen.body) {
                Ok(parse) => parse.query,
                Err(_) => message::split_cstr(seen.body).map_or(&[][..], |(_, text)| text),
            };
            self.server().expect_for_session(text, seen.is_whole());
            if !seen.is_whole() || sql::may_copy_in(text) {
                self.server().exchange.may_prepare_copy();
            }
        }
        let expected = match seen.kind {
            FrontendKind::Parse => Expected::Parse(ParseSent::unfollowed(SentFor::Parse).into()),
            FrontendKind::Bind => Expected::Bind(None, Portal::Unnamed),
            FrontendKind::Describe => Expected::Describe(None, None),
            FrontendKind::Close => Expected::Close(None),
            _ => Expected::Execute { portal: Portal::Unnamed, rows_max: 0 },
        };
        self.pass_expecting(seen, expected);
        if seen.kind == FrontendKind::Execute {
            self.server().exchange.note_execute();
        }
        Step::Next
    }

    fn statement_now(&mut self, seen: Seen<'a>) -> Step {
        match seen.kind {
            FrontendKind::Bind => self.bind(seen),
            _ if !seen.is_whole() => self.incomplete(seen),
            FrontendKind::Execute => {
                if self.may_lack_portal() && seen.body.starts_with(&[0]) {
                    return self.wait_for_answers();
                }
                if self.session.portal.is_some() && self.execute_own(seen) {
                    return Step::Next;
                }
                self.restore_within(b"");
                let (portal, rest) = message::split_cstr(seen.body).unwrap_or_default();
                let rows_max = rest.first_chunk().map_or(0, |rows| u32::from_be_bytes(*rows));
                self.server().exchange.run_portal(portal);
                self.pass_expecting(seen, Expected::Execute { portal: Portal::of(portal), rows_max });
                self.server().exchange.note_execute();
                Step::Next
            }
            FrontendKind::Parse => match Parse::read(seen.body) {
                Ok(parse) => {
                    if let Some(step) = self.part_batch() {
                        return step;
                    }
                    self.restore_within(parse.query);
                    self.parse(seen, parse, None)
                }
                Err(_) => self.pass_malformed(seen),
            },
            FrontendKind::Describe => self.describe(seen),
            _ => self.close(seen),
        }
    }

    /// Sees that the server has a shared statement before it is used, and that the use can be repeated if the
    /// statement proves stale. `there` is the statement as the server has it; `open` is what the client can't count on.
    /// Returns that, if the server has described it.
    fn ensure(
        &mut self,
        statement: &Arc<Statement>,
        there: Option<There>,
        open: Open,
        sent_for: SentFor,
    ) -> Option<Shape> {
        let there = self.usable(statement, there, !open.types);
        let server = self.server();
        if !server.session.is_plain() && statement.terms.is_some() {
            server.statements.taint(statement.id);
        }
        let Some(there) = there else {
            self.send_parse(ParseSent::own_of(statement.clone(), sent_for, open.types));
            return None;
        };
        if server.is_fresh() {
            self.flush();
            self.server().exchange.replay().begin(statement.clone(), open);
        }
        there.shape
    }

    /// Whether servers may have a shared statement by that name.
    fn is_the_pools(&self, name: &[u8]) -> bool {
        name.starts_with(&self.session.pool.name_prefix)
    }

    fn meaning(&mut self, name: &[u8]) -> Meaning {
        if !name.is_empty() {
            return match self.follow_settings(name).cloned() {
                _ if self.is_lent(name) => Meaning::Servers,
                Some(prepared) => Meaning::Shared(prepared),
                None if self.is_the_pools(name) => Meaning::Missing,
                None => Meaning::Servers,
            };
        }
        match &self.session.unnamed {
            None => Meaning::Missing,
            Some(unnamed) if self.is_servers_unnamed(unnamed) => Meaning::Raw,
            Some(Unnamed { prepared, .. }) => Meaning::Shared(prepared.clone()),
        }
    }

    fn bind(&mut self, seen: Seen<'a>) -> Step {
        let Some(names) = BindNames::read(seen.body) else {
            return match seen.is_whole() {
                true => self.pass_malformed(seen),
                // Only the names have to be seen, however much follows them.
                // Not for each byte that comes.
                false if seen.body.len() < self.message_bytes_max => {
                    Step::Incomplete((2 * (5 + seen.body.len())).min(seen.total))
                }
                false => self.incomplete(seen),
            };
        };
        if names.statement.is_empty() && self.is_unnamed_open() {
            return self.wait_for_answers();
        }
        let step = self.wait_for_name(names.statement).or_else(|| self.part_batch());
        if let Some(step) = step.or_else(|| self.reread(names.statement)) {
            return step;
        }
        let meaning = self.meaning(names.statement);
        if !self.refuses_bind(&meaning) {
            self.server().exchange.bind_portal(names.portal, None, None, Turn::default());
        }
        let is_command = match &meaning {
            Meaning::Shared(prepared) => prepared.statement.is_command(),
            Meaning::Raw | Meaning::Servers | Meaning::Missing => true,
        };
        if is_command && let Some(step) = self.bind_own(seen, &names) {
            return step;
        }
        self.session.bound = None;
        if names.portal.is_empty() {
            self.session.portal = None;
        }
        match meaning {
            Meaning::Shared(prepared) => {
                let step = self.bind_shared(seen, names, prepared);
                // Where it has to wait, it comes again.
                self.session.renewed &= matches!(step, Step::Stop(_) | Step::Incomplete(_));
                step
            }
            Meaning::Raw | Meaning::Servers => self.bind_as_it_is(seen, &names),
            Meaning::Missing => self.pass_missing(seen, names.statement),
        }
    }

    /// Whether PostgreSQL refuses a Bind for certain, before it takes away what the portal was.
    fn refuses_bind(&self, meaning: &Meaning) -> bool {
        match meaning {
            Meaning::Missing => true,
            Meaning::Shared(prepared) => prepared.statement.leads_to.is_none() && self.is_in_failed_transaction(),
            Meaning::Raw | Meaning::Servers => false,
        }
    }

    /// A Bind of a statement that the server has by the client's name.
    fn bind_as_it_is(&mut self, seen: Seen<'a>, names: &BindNames<'a>) -> Step {
        let statement = self.statement_named(names.statement).cloned();
        let mut effects = statement.as_ref().map_or(Effects::ANYTHING, |statement| statement.effects);
        if !names.statement.is_empty() && self.server().lent.are_in_doubt() {
            // It may have become one of SQL's.
            effects.insert(Effects::ANYTHING);
        }
        if self.may_name_custom(effects, seen) {
            return Step::Incomplete(seen.total);
        }
        let text = statement.as_ref().map_or(&[][..], |statement| statement.query());
        self.restore_within(text);
        let meant = self.meant_by(effects, text);
        if let Some(step) = self.lend(&meant, Bearer::Batch) {
            return step;
        }
        let effects = effects_with(effects, &meant);
        if let Some(step) = self.prepare_for(effects, text) {
            return step;
        }
        self.note_customs(effects, seen, names.bytes);
        let resets = resets_with(statement.as_ref().and_then(|statement| statement.resets.clone()), &meant);
        let sets = effects.intersects(Effects::STATE).then_some(text);
        let turn = statement.as_ref().map_or(Turn::UNKNOWN, |statement| turn_of(statement, seen, names));
        self.server().exchange.bind_portal(names.portal, resets, sets, turn);
        if may_copy(&meant) || statement.is_some_and(|statement| statement.may_copy) {
            self.server().exchange.may_bind_copy();
        }
        self.pass_expecting(seen, Expected::Bind(None, Portal::of(names.portal)))
    }

    /// Lets a message through that speaks of a statement which is not there: the server says so.
    fn pass_missing(&mut self, seen: Seen<'a>, name: &[u8]) -> Step {
        if self.is_the_pools(name) {
            self.drop_message(seen);
            return self.refuse(no_such_statement(name));
        }
        self.flush();
        self.scratch.clear();
        // Another client may have left its unnamed statement there.
        message::put_statement_message(self.scratch, FrontendKind::Close, b"");
        let server = self.server();
        server.statements.set_unnamed(None);
        server.exchange.expect(Expected::OwnClose);
        self.send_scratch();
        self.pass_expecting(seen, Expected::Fault)
    }

    fn bind_shared(&mut self, seen: Seen<'a>, names: BindNames<'a>, prepared: Prepared) -> Step {
        let described = self.shape_as_parsed(&prepared, names.statement);
        let open = prepared.open(described, self.now);
        let Prepared { statement, is_bound, .. } = prepared;
        if self.may_name_custom(statement.effects, seen) {
            return Step::Incomplete(seen.total);
        }
        self.flush();
        self.restore_within(statement.query());
        let is_kept = self.server().exchange.replay().has_room(statement.id, seen.total + REST_BYTES);
        if statement.is_unnamed() && !self.session.renewed && !is_kept && !self.can_be_healed() {
            // What the client's own Parse would have been: it is prepared again in what follows.
            self.session.renewed = true;
            let server = self.server();
            server.statements.retire(statement.id);
        }
        if let Some(step) = self.expect_effects(seen, &names, &statement, open.types) {
            return step;
        }
        let there = self.server().statements.find(statement.id);
        let has_other_count = || has_other_count(&seen.body[names.bytes..], &statement);
        match self.absence(&statement, there, !open.types) {
            // PostgreSQL says its name as it was sent, however long that is.
            Absence::Here if known_name(names.statement) != names.statement && has_other_count() => {
                return self.bind_stand_in(seen, &names, &types_of(&statement));
            }
            Absence::Here => {}
            // Its text is parsed again, which may fail.
            Absence::None if names.statement.is_empty() && self.is_unnamed_new() => {}
            Absence::None if !has_other_count() => {}
            Absence::Open => return self.wait_for_answers(),
            Absence::None | Absence::Final => return self.bind_stand_in(seen, &names, &types_of(&statement)),
        }
        let shape = there.and_then(|there| there.shape);
        if let Some(step) = self.check_shape(seen, &statement, described, shape) {
            return step;
        }
        let known = self.ensure(&statement, there, open, SentFor::Use);
        if names.portal.is_empty() && (described.is_none() || described != known) {
            self.session.bound = Some((statement.clone(), DescribedAs(names.statement.into())));
        }
        let rest = seen.total - 5 - names.bytes;
        self.scratch.clear();
        BindNames::write(self.scratch, names.portal, &statement.name, rest);
        self.send_scratch();
        let server = self.server();
        if statement.may_copy {
            server.exchange.may_bind_copy();
        }
        let called = Called { statement, by: NameTag::of(names.statement) };
        server.exchange.expect(Expected::Bind(Some(called), Portal::of(names.portal)));
        if !is_bound {
            self.session.note_bound(names.statement);
        }
        self.replace_head(seen, names.bytes);
        Step::Next
    }

    /// Whether the client's unnamed statement has come with the batch that is open: if its text can be parsed now is part
    /// of what the client asks.
    fn is_unnamed_new(&self) -> bool {
        self.session.unnamed.as_ref().is_some_and(|unnamed| !unnamed.is_of_before)
    }

    /// Does what has to be done before a shared statement is bound, and notes what running it does besides reading and
    /// writing rows; `infers`: its client has not been told its parameters' types. Returns a step where something has to
    /// be done or waited for before.
    fn expect_effects(
        &mut self,
        seen: Seen<'a>,
        names: &BindNames<'a>,
        statement: &Arc<Statement>,
        infers: bool,
    ) -> Option<Step> {
        let has_effects = !(statement.effects - Effects::USES_SEQUENCE).is_empty();
        let is_plain = !has_effects && statement.leads_to.is_none() && statement.ends == Ending::None;
        if is_plain {
            // Nearly all of them. What one of before by that name may have had is forgotten already.
            self.note_sequences(statement.effects);
            self.server().session.add_effects(statement.effects);
            return None;
        }
        let meant = self.meant_by(statement.effects, statement.query());
        if let Some(step) = self.lend(&meant, Bearer::Batch) {
            return Some(step);
        }
        if self.prepare_apart(statement, SentFor::Use, infers) {
            return Some(Step::Stop(Stop::Hold));
        }
        if let Some(step) = self.prepare_for(effects_with(statement.effects, &meant), statement.query()) {
            return Some(step);
        }
        self.note_customs(statement.effects, seen, names.bytes);
        let resets = resets_with(statement.resets.clone(), &meant);
        let sets = statement.effects.intersects(Effects::STATE).then(|| statement.query());
        let exchange = &mut self.server().exchange;
        exchange.bind_portal(names.portal, resets, sets, turn_of(statement, seen, names));
        if may_copy(&meant) {
            exchange.may_bind_copy();
        }
        None
    }

    fn describe(&mut self, seen: Seen<'a>) -> Step {
        let name = match Named::read(seen.body, "Describe") {
            Ok(Named::Statement(b"")) if self.is_unnamed_open() => return self.wait_for_answers(),
            Ok(Named::Portal(b"")) if self.may_lack_portal() => return self.wait_for_answers(),
            Ok(named) if self.describe_own(seen, &named) => return Step::Next,
            Ok(Named::Statement(name)) => name,
            Ok(Named::Portal(name)) => return self.describe_portal(seen, name),
            Err(_) => return self.pass_malformed(seen),
        };
        if let Some(step) = self.wait_for_name(name).or_else(|| self.reread_for_description(name)) {
            return step;
        }
        self.server().exchange.describes(None);
        match self.meaning(name) {
            Meaning::Shared(prepared) => {
                let described = self.shape_as_parsed(&prepared, name);
                if let Some(step) = self.describe_without_result(seen, name, &prepared) {
                    return step;
                }
                let open = prepared.open(described, self.now);
                let Prepared { statement, .. } = prepared;
                self.flush();
                self.restore_within(statement.query());
                let meant = self.meant_by(statement.effects, statement.query());
                if let Some(step) = self.lend(&meant, Bearer::Batch) {
                    return step;
                }
                if self.prepare_apart(&statement, SentFor::Describe, open.types) {
                    return Step::Stop(Stop::Hold);
                }
                let there = self.server().statements.find(statement.id);
                match self.absence(&statement, there, !open.types) {
                    Absence::Here | Absence::None => {}
                    Absence::Open => return self.wait_for_answers(),
                    Absence::Final => return self.describe_stand_in(seen, &statement, described),
                }
                let shape = there.and_then(|there| there.shape);
                if let Some(step) = self.check_shape(seen, &statement, described, shape) {
                    return step;
                }
                self.ensure(&statement, there, open, SentFor::Describe);
                self.drop_message(seen);
                self.scratch.clear();
                message::put_statement_message(self.scratch, FrontendKind::Describe, &statement.name);
                let described_as = self.note_description(Some((statement.id, DescribedAs(name.into()))));
                let server = self.server();
                let called = Called { statement, by: NameTag::of(name) };
                server.exchange.expect(Expected::Describe(Some(called), described_as));
                self.send_scratch();
                Step::Next
            }
            Meaning::Raw => {
                // Another server may have to give the same, later.
                let statement = self.statement_named(name).cloned();
                self.restore_within(statement.as_ref().map_or(&[], |statement| statement.query()));
                let called = statement.map(|statement| Called { statement, by: NameTag::of(name) });
                let described_as = Some(DescribedAs(name.into()));
                self.pass_expecting(seen, Expected::Describe(called, described_as))
            }
            Meaning::Servers => self.pass_expecting(seen, Expected::Describe(None, None)),
            Meaning::Missing => self.pass_missing(seen, name),
        }
    }

    fn describe_portal(&mut self, seen: Seen<'a>, name: &[u8]) -> Step {
        self.server().exchange.describes(Some(known_name(name)));
        let bound = self.session.bound.take().filter(|_| name.is_empty());
        let statement = bound.as_ref().map(|(statement, _)| statement.clone());
        let described_as = self.note_description(bound.map(|(statement, described_as)| (statement.id, described_as)));
        let called = statement.zip(described_as.as_ref());
        let called = called.map(|(statement, described_as)| Called { statement, by: described_as.by() });
        self.pass_expecting(seen, Expected::Describe(called, described_as))
    }

    /// Notes the shape that a Describe tells the client: now if it is known, otherwise when the answer comes.
    fn note_description(&mut self, described: Option<(StatementId, DescribedAs)>) -> Option<DescribedAs> {
        let (id, described_as) = described?;
        match self.server().statements.shape(id) {
            Some(shape) => {
                self.session.note_shape(&described_as.0, id, Some(shape));
                None
            }
            None => Some(described_as),
        }
    }

    fn close(&mut self, seen: Seen<'a>) -> Step {
        let name = match Named::read(seen.body, "Close") {
            Ok(Named::Statement(name)) => name,
            Ok(Named::Portal(name)) => {
                if name.is_empty() {
                    self.session.portal = None;
                }
                self.server().exchange.close_portal(name);
                return self.pass_close(seen);
            }
            Err(_) => return self.pass_malformed(seen),
        };
        if let Some(step) = self.wait_for_name(name) {
            return step;
        }
        let taken = match name {
            b"" if self.may_keep_unnamed() => return self.wait_for_answers(),
            b"" => {
                self.session.unnamed = None;
                None
            }
            name if self.is_lent(name) => {
                return self.pass_expecting(seen, Expected::Close(Some(known_name(name).into())));
            }
            name => match self.session.forget(name) {
                Some(prepared) => Some((known_name(name).into(), prepared)),
                // SQL's PREPARE may have made it on the server; where there is none, closing nothing is no error.
                None if self.server.is_some() && !self.is_the_pools(name) => return self.pass_close(seen),
                None => None,
            },
        };
        self.drop_message(seen);
        self.answer(Local::CloseComplete(taken));
        Step::Next
    }

    /// Whether answers that are still to come decide if the server handles what the client has sent next.
    fn is_open_whether_it_is_skipped(&self) -> bool {
        let exchange = self.server.as_ref().map(|server| &server.exchange);
        exchange.is_some_and(|exchange| {
            exchange.has_open_batch() && !exchange.is_copying() && exchange.replies().have_more_than_begin()
        })
    }

    /// Whether those answers decide if the client's unnamed statement is still there behind what it has sent next.
    pub(super) fn may_keep_unnamed(&self) -> bool {
        self.session.unnamed_turn().is_some() && self.is_open_whether_it_is_skipped()
    }

    /// A Close of what the pool does not know: it may be what ties the client to its server.
    fn pass_close(&mut self, seen: Seen<'a>) -> Step {
        self.server().session.expect_close();
        self.pass_expecting(seen, Expected::Close(None))
    }

    /// Provokes an error on the server, so that it aborts and skips as it would, and has it replaced by `error`.
    pub(super) fn refuse(&mut self, error: ErrorResponse) -> Step {
        self.scratch.clear();
        message::put_failure(self.scratch);
        let server = self.server();
        server.exchange.expect(Expected::Refused(Box::new(error)));
        self.send_scratch();
        Step::Next
    }
}

/// PostgreSQL's error for a client whose statement's result has changed (`RevalidateCachedQuery`); drivers know it,
/// and prepare again.
pub(super) fn changed_result() -> ErrorResponse {
    ErrorResponse::error(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        .routine("RevalidateCachedQuery")
}

fn no_such_statement(name: &[u8]) -> ErrorResponse {
    let message = format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name));
    ErrorResponse::error(sqlstate::INVALID_STATEMENT_NAME, message)
}
