//! A session's prepared statements, by the client's names for them.

use std::sync::Arc;

use crate::{
    replies::Given,
    shape::Shape,
    statement::{NameTag, Prepared, Statement, StatementId, Terms, Unnamed, known_name},
    time::Time,
};

use super::{FORMER_MAX, Session};

impl Session {
    /// The client's name of what its server knows by that one: of several, the one that was used, if that is known.
    pub fn name_of(&self, on_server: &[u8], used: Option<NameTag>) -> Option<&[u8]> {
        let named = self.names.iter().flat_map(|names| names.iter()).map(|(name, known)| (&**name, &known.statement));
        let unnamed = self.unnamed.iter().map(|unnamed| (&b""[..], &unnamed.prepared.statement));
        let former = self.former.iter().rev().map(|(name, statement)| (&**name, statement));
        let all = named.chain(unnamed).chain(former);
        let mut names = all.filter(|(_, statement)| *statement.name == *on_server).map(|(name, _)| name);
        let first = names.next()?;
        let is_used = |name: &&[u8]| used.is_none_or(|used| NameTag::of(name) == used);
        Some(if is_used(&first) { first } else { names.find(is_used).unwrap_or(first) })
    }

    /// The client was told, or will be, what a statement's result looks like.
    pub fn note_shape(&mut self, name: &[u8], id: StatementId, shape: Option<Shape>) {
        if let Some(prepared) = self.prepared_mut(name).filter(|p| p.statement.id == id) {
            prepared.described = shape;
        }
    }

    /// The client binds one of its statements.
    pub fn note_bound(&mut self, name: &[u8]) {
        if let Some(prepared) = self.prepared_mut(name) {
            prepared.is_bound = true;
        }
    }

    /// The client is told the types of a statement's parameters, if that is its unnamed one.
    pub fn note_told(&mut self, id: StatementId) {
        if let Some(unnamed) = self.unnamed.as_mut().filter(|unnamed| unnamed.prepared.statement.id == id) {
            unnamed.prepared.is_told = true;
        }
    }

    /// All its statements, with their names.
    fn all_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut Prepared)> {
        let named = self.names.iter_mut().flat_map(|names| names.iter_mut()).map(|(name, known)| (&**name, known));
        let unnamed = self.unnamed.iter_mut().map(|unnamed| (&b""[..], &mut unnamed.prepared));
        unnamed.chain(named)
    }

    fn prepared_mut(&mut self, name: &[u8]) -> Option<&mut Prepared> {
        if name.is_empty() {
            self.unnamed.as_mut().map(|unnamed| &mut unnamed.prepared)
        } else {
            self.names.as_mut().and_then(|names| names.get_mut(known_name(name)))
        }
    }

    /// Forgets the shape of a statement's result that the client was told: it no longer holds, and the client has
    /// asked anew.
    pub fn forget_shape(&mut self, id: StatementId) {
        for (_, prepared) in self.all_mut().filter(|(_, p)| p.statement.id == id) {
            prepared.described = None;
        }
    }

    /// Gives the client another statement in place of one that it has by that name, of which it has been told nothing
    /// then; returns the name.
    pub fn supersede(&mut self, old: StatementId, by: NameTag, new: &Arc<Statement>, now: Time) -> Option<Box<[u8]>> {
        let is_meant = |(name, known): &(&[u8], &mut Prepared)| known.statement.id == old && NameTag::of(name) == by;
        let (name, known) = self.all_mut().find(is_meant)?;
        *known = Prepared { is_bound: known.is_bound, ..Prepared::new(new.clone(), now) };
        let name = name.into();
        if let Some((bound, _)) = self.bound.as_mut().filter(|(bound, _)| bound.id == old) {
            *bound = new.clone();
        }
        Some(name)
    }

    /// Gives the client an unnamed statement in place of the one it had.
    pub fn set_unnamed(&mut self, statement: Arc<Statement>, raw: bool, now: Time) -> Given {
        self.unnamed_turn = self.unnamed_turn.wrapping_add(1);
        let turn = self.unnamed_turn;
        let prepared = Prepared::new(statement, now);
        Given::Unnamed(turn, self.unnamed.replace(Unnamed { prepared, raw, turn, is_of_before: false }))
    }

    /// Its unnamed statement, if it is the shared one of that definition under those terms.
    pub fn unnamed_of(&self, definition: &[u8], terms: Terms) -> Option<&Arc<Statement>> {
        let statement = &self.unnamed.as_ref()?.prepared.statement;
        (*statement.definition == *definition && statement.terms == Some(terms)).then_some(statement)
    }

    /// Tells its unnamed statement from those before and behind it.
    pub fn unnamed_turn(&self) -> Option<u32> {
        self.unnamed.as_ref().map(|unnamed| unnamed.turn)
    }

    /// A simple Query takes the unnamed statement away, and the unnamed portal (PostgreSQL documentation, 55.2.3).
    pub fn drop_unnamed(&mut self) {
        self.unnamed = None;
        self.portal = None;
    }

    /// Undoes what a Parse gave that has failed or was skipped. One that has failed has taken the unnamed statement
    /// away that was there before (`drop_unnamed_stmt`). Where another unnamed statement has come since, gives the turn
    /// of the one that was undone, and what was there in its place.
    pub fn undo_parse(&mut self, given: Given, was_skipped: bool) -> Option<(u32, Option<Unnamed>)> {
        match given {
            Given::Name(name) => {
                self.forget(&name);
                None
            }
            Given::Unnamed(turn, before) => {
                let before = before.filter(|_| was_skipped);
                if self.unnamed_turn() != Some(turn) {
                    return Some((turn, before));
                }
                self.unnamed = before;
                None
            }
        }
    }

    /// A name that was lent to its server means nothing any more.
    pub fn lose(&mut self, name: &[u8]) {
        if let Some(names) = &mut self.names {
            names.remove(known_name(name));
        }
    }

    /// Forgets a name; gives what it meant.
    pub fn forget(&mut self, name: &[u8]) -> Option<Prepared> {
        let (name, prepared) = self.names.as_mut()?.remove_entry(known_name(name))?;
        if self.former.len() < FORMER_MAX {
            self.former.push((name, prepared.statement.clone()));
        }
        Some(prepared)
    }
}
