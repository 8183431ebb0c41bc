//! The users that code in literals sets, for a client that began with another role: what a `DO` runs, and what a
//! function of a user's may run that is given it, or the name of the setting.

use std::collections::BTreeSet;

use crate::profile::{ROLE, SESSION_AUTHORIZATION};

use super::{
    lexer::{Lexer, Token},
    literals::{DEPTH_MAX, each_parameter, has_word, is_one_of, may_hide_words},
    resets::{Reset, statement_head},
    ways::{read_each_way, read_within},
};

/// The settings `role` and `session_authorization`, those of them that the code of a text sets, as far as it shows.
/// What the text itself sets is none of them.
pub(crate) fn users_set_by_code(text: &[u8]) -> BTreeSet<&'static str> {
    if !may_name(text) {
        return BTreeSet::new();
    }
    read_each_way(text, |lexer| users(|found| found.read(lexer, 0)), both)
}

/// The same of a Bind's parameters, or of a FunctionCall's arguments; `rest` is its body behind the names, or behind
/// the function.
pub(crate) fn users_set_by_parameters(rest: &[u8]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let _malformed = each_parameter(rest, |value| {
        if may_name(value) {
            found.extend(read_each_way(value, |lexer| users(|found| found.literal(value, lexer, 0)), both));
        }
    });
    found
}

fn users(read: impl FnOnce(&mut Found)) -> BTreeSet<&'static str> {
    let mut found = Found::default();
    read(&mut found);
    // Pieces of a RESET, or of a SET to DEFAULT, give nothing up.
    let is_made = found.lacks_set && !found.names_default;
    let is_named = |name: &str| found.named.contains(name) && !found.lacks_reset;
    let is_set = |name: &&'static str| found.code.sets(name) || is_named(name) || is_made;
    [ROLE, SESSION_AUTHORIZATION].into_iter().filter(is_set).collect()
}

fn both(mut found: BTreeSet<&'static str>, other: BTreeSet<&'static str>) -> BTreeSet<&'static str> {
    found.extend(other);
    found
}

/// Whether a text, or code in it, may name one of them: most don't.
fn may_name(text: &[u8]) -> bool {
    let words: [&[u8]; 4] = [b"role", b"authorization", b"set_config", b"||"];
    words.iter().any(|word| has_word(text, word)) || may_hide_words(text)
}

/// What code says of them.
#[derive(Debug, Default, Clone)]
struct Found {
    /// What its commands set and reset, in their order.
    code: Reset,
    /// Those that are named by literals.
    named: BTreeSet<&'static str>,
    /// Whether a SET or RESET lacks its setting's name, or a part of it, which something else may add; and a RESET.
    lacks_set: bool,
    lacks_reset: bool,
    names_default: bool,
}

impl Found {
    fn read(&mut self, lexer: &mut Lexer<'_>, depth: usize) {
        while let Some(token) = lexer.next() {
            match token {
                Token::Literal(text) => {
                    if let Some(value) = lexer.value(text) {
                        self.literal(&value, lexer, depth);
                    }
                }
                Token::Word(word) if depth > 0 && is_one_of(word, &[b"set", b"reset"]) => {
                    let head = statement_head(token, lexer.clone());
                    self.code.statement(&head);
                    let is_set = is_one_of(word, &[b"set"]);
                    self.lacks_set |= is_set && lacks_name(&head);
                    self.lacks_reset |= !is_set && lacks_name(&head);
                }
                // It may be any of them.
                Token::Word(name) | Token::Quoted(name) if depth > 0 && is_one_of(name, &[b"set_config"]) => {
                    self.named.extend([ROLE, SESSION_AUTHORIZATION]);
                }
                _ => {}
            }
        }
    }

    /// A literal may be the name of one, and it may be code.
    fn literal(&mut self, value: &[u8], lexer: &Lexer<'_>, depth: usize) {
        self.names_default |= has_word(value, b"default") && depth > 0;
        if value.eq_ignore_ascii_case(ROLE.as_bytes()) {
            self.named.insert(ROLE);
        } else if value.eq_ignore_ascii_case(SESSION_AUTHORIZATION.as_bytes()) {
            // Whoever changes the one, changes the other.
            self.named.extend([ROLE, SESSION_AUTHORIZATION]);
        } else if depth < DEPTH_MAX && (has_word(value, b"set") || may_name(value)) {
            *self = read_within(lexer, value, |lexer| {
                let mut found = self.clone();
                found.read(lexer, depth + 1);
                found
            });
        }
    }
}

