//! Rules and maps as a server itself tells them, in `pg_hba_file_rules` and `pg_ident_file_mappings`.
//!
//! Those views have each line as PostgreSQL has read it, with what it includes, but words without their quotes. Where
//! a database or a role has a name that without quotes means something else, nobody knows which of the two a rule
//! speaks of. Such a rule, and one that Sluice can't carry out, turns away whoever it may be for: what stands behind
//! it was not written for them.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    address,
    ident::MapLine,
    lines::{Field, Line},
    name::Name,
    problem::{Fault, Flaw, Problem},
    rule,
    rules::Rules,
    token::Token,
};

/// The version from which on rules and maps have expressions everywhere, and maps have `all` and groups.
const EXPRESSIONS_SINCE: u32 = 160_000;

/// The version from which on a server tells of its maps.
const MAPS_SINCE: u32 = 150_000;

/// The file that rules are in whose server does not say it: before PostgreSQL 16, none is included.
const FILE: &str = "pg_hba.conf";

/// The same for maps.
const MAPS_FILE: &str = "pg_ident.conf";

/// The questions to a server whose answers [`ServerRules`] are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// `pg_hba_file_rules`: the fields of [`RuleRow`] in their order, and the error of a line that PostgreSQL refuses.
    pub rules: &'static str,
    /// `pg_ident_file_mappings`, since PostgreSQL 15: the same of [`MapRow`].
    pub maps: Option<&'static str>,
    /// The names of databases and roles that mean something else without quotes; whether it is a role's.
    pub odd_names: &'static str,
}

impl Questions {
    /// Those for a server of that version (`server_version_num`).
    pub fn of(version: u32) -> Self {
        let has_files = version >= EXPRESSIONS_SINCE;
        Self {
            rules: if has_files { RULES_WITH_FILES } else { RULES },
            maps: (version >= MAPS_SINCE).then_some(if has_files { MAPS_WITH_FILES } else { MAPS }),
            odd_names: ODD_NAMES,
        }
    }
}

const RULES: &str = "SELECT NULL::text, line_number, type, database, user_name, address, netmask, auth_method, options, \
    error FROM pg_catalog.pg_hba_file_rules ORDER BY line_number";

const RULES_WITH_FILES: &str = "SELECT file_name, line_number, type, database, user_name, address, netmask, \
    auth_method, options, error FROM pg_catalog.pg_hba_file_rules ORDER BY rule_number";

const MAPS: &str = "SELECT NULL::text, line_number, map_name, sys_name, pg_username, error \
    FROM pg_catalog.pg_ident_file_mappings ORDER BY line_number";

const MAPS_WITH_FILES: &str = "SELECT file_name, line_number, map_name, sys_name, pg_username, error \
    FROM pg_catalog.pg_ident_file_mappings ORDER BY map_number";

const ODD_NAMES: &str = "SELECT false, datname::text FROM pg_catalog.pg_database \
    WHERE datname IN ('all', 'sameuser', 'samerole', 'samegroup', 'replication') \
    UNION ALL SELECT true, rolname::text FROM pg_catalog.pg_roles WHERE rolname = 'all' OR rolname LIKE '+%'";

/// The rules and maps of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerRules {
    /// The rows of `pg_hba_file_rules`, in their order.
    pub rules: Vec<RuleRow>,
    /// The rows of `pg_ident_file_mappings`.
    pub maps: Vec<MapRow>,
    /// The databases whose names mean something else in a rule, unless in quotes: `all`, `sameuser`, …
    pub odd_databases: BTreeSet<String>,
    /// The roles of which that is true: `all`, and those that begin with `+`.
    pub odd_roles: BTreeSet<String>,
    /// The server's version, as in `server_version_num`.
    pub version: u32,
    /// Whether the server's own addresses are this host's.
    pub is_on_this_host: bool,
}

/// A row of `pg_hba_file_rules`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleRow {
    /// `file_name`, since PostgreSQL 16.
    pub file: Option<String>,
    /// `line_number`.
    pub line: usize,
    /// `type`.
    pub connection: String,
    /// `database`.
    pub databases: Vec<String>,
    /// `user_name`.
    pub users: Vec<String>,
    /// `address`.
    pub address: Option<String>,
    /// `netmask`.
    pub netmask: Option<String>,
    /// `auth_method`.
    pub method: String,
    /// `options`.
    pub options: Vec<String>,
}

/// A row of `pg_ident_file_mappings`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapRow {
    /// `file_name`, since PostgreSQL 16.
    pub file: Option<String>,
    /// `line_number`.
    pub line: usize,
    /// `map_name`.
    pub map: String,
    /// `sys_name`.
    pub system_user: String,
    /// `pg_username`.
    pub user: String,
}

