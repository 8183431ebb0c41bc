//! A watch over the gates while the stress test runs: their limits are kept.
//!
//! Two accounts are taken. One is the gates' own: [`Watch::look`] compares what each says of itself. The other knows
//! nothing of gates: blocks hold a lock, and those that held it for a while at the same time have been inside together.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use postgres::Client;

/// Slots above a limit that superusers may take, at most.
pub(super) const RESERVED_MAX: i64 = 2;

/// Time after which a change of a limit has been read by all who were about to enter by the one before.
const SETTLED: Duration = Duration::from_millis(200);

/// Time for which transactions have to be seen together: one that has left its gate releases its locks soon after.
const TOGETHER: Duration = Duration::from_millis(250);

/// A gate of which no more than its limit had been inside since that limit is in force.
#[derive(Debug, Clone, Copy)]
struct Kept {
    limit: i64,
    since: Instant,
    /// The counter of sessions that were let in above the limit, when that began.
    over_limit: i64,
    is_settled: bool,
}

/// The observer.
pub(super) struct Watch {
    client: Client,
    kept: HashMap<String, Kept>,
    /// Blocks that held the lock, by process and transaction, when that was seen, oldest first.
    inside: Vec<(Instant, BTreeSet<String>)>,
    /// The number of times that limits were compared.
    pub(super) compared: u64,
    /// The number of times that they were compared with blocks seen from outside.
    pub(super) compared_locks: u64,
    /// The largest number of sessions that waited at once.
    pub(super) waiting_max: i64,
}

impl Watch {
    /// An observer by that connection, which no gate holds up.
    pub(super) fn new(client: Client) -> Self {
        let (kept, inside) = (HashMap::new(), Vec::new());
        Self { client, kept, inside, compared: 0, compared_locks: 0, waiting_max: 0 }
    }

    /// Limits are about to change, or counters to be reset.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.inside.clear();
    }

    /// Compares all gates with their limits.
    pub(super) fn look(&mut self) {
        let locks = "SELECT coalesce(string_agg(pid || ' ' || virtualtransaction, ','), '') FROM pg_locks
                     WHERE locktype = 'advisory' AND objid = 77 AND pid IS NOT NULL AND granted";
        let inside: String = self.client.query_one(locks, &[]).unwrap().get(0);
        let at = Instant::now();
        let gates = "SELECT kind || ' ' || name, concurrency, running, waiting, over_limit, is_auto FROM sluice_gate";
        let mut waiting = 0;
        for row in self.client.query(gates, &[]).unwrap() {
            let count = |column: usize| i64::from(row.get::<_, i32>(column));
            let (limit, running) = (count(1), count(2));
            let over_limit: i64 = row.get(4);
            waiting += count(3);
            // The keeper changes such a limit when it likes.
            if !row.get::<_, bool>(5) {
                self.compare(row.get(0), limit, running, over_limit);
            }
        }
        self.waiting_max = self.waiting_max.max(waiting);
        self.compare_locks(at, inside.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect());
    }

    fn compare(&mut self, gate: String, limit: i64, running: i64, over_limit: i64) {
        let fits = running <= limit;
        let kept = self.kept.get_mut(&gate);
        match kept {
            Some(kept) if kept.limit == limit && limit > 0 => {
                if !kept.is_settled {
                    // Those who had read the limit before may still have come in.
                    kept.is_settled = fits && kept.since.elapsed() > SETTLED;
                    kept.over_limit = over_limit;
                    return;
                }
                let above = over_limit - kept.over_limit;
                assert!(
                    running <= limit + above + RESERVED_MAX,
                    "{gate}: {running} are inside, the limit is {limit}, and {above} were let in above it"
                );
                self.compared += 1;
                if fits {
                    kept.over_limit = over_limit;
                }
            }
            _ => {
                let since = Instant::now();
                self.kept.insert(gate, Kept { limit, since, over_limit, is_settled: false });
            }
        }
    }

    /// Compares the limit of blocks with those that were inside together.
    fn compare_locks(&mut self, at: Instant, inside: BTreeSet<String>) {
        self.inside.push((at, inside));
        let Some(kept) = self.kept.get("class transaction").filter(|kept| kept.is_settled) else { return };
        // Samples since the limit was known to be kept, as far back as is needed.
        while self.inside.len() > 1 && at - self.inside[1].0 >= TOGETHER {
            self.inside.remove(0);
        }
        let first = &self.inside[0];
        if at - first.0 < TOGETHER || kept.since + SETTLED > first.0 {
            return;
        }
        let all = self.inside.iter().map(|(_, inside)| inside.clone()).reduce(|a, b| &a & &b).unwrap();
        let over_limit = "SELECT over_limit FROM sluice_gate WHERE kind = 'class' AND name = 'transaction'";
        let now: i64 = self.client.query_one(over_limit, &[]).unwrap().get(0);
        let above = now - kept.over_limit;
        assert!(
            i64::try_from(all.len()).unwrap() <= kept.limit + above,
            "{all:?} were inside together, the limit is {}, and {above} were let in above it",
            kept.limit
        );
        self.compared_locks += 1;
    }
}
