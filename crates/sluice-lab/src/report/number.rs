//! Numbers for people: three significant digits, commas between thousands, a dash for what is not known.

use crate::table::show;

/// A figure; none is a dash.
pub(crate) fn figure(value: Option<f64>) -> String {
    match value {
        Some(0.0) => "0".to_owned(),
        Some(value) if !value.is_finite() => "–".to_owned(),
        value => group(&show(value)),
    }
}

/// A figure of something, with its unit.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", figure(Some(value)))
}

/// A whole number.
pub(crate) fn count(value: impl Into<u64>) -> String {
    group(&value.into().to_string())
}

/// "1,000 clients".
pub(crate) fn clients(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{} clients", count(clients)) }
}

/// A time that is given in milliseconds; seconds where they are many.
pub(crate) fn milliseconds(ms: f64) -> String {
    if ms < 10_000.0 { with_unit(ms, "ms") } else { with_unit(ms / 1000.0, "s") }
}

/// A ratio as so many times, or as a fraction; none is a dash.
pub(crate) fn times(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio > 0.0 && ratio < 0.095 => format!("1/{}", trimmed(ratio.recip(), 0)),
        Some(ratio) if ratio.is_finite() && ratio < 10.0 => format!("{ratio:.2}×"),
        Some(ratio) if ratio.is_finite() => format!("{}×", figure(Some(ratio))),
        _ => "–".to_owned(),
    }
}

/// Seconds, whole from ten on.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{} s", trimmed(seconds, usize::from(seconds < 10.0)))
}

/// Bytes in the unit that suits.
pub(crate) fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes >= 1e9 => with_unit(bytes / 1e9, "GB"),
        _ if bytes >= 1e6 => with_unit(bytes / 1e6, "MB"),
        _ => with_unit(bytes / 1e3, "kB"),
    }
}

/// With at most so many digits after the point, and none that say nothing.
pub(crate) fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    group(if text == "-0" { "0" } else { text })
}

/// A moment, in UTC.
pub(crate) fn moment(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / 86_400);
    let minutes = unix_s % 86_400 / 60;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// The Gregorian date of a day counted from 1970-01-01, after Howard Hinnant's `civil_from_days`: years begin in March,
/// so that leap days come last, and eras are 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

/// Commas between the thousands of the part before the point.
fn group(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |point| number.split_at(point));
    let digits = whole.trim_start_matches('-');
    let mut grouped = whole[..whole.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let shown = [1_234_567.8, -30_123.4, 999.6, 12.345, 0.0714, 0.0].map(|value| figure(Some(value)));
        assert_eq!(shown, ["1,234,568", "-30,123", "1,000", "12.3", "0.071", "0"]);
        assert_eq!((figure(None), figure(Some(f64::NAN))), ("–".to_owned(), "–".to_owned()));
        let shown = [2.1315, 22.57, 1.0, 0.1, 0.0004, 0.0].map(|ratio| times(Some(ratio)));
        assert_eq!(shown, ["2.13×", "22.6×", "1.00×", "0.10×", "1/2,500", "0.00×"]);
        assert_eq!([milliseconds(8_117.0), milliseconds(42_318.0)], ["8,117 ms", "42.3 s"]);
        assert_eq!([seconds(86.4), seconds(1.26), seconds(3600.0)], ["86 s", "1.3 s", "3,600 s"]);
        assert_eq!([bytes(266_000_000), bytes(12_345)], ["266 MB", "12.3 kB"]);
        assert_eq!([trimmed(0.5, 3), trimmed(20.0, 2), trimmed(-0.001, 2)], ["0.5", "20", "0"]);
        assert_eq!(count(16_384_u32), "16,384");
    }

    #[test]
    fn moments() {
        for (unix_s, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_767_225_600, "2026-01-01 00:00 UTC"),
        ] {
            assert_eq!(moment(unix_s), expected);
        }
    }
}