impl Rules {
    /// The rules of a server, and the lines by which clients are turned away that PostgreSQL may let in; or else what is
    /// wrong with them.
    pub fn of_server(server: &ServerRules) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let (mut rules, mut maps) = (Vec::new(), Vec::<MapLine>::new());
        let (mut refused, mut mistakes) = (Vec::new(), Vec::new());
        for row in &server.rules {
            let line = server.line(row);
            let parsed = match server.doubt(row) {
                Some(flaw) => Err(flaw.at(&line.file, line.number)),
                None => rule::parse(&line),
            };
            let parsed = parsed.or_else(|problem| match problem.fault {
                Fault::Sluice => {
                    refused.push(problem);
                    rule::parse(&server.rejecting_line(row))
                }
                Fault::File => Err(problem),
            });
            match parsed {
                Ok(rule) => rules.push(rule),
                Err(problem) => mistakes.push(problem),
            }
        }
        let mut cut = BTreeSet::new();
        for row in &server.maps {
            match MapLine::parse(&server.map_line(row)) {
                Ok(line) if !cut.contains(&row.map) => maps.push(line),
                Ok(_) => {}
                Err(problem) if problem.fault == Fault::Sluice => {
                    // The map ends before it, since it could be the one that decides.
                    cut.insert(row.map.clone());
                    refused.push(problem);
                }
                Err(problem) => mistakes.push(problem),
            }
        }
        if rules.is_empty() && mistakes.is_empty() {
            let flaw = Flaw::mistake("the server has no rules", "write one: nobody can log in without");
            mistakes.push(flaw.at(FILE, 1));
        }
        if mistakes.is_empty() { Ok((Self::new(rules, maps), refused)) } else { Err(mistakes) }
    }
}

impl ServerRules {
    fn line(&self, row: &RuleRow) -> Line {
        let names = |names: &[String]| Field::of(names.iter().map(|name| Token::plain(name)));
        let mut fields = vec![Field::word(&row.connection), names(&row.databases), names(&row.users)];
        fields.extend(row.address_words());
        fields.push(Field::word(&row.method));
        fields.extend(row.options.iter().map(|option| Field::word(option)));
        row.place(fields)
    }

    /// A line that rejects whoever the row may be for.
    fn rejecting_line(&self, row: &RuleRow) -> Line {
        let databases = row.databases.iter().flat_map(|name| self.perhaps(name, &self.odd_databases));
        let users = row.users.iter().flat_map(|name| self.perhaps(name, &self.odd_roles));
        let mut fields = vec![Field::word(&row.connection), Field::of(databases), Field::of(users)];
        match &row.address {
            None => {}
            Some(address) if self.knows_addresses(address) => fields.extend(row.address_words()),
            Some(_) => fields.push(Field::word("all")),
        }
        fields.push(Field::word("reject"));
        row.place(fields)
    }

    /// The words for all that a name may mean.
    fn perhaps(&self, name: &str, odd: &BTreeSet<String>) -> Vec<Token> {
        let plain = Token::plain(name);
        if self.is_expression(name) && (!self.has_expressions() || Name::compile(&plain).is_err()) {
            return vec![Token::plain("all")];
        }
        let quoted = odd.contains(name).then(|| Token { is_quoted: true, ..plain.clone() });
        std::iter::once(plain).chain(quoted).collect()
    }

    /// The reason why nobody can tell what a row means.
    fn doubt(&self, row: &RuleRow) -> Option<Flaw> {
        let databases = row.databases.iter().find_map(|name| self.doubt_of("database", name, &self.odd_databases));
        let users = || row.users.iter().find_map(|name| self.doubt_of("role", name, &self.odd_roles));
        let address = || {
            let address = row.address.as_ref().filter(|address| is_of_host(address) && !self.is_on_this_host)?;
            let what = format!("{address} means the addresses of the server's host, which Sluice does not know");
            Some(Flaw::unsupported(what, "write the address as in 10.0.0.0/8"))
        };
        databases.or_else(users).or_else(address)
    }

    fn doubt_of(&self, kind: &str, name: &str, odd: &BTreeSet<String>) -> Option<Flaw> {
        let what = if odd.contains(name) {
            format!("there is a {kind} \"{name}\", and PostgreSQL does not say whether the line means that")
        } else if !self.has_expressions() && self.is_expression(name) {
            format!("for a server of this version, \"{name}\" is a name and no expression")
        } else {
            return None;
        };
        Some(Flaw::unsupported(what, format!("rename the {kind}, or name a file by hba_file")))
    }

    fn has_expressions(&self) -> bool {
        self.version >= EXPRESSIONS_SINCE
    }

    fn is_expression(&self, name: &str) -> bool {
        Token::plain(name).pattern().is_some()
    }

    /// Whether it can be told which addresses that is.
    fn knows_addresses(&self, address: &str) -> bool {
        match is_of_host(address) {
            true => self.is_on_this_host,
            false => address == "all" || address::parse(address).is_some(),
        }
    }

    fn map_line(&self, row: &MapRow) -> Line {
        let file = PathBuf::from(row.file.as_deref().unwrap_or(MAPS_FILE));
        // Before that version it is a name, whatever it looks like.
        let is_name = !self.has_expressions();
        let nobody = BTreeSet::new();
        let doubt = self.doubt_of("role", &row.user, if is_name { &nobody } else { &self.odd_roles });
        let user = Token { is_quoted: is_name, ..Token::plain(&row.user) };
        let fields = vec![Field::word(&row.map), Field::word(&row.system_user), Field::of([user])];
        Line { file, number: row.line, fields: doubt.map_or(Ok(fields), Err) }
    }
}

impl RuleRow {
    fn address_words(&self) -> impl Iterator<Item = Field> {
        [&self.address, &self.netmask].into_iter().flatten().map(|text| Field::word(text))
    }

    fn place(&self, fields: Vec<Field>) -> Line {
        Line { file: self.file.as_deref().unwrap_or(FILE).into(), number: self.line, fields: Ok(fields) }
    }
}

fn is_of_host(address: &str) -> bool {
    ["samehost", "samenet"].contains(&address)
}
