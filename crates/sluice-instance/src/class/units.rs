//! A class's limits as checked values: text becomes one of these once, where it comes in, or is refused with the
//! reason.
//!
//! Nothing here knows how a limit is enforced.

use std::{fmt, num::NonZeroU32, str::FromStr};

use sluice_units::{Dimension, Quantity};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// No machine has more: 8 EB.
const MAX_BYTES: f64 = (1_u64 << 63) as f64;

/// Connections beside the pool's: superusers, backups, monitoring, the pool's look-ups, replication.
pub(crate) const RESERVE: u32 = 10;

/// Main memory of an instance: its processes, its shared buffers and its part of the page cache together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory {
    bytes: u64,
}

/// Processor time of an instance, in processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus {
    millis: u32,
}

/// Operations a second on the disk of the data directory: so many reads, and so many writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iops {
    per_second: NonZeroU32,
}

/// PostgreSQL's `max_connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connections {
    number: u32,
}

/// Reasons why a text is no limit of a class. The message is meant to follow the text and the name of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Not a size.
    #[error("a whole number of megabytes with its unit is needed, for example 512MB, 1GB or 1.5GB")]
    Memory,
    /// PostgreSQL does not start, or does not live, with that.
    #[error("PostgreSQL needs at least {}", Memory::MIN)]
    MemoryTooSmall,
    /// Not a number of processors.
    #[error("a number of processors with at most three decimals is needed, for example 1 or 0.5")]
    Cpus,
    /// The kernel deals out no less.
    #[error("at least {} of a processor is needed", Cpus::MIN)]
    CpusTooFew,
    /// Not a number of operations.
    #[error("a whole number of operations a second from 1 on is needed, for example 400")]
    Iops,
    /// Not a number of connections, or none would be left for clients.
    #[error(
        "a whole number from {} to {} is needed: {RESERVE} are kept for superusers, backups and monitoring",
        Connections::MIN,
        Connections::MAX
    )]
    Connections,
}

impl Memory {
    /// The memory that the smallest instance needs: 32 MB of shared buffers, and some backends.
    pub const MIN: Self = Self { bytes: 128 * MIB };

    /// The size in bytes, a multiple of 1 MiB.
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

/// As PostgreSQL writes sizes: 1GB is 1024MB.
impl FromStr for Memory {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let size =
            Quantity::with_unit(text, Dimension::Bytes).filter(|size| !text.starts_with('-') && size.amount >= 0.0);
        let bytes = size.ok_or(LimitError::Memory)?.amount;
        if bytes % MIB as f64 != 0.0 || bytes > MAX_BYTES {
            return Err(LimitError::Memory);
        }
        let memory = Self { bytes: bytes as u64 };
        if memory < Self::MIN { Err(LimitError::MemoryTooSmall) } else { Ok(memory) }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            bytes if bytes.is_multiple_of(GIB) => write!(f, "{}GB", bytes / GIB),
            bytes => write!(f, "{}MB", bytes / MIB),
        }
    }
}

impl Cpus {
    /// 1 ms of each 100 ms, the shortest time that the kernel deals out.
    pub const MIN: Self = Self { millis: 10 };

    /// Thousandths of a processor.
    pub fn millis(self) -> u32 {
        self.millis
    }
}

impl FromStr for Cpus {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
            return Err(LimitError::Cpus);
        }
        let whole: u32 = whole.parse().map_err(|_| LimitError::Cpus)?;
        let decimals: u32 = format!("{decimals:0<3}").parse().map_err(|_| LimitError::Cpus)?;
        let millis = whole.checked_mul(1000).and_then(|millis| millis.checked_add(decimals));
        let cpus = Self { millis: millis.ok_or(LimitError::Cpus)? };
        if cpus < Self::MIN { Err(LimitError::CpusTooFew) } else { Ok(cpus) }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.millis) / 1000.0)
    }
}

impl Iops {
    /// Reads a second, and writes a second.
    pub fn per_second(self) -> u32 {
        self.per_second.get()
    }
}

