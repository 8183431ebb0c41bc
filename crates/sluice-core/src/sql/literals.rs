//! The values of literals, and the code that may stand in them: a function may run what it is given, as `DO` does.

use std::borrow::Cow;

use super::encoding::Encoding;

/// The depth to which code in literals of code is read.
pub(super) const DEPTH_MAX: usize = 5;

/// The value of a literal's text between its quotes (PostgreSQL documentation, 4.1.2.2); `None` if PostgreSQL refuses
/// it.
pub(super) fn literal_value(text: &[u8], escapes: bool, encoding: Encoding) -> Option<Cow<'_, [u8]>> {
    let has_sign = memchr::memchr(b'\'', text).is_some() || (escapes && memchr::memchr(b'\\', text).is_some());
    if !has_sign {
        return Some(text.into());
    }
    let (mut value, mut text) = (Vec::with_capacity(text.len()), text);
    while let Some((first, rest)) = text.split_first() {
        text = rest;
        match (*first, rest.first()) {
            (lead, Some(second)) if escapes && encoding.leads(lead) && *second != b'\'' => {
                value.extend_from_slice(&[lead, *second]);
                text = &rest[1..];
            }
            (b'\\', Some(_)) if escapes => text = unescape(rest, &mut value)?,
            (b'\'', Some(b'\'')) => {
                value.push(b'\'');
                text = &rest[1..];
            }
            (byte, _) => value.push(byte),
        }
    }
    Some(value.into())
}

/// Adds what the escape stands for that begins behind a backslash; gives the rest.
fn unescape<'a>(text: &'a [u8], value: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (escape, behind) = text.split_first()?;
    match escape {
        b'0'..=b'7' => {
            let (code, rest) = number(text, 8, 1, 3)?;
            // The highest ones are cut.
            value.push(code.to_le_bytes()[0]);
            return (value.last() != Some(&0)).then_some(rest);
        }
        b'x' => {
            if let Some((code, rest)) = number(behind, 16, 1, 2) {
                value.push(code.to_le_bytes()[0]);
                return (code != 0).then_some(rest);
            }
            value.push(b'x');
        }
        b'u' | b'U' => {
            let (mut code, mut rest) = code_point(text)?;
            if (0xd800..0xdc00).contains(&code) {
                let (second, behind) = code_point(rest.strip_prefix(b"\\")?)?;
                code = 0x10000 + ((code & 0x3ff) << 10) + second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                rest = behind;
            }
            let character = char::from_u32(code).filter(|character| *character != '\0')?;
            value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        b'b' => value.push(0x08),
        b'f' => value.push(0x0c),
        b'n' => value.push(b'\n'),
        b'r' => value.push(b'\r'),
        b't' => value.push(b'\t'),
        other => value.push(*other),
    }
    Some(behind)
}

/// The number of an escape from its letter on: `u` and four digits, or `U` and eight; and the rest.
fn code_point(text: &[u8]) -> Option<(u32, &[u8])> {
    let (letter, digits) = text.split_first()?;
    let count = match letter {
        b'u' => 4,
        b'U' => 8,
        _ => return None,
    };
    number(digits, 16, count, count)
}

/// A number of so many digits, and the rest.
fn number(text: &[u8], radix: u32, digits_min: usize, digits_max: usize) -> Option<(u32, &[u8])> {
    let count = text.iter().take(digits_max).take_while(|b| char::from(**b).is_digit(radix)).count();
    let digits = str::from_utf8(&text[..count]).ok().filter(|_| count >= digits_min)?;
    Some((u32::from_str_radix(digits, radix).ok()?, &text[count..]))
}

/// Whether a text has a word in it, in letters of any case; its first one is ASCII.
pub(crate) fn has_word(text: &[u8], word: &[u8]) -> bool {
    let first = word[0];
    let is_it = |at: usize| text[at..].get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text).any(is_it)
}

/// Whether a word is one of those, in letters of any case.
pub(super) fn is_one_of(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|one| word.eq_ignore_ascii_case(one))
}

/// Whether literals in code may have words in them that do not stand there as they are: by escapes, or in pieces.
pub(super) fn may_hide_words(code: &[u8]) -> bool {
    let goes_on = |at: usize| {
        let behind = &code[at + 1..];
        let rest = behind.trim_ascii_start();
        let is_broken = behind[..behind.len() - rest.len()].iter().any(|b| matches!(b, b'\n' | b'\r'));
        (is_broken && rest.starts_with(b"'")) || rest.starts_with(b"--")
    };
    memchr::memchr(b'\\', code).is_some()
        || memchr::memmem::find(code, b"&'").is_some()
        || memchr::memmem::find(code, b"&\"").is_some()
        || memchr::memchr_iter(b'\'', code).any(goes_on)
}

/// Does this with each value of a Bind's parameters, or of a FunctionCall's arguments; `rest` is its body behind the
/// names, or behind the function. `None` where it ends before they do.
pub(super) fn each_parameter<'a>(rest: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Option<()> {
    let (formats, rest) = rest.split_first_chunk().map(|(count, rest)| (u16::from_be_bytes(*count), rest))?;
    let rest = rest.get(2 * usize::from(formats)..)?;
    let (count, mut rest) = rest.split_first_chunk().map(|(count, rest)| (u16::from_be_bytes(*count), rest))?;
    for _ in 0..count {
        let (length, values) = rest.split_first_chunk()?;
        // -1 is NULL.
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or_default();
        each(values.get(..length)?);
        rest = &values[length..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_hidden_in_code() {
        for code in ["E'\\x53'", "U&'x'", "U&\"x\"", "'SE'\n'T'", "'SE' -- so\n'T'"] {
            assert!(may_hide_words(code.as_bytes()), "{code}");
        }
        for code in ["'a' 'b'", "a & b", "'a'\n b", "it's\nit"] {
            assert!(!may_hide_words(code.as_bytes()), "{code}");
        }
    }
}
