//! Who is let in: PgBouncer's methods and rules, and all by which Sluice may let in others.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use toml_edit::{Array, DocumentMut, Item, Table, Value, value};

use super::{Conversion, Entry, Note, hba, secrets};
use crate::{
    files,
    report::{Fault, Problem},
};

/// The largest file of rules or secrets that is read, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// Numbers of lines that a note gives, at most.
const LINES_MAX: usize = 20;

impl Conversion {
    pub(super) fn auth_type(&mut self, entry: &Entry) {
        let method = match entry.value.to_ascii_lowercase().as_str() {
            "trust" => "trust",
            "any" => {
                self.knows_no_users = true;
                self.note(entry, "whoever connects is let in under any name, as with PgBouncer");
                "trust"
            }
            "md5" => "md5",
            "scram-sha-256" => "scram-sha-256",
            "plain" => {
                self.note(entry, "passwords are not sent in clear: md5 in its place, and SCRAM for who has a verifier");
                "md5"
            }
            "hba" => {
                self.by_rules = Some(entry.clone());
                return;
            }
            "cert" => {
                self.asks_otherwise = true;
                let what = "with PgBouncer by a certificate of their name, and never by \
                            the Unix socket; here by a password, scram-sha-256, besides any certificate. For the former, \
                            have hba_file under [auth] name a file with the line \"hostssl all all all cert\" in place of \
                            method, and add known_users_only = true; the common name has to be the user's exactly, where \
                            PgBouncer takes an alternative one, too, and any case of letters";
                self.first(Some(entry.line), &entry.key, what);
                "scram-sha-256"
            }
            "pam" => {
                self.asks_otherwise = true;
                let what = "it has no counterpart yet, and scram-sha-256 stands in its place: \
                            whoever PAM would refuse gets in by a secret of auth_file, or of auth_user's look-up";
                self.first(Some(entry.line), &entry.key, what);
                "scram-sha-256"
            }
            other => {
                return self.wrong(entry, format!("{other:?} is no auth_type"), "write one that PgBouncer knows");
            }
        };
        self.auth.insert("method", value(method));
    }

    /// The mode of the Unix socket, which may keep local users from it: they need to write.
    pub(super) fn socket_mode(&mut self, entry: &Entry) {
        match u32::from_str_radix(&entry.value, 8) {
            Ok(mode) if mode & 0o222 == 0o222 => {}
            Ok(_) => self.socket_mode = Some(entry.clone()),
            Err(_) => self.wrong(entry, format!("{:?} is no mode", entry.value), "write it in octal, as 0770"),
        }
    }

    /// The rules by which clients are let in, or else the method.
    pub(super) fn rules(&mut self) {
        match &self.by_rules {
            Some(_) if self.auth.contains_key("hba_file") => {}
            Some(entry) => {
                let what = "there are no rules, without which PgBouncer lets nobody in";
                self.problems.push(entry.problem(Fault::new(what, "set auth_hba_file, or another auth_type")));
            }
            None => {
                for key in ["hba_file", "ident_file"] {
                    if self.auth.remove(key).is_some() {
                        self.say(None, &format!("auth_{key}"), "no effect without auth_type = hba", false);
                    }
                }
                if !self.auth.contains_key("method") {
                    self.auth.insert("method", value("md5"));
                }
            }
        }
    }