impl FromStr for Iops {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        text.parse().map(|per_second| Self { per_second }).map_err(|_| LimitError::Iops)
    }
}

impl fmt::Display for Iops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.per_second.fmt(f)
    }
}

impl Connections {
    /// One for the pool, beside the reserve.
    const MIN: u32 = RESERVE + 1;
    /// PostgreSQL's own (`MAX_BACKENDS`, src/include/postmaster/postmaster.h).
    const MAX: u32 = 0x3_FFFF;

    /// Their number.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of them that a pool may open.
    pub fn for_pool(self) -> u32 {
        self.number - RESERVE
    }
}

impl FromStr for Connections {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let number = text.parse().map_err(|_| LimitError::Connections)?;
        let possible = (Self::MIN..=Self::MAX).contains(&number);
        possible.then_some(Self { number }).ok_or(LimitError::Connections)
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1GB", Ok((GIB, "1GB"))),
            ("512MB", Ok((512 * MIB, "512MB"))),
            ("1536 MB", Ok((1536 * MIB, "1536MB"))),
            ("1.5GB", Ok((1536 * MIB, "1536MB"))),
            ("1536 mb", Err(LimitError::Memory)),
            ("2TB", Ok((2048 * GIB, "2048GB"))),
            ("128MB", Ok((128 * MIB, "128MB"))),
            ("127MB", Err(LimitError::MemoryTooSmall)),
            ("0GB", Err(LimitError::MemoryTooSmall)),
            ("1", Err(LimitError::Memory)),
            ("1000.5MB", Err(LimitError::Memory)),
            ("-1GB", Err(LimitError::Memory)),
            ("GB", Err(LimitError::Memory)),
            ("1GiB", Err(LimitError::Memory)),
            ("99999999999999TB", Err(LimitError::Memory)),
            ("1é", Err(LimitError::Memory)),
            ("", Err(LimitError::Memory)),
        ] {
            let parsed = text.parse::<Memory>().map(|memory| (memory.bytes(), memory.to_string()));
            assert_eq!(parsed, expected.map(|(bytes, shown)| (bytes, shown.to_owned())), "{text}");
        }
    }

    #[test]
    fn processors() {
        for (text, expected) in [
            ("1", Ok((1000, "1"))),
            ("0.5", Ok((500, "0.5"))),
            ("1.25", Ok((1250, "1.25"))),
            ("0.01", Ok((10, "0.01"))),
            ("0.009", Err(LimitError::CpusTooFew)),
            ("0", Err(LimitError::CpusTooFew)),
            ("0.0001", Err(LimitError::Cpus)),
            ("-1", Err(LimitError::Cpus)),
            ("+1", Err(LimitError::Cpus)),
            ("1.", Err(LimitError::Cpus)),
            (".5", Err(LimitError::Cpus)),
            ("one", Err(LimitError::Cpus)),
            ("9999999", Err(LimitError::Cpus)),
        ] {
            let parsed = text.parse::<Cpus>().map(|cpus| (cpus.millis(), cpus.to_string()));
            assert_eq!(parsed, expected.map(|(millis, shown)| (millis, shown.to_owned())), "{text}");
        }
    }

    #[test]
    fn numbers() {
        for (text, expected) in
            [("400", Ok(400)), ("1", Ok(1)), ("0", Err(LimitError::Iops)), ("-1", Err(LimitError::Iops))]
        {
            assert_eq!(text.parse::<Iops>().map(Iops::per_second), expected, "{text}");
        }
        let refused = Err(LimitError::Connections);
        for (text, expected) in [("100", Ok(90)), ("11", Ok(1)), ("10", refused), ("262144", refused), ("x", refused)] {
            assert_eq!(text.parse::<Connections>().map(Connections::for_pool), expected, "{text}");
        }
    }

    #[test]
    fn refusals_say_what_is_possible() {
        for (error, expected) in [
            (LimitError::MemoryTooSmall, "PostgreSQL needs at least 128MB"),
            (LimitError::CpusTooFew, "at least 0.01 of a processor is needed"),
            (LimitError::Connections, "from 11 to 262143"),
        ] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
