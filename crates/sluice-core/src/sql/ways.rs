//! The ways in which a text may be read, by settings that are not known: all of them, and what they have in common.

use super::{
    encoding::Encoding,
    lexer::Lexer,
    unicode::{Spelled, spell_out},
};

/// Reads a text in each way that settings may give it, and joins what is found. A way in which PostgreSQL would refuse
/// the whole text counts for nothing, unless it would in all of them. `read` goes to the end.
pub(super) fn read_each_way<T>(text: &[u8], read: impl Fn(&mut Lexer<'_>) -> T, join: impl Fn(T, T) -> T) -> T {
    let (mut found, mut is_refused) = read_one_way(Lexer::new(text), &read);
    if !text.contains(&b'\\') {
        return found;
    }
    let has_second_byte = text.windows(2).any(|pair| pair[0] >= 0x80 && pair[1] == b'\\');
    let encodings: &[Encoding] =
        if has_second_byte { &[Encoding::Safe, Encoding::Double, Encoding::Sjis] } else { &[Encoding::Safe] };
    for encoding in encodings {
        for escapes in [false, true] {
            if *encoding == Encoding::Safe && !escapes {
                continue;
            }
            let (other, is_other_refused) = read_one_way(Lexer::by(text, escapes, *encoding), &read);
            if is_refused && !is_other_refused {
                found = other;
            } else if !is_other_refused {
                found = join(found, other);
            }
            is_refused &= is_other_refused;
        }
    }
    found
}

/// Reads code that stands in a text, in the way in which a lexer reads that.
pub(super) fn read_within<T>(lexer: &Lexer<'_>, code: &[u8], read: impl Fn(&mut Lexer<'_>) -> T) -> T {
    read_one_way(lexer.of(code), &read).0
}

/// Reads a text in one way. Returns what is found, and whether PostgreSQL would refuse the text.
fn read_one_way<T>(lexer: Lexer<'_>, read: impl Fn(&mut Lexer<'_>) -> T) -> (T, bool) {
    let spelled = spell_out(lexer.clone());
    let mut lexer = match &spelled {
        Spelled::AsItIs => lexer,
        Spelled::Out(text) => lexer.of(text),
        // A literal without an end is refused as well.
        Spelled::Refused => lexer.of(b"'"),
    };
    let found = read(&mut lexer);
    (found, lexer.is_refused())
}

#[cfg(test)]
mod tests {
    use super::{super::lexer::tests::show_all, *};

    /// A text as it is read in each way.
    fn ways(text: &[u8]) -> Vec<String> {
        let read = |lexer: &mut Lexer<'_>| vec![show_all(lexer)];
        read_each_way(text, read, |mut ways, other| {
            ways.extend(other.into_iter().filter(|way| !ways.contains(way)).collect::<Vec<_>>());
            ways
        })
    }

    #[test]
    fn what_a_setting_decides_is_read_in_each_way() {
        for (text, expected) in [
            (r"'C:\temp'; set a", &[r"'C:\temp' ; set a"][..]),
            (r"a like '\' escape '\'; b 'c'", &[r"a like '\' escape '\' ; b 'c'"]),
            (r"'it\'s'; set a", &[r"'it\'s' ; set a"]),
            (r"replace(a, '\', '/')", &[r"replace ( a , '\' , '/' )"]),
            (r"'a\', f(1), 'b\'", &[r"'a\' , f ( ? ) , 'b\'"]),
            (r"'a\', f(1), '", &[r"'a\', f(1), '"]),
            (r"'a\', f(1), '', 'x'", &[r"'a\' , f ( ? ) , '' , 'x'"]),
            (r"'a\', f(1), ''', 'x'", &[r"'a\', f(1), ''' , 'x'"]),
            (r"'a\' || 'b\' -- '", &[r"'a\' ? ? 'b\'"]),
            (r"'a\', x --', f", &[r"'a\' , x", r"'a\', x --' , f"]),
            // Where one ends a line and the next goes on, both are of a kind.
            ("E'a'\n'b\\', c', d", &["'a' 'b\\', c' , d"]),
            (r"b'\', 'x'", &[r"'\' , 'x'"]),
            (r"a \ b", &["a !"]),
        ] {
            assert_eq!(ways(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in
            [(&b"E'\x95\x5c', f(1) --'"[..], 2), (b"E'\x95\x5c\x5c' x", 1), (b"'\xc3\xa9\x5cd' x", 1)]
        {
            assert_eq!(ways(text).len(), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn unicode_escapes_are_spelled_out() {
        for (text, expected) in [
            (r"select U&'n\006fw' uescape '!', a", &[r"select 'n\006fw' , a"][..]),
            (r"select U&'n\006fw', f(1)", &["select 'now' , f ( ? )"]),
            (r"select U&'it''s', E'\'', f(1)", &[r"select 'it''s' , '\'' , f ( ? )"]),
            (r#"U&"d\0061t" 'a\', f(1), 'b'"#, &[r#""dat" 'a\' , f ( ? ) , 'b'"#]),
            (r"U&'\00', f(1)", &["!"]),
            // PostgreSQL takes it where backslashes do not escape, and so it does in no other way.
            (r"'a\', f(U&'x'), '\'", &[r"'a\' , f ( 'x' ) , '\'"]),
        ] {
            assert_eq!(ways(text.as_bytes()), expected, "{text}");
        }
        assert!(ways(b"U&'\x95\x5c' x").iter().all(|way| way == "!"));
    }
}
