//! A regular expression as it is read, and what its parts are called in the syntax of the `regex` crate.

/// The reason why an expression can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// PostgreSQL refuses it, in these words.
    #[error("{0}")]
    Invalid(&'static str),
    /// Sluice does not have the construct.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl PatternError {
    pub(crate) const PARENTHESES: Self = Self::Invalid("parentheses () not balanced");
    pub(crate) const BRACKETS: Self = Self::Invalid("brackets [] not balanced");
    pub(crate) const BRACES: Self = Self::Invalid("braces {} not balanced");
    pub(crate) const COUNT: Self = Self::Invalid("invalid repetition count(s)");
    pub(crate) const RANGE: Self = Self::Invalid("invalid character range");
    pub(crate) const OPERAND: Self = Self::Invalid("quantifier operand invalid");
    pub(crate) const ESCAPE: Self = Self::Invalid("invalid escape \\ sequence");
    pub(crate) const CLASS: Self = Self::Invalid("invalid character class");
}

/// The rest of an expression.
#[derive(Default, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl Input<'_> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<u8> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    pub(crate) fn take(&mut self, text: &[u8]) -> bool {
        let is_there = self.bytes[self.at..].starts_with(text);
        if is_there {
            self.at += text.len();
        }
        is_there
    }
}

/// Something that a backslash makes.
pub(crate) enum Escape {
    Byte(u8),
    /// A class of bytes, by the letter that the `regex` crate has for it too.
    Class(u8),
    /// A place in the text, by the syntax of the `regex` crate.
    Place(&'static str),
}

/// Reads what follows a backslash.
pub(crate) fn escape(input: &mut Input<'_>) -> Result<Escape, PatternError> {
    let c = input.next().ok_or(PatternError::ESCAPE)?;
    Ok(match c {
        b'a' => Escape::Byte(0x07),
        b'b' => Escape::Byte(0x08),
        b'B' => Escape::Byte(b'\\'),
        b'e' => Escape::Byte(0x1b),
        b'f' => Escape::Byte(0x0c),
        b'n' => Escape::Byte(b'\n'),
        b'r' => Escape::Byte(b'\r'),
        b't' => Escape::Byte(b'\t'),
        b'v' => Escape::Byte(0x0b),
        b'd' | b'D' | b's' | b'S' | b'w' | b'W' => Escape::Class(c),
        b'A' => Escape::Place(r"\A"),
        b'Z' => Escape::Place(r"\z"),
        b'm' => Escape::Place(r"\b{start}"),
        b'M' => Escape::Place(r"\b{end}"),
        b'y' => Escape::Place(r"\b"),
        b'Y' => Escape::Place(r"\B"),
        b'0'..=b'9' => return Err(PatternError::Unsupported("back reference or number of a character")),
        b'c' | b'u' | b'U' | b'x' => return Err(PatternError::Unsupported("number of a character")),
        _ if c.is_ascii_alphanumeric() => return Err(PatternError::ESCAPE),
        _ => Escape::Byte(c),
    })
}

/// Appends a byte that stands for itself.
pub(crate) fn push_literal(syntax: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        syntax.push(char::from(byte));
    } else {
        syntax.push_str(&format!(r"\x{byte:02x}"));
    }
}
