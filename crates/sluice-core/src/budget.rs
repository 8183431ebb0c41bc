//! The servers that may be there at once, where several pools share a limit: of the process, of a host, of a database, of
//! a role.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use sluice_control::{Snapshot, address::Address};

/// The servers that a limit counts together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Shared {
    /// All.
    Process,
    /// Those at one address.
    Host(Address),
    /// Those of a database, as clients say it.
    Database(String),
    /// Those of a role.
    Role(String),
}

/// A limit, and what it counts.
#[derive(Debug)]
pub struct Budget {
    shared: Shared,
    limit: AtomicU32,
    taken: AtomicU32,
    /// Whether there were more than may be when the limit became smaller, and there may be yet.
    is_shrinking: AtomicBool,
}

impl Shared {
    /// The limit that a snapshot sets; what it says nothing of is bounded by the others.
    fn limit(&self, snapshot: &Snapshot) -> u32 {
        let limits = &snapshot.limits;
        let limit = match self {
            Self::Process => Some(limits.servers),
            Self::Host(_) => limits.servers_per_host,
            Self::Database(name) => snapshot.database(name).and_then(|entry| entry.servers),
            Self::Role(role) => limits.servers_as(role),
        };
        limit.unwrap_or(u32::MAX)
    }
}

impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process => f.write_str("\"servers\" under [limits]"),
            Self::Host(address) => write!(f, "\"servers_per_host\" under [limits], at {address}"),
            Self::Database(name) => write!(f, "\"servers\" of the [[database]] \"{name}\""),
            Self::Role(role) => write!(f, "the server connections of user \"{role}\""),
        }
    }
}

impl Budget {
    /// One with nothing taken.
    pub fn new(shared: Shared, snapshot: &Snapshot) -> Self {
        let limit = AtomicU32::new(shared.limit(snapshot));
        Self { shared, limit, taken: AtomicU32::new(0), is_shrinking: AtomicBool::new(false) }
    }

    /// Goes by another snapshot.
    pub fn go_by(&self, snapshot: &Snapshot) {
        self.limit.store(self.shared.limit(snapshot), Ordering::Relaxed);
        self.is_shrinking.store(self.taken() > self.limit(), Ordering::Relaxed);
    }

    /// Whether there are more than may be since the limit has become smaller.
    fn is_shrinking(&self) -> bool {
        if !self.is_shrinking.load(Ordering::Relaxed) {
            return false;
        }
        let is_over = self.taken() > self.limit();
        self.is_shrinking.store(is_over, Ordering::Relaxed);
        is_over
    }

    /// The servers that it counts together.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The servers there are.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether there are as many as may be.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.limit()
    }

    /// The servers that may be.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let limit = self.limit();
        let one_more = |taken| (taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The budgets that a pool's servers come out of: all of them for each server.
#[derive(Debug)]
pub struct Budgets(Box<[Arc<Budget>]>);

impl Budgets {
    /// These.
    pub fn new(budgets: impl IntoIterator<Item = Arc<Budget>>) -> Self {
        Self(budgets.into_iter().collect())
    }

    /// Counts a server in, unless one of the limits is reached.
    pub fn take(&self) -> bool {
        let taken = self.0.iter().take_while(|budget| budget.take()).count();
        let is_whole = taken == self.0.len();
        if !is_whole {
            self.0[..taken].iter().for_each(|budget| budget.give_back());
        }
        is_whole
    }

    /// Counts a server in, whatever the limits say: others are about to be closed for it.
    pub fn take_over(&self) {
        self.0.iter().for_each(|budget| _ = budget.taken.fetch_add(1, Ordering::Relaxed));
    }

    /// Counts a server out.
    pub fn give_back(&self) {
        self.0.iter().for_each(|budget| budget.give_back());
    }

    /// Those whose limits are reached.
    pub fn full(&self) -> impl Iterator<Item = &Arc<Budget>> {
        self.0.iter().filter(|budget| budget.is_full())
    }

    /// Whether there are more than may be under one of them, since its limit has become smaller.
    pub fn are_shrinking(&self) -> bool {
        self.0.iter().any(|budget| budget.is_shrinking())
    }

    /// Whether that one is among them.
    pub fn include(&self, budget: &Arc<Budget>) -> bool {
        self.0.iter().any(|own| Arc::ptr_eq(own, budget))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sluice_control::{
        Configuration,
        access::{Access, Method, Policy, Users},
        settings::{Limits, UserLimits},
    };

    use super::*;

    #[test]
    fn a_server_comes_out_of_all_budgets_or_none() {
        let budget = |limit| {
            let (limit, taken) = (AtomicU32::new(limit), AtomicU32::new(0));
            Arc::new(Budget { shared: Shared::Process, limit, taken, is_shrinking: AtomicBool::new(false) })
        };
        let (all, few, other) = (budget(3), budget(1), budget(9));
        let (ann, bob) = (Budgets::new([all.clone(), few.clone()]), Budgets::new([all.clone(), other.clone()]));
        assert_eq!((ann.take(), ann.take()), (true, false));
        assert_eq!([&all, &few].map(|budget| budget.taken()), [1, 1]);
        assert!(ann.full().all(|full| Arc::ptr_eq(full, &few)) && bob.full().next().is_none());
        assert_eq!((bob.take(), bob.take(), bob.take()), (true, true, false));
        assert_eq!((all.taken(), other.taken()), (3, 2));
        bob.take_over();
        assert_eq!((all.taken(), all.limit(), bob.include(&all), bob.include(&few)), (4, 3, true, false));
        (0..3).for_each(|_| bob.give_back());
        ann.give_back();
        assert_eq!([&all, &few, &other].map(|budget| budget.taken()), [0, 0, 0]);
    }

    #[test]
    fn limits_are_those_of_the_snapshot() {
        let own = UserLimits { servers: Some(2), ..UserLimits::default() };
        let limits = Limits {
            servers: 9,
            servers_per_host: Some(8),
            servers_per_user: Some(7),
            users: [("ann".to_owned(), own)].into(),
            ..Limits::default()
        };
        let access = Access { policy: Policy::Method(Method::Trust), users: Users::Listed(HashMap::new()) };
        let (databases, balancers) = (Vec::new(), Vec::new());
        let configuration = Configuration {
            databases,
            access,
            encryption: None,
            admin: None,
            limits,
            client_log: sluice_control::settings::ClientLog::default(),
            balancers,
            clusters: Vec::new(),
        };
        let snapshot = Snapshot::first(configuration);
        let limit = |shared: Shared| shared.limit(&snapshot);
        assert_eq!(limit(Shared::Process), 9);
        assert_eq!(limit(Shared::Host(Address::Tcp("db".to_owned(), 5432))), 8);
        assert_eq!((limit(Shared::Role("ann".to_owned())), limit(Shared::Role("bob".to_owned()))), (2, 7));
        assert_eq!(limit(Shared::Database("app".to_owned())), u32::MAX);
    }
}
