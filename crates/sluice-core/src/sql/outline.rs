//! The outline of a statement, as far as its text shows: how many parameters it has, and whether it returns rows.

use super::lexer::{Lexer, Token};

/// The highest number of a parameter in a text. Those in a PREPARE are of the statement that it makes.
pub(crate) fn parameters(text: &[u8]) -> u16 {
    let is_prepare = |token| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(b"prepare"));
    if Lexer::new(text).next().is_some_and(is_prepare) {
        return 0;
    }
    let numbers = Lexer::new(text).filter_map(|token| match token {
        Token::Parameter(number) => Some(number),
        _ => None,
    });
    numbers.max().unwrap_or_default()
}

/// Whether a statement returns rows. A SELECT within one that changes something counts as rows: that is rare.
pub(crate) fn returns_rows(text: &[u8]) -> bool {
    let mut words = Lexer::new(text).filter_map(|token| match token {
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
        for (text, expected) in
            [("SELECT 1", 0), ("SELECT $2, $1", 2), ("PREPARE a AS SELECT $1", 0), ("SELECT '$3', \"$4\", $1 -- $5", 1)]
        {
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
