//! Times as PostgreSQL writes them in ISO form: `2026-11-26 07:00:00.5+01:00`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that has passed since then; `None` if it is no such time, nothing if it is still to come.
pub(super) fn since(moment: &str, now: SystemTime) -> Option<Duration> {
    let micros = micros(moment)?;
    let now = i128::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()?;
    u64::try_from((now - micros).max(0)).ok().map(Duration::from_micros)
}

/// The microseconds since 1970.
fn micros(moment: &str) -> Option<i128> {
    let (date, time) = moment.split_once([' ', 'T'])?;
    let zone = time.find(['+', '-', 'Z'])?;
    let (time, zone) = time.split_at(zone);
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(clock, ':')?;
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let fraction: i128 = digits.parse().ok()?;
    let offset = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign, text) => {
            let mut parts = text.split(':').map(|part| part.parse::<i64>().ok());
            let (hours, minutes) = (parts.next()??, parts.next().unwrap_or(Some(0))?);
            (hours * 60 + minutes) * if sign == "-" { -60 } else { 60 }
        }
    };
    let seconds = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(i128::from(seconds) * 1_000_000 + fraction)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let numbers: Vec<i64> = text.split(between).map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

/// The days since 1970 by the Gregorian calendar; years begin in March, so that leap days come last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (month, century) = ((month + 9) % 12, year / 100);
    Some(365 * year + year / 4 - century + century / 4 + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_postgresql_writes_them() {
        for (text, seconds) in [
            ("1970-01-01 00:00:00+00", 0.0),
            ("2000-02-29 12:00:00.25+00:00", 951_825_600.25),
            ("2026-11-26 07:46:03.123456+01:00", 1_795_675_563.123_456),
            ("2026-11-26T06:46:03Z", 1_795_675_563.0),
            ("2026-11-26 01:16:03-05:30", 1_795_675_563.0),
        ] {
            assert_eq!(micros(text), Some((seconds * 1e6_f64).round() as i128), "{text}");
        }
        for text in ["", "2026-11-26", "2026-11-26 07:46:03", "2026-13-26 07:46:03Z", "now +00", "2026-11-26 07:46+00"]
        {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_to_come_is_no_time_ago() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(since("1970-01-01 00:01:30Z", now), Some(Duration::from_secs(10)));
        assert_eq!(since("1970-01-01 00:02:00Z", now), Some(Duration::ZERO));
    }
}
