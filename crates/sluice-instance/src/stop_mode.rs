//! The ways to ask a server to stop.

use std::fmt;

/// The ways to ask a server to stop; later ones hurt more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// Transactions are rolled back, a checkpoint is written (SIGINT).
    Fast,
    /// At once; the next start recovers from the log (SIGQUIT).
    Immediate,
    /// All processes are killed (SIGKILL); the next start recovers from the log.
    Kill,
}

impl StopMode {
    /// The mode of that number, as `mode as u8` gives it.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Fast,
            1 => Self::Immediate,
            _ => Self::Kill,
        }
    }
}

impl fmt::Display for StopMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Immediate => "immediate",
            Self::Kill => "kill",
        })
    }
}
