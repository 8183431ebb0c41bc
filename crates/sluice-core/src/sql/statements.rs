//! The prepared statements that a text speaks of by their names: in `PREPARE`, `EXECUTE` and `DEALLOCATE`.

use super::{Token, Words, spelled_out};

/// A prepared statement that a text speaks of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StatementNamed {
    /// Its name.
    pub name: Box<[u8]>,
    /// Whether it is executed, or explained: else its name is only given, or forgotten.
    pub is_run: bool,
}

/// The prepared statements that a text names, which may hold several statements of SQL. What stands behind something
/// that can't be read is not among them.
pub(crate) fn statements_named(text: &[u8]) -> Vec<StatementNamed> {
    let mut found = Vec::new();
    let text = spelled_out(text);
    let mut words = Words::new(&text);
    while words.0.peek().is_some() {
        words.skip_explain();
        let verb = words.take_any(&["prepare", "execute", "deallocate", "create"]);
        let is_run = matches!(verb, Some("execute" | "create"));
        let named = match verb {
            Some("deallocate") => {
                // It may be the name.
                let is_noise = words.take("prepare");
                words.next_name().or(is_noise.then(|| (*b"prepare").into()))
            }
            Some("create") => words.skip_to_executed().then(|| words.next_name()).flatten(),
            Some(_) => words.next_name(),
            None => None,
        };
        found.extend(named.map(|name| StatementNamed { name, is_run }));
        words.skip_statement();
    }
    found
}

impl Words<'_> {
    /// The next token, if it is a name.
    fn next_name(&mut self) -> Option<Box<[u8]>> {
        let is_name = matches!(self.0.peek()?, Token::Word(_) | Token::Quoted(_));
        is_name.then(|| self.name()).flatten().map(|(name, _)| name.into())
    }

    /// Goes behind an EXPLAIN and its options.
    fn skip_explain(&mut self) {
        if !self.take("explain") {
            return;
        }
        if self.0.next_if_eq(&Token::Open).is_some() {
            let mut depth = 1;
            while depth > 0 {
                match self.0.next() {
                    Some(Token::Open) => depth += 1,
                    Some(Token::Close) => depth -= 1,
                    Some(_) => {}
                    None => return,
                }
            }
        }
        while self.take_any(&["analyze", "analyse", "verbose"]).is_some() {}
    }

    /// Goes behind the EXECUTE of a CREATE TABLE AS, or to the statement's end. Returns whether there is one.
    fn skip_to_executed(&mut self) -> bool {
        while self.0.peek().is_some_and(|token| *token != Token::Semicolon) {
            if self.take("as") {
                if self.take("execute") {
                    return true;
                }
            } else {
                self.0.next();
            }
        }
        false
    }

    /// Goes behind the statement's end.
    fn skip_statement(&mut self) {
        while self.0.next().is_some_and(|token| token != Token::Semicolon) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_behind_three_words() {
        for (text, expected) in [
            ("PREPARE A AS SELECT 1", "(a)"),
            ("prepare \"A b\" (int) as select $1", "(A b)"),
            ("execute a(1, 'x'); EXECUTE b", "a b"),
            ("deallocate a; DEALLOCATE PREPARE b; deallocate prepare; deallocate all", "(a) (b) (prepare) (all)"),
            ("explain execute a", "a"),
            ("EXPLAIN (ANALYZE, FORMAT (x)) /* so */ EXECUTE a; explain analyze verbose execute b", "a b"),
            ("create temp table t (x) as execute a with data; create table as as execute b", "a b"),
            ("explain create table t as execute a", "a"),
            ("select execute, prepare a; select 1", ""),
            ("create trigger t after insert on u execute function f()", ""),
            ("execute 1; ; execute", ""),
            ("execute a; select 'x\\'; execute b", "a b"),
            ("execute U&\"a\"; execute U&\"\\0062\"", "a b"),
            ("select $$ execute a $$; /* execute b */ execute c", "c"),
        ] {
            let found = statements_named(text.as_bytes());
            let shown = |named: &StatementNamed| match (String::from_utf8_lossy(&named.name), named.is_run) {
                (name, true) => name.into_owned(),
                (name, false) => format!("({name})"),
            };
            let found: Vec<_> = found.iter().map(shown).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }
}
