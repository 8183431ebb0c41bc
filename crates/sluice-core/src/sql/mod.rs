//! The few SQL commands that Sluice carries out by itself, recognised where they stand alone. Anything more is the
//! server's to understand.

mod blocks;
mod constants;
mod customs;
mod effects;
mod encoding;
mod harmless;
mod lexer;
mod literals;
#[cfg(test)]
mod long_texts;
mod outline;
mod resets;
mod standby;
mod statements;
mod unicode;
mod users;
mod ways;

use std::iter::Peekable;

use lexer::{Lexer, Token};

pub use blocks::Ending;
pub(crate) use blocks::{end, ends_transaction, leads_to, may_outlast_rollback};
pub(crate) use constants::{beginning, shown, without_constants};
pub use customs::{CustomNames, custom_set_alone, may_set_null};
pub use effects::{Effects, effects, effects_of_beginning};
pub(crate) use literals::has_word;
pub(crate) use outline::{has_several, highest_written, parameters, parameters_of_query, reads_literals, returns_rows};
pub use resets::{Reset, ResetWithin, reset, resets_within, settings_named};
pub(crate) use standby::is_the_same_at_standby;
pub(crate) use statements::{StatementNamed, statements_named};
pub(crate) use unicode::spelled_out;
pub(crate) use users::{users_set_by_code, users_set_by_parameters};

/// Whether running a text of these effects may leave something that DISCARD ALL does not take away, as far as it shows: the name of a
/// custom setting, a seed, a temporary schema, or whatever a function does.
pub(crate) fn may_outlast_discard(effects: Effects, text: &[u8]) -> bool {
    let lasting = Effects::SEED | Effects::CUSTOM | Effects::SPENDS_SERVER | Effects::UNPROBEABLE;
    let names_customs = || CustomNames::of_text(text) != CustomNames::default();
    effects.contains(Effects::ANYTHING)
        || effects.intersects(lasting)
        || effects.intersects(Effects::STATE | Effects::CONTEXT) && names_customs()
}

/// A command that Sluice may carry out by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// A [`Begin`].
    Begin(Begin),
    /// `DEALLOCATE [PREPARE] name`, the name as PostgreSQL folds it.
    Deallocate(Box<[u8]>),
    /// `DEALLOCATE [PREPARE] ALL`.
    DeallocateAll,
    /// `DISCARD ALL`.
    DiscardAll,
}

/// A BEGIN that no server refuses, so that it may be answered before a server has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// The command in its shortest form.
    pub sql: &'static str,
    /// Its command tag.
    pub tag: &'static str,
}

impl Begin {
    /// Whether its transaction is read-only by its own words.
    pub fn is_read_only(&self) -> bool {
        self.sql.ends_with("READ ONLY")
    }

    /// Whether it says its transaction's isolation level.
    pub fn has_isolation(&self) -> bool {
        self.sql.contains("ISOLATION")
    }

    /// Whether its transaction goes by one snapshot, where the session has that `default_transaction_isolation`.
    pub fn has_one_snapshot(&self, default: Option<&[u8]>) -> bool {
        match self.has_isolation() {
            true => self.sql.contains("REPEATABLE"),
            false => default.is_some_and(|level| !level.starts_with(b"read")),
        }
    }
}

/// Reads a text, without its zero byte. No more of it is looked at than its first words, but for comments.
pub(crate) fn command(text: &[u8]) -> Option<Command> {
    let text = text.trim_ascii_start();
    match text.first()? {
        b'd' | b'D' | b'-' | b'/' => {}
        _ => return begin(text).map(Command::Begin),
    }
    let mut words = Words::new(text);
    let command = match words.take_any(&["discard", "deallocate"]) {
        Some("discard") => words.take("all").then_some(Command::DiscardAll)?,
        // It may be the name.
        Some(_) if words.take("prepare") && words.at_end() => Command::Deallocate((*b"prepare").into()),
        Some(_) => words.name_or_all()?,
        None => return begin(text).map(Command::Begin),
    };
    words.at_end().then_some(command)
}

