//! Numbers with PostgreSQL's units (documentation, 19.1.1): read as `postgresql.conf` and `pg_settings` write them,
//! rounded to what a person would write, printed as `SHOW` prints them. Every size and every time that Sluice reads is
//! read here.
//!
//! It knows no setting: -1, which means something else for each, stays -1 in every unit.

use std::{fmt, time::Duration};

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * KB;
const GB: f64 = 1024.0 * MB;
const TB: f64 = 1024.0 * GB;

/// The thing that a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Time,
    /// Things, or a ratio.
    Plain,
}

/// A unit of `pg_settings.unit`: `8kB`, `ms`, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// The thing that it counts.
    pub dimension: Dimension,
    /// Its size in bytes, milliseconds or things.
    pub size: f64,
}

/// A number of bytes, of milliseconds, or of things.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The thing that it counts.
    pub dimension: Dimension,
    /// The number of bytes, milliseconds or things; a negative number is the setting's own and has no unit.
    pub amount: f64,
}

/// PostgreSQL's names of units, each with its size, the largest first (section 19.1.1).
const BYTES: [(&str, f64); 5] = [("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB), ("B", 1.0)];
const TIMES: [(&str, f64); 6] =
    [("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0), ("ms", 1.0), ("us", 0.001)];

impl Unit {
    /// No unit.
    pub const PLAIN: Self = Self { dimension: Dimension::Plain, size: 1.0 };

    /// Reads a unit, with the factor that `pg_settings` may put before it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let factor: f64 = if digits == 0 { 1.0 } else { text[..digits].parse().ok()? };
        let name = &text[digits..];
        let of = |dimension, table: &[(&str, f64)]| {
            let size = table.iter().find(|(known, _)| *known == name)?.1;
            Some(Self { dimension, size: factor * size })
        };
        match name {
            "" if digits == 0 => Some(Self::PLAIN),
            _ => of(Dimension::Bytes, &BYTES).or_else(|| of(Dimension::Time, &TIMES)),
        }
    }
}

impl Quantity {
    /// So many of a unit.
    pub fn new(amount: f64, unit: Unit) -> Self {
        let size = if amount < 0.0 { 1.0 } else { unit.size };
        Self { dimension: unit.dimension, amount: amount * size }
    }

    /// Reads a number, with a unit of its own (`128MB`) or in the setting's.
    pub fn parse(text: &str, unit: Unit) -> Option<Self> {
        let text = text.trim();
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
        let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
        let amount: f64 = text[..end].parse().ok()?;
        let own = text[end..].trim();
        let unit = if own.is_empty() { unit } else { Unit::parse(own)? };
        amount.is_finite().then(|| Self::new(amount, unit))
    }

    /// Reads a number that has a unit of that dimension with it.
    pub fn with_unit(text: &str, dimension: Dimension) -> Option<Self> {
        let has_unit = text.trim_end().ends_with(|c: char| c.is_ascii_alphabetic());
        Self::parse(text, Unit::PLAIN).filter(|quantity| has_unit && quantity.dimension == dimension)
    }

    /// The number in a unit.
    pub fn amount_in(self, unit: Unit) -> f64 {
        if self.amount < 0.0 { self.amount } else { self.amount / unit.size }
    }

    /// Rounded to what a person would write, in whole units. Bytes go down to one of four steps an octave (4, 5, 6,
    /// 7, 8, 10 MB …), so that a sum of them stays within what it was made from; times and counts go to the nearest
    /// number of two digits.
    #[must_use]
    pub fn sensible(self, unit: Unit) -> Self {
        if self.amount <= 0.0 {
            return self;
        }
        let amount = match self.dimension {
            Dimension::Bytes => {
                let step = (2_f64.powf(self.amount.log2().floor()) / 4.0).max(unit.size);
                (self.amount / step).floor().max(1.0) * step
            }
            Dimension::Time | Dimension::Plain => {
                let count = self.amount / unit.size;
                let step = 10_f64.powf(count.log10().floor() - 1.0).max(1.0);
                (count / step).round().max(1.0) * step * unit.size
            }
        };
        Self { amount, ..self }
    }
}

/// As `SHOW` prints it: in the largest unit of which it is a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table: &[(&str, f64)] = match self.dimension {
            Dimension::Bytes => &BYTES,
            Dimension::Time => &TIMES,
            Dimension::Plain => &[],
        };
        let whole = |(_, size): &&(&str, f64)| self.amount > 0.0 && (self.amount / size).fract() == 0.0;
        match table.iter().find(whole) {
            Some((name, size)) => write!(f, "{}{name}", self.amount / size),
            None if self.amount > 0.0 && self.dimension == Dimension::Time => write!(f, "{}ms", self.amount),
            None => write!(f, "{}", self.amount),
        }
    }
}

/// The names of the units of a dimension, the smallest first.
pub fn unit_names(dimension: Dimension) -> Vec<&'static str> {
    let table: &[(&str, f64)] = match dimension {
        Dimension::Bytes => &BYTES,
        Dimension::Time => &TIMES,
        Dimension::Plain => &[],
    };
    table.iter().rev().map(|(name, _)| *name).collect()
}

