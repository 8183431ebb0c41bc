//! Faults by seed, one after the other on one cluster of hosts, with writers at work: whatever happens, nothing that was
//! acknowledged is missing on any node, nothing that was refused is there, each answer comes, and a client that is idle
//! meanwhile notices nothing. `make faults N=1000 FROM=0` runs more; `FROM=17 N=1` repeats the seventeenth, and
//! `NODES=2` has two hosts and a witness.
//!
//! | file | what it is about |
//! |---|---|
//! | `plan.rs` | what a seed stands for |
//! | `happen.rs` | how faults begin and end |

mod happen;
mod plan;

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use postgres::Client;
use sluice_testkit::{Driver, TestPool, case::repository, port::free_port};

use self::{
    happen::Faults,
    plan::{Fault, Plan},
};
use crate::{
    alone, begun, cuts,
    hosts::Hosts,
    ledger::{Allowed, Ledger, Servers, Told},
};

/// The time for which writers go on before a fault and behind it, so that there is something to lose.
const GOING_ON: Duration = Duration::from_millis(400);

/// The number of failures that is enough.
const FAILURES_MAX: usize = 5;

#[test]
fn nothing_is_lost_by_faults_in_any_order() {
    let _alone = alone();
    let number = |name: &str, default| env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (from, count) = (number("SLUICE_FAULTS_FROM", 0), number("SLUICE_FAULTS", 20));
    let has_witness = number("SLUICE_FAULTS_NODES", 3) == 2;
    let mut results = Results::default();
    let mut next = from;
    while next < from + count && results.failed.len() < FAILURES_MAX {
        // What a failure leaves is no ground for others.
        let Some(hosts) = begun(has_witness) else { return };
        let mut place = Place::new(&hosts, if next.is_multiple_of(2) { Driver::Epoll } else { Driver::Uring });
        if next == 0 && !has_witness {
            cuts::a_primary_that_is_cut_off_acknowledges_nothing(&hosts, &place.pool);
            cuts::a_primary_whose_link_comes_back_follows_the_next_one(&hosts, &place.pool);
        }
        let mut is_good = true;
        while is_good && next < from + count {
            is_good = place.seed(next, &mut results);
            next += 1;
        }
    }
    println!("{results}");
    println!("faults {from} to {}: {}", next - 1, results.end(has_witness));
    assert!(results.failed.is_empty(), "{}", results.end(has_witness));
}

/// These faults on a cluster that is there.
pub(crate) fn happen(hosts: &Hosts, seeds: impl IntoIterator<Item = u64>) {
    let mut results = Results::default();
    let mut place = Place::new(hosts, Driver::Uring);
    for seed in seeds {
        assert!(place.seed(seed, &mut results), "{}", results.end(hosts.nodes() == 2));
    }
    println!("{results}");
}

/// The place of the faults: hosts, a pool before them, and a client that is idle.
struct Place<'a> {
    hosts: &'a Hosts,
    driver: Driver,
    pool: TestPool,
    idle: Client,
}

impl<'a> Place<'a> {
    fn new(hosts: &'a Hosts, driver: Driver) -> Self {
        // One that a pool can be started at again: below those of outgoing connections.
        let pool = hosts.pool_config(driver).port(free_port()).start();
        let idle = idle(hosts, &pool);
        Self { hosts, driver, pool, idle }
    }

    /// The faults of a seed happen. False if something is wrong then.
    fn seed(&mut self, seed: u64, results: &mut Results) -> bool {
        let plan = Plan::of(seed, self.hosts.nodes());
        if plan.has(Fault::is_of_disk) && self.hosts.disk(0).is_none() {
            println!("fault {seed}: skipped: {plan} takes disks of the hosts' own");
            return true;
        }
        println!("fault {seed}: {plan}");
        match catch_unwind(AssertUnwindSafe(|| self.round(seed, &plan))) {
            Ok((wait, told)) => {
                println!("fault {seed}: {:.1} s without writes; {told}", wait.as_secs_f64());
                results.add(plan.faults, wait, &told);
                true
            }
            Err(cause) => {
                let kept = repository().join(format!("target/tests/fault-{seed}-{}", std::process::id()));
                let words = cause.downcast_ref::<String>().map(String::as_str);
                let cause = words.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no words");
                self.keep(&kept, &format!("{plan}\n{cause}\n"));
                println!("fault {seed}: FAILED, logs in {}", kept.display());
                results.failed.push((seed, kept));
                // It need not end well any more.
                self.pool.kill();
                false
            }
        }
    }