/// Reads a BEGIN or START TRANSACTION. Those that a standby refuses (SERIALIZABLE, READ WRITE), and those with modes
/// that are rare or given twice, are not taken for one.
pub(crate) fn begin(text: &[u8]) -> Option<Begin> {
    let text = text.trim_ascii_start();
    // Most texts that come here are a SELECT: they cost no more than this.
    let verb = text.get(..5)?;
    let may_be = verb.eq_ignore_ascii_case(b"begin") || verb.eq_ignore_ascii_case(b"start");
    // Before version 16, a vertical tab is no white space, and the text is refused.
    // Of other characters, only the server knows whether they are of the client's encoding.
    if (!may_be && !matches!(verb[0], b'-' | b'/')) || text.contains(&0x0b) || !text.is_ascii() {
        return None;
    }
    let mut words = Words::new(text);
    let tag = match words.take_any(&["begin", "start"])? {
        "begin" => "BEGIN",
        _ => "START TRANSACTION",
    };
    let noun = words.take("transaction") || (tag == "BEGIN" && words.take("work"));
    if !noun && tag == "START TRANSACTION" {
        return None;
    }
    let (mut isolation, mut read_only) = (None, false);
    while !words.at_end() {
        match words.take_any(&["isolation", "read"])? {
            "isolation" if isolation.is_none() && words.take("level") => {
                isolation = Some(match words.take_any(&["read", "repeatable"])? {
                    "read" => words.take("committed").then_some(Isolation::ReadCommitted)?,
                    _ => words.take("read").then_some(Isolation::RepeatableRead)?,
                });
            }
            "read" if !read_only && words.take("only") => read_only = true,
            _ => return None,
        }
        if words.comma() && words.at_end() {
            return None;
        }
    }
    let sql = match (isolation, read_only) {
        (None, false) => "BEGIN",
        (None, true) => "BEGIN READ ONLY",
        (Some(Isolation::ReadCommitted), false) => "BEGIN ISOLATION LEVEL READ COMMITTED",
        (Some(Isolation::ReadCommitted), true) => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        (Some(Isolation::RepeatableRead), false) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        (Some(Isolation::RepeatableRead), true) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    Some(Begin { sql, tag })
}

enum Isolation {
    ReadCommitted,
    RepeatableRead,
}

/// Whether a text may have a COPY that the server reads: those have one of these words, and PostgreSQL takes either for
/// the other. Of a Query, it is the text without its zero byte.
pub(crate) fn may_copy_in(text: &[u8]) -> bool {
    if outline::is_other_command(text, &["copy"]) {
        return false;
    }
    let is_one = |at: usize| {
        let has = |word: &[u8]| text[at..].get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
        has(b"stdin") || has(b"stdout")
    };
    memchr::memchr2_iter(b's', b'S', text).any(is_one)
}

/// Whether a text is one to PostgreSQL whatever stands before it in its batch, for certain: no command that has to stand
/// alone, begins a transaction block, or means nothing outside of one.
pub(crate) fn may_follow(text: &[u8]) -> bool {
    let mut words = Words::new(text);
    let verbs = &[
        "select", "insert", "update", "delete", "with", "values", "merge", "show", "reset", "set", "create", "drop",
        "alter", "truncate", "copy", "grant", "revoke", "comment", "execute", "explain", "refresh", "reassign",
        "import", "security", "notify",
    ];
    match words.take_any(verbs) {
        Some("set") => words.take_any(&["local", "transaction", "constraints"]).is_none(),
        Some("create" | "drop" | "alter") => {
            let stand_alone = &["database", "index", "subscription", "system", "tablespace", "unique"];
            words.take_any(stand_alone).is_none()
        }
        verb => verb.is_some(),
    }
}

/// The name that a DEALLOCATE of one statement forgets.
pub(crate) fn deallocated(text: &[u8]) -> Option<Box<[u8]>> {
    match command(text)? {
        Command::Deallocate(name) => Some(name),
        _ => None,
    }
}

/// The databases that PostgreSQL wants to have for itself when that text runs: one that is dropped, renamed, moved to
/// another tablespace, or copied.
pub(crate) fn databases(text: &[u8]) -> Vec<Box<[u8]>> {
    let mut found = Vec::new();
    let text = spelled_out(text);
    let mut words = Words::new(&text);
    while words.0.peek().is_some() {
        let verb = words.take_any(&["create", "drop", "alter"]);
        if let Some(verb) = verb.filter(|_| words.take("database")) {
            let _noise = words.take("if") && words.take("exists");
            let named = words.name().map(|(name, _)| name);
            match verb {
                "create" => found.push(words.template().unwrap_or_else(|| (*b"template1").into())),
                _ if verb == "drop" || words.take("rename") || (words.take("set") && words.take("tablespace")) => {
                    found.extend(named.map(Into::into));
                }
                _ => {}
            }
        }
        while words.0.next().is_some_and(|token| token != Token::Semicolon) {}
    }
    found
}

/// The keywords that PostgreSQL takes for no name unless they are quoted: those that are reserved, and those that name
/// functions and types only (PostgreSQL's documentation, appendix C). ALL stands for all of them.
const NO_NAMES: &str = "\
    analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation \
    column concurrently constraint create cross current_catalog current_date current_role current_schema \
    current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch \
    for foreign freeze from full grant group having ilike in initially inner intersect into is isnull join lateral \
    leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer \
    overlaps placing primary references returning right select session_user similar some symmetric system_user \
    table tablesample then to trailing true union unique user using variadic verbose when where window with";

/// The words of a command.
struct Words<'a>(Peekable<Lexer<'a>>);

