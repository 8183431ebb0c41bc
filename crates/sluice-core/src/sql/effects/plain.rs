//! Plain statements: a query, or a change of rows, of nothing but names, numbers and operators. Without a parenthesis it
//! calls nothing, and without a quote there is nothing whose meaning hangs on settings. Most of what comes as a Query is
//! one, each with other numbers, and is read in one look at each of its bytes.
//!
//! What is not plain for certain is read by [`Reader`](super::Reader), with the same result where it is plain after all.

use super::Effects;

/// The part that a byte plays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has no place in a plain statement.
    None,
    /// White space, a point, a comma, or a sign of an operator that begins no comment.
    Between,
    /// `-` or `/`: two of them, or one and another sign, may begin a comment.
    MayComment,
    Semicolon,
    Digit,
    Letter,
}

static ROLES: [Role; 256] = {
    let mut roles = [Role::None; 256];
    let mut byte = 0;
    while byte < 256 {
        roles[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Role::Letter,
            b'0'..=b'9' => Role::Digit,
            b'-' | b'/' => Role::MayComment,
            b';' => Role::Semicolon,
            b' ' | b'\t' | b'\n' | b'\r' | b'.' | b',' | b'+' | b'*' | b'<' | b'>' | b'=' | b'!' | b'%' => {
                Role::Between
            }
            _ => Role::None,
        };
        byte += 1;
    }
    roles
};

/// The effects of a plain statement; `None` if a text is none.
pub(super) fn effects(text: &[u8]) -> Option<Effects> {
    let verb = text.get(..7)?;
    let found = match verb {
        _ if verb.eq_ignore_ascii_case(b"select ") => Effects::empty(),
        // By a default, or a trigger.
        _ if verb.eq_ignore_ascii_case(b"update ") || verb.eq_ignore_ascii_case(b"delete ") => Effects::USES_SEQUENCE,
        _ => return None,
    };
    is_plain(&text[verb.len()..]).then_some(found)
}

/// Whether the rest of a statement is nothing but names, numbers and operators.
fn is_plain(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match ROLES[usize::from(*byte)] {
            Role::Between | Role::Digit => at += 1,
            Role::Letter => {
                let rest = &text[at..];
                let is_part = |byte: &u8| matches!(ROLES[usize::from(*byte)], Role::Letter | Role::Digit);
                let word = &rest[..rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len())];
                if says_more(word) {
                    return false;
                }
                at += word.len();
            }
            Role::MayComment if matches!(text.get(at + 1), Some(b'-' | b'*')) => return false,
            Role::MayComment => at += 1,
            Role::Semicolon => return text[at + 1..].trim_ascii().is_empty(),
            Role::None => return false,
        }
    }
    true
}

/// Whether a word by itself may tell of an effect, in a statement without parentheses and literals.
fn says_more(word: &[u8]) -> bool {
    match word[0] | 0x20 {
        b'h' => word.eq_ignore_ascii_case(b"hold"),
        b'i' => word.eq_ignore_ascii_case(b"into"),
        b'n' => word.eq_ignore_ascii_case(b"null"),
        // `pg_settings`, `pg_temp` and the like.
        b'p' => word.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"pg_")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::effects_as_read, *};

    #[test]
    fn statements_of_names_numbers_and_operators_are_plain() {
        for (text, is_plain) in [
            ("SELECT abalance FROM pgbench_accounts WHERE aid = 4711;", true),
            ("UPDATE pgbench_branches SET bbalance = bbalance + -1234 WHERE bid = 1;", true),
            ("delete from s.t where a >= 1.5e3 and b <> c % 2 ;\n", true),
            ("select a/b, a - b from t into_it", true),
            ("select 1into t", false),
            ("select 1; select 2", false),
            ("select a -- b", false),
            ("select f(1)", false),
        ] {
            assert_eq!(effects(text.as_bytes()).is_some(), is_plain, "{text}");
        }
    }

    /// Texts of all that a statement may be made of, a few words each.
    #[test]
    fn whatever_is_plain_has_the_effects_of_its_reading() {
        let verbs = ["select ", "UPDATE ", "delete ", "insert ", "select\t", "SELECT 1", "with "];
        let parts = [
            " ",
            " ",
            " ",
            "\n",
            ";",
            "; ",
            ";;",
            "select ",
            "update",
            "into",
            "INTO ",
            "null",
            "hold",
            "pg_settings",
            "pg_temp",
            "pg_temp_3",
            "pgbench_accounts",
            "set_config",
            "a",
            "a.b",
            "(",
            ")",
            "f(",
            "'now'",
            "'",
            "\"a\"",
            "$1",
            "$$",
            "-",
            "--",
            "/",
            "/*",
            "*/",
            "*",
            "-/",
            "=",
            "1",
            "2.5",
            "1e5",
            "0x1f",
            "7null",
            "e'\\''",
            "u&'\\0061'",
            "\\",
            "é",
            "\u{b}",
            "commit",
            "prepared",
            "for update",
            "on conflict",
            "set",
            "where",
            "is",
            "not",
            "{",
            "::",
            "@",
            "a$b",
            "_",
            "n'x'",
        ];
        // A generator of its own (Numerical Recipes): the same texts each time.
        let mut state = 1_u32;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % limit
        };
        let mut plain = 0;
        for _ in 0..200_000 {
            let mut text = verbs[below(verbs.len())].to_owned();
            (0..below(6)).for_each(|_| text.push_str(parts[below(parts.len())]));
            if let Some(found) = effects(text.as_bytes()) {
                assert_eq!(found, effects_as_read(text.as_bytes()), "{text}");
                plain += 1;
            }
        }
        assert!(plain > 10_000, "{plain}");
    }
}
