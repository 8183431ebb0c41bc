//! Servers under limits that several pools share: who opens one when a limit is reached, and who gives one up for it.
//!
//! What is idle goes first. Where nothing is, the pool that has most gives up the next server that falls free to one that
//! has fewer, so that pools whose clients wait come to have as many each as the limits and their sizes let them; pools
//! that are more than servers may be take turns.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use crate::{budget::Budget, hub::Pool, ids::ServerRef, io::Io, mail::Mail, pool::Counts, time::Time};

use super::{Engine, keeping::request_recall};

/// The wait by which a pool without a server comes before one that has the last: opening one takes a while.
const TURN: Duration = Duration::from_millis(100);

impl Engine {
    /// Opens the connections that pools need now and may have: those whose clients wait come before what is only kept
    /// ready, and the fewer servers they have, or else the longer they wait, the sooner.
    pub(super) fn connect_for_all(&mut self, now: Time, mut pools: Vec<Arc<Pool>>, io: &mut impl Io) {
        pools.sort_by_cached_key(|pool| {
            let state = pool.state();
            let Counts { waiting, open, .. } = state.counts();
            (waiting == 0, open, Reverse(state.longest_wait(now)))
        });
        for pool in &pools {
            self.connect_for(now, pool, io);
        }
    }

    /// A pool has given up a server for others.
    pub(super) fn connect_for_waiters(&mut self, now: Time, io: &mut impl Io) {
        let mut pools = self.hub.pools_in_use();
        // Several may have been asked for the one: those who need more ask again.
        pools.iter().for_each(|pool| pool.state().share.no_longer_ask());
        pools.retain(|pool| pool.state().counts().waiting > 0);
        self.connect_for_all(now, pools, io);
    }

    /// Makes room for a server of a pool whose clients wait, where limits that it shares with others are reached.
    pub(super) fn make_room(&mut self, now: Time, pool: &Arc<Pool>, io: &mut impl Io) -> bool {
        let full: Vec<_> = pool.budgets.full().cloned().collect();
        let Some(limit) = full.first() else { return false };
        {
            // Only those who wait are worth another pool's server; two pools short of their minimum would take turns.
            let mut state = pool.state();
            let Counts { waiting, open, connecting, .. } = state.counts();
            // Nor are those whose server does not answer worth more than one.
            let is_dark = connecting > 1 && open == connecting;
            if waiting == 0 || is_dark || !state.share.looks_for_room(now, limit.shared()) {
                return false;
            }
        }
        let others = self.hub.pools();
        let mut has_idle = true;
        for budget in &full {
            // Its own that are idle while somebody waits are of no use to those.
            if !sharing(&others, budget).any(|other| other.state().counts().idle > 0) {
                has_idle = false;
                ask_another(now, &others, budget, pool, io);
            }
        }
        let is_made = has_idle && !pool.budgets.are_shrinking() && close_idle(&others, &full, io);
        if is_made {
            // Over the limits by one until the other's worker has closed it; the wait for that would be longer.
            pool.budgets.take_over();
        }
        is_made
    }
}

/// The pools that share a limit.
fn sharing<'a>(pools: &'a [Arc<Pool>], budget: &Arc<Budget>) -> impl Iterator<Item = &'a Arc<Pool>> {
    pools.iter().filter(|pool| pool.budgets.include(budget))
}

/// Asks a pool to give up a server for this one: the one that has most, of those that have more. One that has been asked
/// and has not given way may have none that falls free, so that the next one is asked.
fn ask_another(now: Time, pools: &[Arc<Pool>], budget: &Arc<Budget>, pool: &Pool, io: &mut impl Io) {
    // That has the one which it is about to open.
    let (own, waited) = standing(now, pool);
    let may_be_asked = |other: &&Arc<Pool>| {
        let (open, other_waited) = standing(now, other);
        // Where there are more pools than servers, they take turns.
        let is_its_turn = || own == 1 && open == 1 && waited > other_waited + TURN;
        (open > own || is_its_turn()) && !other.state().share.is_asked_for(now)
    };
    if let Some(other) = sharing(pools, budget).filter(may_be_asked).max_by_key(|other| standing(now, other).0) {
        other.state().share.ask(now);
        request_recall(now, other, io);
    }
}

/// A pool's servers, and how long its clients have waited.
fn standing(now: Time, pool: &Pool) -> (u32, Duration) {
    let state = pool.state();
    (state.counts().open, state.longest_wait(now))
}

/// Closes idle servers, so that there is room under each of the limits; `false` if others have been faster.
fn close_idle(pools: &[Arc<Pool>], limits: &[Arc<Budget>], io: &mut impl Io) -> bool {
    let mut closed: Vec<(&Arc<Pool>, ServerRef)> = Vec::new();
    for budget in limits {
        // One server may do for several limits.
        if closed.iter().any(|(pool, _)| pool.budgets.include(budget)) {
            continue;
        }
        let found = sharing(pools, budget).find_map(|pool| Some((pool, pool.state().give_up_idle()?)));
        let Some((pool, server)) = found else { return false };
        io.mail(server.worker, Mail::CloseIdle(server));
        closed.push((pool, server));
    }
    true
}
