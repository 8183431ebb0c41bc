//! The outline of a statement, as far as its text shows: how many parameters it has, and whether it returns rows.

use super::{
    lexer::{Lexer, Token, read_each_way},
    spelled_out,
};

/// The highest number of a parameter in a text, or a higher one where that is not to be told. Those in a PREPARE are of
/// the statement that it makes.
pub(crate) fn parameters(text: &[u8]) -> u16 {
    let is_prepare = |token| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(b"prepare"));
    if Lexer::new(text).next().is_some_and(is_prepare) {
        return 0;
    }
    let highest = |lexer: &mut Lexer<'_>| {
        let numbers = lexer.map(|token| match token {
            Token::Parameter(number) => number,
            Token::Unclear => highest_written(text),
            _ => 0,
        });
        numbers.max().unwrap_or_default()
    };
    read_each_way(text, highest, u16::max)
}

/// The highest number behind a `$`, in literals and comments as well.
fn highest_written(text: &[u8]) -> u16 {
    let numbers = text.split(|byte| *byte == b'$').skip(1).filter_map(|rest| {
        let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
        str::from_utf8(digits).ok()?.parse().ok()
    });
    numbers.max().unwrap_or_default()
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
    fn parameters_are_counted_outside_of_literals() {
        for (text, expected) in [
            ("SELECT 1", 0),
            ("SELECT $2, $1", 2),
            ("PREPARE a AS SELECT $1", 0),
            ("SELECT '$3', \"$4\", $1 -- $5", 1),
            (r"SELECT 'C:\temp', $1", 1),
            (r"SELECT U&'$2\0041', $1", 1),
        ] {
            assert_eq!(parameters(text.as_bytes()), expected, "{text}");
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
