//! Accepting, while the system has no means for it: files, or memory.

use std::{io, time::Duration};

use sluice_core::time::Time;

use super::Net;
use crate::{Driver, Host};

/// The pause in which nobody is accepted: whoever waits does so in the kernel's queue, where it costs nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of accepting.
#[derive(Debug, Default)]
pub(super) enum Accepting {
    /// It goes on.
    #[default]
    Open,
    /// It has just been stopped.
    Stopped,
    /// It begins again then.
    Until(Time),
}

impl Accepting {
    /// The time at which there is something to do.
    pub(super) fn at(&self) -> Option<Time> {
        match self {
            Self::Open => None,
            Self::Stopped => Some(Time(0)),
            Self::Until(at) => Some(*at),
        }
    }
}

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// The system could not give a connection. Said once a pause.
    pub(super) fn pause_accepting(&mut self, error: &io::Error) {
        if matches!(self.accepting, Accepting::Open) {
            self.accepting = Accepting::Stopped;
            self.driver.pause_accepting();
            self.host.accept_failed(error, Some(PAUSE));
        }
    }

    /// Ends a pause whose time has come.
    pub(super) fn accept_again(&mut self) {
        match self.accepting {
            // Only here the time is known: events come before the clock is put forward.
            Accepting::Stopped => self.accepting = Accepting::Until(self.now + PAUSE),
            Accepting::Until(at) if self.now >= at => {
                self.accepting = Accepting::Open;
                self.driver.resume_accepting();
            }
            Accepting::Open | Accepting::Until(_) => {}
        }
    }
}
