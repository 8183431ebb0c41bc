//! Whole numbers on the command line, within limits that a refusal names.

use std::{
    fmt::Display,
    ops::{Bound, RangeBounds},
    str::FromStr,
};

/// Reads a number in `range`, for clap; an error says which numbers are.
pub(crate) fn number<T, R>(range: R) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display,
    R: RangeBounds<T> + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a whole number{} is needed", limits(&range)))
    }
}

fn limits<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(first), Bound::Included(last)) => format!(" from {first} to {last}"),
        (Bound::Included(first), _) => format!(" from {first} on"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_number_is_told_the_limits() {
        let size = number::<u32, _>(1..=1000);
        assert_eq!((size("1"), size("1000")), (Ok(1), Ok(1000)));
        for text in ["abc", "0", "1001", "-1", "4294967296", ""] {
            assert_eq!(size(text), Err("a whole number from 1 to 1000 is needed".to_owned()), "{text}");
        }
        assert_eq!(number::<u64, _>(1..)("x"), Err("a whole number from 1 on is needed".to_owned()));
    }
}
