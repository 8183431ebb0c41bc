//! The users whom PgBouncer knows, of `auth_file` and otherwise.
//!
//! What PgBouncer does with those who have no secret in `auth_file` was seen from 1.18: they are let in where nobody is
//! asked for a password, refused where they are, and not looked up.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use toml_edit::{Array, Item, Table, value};

use super::{
    Conversion, Entry,
    access::{beside, read},
    ini,
    settings::{Counterpart, counterpart},
};
use crate::users;

/// The user that PgBouncer makes for its console.
const CONSOLE_USER: &str = "pgbouncer";

/// Users that are known by more than `auth_file`.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Those of `[users]`.
    users: BTreeSet<String>,
    /// Those who look others up.
    pub(super) askers: BTreeSet<String>,
}

impl Conversion {
    /// A line of `[users]`.
    pub(super) fn user(&mut self, entry: &Entry) {
        let Some(parts) = ini::parts(&entry.value) else {
            return self.wrong(entry, "not a list of settings", "write max_user_connections=…");
        };
        let mut user = Table::new();
        for (key, text) in &parts {
            match (key.as_str(), counterpart(key)) {
                ("max_user_connections" | "max_user_client_connections", Some(Counterpart::Key(_, name, kind))) => {
                    let name = name.strip_suffix("_per_user").unwrap_or(name);
                    match self.value(entry, key, &kind, text) {
                        Some(converted) => _ = user.insert(name, converted.into()),
                        None => self.note(entry, &format!("{key}: that of all users holds for this one, too")),
                    }
                }
                _ => self.note(
                    entry,
                    &format!("{key}: can't be set for single users here: that of the database or of [pool] holds"),
                ),
            }
        }
        let of_name = |user: &Table| user.get("name").and_then(Item::as_str) == Some(&entry.key);
        if self.users.extract_if(.., |user| of_name(user)).count() > 0 {
            self.note(entry, "stands here once more: of several lines with one name, the last one counts");
        }
        self.known.users.insert(entry.key.clone());
        if !user.is_empty() {
            user.insert("name", value(entry.key.as_str()));
            self.users.push(user);
        }
    }

    /// Users that are not asked for a password have to be known, too, as PgBouncer wants it of all users.
    pub(super) fn known_users(&mut self, ini: &Path) {
        let is_trust = self.auth.get("method").and_then(Item::as_str) == Some("trust");
        let has_rules = self.auth.contains_key("hba_file");
        if self.lookup.is_empty() {
            if (is_trust && !self.knows_no_users) || has_rules {
                self.auth.insert("known_users_only", value(true));
                let users = self.known.users.union(&self.known.askers).cloned().collect();
                self.without_secret(users, ini);
            } else if !self.asks_otherwise {
                self.empty_passwords(ini);
            }
            return;
        }
        if is_trust {
            self.auth.insert("method", value("md5"));
            let what = "trust lets in users whom auth_query finds, without a password; Sluice looks nobody up who need not \
                        prove anything, so it asks for passwords: method = \"md5\" under [auth]. To ask for none, replace \
                        [auth.lookup] by users_file and known_users_only = true";
            return self.say(None, "auth_type", what, true);
        }
        if has_rules {
            let what = "by a rule of trust, cert or peer, PgBouncer lets in only users that it knows, or \
                        whom auth_query finds, and Sluice whoever the rule is for, in a database with user as that role. \
                        Have such rules name their users, or ask for passwords";
            self.first(None, "auth_hba_file", what);
        }
        if !self.asks_otherwise {
            self.not_looked_up(ini);
        }
    }

