//! Durations and sizes in the configuration: as PostgreSQL writes them, with their unit, `"250ms"`, `"16MB"`.
//!
//! A number without a unit is refused, zero too: what it means would have to be looked up.

use std::time::Duration;

use sluice_units::{Dimension, Quantity, unit_names};

use crate::report::Fault;

/// Reads a duration such as `"30s"`, in whole milliseconds.
pub(crate) fn duration(text: &str) -> Result<Duration, Fault> {
    read(text, Dimension::Time, "a duration", duration_remedy).map(Duration::from_millis)
}

/// Reads a size such as `"16MB"`, in bytes.
pub(crate) fn size(text: &str) -> Result<u64, Fault> {
    read(text, Dimension::Bytes, "a size", size_remedy)
}

/// A duration as it would be written, in the largest unit that needs no fraction.
pub(crate) fn show_duration(duration: Duration) -> String {
    show(duration.into(), "0s")
}

/// A size as it would be written, in the largest unit that needs no fraction.
pub(crate) fn show_size(bytes: u64) -> String {
    show(bytes.into(), "0B")
}

/// The way to write a duration.
pub(crate) fn duration_remedy() -> String {
    remedy(Dimension::Time, "30s")
}

/// The way to write a size.
pub(crate) fn size_remedy() -> String {
    remedy(Dimension::Bytes, "16MB")
}

/// Milliseconds, or bytes.
fn read(text: &str, dimension: Dimension, what: &str, remedy: fn() -> String) -> Result<u64, Fault> {
    let quantity = Quantity::with_unit(text, dimension).filter(|_| !text.starts_with(['-', '+']));
    let amount = quantity.ok_or_else(|| Fault::new(format!("{text:?} is not {what}"), remedy()))?.amount;
    if amount.fract() != 0.0 {
        let smallest = if dimension == Dimension::Time { "milliseconds" } else { "bytes" };
        let remedy = format!("write a number that comes to whole {smallest}");
        return Err(Fault::new(format!("{text:?} is too fine"), remedy));
    }
    // Beyond that, a number is not the one that was written.
    let is_exact = amount <= 2_f64.powi(53);
    is_exact
        .then_some(amount as u64)
        .ok_or_else(|| Fault::new(format!("{text:?} is too large"), "write a smaller number".to_owned()))
}

fn show(quantity: Quantity, zero: &str) -> String {
    if quantity.amount == 0.0 { zero.to_owned() } else { quantity.to_string() }
}

fn remedy(dimension: Dimension, example: &str) -> String {
    let names = unit_names(dimension).join(", ");
    format!("write a number and a unit in quotes, such as \"{example}\"; the units are PostgreSQL's: {names}")
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
            ("1000us", 1, "1ms"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "90s"),
            ("1.5min", 90_000, "90s"),
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
        let cases = [("0B", 0, "0B"), ("100B", 100, "100B"), ("2048kB", 2 << 20, "2MB"), ("1GB", 1 << 30, "1GB")];
        for (text, bytes, shown) in cases {
            let read = size(text).expect(text);
            assert_eq!((read, show_size(read).as_str()), (bytes, shown), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "30", "s", "-1s", "+1s", "1us", "1 minute", "1S", "1m", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        for text in ["16", "16M", "16MiB", "16mb", "16s", "0.5B", "99999999999TB"] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }
}
