//! The names of custom settings (`app.tenant`) that a text or a parameter may make.

mod code;

use std::{collections::BTreeSet, iter::Peekable};

use crate::profile::NAME_BYTES_MAX;

use super::{
    lexer::{Lexer, Token},
    literals::each_parameter,
    ways::read_each_way,
};

/// Names of custom settings that may be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CustomNames {
    /// Those that are known, with their ASCII letters in lower case.
    pub known: BTreeSet<String>,
    /// Whether there are others, which can't be told for certain.
    pub has_others: bool,
}

impl CustomNames {
    /// Those in a text: with a dot, as a name or as a literal, and in code that literals hold.
    pub fn of_text(text: &[u8]) -> Self {
        read_each_way(text, code::read_text, Self::and)
    }

    /// Those that the SETs of a text set, by their own names.
    pub fn of_sets(text: &[u8]) -> Self {
        read_each_way(text, Self::read_sets, Self::and)
    }

    fn and(mut self, other: Self) -> Self {
        self.known.extend(other.known);
        self.has_others |= other.has_others;
        self
    }

    fn read_sets(lexer: &mut Lexer<'_>) -> Self {
        let (mut names, mut is_first, mut is_unclear) = (Self::default(), true, false);
        while let Some(token) = lexer.next() {
            if is_first && matches!(token, Token::Word(verb) if verb.eq_ignore_ascii_case(b"set")) {
                names = names.and(Self::read_target(&mut lexer.clone().peekable()));
            }
            is_first = token == Token::Semicolon;
            is_unclear |= token == Token::Unclear;
        }
        names.has_others |= is_unclear && !lexer.is_refused();
        names
    }

    /// The name behind a SET.
    fn read_target(tokens: &mut Peekable<Lexer<'_>>) -> Self {
        let mut names = Self::default();
        let mut chain: Vec<u8> = Vec::new();
        while let Some(Token::Word(word) | Token::Quoted(word)) = tokens.next() {
            names.add_part(&mut chain, word);
            if tokens.next_if_eq(&Token::Dot).is_some() {
                chain.push(b'.');
            } else if chain.eq_ignore_ascii_case(b"local") || chain.eq_ignore_ascii_case(b"session") {
                chain.clear();
            } else {
                break;
            }
        }
        names.keep(&chain);
        names
    }

    /// Adds a part to a name, cut as PostgreSQL does it.
    fn add_part(&mut self, name: &mut Vec<u8>, part: &[u8]) {
        self.has_others |= part.len() > NAME_BYTES_MAX && !part.is_ascii();
        name.extend_from_slice(&part[..part.len().min(NAME_BYTES_MAX)]);
    }

    /// Those that the parameters of a Bind may name, or the arguments of a FunctionCall; `rest` is its body behind the
    /// names, or behind the function. PostgreSQL refuses a whole message that makes no sense.
    pub fn of_parameters(rest: &[u8], is_whole: bool) -> Self {
        let mut names = Self::default();
        let _malformed = each_parameter(rest, |value| {
            names.keep_all(value);
            if code::may_be(value) {
                names = std::mem::take(&mut names).and(read_each_way(value, code::read_alone, Self::and));
            }
        });
        names.has_others |= !is_whole;
        names
    }

    /// Keeps what a text of any kind has of them.
    fn keep_all(&mut self, text: &[u8]) {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$' | 0x80..);
        text.split(|b| !is_part(b)).for_each(|word| self.keep(word));
    }

    /// Keeps what PostgreSQL would take for the name of a custom setting (`valid_custom_variable_name`).
    fn keep(&mut self, name: &[u8]) {
        let is_part = |part: &[u8]| {
            part.first().is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | 0x80..))
                && part.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | 0x80..))
        };
        if !name.contains(&b'.') || !name.split(|b| *b == b'.').all(is_part) {
            return;
        }
        match String::from_utf8(name.to_ascii_lowercase()) {
            Ok(name) => {
                self.known.insert(name);
            }
            Err(_) => self.has_others = true,
        }
    }
}

/// The custom setting that a text sets, where it is one SET of a value as it is written, and can't but succeed.
pub fn custom_set_alone(text: &[u8]) -> Option<String> {
    // What a client's encoding makes of other bytes, PostgreSQL may refuse.
    if text.contains(&b'\\') || text.contains(&0) || !text.is_ascii() {
        return None;
    }
    let mut tokens = Lexer::new(text).peekable();
    tokens.next_if(|token| matches!(token, Token::Word(verb) if verb.eq_ignore_ascii_case(b"set")))?;
    let CustomNames { mut known, has_others: false } = CustomNames::read_target(&mut tokens) else { return None };
    let name = known.pop_first()?;
    let is_assignment = match tokens.next()? {
        Token::Other => begins_plain_literal(text, b"="),
        Token::Word(word) => word.eq_ignore_ascii_case(b"to") && begins_plain_literal(text, word),
        _ => false,
    };
    let is_value = matches!(tokens.next(), Some(Token::Literal(_)));
    let is_all = tokens.all(|token| token == Token::Semicolon);
    (is_assignment && is_value && is_all).then_some(name)
}

/// Whether that stands before the first literal, which has no prefix: SET takes no literals of bits.
fn begins_plain_literal(text: &[u8], before: &[u8]) -> bool {
    let head = text.split(|b| *b == b'\'').next().unwrap_or_default();
    head.trim_ascii_end().ends_with(before)
}

/// Whether a text may call `set_config` with NULL, which resets a setting.
pub fn may_set_null(text: &[u8]) -> bool {
    has(text, b"set_config") && has(text, b"null") && read_each_way(text, sets_null, |sets, other| sets || other)
}

