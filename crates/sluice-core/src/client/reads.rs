//! A client's reads at standbys: what has to be there first, and the way back to its own pool.

use std::sync::Arc;

use crate::{hub::Pool, logins::Generation, lsn::Lsn, time::Time};

use super::{Link, Session};

/// A client's reads: the commits that it has to find, and its own pool while it is in another one.
#[derive(Debug, Default)]
pub struct Reads {
    /// Its own pool, while it is in another one for a transaction.
    away: Option<Box<Away>>,
    /// Whether the transaction that it begins may be led to a standby.
    pub may_leave: bool,
    /// The end of its last commit in the log, if a server has told of one.
    pub written: Lsn,
    /// Whether it may have committed what no server has told of.
    pub has_unknown: bool,
    /// The place that its standby has to come to before its transaction begins there.
    pub catch_up: Option<CatchUp>,
}

#[derive(Debug)]
struct Away {
    home: Arc<Pool>,
    /// The generation of the servers that it may have there.
    generation: Generation,
}

/// A standby has to come that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// So far.
    pub upto: Lsn,
    /// The primary is taken then.
    pub until: Time,
}

impl Reads {
    /// Whether it is in another pool than its own, for a transaction.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Whether a server that has replayed so much has to replay more first, or has not said yet how much that is.
    pub fn want_more_than(&self, replayed: Option<Lsn>) -> Option<CatchUp> {
        self.catch_up.filter(|catch_up| replayed.is_none_or(|replayed| catch_up.upto > replayed))
    }
}

/// Its own pool need not keep servers of before for it any more.
impl Drop for Session {
    fn drop(&mut self) {
        let (pool, generation) = match &self.reads.away {
            Some(away) => (&away.home, away.generation),
            None => (&self.pool, self.generation),
        };
        pool.state().standings.leave(generation);
    }
}

impl Session {
    /// Notes the end of all that it was told to be committed.
    pub fn has_written(&mut self, end: Lsn) {
        (self.reads.written, self.reads.has_unknown) = (end, false);
    }

    /// Goes to another pool for a transaction.
    pub fn go_away(&mut self, pool: Arc<Pool>) {
        debug_assert!(!self.reads.is_away(), "it is in one other pool at most");
        let away = Away { home: self.pool.clone(), generation: self.generation };
        self.be_in(pool);
        self.reads.away = Some(Box::new(away));
    }

    /// Goes back to its own pool, if it is in another one and has no server there.
    pub fn come_home(&mut self) {
        debug_assert!(!self.reads.is_away() || self.link == Link::None, "it leaves what it has there first");
        self.reads.catch_up = None;
        if let Some(away) = self.reads.away.take() {
            self.be_in(away.home);
            // It began by what log-ins came to then.
            self.generation = away.generation;
        }
    }

    /// Its standby has replayed what it has to find.
    pub fn has_caught_up(&mut self) {
        if self.reads.catch_up.take().is_some()
            && let Some(away) = self.reads.away.as_ref().filter(|_| self.pool.upstream.is_standby())
        {
            self.pool.replay_catalogs_of(&away.home);
        }
    }
}
