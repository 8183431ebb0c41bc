//! Warnings of databases with a `user` that is the role of more people than the file seems to say.
//!
//! Where a database has no `user`, the server itself decides on each client's own role.

use sluice_control::access::{Method, Policy};
use sluice_hba::{Method as RuleMethod, Rule};

use crate::{ServerAddress, auth::Auth, database::Database, hba, reader::Source, report::Fault, schema};

/// A database all of whose clients work as one role.
struct Shared<'a> {
    database: &'a Database,
    /// Its name, perhaps `"*"`.
    name: &'a str,
    /// The role.
    role: &'a str,
    /// The place where the role is given.
    offset: usize,
}

/// Notes the databases of which users get a role that nobody has said they may have.
pub(crate) fn warn(source: &Source<'_>, databases: &[Database], auth: &Auth) {
    let shared = databases.iter().filter_map(|database| {
        let (name, _) = database.name.as_ref()?;
        Some(Shared { database, name, role: database.config.user.as_deref()?, offset: database.user_offset? })
    });
    let shared: Vec<_> = shared.collect();
    if !auth.config.known_users_only {
        warn_of_trust(source, &shared, &auth.config.policy);
    }
    warn_of_other_hosts(source, &shared, databases, auth);
    warn_of_a_missing_password(source, databases, auth);
}

/// Whoever is believed under any name has the role.
fn warn_of_trust(source: &Source<'_>, shared: &[Shared<'_>], policy: &Policy) {
    let remedy = "have passwords asked for; or list the users in users_file, and add known_users_only = true to [auth]";
    match policy {
        Policy::Method(Method::Trust) => {
            for Shared { role, offset, .. } in shared {
                let what = format!("with method = \"trust\", whoever connects works as {role:?}, under any name");
                source.warn(*offset, schema::DATABASE.path_of(schema::DATABASE_USER.name), Fault::new(what, remedy));
            }
        }
        Policy::Rules(rules) => {
            let rules = rules.rules.rules().iter().filter(|rule| trusts_any_name(rule));
            let warnings = rules.filter_map(|rule| {
                let Shared { name, role, .. } = shared.iter().find(|shared| is_for(rule, shared.name))?;
                let what = format!("whoever connects to the database {name:?} works as {role:?}, under any name");
                Some(hba::at_line(&rule.place().file, rule.place().line, &what, remedy))
            });
            source.warn_elsewhere(warnings.collect());
        }
        Policy::Method(_) | Policy::TrustOfKnown(_) | Policy::ServerRules(_) => {}
    }
}

fn trusts_any_name(rule: &Rule) -> bool {
    rule.method() == RuleMethod::Trust && rule.users().any(|user| user == "all")
}

/// Whether a rule may count for a database of that name.
fn is_for(rule: &Rule, name: &str) -> bool {
    rule.databases().any(|of| of == "all" || of == name || name == "*" || of.starts_with('/'))
}

/// The users of the server where secrets are looked up have the role on another server.
fn warn_of_other_hosts(source: &Source<'_>, shared: &[Shared<'_>], databases: &[Database], auth: &Auth) {
    let Some(look_up) = &auth.config.lookup else { return };
    let Some(asked) = asked(databases, &look_up.database) else { return };
    for Shared { role, offset, .. } in shared.iter().filter(|it| it.database.config.server != asked.config.server) {
        let what = format!(
            "secrets are looked up in {:?}, on another server: whoever may log in there works here as {role:?}",
            look_up.database
        );
        let remedy = "name the users that may, by rules for this database in hba_file; or leave out user, so that the \
                      server decides";
        source.warn(*offset, schema::DATABASE.path_of(schema::DATABASE_USER.name), Fault::new(what, remedy));
    }
}

/// The entry that a database is found by.
fn asked<'a>(databases: &'a [Database], name: &str) -> Option<&'a Database> {
    let named = |name: &str| databases.iter().find(|it| it.name.as_ref().is_some_and(|(its, _)| its == name));
    named(name).or_else(|| named("*"))
}

/// By TCP most servers ask for a password, and every log-in by look-up would fail.
fn warn_of_a_missing_password(source: &Source<'_>, databases: &[Database], auth: &Auth) {
    let (Some(look_up), Some((_, offset))) = (&auth.config.lookup, &auth.lookup_database) else { return };
    let Some(asked) = asked(databases, &look_up.database).filter(|_| look_up.password.is_none()) else { return };
    let is_remote = !matches!(asked.config.server, ServerAddress::Unix { .. });
    let may_have_certificate = asked.config.tls.as_ref().is_some_and(|tls| tls.expiry.is_some());
    if is_remote && !may_have_certificate {
        let what = format!(
            "the role {:?} has no password, and looks up by TCP, where servers mostly ask for one: nobody could log in",
            look_up.user
        );
        let remedy = "add password_file to [auth.lookup], unless the server's pg_hba.conf lets the role in by trust";
        source.warn(*offset, schema::LOOKUP.path_of(schema::LOOKUP_DATABASE.name), Fault::new(what, remedy));
    }
}
