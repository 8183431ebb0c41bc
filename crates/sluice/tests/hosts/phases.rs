//! How long nothing is written when the primary's host is lost with its link, and where the time goes.

use std::{
    env, fmt, fs,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::eventually;

use crate::{
    alone, begun,
    hosts::{Hosts, name},
    ledger::{Allowed, Ledger, Servers},
};

/// The interval at which the survivors' PostgreSQL are asked.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// The time in which a commit is acknowledged that a standby has had before a cut.
const SETTLING: Duration = Duration::from_millis(500);

/// The link is down for so long at least: by then the old primary has given up, or is about to.
const LASTS: Duration = Duration::from_secs(7);

/// The time for which writers go on before the next cut.
const GOING_ON: Duration = Duration::from_secs(2);

const SAMPLE: &str = "SELECT pg_is_in_recovery(), current_setting('dynamic_library_path'), \
                      (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')";

/// By its log the survivor that has settled it says so.
const SETTLED: &str = "is gone, as all standbys agree";

/// By its log a Patroni says which member of etcd it asks from now on.
const SELECTED: &str = "Selected new etcd server ";

/// The times of one survivor's host, since the cut.
#[derive(Debug, Default)]
struct Seen {
    /// Its WAL receiver was held off.
    held_off: Option<Duration>,
    /// It has settled that the leader's lease ends.
    settled: Option<Duration>,
    promoted: Option<Duration>,
    /// The other one streams from it.
    followed: Option<Duration>,
}

/// One cut.
struct Cut {
    has_etcd_leader: bool,
    /// The later one of each time: of both when they were held off.
    phases: [Option<Duration>; 4],
    without_writes: Duration,
    /// The machine's load in the minute before.
    load: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &Option<Duration>| time.map_or("?".to_owned(), |it| format!("{:.2}", it.as_secs_f64()));
        let [held_off, settled, promoted, followed] = self.phases.each_ref().map(seconds);
        let (waited, load) = (self.without_writes.as_secs_f64(), &self.load);
        write!(f, "{waited:.2} s without writes: held off {held_off}, settled {settled}, promoted {promoted}, ")?;
        let etcd = if self.has_etcd_leader { ", with etcd's leader" } else { "" };
        write!(f, "followed {followed}; load {load}{etcd}")
    }
}

/// `SLUICE_CUTS` is the number of cuts. Each of them waits until etcd's leader is not on the primary's host, unless
/// `SLUICE_CUTS_AT_ONCE` is set; it has been there for a while now and then all the same.
#[test]
#[ignore = "a measurement: --ignored cuts_by_phases --nocapture"]
fn cuts_by_phases() {
    let _alone = alone();
    let count: usize = env::var("SLUICE_CUTS").map_or(4, |text| text.parse().unwrap());
    let is_at_once = env::var_os("SLUICE_CUTS_AT_ONCE").is_some();
    let Some(hosts) = begun(false) else { return };
    let pool = hosts.pool();
    let ledger = Ledger::begin_round(&hosts, &pool, 0, Allowed::default());
    let mut waited = Vec::new();
    for _ in 0..count {
        if !is_at_once {
            leaders_part(&hosts);
        }
        let cut = cut(&hosts, &ledger);
        println!("{cut}");
        waited.push(cut.without_writes.as_secs_f64());
    }
    if let Ok(kept) = env::var("SLUICE_KEEP_LOGS") {
        hosts.keep_logs(kept.as_ref());
    }
    waited.sort_by(f64::total_cmp);
    println!("{count} cuts: median {:.2} s, worst {:.2} s", waited[count / 2], waited[count - 1]);
    println!("{}", ledger.end(&hosts));
}

/// In a cluster that is whole, no host has both the primary and etcd's leader after a while, and each Patroni asks the
/// member of etcd on its own host.
pub(crate) fn leaders_part(hosts: &Hosts) {
    hosts.wait_streaming(2);
    eventually("etcd's leader has left the primary's host", || hosts.etcd_leader() != hosts.leader());
    for host in 0..3 {
        let own = format!("https://{}:2379", hosts.network.address(host));
        eventually("a Patroni asks the member of etcd on its own host", || {
            let log = fs::read(hosts.data(host).join("log/node.log")).unwrap();
            let log = String::from_utf8_lossy(&log);
            let last = log.lines().filter_map(|line| line.split_once(SELECTED)).next_back();
            last.is_some_and(|(_, member)| member.trim() == own)
        });
    }
}

fn cut(hosts: &Hosts, ledger: &Ledger) -> Cut {
    ledger.wait_for_writes();
    thread::sleep(GOING_ON);
    let before = hosts.leader();
    let has_etcd_leader = hosts.etcd_leader() == before;
    let others: Vec<usize> = (0..3).filter(|host| *host != before).collect();
    let load = fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap_or_default().to_owned();
    let (are_ready, is_over) = (Barrier::new(others.len() + 1), AtomicBool::new(false));
    let seen: Vec<Seen> = thread::scope(|scope| {
        let watched = others.iter().map(|host| scope.spawn(|| watch(hosts, *host, &are_ready, &is_over)));
        let watched: Vec<_> = watched.collect();
        are_ready.wait();
        ledger.wait_for_writes();
        ledger.without_writes();
        let begin = Instant::now();
        others.iter().for_each(|other| hosts.network.cut(before, *other));
        // What was on its way is acknowledged by then.
        thread::sleep(SETTLING);
        ledger.wait_for_writes();
        thread::sleep(LASTS.saturating_sub(begin.elapsed()));
        is_over.store(true, Ordering::Relaxed);
        watched.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let without_writes = ledger.without_writes();
    others.iter().for_each(|other| hosts.network.mend(before, *other));
    println!("{}'s link was down:", name(before));
    ledger.wait_for_writes();
    // Until then it has a view of its own, in which it has its standbys.
    eventually("the old primary has given up", || !hosts.is_primary(before));
    hosts.wait_streaming(2);
    let last = |time: fn(&Seen) -> Option<Duration>| seen.iter().filter_map(time).max();
    let held_off = last(|seen| seen.held_off).filter(|_| seen.iter().all(|seen| seen.held_off.is_some()));
    let phases = [held_off, last(|seen| seen.settled), last(|seen| seen.promoted), last(|seen| seen.followed)];
    Cut { has_etcd_leader, phases, without_writes, load }
}

fn watch(hosts: &Hosts, host: usize, are_ready: &Barrier, is_over: &AtomicBool) -> Seen {
    let mut client = None;
    // Its Patroni may just have started it again.
    eventually("a survivor's PostgreSQL answers", || {
        client = hosts.try_superuser(host).ok();
        client.is_some()
    });
    let mut client = client.unwrap();
    let settled = || hosts.said(host).matches(SETTLED).count();
    let before = settled();
    let path: String = client.query_one(SAMPLE, &[]).unwrap().get(1);
    are_ready.wait();
    let (begin, mut seen) = (Instant::now(), Seen::default());
    while !is_over.load(Ordering::Relaxed) {
        let Ok(row) = client.query_one(SAMPLE, &[]) else { break };
        let (now, is_primary) = (begin.elapsed(), !row.get::<_, bool>(0));
        let note = |time: &mut Option<Duration>, is_so: bool| *time = time.or(is_so.then_some(now));
        note(&mut seen.held_off, row.get::<_, String>(1) != path);
        note(&mut seen.settled, settled() > before);
        note(&mut seen.promoted, is_primary);
        note(&mut seen.followed, is_primary && row.get::<_, i64>(2) > 0);
        thread::sleep(SAMPLE_EVERY);
    }
    seen
}
