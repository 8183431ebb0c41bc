//! The words of an SQL text, read the way PostgreSQL's own scanner does (`scan.l`), as far as it takes to tell names
//! from literals and comments. A text that can't be told for certain ends in [`Token::Unclear`].
//!
//! It is read without knowing its settings. A backslash in a literal may escape or not
//! (`standard_conforming_strings`), and in some encodings (SJIS, BIG5, GBK, GB18030, UHC, JOHAB) the second byte of a
//! character may be what is a sign in ASCII, a backslash among them. So a text with a backslash is read in each of these
//! ways (`ways.rs`): whichever holds, it holds for all of the text. Where such a byte makes a difference
//! outside of literals, the text is unclear.

use std::borrow::Cow;

use super::{encoding::Encoding, literals::literal_value};

/// A piece of a text. White space and comments are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or a name without quotes.
    Word(&'a [u8]),
    /// A name in double quotes, without them.
    Quoted(&'a [u8]),
    /// A string literal, without its quotes, doubled ones and escapes as they stand.
    Literal(&'a [u8]),
    /// A parameter, by its number: `$1`.
    Parameter(u16),
    /// A number, or a byte of an operator.
    Other,
    /// `.`
    Dot,
    /// `,`
    Comma,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `;`
    Semicolon,
    /// A token whose meaning is not known, or that PostgreSQL refuses.
    Unclear,
}

/// Reads tokens one by one.
#[derive(Clone)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether backslashes escape in plain literals.
    escapes: bool,
    encoding: Encoding,
    /// Whether they did in the literal before, which one on a later line continues.
    continues: Option<bool>,
    is_refused: bool,
    /// The place of a literal or name with Unicode escapes, at which reading has ended.
    unicode_at: Option<usize>,
}

impl<'a> Lexer<'a> {
    /// Takes a backslash for what it is by default: no escape.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self::by(text, false, Encoding::Safe)
    }

    pub(super) fn by(text: &'a [u8], escapes: bool, encoding: Encoding) -> Self {
        Self { text, at: 0, escapes, encoding, continues: None, is_refused: false, unicode_at: None }
    }

    /// The same way to read, of another text.
    pub(super) fn of<'b>(&self, text: &'b [u8]) -> Lexer<'b> {
        Lexer::by(text, self.escapes, self.encoding)
    }

    /// Goes to the next literal or name with Unicode escapes, behind its `U&`; returns the place of that, if there is
    /// one.
    pub(super) fn find_unicode(&mut self) -> Option<usize> {
        while self.next().is_some() {}
        let at = self.unicode_at.take()?;
        self.at = at + 2;
        Some(at)
    }

    /// Goes to a literal that continues the one before; `false` if there is none.
    pub(super) fn goes_on(&mut self) -> bool {
        let mut ahead = self.clone();
        let goes_on = ahead.skip_space() && ahead.peek(0) == b'\'' && is_broken(&self.text[self.at..ahead.at]);
        if goes_on {
            self.at = ahead.at;
        }
        goes_on
    }

    /// Whether the encoding decides what some of these bytes are.
    pub(super) fn has_other_bytes(&self, bytes: &[u8]) -> bool {
        self.encoding != Encoding::Safe && !bytes.is_ascii()
    }

    /// Whether it has met what PostgreSQL refuses, and the whole text with it: something without an end, or a backslash
    /// on its own.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    fn refuse(&mut self) -> Token<'a> {
        self.is_refused = true;
        Token::Unclear
    }

    /// The part of the text that has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// The next token, and the place at which it begins.
    pub(super) fn next_from(&mut self) -> Option<(usize, Token<'a>)> {
        let mut ahead = self.clone();
        let start = if ahead.skip_space() { ahead.at } else { self.at };
        Some((start, self.next()?))
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or_default()
    }

    /// Passes over white space and comments; `false` if a comment has no end.
    fn skip_space(&mut self) -> bool {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
                }
                b'/' if self.peek(1) == b'*' => {
                    if !self.skip_comment() {
                        return false;
                    }
                }
                _ => return true,
            }
        }
    }

    /// Block comments nest.
    fn skip_comment(&mut self) -> bool {
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return true;
                    }
                }
                _ => self.at += 1,
            }
        }
        false
    }

    fn word(&mut self) -> Token<'a> {
        let start = self.at;
        self.skip_word();
        while is_second_byte(self.text, self.at) {
            // A character's second byte, or a sign behind the word. Behind a sign, another word would begin.
            let sign = self.at;
            self.at += 1;
            self.skip_word();
            if self.text[sign..self.at].iter().any(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'$')) {
                return Token::Unclear;
            }
        }
        let word = &self.text[start..self.at];
        match (word, self.peek(0), self.peek(1)) {
            (b"e" | b"E", b'\'', _) => self.literal(true),
            (b"b" | b"B" | b"x" | b"X", b'\'', _) => self.literal(false),
            (b"n" | b"N", b'\'', _) => self.literal(self.escapes),
            // PostgreSQL takes no such literal where backslashes escape.
            (b"u" | b"U", b'&', b'\'') if self.escapes => self.refuse(),
            // It has escapes of another kind: see `spell_out`.
            (b"u" | b"U", b'&', b'\'' | b'"') => {
                self.unicode_at = Some(start);
                Token::Unclear
            }
            _ => Token::Word(word),
        }
    }

    fn skip_word(&mut self) {
        let rest = self.rest();
        self.at += rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
    }

    /// The text between quotes of that kind; a quote within is doubled.
    pub(super) fn quoted(&mut self, quote: u8, escapes: bool) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at)? {
                // No quote is the second byte of a character.
                b if escapes && self.encoding.leads(*b) && self.text.get(at + 1) != Some(&quote) => at += 2,
                b'\\' if escapes => at += 2,
                b if *b == quote => {
                    if self.text.get(at + 1) != Some(&quote) {
                        break;
                    }
                    at += 2;
                }
                _ => at += 1,
            }
        }
        self.at = at + 1;
        Some(&self.text[start..at])
    }

    /// The value of the literal that has just been read: with those that continue it, and what escapes stand for. `None`
    /// if PostgreSQL refuses it.
    pub(super) fn value(&mut self, literal: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        // Between dollar signs all is as it stands.
        let Some(escapes) = self.continues else { return Some(literal.into()) };
        let mut value = literal_value(literal, escapes, self.encoding);
        while self.goes_on() {
            let Some(next) = self.quoted(b'\'', escapes) else {
                self.refuse();
                self.at = self.text.len();
                return None;
            };
            let next = literal_value(next, escapes, self.encoding);
            value = value.zip(next).map(|(value, next)| [value, next].concat().into());
        }
        value
    }

    /// A literal's text with escapes read, whether backslashes escape in it or not; `None` if PostgreSQL would refuse it.
    pub(super) fn unescaped<'b>(&self, literal: &'b [u8]) -> Option<Cow<'b, [u8]>> {
        literal_value(literal, true, self.encoding)
    }

    fn literal(&mut self, escapes: bool) -> Token<'a> {
        match self.quoted(b'\'', escapes) {
            Some(text) => {
                self.continues = Some(escapes);
                Token::Literal(text)
            }
            None => self.refuse(),
        }
    }

    /// A number up to its exponent, which is taken for a word. Its point is its own, whatever stands before or behind.
    fn number(&mut self) -> Token<'a> {
        self.skip_digits();
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            self.at += 1;
            self.skip_digits();
        }
        Token::Other
    }

    fn skip_digits(&mut self) {
        let rest = self.rest();
        self.at += rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    }

    /// A parameter, or a literal between dollar signs with a tag of their own.
    fn dollar(&mut self) -> Token<'a> {
        let rest = &self.text[self.at + 1..];
        if rest.first().is_some_and(u8::is_ascii_digit) {
            let digits = &rest[..rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())];
            self.at += 1 + digits.len();
            let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            return number.map_or(Token::Other, Token::Parameter);
        }
        let tag = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | 0x80..)));
        let Some(tag) = tag.filter(|end| rest[*end] == b'$') else {
            self.at += 1;
            if tag.is_some_and(|end| is_second_byte(rest, end)) {
                return Token::Unclear;
            }
            return Token::Other;
        };
        let mark = &self.text[self.at..self.at + tag + 2];
        let start = self.at + mark.len();
        let Some(length) = self.text[start..].windows(mark.len()).position(|window| window == mark) else {
            return self.refuse();
        };
        self.at = start + length + mark.len();
        Token::Literal(&self.text[start..start + length])
    }
}

