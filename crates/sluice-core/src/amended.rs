//! A Query whose text resets settings before its end. What stands behind goes by what the client began with, which
//! the server does not know: so SETs are added to the text right there. The client hears nothing of them, and places in
//! its text are those of its own.

use crate::{
    profile::Profile,
    restoring::restoring,
    sql::{ResetWithin, resets_within},
};

/// The commands that were added to a Query's text, and how far they have been answered.
#[derive(Debug, Default)]
pub struct Amended {
    additions: Vec<Addition>,
    /// The number of the client's commands that were answered with the tag SET or RESET.
    set_tags: usize,
    /// The number of those among `additions` whose turn has come.
    begun: usize,
    /// The commands of the last of them that have not been answered.
    open: usize,
}

/// Commands at one place.
#[derive(Debug)]
struct Addition {
    /// The number of the client's commands with the tag SET or RESET before them.
    set_tags: usize,
    commands: usize,
    /// The place in the amended text where they begin, in characters.
    at: usize,
    /// Their length, in characters.
    length: usize,
}

impl Amended {
    /// Adds to a text what brings back what its client began with; `None` where there is nothing to add, where its
    /// characters can't be counted (by `count`), or where it would have more than `bytes_max`. Returns the text with it.
    pub fn amend(
        text: &[u8],
        start: &Profile,
        bytes_max: usize,
        count: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<(Vec<u8>, Self)> {
        if start.settings().is_empty() || text.contains(&0) {
            return None;
        }
        let (mut out, mut amended) = (Vec::with_capacity(text.len() + 64), Self::default());
        let (mut from, mut at) = (0, 0);
        for ResetWithin { resets, end, is_ended, set_tags } in resets_within(text) {
            let sql = restoring(start, &resets);
            if sql.is_empty() {
                continue;
            }
            // It may end with a comment.
            let separator = if is_ended { "" } else { "\n;" };
            let added = separator.to_owned() + &sql.concat();
            out.extend_from_slice(&text[from..end]);
            out.extend_from_slice(added.as_bytes());
            if out.len() + (text.len() - end) > bytes_max {
                return None;
            }
            at += count(&text[from..end])?;
            amended.additions.push(Addition { set_tags, commands: sql.len(), at, length: added.len() });
            at += added.len();
            from = end;
        }
        count(&text[from..])?;
        out.extend_from_slice(&text[from..]);
        (!amended.additions.is_empty()).then_some((out, amended))
    }

    /// Whether what comes now answers a command that was added.
    pub fn is_at_own(&self) -> bool {
        self.open > 0
    }

    /// A command has been answered with that tag. Returns whether it is one of the client's.
    pub fn complete(&mut self, tag: &[u8]) -> bool {
        if self.open > 0 {
            self.open -= 1;
            return false;
        }
        self.set_tags += usize::from(matches!(tag, b"SET" | b"RESET"));
        if let Some(next) = self.additions.get(self.begun).filter(|next| next.set_tags == self.set_tags) {
            self.open = next.commands;
            self.begun += 1;
        }
        true
    }

    /// A place in the client's text, in characters and from 1 on, by that in the amended one.
    pub fn place(&self, place: usize) -> usize {
        let before = |addition: &Addition| place.saturating_sub(addition.at + 1).min(addition.length);
        place - self.additions.iter().map(before).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Settings;

    fn amended(text: &str, can_count: bool) -> Option<(String, Amended)> {
        amended_within(text, can_count, usize::MAX)
    }

    fn amended_within(text: &str, can_count: bool, bytes_max: usize) -> Option<(String, Amended)> {
        let settings = [("app.x", "it's é"), ("timezone", "Asia/Tokyo")];
        let settings: Settings = settings.map(|(name, value)| (name.to_owned(), value.as_bytes().into())).into();
        let count = |part: &[u8]| {
            let part = std::str::from_utf8(part).ok()?;
            (can_count || part.is_ascii()).then(|| part.chars().count())
        };
        let (text, amended) = Amended::amend(text.as_bytes(), &Profile::new(settings), bytes_max, count)?;
        Some((String::from_utf8(text).expect("it is one"), amended))
    }

    #[test]
    fn what_a_client_began_with_stands_right_behind_what_takes_it_back() {
        let (text, mut amended) =
            amended("SET a = 1; RESET ALL; SELECT 'é', b; RESET timezone -- so", true).expect("it is followed");
        let x = "SET \"app\".\"x\" = E'it''s \\xc3\\xa9';";
        let zone = "SET \"timezone\" = 'Asia/Tokyo';";
        assert_eq!(text, format!("SET a = 1; RESET ALL;{x}{zone} SELECT 'é', b; RESET timezone -- so\n;{zone}"));
        let place = |part: &str| text.find(part).map(|at| text[..at].chars().count() + 1).expect("it is there");
        assert_eq!((amended.place(place("RESET ALL")), amended.place(place(", b")), amended.place(1)), (12, 33, 1));
        assert_eq!(amended.place(place("SET \"app\"")), 22);
        let answers = [
            ("SET", true),
            ("RESET", true),
            ("SET", false),
            ("SET", false),
            ("SELECT 1", true),
            ("RESET", true),
            ("SET", false),
        ];
        for (tag, is_clients) in answers {
            assert_eq!(amended.complete(tag.as_bytes()), is_clients, "{tag}");
        }
        assert!(!amended.is_at_own());
    }

    #[test]
    fn what_would_become_too_large_is_left_as_it_is() {
        let text = "RESET ALL;".repeat(20) + "SELECT 1";
        let amended = |bytes_max| amended_within(&text, true, bytes_max).map(|(text, _)| text.len());
        let length = amended(usize::MAX).expect("it is followed");
        assert_eq!((amended(length), amended(length - 1)), (Some(length), None));
    }

    #[test]
    fn a_text_stays_as_it_is_where_nothing_needs_to_be_added() {
        assert!(amended("RESET ALL", true).is_none());
        assert!(amended("RESET work_mem; SELECT 1", true).is_none());
        assert!(amended("RESET ALL; SELECT 'é'", false).is_none(), "nobody can count its characters");
        assert!(amended("RESET ALL; SELECT 'e'", false).is_some());
    }
}
