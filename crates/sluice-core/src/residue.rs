//! What a client leaves behind in a server's session, as far as it can be told from outside, and how it is removed.
//!
//! See docs/decisions/0005.

/// What a client has left behind in the session, beyond the settings that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residue {
    /// Nothing that could be seen.
    None,
    /// Settings.
    Settings,
    /// Anything: listening, cursors, statements prepared in SQL, temporary tables.
    Anything,
}

impl Residue {
    /// What a statement with that command tag may leave behind.
    pub fn of_command(tag: &[u8]) -> Self {
        let word = tag.split(|&b| b == b' ').next().unwrap_or_default();
        match word {
            b"SET" | b"RESET" => Self::Settings,
            b"LISTEN" | b"PREPARE" | b"DECLARE" | b"LOAD" | b"DO" => Self::Anything,
            // The tag does not tell a temporary table from any other.
            b"CREATE" if tag.starts_with(b"CREATE TABLE") || tag.starts_with(b"CREATE VIEW") => Self::Anything,
            b"CREATE" if tag.starts_with(b"CREATE SEQUENCE") => Self::Anything,
            _ => Self::None,
        }
    }

    /// What a statement's text may leave behind without a tag that tells: see [`TELLTALES`].
    pub fn of_text(text: &[u8]) -> Self {
        let anchors = text.iter().enumerate().filter(|(_, b)| matches!(b, b'_' | b'm' | b'M'));
        anchors.fold(Self::None, |found, (at, _)| found.max(Self::at_anchor(text, at)))
    }

    fn at_anchor(text: &[u8], at: usize) -> Self {
        let (before, after) = text.split_at(at);
        let telltale = TELLTALES.iter().find(|t| ends_with(before, t.before) && starts_with(after, t.after));
        match telltale {
            Some(telltale) if !telltale.is_word || makes_temporary(before, after) => telltale.leaves,
            _ => Self::None,
        }
    }

    /// The SQL that removes it. `DISCARD ALL` would take the shared statements along, so settings go without it.
    pub fn cleanup(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Settings => Some("SET SESSION AUTHORIZATION DEFAULT;RESET ROLE;RESET ALL"),
            Self::Anything => Some("DISCARD ALL"),
        }
    }
}

/// A piece of a statement's text that tells of state the command tag does not tell of, cut at a rare character.
struct Telltale {
    before: &'static [u8],
    after: &'static [u8],
    /// Whether it must be the word in `CREATE TEMP`, `INTO TEMPORARY` and the like.
    is_word: bool,
    leaves: Residue,
}

const TELLTALES: [Telltale; 3] = [
    Telltale { before: b"te", after: b"mp", is_word: true, leaves: Residue::Anything },
    Telltale { before: b"set", after: b"_config", is_word: false, leaves: Residue::Settings },
    Telltale { before: b"advisory", after: b"_lock", is_word: false, leaves: Residue::Anything },
];

/// Whether the "temp" around the cut is the keyword: behind CREATE, INTO, LOCAL or GLOBAL, and a word of its own.
fn makes_temporary(before: &[u8], after: &[u8]) -> bool {
    let rest = after.get(2..).unwrap_or_default();
    let rest = if starts_with(rest, b"orary") { &rest[5..] } else { rest };
    let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
    let head = before[..before.len() - 2].trim_ascii_end();
    let is_apart = head.len() < before.len() - 2;
    let words: [&[u8]; 4] = [b"create", b"into", b"local", b"global"];
    ends && is_apart && words.iter().any(|word| ends_with(head, word))
}

fn ends_with(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
}

fn starts_with(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_tell_what_tags_do_not() {
        let cases = [
            ("create temp table x as select 1", Residue::Anything),
            ("CREATE LOCAL TEMPORARY\tTABLE x (i int)", Residue::Anything),
            ("select 1 into temp x", Residue::Anything),
            ("select pg_catalog.Set_Config('work_mem', '1MB', false)", Residue::Settings),
            ("select pg_try_advisory_lock(1), set_config('a', 'b', true)", Residue::Anything),
            ("select pg_advisory_xact_lock(1)", Residue::None),
            ("select temp, temperature from template where m_temp > 1", Residue::None),
            ("create template x", Residue::None),
            ("temp", Residue::None),
            ("", Residue::None),
        ];
        for (text, leaves) in cases {
            assert_eq!(Residue::of_text(text.as_bytes()), leaves, "{text}");
        }
    }

    #[test]
    fn tags_tell_the_rest() {
        assert_eq!(Residue::of_command(b"SET"), Residue::Settings);
        assert_eq!(Residue::of_command(b"CREATE TABLE AS"), Residue::Anything);
        assert_eq!(Residue::of_command(b"CREATE INDEX"), Residue::None);
        assert_eq!(Residue::of_command(b"INSERT 0 1"), Residue::None);
    }
}
