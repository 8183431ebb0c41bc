//! The look-up of users (`auth_user`, `auth_query`, `auth_dbname`), of which PgBouncer has one for each database, and
//! Sluice one.

use std::{collections::BTreeSet, path::Path};

use toml_edit::{Item, Value, value};

use super::{
    Conversion, Entry,
    access::{beside, read},
};
use crate::{
    Secret,
    users::{self, SecretForm},
};

/// The file that the password of the role that looks up belongs in.
const PASSWORD_FILE: &str = "lookup.password";

/// The settings, and their keys of `[auth.lookup]`.
const KEYS: [(&str, &str); 3] = [("auth_user", "user"), ("auth_query", "query"), ("auth_dbname", "database")];

/// The values of the settings, in that order.
type Values = [Option<String>; 3];

/// The look-up of a line of `[databases]`.
#[derive(Debug)]
pub(super) struct OfDatabase {
    line: usize,
    pub(super) database: String,
    values: Values,
}

impl OfDatabase {
    pub(super) fn new(entry: &Entry) -> Self {
        Self { line: entry.line, database: entry.key.clone(), values: Values::default() }
    }

    /// Takes a setting of the database's own.
    pub(super) fn take(&mut self, setting: &str, text: &str) {
        if let Some(at) = KEYS.iter().position(|(known, _)| *known == setting).filter(|_| !text.is_empty()) {
            self.values[at] = Some(text.to_owned());
        }
    }

    fn user(&self) -> Option<&str> {
        self.values[0].as_deref()
    }
}

impl Conversion {
    /// Chooses the one look-up, and says which databases have another one, or none; whether it asks in each client's own
    /// database with PgBouncer.
    pub(super) fn lookup(&mut self, ini: &Path) -> bool {
        let of_all = KEYS.map(|(_, key)| self.lookup.get(key).and_then(Item::as_str).map(str::to_owned));
        let mut lookups = std::mem::take(&mut self.lookups);
        if self.knows_no_users {
            if of_all[0].is_some() || lookups.iter().any(|it| it.user().is_some()) {
                let what = "with auth_type = any nobody is looked up, as with PgBouncer";
                self.say(None, "auth_user", what, false);
            }
            self.lookup.clear();
            return false;
        }
        for it in &mut lookups {
            for (own, of_all) in it.values.iter_mut().zip(&of_all) {
                if own.is_none() {
                    own.clone_from(of_all);
                }
            }
        }
        let chosen = choose(&lookups, &of_all);
        self.lookup.clear();
        for ((_, key), chosen) in KEYS.iter().zip(&chosen) {
            if let Some(chosen) = chosen {
                self.lookup.insert(key, value(chosen.as_str()));
            }
        }
        let asks_everywhere = chosen[2].is_none();
        if chosen[0].is_none() {
            self.lookup.clear();
            match lookups.iter().any(|it| it.user().is_some()) {
                true => self.turned_away(&lookups),
                false if lookups.iter().any(|it| it.values[1].is_some()) || of_all[1].is_some() => {
                    self.say(None, "auth_query", "no effect without auth_user", false);
                }
                false => {}
            }
            return asks_everywhere;
        }
        self.look_up_of_admins(ini);
        self.looked_up_otherwise(&lookups, &chosen);
        if asks_everywhere {
            self.place_to_ask(&lookups, &chosen);
        }
        self.password_of_asker(chosen[0].as_deref().unwrap_or_default(), ini);
        asks_everywhere
    }

    /// Says which users of the console are looked up.
    fn look_up_of_admins(&mut self, ini: &Path) {
        let named = ["users", "stats_users"].into_iter().filter_map(|key| self.admin.get(key)?.as_array());
        let named: BTreeSet<String> = named.flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let unlisted: Vec<_> = self.unlisted(named, ini).into_iter().map(|user| format!("{user:?}")).collect();
        if !unlisted.is_empty() {
            let what = format!(
                "at its console PgBouncer looks nobody up, and Sluice does. Of admin_users and stats_users, list in \
                 auth_file: {}",
                unlisted.join(", ")
            );
            self.first(None, "admin_users", &what);
        }
    }

