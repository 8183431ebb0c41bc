//! Maps: the lines of `pg_ident.conf`.

use std::sync::Arc;

use crate::{
    lines::{Field, Line},
    name::{Answer, Name, Roles},
    place::Place,
    problem::{Fault, Flaw, Problem},
    token::Token,
};

/// The place in the name of a user where the first group of an expression goes, once.
const GROUP: &str = "\\1";

/// A line of `pg_ident.conf`.
#[derive(Debug, Clone)]
pub(crate) struct MapLine {
    pub(crate) place: Arc<Place>,
    pub(crate) map: String,
    pub(crate) system_user: Name,
    pub(crate) user: Name,
}

impl MapLine {
    /// Reads a line.
    pub(crate) fn parse(line: &Line) -> Result<Self, Problem> {
        let fields = line.fields.as_ref().map_err(Clone::clone);
        fields.and_then(|fields| Self::parse_fields(line, fields)).map_err(|flaw| flaw.at(&line.file, line.number))
    }

    fn parse_fields(line: &Line, fields: &[Field]) -> Result<Self, Flaw> {
        let mut fields = fields.iter();
        let map = word(fields.next())?;
        let system_user = word(fields.next())?;
        let user = word(fields.next())?;
        // A mistake in the second expression goes before anything that only Sluice refuses in the first one.
        let (system_user, user) = match (Name::compile(system_user), Name::compile(user)) {
            (Ok(system_user), Ok(user)) => (system_user, user),
            (Err(flaw), Err(other)) if flaw.fault == Fault::Sluice => {
                return Err(if other.fault == Fault::File { other } else { flaw });
            }
            (Err(flaw), _) | (Ok(_), Err(flaw)) => return Err(flaw),
        };
        let line = Self { place: Place::of(line), map: map.text.clone(), system_user, user };
        let is_lazy = line.system_user.pattern.as_ref().is_some_and(|pattern| pattern.is_lazy);
        if is_lazy && line.has_group() {
            return Err(Flaw::unsupported(
                "Sluice takes no *?, +?, ?? and {}? in an expression whose first group is used as \\1",
                "write the expression without them, as in ^([^@]*)@",
            ));
        }
        Ok(line)
    }

    /// True if it asks for the memberships of a user.
    pub(crate) fn needs_roles(&self) -> bool {
        self.user.token.group().is_some()
    }

    /// True if the user is made of a part of the system's user.
    fn has_group(&self) -> bool {
        let user = &self.user;
        user.token.group().is_none() && user.pattern.is_none() && user.token.text.contains(GROUP)
    }

    /// The answer for a system's user as a user of PostgreSQL's. None if the line asks for a group that its
    /// expression doesn't have: PostgreSQL looks at no line behind it.
    pub(crate) fn has(&self, system_user: &str, user: &str, roles: Option<&Roles>) -> Option<Answer> {
        let Some(pattern) = &self.system_user.pattern else {
            let is_same = self.system_user.token.text == system_user;
            return Some(Answer::from(is_same).and(|| self.user.has_user(user, roles)));
        };
        let Some(group) = pattern.first_group(system_user) else { return Some(Answer::No) };
        if !self.has_group() {
            return Some(self.user.has_user(user, roles));
        }
        let expanded = expand(&self.user.token.text, group?);
        Some((expanded == user.as_bytes()).into())
    }
}

/// The text of a user with the group in its first place, the only one in PostgreSQL too. It is a plain name then,
/// whatever it looks like.
fn expand(text: &str, group: &[u8]) -> Vec<u8> {
    let mut parts = text.splitn(2, GROUP).map(str::as_bytes);
    let mut expanded = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        expanded.extend_from_slice(group);
        expanded.extend_from_slice(part);
    }
    expanded
}

fn word(field: Option<&Field>) -> Result<&Token, Flaw> {
    const REMEDY: &str = "write a map, a system's user and a user of the database, one of each";
    let field = field.ok_or_else(|| Flaw::mistake("missing entry at end of line", REMEDY))?;
    field.single().ok_or_else(|| Flaw::mistake("multiple values in ident field", REMEDY))
}
