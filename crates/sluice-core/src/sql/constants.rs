//! A text without its constants.

use super::lexer::{Lexer, Token};

/// The sign for the rest of a text that is not shown.
const REST: &str = "…";

/// The beginning of a text that is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 2048;

/// The beginning of a text as anybody may see it: [without its constants](without_constants).
pub(crate) fn shown(text: &[u8]) -> String {
    let beginning = beginning(text);
    without_constants(beginning, beginning.len() == text.len())
}

/// As much of a text as is shown at most.
pub(crate) fn beginning(text: &[u8]) -> &[u8] {
    &text[..text.len().min(SHOWN_BYTES_MAX)]
}

/// A place in a statement, for the value of a setting, which may be a secret without quotes: `SET x.y = value`,
/// `ALTER ROLE … SET x.y TO value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Begin,
    /// Behind ALTER, which may have a SET.
    Alter,
    /// Behind that.
    Set,
    /// In what is set.
    Name,
    Value,
    Elsewhere,
}

impl Place {
    /// The place of a token, by that of the one before; `byte` is its first.
    fn of(before: Self, token: &Token<'_>, byte: u8) -> Self {
        let is_word = |word: &str| matches!(token, Token::Word(name) if name.eq_ignore_ascii_case(word.as_bytes()));
        match (before, token) {
            (_, Token::Semicolon) => Self::Begin,
            (Self::Name, Token::Other) if byte == b'=' => Self::Value,
            (Self::Name, Token::Word(_)) if is_word("to") => Self::Value,
            (Self::Set | Self::Name, Token::Word(_) | Token::Quoted(_) | Token::Dot) => Self::Name,
            (Self::Begin | Self::Alter, Token::Word(_)) if is_word("set") => Self::Set,
            (Self::Begin, Token::Word(_)) if is_word("alter") => Self::Alter,
            (Self::Alter | Self::Value, _) => before,
            _ => Self::Elsewhere,
        }
    }
}

/// A text with `?` in place of each string, each number and what settings are set to, without comments, and with one
/// space for any. Behind what can't be told for certain nothing is shown, nor behind a string with a backslash, which may
/// or may not end there.
pub(crate) fn without_constants(text: &[u8], is_whole: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut place = Place::Begin;
    let mut lexer = Lexer::new(text);
    let mut end = 0;
    // Whether the token before is a number, or a part of one: `0x1F` and `1e5` are two tokens.
    let mut is_number = false;
    while let Some((start, token)) = lexer.next_from() {
        let before = place;
        place = Place::of(before, &token, text.get(start).copied().unwrap_or_default());
        if start > end && end > 0 {
            out.push(' ');
        }
        let goes_on = is_number && start == end;
        end = text.len() - lexer.rest().len();
        is_number = match token {
            // A dot that no digit follows is a token of its own.
            Token::Other => text[start].is_ascii_digit() || text[start] == b'.',
            Token::Word(_) | Token::Dot => goes_on,
            _ => false,
        };
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
            _ if is_number && goes_on => {}
            Token::Other if is_number => out.push('?'),
            // What is behind the `=` or the TO, that is.
            Token::Word(_) | Token::Quoted(_) if [before, place] == [Place::Value; 2] => out.push('?'),
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
            ("select 1.5e3, E'a\\'b', 'hush'", "select ?, ?…"),
            ("select 0xC0FFEE, 1_500, 0b11, a1, a.b1, 1 e5", "select ?, ?, ?, a1, a.b1, ? e5"),
            ("select .75, 1+.5, a.b, (values(.99)), 1.e3, a<.5e3", "select ?, ?+?, a.b, (values(?)), ?, a<?"),
            ("select b'1', n'hush', U&'hush'", "select ?, ?, …"),
            ("select 'hush", "select …"),
            ("/* first */ begin", "begin"),
            ("set x.y = hush", "set x.y = ?"),
            ("set x.y = 0x1F", "set x.y = ?"),
            ("SET LOCAL \"x\".y TO hush, \"hush\"; select a", "SET LOCAL \"x\".y TO ?, ?; select a"),
            ("begin; set session x.y=hush.hush", "begin; set session x.y=?.?"),
            ("alter role a in database b set x.y to hush", "alter role a in database b set x.y to ?"),
            ("alter system set x.y = hush", "alter system set x.y = ?"),
            ("update t set a = b where c", "update t set a = b where c"),
            ("set transaction isolation level serializable", "set transaction isolation level serializable"),
            (
                "alter table t set (fillfactor = 70), alter b set not null",
                "alter table t set (fillfactor = ?), alter b set not null",
            ),
            ("", ""),
        ] {
            let shown = without_constants(text.as_bytes(), true);
            assert!(!shown.contains("hush"), "{text}: {shown}");
            assert_eq!(shown, expected);
        }
        assert_eq!(without_constants(b"select a, b", false), "select a, b…");
    }
}
