//! A text without its constants.

use super::lexer::{Lexer, Token};

/// The sign for the rest of a text that is not shown.
const REST: &str = "…";

/// A text with `?` in place of each string and each number, without comments, and with one space for any. Behind what
/// can't be told for certain nothing is shown, nor behind a string with a backslash, which may or may not end there.
pub(crate) fn without_constants(text: &[u8], is_whole: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lexer = Lexer::new(text);
    let mut end = 0;
    while let Some((start, token)) = lexer.next_from() {
        if start > end && end > 0 {
            out.push(' ');
        }
        end = text.len() - lexer.rest().len();
        match token {
            Token::Unclear => {
                out.push_str(REST);
                return out;
            }
            Token::Literal(literal) => {
                out.push('?');
                if literal.contains(&b'\\') {
                    out.push_str(REST);
                    return out;
                }
            }
            Token::Other if text[start].is_ascii_digit() => out.push('?'),
            _ => out.push_str(&String::from_utf8_lossy(&text[start..end])),
        }
    }
    if !is_whole {
        out.push_str(REST);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_comments_are_left_out() {
        for (text, expected) in [
            ("SELECT 1", "SELECT ?"),
            (
                "select  a.b\n from \"T t\" where c='x''y' and d>=$2 -- secret",
                "select a.b from \"T t\" where c=? and d>=$2",
            ),
            (
                "alter role a password 'hush'; /* 'hush' */select $$b$$, $x$c'$x$",
                "alter role a password ?; select ?, ?",
            ),
            ("select 1.5e3, E'a\\'b', 'hush'", "select ?.?e3, ?…"),
            ("select b'1', n'hush', U&'hush'", "select ?, ?, …"),
            ("select 'hush", "select …"),
            ("/* first */ begin", "begin"),
            ("", ""),
        ] {
            let shown = without_constants(text.as_bytes(), true);
            assert!(!shown.contains("hush"), "{text}: {shown}");
            assert_eq!(shown, expected);
        }
        assert_eq!(without_constants(b"select a, b", false), "select a, b…");
    }
}
