//! Durations and sizes as people write them: a whole number and a unit, `"250ms"`, `"16MiB"`.
//!
//! A number without a unit is refused, zero too: what it means would have to be looked up.

use std::time::Duration;

use super::report::Fault;

/// The units of time, in milliseconds, from small to large.
const TIMES: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The units of size, in bytes, from small to large.
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads a duration such as `"30s"`.
pub(super) fn duration(text: &str) -> Result<Duration, Fault> {
    read(text, &TIMES, "a duration", "30s").map(Duration::from_millis)
}

/// Reads a size such as `"16MiB"`, in bytes.
pub(super) fn size(text: &str) -> Result<u64, Fault> {
    read(text, &SIZES, "a size", "16MiB")
}

/// A duration as it would be written, in the largest unit that needs no fraction.
pub(super) fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), "0s", &TIMES)
}

/// A size as it would be written, in the largest unit that needs no fraction.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, "0B", &SIZES)
}

/// The way to write a duration.
pub(super) fn duration_remedy() -> String {
    remedy(&TIMES, "30s")
}

/// The way to write a size.
pub(super) fn size_remedy() -> String {
    remedy(&SIZES, "16MiB")
}

fn read(text: &str, units: &[(&str, u64)], what: &str, example: &str) -> Result<u64, Fault> {
    let fault = || Fault::new(format!("{text:?} is not {what}"), remedy(units, example));
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if unit.starts_with('.') {
        return Err(Fault::new(
            format!("{text:?} is not {what}: a fraction"),
            "write a whole number of a smaller unit".to_owned(),
        ));
    }
    if number.is_empty() {
        return Err(fault());
    }
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start_matches(' ')).ok_or_else(fault)?.1;
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| Fault::new(format!("{text:?} is too large"), "write a smaller number"))
}

fn show(value: u64, zero: &str, units: &[(&str, u64)]) -> String {
    if value == 0 {
        return zero.to_owned();
    }
    let largest = units.iter().rev().find(|(_, factor)| value.is_multiple_of(*factor));
    largest.map_or_else(|| value.to_string(), |(unit, factor)| format!("{}{unit}", value / factor))
}

fn remedy(units: &[(&str, u64)], example: &str) -> String {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    format!("write a whole number and a unit in quotes, such as \"{example}\"; the units are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_show() {
        let cases = [
            ("0s", 0, "0s"),
            ("250ms", 250, "250ms"),
            ("1000ms", 1000, "1s"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "90s"),
            ("10 min", 600_000, "10min"),
            ("24h", 86_400_000, "1d"),
        ];
        for (text, ms, shown) in cases {
            let read = duration(text).expect(text);
            assert_eq!((read, show_duration(read).as_str()), (Duration::from_millis(ms), shown), "{text}");
        }
    }

    #[test]
    fn sizes_read_and_show() {
        let cases = [("0B", 0, "0B"), ("100B", 100, "100B"), ("2048KiB", 2 << 20, "2MiB"), ("1GiB", 1 << 30, "1GiB")];
        for (text, bytes, shown) in cases {
            let read = size(text).expect(text);
            assert_eq!((read, show_size(read).as_str()), (bytes, shown), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "30", "s", "-1s", "+1s", "1.5s", "1 minute", "1S", "1m", "1s ", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        for text in ["16", "16M", "16MB", "16mib", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }
}