fn sets_null(lexer: &mut Lexer<'_>) -> bool {
    // The parentheses that are open since the function's name, if it is being called.
    let mut call: Option<usize> = None;
    for token in lexer {
        call = match (token, call) {
            (Token::Word(word) | Token::Quoted(word), None) => word.eq_ignore_ascii_case(b"set_config").then_some(0),
            // NULLIF as well.
            (Token::Word(word), Some(1..)) if has(word, b"null") => return true,
            // It may be run.
            (Token::Literal(text), None) if has(text, b"set_config") && has(text, b"null") => return true,
            (Token::Unclear, _) => return true,
            (Token::Open, Some(depth)) => Some(depth + 1),
            (Token::Close, Some(depth)) => depth.checked_sub(1).filter(|depth| *depth > 0),
            (_, Some(0)) => None,
            (_, call) => call,
        };
    }
    false
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_counts_within_the_call_alone() {
        for (text, expected) in [
            ("select set_config('a.b', '', false), nullif(1, 1)", false),
            ("select null, set_config('a.b', '', false) from t where n is not null", false),
            ("select set_config('a.b', 'null', false)", false),
            ("select set_config", false),
            ("select set_config('a.b', NULL, false)", true),
            ("select set_config('a.b', (select (null)), false)", true),
            ("select set_config('a.b', coalesce(x, 'y'), false), \"set_config\"('a.c', nullif($1, ''), false)", true),
            ("do $$ begin perform set_config('a.b', null, false); end $$", true),
        ] {
            assert_eq!(may_set_null(text.as_bytes()), expected, "{text}");
        }
    }

    fn joined(names: &CustomNames) -> String {
        names.known.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_are_found_in_texts() {
        let long = "application_context_of_the_service.current_tenant_identifier_value";
        let part = "p".repeat(70);
        for (text, expected) in [
            (
                "set app.tenant = 'a'; select set_config('app.\"', 'x'), set_config('My.b', a.b.c)",
                "a.b.c app.tenant my.b",
            ),
            ("do $$ perform set_config('a.b', 'c') $$", "a.b"),
            ("set work_mem = 1.5", ""),
            ("SET app.x = 0.9; SET app.y=.5; SET app.z= 7.", "app.x app.y app.z"),
            ("set app.x = -1.5e-5; select (t).a, a.b from c", "a.b app.x"),
            (&format!("SET {long} = 'a'"), long),
            (&format!("SET a.{part} = '{part}.b'"), &format!("a.{} {part}.b", &part[..63])),
            ("SET app.größe = 'a.ä'", "a.ä app.größe"),
            (r"SELECT U&'\0041', set_config(U&'app\002e\00f6', 'b', false)", "app.ö"),
            (r"SELECT set_config('app.user', 'DOM\x'); SET app.tenant = 1", "app.tenant app.user"),
        ] {
            let names = CustomNames::of_text(text.as_bytes());
            assert_eq!((joined(&names).as_str(), names.has_others), (expected, false), "{text}");
        }
        assert!(!CustomNames::of_text(b"SELECT 'it's").has_others, "PostgreSQL refuses it");
        assert!(CustomNames::of_text(b"SET app.gr\xf6\xdfe = 'a'").has_others);
        assert!(CustomNames::of_text(format!("SET app.{} = 1", "ß".repeat(40)).as_bytes()).has_others);
    }

    #[test]
    fn names_that_are_set_are_told_from_values() {
        for (text, expected) in [
            (
                "set local app.tenant = 'a.b'; SET session \"My\".b to c.d;select e.f; Set local.x = 1",
                "app.tenant local.x my.b",
            ),
            ("/* set a.b = 1 */ set /* so */ local c . d = 1", "c.d"),
            ("select 1; reset a.b", ""),
            ("set work_mem = 1.5", ""),
            ("set", ""),
        ] {
            let names = CustomNames::of_sets(text.as_bytes());
            assert_eq!((joined(&names).as_str(), names.has_others), (expected, false), "{text}");
        }
        assert!(CustomNames::of_sets(format!("SET LOCAL app.{} = 1", "ß".repeat(40)).as_bytes()).has_others);
    }

    #[test]
    fn a_set_alone_is_of_one_name() {
        for (text, expected) in [
            ("set app.tenant = 'a.b'", Some("app.tenant")),
            (" SET LOCAL App.tenant TO 'x'; ", Some("app.tenant")),
            ("set session app.x='a'", Some("app.x")),
            ("set app.x = 'a'; select 1", None),
            ("set app.x = ", None),
            ("set app.x + '='", None),
            ("set app.x =+ 'a'", None),
            ("set app.x = b'1'", None),
            ("set app.x to N'a'", None),
            ("set app.x = 'a\0'", None),
            ("set app.x = 'ä'", None),
            ("set app.x = 'a', b", None),
            ("set app.x = a.b", None),
            ("set application_name = 'app.x'", None),
            ("select 1", None),
            ("", None),
        ] {
            assert_eq!(custom_set_alone(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_are_found_in_parameters() {
        // Of 65 bytes, which is an `A` in front of it.
        let long = format!("app.{}", "t".repeat(61));
        let mut rest = vec![0, 1, 0, 0, 0, 2, 0, 0, 0, 65];
        rest.extend_from_slice(long.as_bytes());
        rest.extend_from_slice(&[0xff; 4]);
        assert_eq!(CustomNames::of_parameters(&rest, true), CustomNames { known: [long].into(), has_others: false });
        assert!(CustomNames::of_parameters(&rest[..40], false).has_others, "some have not been seen");
    }
}
