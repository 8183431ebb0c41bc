//! Cursors without a name of their own, to which PostgreSQL gives one (`CreateNewPortal` in `portalmem.c`).

/// The beginning of such a name, in front of its number.
const UNNAMED: &[u8] = b"<unnamed portal ";

/// The largest number of an unnamed cursor that a text names.
pub(crate) fn unnamed_portal(text: &[u8]) -> Option<u32> {
    let number_at = |at: usize| {
        let digits = &text[at + UNNAMED.len()..];
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&digits[..count]).ok()?.parse().ok()
    };
    memchr::memmem::find_iter(text, UNNAMED).filter_map(number_at).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_portals_have_numbers() {
        for (text, expected) in [
            ("FETCH ALL IN \"<unnamed portal 3>\"", Some(3)),
            ("fetch 1 from \"<unnamed portal 12>\"; close \"<unnamed portal 2>\"", Some(12)),
            ("FETCH ALL IN \"<unnamed portal 99999999999>\"", None),
            ("FETCH ALL IN \"<unnamed portal ", None),
            ("FETCH ALL IN c", None),
        ] {
            assert_eq!(unnamed_portal(text.as_bytes()), expected, "{text}");
        }
    }
}