/// A number with the unit that it was meant to have, which has other letters as to their case: `64mb` is `64MB`.
pub fn respelled(text: &str) -> Option<String> {
    let text = text.trim();
    let (number, own) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let mut all = BYTES.iter().chain(&TIMES).map(|(name, _)| *name);
    let unit = all.find(|name| name.eq_ignore_ascii_case(own)).filter(|name| *name != own)?;
    Quantity::parse(number, Unit::PLAIN).map(|_| format!("{number}{unit}"))
}

/// A size of so many bytes.
impl From<u64> for Quantity {
    fn from(bytes: u64) -> Self {
        Self { dimension: Dimension::Bytes, amount: bytes as f64 }
    }
}

impl From<Duration> for Quantity {
    fn from(time: Duration) -> Self {
        Self { dimension: Dimension::Time, amount: time.as_secs_f64() * 1000.0 }
    }
}

/// Bytes for a sentence: `1.4 GB`.
pub fn readable_bytes(bytes: f64) -> String {
    match BYTES.iter().find(|(_, size)| bytes >= *size) {
        Some((name, size)) if bytes / size < 10.0 && (bytes / size).fract() != 0.0 => {
            format!("{:.1} {name}", bytes / size)
        }
        Some((name, size)) => format!("{:.0} {name}", bytes / size),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_in_another_case() {
        for (text, meant) in [
            ("64mb", Some("64MB")),
            ("1.5 gB", Some("1.5 GB")),
            ("8KB", Some("8kB")),
            ("5Min", Some("5min")),
            ("64MB", None),
            ("64", None),
            ("64xb", None),
            ("mb", None),
        ] {
            assert_eq!(respelled(text).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn read_and_printed_as_postgresql_does() {
        for (text, unit, printed) in [
            ("32768", "8kB", "256MB"),
            ("-1", "8kB", "-1"),
            ("0", "ms", "0"),
            ("60", "s", "1min"),
            ("90", "s", "90s"),
            ("7200", "s", "2h"),
            ("2", "ms", "2ms"),
            ("0.5", "ms", "500us"),
            ("1GB", "MB", "1GB"),
            ("1536MB", "", "1536MB"),
            ("0.9", "", "0.9"),
            ("1024", "B", "1kB"),
            ("5", "min", "5min"),
        ] {
            let unit = Unit::parse(unit).unwrap();
            assert_eq!(Quantity::parse(text, unit).unwrap().to_string(), printed, "{text} {unit:?}");
        }
        for text in ["on", "", "1 GB too many", "1parsec", "1e400"] {
            assert_eq!(Quantity::parse(text, Unit::PLAIN), None, "{text}");
        }
    }

    #[test]
    fn a_unit_is_asked_for() {
        for (text, dimension, printed) in [
            ("30s", Dimension::Time, Some("30s")),
            ("1.5 min", Dimension::Time, Some("90s")),
            ("16MB", Dimension::Bytes, Some("16MB")),
            ("30", Dimension::Time, None),
            ("16MB", Dimension::Time, None),
            ("16MiB", Dimension::Bytes, None),
            ("16mb", Dimension::Bytes, None),
            ("s", Dimension::Time, None),
        ] {
            let read = Quantity::with_unit(text, dimension).map(|quantity| quantity.to_string());
            assert_eq!(read.as_deref(), printed, "{text}");
        }
        assert_eq!(Quantity::from(Duration::from_millis(1500)).to_string(), "1500ms");
        assert_eq!(Quantity::from(3_u64 << 20).to_string(), "3MB");
        assert_eq!(unit_names(Dimension::Time), ["us", "ms", "s", "min", "h", "d"]);
    }

    #[test]
    fn rounded_to_what_a_person_would_write() {
        for (amount, unit, printed) in [
            (5.9 * GB, "8kB", "5GB"),
            (6.2 * GB, "8kB", "6GB"),
            (256.0 * MB, "8kB", "256MB"),
            (4.09 * MB, "kB", "4MB"),
            (2.6 * MB, "kB", "2560kB"),
            (90.0 * MB, "MB", "80MB"),
            (0.4 * MB, "MB", "1MB"),
            (16.0 * MB, "16MB", "16MB"),
        ] {
            let unit = Unit::parse(unit).unwrap();
            let quantity = Quantity { dimension: Dimension::Bytes, amount };
            assert_eq!(quantity.sensible(unit).to_string(), printed, "{amount}");
        }
        let plain = |amount: f64| Quantity::new(amount, Unit::PLAIN).sensible(Unit::PLAIN).to_string();
        assert_eq!([plain(3.4), plain(48.0), plain(123.0), plain(-1.0)], ["3", "48", "120", "-1"]);
    }

    #[test]
    fn bytes_in_sentences() {
        for (bytes, text) in
            [(12.0, "12 B"), (1536.0, "1.5 kB"), (23.0 * MB, "23 MB"), (1.4 * GB, "1.4 GB"), (GB, "1 GB")]
        {
            assert_eq!(readable_bytes(bytes), text);
        }
    }
}