impl Words<'_> {
    fn new(text: &[u8]) -> Words<'_> {
        Words(Lexer::new(text).peekable())
    }

    /// Takes the next keyword, if it is that one.
    fn take(&mut self, keyword: &str) -> bool {
        let is_it =
            |token: &Token<'_>| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(keyword.as_bytes()));
        self.0.next_if(is_it).is_some()
    }

    /// Takes the next keyword, if it is one of those.
    fn take_any(&mut self, keywords: &[&'static str]) -> Option<&'static str> {
        keywords.iter().copied().find(|keyword| self.take(keyword))
    }

    /// The next identifier as PostgreSQL folds it, and whether it was quoted; `None` if it is none.
    fn name(&mut self) -> Option<(Vec<u8>, bool)> {
        match self.0.next()? {
            Token::Word(word) => {
                let word = word.to_ascii_lowercase();
                let is_name = !NO_NAMES.split(' ').any(|keyword| keyword.as_bytes() == word);
                is_name.then_some((word, false))
            }
            Token::Quoted(name) => Some((without_doubles(name), true)),
            _ => None,
        }
    }

    fn name_or_all(&mut self) -> Option<Command> {
        let (name, quoted) = self.name()?;
        Some(if !quoted && name == b"all" { Command::DeallocateAll } else { Command::Deallocate(name.into()) })
    }

    /// The database that a new one is copied from, if the rest of the statement says so.
    fn template(&mut self) -> Option<Box<[u8]>> {
        while self.0.peek().is_some_and(|token| *token != Token::Semicolon) {
            if self.take("template") {
                let _sign = self.0.next_if_eq(&Token::Other);
                return match self.0.next()? {
                    Token::Literal(name) => Some(name.into()),
                    Token::Quoted(name) => Some(without_doubles(name).into()),
                    Token::Word(name) if !name.eq_ignore_ascii_case(b"default") => {
                        Some(name.to_ascii_lowercase().into())
                    }
                    _ => None,
                };
            }
            self.0.next();
        }
        None
    }

    fn comma(&mut self) -> bool {
        self.0.next_if_eq(&Token::Comma).is_some()
    }

    fn at_end(&self) -> bool {
        self.0.clone().all(|token| token == Token::Semicolon)
    }
}

/// A quoted name, with each doubled quote in it once.
fn without_doubles(name: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        found.push(*byte);
        if *byte == b'"' {
            bytes.next();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_may_be_a_copy() {
        for text in
            ["copy t from stdin", " COPY t FROM STDOUT;", "select 1; Copy t from stdin", "/* so */ copy t from stdin"]
        {
            assert!(may_copy_in(text.as_bytes()), "{text}");
        }
        for text in ["select 1", "copy t from '/a'", "select stdin from stdout;", "select 1; select 2"] {
            assert!(!may_copy_in(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn knows_what_may_follow_anything() {
        for text in ["select 1", "Set a = 1", "/* so */ reset all", "show a", "with a as (select 1) select 2"] {
            assert!(may_follow(text.as_bytes()), "{text}");
        }
        for text in ["create table t ()", "Create Or Replace view v as select 1"] {
            assert!(may_follow(text.as_bytes()), "{text}");
        }
        for text in ["create database d", "create unique index concurrently on t (i)", "do $$ begin end $$", "call p()"]
        {
            assert!(!may_follow(text.as_bytes()), "{text}");
        }
        for text in
            ["vacuum", "set local a = 1", "SET TRANSACTION READ ONLY", "discard all", "", "savepoint a", "begin"]
        {
            assert!(!may_follow(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn reads_the_ways_to_begin() {
        let cases = [
            ("BEGIN", Some("BEGIN")),
            (" begin ;", Some("BEGIN")),
            ("Begin Work", Some("BEGIN")),
            ("begin transaction read only;", Some("BEGIN READ ONLY")),
            ("START TRANSACTION", Some("BEGIN")),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ", Some("BEGIN ISOLATION LEVEL REPEATABLE READ")),
            (
                "start transaction read only, isolation level read committed",
                Some("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"),
            ),
            ("start", None),
            ("start work", None),
            ("begin read only,", None),
            ("begin , read only", None),
            ("begin read write", None),
            ("begin isolation level serializable", None),
            ("begin read only read only", None),
            ("begin; select 1", None),
            ("begin -- so", Some("BEGIN")),
            ("/* app */ begin /* 'so */ work;", Some("BEGIN")),
            ("/* app */ select 1", None),
            ("beginning", None),
            ("begin -- größe", None),
            ("\"begin\"", None),
            ("select 1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(begin(text.as_bytes()).map(|begin| begin.sql), expected, "{text}");
        }
        let tag = |text: &[u8]| begin(text).map(|begin| begin.tag);
        assert_eq!((tag(b"begin"), tag(b"start transaction")), (Some("BEGIN"), Some("START TRANSACTION")));
    }

    #[test]
    fn reads_the_commands_and_nothing_else() {
        let name = |n: &str| Some(Command::Deallocate(n.as_bytes().into()));
        let cases = [
            ("DEALLOCATE foo", name("foo")),
            ("  deallocate prepare Foo ; ", name("foo")),
            ("DEALLOCATE \"Foo \"\"x\"", name("Foo \"x")),
            ("deallocate \"all\"", name("all")),
            ("DEALLOCATE q -- done", name("q")),
            ("/* app */ deallocate /* one */ \"q\" /* traceparent='00-1' */;", name("q")),
            ("-- so\nDEALLOCATE prepare;", name("prepare")),
            ("DEALLOCATE q /* open", None),
            ("DEALLOCATE select", None),
            ("DEALLOCATE PREPARE Left", None),
            ("DEALLOCATE \"select\"", name("select")),
            ("DEALLOCATE ALL", Some(Command::DeallocateAll)),
            ("DISCARD ALL -- done", Some(Command::DiscardAll)),
            ("deallocate prepare all;", Some(Command::DeallocateAll)),
            ("DISCARD ALL", Some(Command::DiscardAll)),
            ("DISCARD PLANS", None),
            ("DEALLOCATE a; SELECT 1", None),
            ("DEALLOCATE", None),
            ("DEALLOCATE \"open", None),
            ("DELETE FROM t", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(command(text.as_bytes()), expected, "{text}");
        }
        let long = format!("DEALLOCATE q /* {} */", "x".repeat(2000));
        assert_eq!(command(long.as_bytes()), name("q"));
    }

    #[test]
    fn databases_that_others_must_leave_are_named() {
        for (text, expected) in [
            ("DROP DATABASE IF EXISTS a WITH (FORCE)", "a"),
            ("alter database \"A\"\"b\" rename to c", "A\"b"),
            ("alter database a set tablespace b", "a"),
            ("alter database a set work_mem = '5MB'; alter database b allow_connections false", ""),
            ("alter database a owner to b", ""),
            ("create database b template = a owner c", "a"),
            ("create database b with owner a template 'c'", "c"),
            ("create database b", "template1"),
            ("comment on database a is 'x'", ""),
            ("create table a (x text default 'database a'); drop table database", ""),
            ("select 1; drop /* so */ database A", "a"),
            (r#"drop database U&"\0041b""#, "Ab"),
        ] {
            let found: Vec<_> =
                databases(text.as_bytes()).iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }
}
