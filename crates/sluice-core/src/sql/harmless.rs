//! PostgreSQL's own functions (15 to 18) that leave nothing behind in a session and run no SQL of others.
//!
//! Their names stand in `harmless.txt`, one a line and in order: those in `pg_proc` of the schema `pg_catalog`, less
//! those that SQL has no use for, those that take a text as SQL, and those that the rules in `effects.rs` know by
//! themselves.

const LIST: &str = include_str!("harmless.txt");

/// The names, in order.
static HARMLESS: [&str; count_lines(LIST)] = split_lines(LIST);

/// Whether all functions of that name are harmless, by its lower-case letters.
pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.binary_search(&name).is_ok()
}

const fn count_lines(text: &str) -> usize {
    let (bytes, mut at, mut lines) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        lines += (bytes[at] == b'\n') as usize;
        at += 1;
    }
    lines
}

/// The lines of a text, of which each ends with a newline.
const fn split_lines<const LINES: usize>(mut text: &'static str) -> [&'static str; LINES] {
    let (mut lines, mut line) = ([""; LINES], 0);
    while line < LINES {
        let mut end = 0;
        while text.as_bytes()[end] != b'\n' {
            end += 1;
        }
        let (first, rest) = text.split_at(end);
        lines[line] = first;
        text = rest.split_at(1).1;
        line += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_order_and_once() {
        assert!(HARMLESS.iter().eq(LIST.lines().collect::<Vec<_>>().iter()), "each line is a name");
        let wrong = HARMLESS.windows(2).find(|pair| pair[0] >= pair[1]);
        assert_eq!(wrong, None, "the list is searched as one in order");
    }

    #[test]
    fn names_are_as_texts_are_searched_for_them() {
        let is_name =
            |name: &&str| !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        assert_eq!(HARMLESS.iter().find(|name| !is_name(name)), None);
        assert!(is_harmless("abs") && is_harmless("xpath_exists"), "the first ones and the last ones are found");
        assert!(!is_harmless("set_config") && !is_harmless("") && !is_harmless("my_function"));
    }
}
