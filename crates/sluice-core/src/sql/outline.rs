//! The outline of a statement, as far as its text shows: how many parameters it has, and whether it returns rows.

use super::{
    lexer::{Lexer, Token},
    spelled_out,
    ways::read_each_way,
};

/// The highest number of a parameter in a text; `None` where that is not to be told. Those in a PREPARE are of the
/// statement that it makes.
pub(crate) fn parameters(text: &[u8]) -> Option<u16> {
    let is_prepare = |token| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(b"prepare"));
    if Lexer::new(text).next().is_some_and(is_prepare) {
        return Some(0);
    }
    let highest = |lexer: &mut Lexer<'_>| {
        lexer.try_fold(0, |highest, token| match token {
            Token::Parameter(number) => Some(number.max(highest)),
            Token::Unclear => None,
            _ => Some(highest),
        })
    };
    read_each_way(text, highest, |one, other| one.filter(|_| one == other))
}

/// The number of parameters that a query has, or a change of rows, if it is to be told: in other commands PostgreSQL
/// counts those only that it analyzes before they run (`CREATE FUNCTION … RETURN $1` has none).
pub(crate) fn parameters_of_query(text: &[u8]) -> Option<u16> {
    let verbs = ["select", "insert", "update", "delete", "merge", "values", "with"];
    let is_verb = |word: &[u8]| verbs.iter().any(|verb| word.eq_ignore_ascii_case(verb.as_bytes()));
    match Lexer::new(text).next() {
        Some(Token::Word(word)) if is_verb(word) => parameters(text),
        _ => None,
    }
}

/// The highest number behind a `$`, in literals and comments as well.
pub(crate) fn highest_written(text: &[u8]) -> u16 {
    let numbers = text.split(|byte| *byte == b'$').skip(1).filter_map(|rest| {
        let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
        str::from_utf8(digits).ok()?.parse().ok()
    });
    numbers.max().unwrap_or_default()
}

/// Whether there may be several commands in a text.
pub(crate) fn may_have_several(text: &[u8]) -> bool {
    if is_one(text) {
        return false;
    }
    // Settings decide whether a backslash hides a quote, and with it the rest of the text.
    let read = |lexer: &mut Lexer<'_>| {
        let mut has_ended = false;
        lexer.any(|token| {
            let is_end = matches!(token, Token::Semicolon);
            has_ended |= is_end;
            matches!(token, Token::Unclear) || (has_ended && !is_end)
        })
    };
    read_each_way(text, read, |one, other| one || other)
}

/// Whether a text is one command, and begins with none of these words, by its first letter. As most are, a query: of
/// those no word is read.
pub(super) fn is_other_command(text: &[u8], words: &[&str]) -> bool {
    let is_other = |letter: &u8| {
        letter.is_ascii_alphabetic() && !words.iter().any(|word| word.as_bytes()[0].eq_ignore_ascii_case(letter))
    };
    text.trim_ascii_start().first().is_some_and(is_other) && is_one(text)
}

/// Whether a text has no semicolon but at its end. Nothing else parts commands, whatever the rest is.
fn is_one(text: &[u8]) -> bool {
    let ends = |rest: &[u8]| rest.iter().all(|byte| *byte == b';' || byte.is_ascii_whitespace());
    memchr::memchr(b';', text).is_none_or(|at| ends(&text[at..]))
}

/// Whether there are several commands in a text, for certain: PostgreSQL prepares none of them. The body of a function
/// that is written as one (`BEGIN ATOMIC`) is taken for several.
pub(crate) fn has_several(text: &[u8]) -> bool {
    let read = |lexer: &mut Lexer<'_>| {
        let (mut depth, mut is_in_one, mut count) = (0_usize, false, 0);
        for token in lexer {
            match token {
                Token::Unclear => return false,
                Token::Semicolon if depth == 0 => {
                    is_in_one = false;
                    continue;
                }
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            count += usize::from(!std::mem::replace(&mut is_in_one, true));
        }
        count > 1
    };
    read_each_way(text, read, |one, other| one && other)
}

/// Whether literals in a statement are read when it is parsed, as those of queries are, with a snapshot. Other commands
/// keep their text until they run, and take none.
pub(crate) fn reads_literals(text: &[u8]) -> bool {
    const QUERIES: [&str; 7] = ["select", "insert", "update", "delete", "merge", "values", "with"];
    let verb = Lexer::new(text).find_map(|token| match token {
        Token::Word(word) => Some(word),
        _ => None,
    });
    verb.is_none_or(|verb| QUERIES.iter().any(|query| verb.eq_ignore_ascii_case(query.as_bytes())))
}

