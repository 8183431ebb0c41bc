//! Literals and names with Unicode escapes (`U&'…'` and `U&"…"`), which a clause behind them may give another escape
//! character. They are spelled out before a text is read, so that nobody else has to know of them.

use std::borrow::Cow;

use super::lexer::{Lexer, Token};

/// A text with such literals and names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spelled {
    /// It has none, or can't be told for certain.
    AsItIs,
    /// The same with ordinary ones.
    Out(Vec<u8>),
    /// PostgreSQL refuses it as a whole.
    Refused,
}

/// The escape character where no other is named.
const ESCAPE: u8 = b'\\';

/// A text with such literals and names spelled out, as it is read by default. What PostgreSQL refuses stays as it is.
pub(crate) fn spelled_out(text: &[u8]) -> Cow<'_, [u8]> {
    match spell_out(Lexer::new(text)) {
        Spelled::Out(spelled) => spelled.into(),
        Spelled::AsItIs | Spelled::Refused => text.into(),
    }
}

/// Spells them out in what a lexer has before it.
pub(super) fn spell_out(mut lexer: Lexer<'_>) -> Spelled {
    let text = lexer.rest();
    if !may_have(text) {
        return Spelled::AsItIs;
    }
    let (mut spelled, mut copied) = (Vec::new(), 0);
    while let Some(start) = lexer.find_unicode() {
        spelled.extend_from_slice(&text[copied..start]);
        match next(&mut lexer) {
            Ok(token) => spelled.extend(token),
            Err(reason) => return reason,
        }
        copied = text.len() - lexer.rest().len();
    }
    spelled.extend_from_slice(&text[copied..]);
    if copied == 0 { Spelled::AsItIs } else { Spelled::Out(spelled) }
}

/// Whether there is a sign that one begins with.
fn may_have(text: &[u8]) -> bool {
    text.contains(&b'&')
        && text.windows(3).any(|w| w[1] == b'&' && matches!(w[0], b'u' | b'U') && matches!(w[2], b'\'' | b'"'))
}

/// The one that a lexer stands before, from its quote on, in an ordinary form.
fn next(lexer: &mut Lexer<'_>) -> Result<Vec<u8>, Spelled> {
    let quote = lexer.rest()[0];
    let mut content = lexer.quoted(quote, false).ok_or(Spelled::Refused)?.to_vec();
    while quote == b'\'' && lexer.goes_on() {
        content.extend_from_slice(lexer.quoted(quote, false).ok_or(Spelled::Refused)?);
    }
    if lexer.has_other_bytes(&content) {
        return Err(Spelled::AsItIs);
    }
    let escape = escape_behind(lexer)?;
    if escape != ESCAPE && !content.is_ascii() {
        // It may be the second byte of a character.
        return Err(Spelled::AsItIs);
    }
    let content = decode(&once(&content, quote), escape).ok_or(Spelled::Refused)?;
    let doubled = content.iter().flat_map(|b| [*b].into_iter().chain((*b == quote).then_some(quote)));
    Ok([quote].into_iter().chain(doubled).chain([quote]).collect())
}

