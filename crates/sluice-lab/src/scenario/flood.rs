//! Floods: what strangers do to a pool while its clients are served, as a variant of a scenario says it.

use serde::Deserialize;

/// Seconds for which a connection of a flood may be there: longer than any stays.
const STAY_MAX_S: u32 = 8;
/// More than one program could make.
const PER_SECOND_MAX: u32 = 10_000;

/// A flood, at a steady pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// Its kind.
    pub kind: FloodKind,
    /// Connections a second.
    pub per_second: u32,
}

/// The kinds of floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloodKind {
    /// Clients that say who they are and not a word more.
    LogIns,
    /// CancelRequests with keys that are nobody's.
    Cancels,
    /// Clients that begin a TLS handshake, and leave when the server has done its part of it.
    Handshakes,
    /// Clients beyond the pool's limit, who try to log in once a second each, and have to be refused.
    Overload,
}

impl Flood {
    /// Its connections at one time, at most.
    pub fn connections(self) -> u32 {
        match self.kind {
            FloodKind::Overload => self.per_second,
            FloodKind::LogIns | FloodKind::Cancels | FloodKind::Handshakes => STAY_MAX_S * self.per_second,
        }
    }

    /// Clients that the pool has room for besides those who are served: all that come, unless there are to be too many.
    pub fn room(self) -> u32 {
        if self.kind == FloodKind::Overload { 0 } else { self.connections() }
    }

    /// The fault of what is written, if there is one.
    pub(super) fn check(self) -> Result<(), String> {
        if (1..=PER_SECOND_MAX).contains(&self.per_second) {
            return Ok(());
        }
        Err(format!("flood: per_second: a number from 1 to {PER_SECOND_MAX}"))
    }
}