/// Whether a statement returns rows. A SELECT within one that changes something counts as rows: that is rare.
pub(crate) fn returns_rows(text: &[u8]) -> bool {
    let text = spelled_out(text);
    let mut words = Lexer::new(&text).filter_map(|token| match token {
        Token::Word(word) => Some(word),
        _ => None,
    });
    let is = |word: &[u8], keyword: &str| word.eq_ignore_ascii_case(keyword.as_bytes());
    let Some(verb) = words.next() else { return false };
    if ["values", "table", "show", "explain", "fetch", "execute"].iter().any(|keyword| is(verb, keyword)) {
        return true;
    }
    if is(verb, "select") {
        return !words.any(|word| is(word, "into"));
    }
    if is(verb, "with") {
        let rest: Vec<&[u8]> = words.collect();
        let changes = ["insert", "update", "delete", "merge"].iter().any(|keyword| rest.iter().any(|w| is(w, keyword)));
        return !changes || rest.iter().any(|word| is(word, "returning"));
    }
    let changes = ["insert", "update", "delete", "merge"].iter().any(|keyword| is(verb, keyword));
    changes && words.any(|word| is(word, "returning"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_read_their_literals_when_they_are_parsed() {
        for (text, reads) in [
            ("select date '01/02/2024'", true),
            ("/* so */ (VALUES ('now'))", true),
            ("WITH a AS (SELECT 'b') DELETE FROM c", true),
            ("SET LOCAL work_mem = '7MB'", false),
            ("COMMENT ON TABLE t IS E'a\\tb'", false),
        ] {
            assert_eq!(reads_literals(text.as_bytes()), reads, "{text}");
        }
    }

    #[test]
    fn parameters_are_counted_outside_of_literals() {
        for (text, expected) in [
            ("SELECT 1", 0),
            ("SELECT $2, $1", 2),
            ("PREPARE a AS SELECT $1", 0),
            ("SELECT '$3', \"$4\", $1 -- $5", 1),
            (r"SELECT 'C:\temp', $1", 1),
            (r"SELECT U&'$2\0041', $1", 1),
        ] {
            assert_eq!(parameters(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [r"SELECT 'a\', $1, 'b' --'", r"SELECT \ $1"] {
            assert_eq!(parameters(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn parameters_are_those_of_queries() {
        assert_eq!(parameters_of_query(b"/* so */ Select $2"), Some(2));
        for text in ["create function f(int) returns int return $1", "copy (select $1) to stdout", "(select $1)", ""] {
            assert_eq!(parameters_of_query(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn commands_are_counted() {
        for text in ["select 1; execute a", ";; execute a;/* so */ execute b;", r"select 'a\'; select 2"] {
            assert!(has_several(text.as_bytes()), "{text}");
        }
        for text in ["", ";", "execute a;", "; select ';' -- ; x", "create rule r as do (select 1; select 2)", "a; 'b"]
        {
            assert!(!has_several(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn several_commands_are_parted_by_a_semicolon() {
        for text in [
            "",
            ";",
            "select 1",
            "select 1 ;\n; ",
            "select ';a'",
            "select 1; -- a",
            "select 'a",
            r"select \ a;",
            "a;\u{b}",
        ] {
            assert!(!may_have_several(text.as_bytes()), "{text}");
        }
        for text in ["select 1; select 2", "; select 1", r"select 'a\'; select 2", "select '; a"] {
            assert!(may_have_several(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn other_commands_are_known_by_their_first_letter() {
        for text in ["select 1", " Update t set a = 1;", "do $$ copy $$"] {
            assert!(is_other_command(text.as_bytes(), &["copy", "end"]), "{text}");
        }
        for text in ["", ";", "/* so */ select 1", "Copy t to stdout", "explain select 1", "select 1; copy t to stdout"]
        {
            assert!(!is_other_command(text.as_bytes(), &["copy", "end"]), "{text}");
        }
    }

    #[test]
    fn rows_are_told_by_the_verb() {
        for text in [
            "select 1",
            "VALUES (1)",
            "table t",
            "show work_mem",
            "insert into t values (1) returning *",
            "insert into t values (U&'a') returning *",
            "with x as (select 1) select * from x",
        ] {
            assert!(returns_rows(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "select 1 into t",
            "insert into t select 1",
            "set x = 1",
            "begin",
            "with x as (select 1) delete from t",
        ] {
            assert!(!returns_rows(text.as_bytes()), "{text}");
        }
    }
}
