//! PgBouncer's file format: sections, `key = value`, comment lines that begin with `;` or `#`, and `%include`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    files,
    report::{Fault, Position, Problem},
};

/// Files within files, at most.
const INCLUDES_MAX: usize = 10;

/// A line that sets something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file in which it stands.
    pub(super) file: PathBuf,
    /// Its line there, from 1.
    pub(super) line: usize,
    /// Its section: `databases`, `users`, `pgbouncer`.
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
}

impl Entry {
    /// The problem that this entry is.
    pub(super) fn problem(&self, fault: Fault) -> Problem {
        let position = Position { line: self.line, column: 1 };
        fault.at(&self.file, Some(position), format!("[{}] {}", self.section, self.key))
    }
}

/// The settings of `[pgbouncer]` that stay as they are where that section begins once more: they have no default. The
/// first two and the last two were seen from 1.18 itself, those between them are not in it.
const KEPT: [&str; 9] = [
    "auth_file",
    "auth_user",
    "auth_dbname",
    "auth_ident_file",
    "auth_ldap_options",
    "client_tls13_ciphers",
    "server_tls13_ciphers",
    "user",
    "verbose",
];

/// A file, with those that it includes.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The lines in their order, without those that were forgotten.
    pub(super) entries: Vec<Entry>,
    /// The lines by which others were.
    pub(super) restarts: Vec<Restart>,
    /// The section in force, which may have begun in a file that was included.
    section: String,
    has_begun: bool,
}

/// A `[pgbouncer]` that is not the first: PgBouncer gives all its settings their defaults there.
#[derive(Debug)]
pub(super) struct Restart {
    /// Its line.
    pub(super) line: usize,
    /// The settings that it makes void.
    pub(super) forgotten: Vec<Entry>,
}

/// Reads a file, and those that it includes, in their place.
pub(super) fn read(path: &Path) -> Result<Contents, Problem> {
    let mut contents = Contents::default();
    contents.read(path, 0)?;
    Ok(contents)
}

/// Leaves out the settings of `[pgbouncer]` that stand there once more: the last one counts, also where it is empty. What
/// is wrong with those before it is not said.
pub(super) fn that_count(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = BTreeSet::new();
    entries.reverse();
    entries.retain(|entry| entry.section != "pgbouncer" || seen.insert(entry.key.clone()));
    entries.reverse();
    entries
}

impl Contents {
    fn read(&mut self, path: &Path, depth: usize) -> Result<(), Problem> {
        let (bytes, _) = files::read(path, files::CONFIG_BYTES_MAX).map_err(|fault| fault.at(path, None, ""))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Fault::new("not UTF-8 text", "save the file as UTF-8").at(path, None, ""))?;
        for (at, line) in text.lines().enumerate() {
            let position = Some(Position { line: at + 1, column: 1 });
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(included) = line.strip_prefix("%include").filter(|rest| rest.starts_with([' ', '\t'])) {
                if depth == INCLUDES_MAX {
                    let remedy = "include fewer, or take the circle out";
                    let fault = Fault::new("files include each other too deeply", remedy);
                    return Err(fault.at(path, position, "%include"));
                }
                self.read(Path::new(included.trim()), depth + 1)?;
            } else if let Some(name) = section_of(line) {
                self.begin(name, at + 1);
            } else if let Some((key, value)) = line.split_once('=') {
                self.entries.push(Entry {
                    file: path.to_owned(),
                    line: at + 1,
                    section: self.section.clone(),
                    key: unquoted(key.trim()),
                    value: value.trim().to_owned(),
                });
            } else {
                let remedy = "write key = value, or begin with ;";
                let fault = Fault::new("neither a section, a setting nor a comment", remedy);
                return Err(fault.at(path, position, ""));
            }
        }
        Ok(())
    }

    /// A section begins. Databases and users of one that begins once more come to those before it.
    fn begin(&mut self, name: &str, line: usize) {
        name.clone_into(&mut self.section);
        if name != "pgbouncer" {
            return;
        }
        if self.has_begun {
            let is_void = |entry: &mut Entry| entry.section == "pgbouncer" && !KEPT.contains(&entry.key.as_str());
            let forgotten: Vec<_> = self.entries.extract_if(.., is_void).collect();
            self.restarts.push(Restart { line, forgotten });
        }
        self.has_begun = true;
    }
}

/// The section that begins with a line, behind which a comment may stand.
fn section_of(line: &str) -> Option<&str> {
    let (name, behind) = line.strip_prefix('[')?.split_once(']')?;
    let behind = behind.trim_start();
    (behind.is_empty() || behind.starts_with([';', '#'])).then_some(name)
}

