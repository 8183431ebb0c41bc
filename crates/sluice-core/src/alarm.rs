//! An alarm: the time at which something is looked at because of a deadline that may move.
//!
//! A deadline that moves on leaves the entry among the timers where it is until that is due; then it is entered anew.
//! So there is one entry mostly, however often the deadline moves, and one that has been replaced by a sooner one is
//! known by its time.

use crate::time::Time;

/// The time of the entry that counts.
#[derive(Debug, Default)]
pub struct Alarm(Option<Time>);

impl Alarm {
    /// Sets it for a deadline; returns whether that needs an entry, since there is none as soon.
    #[must_use]
    pub fn set(&mut self, deadline: Time) -> bool {
        let is_sooner = !self.rings_by(deadline);
        if is_sooner {
            self.0 = Some(deadline);
        }
        is_sooner
    }

    /// An entry of that time is due; `false` if it does not count any more.
    #[must_use]
    pub fn ring(&mut self, at: Time) -> bool {
        let counts = self.0 == Some(at);
        if counts {
            self.0 = None;
        }
        counts
    }

    /// Whether it is set for that time or a sooner one.
    pub fn rings_by(&self, deadline: Time) -> bool {
        self.0.is_some_and(|at| at <= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_entry_counts() {
        let mut alarm = Alarm::default();
        assert!(alarm.set(Time(9)) && !alarm.set(Time(10)), "when it rings, the later deadline is seen");
        assert!(alarm.set(Time(5)) && alarm.rings_by(Time(6)));
        assert!(alarm.ring(Time(5)) && !alarm.ring(Time(9)) && !alarm.rings_by(Time(9)));
    }
}
