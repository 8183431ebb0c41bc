//! Passwords as PostgreSQL prepares them before it derives a key (SASLprep, RFC 4013; `pg_saslprep`): what looks the same
//! is the same.
//!
//! PostgreSQL looks for what is prohibited ahead of the normalization, not behind it, and uses a password that it must
//! not prepare as it is. So does this, since both ends of a log-in have to come to the same key.

use std::borrow::Cow;

use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

/// The password that a key is derived from.
pub(crate) fn prepared(password: &str) -> Cow<'_, str> {
    if password.is_ascii() {
        return password.into();
    }
    let mapped: String = password
        .chars()
        .map(|char| if tables::non_ascii_space_character(char) { ' ' } else { char })
        .filter(|char| !tables::commonly_mapped_to_nothing(*char))
        .collect();
    if mapped.is_empty() || mapped.contains(is_prohibited) || is_bidirectionally_wrong(&mapped) {
        return password.into();
    }
    mapped.nfkc().collect()
}

/// The prohibited output of SASLprep, and what Unicode 3.2 had not assigned (RFC 4013, 2.3 and 2.5).
fn is_prohibited(char: char) -> bool {
    tables::non_ascii_space_character(char)
        || tables::ascii_control_character(char)
        || tables::non_ascii_control_character(char)
        || tables::private_use(char)
        || tables::non_character_code_point(char)
        || tables::inappropriate_for_plain_text(char)
        || tables::inappropriate_for_canonical_representation(char)
        || tables::change_display_properties_or_deprecated(char)
        || tables::tagging_character(char)
        || tables::unassigned_code_point(char)
}

/// Whether a text that has a character of scripts from right to left has one of the others too, or does not begin and
/// end with one (RFC 3454, 6).
fn is_bidirectionally_wrong(text: &str) -> bool {
    let (first, last) = (text.chars().next(), text.chars().next_back());
    text.contains(tables::bidi_r_or_al)
        && (text.contains(tables::bidi_l)
            || [first, last].into_iter().flatten().any(|char| !tables::bidi_r_or_al(char)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepares_as_postgresql_does() {
        for (password, expected) in [
            ("\t", "\t"),
            ("I\u{ad}X", "IX"),
            ("a\u{a0}b", "a b"),
            ("\u{2168}", "IX"),
            // Nothing would be left.
            ("\u{ad}", "\u{ad}"),
            // Prohibited once it is normalized only.
            ("\u{340}a", "\u{340}a"),
            ("\u{33ff}", "\u{33ff}"),
            ("\u{627}1", "\u{627}1"),
            ("\u{2168}\u{7f}", "\u{2168}\u{7f}"),
        ] {
            assert_eq!(prepared(password), expected, "{password:?}");
        }
    }
}
