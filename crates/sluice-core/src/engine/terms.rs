//! On what terms a client's statement is shared, and what has to be done to a server before a statement may go to it.

use std::sync::Arc;

use sluice_wire::{
    FrontendKind,
    message::{Named, Parse},
};

use crate::{
    io::Io,
    profile::Profile,
    restoring::restoring,
    server::{REPLAY_BYTES_MAX, There},
    sql::{self, CustomNames, Effects},
    statement::{Knowledge, Prepared, Statement, Terms, known_name},
};

use super::{
    frontend::{ClientRelay, Seen, Step, Stop, has_sync},
    statements::REST_BYTES,
};

/// The messages that are looked at ahead for the end of a batch.
const BATCH_LOOKED_AT_MAX: usize = 1024;

impl<I: Io> ClientRelay<'_, I> {
    /// The terms of a statement that is parsed now; `None` where nobody can say what PostgreSQL makes of it.
    pub(super) fn terms(&self, is_unnamed: bool) -> Option<Terms> {
        let catalog = &self.session.pool.catalog;
        let is_plain = self.server.as_ref().is_none_or(|server| server.session.is_plain());
        if !is_plain || catalog.is_changing() {
            return None;
        }
        let context = self.session.profile.context();
        Some(Terms {
            parsed: context,
            read: context,
            run: context,
            catalog: catalog.version(),
            generation: self.session.generation(),
            is_unnamed,
        })
    }

    /// The statement of that definition: a shared one where that is exact, `known` if it has been looked up, otherwise
    /// one of the client's own.
    pub(super) fn statement_of(
        &self,
        definition: &[u8],
        is_unnamed: bool,
        known: Option<Arc<Statement>>,
    ) -> Arc<Statement> {
        let profile = &self.session.profile;
        let statement = if let Some(known) = known {
            known.see();
            known
        } else if let Some(terms) = self.terms(is_unnamed) {
            self.session.pool.statements.intern(definition, terms, profile)
        } else {
            let (profile, knowledge) = self.settings_of_parse();
            return self.session.pool.statements.private(definition, &profile, knowledge);
        };
        if statement.effects.intersects(Effects::CLOCK | Effects::SESSION) {
            return self.session.pool.statements.private(definition, profile, Knowledge::Exact);
        }
        statement
    }

    /// The settings under which a statement is parsed now, as far as they are known: those that the server was asked
    /// for, and in the midst of a transaction that has set some, those that it has reported with its last ReadyForQuery.
    fn settings_of_parse(&self) -> (Profile, Knowledge) {
        let profile = &self.session.profile;
        match &self.server {
            Some(server) if let Some(literals) = server.session.answers.literals() => {
                (profile.with_literals(literals), Knowledge::Exact)
            }
            Some(server) if server.session.effects().intersects(Effects::SETS_CONTEXT) => match server.is_settled() {
                true => (profile.with_literals_read_by(server.parameters.iter()), Knowledge::Reported),
                false => (profile.clone(), Knowledge::None),
            },
            _ => (profile.clone(), Knowledge::Exact),
        }
    }

    /// Whether an unnamed statement that proves stale can be parsed anew without the client's knowledge: not inside of
    /// a transaction, which it would abort. A server that has told of changes of late is not used with what is stale.
    pub(super) fn can_be_healed(&self) -> bool {
        match &self.server {
            Some(server) => server.knows_catalogs(self.now) || (server.is_fresh() && self.has_batch_to_keep()),
            None => self.session.begun.is_none(),
        }
    }

    /// Whether all has come up to the next Sync, and can be kept to be sent again.
    fn has_batch_to_keep(&self) -> bool {
        let mut bytes = REST_BYTES;
        let is_short = |seen: &Seen<'_>| {
            bytes += seen.total;
            bytes <= REPLAY_BYTES_MAX
        };
        // Those who send more are not to have others wait.
        has_sync(self.coming().take(BATCH_LOOKED_AT_MAX).take_while(is_short))
    }

    /// One of the client's named statements, if it has one by that name: from now on it runs under the settings that the
    /// client has now.
    pub(super) fn follow_settings(&mut self, name: &[u8]) -> Option<&Prepared> {
        let context = self.session.profile.context();
        let prepared = self.session.names.as_mut()?.get_mut(known_name(name))?;
        if prepared.statement.terms.is_some_and(|terms| terms.run != context) {
            prepared.statement = self.session.pool.statements.under(&prepared.statement, context);
        }
        Some(prepared)
    }

    /// A statement as the server has it, if it has it and it may be used like that; `is_told` says that the client may
    /// know its parameters' types. One that must be prepared again before that is closed there.
    pub(super) fn usable(&mut self, statement: &Statement, there: Option<There>, is_told: bool) -> Option<There> {
        let is_usable = self.is_usable(statement, there?, is_told);
        if !is_usable {
            self.server().statements.retire(statement.id);
        }
        there.filter(|_| is_usable)
    }

    /// Whether a statement may be used like that as the server has it.
    pub(super) fn is_usable(&self, statement: &Statement, there: There, is_told: bool) -> bool {
        let is_too_old = || self.server.as_ref().is_some_and(|server| server.is_too_old(there.since, self.now));
        let is_old = statement.is_unnamed() && is_too_old();
        let is_of_other_types = is_told && statement.has_types() && !there.is_typed;
        !is_old && !is_of_other_types
    }

    /// Whether the client may have the server that it was given, for a message that begins with that: others may have
    /// made custom settings there that it has not.
    pub(super) fn fits(&self, seen: Seen<'_>) -> bool {
        let Some(server) = &self.server else { return true };
        let there = server.session.made();
        if self.session.made.cover(there) || !server.is_fresh() || !self.is_transaction_mode() {
            return true;
        }
        // What it makes itself it may find there.
        let text = match seen.kind {
            _ if !seen.is_whole() => None,
            FrontendKind::Query => seen.body.strip_suffix(b"\0"),
            FrontendKind::Parse if self.runs_at_once() => Parse::read(seen.body).ok().map(|parse| parse.query),
            _ => None,
        };
        let Some(name) = text.and_then(sql::custom_set_alone) else { return false };
        let mut made = self.session.made.clone();
        made.add([name.as_str()]);
        made.cover(there)
    }

    /// Whether the unnamed statement that is parsed now, which takes no parameters, runs before anything else does, and
    /// nothing in its batch is refused before.
    fn runs_at_once(&self) -> bool {
        let mut coming = self.coming().map_while(|Seen { kind, body, .. }| {
            let goes_well = match kind {
                FrontendKind::Parse => Parse::read(body).is_ok_and(|parse| parse.name.is_empty() && !parse.has_types()),
                FrontendKind::Bind => is_bind_of_nothing(body),
                FrontendKind::Describe => {
                    matches!(Named::read(body, "Describe"), Ok(Named::Statement(b"") | Named::Portal(b"")))
                }
                FrontendKind::Execute => body.len() == 5 && body[0] == 0,
                _ => false,
            };
            goes_well.then_some(kind)
        });
        coming.next() == Some(FrontendKind::Parse)
            && coming.next() == Some(FrontendKind::Bind)
            && coming.find(|kind| *kind != FrontendKind::Describe) == Some(FrontendKind::Execute)
    }

    /// Puts the client's start settings in place again within a batch that has reset settings, since the rest of
    /// the batch goes by them; `text` comes next, if it is known.
    pub(super) fn restore_within(&mut self, text: &[u8]) {
        let resets = self.server.as_deref_mut().and_then(|server| server.exchange.take_done_resets(text));
        let Some(resets) = resets else { return };
        self.flush();
        for sql in restoring(&self.session.start, &resets) {
            self.put_own(Some(&sql));
        }
    }

    /// Ends a batch that has discarded all ahead of a message that goes on with it. What discards all is committed at
    /// once: behind a Sync the rest is as it would be without, and begins by what its client began with. In the same
    /// batch that would be undone with a transaction, and some commands have to stand alone. Returns a step where that
    /// is under way.
    pub(super) fn part_batch(&mut self) -> Option<Step> {
        let exchange = &self.server.as_deref()?.exchange;
        let may_part = exchange.may_be_behind_discard() && exchange.prepares();
        if !may_part || self.session.start.settings().is_empty() {
            return None;
        }
        if exchange.owes() {
            // Where it has failed, what follows is skipped.
            return Some(self.wait_for_answers());
        }
        if !exchange.is_behind_discard() {
            return None;
        }
        self.flush();
        self.scratch.clear();
        let resets = self.server().exchange.take_resets();
        self.send_own_sync(resets);
        Some(Step::Stop(Stop::Hold))
    }

    /// Notes what a statement may do that is about to be sent. Returns a step where something has to be done before.
    pub(super) fn prepare_for(&mut self, mut effects: Effects, text: &[u8]) -> Option<Step> {
        self.flush();
        if let Some(step) = self.forget_others_sequences(effects) {
            return Some(step);
        }
        self.note_sequences(effects);
        let customs = self.customs_made(effects, text);
        effects.set(Effects::CUSTOM, customs.is_some() && !effects.intersects(Effects::STATE));
        let server = self.server.as_deref_mut()?;
        server.expect_text(effects, text);
        if effects.intersects(Effects::CATALOG) && text.windows(8).any(|word| word.eq_ignore_ascii_case(b"database")) {
            for name in sql::databases(text) {
                self.hub.leave_database(self.now, &server.pool, &name);
            }
        }
        if let Some(customs) = customs {
            server.expect_customs(customs);
        }
        None
    }

    /// The custom settings that a statement may make, and its client has not made before; `None` if it makes none. What
    /// a SET LOCAL makes again need not be asked for.
    fn customs_made(&self, effects: Effects, text: &[u8]) -> Option<CustomNames> {
        if effects.intersects(Effects::STATE) {
            return self.is_probed().then(|| CustomNames::of_text(text));
        }
        let names = effects.intersects(Effects::CUSTOM).then(|| CustomNames::of_sets(text))?;
        let is_new = names.has_others || !names.known.iter().all(|name| self.session.made.has(name));
        is_new.then_some(names)
    }

    /// Whether the server has to be asked what its session holds.
    pub(super) fn is_probed(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.session.reports())
    }

    /// Whether more of a Bind should come first: its parameters may name a custom setting that is about to be made.
    pub(super) fn may_name_custom(&self, effects: Effects, seen: Seen<'_>) -> bool {
        self.is_probed()
            && effects.intersects(Effects::STATE)
            && !seen.is_whole()
            && seen.total <= self.message_bytes_max
    }

    /// A parameter may name a custom setting that is about to be made. So many bytes stand in front of the parameters.
    pub(super) fn note_customs(&mut self, effects: Effects, seen: Seen<'_>, bytes_before: usize) {
        if self.is_probed() && effects.intersects(Effects::STATE) {
            self.server().expect_parameters(&seen.body[bytes_before..], seen.is_whole());
        }
    }
}

/// Whether a Bind is of the unnamed statement and portal, and fits a statement without parameters and result.
fn is_bind_of_nothing(body: &[u8]) -> bool {
    let read = || {
        let (formats, rest) = split_count(body.strip_prefix(&[0; 2])?)?;
        let (parameters, rest) = split_count(rest.get(2 * formats..)?)?;
        let (results, rest) = split_count(rest)?;
        Some(formats <= 1 && parameters == 0 && rest.len() == 2 * results)
    };
    read().unwrap_or(false)
}

fn split_count(bytes: &[u8]) -> Option<(usize, &[u8])> {
    bytes.split_first_chunk().map(|(count, rest)| (usize::from(u16::from_be_bytes(*count)), rest))
}