    /// Those whom PgBouncer knows, and does not look up, are not looked up here, either.
    fn not_looked_up(&mut self, ini: &Path) {
        let asker = self.lookup.get("user").and_then(Item::as_str).map(str::to_owned);
        let mut users = self.known.users.clone();
        users.append(&mut self.known.askers.clone());
        users.extend(asker);
        users.insert(CONSOLE_USER.to_owned());
        let users = self.without_secret(users, ini);
        let named: Vec<_> = users.intersection(&self.known.users).map(|user| format!("{user:?}")).collect();
        if !named.is_empty() {
            let what = format!(
                "{} can't log in by password, as with PgBouncer 1.18 (but by scram-sha-256 it takes an empty one), which \
                 does not look up whom this section names, and finds no secret in auth_file. For Sluice to look them up, take them out of users_without_secret under \
                 [auth]",
                named.join(", ")
            );
            self.say(None, "[users]", what, true);
        }
    }

    /// Says who gets in with PgBouncer by a password that is empty, which is none here.
    fn empty_passwords(&mut self, ini: &Path) {
        if self.auth.get("method").and_then(Item::as_str) != Some("scram-sha-256") {
            return;
        }
        let users = self.unlisted(self.known.users.clone(), ini);
        let named: Vec<_> = users.iter().map(|user| format!("{user:?}")).collect();
        if !named.is_empty() {
            let what = format!(
                "{} can't log in, without a secret in auth_file; PgBouncer 1.18 lets them in with an empty password. Give \
                 them one there",
                named.join(", ")
            );
            self.say(None, "[users]", what, true);
        }
    }

    /// Writes down those of the users who have no secret in `auth_file`, and gives them.
    fn without_secret(&mut self, users: BTreeSet<String>, ini: &Path) -> BTreeSet<String> {
        let users = self.unlisted(users, ini);
        if !users.is_empty() {
            self.auth.insert("users_without_secret", value(users.iter().collect::<Array>()));
        }
        users
    }

    /// Those of the users who do not stand in `auth_file`.
    pub(super) fn unlisted(&self, mut users: BTreeSet<String>, ini: &Path) -> BTreeSet<String> {
        let file = self.auth.get("users_file").and_then(Item::as_str).map(PathBuf::from);
        let text = file.and_then(|file| read(&beside(ini, &file)).ok()).unwrap_or_default();
        let listed: BTreeMap<_, _> = users::read_lines(&text, Path::new("")).users;
        users.retain(|user| !listed.contains_key(user));
        users
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Converted, convert};

