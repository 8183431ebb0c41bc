//! The commands within a text that reset settings, where others follow: those go by what the session began with.

use super::{
    super::{
        lexer::{Lexer, Token},
        ways::read_each_way,
    },
    Head, Reset, statements,
};

/// A command within a text that resets settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetWithin {
    /// The settings.
    pub resets: Reset,
    /// The place behind it and its semicolon, in bytes.
    pub end: usize,
    /// Whether it has a semicolon.
    pub is_ended: bool,
    /// The number of commands up to it, and with it, whose tag is SET or RESET.
    pub set_tags: usize,
}

/// Finds the commands that reset settings in a text of several commands; none where nothing follows the first of
/// them, and where the text can't be told for certain. What is undone by others counts as well.
///
/// DISCARD ALL is not among them: with others in one text it always fails.
pub fn resets_within(text: &[u8]) -> Vec<ResetWithin> {
    let read = |lexer: &mut Lexer<'_>| {
        // Spelled out, it has other places.
        let is_as_it_is = std::ptr::eq(lexer.rest(), text);
        read(lexer, text.len()).filter(|_| is_as_it_is).unwrap_or_default()
    };
    read_each_way(text, read, |found, other| if found == other { found } else { Vec::new() })
}

fn read(lexer: &mut Lexer<'_>, bytes: usize) -> Option<Vec<ResetWithin>> {
    let mut found = Vec::<ResetWithin>::new();
    let (mut set_tags, mut is_followed) = (0, false);
    statements(lexer, |head, rest| {
        is_followed |= !head.is_empty() && !found.is_empty();
        set_tags += usize::from(has_set_tag(head));
        let mut resets = Reset::default();
        if !Head(head).is(0, "discard") {
            resets.statement(head);
        }
        if resets.takes {
            let end = bytes - rest.map_or(0, <[u8]>::len);
            found.push(ResetWithin { resets, end, is_ended: rest.is_some(), set_tags });
        }
    })?;
    Some(if is_followed { found } else { Vec::new() })
}

/// Whether a statement's command tag is SET or RESET.
fn has_set_tag(head: &[Token<'_>]) -> bool {
    let words = Head(head);
    let is_of_constraints = words.is(1, "constraints") && head.get(2) != Some(&Token::Dot);
    words.is(0, "reset") || (words.is(0, "set") && !is_of_constraints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Vec<(usize, bool, usize)> {
        resets_within(text).iter().map(|found| (found.end, found.is_ended, found.set_tags)).collect()
    }

    #[test]
    fn those_that_others_follow_are_found_by_their_places() {
        for (text, expected) in [
            ("reset all", &[][..]),
            ("reset all; -- that is all", &[]),
            ("select 1; reset all;", &[]),
            ("set a = 1; select 1", &[]),
            ("discard all; select 1", &[]),
            ("select 'reset all; '; select 1", &[]),
            ("reset all; select 1", &[(10, true, 1)]),
            ("set a = 1; set constraints b deferred; set constraints.c = 1; reset a; select 1", &[(70, true, 3)]),
            (
                "create rule r as on insert to t do also (delete from u; reset all); reset a /* ; */ ; b",
                &[(85, true, 1)],
            ),
            // The last one as well.
            ("set a to default;; select 1;reset b", &[(17, true, 1), (35, false, 2)]),
            // In each way.
            (r"reset a; select 'it\', x; reset b --', c", &[]),
            (r"reset a; select 'C:\temp'; reset b", &[(8, true, 1), (34, false, 2)]),
            (r"reset a; select U&'\0061'", &[]),
        ] {
            assert_eq!(found(text.as_bytes()), expected, "{text}");
        }
        assert!(resets_within(b"reset a; select 1")[0].resets.covers("a"));
        assert!(found(b"reset all; select \x95\x5cf(1)").is_empty());
    }
}
