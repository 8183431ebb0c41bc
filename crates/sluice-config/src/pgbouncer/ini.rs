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

/// Reads a file, and those that it includes, in their place.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, Problem> {
    let mut entries = Vec::new();
    read_into(&mut entries, path, &mut String::new(), 0)?;
    Ok(entries)
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

fn read_into(entries: &mut Vec<Entry>, path: &Path, section: &mut String, depth: usize) -> Result<(), Problem> {
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
                let fault = Fault::new("files include each other too deeply", "include fewer, or take the circle out");
                return Err(fault.at(path, position, "%include"));
            }
            read_into(entries, Path::new(included.trim()), section, depth + 1)?;
        } else if let Some(name) = section_of(line) {
            name.clone_into(section);
        } else if let Some((key, value)) = line.split_once('=') {
            entries.push(Entry {
                file: path.to_owned(),
                line: at + 1,
                section: section.clone(),
                key: unquoted(key.trim()),
                value: value.trim().to_owned(),
            });
        } else {
            let fault = Fault::new("neither a section, a setting nor a comment", "write key = value, or begin with ;");
            return Err(fault.at(path, position, ""));
        }
    }
    Ok(())
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
        let entries = read(&outer).unwrap();
        let shown: Vec<_> = entries.iter().map(|e| format!("{} {}={} {}", e.section, e.key, e.value, e.line)).collect();
        assert_eq!(shown, ["databases a b=host=x 3", "pgbouncer listen_port=6433 1"]);
        std::fs::write(&inner, format!("%include {}\n", outer.display())).unwrap();
        assert!(read(&outer).unwrap_err().what.contains("too deeply"));
        std::fs::write(&inner, "what is this\n").unwrap();
        assert_eq!(read(&outer).unwrap_err().position.unwrap().line, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
