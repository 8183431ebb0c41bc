//! The meaning of a seed: which faults, of which host, for how long.

use std::{fmt, time::Duration};

use sluice_testkit::Random;

/// The host that a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    Primary,
    Standby,
}
use Whom::{Primary, Standby};

/// A fault that may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL, and it is started again at once by whoever keeps it.
    PostmasterKilled(Whom),
    PatroniKilled(Whom),
    /// SIGKILL of `sluice node`: all that it has started ends with it, until it is started again.
    SluiceKilled(Whom),
    /// SIGKILL of everything on the host.
    HostLost(Whom),
    /// SIGSTOP, and SIGCONT in the end.
    PostgresFrozen(Whom),
    PatroniFrozen(Whom),
    HostFrozen(Whom),
    /// Neither of the other hosts hears it, nor does it hear them; clients still reach it.
    CutOff(Whom),
    /// It hears the others, which do not hear it.
    Unheard(Whom),
    /// It hears nobody, and is heard.
    Deaf(Whom),
    /// It is cut off from the clients and the pool as well.
    Unplugged(Whom),
    /// The link to one of the others is cut.
    LinkCut(Whom),
    /// No byte can be had.
    DiskFull(Whom),
    /// Each write takes up to a quarter of a second.
    DiskSlow(Whom),
    /// No write ends before the fault does.
    DiskStalled(Whom),
    EtcdMemberFrozen,
    /// SIGKILL of the member that leads.
    EtcdLeaderKilled,
    EtcdLeaderFrozen,
    EtcdMajorityFrozen,
    /// The members of etcd do not hear each other; PostgreSQL and Patroni do.
    EtcdCut,
    /// No host hears another one.
    AllCut,
    /// SIGKILL of the pool, which is started again in the end.
    PoolKilled,
    Switchover,
}

/// A fault's number is its seed's, modulo their number. The first twenty are what `make test` has.
pub(super) const FAULTS: [Fault; 36] = [
    Fault::PostmasterKilled(Primary),
    Fault::CutOff(Primary),
    Fault::DiskFull(Primary),
    Fault::EtcdLeaderKilled,
    Fault::HostLost(Primary),
    Fault::Unheard(Primary),
    Fault::PoolKilled,
    Fault::Switchover,
    Fault::DiskSlow(Primary),
    Fault::CutOff(Standby),
    Fault::HostFrozen(Primary),
    Fault::EtcdMajorityFrozen,
    Fault::Deaf(Primary),
    Fault::DiskFull(Standby),
    Fault::PatroniKilled(Primary),
    Fault::Unplugged(Primary),
    Fault::EtcdCut,
    Fault::PostgresFrozen(Primary),
    Fault::DiskStalled(Primary),
    Fault::AllCut,
    Fault::EtcdLeaderFrozen,
    Fault::HostLost(Standby),
    Fault::PatroniFrozen(Primary),
    Fault::Unheard(Standby),
    Fault::LinkCut(Primary),
    Fault::SluiceKilled(Primary),
    Fault::DiskSlow(Standby),
    Fault::Deaf(Standby),
    Fault::HostFrozen(Standby),
    Fault::LinkCut(Standby),
    Fault::EtcdMemberFrozen,
    Fault::PostgresFrozen(Standby),
    Fault::PostmasterKilled(Standby),
    Fault::DiskStalled(Standby),
    Fault::SluiceKilled(Standby),
    Fault::PatroniFrozen(Standby),
];

/// The seeds that `make test` has, whose faults are short.
const SHORT: u64 = 20;

/// The faults of a seed.
#[derive(Debug)]
pub(super) struct Plan {
    /// One or two.
    pub(super) faults: Vec<Fault>,
    /// The time for which what is stopped, lost or cut stays so.
    pub(super) lasts: Duration,
    /// The time between two faults, at their beginnings and at their ends.
    pub(super) apart: Duration,
    /// The number of the standby, or of etcd's member, that it is about.
    pub(super) which: usize,
}

impl Plan {
    /// The plan of a seed. With two nodes that have data, only one thing happens at a time.
    pub(super) fn of(seed: u64, nodes: usize) -> Self {
        let mut random = Random::new(seed);
        let place = |seed: u64| FAULTS[(seed % FAULTS.len() as u64) as usize];
        let mut faults = vec![place(seed)];
        let second = place(random.below(FAULTS.len()) as u64);
        if random.percent(40) && nodes > 2 && second != faults[0] {
            faults.push(second);
        }
        let millis = |random: &mut Random, from: u64, upto: u64| from + random.below((upto - from) as usize) as u64;
        let lasts = match random.weighted(&[6, 3, 1]) {
            _ if seed < SHORT => millis(&mut random, 500, 3000),
            0 => millis(&mut random, 500, 5000),
            1 => millis(&mut random, 5000, 12_000),
            // Longer than any lease.
            _ => millis(&mut random, 12_000, 30_000),
        };
        let apart = millis(&mut random, 0, 1500);
        let (lasts, apart) = (Duration::from_millis(lasts), Duration::from_millis(apart));
        Self { faults, lasts, apart, which: random.below(6) }
    }

    pub(super) fn has(&self, is_it: impl Fn(Fault) -> bool) -> bool {
        self.faults.iter().any(|fault| is_it(*fault))
    }
}

impl Fault {
    /// Whether it takes a disk of the host's own.
    pub(super) fn is_of_disk(self) -> bool {
        matches!(self, Self::DiskFull(_) | Self::DiskSlow(_) | Self::DiskStalled(_))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:.1} s", self.faults, self.lasts.as_secs_f64())
    }
}
