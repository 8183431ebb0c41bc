//! Lines of an `auth_file` that PgBouncer reads otherwise than Sluice.
//!
//! What PgBouncer does with them was seen from 1.18 and 1.24 themselves. It passes over text behind a secret, and over
//! lines that begin with `;`; those on which Sluice fails are no concern here.

use std::path::Path;

use super::hba::Difference;
use crate::users::{self, SecretForm};

const COMMENT: &str = "PgBouncer stops reading at this line, for it begins with #, and knows none of the users below \
                       it";
const CAPITALS: &str =
    "PgBouncer takes an md5 hash with capital letters for a password, and Sluice for the hash of one";

/// The lines by which other users get in than with PgBouncer.
pub(super) fn differences(text: &str) -> Vec<Difference> {
    let starts = |sign| move |(at, line): (usize, &str)| line.trim_start().starts_with(sign).then_some(at + 1);
    let stop = text.lines().enumerate().find_map(starts('#')).unwrap_or(usize::MAX);
    let last = text.lines().enumerate().filter_map(starts('"')).last().unwrap_or_default();
    let users = users::read_lines(text, Path::new("")).users;
    let capitals = users.values().filter(|(secret, line)| *line < stop && has_capitals(&secret.0));
    let mut found: Vec<_> = capitals.map(|(_, line)| (*line, CAPITALS)).collect();
    found.sort_unstable();
    found.extend((stop < last).then_some((stop, COMMENT)));
    found.into_iter().map(|(line, what)| Difference { line, what, rejects: what == CAPITALS }).collect()
}

/// Whether a secret is an md5 hash with capital letters.
fn has_capitals(secret: &str) -> bool {
    users::form(secret) == Ok(SecretForm::Md5) && secret.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_which_others_get_in() {
        let hash = "0123456789abcdef0123456789abcdef";
        let capitals = hash.to_uppercase();
        for (text, expected) in [
            ("\"a\" \"x\" # why\n; comment\n\n\"b\" \"x\" \"# third\"\n".to_owned(), vec![]),
            ("\"a\" \"x\"\n# the end\n".to_owned(), vec![]),
            ("\"a\" \"x\"\n # old\n\n# more\n\"b\" \"x\"\n\"c\" \"x\"".to_owned(), vec![(2, COMMENT)]),
            (format!("\"a\" \"md5{hash}\"\n\"md5{capitals}\" \"x\"\n\"b\" \"md5{capitals}0\""), vec![]),
            (format!("\"a\"\"\" \"md5{capitals}\"\n\"b\" \"MD5{hash}\""), vec![(1, CAPITALS)]),
        ] {
            let found: Vec<_> = differences(&text).into_iter().map(|it| (it.line, it.what)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
