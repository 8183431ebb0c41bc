//! The rules and maps of a server, and the answers that they give.

use std::{collections::BTreeSet, path::Path};

use crate::{
    address::Interface,
    connection::Connection,
    files::Files,
    ident::MapLine,
    lines,
    name::Answer,
    place::Place,
    problem::{Flaw, Problem},
    rule::{self, Rule},
};

pub use crate::name::Roles;

/// All rules and maps.
#[derive(Debug, Clone)]
pub struct Rules {
    rules: Vec<Rule>,
    maps: Vec<MapLine>,
    /// The users that may be let in without a password; `None`: all.
    known: Option<BTreeSet<String>>,
}

/// The rule that counts.
#[derive(Debug, Clone, Copy)]
pub enum Decision<'a> {
    /// This one.
    Rule(&'a Rule),
    /// None: the client is to be turned away.
    None,
    /// An answer that depends on the user's roles, which were not given.
    NeedsRoles,
}

/// The answer of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The system's user may be the user of the database.
    Allowed,
    /// It may not.
    Refused,
    /// An answer that depends on the roles of the user of the database, which were not given.
    NeedsRoles,
}

impl Rules {
    /// Reads the files, with all that they include, or says everything that is wrong with them.
    pub fn read(hba: &Path, ident: Option<&Path>, files: &dyn Files) -> Result<Self, Vec<Problem>> {
        let (rules, mut problems) = read_all(hba, files, rule::parse);
        if rules.is_empty() && problems.is_empty() {
            let what = format!("configuration file \"{}\" contains no entries", hba.display());
            problems.push(Flaw::mistake(what, "write a rule: nobody can log in without one").at(hba, 1));
        }
        let (maps, problems_of_maps) = ident.map(|ident| read_all(ident, files, MapLine::parse)).unwrap_or_default();
        problems.extend(problems_of_maps);
        if problems.is_empty() { Ok(Self::new(rules, maps)) } else { Err(problems) }
    }

    pub(crate) fn new(rules: Vec<Rule>, maps: Vec<MapLine>) -> Self {
        Self { rules, maps, known: None }
    }

    /// The same rules, of which those that ask for no password (`trust`, `cert`, `peer`) let in these users only.
    pub fn for_known_users(self, known: BTreeSet<String>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// The rules in their order, of all files.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that counts for a connection: the first one that is for it.
    ///
    /// `roles` has all roles that the user is a member of, directly or not, and itself if it exists. A superuser is
    /// no member of all roles here. `interfaces` may be empty unless [`Rules::needs_interfaces`].
    pub fn decide(&self, connection: &Connection<'_>, roles: Option<&Roles>, interfaces: &[Interface]) -> Decision<'_> {
        for rule in &self.rules {
            match rule.has(connection, roles, interfaces) {
                Answer::Yes => return Decision::Rule(rule),
                Answer::NeedsRoles => return Decision::NeedsRoles,
                Answer::No => (),
            }
        }
        Decision::None
    }

    /// Whether a user may be let in without a secret, as far as that is a question of who is known at all.
    pub fn knows(&self, user: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(user))
    }

    /// The answer whether a system's user (or a certificate's common name) may be a user of the database, by a map, or
    /// by the same name without one ([`Rule::map`]). `roles` are those of the user of the database.
    pub fn maps(&self, map: Option<&str>, system_user: &str, database_user: &str, roles: Option<&Roles>) -> Mapping {
        let Some(map) = map.filter(|map| !map.is_empty()) else {
            return if system_user == database_user { Mapping::Allowed } else { Mapping::Refused };
        };
        for line in self.maps.iter().filter(|line| line.map == map) {
            match line.has(system_user, database_user, roles) {
                Some(Answer::Yes) => return Mapping::Allowed,
                Some(Answer::NeedsRoles) => return Mapping::NeedsRoles,
                Some(Answer::No) => (),
                None => return Mapping::Refused,
            }
        }
        Mapping::Refused
    }

    /// True if there is a map of that name. PostgreSQL does not mind a rule whose map is missing: it lets nobody in.
    pub fn has_map(&self, map: &str) -> bool {
        self.maps.iter().any(|line| line.map == map)
    }

    /// True if a decision or a map may depend on roles.
    pub fn needs_roles(&self) -> bool {
        self.need_roles().next().is_some()
    }

    /// The places of the rules and the lines of maps that may depend on roles.
    pub fn need_roles(&self) -> impl Iterator<Item = &Place> {
        let rules = self.rules.iter().filter(|rule| rule.needs_roles()).map(|rule| &**rule.place());
        rules.chain(self.maps.iter().filter(|line| line.needs_roles()).map(|line| &*line.place))
    }

    /// True if a decision may depend on the host's own addresses.
    pub fn needs_interfaces(&self) -> bool {
        self.need_interfaces().next().is_some()
    }

    /// The places of the rules that may depend on the host's own addresses.
    pub fn need_interfaces(&self) -> impl Iterator<Item = &Place> {
        self.rules.iter().filter(|rule| rule.needs_interfaces()).map(|rule| &**rule.place())
    }
}

/// The lines of a file, and those that can't be used.
fn read_all<T>(
    file: &Path,
    files: &dyn Files,
    parse: impl Fn(&lines::Line) -> Result<T, Problem>,
) -> (Vec<T>, Vec<Problem>) {
    let lines = match lines::read(file, files) {
        Ok(lines) => lines,
        Err(flaw) => return (Vec::new(), vec![flaw.at(file, 1)]),
    };
    let mut parsed = Vec::new();
    let mut problems = Vec::new();
    for line in &lines {
        match parse(line) {
            Ok(line) => parsed.push(line),
            Err(problem) => problems.push(problem),
        }
    }
    (parsed, problems)
}