/// A database's name may stand in quotes, with `""` for one of them.
fn unquoted(key: &str) -> String {
    match key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => key.to_owned(),
    }
}

/// The parts of a connection string: `key=value`, a value perhaps in single quotes, with `''` for one of them. `None` if
/// it is none.
pub(super) fn parts(text: &str) -> Option<Vec<(String, String)>> {
    let (mut parts, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=')?;
        let behind = behind.trim_start();
        let (value, behind) = match behind.strip_prefix('\'') {
            Some(quoted) => {
                let mut value = String::new();
                let mut chars = quoted.char_indices().peekable();
                let end = loop {
                    match (chars.next()?, chars.peek()) {
                        ((_, '\''), Some((_, '\''))) => {
                            value.push('\'');
                            chars.next();
                        }
                        ((at, '\''), _) => break at + 1,
                        ((_, char), _) => value.push(char),
                    }
                };
                (value, &quoted[end..])
            }
            None => {
                let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
                (behind[..end].to_owned(), &behind[end..])
            }
        };
        parts.push((key.trim().to_owned(), value));
        rest = behind.trim_start();
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings() {
        let of = |text: &str| {
            parts(text).map(|parts| parts.into_iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>())
        };
        let expected = |list: &[&str]| Some(list.iter().map(|&part| part.to_owned()).collect());
        assert_eq!(of("host=/tmp port = 5433"), expected(&["host:/tmp", "port:5433"]));
        assert_eq!(of("password='it''s a' dbname=b"), expected(&["password:it's a", "dbname:b"]));
        assert_eq!(of(""), expected(&[]));
        assert_eq!([of("host"), of("password='open")], [None, None]);
    }

    #[test]
    fn files_and_what_they_include() {
        let dir = std::env::temp_dir().join(format!("sluice-ini-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (outer, inner) = (dir.join("a.ini"), dir.join("b.ini"));
        std::fs::write(&inner, "listen_port = 6433\n").unwrap();
        let text = format!("; c\n[databases] ; d\n\"a b\" = host=x\n[pgbouncer]\n%include\t{}\n# d\n", inner.display());
        std::fs::write(&outer, text).unwrap();
        let entries = read(&outer).unwrap().entries;
        let shown: Vec<_> = entries.iter().map(|e| format!("{} {}={} {}", e.section, e.key, e.value, e.line)).collect();
        assert_eq!(shown, ["databases a b=host=x 3", "pgbouncer listen_port=6433 1"]);
        std::fs::write(&inner, format!("%include {}\n", outer.display())).unwrap();
        assert!(read(&outer).unwrap_err().what.contains("too deeply"));
        std::fs::write(&inner, "what is this\n").unwrap();
        assert_eq!(read(&outer).unwrap_err().position.unwrap().line, 1);
        // An included section stays in force, and makes void what stands before it.
        std::fs::write(&inner, "listen_port = 1\n[pgbouncer]\nauth_type = md5\n[users]\nann = a=b\n").unwrap();
        let before = "[pgbouncer]\nauth_type = any\nauth_user = x\n[databases]\na = host=x\n[pgbouncer]\n";
        let text = format!("{before}%include {}\nbob = a=b\n[databases]\nb =\n", inner.display());
        std::fs::write(&outer, text).unwrap();
        let Contents { entries, restarts, .. } = read(&outer).unwrap();
        let shown: Vec<_> = entries.iter().map(|entry| format!("{} {}", entry.section, entry.key)).collect();
        let expected =
            ["pgbouncer auth_user", "databases a", "pgbouncer auth_type", "users ann", "users bob", "databases b"];
        assert_eq!(shown, expected);
        let keys = |it: &Restart| it.forgotten.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>().join(" ");
        let shown: Vec<_> = restarts.iter().map(|it| format!("{} {}", it.line, keys(it))).collect();
        assert_eq!(shown, ["6 auth_type", "2 listen_port"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn settings_before_a_section_that_begins_once_more_do_not_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[pgbouncer]\nauth_type = any\nmax_client_conn = 7\nauth_file = users.txt\n[databases]\na = host=x\n\
                    [pgbouncer]\nlisten_addr = 127.0.0.1\n";
        std::fs::write(file.path(), text).unwrap();
        let converted = super::super::convert(file.path()).unwrap();
        assert!(converted.toml.contains("users_file = \"users.txt\"\nmethod = \"md5\"\n"), "{}", converted.toml);
        assert!(!converted.toml.contains("clients = 7"), "{}", converted.toml);
        let note = converted.notes.iter().find(|note| note.key == "[pgbouncer]").unwrap();
        assert!(note.line == Some(7) && note.what.contains("lines 2, 3 of ") && !note.matters, "{note}");
    }
}
