//! Observers that are told how far a run is.

use std::time::Duration;

use crate::result::Outcome;

/// Hears of a run. All calls come from one thread.
pub trait Progress {
    /// Something before the first turn.
    fn step(&self, what: &str);
    /// Something that the user should know before the first turn.
    fn warn(&self, what: &str);
    /// A turn begins: its number from 0, how many there are, what it is, and about how long all that are left take.
    fn turn(&self, index: usize, count: usize, label: &str, left: Duration);
    /// Reports an event of the turn.
    fn report(&self, what: &str);
    /// It has ended.
    fn done(&self, label: &str, outcome: &Outcome);
}
