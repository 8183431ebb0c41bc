//! `[auth]` and `[auth.lookup]`: reads them, and checks that every method has what it needs.

use std::{collections::BTreeSet, path::Path};

use sluice_control::access::{AccessRules, Policy};

use crate::{
    AuthConfig, LookupConfig, Method, credentials, files, hba,
    listen::Listen,
    reader::{Origin, Read, Section, Setting},
    report::Fault,
    schema,
    users::{self, Lines},
};

pub(crate) const RULES: &[&str] = &[
    "Every method but `\"trust\"` needs `users_file` or `[auth.lookup]`. With both, the users of the file go by the secrets \
     there, whatever they are on the server, and one whose secret there is empty can't log in by password; rules that name \
     roles still ask the server which ones a user has.",
    "`\"trust\"` looks nothing up, so it excludes `[auth.lookup]`; with it, a `users_file` serves for logging in to \
     servers.",
    "`\"trust\"` on an address that other hosts can reach needs `trust_anyone = true`, which no other method takes.",
    "`auth.hba_file` and `auth.hba` take the place of `auth.method`, and exclude each other; `auth.ident_file` needs \
     `auth.hba_file`, and `auth.hba` needs `[auth.lookup]`.",
    "`auth.lookup.database` must be the name of a `[[database]]`, or one must be named `\"*\"`; `auth.lookup.query` \
     must contain `$1`.",
];

/// The table with what is needed to check it against others.
pub(crate) struct Auth {
    pub(crate) config: AuthConfig,
    /// The database of the look-up, and where it is given.
    pub(crate) lookup_database: Option<(String, usize)>,
}

/// Reads `[auth]`.
pub(crate) fn read(section: &Section<'_>, listen: &Listen) -> Auth {
    let method = section.read(&schema::METHOD).or_default(Method::ScramSha256);
    let rules = hba::read(section);
    let of_server = section.read(&schema::HBA).given();
    let by_file = section.has(schema::HBA_FILE.name);
    let by_rules = by_file || section.has(schema::HBA.name);
    if let (true, Origin::Given(offset)) = (by_rules, method.origin) {
        let key = if by_file { schema::HBA_FILE.name } else { schema::HBA.name };
        let fault = Fault::new(format!("the rules of {key} say the method"), "leave out one of the two");
        section.note(&schema::METHOD, offset, fault);
    }
    if let (true, Some(((), offset))) = (by_file, of_server) {
        section.note(&schema::HBA, offset, Fault::new("hba_file is given too", "keep one of the two"));
    }
    // Rules say themselves who is trusted from where.
    let trusted = if by_rules { Setting { value: Method::ScramSha256, ..method } } else { method };
    check_trust(section, trusted, listen);
    let users_file = section.read(&schema::USERS_FILE);
    let lookup_section = section.table(&schema::LOOKUP);
    let lookup = lookup_section.is_given().then(|| read_lookup(&lookup_section));
    let has_file = !matches!(users_file, Read::Absent);
    match (&rules, of_server) {
        (Some(rules), _) => check_sources_of_rules(section, rules, has_file || lookup_section.is_given()),
        (None, Some(((), offset))) => check_sources_of_server(section, offset, has_file, &lookup_section),
        (None, None) if by_rules => {}
        (None, None) => check_sources(section, method, has_file, &lookup_section),
    }
    let only = section.read(&schema::KNOWN_USERS_ONLY).given().filter(|(only, _)| *only).map(|(_, offset)| offset);
    let file = users_file.given().map(|(path, offset)| (section.source().resolve(&path), offset));
    let mut known = file.as_ref().map(|(path, offset)| read_users_file(section, path, *offset)).unwrap_or_default();
    let without_secret = section.read_list(&schema::USERS_WITHOUT_SECRET, schema::USERS_WITHOUT_SECRET.kind.count_max);
    let without_secret: Vec<_> = without_secret.value().unwrap_or_default().into_iter().map(|(user, _)| user).collect();
    known.extend(without_secret.iter().cloned());
    if let Some(offset) = only {
        check_known_users(section, offset, known.is_empty(), &lookup_section);
    }
    let (lookup, lookup_database) = lookup.unzip();
    let users_file = file.map(|(path, _)| path);
    let policy = match rules {
        Some(rules) if only.is_some() => Policy::Rules(hba::for_known_users(&rules, known)),
        Some(rules) => Policy::Rules(rules),
        None if of_server.is_some() => Policy::ServerRules(None),
        None if only.is_some() && method.value == Method::Trust => {
            Policy::TrustOfKnown(hba::for_known_users(&hba::trust(), known))
        }
        None => Policy::Method(method.value),
    };
    let known_users_only = only.is_some();
    Auth {
        config: AuthConfig { policy, users_file, without_secret, lookup, known_users_only },
        lookup_database: lookup_database.flatten(),
    }
}

