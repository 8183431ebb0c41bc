//! The few SQL commands that Sluice carries out by itself, recognised where they stand alone. Anything more is the
//! server's to understand.

mod builtin;
mod effects;
mod lexer;
mod outline;
mod resets;

pub(crate) use effects::keep_custom;
pub use effects::{Effects, custom_settings, effects, effects_of_beginning};
pub(crate) use outline::{parameters, returns_rows};
pub use resets::{Reset, reset, settings_named};

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

/// Texts longer than this are not looked at.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

/// Reads a text, without its zero byte.
pub(crate) fn command(text: &[u8]) -> Option<Command> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    match text.trim_ascii_start().first()? {
        b'd' | b'D' => {}
        b'b' | b'B' | b's' | b'S' => return begin(text).map(Command::Begin),
        _ => return None,
    }
    let mut words = Words(text);
    let verb = words.keyword()?;
    let command = match verb.as_slice() {
        b"discard" => (words.keyword()?.as_slice() == b"all").then_some(Command::DiscardAll)?,
        b"deallocate" => match words.name()? {
            (word, false) if word == b"prepare" => name_or_all(words.name()?),
            name => name_or_all(name),
        },
        _ => return None,
    };
    words.at_end().then_some(command)
}

/// Reads a BEGIN or START TRANSACTION. Those that a standby refuses (SERIALIZABLE, READ WRITE), and those with modes that
/// are rare or given twice, are not taken for one.
pub(crate) fn begin(text: &[u8]) -> Option<Begin> {
    let text = text.trim_ascii_start();
    // Most texts that come here are a SELECT: they cost no more than this.
    let verb = text.get(..5).filter(|_| text.len() <= TEXT_BYTES_MAX)?;
    if !verb.eq_ignore_ascii_case(b"begin") && !verb.eq_ignore_ascii_case(b"start") {
        return None;
    }
    let mut words = Words(text);
    let tag = match words.keyword()?.as_slice() {
        b"begin" => "BEGIN",
        b"start" => "START TRANSACTION",
        _ => return None,
    };
    let noun = words.take(b"transaction") || (tag == "BEGIN" && words.take(b"work"));
    if !noun && tag == "START TRANSACTION" {
        return None;
    }
    let (mut isolation, mut read_only) = (None, false);
    while !words.at_end() {
        match words.keyword()?.as_slice() {
            b"isolation" if isolation.is_none() && words.take(b"level") => {
                isolation = Some(match (words.keyword()?.as_slice(), words.keyword()?.as_slice()) {
                    (b"read", b"committed") => Isolation::ReadCommitted,
                    (b"repeatable", b"read") => Isolation::RepeatableRead,
                    _ => return None,
                });
            }
            b"read" if !read_only && words.take(b"only") => read_only = true,
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

/// Reads a COMMIT or ROLLBACK in any of its spellings, without AND CHAIN; gives its command tag.
pub(crate) fn end(text: &[u8]) -> Option<&'static str> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut words = Words(text);
    let tag = match words.keyword()?.as_slice() {
        b"commit" | b"end" => "COMMIT",
        b"rollback" | b"abort" => "ROLLBACK",
        _ => return None,
    };
    let _noise = words.take(b"work") || words.take(b"transaction");
    words.at_end().then_some(tag)
}

enum Isolation {
    ReadCommitted,
    RepeatableRead,
}

/// Whether a text begins as one that PostgreSQL takes in a failed transaction (`IsTransactionExitStmt`).
pub(crate) fn ends_transaction(text: &[u8]) -> bool {
    let mut words = Words(text);
    match words.keyword().as_deref() {
        Some(b"end" | b"abort") => true,
        Some(b"commit" | b"rollback") => !words.take(b"prepared"),
        Some(b"prepare") => words.keyword().as_deref() == Some(b"transaction"),
        // A comment may stand before it: PostgreSQL has the last word. It also takes what says nothing at all.
        Some(_) => false,
        None => {
            let rest = text.trim_ascii_start();
            rest.starts_with(b"--") || rest.starts_with(b"/*") || words.at_end()
        }
    }
}

/// The name that a DEALLOCATE of one statement forgets.
pub(crate) fn deallocated(text: &[u8]) -> Option<Box<[u8]>> {
    match command(text)? {
        Command::Deallocate(name) => Some(name),
        _ => None,
    }
}

fn name_or_all((word, quoted): (Vec<u8>, bool)) -> Command {
    if !quoted && word == b"all" { Command::DeallocateAll } else { Command::Deallocate(word.into()) }
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn keyword(&mut self) -> Option<Vec<u8>> {
        self.name().filter(|(_, quoted)| !quoted).map(|(word, _)| word)
    }

    /// The next identifier, and whether it was quoted.
    fn name(&mut self) -> Option<(Vec<u8>, bool)> {
        self.0 = self.0.trim_ascii_start();
        if let Some(rest) = self.0.strip_prefix(b"\"") {
            return Some((self.quoted(rest)?, true));
        }
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | 0x80..);
        let end = self.0.iter().position(|b| !is_part(b)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then(|| (word.to_ascii_lowercase(), false))
    }

    fn quoted(&mut self, mut rest: &[u8]) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            let end = rest.iter().position(|&b| b == b'"')?;
            name.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix(b"\"") {
                Some(tail) => {
                    name.push(b'"');
                    rest = tail;
                }
                None => break,
            }
        }
        // The length of what was read, in terms of the slice that `self` still borrows.
        let read = self.0.len() - rest.len();
        self.0 = &self.0[read..];
        Some(name)
    }

    /// Takes the next keyword, if it is that one.
    fn take(&mut self, keyword: &[u8]) -> bool {
        let before = self.0;
        let is_it = self.keyword().is_some_and(|word| word == keyword);
        if !is_it {
            self.0 = before;
        }
        is_it
    }

    fn comma(&mut self) -> bool {
        self.sign(b",")
    }

    /// Takes a sign, if it comes next.
    fn sign(&mut self, sign: &[u8]) -> bool {
        match self.0.trim_ascii_start().strip_prefix(sign) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn at_end(&self) -> bool {
        self.0.iter().all(|b| b.is_ascii_whitespace() || *b == b';')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_how_transactions_end() {
        for text in [
            "COMMIT",
            " end;",
            "Rollback to a",
            "abort",
            "COMMIT AND CHAIN",
            "PREPARE TRANSACTION 'x'",
            "-- so\nROLLBACK",
            "",
            " ;",
        ] {
            assert!(ends_transaction(text.as_bytes()), "{text}");
        }
        for text in
            ["SELECT 1", "PREPARE a AS SELECT 1", "committed", "BEGIN", "ROLLBACK PREPARED 'x'", "commit prepared 'x'"]
        {
            assert!(!ends_transaction(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn reads_the_ways_to_end() {
        for (text, tag) in [
            ("COMMIT", Some("COMMIT")),
            (" end work ;", Some("COMMIT")),
            ("rollback transaction", Some("ROLLBACK")),
            ("Abort;", Some("ROLLBACK")),
            ("rollback to a", None),
            ("commit and chain", None),
            ("commit prepared 'a'", None),
            ("commit; select 1", None),
            ("select 1", None),
            ("", None),
        ] {
            assert_eq!(end(text.as_bytes()), tag, "{text}");
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
            ("begin -- so", None),
            ("beginning", None),
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
            ("DEALLOCATE ALL", Some(Command::DeallocateAll)),
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
    }
}