    /// Says where clients need no password with Sluice who did not get as far with PgBouncer.
    pub(super) fn widened(&mut self) {
        let is_trust = self.auth.get("method").and_then(Item::as_str) == Some("trust");
        let asks_nothing = is_trust || self.by_rules.is_some();
        if self.lacks_address {
            let what = "PgBouncer listens on its Unix socket only; Sluice needs an address besides";
            if asks_nothing {
                let what = format!(
                    "{what}, and lets in there by trust, or by the rules of \
                     auth_hba_file for hosts. Ask for passwords, or have hba_file under [auth] name a file with rules \
                     that begin with local only"
                );
                self.first(None, "listen_addr", &what);
            } else {
                self.say(None, "listen_addr", what, true);
            }
        }
        if let Some(entry) = self.socket_mode.take().filter(|_| !self.lacks_socket) {
            let what = "the socket is open to all local users: have unix_socket_dir name a folder that only the right \
                        ones may enter";
            if asks_nothing {
                self.first(Some(entry.line), &entry.key, &format!("{what}, or ask for passwords"));
            } else {
                self.note(&entry, what);
            }
        }
        let open = self.databases.iter().filter(|database| self.knows_no_users && !database.contains_key("user"));
        let open: Vec<_> = open.filter_map(|it| Some(format!("{:?}", it.get("name")?.as_str()?))).collect();
        if !open.is_empty() {
            let what = format!(
                "into databases without user PgBouncer lets nobody with auth_type = \
                 any, and Sluice whoever connects, as the role whose name is given. Give a user to {}, or remove them",
                open.join(", ")
            );
            self.first(None, "auth_type", &what);
        }
    }

    /// Says which lines PgBouncer reads otherwise, of files that Sluice reads, too.
    pub(super) fn read_otherwise(&mut self, ini: &Path) {
        for (key, name) in [("auth_hba_file", "hba_file"), ("auth_file", "users_file")] {
            let Some(named) = self.auth.get(name).and_then(Item::as_str).map(PathBuf::from) else { continue };
            let file = beside(ini, &named);
            let text = match read(&file) {
                Ok(text) => text,
                Err(why) => {
                    let what = format!(
                        "{why}: PgBouncer may skip lines by which clients get in. Convert where it can be read"
                    );
                    self.say(None, key, what, true);
                    continue;
                }
            };
            if name == "hba_file" {
                self.certificates(&file, &hba::by_certificate(&text));
            }
            let differences = match name {
                "hba_file" => hba::differences(&text, &|named| read(&beside(&file, Path::new(named))).ok()),
                _ => secrets::differences(&text),
            };
            self.differ(key, &file, &differences);
        }
    }

    /// Says of rules that ask for certificates which names count.
    fn certificates(&mut self, file: &Path, lines: &[usize]) {
        if !lines.is_empty() {
            let what = format!(
                "{}: PgBouncer looks for the user among the certificate's alternative names, too, and in any case of \
                 letters; here its common name has to be the user's exactly, or what a map makes of it. {}",
                place_of(lines, file),
                "Give other users such certificates, or name a map (map=) in ident_file"
            );
            self.say(None, "auth_hba_file", what, true);
        }
    }

    /// Says of each kind of difference on which lines there is one.
    fn differ(&mut self, key: &str, file: &Path, differences: &[hba::Difference]) {
        let mut kinds: Vec<(&hba::Difference, Vec<usize>)> = Vec::new();
        for one in differences {
            match kinds.iter_mut().find(|(first, _)| (first.what, first.rejects) == (one.what, one.rejects)) {
                Some((_, lines)) => lines.push(one.line),
                None => kinds.push((one, vec![one.line])),
            }
        }
        for (first, lines) in kinds {
            let place = format!("{}: {}", place_of(&lines, file), first.what);
            if first.rejects {
                self.say(None, key, format!("{place}. Sluice turns clients away by it"), true);
            } else {
                let remedy = match key {
                    "auth_file" => "Remove these users, or keep them if they are meant",
                    _ => "Remove it, or keep it if it is meant",
                };
                self.first(None, key, &format!("{place}. {remedy}"));
            }
        }
    }