/// Reads `[auth.lookup]`; values that are missing have been noted, and the configuration will not be used.
fn read_lookup(section: &Section<'_>) -> (LookupConfig, Option<(String, usize)>) {
    let database = section.read_required(&schema::LOOKUP_DATABASE);
    let query = section.read(&schema::QUERY).given();
    if let Some((query, offset)) = &query
        && !query.contains("$1")
    {
        let fault = Fault::new("the query does not ask for the user", "use $1 where the user's name belongs");
        section.note(&schema::QUERY, *offset, fault);
    }
    let password = credentials::read(section, &schema::LOOKUP_PASSWORD, &schema::LOOKUP_PASSWORD_FILE);
    let config = LookupConfig {
        user: section.read_required(&schema::LOOKUP_USER).map(|(user, _)| user).unwrap_or_default(),
        password: password.map(|(password, _)| password),
        database: database.as_ref().map(|(name, _)| name.clone()).unwrap_or_default(),
        query: query.map_or_else(|| schema::LOOKUP_QUERY.to_owned(), |(query, _)| query),
        cache: section.read(&schema::CACHE).value().unwrap_or(schema::LOOKUP_CACHE),
    };
    (config, database)
}

/// Checks that trust is meant where other hosts can connect.
fn check_trust(section: &Section<'_>, method: Setting<Method>, listen: &Listen) {
    let anyone = section.read(&schema::TRUST_ANYONE).or_default(false);
    if anyone.origin == Origin::Bad || method.origin == Origin::Bad {
        return;
    }
    if method.value != Method::Trust {
        if let Origin::Given(offset) = anyone.origin {
            let fault = Fault::new("only method = \"trust\" takes it", "leave it out");
            section.note(&schema::TRUST_ANYONE, offset, fault);
        }
        return;
    }
    if anyone.value {
        return;
    }
    for (address, offset) in listen.addresses.iter().filter(|(address, _)| !address.ip().is_loopback()) {
        let what = format!("auth.method = \"trust\" would let in anyone who reaches {address}, as any user");
        let remedy = "choose another method, listen on 127.0.0.1, or allow it: trust_anyone = true in [auth]";
        section.source().add(Some(*offset), schema::LISTEN.name, Fault::new(what, remedy));
    }
}

/// Checks that the secrets have a source.
fn check_sources(section: &Section<'_>, method: Setting<Method>, has_file: bool, lookup: &Section<'_>) {
    let note = |offset, key: &str, what: &str, remedy: &str| {
        section.source().add(offset, key, Fault::new(what, remedy));
    };
    match method {
        Setting { origin: Origin::Bad, .. } => {}
        Setting { value: Method::Trust, .. } if lookup.is_given() => {
            let remedy = "leave out [auth.lookup], or choose another method";
            note(lookup.offset(), "auth.lookup", "method = \"trust\" looks nothing up", remedy);
        }
        Setting { value: Method::Md5 | Method::ScramSha256, origin } if !has_file && !lookup.is_given() => {
            let offset = match origin {
                Origin::Given(offset) => Some(offset),
                _ => section.offset(),
            };
            let what = "the method needs secrets, and none are given";
            let remedy = "add users_file = \"users.txt\" to [auth], or add [auth.lookup] with user and database";
            note(offset, "auth.method", what, remedy);
        }
        Setting { .. } => {}
    }
}

/// The same where there are rules, some of which may need secrets.
fn check_sources_of_rules(section: &Section<'_>, rules: &AccessRules, has_source: bool) {
    if !has_source && hba::needs_secrets(rules) {
        let remedy = "add users_file = \"users.txt\" to [auth], or add [auth.lookup] with user and database";
        let fault = Fault::new("the rules ask for passwords, and no secrets are given", remedy);
        section.source().add(section.offset(), "auth", fault);
    }
}

/// The same where the rules are the server's, which are asked for where secrets are.
fn check_sources_of_server(section: &Section<'_>, offset: usize, has_file: bool, lookup: &Section<'_>) {
    let fault = match (has_file, lookup.is_given()) {
        (true, _) => Fault::new("users_file is given too, and the server knows the users", "leave out users_file"),
        (false, false) => {
            let remedy = "add [auth.lookup] with user and database, where that user may read pg_hba_file_rules";
            Fault::new("the server is asked for its rules as by [auth.lookup], which is not given", remedy)
        }
        (false, true) => return,
    };
    section.note(&schema::HBA, offset, fault);
}

/// Reads the users file, so that `sluice check` finds its problems too.
fn read_users_file(section: &Section<'_>, path: &Path, offset: usize) -> BTreeSet<String> {
    let text = match files::read_private(path, files::USERS_BYTES_MAX) {
        Ok(text) => text,
        Err(fault) => {
            section.note(&schema::USERS_FILE, offset, fault);
            return BTreeSet::new();
        }
    };
    let Lines { users, mut problems, repeated } = users::read_lines(&text, path);
    problems.sort_by_key(|problem| problem.position);
    section.source().add_elsewhere(problems);
    section.source().warn_elsewhere(repeated);
    users.into_keys().collect()
}

/// Checks that it is known who the users are that are let in alone.
fn check_known_users(section: &Section<'_>, offset: usize, is_empty: bool, lookup: &Section<'_>) {
    if lookup.is_given() {
        let what = "the users of [auth.lookup] are known one by one only, when they are asked for their passwords";
        let remedy = "leave it out, and have passwords asked for; or list the users in a users_file";
        section.note(&schema::KNOWN_USERS_ONLY, offset, Fault::new(what, remedy));
    } else if is_empty {
        let fault = Fault::new("nobody is let in: no user is known", "list the users in users_file");
        section.source().warn(offset, schema::AUTH.path_of(schema::KNOWN_USERS_ONLY.name), fault);
    }
}