    /// Says how the role that looks up gets its password, and keeps a place for it.
    fn password_of_asker(&mut self, asker: &str, ini: &Path) {
        if let Some(mut key) = self.lookup.key_mut("user") {
            key.leaf_decor_mut().set_prefix(format!("# password_file = {PASSWORD_FILE:?}\n"));
        }
        let needs = format!(
            "unless the server lets the role in without one, its password has to stand alone in a file that only the \
             pool may read, beside the new file, with the line password_file = {PASSWORD_FILE:?} under [auth.lookup]"
        );
        let file = self.auth.get("users_file").and_then(Item::as_str).map(|file| beside(ini, Path::new(file)));
        let text = file.as_ref().and_then(|file| read(file).ok()).unwrap_or_default();
        let listed = users::read_lines(&text, Path::new("")).users.remove(asker);
        let is_in_clear = |(Secret(secret), _): &(Secret, usize)| {
            !secret.is_empty() && matches!(users::form(secret), Ok(SecretForm::Plain))
        };
        let what = match (listed.filter(is_in_clear), file) {
            (Some((_, line)), Some(file)) if asker.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                format!(
                    "{needs}. It stands in auth_file, from which it is not taken: (umask 077; sed -n \
                     '{line}s/^\"{asker}\" *\"\\(.*\\)\".*/\\1/p' '{}' > {PASSWORD_FILE})",
                    file.display()
                )
            }
            _ => format!("{needs}: it is not taken from auth_file"),
        };
        self.say(None, "auth_user", what, true);
    }

    /// Says that there are several look-ups, none of which is that of all databases.
    fn turned_away(&mut self, lookups: &[OfDatabase]) {
        let mut kinds: Vec<(&Values, Vec<String>)> = Vec::new();
        for it in lookups.iter().filter(|it| it.user().is_some()) {
            let name = format!("{:?}", it.database);
            match kinds.iter_mut().find(|(values, _)| **values == it.values) {
                Some((_, names)) => names.push(name),
                None => kinds.push((&it.values, vec![name])),
            }
        }
        let described = kinds.iter().map(|(values, names)| {
            let keys =
                KEYS.iter().zip(*values).filter_map(|((_, key), it)| Some(format!("{key} = {:?}", it.as_ref()?)));
            format!("{} for {}", keys.collect::<Vec<_>>().join(", "), names.join(", "))
        });
        let what = format!(
            "CLIENTS THAT ARE NOT IN auth_file ARE TURNED AWAY: PgBouncer looks them up by a user that differs between \
             databases, and Sluice by one for all. Add them to the users_file, or choose one look-up for [auth.lookup]: {}",
            described.collect::<Vec<_>>().join("; ")
        );
        self.say(None, "auth_user", what, true);
    }

    /// Says which databases have another look-up than the chosen one, or none.
    fn looked_up_otherwise(&mut self, lookups: &[OfDatabase], chosen: &Values) {
        let mut without = Vec::new();
        for it in lookups {
            if it.user().is_none() {
                without.push(format!("{:?}", it.database));
                continue;
            }
            let differs = KEYS.iter().zip(it.values.iter().zip(chosen)).filter(|(_, (own, chosen))| own != chosen);
            let differs: Vec<_> = differs.map(|((setting, _), _)| *setting).collect();
            if !differs.is_empty() {
                let what = format!(
                    "{}: there is one look-up for all databases, which may find other users: see [auth.lookup]",
                    differs.join(", ")
                );
                self.first(Some(it.line), &it.database, &what);
            }
        }
        if !without.is_empty() {
            let what = format!(
                "for {} PgBouncer looks nobody up, and Sluice does, as for the others. Have rules in an hba_file name the \
                 users of these databases",
                without.join(", ")
            );
            self.first(None, "auth_user", &what);
        }
    }

    /// Chooses the database to ask in, where PgBouncer asks in each client's own.
    fn place_to_ask(&mut self, lookups: &[OfDatabase], chosen: &Values) {
        let mut asked = lookups.iter().filter(|it| it.user() == chosen[0].as_deref());
        let named = asked.next().or(lookups.first()).map_or("*", |it| it.database.as_str());
        let database = if named == "*" { "postgres" } else { named };
        self.lookup.insert("database", value(database));
        if named != "*" && asked.next().is_none() {
            return;
        }
        let what = format!("asked in the database {database:?} only, where PgBouncer asks in each client's own");
        if self.lookup.contains_key("query") {
            self.first(None, "auth_query", &format!("{what}: the query may find other users there"));
        } else {
            self.say(None, "auth_query", what, true);
        }
    }
}