    /// Databases with a role of their own on another server than that of the look-up: without `auth_dbname`, PgBouncer asks
    /// each server for its own users.
    pub(super) fn elsewhere(&mut self) {
        let text = |table: &Table, key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
        let place = |table: &Table| (text(table, "host"), table.get("port").and_then(Item::as_integer).unwrap_or(5432));
        let Some(asked) = text(&self.lookup, "database") else { return };
        let named = |name: &str| self.databases.iter().find(|it| text(it, "name").as_deref() == Some(name));
        let Some(asked) = named(&asked).or_else(|| named("*")).map(place) else { return };
        let others = self.databases.iter().filter(|it| it.contains_key("user") && place(it) != asked);
        let names: Vec<_> = others.filter_map(|it| text(it, "name")).map(|name| format!("{name:?}")).collect();
        if !names.is_empty() {
            let what = format!(
                "users are looked up on one server only, and whoever may log in there \
                 gets into {} on another, as the role of its user. Have rules in an hba_file name the users of these \
                 databases, or leave out user",
                names.join(", ")
            );
            self.first(None, "auth_query", &what);
        }
    }

    /// Trust on addresses that other hosts can reach has to be allowed by hand.
    pub(super) fn trust(&mut self, listen: &Array) {
        let is_trust = self.auth.get("method").and_then(Item::as_str) == Some("trust");
        let is_loopback = |address: &str| address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
        if is_trust && listen.iter().filter_map(Value::as_str).any(|address| !is_loopback(address)) {
            let what = "\"trust\" on an address that other hosts can reach is refused: choose another method, or allow it \
                        by trust_anyone = true under [auth]";
            self.say(None, "auth_type", what, true);
        }
    }
}

/// The things that `sluice check` will say of the new file, and of those that it names, but for files that are not there.
pub(super) fn refusals(document: &DocumentMut, ini: &Path) -> Vec<Note> {
    let file = ini.with_file_name("sluice.toml");
    let Err(report) = crate::parse(&document.to_string(), &file) else { return Vec::new() };
    let is_there = |it: &&Problem| match it.file == file {
        true => !it.what.starts_with("cannot read"),
        false => it.position.is_some() && it.file.exists(),
    };
    let mut kinds: Vec<(&Problem, Vec<usize>)> = Vec::new();
    for problem in report.problems().iter().filter(is_there) {
        let line = problem.position.filter(|_| problem.file != file).map(|position| position.line);
        let is_same = |it: &Problem| (&it.file, &it.key, &it.what) == (&problem.file, &problem.key, &problem.what);
        match (line, kinds.iter_mut().find(|(first, _)| line.is_some() && is_same(first))) {
            (Some(line), Some((_, lines))) => lines.push(line),
            _ => kinds.push((problem, line.into_iter().collect())),
        }
    }
    let named = |key: &str| document.get("auth")?.get(key)?.as_str().map(|named| beside(ini, Path::new(named)));
    let notes = kinds.into_iter().map(|(problem, lines)| {
        let (key, place) = match &problem.file {
            it if *it == file => (problem.key.as_str(), "the new file".to_owned()),
            it if named("users_file").as_ref() == Some(it) => ("auth_file", place_of(&lines, it)),
            it if named("ident_file").as_ref() == Some(it) => ("auth_ident_file", place_of(&lines, it)),
            it => ("auth_hba_file", place_of(&lines, it)),
        };
        let what = format!("\"sluice check\" refuses {place}: {}; {}", problem.what, problem.remedy);
        Note { line: None, key: key.to_owned(), what, matters: true, widens: false }
    });
    notes.collect()
}

/// Lines of a file in words; not all of many.
pub(super) fn place_of(lines: &[usize], file: &Path) -> String {
    let shown: Vec<_> = lines.iter().take(LINES_MAX).map(ToString::to_string).collect();
    let more = if lines.len() > LINES_MAX { ", …" } else { "" };
    let word = if lines.len() == 1 { "line" } else { "lines" };
    format!("{word} {}{more} of {}", shown.join(", "), file.display())
}

/// The path that a file means when it names another.
pub(super) fn beside(file: &Path, named: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(named)
}

pub(super) fn read(file: &Path) -> Result<String, String> {
    let (bytes, _) = files::read(file, BYTES_MAX).map_err(|fault| fault.what)?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", file.display()))
}