    fn round(&mut self, seed: u64, plan: &Plan) -> (Duration, Told) {
        let hosts = self.hosts;
        let faults = Faults::new(hosts, plan);
        let allowed = Allowed {
            lost_pool: plan.has(|fault| fault == Fault::PoolKilled),
            full_disk: plan.has(|fault| matches!(fault, Fault::DiskFull(_))),
        };
        let ledger = Ledger::begin_round(hosts, &self.pool, seed + 1, allowed);
        ledger.wait_for_writes();
        thread::sleep(GOING_ON);
        ledger.without_writes();
        faults.happen(&mut self.pool, self.driver);
        faults.start_again();
        ledger.wait_for_writes();
        thread::sleep(GOING_ON);
        let wait = ledger.without_writes();
        hosts.wait_streaming(hosts.nodes() - 1);
        hosts.wait_whole();
        let told = ledger.end(hosts);
        if allowed.lost_pool {
            self.idle = idle(hosts, &self.pool);
        }
        let row = self.idle.query_one("SELECT current_setting('application_name'), pg_is_in_recovery()", &[]);
        let row = row.unwrap_or_else(|error| panic!("the idle client is told {error:?}"));
        assert_eq!((row.get::<_, &str>(0), row.get::<_, bool>(1)), ("idle", false), "the idle client");
        (wait, told)
    }

    fn keep(&self, kept: &Path, cause: &str) {
        self.hosts.keep_logs(kept);
        fs::write(kept.join("pool.log"), self.pool.log()).unwrap();
        fs::write(kept.join("cause"), cause).unwrap();
    }
}

fn idle(hosts: &Hosts, pool: &TestPool) -> Client {
    let mut idle = pool.connect(hosts.app_name(), Some(hosts.password()), "postgres").unwrap();
    idle.batch_execute("SET application_name = 'idle'").unwrap();
    idle
}

/// The results of the faults so far.
#[derive(Debug, Default)]
struct Results {
    /// The seconds without writes.
    waits: BTreeMap<Vec<Fault>, Vec<f64>>,
    acknowledged: usize,
    refused: usize,
    unknown: usize,
    read: u64,
    /// Seeds, and where the logs are.
    failed: Vec<(u64, PathBuf)>,
}

impl Results {
    fn add(&mut self, faults: Vec<Fault>, wait: Duration, told: &Told) {
        self.waits.entry(faults).or_default().push(wait.as_secs_f64());
        self.acknowledged += told.acknowledged;
        self.refused += told.refused;
        self.unknown += told.unknown;
        self.read += told.read;
    }

    /// The last line: what failed, if anything did.
    fn end(&self, has_witness: bool) -> String {
        let Self { acknowledged, refused, unknown, read, .. } = self;
        if self.failed.is_empty() {
            return format!(
                "{acknowledged} acknowledged, {refused} refused, {unknown} unknown, {read} read; none lost"
            );
        }
        let nodes = if has_witness { " NODES=2" } else { "" };
        let told = |(seed, kept): &(u64, PathBuf)| {
            format!("\nfault {seed} has failed (make faults FROM={seed} N=1{nodes}): logs in {}", kept.display())
        };
        self.failed.iter().map(told).collect()
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (faults, times) in &self.waits {
            let mut times = times.clone();
            times.sort_by(f64::total_cmp);
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            let count = times.len();
            writeln!(f, "{faults:?}: {count} times, {median:.1} s without writes in the median, {worst:.1} s at most")?;
        }
        Ok(())
    }
}
