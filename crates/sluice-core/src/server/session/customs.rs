//! The custom settings of a session: those that may be about to be made, and those that there are.

use std::collections::BTreeSet;

use crate::{
    customs::Customs,
    sql::{CustomNames, Effects},
};

use super::{Beginning, ServerSession};

impl ServerSession {
    /// Custom settings may be about to be made. Those that a probe can't ask for stay with the client, and end with the
    /// server; `is_utf8` says whether it can ask for names that are not ASCII.
    pub fn expect_customs(&mut self, names: CustomNames, is_utf8: bool) {
        if self.reports {
            return;
        }
        let count = names.known.len();
        let known: BTreeSet<String> = names.known.into_iter().filter(|name| name.is_ascii() || is_utf8).collect();
        let has_others = names.has_others || known.len() < count;
        if !self.probe.note_customs(known) || has_others {
            self.effects.insert(Effects::SPENDS_SERVER);
        }
    }

    /// Parameters are about to be sent to something that may leave something: `rest` is a Bind's body behind the names, or
    /// a FunctionCall's behind the function.
    pub fn expect_parameters(&mut self, rest: &[u8], is_whole: bool, is_utf8: bool) {
        if self.reports {
            return;
        }
        self.expect_customs(CustomNames::of_parameters(rest, is_whole), is_utf8);
        self.probe.note_parameters(rest);
    }

    /// There are these custom settings, besides those that it has by itself.
    pub(super) fn add_made<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let unsure = &mut self.unsure;
        let names = names.into_iter().inspect(|name| {
            unsure.remove(*name);
        });
        match &self.beginning {
            Beginning::Known(_, own) => self.made.add(names.filter(|name| !own.has(name))),
            Beginning::Unknown => self.made.add(names),
        }
    }

    /// There may be these custom settings, and nobody will ask.
    pub(super) fn may_have_made(&mut self, names: BTreeSet<String>) {
        let made = self.made.clone();
        self.add_made(names.iter().map(String::as_str));
        self.unsure.extend(names.into_iter().filter(|name| !made.has(name)));
    }

    /// Whether there are all of these custom settings, for certain.
    pub(super) fn has_made(&self, names: &Customs) -> bool {
        self.made.cover(names) && (self.unsure.is_empty() || !names.names().any(|name| self.unsure.contains(name)))
    }
}
