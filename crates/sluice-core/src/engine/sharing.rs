//! Servers under limits that several pools share: who opens one when a limit is reached, and who gives one up for it.
//!
//! What is idle goes first. Where nothing is, the pool that has most gives up the next server that falls free to one that
//! has fewer, so that pools whose clients wait come to have as many each as the limits and their sizes let them.

use std::sync::Arc;

use crate::{budget::Budget, hub::Pool, ids::ServerRef, io::Io, mail::Mail, time::Time};

use super::{Engine, keeping::request_recall};

impl Engine {
    /// Opens the connections that pools need now and may have: those whose clients wait come before what is only kept
    /// ready, and the fewer servers they have the sooner.
    pub(super) fn connect_for_all(&mut self, now: Time, mut pools: Vec<Arc<Pool>>, io: &mut impl Io) {
        pools.sort_by_cached_key(|pool| {
            let counts = pool.state().counts();
            (counts.waiting == 0, counts.open)
        });
        for pool in &pools {
            self.connect_for(now, pool, io);
        }
    }

    /// A pool has given up a server for others.
    pub(super) fn connect_for_waiters(&mut self, now: Time, io: &mut impl Io) {
        let mut pools = self.hub.pools_in_use();
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
            if state.counts().waiting == 0 || !state.share.looks_for_room(now, limit.shared()) {
                return false;
            }
        }
        let others = self.hub.pools();
        let mut has_idle = true;
        for budget in &full {
            // Its own that are idle while somebody waits are of no use to those.
            if !sharing(&others, budget).any(|other| other.state().counts().idle > 0) {
                has_idle = false;
                ask_richest(now, &others, budget, pool, io);
            }
        }
        let is_made = has_idle && close_idle(&others, &full, io);
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

/// Asks the pool that has most servers under a limit to give one up, if it has more than this one, whose count has the one
/// that it is about to open.
fn ask_richest(now: Time, pools: &[Arc<Pool>], budget: &Arc<Budget>, pool: &Pool, io: &mut impl Io) {
    let open = |pool: &Pool| pool.state().counts().open;
    let richest = sharing(pools, budget).max_by_key(|other| open(other));
    if let Some(richest) = richest.filter(|other| open(other) > open(pool)) {
        richest.state().share.ask(now);
        request_recall(now, richest, io);
    }
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
