//! What runs have counted.

use std::time::Duration;

use sluice_core::engine::BACKLOG_HIGH_BYTES;

/// The figures of a run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) events: u64,
    pub(crate) answers: u64,
    pub(crate) served: u64,
    pub(crate) asked: u64,
    pub(crate) led: u64,
    pub(crate) lost: u64,
    /// The number of times that a client was told what the sequence gave it, and that it was told that there is nothing.
    pub(crate) sequences_told: u64,
    pub(crate) sequences_lost: u64,
    pub(crate) waits: u64,
    pub(crate) sockets_refused: u64,
    pub(crate) longest_stall: Duration,
    pub(crate) highest_backlog: usize,
}

impl Figures {
    /// Checks that many runs together have met the extremes.
    pub(crate) fn check_extremes(&self) {
        assert!(self.sequences_told > self.sequences_lost, "sequences do not follow clients: {self:?}");
        assert!(self.sequences_lost > 0, "no client has lost what a sequence gave it: {self:?}");
        assert!(self.asked > 0 && self.led > 0, "nobody had to wait for a standby, or was led to one: {self:?}");
        assert!(self.sockets_refused > 0, "no connect failed before it began: {self:?}");
        assert!(self.longest_stall > Duration::from_secs(2), "no client was slow enough: {self:?}");
        assert!(self.highest_backlog > BACKLOG_HIGH_BYTES, "no backlog was large enough: {self:?}");
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.answers += other.answers;
        self.served += other.served;
        (self.asked, self.led) = (self.asked + other.asked, self.led + other.led);
        self.lost += other.lost;
        self.sequences_told += other.sequences_told;
        self.sequences_lost += other.sequences_lost;
        self.waits += other.waits;
        self.sockets_refused += other.sockets_refused;
        self.longest_stall = self.longest_stall.max(other.longest_stall);
        self.highest_backlog = self.highest_backlog.max(other.highest_backlog);
    }
}