/// The look-up that stands for all: that of `[pgbouncer]` where a database has it, else the only one that databases have;
/// without a user if there is none, or several.
fn choose(lookups: &[OfDatabase], of_all: &Values) -> Values {
    let with_user: Vec<_> = lookups.iter().filter(|it| it.user().is_some()).collect();
    let Some(first) = with_user.first() else { return of_all.clone() };
    let has =
        |at: usize, wanted: &Option<String>, among: &[&OfDatabase]| among.iter().any(|it| it.values[at] == *wanted);
    let user = if has(0, &of_all[0], &with_user) {
        &of_all[0]
    } else if with_user.iter().all(|it| it.user() == first.user()) {
        &first.values[0]
    } else {
        return Values::default();
    };
    let alike: Vec<_> = with_user.into_iter().filter(|it| it.values[0] == *user).collect();
    let of = |at: usize| if has(at, &of_all[at], &alike) { &of_all[at] } else { &alike[0].values[at] };
    [user.clone(), of(1).clone(), of(2).clone()]
}

#[cfg(test)]
mod tests {
    use super::super::{Converted, convert};

    #[test]
    fn users_whom_single_databases_look_up_are_looked_up() {
        let of = |databases: &str, settings: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let text =
                format!("[databases]\n{databases}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = md5\n{settings}");
            std::fs::write(file.path(), text).unwrap();
            let Converted { toml, notes } = convert(file.path()).unwrap();
            let lookup =
                toml.split("\n[auth.lookup]\n").nth(1).map(|rest| rest.split("\n\n").next().unwrap().to_owned());
            let first = notes.iter().filter(|note| note.widens).map(ToString::to_string).collect::<Vec<_>>();
            let lookup = lookup.map(|lookup| {
                let keys = lookup.strip_prefix("# password_file = \"lookup.password\"\n");
                keys.expect("a place for the password").to_owned()
            });
            (lookup.unwrap_or_default(), first, toml)
        };
        let query = "auth_query = SELECT usename, passwd FROM users($1)\n";
        let same = "user = \"asks\"\nquery = \"SELECT usename, passwd FROM users($1)\"\ndatabase = \"a\"";
        // PgBouncer asks in the same place.
        let (lookup, first, toml) = of("a = auth_user=asks", query);
        assert_eq!((&*lookup, &first[..]), (same, &[][..]));
        assert!(!toml.contains("no effect"), "{toml}");
        let (lookup, first, _) = of("z = host=x\na = auth_user=asks", query);
        assert_eq!(lookup, same);
        assert!(first.len() == 1 && first[0].contains("for \"z\" PgBouncer looks nobody up"), "{first:?}");
        let (lookup, first, _) = of("a = auth_user=asks\nb = auth_user=asks", query);
        assert_eq!(lookup, same);
        assert!(first.len() == 1 && first[0].contains("asked in the database \"a\" only"), "{first:?}");
        // That of all counts where a database has it.
        let (lookup, first, _) = of("a =\nb = auth_user=other", "auth_user = asks\n");
        assert_eq!(lookup, "user = \"asks\"\ndatabase = \"a\"");
        assert!(
            first.len() == 1 && first[0].starts_with("line 3, b: ") && first[0].contains("auth_user: "),
            "{first:?}"
        );
        let (lookup, first, _) = of("a = auth_user=asks auth_dbname=c auth_query='SELECT 1'\nc = auth_user=asks", "");
        assert_eq!(lookup, "user = \"asks\"\ndatabase = \"a\"");
        assert!(first.len() == 1 && first[0].contains("auth_query, auth_dbname: "), "{first:?}");
        // Of several, none is right for all.
        let (lookup, first, toml) = of("a = auth_user=asks\nb = auth_user=other", query);
        assert_eq!((&*lookup, &first[..]), ("", &[][..]));
        let said = "user = \"asks\", query = \"SELECT usename, passwd FROM users($1)\" for \"a\"; user = \"other\", ";
        assert!(toml.lines().any(|line| line.starts_with("# auth_user: CLIENTS ") && line.contains(said)), "{toml}");
        let (lookup, _, toml) = of("a = auth_query='SELECT 1'", "");
        assert!(lookup.is_empty() && !toml.contains("TURNED AWAY"), "{toml}");
    }
}
