//! Sets of bytes in a regular expression: `[a-z]`.

use crate::pattern_input::{Escape, Input, PatternError, escape, push_literal};

/// Classes that both dialects have, with ASCII's members.
const CLASSES: [&[u8]; 14] = [
    b"alnum", b"alpha", b"ascii", b"blank", b"cntrl", b"digit", b"graph", b"lower", b"print", b"punct", b"space",
    b"upper", b"word", b"xdigit",
];

/// A member of a set.
enum Member {
    Byte(u8),
    /// The hyphen of a range.
    Hyphen,
    /// Syntax of the `regex` crate.
    Class(String),
    End,
}

/// Translates the rest of a set, after its bracket.
pub(crate) fn translate(input: &mut Input<'_>, syntax: &mut String) -> Result<(), PatternError> {
    if input.take(b"[:<:]]") || input.take(b"[:>:]]") {
        return Err(PatternError::Unsupported("[[:<:]] and [[:>:]]"));
    }
    syntax.push_str(if input.take(b"^") { "[^" } else { "[" });
    let mut is_first = true;
    loop {
        match member(input, is_first)? {
            Member::End => break,
            Member::Hyphen => return Err(PatternError::RANGE),
            Member::Class(class) => syntax.push_str(&class),
            Member::Byte(byte) => range(input, syntax, byte)?,
        }
        is_first = false;
    }
    syntax.push(']');
    Ok(())
}

/// A byte, or the range that it begins.
fn range(input: &mut Input<'_>, syntax: &mut String, first: u8) -> Result<(), PatternError> {
    push_literal(syntax, first);
    let mut ahead = *input;
    if !matches!(member(&mut ahead, false), Ok(Member::Hyphen)) {
        return Ok(());
    }
    *input = ahead;
    let last = match member(input, false)? {
        Member::Byte(byte) => byte,
        Member::Hyphen => b'-',
        Member::Class(_) | Member::End => return Err(PatternError::RANGE),
    };
    if first > last {
        return Err(PatternError::RANGE);
    }
    syntax.push('-');
    push_literal(syntax, last);
    Ok(())
}

fn member(input: &mut Input<'_>, is_first: bool) -> Result<Member, PatternError> {
    Ok(match input.next().ok_or(PatternError::BRACKETS)? {
        b']' if !is_first => Member::End,
        b'-' if !is_first && input.peek() != Some(b']') => Member::Hyphen,
        b'[' => match input.peek() {
            Some(b':') => class(input)?,
            Some(b'.' | b'=') => return Err(PatternError::Unsupported("[. .] and [= =]")),
            Some(_) => Member::Byte(b'['),
            None => return Err(PatternError::BRACKETS),
        },
        b'\\' => match escape(input)? {
            Escape::Byte(byte) => Member::Byte(byte),
            Escape::Class(letter) => Member::Class(format!("\\{}", char::from(letter))),
            Escape::Place(_) => return Err(PatternError::ESCAPE),
        },
        byte => Member::Byte(byte),
    })
}

/// The rest of `[:name:]`.
fn class(input: &mut Input<'_>) -> Result<Member, PatternError> {
    input.next();
    let mut name = Vec::new();
    while !input.take(b":]") {
        name.push(input.next().ok_or(PatternError::BRACKETS)?);
    }
    if !CLASSES.contains(&name.as_slice()) {
        return Err(PatternError::CLASS);
    }
    let name: String = name.into_iter().map(char::from).collect();
    Ok(Member::Class(format!("[:{name}:]")))
}