/// The escape character, which a clause may name.
fn escape_behind(lexer: &mut Lexer<'_>) -> Result<u8, Spelled> {
    let mut ahead = lexer.clone();
    if !matches!(ahead.next(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(b"uescape")) {
        return Ok(ESCAPE);
    }
    let escape = match ahead.next() {
        Some(Token::Literal([escape])) if escape.is_ascii() => *escape,
        Some(Token::Literal(text)) if !text.is_ascii() || text.contains(&b'\\') => return Err(Spelled::AsItIs),
        Some(Token::Unclear) if !ahead.is_refused() => return Err(Spelled::AsItIs),
        // Nothing but a literal of one character makes sense here.
        _ => return Err(Spelled::Refused),
    };
    let is_none = |b: u8| b.is_ascii_hexdigit() || b.is_ascii_whitespace() || matches!(b, b'+' | b'\'' | b'"' | 0x0b);
    *lexer = ahead;
    if is_none(escape) { Err(Spelled::Refused) } else { Ok(escape) }
}

/// The text between quotes, with each doubled one once.
fn once(content: &[u8], quote: u8) -> Vec<u8> {
    let mut is_second = false;
    let mut kept = content.to_vec();
    kept.retain(|b| {
        is_second = *b == quote && !is_second;
        *b != quote || is_second
    });
    kept
}

/// The bytes that escapes stand for; `None` if one makes no sense.
fn decode(mut text: &[u8], escape: u8) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        if *first != escape {
            decoded.push(*first);
            text = rest;
        } else if rest.first() == Some(&escape) {
            decoded.push(escape);
            text = &rest[1..];
        } else {
            let (mut code, mut rest) = code_point(rest)?;
            if (0xd800..0xdc00).contains(&code) {
                let (second, behind) = code_point(rest.strip_prefix(&[escape])?)?;
                code = 0x10000 + ((code & 0x3ff) << 10) + second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                rest = behind;
            }
            let character = char::from_u32(code).filter(|character| *character != '\0')?;
            decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            text = rest;
        }
    }
    Some(decoded)
}

/// The number behind an escape character, of four digits, or of six behind a plus sign; and the rest.
fn code_point(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = match text.strip_prefix(b"+") {
        Some(text) => text.split_at_checked(6)?,
        None => text.split_at_checked(4)?,
    };
    let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_spelled_out() {
        for (text, expected) in [
            (r"select U&'n\006fw', u&'a'", "select 'now', 'a'"),
            (r#"select U&"s\0065t_config"('a')"#, r#"select "set_config"('a')"#),
            (r#"U&"a""\0022b" x"#, r#""a""""b" x"#),
            (r"U&'it''s\0027' x", "'it''s''' x"),
            (r"U&'\\\+00006eow'", r"'\now'"),
            ("U&'n!006fw' /* so */ UESCAPE '!', 1", "'now', 1"),
            (r"U&'n\006fw!!' uescape '!'", r"'n\006fw!'"),
            ("U&'\\006e'\n  '\\006fw' uescape $$\\$$ x", "'now' x"),
            (r"U&'\D83D\DE00\00e9'", "'\u{1f600}\u{e9}'"),
            (r"'U&' U&'\0041' /* U&'x */ $$ U&'\ $$ -- U&'", r"'U&' 'A' /* U&'x */ $$ U&'\ $$ -- U&'"),
            (r"select 1U&'\0041', a.U&'\0041'", "select 1'A', a.'A'"),
            (r"U&'\0041', 'open", "'A', 'open"),
        ] {
            let Spelled::Out(spelled) = spell_out(Lexer::new(text.as_bytes())) else { panic!("{text}") };
            assert_eq!(String::from_utf8_lossy(&spelled), expected, "{text}");
        }
    }

    #[test]
    fn what_is_none_stays() {
        for text in ["select 1", "'u&'''", "au&'x'", "u &'x'", "select a&'x'", "-- U&'x'", "$$ U&'x' $$"] {
            assert_eq!(spell_out(Lexer::new(text.as_bytes())), Spelled::AsItIs, "{text}");
        }
        for text in ["U&'ä|0041' uescape '|'", "U&'a' uescape 'ä'", r"U&'a' uescape E'\\'", "U&'a' uescape U&'!'"] {
            assert_eq!(spell_out(Lexer::new(text.as_bytes())), Spelled::AsItIs, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            r"U&'\004'",
            r"U&'\00zz'",
            r"U&'\+0041'",
            r"U&'\0000'",
            r"U&'\+110000'",
            r"U&'\D83D'",
            r"U&'\D83D\0041'",
            r"U&'\DE00'",
            r"U&'a\'",
            "U&'open",
            "U&'a'\n'open",
            "U&'a' uescape",
            "U&'a' uescape x, 1",
            "U&'a' uescape 'open",
            "U&'a' uescape 'ab'",
            "U&'a' uescape '+'",
            "U&'a' uescape ' '",
            "U&\"a\" uescape ''",
        ] {
            assert_eq!(spell_out(Lexer::new(text.as_bytes())), Spelled::Refused, "{text}");
        }
    }
}