    /// The table `[auth]`, the notes on `[users]`, and all of those that come first.
    fn auth(databases: &str, settings: &str) -> (String, Vec<String>, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("users.txt"), "\"ann\" \"secret\"\n").unwrap();
        let ini = place.path().join("pgbouncer.ini");
        let users = "[users]\nann = pool_mode=session\nbob = max_user_connections=3\n";
        let text = format!("[databases]\n{databases}\n{users}[pgbouncer]\nlisten_addr = 127.0.0.1\n{settings}\n");
        std::fs::write(&ini, text).unwrap();
        let Converted { toml, notes } = convert(&ini).unwrap();
        let table = toml.split("\n[auth]\n").nth(1).unwrap().split("\n[").next().unwrap().trim().to_owned();
        let said = |wanted: &dyn Fn(&super::super::Note) -> bool| {
            notes.iter().filter(|note| wanted(note)).map(ToString::to_string).collect::<Vec<_>>()
        };
        (table, said(&|note| note.key == "[users]"), said(&|note| note.widens))
    }

    #[test]
    fn users_of_the_section_are_known_and_have_no_secret() {
        let file = "auth_file = users.txt\n";
        let known = "users_file = \"users.txt\"\nknown_users_only = true\nusers_without_secret = [\"bob\"]";
        let (table, said, _) = auth("a =", &format!("auth_type = trust\n{file}"));
        assert_eq!((table, said.len()), (format!("method = \"trust\"\n{known}"), 0));
        let (table, _, _) = auth("a =", "auth_type = trust");
        assert!(table.ends_with("known_users_only = true\nusers_without_secret = [\"ann\", \"bob\"]"), "{table}");
        let (table, _, _) = auth("a =", &format!("{file}auth_type = hba\nauth_hba_file = hba.conf"));
        assert!(table.contains("known_users_only = true\nusers_without_secret = [\"bob\"]"), "{table}");
        // Where all are asked for passwords, none is as good as a wrong one.
        let (table, _, _) = auth("a =", &format!("auth_type = md5\n{file}"));
        assert_eq!(table, "method = \"md5\"\nusers_file = \"users.txt\"");
        let (_, said, _) = auth("a =", &format!("{file}auth_type = scram-sha-256"));
        assert!(said.len() == 1 && said[0].starts_with("[users]: \"bob\" can't log in, "), "{said:?}");
    }

    #[test]
    fn users_of_the_section_are_not_looked_up() {
        let file = "auth_file = users.txt\n";
        let (table, said, _) = auth("a =\nb = auth_user=other", &format!("{file}auth_type = md5\nauth_user = asks"));
        assert!(table.ends_with("users_without_secret = [\"asks\", \"bob\", \"other\", \"pgbouncer\"]"), "{table}");
        assert!(said.len() == 1 && said[0].starts_with("[users]: \"bob\" can't log in"), "{said:?}");
        // There it is said that passwords stand in for something else.
        let (table, _, first) = auth("a =", &format!("{file}auth_type = cert\nauth_user = asks"));
        assert!(!table.contains("without_secret") && first[0].starts_with("line "), "{table} {first:?}");
    }

    #[test]
    fn nobody_is_looked_up_where_any_name_is_let_in() {
        for (databases, settings) in [
            ("a = user=own", "auth_user = asks\nauth_query = SELECT 1\n"),
            ("a = user=own auth_user=asks\nb = user=own auth_user=other", ""),
        ] {
            let (table, said, first) = auth(databases, &format!("{settings}auth_type = any\nauth_file = users.txt"));
            assert_eq!(table, "method = \"trust\"\nusers_file = \"users.txt\"");
            assert_eq!([said, first], [[""; 0]; 2]);
        }
    }

    #[test]
    fn a_file_of_users_stays_beside_a_look_up() {
        let place = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new_in(&place).unwrap();
        let settings = "listen_addr = 127.0.0.1\nauth_type = md5\nauth_file = users.txt\nauth_user = asks\n";
        std::fs::write(file.path(), format!("[databases]\na =\n[pgbouncer]\n{settings}admin_users = dba\n")).unwrap();
        let converted = convert(file.path()).unwrap();
        assert!(
            converted.toml.contains("method = \"md5\"\nusers_file = \"users.txt\"\nusers_without_secret = [")
                && converted.toml.contains("\n\n[auth.lookup]\n"),
            "{}",
            converted.toml
        );
        let first = &converted.notes[0];
        assert!(first.widens && first.key == "admin_users" && first.what.contains("\"dba\""), "{first:?}");
        // Whoever stands in the file is not looked up.
        let users = file.path().with_file_name("users.txt");
        let said = |listed: &str| {
            std::fs::write(&users, listed).unwrap();
            convert(file.path()).unwrap().notes
        };
        assert!(!said("\"dba\" \"x\"\n").iter().any(|note| note.widens), "the one who commands has a secret there");
        assert!(said("\"ann\" \"x\"\n")[0].widens);
        // The password of who asks stands there, and is not shown.
        let notes = said("\"dba\" \"x\"\n\"asks\" \"hidden\"\n");
        let asker = notes.iter().find(|note| note.key == "auth_user").unwrap();
        let command = "sed -n '2s/^\"asks\" *\"\\(.*\\)\".*/\\1/p'";
        assert!(asker.what.contains(command) && !asker.what.contains("hidden"), "{asker}");
        let none = said("\"dba\" \"x\"\n\"asks\" \"md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n");
        assert!(!none.iter().any(|note| note.what.contains("sed -n")), "{none:?}");
    }
}
