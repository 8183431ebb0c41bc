//! Faults by seed, one after the other on one cluster of three nodes, with writers at work: whatever happens, nothing
//! that was acknowledged is missing on any node, nothing that was refused is there, each answer comes, and a client
//! that is idle meanwhile notices nothing. `make faults N=1000 FROM=0` runs more; `FROM=17 N=1` repeats the seventeenth.

use std::{
    collections::BTreeMap,
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};

use sluice_testkit::{Driver, Random, TestCluster};

use crate::{GOING_ON, SETTLING, alone, connect, ledger::Ledger, pool};

/// What may happen to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    PostmasterKilled,
    PatroniKilled,
    PrimaryLost,
    StandbyLost,
    PrimaryFrozen,
    PrimarysPatroniFrozen,
    StandbyFrozen,
    EtcdMemberLost,
    EtcdMajorityLost,
    Switchover,
}

/// As often as the numbers say.
const FAULTS: [(Fault, usize); 10] = [
    (Fault::PostmasterKilled, 4),
    (Fault::PatroniKilled, 2),
    (Fault::PrimaryLost, 3),
    (Fault::StandbyLost, 2),
    (Fault::PrimaryFrozen, 3),
    (Fault::PrimarysPatroniFrozen, 2),
    (Fault::StandbyFrozen, 2),
    (Fault::EtcdMemberLost, 2),
    (Fault::EtcdMajorityLost, 1),
    (Fault::Switchover, 4),
];

/// Faults that may come on top of another one: an etcd member or a standby, so that a majority is left.
const SECOND: [Fault; 2] = [Fault::StandbyFrozen, Fault::EtcdMemberLost];

/// What a seed stands for.
struct Plan {
    faults: Vec<Fault>,
    /// The time for which what is stopped or lost stays so.
    lasts: Duration,
    /// The time between two faults.
    apart: Duration,
    /// The etcd member, or the first of those, that is lost.
    member: usize,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let weights = FAULTS.map(|(_, weight)| weight);
        let first = FAULTS[random.weighted(&weights)].0;
        let mut faults = vec![first];
        let second = *random.of(&SECOND);
        if random.percent(25) && first != Fault::EtcdMajorityLost && first != second && !is_of_standby(first) {
            faults.push(second);
        }
        let millis =
            |random: &mut Random, from: u64, upto: usize| Duration::from_millis(from + random.below(upto) as u64);
        Self {
            faults,
            lasts: millis(&mut random, 500, 12_000),
            apart: millis(&mut random, 0, 1500),
            member: random.below(3),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:.1} s", self.faults, self.lasts.as_secs_f64())
    }
}

fn is_of_standby(fault: Fault) -> bool {
    matches!(fault, Fault::StandbyLost | Fault::StandbyFrozen)
}

#[test]
fn nothing_is_lost_by_faults_in_any_order() {
    let _alone = alone();
    let number = |name: &str, default| env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (from, count) = (number("SLUICE_FAULTS_FROM", 0), number("SLUICE_FAULTS", 20));
    let cluster = TestCluster::start(3);
    let pool = pool(&cluster, &[0, 1, 2], if from.is_multiple_of(2) { Driver::Epoll } else { Driver::Uring });
    let mut idle = connect(&cluster, &pool);
    idle.batch_execute("SET application_name = 'idle'").unwrap();
    let mut waits = BTreeMap::<Vec<Fault>, Vec<f64>>::new();
    let (mut acknowledged, mut refused) = (0, 0);
    for seed in from..from + count {
        let plan = Plan::of(seed);
        println!("fault {seed}: {plan}");
        let round = || {
            cluster.wait_ready();
            let ledger = Ledger::begin_round(&cluster, &pool, seed);
            ledger.wait_for_writes();
            thread::sleep(GOING_ON);
            ledger.without_writes();
            happen(&cluster, &plan);
            ledger.wait_for_writes();
            thread::sleep(GOING_ON);
            let wait = ledger.without_writes();
            cluster.wait_ready();
            (wait, ledger.end(&cluster))
        };
        let (wait, told) = catch_unwind(AssertUnwindSafe(round)).unwrap_or_else(|cause| {
            eprintln!("fault {seed} has failed: SLUICE_FAULTS_FROM={seed} SLUICE_FAULTS=1 runs it alone");
            resume_unwind(cause)
        });
        println!("fault {seed}: {:.1} s without writes; {told}", wait.as_secs_f64());
        let row = idle.query_one("SELECT current_setting('application_name'), pg_is_in_recovery()", &[]);
        let row = row.unwrap_or_else(|error| panic!("fault {seed}: the idle client is told {error:?}"));
        assert_eq!((row.get::<_, &str>(0), row.get::<_, bool>(1)), ("idle", false), "fault {seed}");
        waits.entry(plan.faults).or_default().push(wait.as_secs_f64());
        (acknowledged, refused) = (acknowledged + told.acknowledged, refused + told.refused);
    }
    for (faults, times) in &mut waits {
        times.sort_by(f64::total_cmp);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{faults:?}: {} times, {median:.1} s without writes in the median, {worst:.1} s at most", times.len());
    }
    println!("faults {from} to {}: {acknowledged} acknowledged, {refused} refused, none lost", from + count - 1);
}

/// The faults of a plan happen, and are over.
fn happen(cluster: &TestCluster, plan: &Plan) {
    let primary = cluster.leader();
    let standby = (primary + 1 + plan.member % 2) % 3;
    let members: Vec<_> = (0..2).map(|next| (plan.member + next) % 3).collect();
    let begin = |fault| match fault {
        Fault::PostmasterKilled => cluster.kill_postmaster(primary),
        Fault::PatroniKilled => cluster.kill_patroni(primary),
        Fault::PrimaryLost => cluster.kill_node(primary),
        Fault::StandbyLost => cluster.kill_node(standby),
        Fault::PrimaryFrozen => cluster.freeze(primary),
        Fault::PrimarysPatroniFrozen => cluster.freeze_patroni(primary),
        Fault::StandbyFrozen => cluster.freeze(standby),
        Fault::EtcdMemberLost => cluster.kill_etcd(plan.member),
        Fault::EtcdMajorityLost => members.iter().for_each(|member| cluster.kill_etcd(*member)),
        Fault::Switchover => {
            // It may be refused, where the node is not in its place.
            let refused = cluster.try_switchover(standby).err();
            refused.iter().for_each(|error| println!("a switchover: {error}"));
        }
    };
    let end = |fault| match fault {
        Fault::PostmasterKilled | Fault::PatroniKilled | Fault::Switchover => {}
        Fault::PrimaryLost => cluster.start_node(primary),
        Fault::StandbyLost => cluster.start_node(standby),
        Fault::PrimaryFrozen | Fault::PrimarysPatroniFrozen => cluster.thaw(primary),
        Fault::StandbyFrozen => cluster.thaw(standby),
        Fault::EtcdMemberLost => cluster.start_etcd(plan.member),
        Fault::EtcdMajorityLost => members.iter().for_each(|member| cluster.start_etcd(*member)),
    };
    // The second one is there before the first one, which may need what it takes away.
    for (place, fault) in plan.faults.iter().rev().enumerate() {
        if place > 0 {
            thread::sleep(plan.apart);
        }
        begin(*fault);
    }
    thread::sleep(SETTLING + plan.lasts);
    plan.faults.iter().for_each(|fault| end(*fault));
}
