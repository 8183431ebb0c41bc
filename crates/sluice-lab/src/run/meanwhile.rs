//! Strangers who come while a turn is measured: a flood, begun and ended at the right moments.

use postgres::Client;

use crate::{
    connect::Access,
    error::Error,
    flood::{Flooded, Running},
    pgbench::Moment,
    scenario::{Flood, FloodKind},
    target::SPARE_CLIENTS,
};

/// A flood of a turn.
pub(super) struct Meanwhile {
    flood: Flood,
    port: u16,
    /// For clients of our own.
    access: Access,
    /// Once it has begun, or why it could not.
    running: Option<Result<Running, Error>>,
    quiet: Vec<Client>,
}

impl Meanwhile {
    /// Begins it, to that port; but an overload when those who are to be served are there.
    pub(super) fn begin(flood: Flood, port: u16, access: Access) -> Result<Self, Error> {
        let running = match flood.kind {
            FloodKind::Overload => None,
            _ => Some(Ok(Running::start(flood, port)?)),
        };
        Ok(Self { flood, port, access, running, quiet: Vec::new() })
    }

    /// Sees what happens.
    pub(super) fn see(&mut self, moment: &Moment) {
        match moment {
            Moment::Report(_) if self.running.is_none() => {
                // All are connected. The places that are left are taken by clients that are quiet, so that nobody else
                // finds one; a console of the pool may have had one of them.
                self.quiet.extend((0..SPARE_CLIENTS).map_while(|_| self.access.connect().ok()));
                self.running = Some(Running::start(self.flood, self.port));
            }
            Moment::Ending => {
                // Those who are served are about to leave, and others would find their places.
                if let Some(Ok(running)) = &mut self.running {
                    running.end();
                }
            }
            _ => {}
        }
    }

    /// Ends it.
    pub(super) fn finish(self) -> Result<Flooded, Error> {
        let none = || Err(Error::Server("pgbench has reported nothing before its end: take longer turns".to_owned()));
        Ok(self.running.unwrap_or_else(none)?.stop())
    }
}