/// Whether a literal goes on behind that space: there is a newline in it, and no comment but to a line's end.
fn is_broken(space: &[u8]) -> bool {
    space.iter().any(|byte| matches!(byte, b'\n' | b'\r')) && !space.windows(2).any(|pair| pair == b"/*")
}

/// Whether a byte may be part of a word behind its first one.
fn is_part(b: &u8) -> bool {
    /// By the byte: most bytes of a text are looked at here.
    static PARTS: [bool; 256] = {
        let mut parts = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            parts[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'_' | b'$' | 0x80..);
            byte += 1;
        }
        parts
    };
    PARTS[usize::from(*b)]
}

/// Whether a sign may be the second byte of a character.
fn is_second_byte(text: &[u8], at: usize) -> bool {
    let may_be = matches!(text.get(at), Some(b'@' | b'['..=b'^' | b'`' | b'{'..=b'~'));
    may_be && at > 0 && text[at - 1] >= 0x80
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let from = self.at;
        if !self.skip_space() {
            self.at = self.text.len();
            return Some(self.refuse());
        }
        let first = *self.text.get(self.at)?;
        let continues = self.continues.take().filter(|_| is_broken(&self.text[from..self.at]));
        let token = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(),
            b'"' => match self.quoted(b'"', false) {
                Some(name) => Token::Quoted(name),
                None => self.refuse(),
            },
            b'\'' => self.literal(continues.unwrap_or(self.escapes)),
            b'\\' => self.refuse(),
            b'$' => self.dollar(),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_ascii_digit() => self.number(),
            byte => {
                self.at += 1;
                match byte {
                    b'.' => Token::Dot,
                    b',' => Token::Comma,
                    b'(' => Token::Open,
                    b')' => Token::Close,
                    b';' => Token::Semicolon,
                    _ => Token::Other,
                }
            }
        };
        if token == Token::Unclear {
            self.at = self.text.len();
        }
        Some(token)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn read(text: &str) -> String {
        show_all(&mut Lexer::new(text.as_bytes()))
    }

    pub(crate) fn show_all(lexer: &mut Lexer<'_>) -> String {
        let show = |token| match token {
            Token::Word(word) => String::from_utf8_lossy(word).into_owned(),
            Token::Quoted(name) => format!("\"{}\"", String::from_utf8_lossy(name)),
            Token::Literal(text) => format!("'{}'", String::from_utf8_lossy(text)),
            Token::Parameter(number) => format!("${number}"),
            Token::Other => "?".to_owned(),
            Token::Dot => ".".to_owned(),
            Token::Comma => ",".to_owned(),
            Token::Open => "(".to_owned(),
            Token::Close => ")".to_owned(),
            Token::Semicolon => ";".to_owned(),
            Token::Unclear => "!".to_owned(),
        };
        lexer.map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_told_from_what_is_quoted_or_commented() {
        for (text, expected) in [
            ("select a.b, $1 from \"T x\"", "select a . b , $1 from \"T x\""),
            ("create/* a /* b */ ' */temp -- 'x\n table t;", "create temp table t ;"),
            ("'it''s' E'\\'' \"a\"\"b\"", "'it''s' '\\'' \"a\"\"b\""),
            ("$$a 'b$$ $x$ $$ $x$ $1", "'a 'b' ' $$ ' $1"),
            // The second one goes on only behind the end of a line.
            ("E'a'\n'\\'b' c", "'a' '\\'b' c"),
            ("E'a' -- so\n'\\'b' c", "'a' '\\'b' c"),
            ("E'a' '\\' b", "'a' '\\' b"),
            ("E'a' /* so\n*/ '\\' b", "'a' '\\' b"),
            ("a$b 1.5e3 x'ff' 1::int", "a$b ? e3 'ff' ? ? ? int"),
            ("a=.5 b= 7. c.5 $1.5 1..2 8.e3", "a ? ? b ? ? c ? $1 ? ? . ? ? e3"),
            ("", ""),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn literals_have_their_values() {
        for (text, expected) in [
            ("'it''s'", Some("it's")),
            (r"'a\056b'", Some(r"a\056b")),
            (r"E'a\056b\x2ec\u002ed\U0000002ee'", Some("a.b.c.d.e")),
            (r"E'it\'s\n\\\q\x\t'", Some("it's\n\\qx\t")),
            (r"E'\D83D'", Some("D83D")),
            (r"E'\uD83D\uDE00\u00e9'", Some("\u{1f600}\u{e9}")),
            ("'SET k'\n  '.n'", Some("SET k.n")),
            ("E'SET k' -- so\n '\\056n'", Some("SET k.n")),
            ("$q$it''s \\056$q$", Some(r"it''s \056")),
            ("$q$a$q$\n'b'", Some("a")),
            (r"E'\u00'", None),
            (r"E'\ud83d'", None),
            (r"E'\x00'", None),
            (r"E'\000'", None),
            ("'a'\n'open", None),
        ] {
            let mut lexer = Lexer::new(text.as_bytes());
            let Some(Token::Literal(literal)) = lexer.next() else { panic!("{text}") };
            assert_eq!(lexer.value(literal).as_deref(), expected.map(str::as_bytes), "{text}");
        }
        let mut lexer = Lexer::by(b"E'\x95\x5c056'", false, Encoding::Double);
        let Some(Token::Literal(literal)) = lexer.next() else { panic!("it is one") };
        assert_eq!(lexer.value(literal).as_deref(), Some(&b"\x95\x5c056"[..]));
    }

    #[test]
    fn what_an_encoding_decides_is_unclear() {
        for text in [&b"$\x95\x5c$ ' $\x95\x5c$, f('x')"[..], b"\x95\x5cf(1)", b"\x95\x5c$$, f(1), $$"] {
            let tokens: Vec<_> = Lexer::new(text).collect();
            assert_eq!(tokens.last(), Some(&Token::Unclear), "{}", text.escape_ascii());
        }
        // It may be a function's name, or an operator: what is in the parenthesis is read either way.
        let tokens: Vec<_> = Lexer::new(b"\x95\x5c (1)").take(2).collect();
        assert_eq!(tokens, [Token::Word(b"\x95\x5c"), Token::Open]);
        assert_eq!(
            read("E'é\\n' 'é' größe||'x' straße[1] $é$a$é$"),
            "'é\\n' 'é' größe|? 'x' straße[1 ? 'a'"
                .replace("größe|?", "größe ? ?")
                .replace("straße[1 ?", "straße ? ? ?")
        );
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for text in ["U&'\\0041'", "'open", "\"open", "/* open", "$x$ open", "E'open\\'"] {
            let mut lexer = Lexer::new(text.as_bytes());
            let last = lexer.by_ref().last();
            assert_eq!(last, Some(Token::Unclear), "{text}");
            assert_eq!(lexer.is_refused(), !text.starts_with('U'), "{text}");
        }
    }
}
