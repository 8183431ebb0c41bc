//! The statements of a small language of SQL, and their effects.

use crate::language::{hex, holding, selected};

use super::{Block, Error, Outcome, Session, canonical, sequences::Sequence};

impl Session {
    /// Carries a statement out.
    pub(super) fn run(
        &mut self,
        sql: &str,
        parameter: Option<&str>,
        literal: &str,
        among_others: bool,
    ) -> Result<Outcome, Error> {
        let is_behind_others = std::mem::replace(&mut self.has_run, true);
        let lower = sql.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        let tag = |tag: &str| Outcome { tag: tag.to_owned(), ..Outcome::default() };
        if self.only_reads && self.block == Block::Open && leaves_something(sql) {
            return Err(("25006", "cannot execute it in a read-only transaction".into()));
        }
        if let Some((verb, _)) = selected(sql) {
            return Ok(rows(self.select(sql, verb, parameter, literal)?));
        }
        Ok(match words[0] {
            "select" if sql.contains("pg_depend") => {
                let pins: &[&str] = if self.temp.is_some() { &["temp"] } else { &[] };
                rows(vec![holding(pins, std::iter::empty())])
            }
            "select" if sql.contains("probin") => rows(vec!["libraries=".into()]),
            "select" if sql.contains("'was='") => {
                let was = format!("was={}", self.value("statement_timeout"));
                self.local.insert("statement_timeout".into(), "0".into());
                rows(vec![was])
            }
            "select" if sql.starts_with("SELECT pg_catalog.string_agg(") => {
                let names = sql.split_once("string_to_array('").and_then(|(_, rest)| rest.split('\'').next());
                let own = |name| self.start.get(name).map(String::as_str);
                rows(vec![listed(names.expect("it names them").split(',').map(own))])
            }
            "select" if sql.starts_with("SELECT pg_catalog.concat_ws(','") => {
                let names = sql.split("current_setting('").skip(1).filter_map(|call| call.split('\'').next());
                let here = |name| self.start.contains_key(name).then(|| self.value(name));
                rows(vec![listed(names.map(here))])
            }
            "select" if sql.contains("concat_ws") => rows(vec![self.probed(sql)]),
            // Roles and databases give sessions nothing here.
            "select" if sql.contains("'begins='") => rows(vec!["begins=".to_owned()]),
            "select" => {
                self.set_config(sql);
                rows(vec!["configured".into()])
            }
            "copy" => {
                self.sequence.advance(sql, self.transactions);
                match words[1] {
                    "out" => Outcome {
                        copy_out: true,
                        tag: format!("COPY {}", number(2)),
                        ..rows((0..number(2)).map(|i| padded(sql, parameter, i, number(3))).collect())
                    },
                    // Before it reads anything, as by a trigger.
                    "fails" => Outcome { copy_in: true, copy_fails: true, ..Outcome::default() },
                    _ => Outcome { copy_in: true, ..Outcome::default() },
                }
            }
            "begin" => {
                self.is_begun_late |= is_behind_others && self.block == Block::None;
                self.block = Block::Open;
                self.only_reads = words.contains(&"only");
                tag("BEGIN")
            }
            "savepoint" => {
                self.savepoint = Some((self.set.clone(), self.local.clone()));
                tag("SAVEPOINT")
            }
            "rollback" if words.get(1) == Some(&"to") => {
                if let Some((set, local)) = self.savepoint.clone() {
                    (self.set, self.local) = (set, local);
                }
                tag("ROLLBACK")
            }
            "release" => {
                self.savepoint = None;
                tag("RELEASE")
            }
            "commit" | "rollback" => {
                let outcome = self.end_block(words[0] == "commit");
                self.end_transaction();
                outcome
            }
            "set" if words[1] == "local" => {
                let value = canonical(words[2], words[4].trim_matches('\''));
                self.local.insert(words[2].to_owned(), value);
                tag("SET")
            }
            // Its level means nothing here.
            "set" if words[1] == "transaction" => tag("SET"),
            "set" => {
                // The pool's own have quotes around the name as well.
                let value = sql.split_ascii_whitespace().nth(3).unwrap_or_default().trim_matches(['\'', ';']);
                self.set(words[1].trim_matches('"'), value);
                tag("SET")
            }
            "reset" => {
                let name = words[1].replace('"', "");
                self.set.remove(&name);
                self.local.remove(&name);
                tag("RESET")
            }
            "show" => rows(vec![format!("show {}={}", words[1], self.value(words[1]))]),
            "create" => {
                self.temp = Some(sql.to_owned());
                tag("CREATE TABLE")
            }
            "declare" if self.cursor.is_some() => return Err(("42P03", "cursor \"c\" already exists".into())),
            "declare" => {
                self.cursor = Some(sql.to_owned());
                tag("DECLARE CURSOR")
            }
            "deallocate" if words[1] == "all" => {
                self.names.clear();
                tag("DEALLOCATE ALL")
            }
            "deallocate" => match self.names.remove(words[1].as_bytes()) {
                Some(_) => tag("DEALLOCATE"),
                None => return Err(("26000", format!("prepared statement \"{}\" does not exist", words[1]))),
            },
            "discard" if words[1] == "sequences" => {
                self.sequence = Sequence::default();
                tag("DISCARD SEQUENCES")
            }
            "discard" => {
                if self.block != Block::None || among_others {
                    return Err(("25001", "DISCARD ALL cannot run inside a transaction block".into()));
                }
                self.set.clear();
                self.temp = None;
                self.cursor = None;
                self.sequence = Sequence::default();
                self.names.clear();
                // It is committed at once: an error behind it in its batch takes nothing of it back.
                self.end_transaction();
                tag("DISCARD ALL")
            }
            other => panic!("the simulated server does not know \"{other}\" in: {sql}"),
        })
    }