/// Whether a SET or RESET lacks its setting's name, or a part of it, which something else may add: `'SET SESSIO' || 'N …'`.
fn lacks_name(head: &[Token<'_>]) -> bool {
    let is = |token: &Token<'_>, words: &[&[u8]]| matches!(token, Token::Word(word) if is_one_of(word, words));
    let behind = match &head[1..] {
        [scope, rest @ ..] if is(scope, &[b"local", b"session"]) => rest,
        rest => rest,
    };
    match behind {
        [] | [Token::Other | Token::Unclear, ..] | [_, Token::Unclear] => true,
        [name] => !is(name, &[b"role"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_in_code() {
        const BOTH: &str = "role session_authorization";
        for (text, expected) in [
            ("DO $$ BEGIN SET ROLE NONE; END $$", "role"),
            ("DO $$ BEGIN SET SESSION ROLE NONE; END $$", "role"),
            ("DO $$ BEGIN SET role='none'; END $$", "role"),
            ("DO $$ BEGIN SET \"role\" TO 'none'; END $$", "role"),
            (r"DO E'BEGIN SET \x72ole TO none; END'", "role"),
            ("DO 'BEGIN SET ro'\n'le TO none; END'", "role"),
            ("DO $$ BEGIN SET SESSION AUTHORIZATION app; END $$", BOTH),
            ("DO $$ BEGIN SET SESSION AUTHORIZATION 'app'; END $$", BOTH),
            ("DO $$ BEGIN EXECUTE 'SET ROLE ' || 'NONE'; END $$", "role"),
            ("DO $$ BEGIN EXECUTE format('SET %s NONE', 'ROLE'); END $$", BOTH),
            ("DO $$ BEGIN EXECUTE 'SET SESSIO' || 'N AUTHORI' || 'ZATION app'; END $$", BOTH),
            ("DO $$ BEGIN EXECUTE 'SET RO' || 'LE TO DEFAULT'; END $$", ""),
            ("DO $$ BEGIN EXECUTE 'RESET ' || 'ROLE'; END $$", ""),
            ("DO $$ BEGIN EXECUTE 'SET \"ro' || 'le\" = none'; END $$", BOTH),
            (r"DO E'BEGIN PERFORM set\x5fconfig(v, w, false); END'", BOTH),
            ("SELECT x.sets('role', 'none', false)", "role"),
            ("SELECT x.sets('session_authorization', 'app', false)", BOTH),
            ("SELECT x.runs('SET ROLE NONE')", "role"),
            ("SELECT x.runs('SET role=''none''')", "role"),
            ("DO $$ BEGIN RESET ROLE; END $$", ""),
            ("DO $$ BEGIN SET ROLE NONE; RESET ROLE; END $$", ""),
            ("DO $$ BEGIN RESET ROLE; SET ROLE NONE; END $$", "role"),
            ("DO $$ BEGIN SET ROLE TO DEFAULT; END $$", ""),
            ("DO $$ BEGIN SET SESSION AUTHORIZATION DEFAULT; END $$", ""),
            ("DO $$ BEGIN SET SESSION AUTHORIZATION app; SET work_mem = '1MB'; RESET ALL; END $$", BOTH),
            ("SET ROLE NONE", ""),
            ("SELECT f('the role of x')", ""),
        ] {
            let found = users_set_by_code(text.as_bytes());
            assert_eq!(found.into_iter().collect::<Vec<_>>().join(" "), expected, "{text}");
        }
    }

    #[test]
    fn users_are_found_in_parameters() {
        for (value, expected) in [("role", "role"), ("SET ROLE NONE", "role"), ("a role", ""), ("RESET ROLE", "")] {
            let mut rest = vec![0, 0, 0, 1, 0, 0, 0, u8::try_from(value.len()).expect("it is short")];
            rest.extend_from_slice(value.as_bytes());
            assert_eq!(users_set_by_parameters(&rest).into_iter().collect::<Vec<_>>().join(" "), expected, "{value}");
        }
    }
}
