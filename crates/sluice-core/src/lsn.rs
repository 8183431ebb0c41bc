//! Places in the log of a PostgreSQL server (`pg_lsn`).

use std::fmt;

/// A place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The beginning, at which nothing has been written.
    pub const START: Self = Self(0);

    /// Reads it as PostgreSQL writes it; `None` if it is something else.
    pub fn read(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let part = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
        Some(Self(u64::from(part(high)?) << 32 | u64::from(part(low)?)))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_postgresql_writes_them() {
        for (text, place) in [("0/0", 0), ("0/16B3748", 0x16B_3748), ("A/1", 0xA_0000_0001)] {
            assert_eq!(Lsn::read(text), Some(Lsn(place)));
            assert_eq!(Lsn(place).to_string(), text);
        }
        for bad in ["", "0", "0/", "/0", "0/x", "0/1FFFFFFFF", "+1/0", "0/1/2"] {
            assert_eq!(Lsn::read(bad), None, "{bad}");
        }
    }
}