    /// Runs the verb behind `select`, and returns its rows.
    fn select(&mut self, sql: &str, verb: &str, parameter: Option<&str>, literal: &str) -> Result<Vec<String>, Error> {
        let with = parameter.map(|parameter| verb.replace("$1", parameter));
        let words: Vec<&str> = with.as_deref().unwrap_or(verb).split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        Ok(match words[0] {
            "echo" | "sleep" => vec![parameter.map_or_else(|| sql.to_owned(), |p| format!("{sql} {p}"))],
            "literal" => vec![format!("{sql} by {literal}")],
            "rows" => (0..number(1)).map(|i| padded(sql, parameter, i, number(2))).collect(),
            "temporary" => vec![format!("temporary={}", self.temp.as_deref().unwrap_or("none"))],
            "held" => vec![format!("held={}", self.cursor.as_deref().unwrap_or("none"))],
            "nextval(s)" | "advance" => {
                self.sequence.advance(sql, self.transactions);
                vec![sql.to_owned()]
            }
            "lastval()" | "last" => vec![self.sequence.last(sql)?],
            "error" => return Err(("P0001", sql.to_owned())),
            "set" => {
                self.set(words[1], words[2]);
                vec!["set".into()]
            }
            "temp" => {
                self.temp = Some(sql.to_owned());
                vec!["made".into()]
            }
            _ => {
                self.set_config(sql);
                vec!["configured".into()]
            }
        })
    }

    fn set(&mut self, name: &str, value: &str) {
        self.local.remove(name);
        self.set.insert(name.to_owned(), canonical(name, value));
    }

    /// Calls of `set_config`.
    fn set_config(&mut self, sql: &str) {
        for call in sql.split("set_config('").skip(1) {
            let (name, rest) = call.split_once('\'').expect("a name");
            let is_local = rest.split(')').next().is_some_and(|arguments| arguments.ends_with(",true"));
            let value = (!rest.starts_with(",NULL")).then(|| rest.split('\'').nth(1).expect("a value"));
            match value {
                None if is_local => {
                    let own = self.start.get(name).map(|own| (name.to_owned(), own.clone()));
                    self.local.extend(own);
                }
                None => {
                    self.set.remove(name);
                    self.local.remove(name);
                }
                Some(value) if is_local => drop(self.local.insert(name.to_owned(), canonical(name, value))),
                Some(value) => self.set(name, value),
            }
        }
    }

    fn end_block(&mut self, commit: bool) -> Outcome {
        let commit = commit && self.block != Block::Failed;
        let notice = self.block == Block::None;
        self.block = Block::None;
        self.local.clear();
        if !commit && let Some(undo) = self.undo.take().filter(|_| !notice) {
            self.undo(undo);
        }
        Outcome { tag: if commit { "COMMIT" } else { "ROLLBACK" }.into(), notice, ..Outcome::default() }
    }
}

/// Whether a statement leaves what can't follow its session, be it a COPY out that takes a value of the sequence: one that
/// was led to a standby for its block can't keep that server, which is a test of its own.
fn leaves_something(sql: &str) -> bool {
    let verb = selected(sql).map_or(sql, |(verb, _)| verb);
    ["copy", "create", "temp ", "declare", "nextval", "advance"].iter().any(|it| verb.starts_with(it))
}

fn rows(rows: Vec<String>) -> Outcome {
    let tag = format!("SELECT {}", rows.len());
    Outcome { rows: Some(rows.into_iter().map(String::into_bytes).collect()), tag, ..Outcome::default() }
}

fn padded(sql: &str, parameter: Option<&str>, row: usize, bytes: usize) -> String {
    let mut text = format!("{row} {sql} {}", parameter.unwrap_or_default());
    let fill = bytes.saturating_sub(text.len());
    text.extend(std::iter::repeat_n((b'a' + (row % 26) as u8) as char, fill));
    text
}

/// The values of settings, empty for those that no session here knows.
fn listed<'a>(values: impl Iterator<Item = Option<&'a str>>) -> String {
    values.map(|value| hex(value.unwrap_or_default())).collect::<Vec<_>>().join(",")
}
