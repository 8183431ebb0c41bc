//! Named statements whose literals PostgreSQL reads anew, since they are used under another `search_path` than last.

use crate::{
    io::Io,
    profile::{Profile, literals},
    server::Question,
    sql::{self, Effects},
    statement::{Prepared, known_name},
};

use super::frontend::{ClientRelay, Step, Stop};

impl<I: Io> ClientRelay<'_, I> {
    /// Follows PostgreSQL where it reads the literals of a named statement anew that is about to be used. Returns a step
    /// where the server has to say first whether it does.
    pub(super) fn reread(&mut self, name: &[u8]) -> Option<Step> {
        if !self.session.may_be_apart(self.context_in_place()) || self.is_lent(name) {
            return None;
        }
        let is_known = self.server().session.knows_settings();
        let prepared = self.session.names.as_mut()?.get_mut(known_name(name))?;
        if !prepared.is_refused() {
            prepared.former = None;
        }
        if is_known && prepared.was_read_under(&self.session.profile) && prepared.statement.was_shared.is_none() {
            return None;
        }
        let prepared = prepared.clone();
        let is_elsewhere = is_known || !prepared.was_read_under(&self.session.profile);
        let server = self.server();
        let may_be_elsewhere = is_elsewhere || server.session.effects().intersects(Effects::MOVES_PATH);
        if !may_be_elsewhere || !server.exchange.prepares() || !prepared.statement.may_be_reread() {
            return None;
        }
        self.restore_within(prepared.statement.query());
        let now = match self.server().session.answers.literals().cloned() {
            _ if is_known => self.session.profile.clone(),
            Some(literals) => self.session.profile.with_literals(&literals),
            None => return self.asks_for_settings().then_some(Step::Stop(Stop::Hold)),
        };
        self.reread_under(name, prepared, &now, is_known)
    }

    /// The same where the settings that literals are read by are known, and perhaps all others.
    fn reread_under(&mut self, name: &[u8], prepared: Prepared, now: &Profile, is_known: bool) -> Option<Step> {
        if !is_known && prepared.was_read_under(now) {
            return None;
        }
        let is_refused = prepared.is_refused();
        let Prepared { statement, path, former, .. } = prepared;
        let statement = former.filter(|_| is_refused).unwrap_or(statement);
        let (here, there) = (now.search_path(), path.unwrap_or_else(|| statement.profile.search_path()));
        let mean_the_same = statement.profile.rereads_alike(now);
        if mean_the_same && !is_known && !is_refused {
            // The server reads them anew by itself.
            self.session.names.as_mut()?.get_mut(known_name(name))?.path = Some(here);
            return None;
        }
        let is_anew = match self.server().session.answers.is_same_path() {
            _ if is_refused || mean_the_same => true,
            _ if here == there => false,
            Some(is_same) => !is_same,
            None => return self.asks([(Question::SamePath, || literals::same_path_query(&here, &there))]),
        };
        let profile = if is_anew { statement.profile.reread_under(now) } else { statement.profile.with_path(&here) };
        let run = is_known.then(|| now.context());
        let read = self.session.pool.statements.reread(&statement, &profile, run);
        let prepared = self.session.names.as_mut()?.get_mut(known_name(name))?;
        prepared.statement = read.clone();
        prepared.path = None;
        prepared.former = is_anew.then_some(statement);
        self.session.note_named(&read);
        None
    }

    /// The same for a Describe: PostgreSQL looks at the literals of what returns rows only.
    pub(super) fn reread_for_description(&mut self, name: &[u8]) -> Option<Step> {
        let returns_rows =
            self.session.named(name).is_some_and(|prepared| sql::returns_rows(prepared.statement.query()));
        returns_rows.then(|| self.reread(name))?
    }
}
