//! The log-ins that a pool's own clients go by, and so the servers of before that any of them may still want.

use std::collections::BTreeMap;

use crate::{ids::ServerRef, logins::Generation};

use super::PoolState;

/// The number of clients of each generation. Those that are there for a transaction only do not count: they go by the
/// latest one.
#[derive(Debug, Default)]
pub struct Standings(BTreeMap<Generation, u32>);

impl Standings {
    /// A client goes by that generation from now on.
    pub fn enter(&mut self, generation: Generation) {
        *self.0.entry(generation).or_default() += 1;
    }

    /// A client that went by it is gone, or goes by another one.
    pub fn leave(&mut self, generation: Generation) {
        let count = self.0.get_mut(&generation);
        debug_assert!(count.is_some(), "who leaves was there");
        if let Some(count) = count {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&generation);
            }
        }
    }

    /// The number of clients that a server of that generation would do for.
    fn up_to(&self, generation: Generation) -> usize {
        self.0.range(..=generation).map(|(_, count)| *count as usize).sum()
    }
}

impl PoolState {
    /// The places of idle servers of earlier generations than that which nobody can want: there are at least as many
    /// besides, of no later ones, as there are clients that would take them.
    pub(super) fn superseded(&self, current: Generation) -> Vec<usize> {
        let generation = |place: &usize| self.idle[*place].opened.generation;
        let mut places: Vec<usize> = (0..self.idle.len()).filter(|place| generation(place) < current).collect();
        places.sort_by_key(generation);
        let mut kept = 0;
        places.retain(|place| {
            let is_wanted = kept < self.standings.up_to(generation(place));
            kept += usize::from(is_wanted);
            !is_wanted
        });
        places
    }

    /// The idle servers that nobody can want any more, now that log-ins are of that generation; they are no longer part of
    /// the pool.
    pub fn give_up_superseded(&mut self, current: Generation) -> Vec<ServerRef> {
        let mut places = self.superseded(current);
        places.sort_unstable();
        self.open -= places.len() as u32;
        places.into_iter().rev().map(|place| self.idle.remove(place).server).collect()
    }
}
