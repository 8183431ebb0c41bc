//! The few SQL commands that concern Sluice's own book-keeping of prepared statements, recognised where they stand
//! alone. Anything more is the server's to understand.

/// A command about prepared statements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `DEALLOCATE [PREPARE] name`, the name as PostgreSQL folds it.
    Deallocate(Box<[u8]>),
    /// `DEALLOCATE [PREPARE] ALL`.
    DeallocateAll,
    /// `DISCARD ALL`.
    DiscardAll,
}

/// Texts longer than this are not looked at.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

/// Reads a text, without its zero byte.
pub(crate) fn command(text: &[u8]) -> Option<Command> {
    if text.len() > TEXT_BYTES_MAX || !matches!(text.trim_ascii_start().first()?, b'd' | b'D') {
        return None;
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

/// Whether a text begins as one that PostgreSQL takes in a failed transaction (`IsTransactionExitStmt`).
pub(crate) fn ends_transaction(text: &[u8]) -> bool {
    let mut words = Words(text);
    match words.keyword().as_deref() {
        Some(b"commit" | b"end" | b"rollback" | b"abort") => true,
        Some(b"prepare") => words.keyword().as_deref() == Some(b"transaction"),
        // A comment may stand before it: PostgreSQL has the last word. It also takes what says nothing at all.
        Some(_) => false,
        None => {
            let rest = text.trim_ascii_start();
            rest.starts_with(b"--") || rest.starts_with(b"/*") || words.at_end()
        }
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

    fn at_end(&self) -> bool {
        self.0.iter().all(|b| b.is_ascii_whitespace() || *b == b';')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_how_transactions_end() {
        for text in
            ["COMMIT", " end;", "Rollback to a", "abort", "PREPARE TRANSACTION 'x'", "-- so\nROLLBACK", "", " ;"]
        {
            assert!(ends_transaction(text.as_bytes()), "{text}");
        }
        for text in ["SELECT 1", "PREPARE a AS SELECT 1", "committed", "BEGIN"] {
            assert!(!ends_transaction(text.as_bytes()), "{text}");
        }
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
