//! `[admin]`: reads it, and checks that its database is no other.

use sluice_control::access::Admin;

use crate::{
    database::Database,
    reader::{Origin, Section},
    report::Fault,
    schema::{self, Key},
};

pub(crate) const RULES: &[&str] =
    &["`[admin]` needs `users` or `stats_users`; its `database` may not be the name of a `[[database]]`."];

/// Reads `[admin]`.
pub(crate) fn read(section: &Section<'_>, databases: &[Database]) -> Option<Admin> {
    let database = section.read(&schema::ADMIN_DATABASE).or_default(schema::CONSOLE.to_owned());
    let named = |key: &'static Key<_>, most| section.read_list(key, most).value();
    let users = named(&schema::ADMIN_USERS, schema::ADMIN_USERS.kind.count_max);
    let stats_users = named(&schema::ADMIN_STATS_USERS, schema::ADMIN_STATS_USERS.kind.count_max);
    if !section.is_given() {
        return None;
    }
    if users.is_none() && stats_users.is_none() {
        let fault = Fault::new("nobody may use it", "name somebody: users = [\"…\"], or leave [admin] out");
        section.source().add(section.offset(), "admin", fault);
    }
    let taken = databases.iter().filter_map(|other| other.name.as_ref()).find(|(name, _)| *name == database.value);
    if let Some((name, offset)) = taken {
        let what = format!("{name:?} is the name of the admin console");
        let remedy = match database.origin {
            Origin::Given(_) => "give one of them another name",
            _ => "give the console another one: database = \"…\" in [admin]",
        };
        let path = schema::DATABASE.path_of(schema::DATABASE_NAME.name);
        section.source().add(Some(*offset), path, Fault::new(what, remedy));
    }
    let names =
        |list: Option<Vec<(String, usize)>>| list.unwrap_or_default().into_iter().map(|(name, _)| name).collect();
    Some(Admin { database: database.value, users: names(users), stats_users: names(stats_users) })
}
