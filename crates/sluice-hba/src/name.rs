//! Names of databases and roles in a list, as a connection is compared with them.

use std::collections::BTreeSet;

use crate::{connection::Connection, pattern::Pattern, problem::Flaw, token::Token};

/// A name, keyword, group or expression.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) token: Token,
    pub(crate) pattern: Option<Pattern>,
}

/// An answer that may need the user's roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    No,
    Yes,
    NeedsRoles,
}

impl From<bool> for Answer {
    fn from(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }
}

impl Answer {
    /// The answer for a list, of those for its parts.
    fn any(answers: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::No;
        for answer in answers {
            match answer {
                Self::Yes => return Self::Yes,
                Self::NeedsRoles => all = Self::NeedsRoles,
                Self::No => (),
            }
        }
        all
    }

    /// The answer for two conditions at once.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Yes => other(),
            Self::NeedsRoles => match other() {
                Self::No => Self::No,
                Self::Yes | Self::NeedsRoles => Self::NeedsRoles,
            },
        }
    }
}

/// The roles that a user is a member of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles(BTreeSet<String>);

impl Roles {
    /// True if the user is a member of a role.
    pub fn contains(&self, role: &str) -> bool {
        self.0.contains(role)
    }

    fn answer(roles: Option<&Self>, role: &str) -> Answer {
        roles.map_or(Answer::NeedsRoles, |roles| roles.contains(role).into())
    }
}

impl<T: Into<String>> FromIterator<T> for Roles {
    fn from_iter<I: IntoIterator<Item = T>>(roles: I) -> Self {
        Self(roles.into_iter().map(Into::into).collect())
    }
}

impl Name {
    /// Compiles the expression of a token, if it is one.
    pub(crate) fn compile(token: &Token) -> Result<Self, Flaw> {
        let pattern = token.pattern().map(Pattern::compile).transpose()?;
        Ok(Self { token: token.clone(), pattern })
    }

    /// True if it asks for memberships among the databases of a rule.
    pub(crate) fn is_group_of_databases(&self) -> bool {
        self.token.is_keyword("samerole") || self.token.is_keyword("samegroup")
    }

    fn names(&self, name: &str) -> bool {
        match &self.pattern {
            Some(pattern) => pattern.is_match(name),
            None => self.token.text == name,
        }
    }

    fn has_database(&self, connection: &Connection<'_>, roles: Option<&Roles>) -> Answer {
        if connection.is_replication {
            return self.token.is_keyword("replication").into();
        }
        if self.token.is_keyword("all") {
            return Answer::Yes;
        }
        if self.token.is_keyword("sameuser") {
            return (connection.database == connection.user).into();
        }
        if self.is_group_of_databases() {
            return Roles::answer(roles, connection.database);
        }
        (!self.token.is_keyword("replication") && self.names(connection.database)).into()
    }

    /// The answer for a role of PostgreSQL's.
    pub(crate) fn has_user(&self, user: &str, roles: Option<&Roles>) -> Answer {
        match self.token.group() {
            Some(group) => Roles::answer(roles, group),
            None => (self.token.is_keyword("all") || self.names(user)).into(),
        }
    }
}

/// The answer for the databases of a rule.
pub(crate) fn have_database(names: &[Name], connection: &Connection<'_>, roles: Option<&Roles>) -> Answer {
    Answer::any(names.iter().map(|name| name.has_database(connection, roles)))
}

/// The answer for the users of a rule.
pub(crate) fn have_user(names: &[Name], user: &str, roles: Option<&Roles>) -> Answer {
    Answer::any(names.iter().map(|name| name.has_user(user, roles)))
}
