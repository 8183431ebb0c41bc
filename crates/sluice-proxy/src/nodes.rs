//! Looking at the nodes of clusters that have readers: what each of them is, and how far the standbys are behind, as they
//! say by Patroni's REST interface.
//!
//! The primary is asked first how far its log goes, then all others how far they have replayed theirs. A standby has all
//! that the primary had written at the last time at which it had written no more than that: no clocks are compared.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use sluice_control::{
    Snapshot,
    cluster::{Cluster, Primary},
    reading::{Lag, Node, NodeState, Standby},
};
use sluice_core::{hub::Hub, lsn::Lsn, time::Time};
use sluice_patroni::{AskError, Members, Own};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    clusters::{ANSWER_TIME, Member, SEARCH_EVERY, Suspicion, placed, question},
    resolver::Resolver,
};

/// The interval at which the nodes are asked.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The interval at which members are asked which nodes there are.
const LIST_EVERY: Duration = Duration::from_secs(10);

/// The interval at which the configuration is looked at for clusters with readers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Answers in a row that a node may owe before it counts as silent: one may be lost on a busy host.
const SILENCES_MAX: u32 = 1;

/// Marks of a primary's log, at most.
const MARKS_MAX: usize = 4096;

/// A cluster's nodes, for the control thread; in the order of their names.
pub(crate) type Told = (Arc<str>, Vec<Node>);

/// Looks at the nodes of the clusters that have readers, for ever, and tells of them.
///
/// The workers' times count from `epoch`.
pub(crate) async fn follow(
    hub: Arc<Hub>,
    resolver: Arc<Resolver>,
    (suspicion, epoch): (Suspicion, std::time::Instant),
    told: mpsc::Sender<Told>,
) {
    let mut tasks = JoinSet::new();
    let mut followed: HashMap<Arc<str>, (Arc<Cluster>, AbortHandle)> = HashMap::new();
    loop {
        let snapshot = hub.snapshot();
        let clusters: Vec<_> = with_readers(&snapshot).collect();
        followed.retain(|_, (known, task)| {
            let stays = clusters.iter().any(|cluster| Arc::ptr_eq(cluster, known));
            if !stays {
                task.abort();
            }
            stays
        });
        for cluster in clusters {
            followed.entry(cluster.name.clone()).or_insert_with(|| {
                let watcher = Watcher {
                    cluster: cluster.clone(),
                    hub: hub.clone(),
                    resolver: resolver.clone(),
                    told: told.clone(),
                    epoch,
                    members: BTreeMap::new(),
                    listed_at: None,
                    log: PrimaryLog::default(),
                    standbys: HashMap::new(),
                };
                (cluster.clone(), tasks.spawn(watcher.run(suspicion.subscribe())))
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
        while tasks.try_join_next().is_some() {}
    }
}

fn with_readers(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Cluster>> {
    let has_readers = |cluster: &Arc<str>| {
        snapshot
            .databases
            .iter()
            .any(|it| (it.reading.is_some() || it.read_only.is_some()) && it.cluster.as_ref() == Some(cluster))
    };
    snapshot.clusters.iter().map(|standing| &standing.cluster).filter(move |cluster| has_readers(&cluster.name))
}

/// Whoever looks at one cluster's nodes.
struct Watcher {
    cluster: Arc<Cluster>,
    hub: Arc<Hub>,
    resolver: Arc<Resolver>,
    told: mpsc::Sender<Told>,
    epoch: std::time::Instant,
    /// The nodes that there are, by their names.
    members: BTreeMap<String, Member>,
    listed_at: Option<Instant>,
    log: PrimaryLog,
    /// The last words of each standby, and how many answers it owes since.
    standbys: HashMap<String, (Own, u32)>,
}

impl Watcher {
    async fn run(mut self, mut suspicion: watch::Receiver<()>) {
        loop {
            let begun = Instant::now();
            if self.listed_at.is_none_or(|at| begun.duration_since(at) >= LIST_EVERY) || self.members.is_empty() {
                self.list().await;
                self.listed_at = Some(begun);
            }
            let nodes = self.look().await;
            self.resolver.know_besides(nodes.iter().map(|node| &node.address)).await;
            if self.told.send((self.cluster.name.clone(), nodes)).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep_until(begun + ASK_EVERY) => {}
                Ok(()) = suspicion.changed() => sleep_until(begun + SEARCH_EVERY).await,
            }
        }
    }

    /// Asks the members which nodes there are.
    async fn list(&mut self) {
        let known = self.members.values().map(|member| member.rest.clone());
        let asked: BTreeSet<_> = self.cluster.members.iter().cloned().chain(known).collect();
        let mut tasks = JoinSet::new();
        for rest in asked {
            let (resolver, tls) = (self.resolver.clone(), self.cluster.tls.clone());
            tasks.spawn(async move { question(&resolver, &rest, tls, ANSWER_TIME, Members::ask).await });
        }
        let mut members = BTreeMap::new();
        while let Some(answer) = tasks.join_next().await {
            let Ok(Ok(all)) = answer else { continue };
            members.extend(all.members.iter().filter_map(placed).map(|member| (member.name.clone(), member)));
        }
        if !members.is_empty() {
            self.members = members;
            self.standbys.retain(|name, _| self.members.contains_key(name));
        }
    }

    /// Looks at all nodes.
    async fn look(&mut self) -> Vec<Node> {
        let snapshot = self.hub.snapshot();
        let standing = snapshot.clusters.iter().find(|standing| standing.cluster.name == self.cluster.name);
        let primary = standing.and_then(|standing| standing.primary.as_ref());
        let mut said = HashMap::new();
        let mut primary_answers = false;
        if let Some((primary, member)) = primary.and_then(|it| Some((it, self.members.get(&it.node)?))) {
            let begun = Instant::now();
            let own = question(&self.resolver, &member.rest, self.cluster.tls.clone(), ANSWER_TIME, Own::ask).await;
            if let Ok(own) = &own
                && let Some(end) = end_of_log(own, primary)
            {
                self.log.note(begun, primary.timeline, end);
                let now = Time(begun.into_std().saturating_duration_since(self.epoch).as_micros() as u64);
                self.hub.tell_log(now, &self.cluster.name, Lsn(end));
                primary_answers = true;
            }
            said.insert(member.name.clone(), own);
        }
        let mut tasks = JoinSet::new();
        for member in self.members.values().filter(|member| !said.contains_key(&member.name)) {
            let (name, rest, tls) = (member.name.clone(), member.rest.clone(), self.cluster.tls.clone());
            let resolver = self.resolver.clone();
            tasks.spawn(async move { (name, question(&resolver, &rest, tls, ANSWER_TIME, Own::ask).await) });
        }
        while let Some(answer) = tasks.join_next().await {
            said.extend(answer.ok());
        }
        let now = Instant::now();
        let Self { members, standbys, log, .. } = self;
        let node = |member: &Member| {
            let own = said.remove(&member.name).unwrap_or(Err(AskError::Silent(ASK_EVERY)));
            let own = remembered(standbys, &member.name, own);
            let state = state(own, |replayed| log.lag(now, replayed), primary_answers);
            Node { name: member.name.clone(), address: member.address.clone(), state }
        };
        members.values().map(node).collect()
    }
}

/// The end of a primary's log, if it is one by its own words.
fn end_of_log(own: &Own, primary: &Primary) -> Option<u64> {
    let is_it = own.state == "running"
        && own.timeline == Some(primary.timeline)
        && own.system.as_ref() == Some(&primary.system);
    own.log.as_ref()?.location.filter(|_| is_it)
}

/// A node's words, or its last ones if it only takes its time to answer.
fn remembered(
    standbys: &mut HashMap<String, (Own, u32)>,
    name: &str,
    own: Result<Own, AskError>,
) -> Result<Own, AskError> {
    match own {
        Ok(own) => {
            standbys.insert(name.to_owned(), (own.clone(), 0));
            Ok(own)
        }
        Err(error) => match standbys.get_mut(name) {
            Some((own, silences)) if *silences < SILENCES_MAX && matches!(error, AskError::Silent(_)) => {
                *silences += 1;
                Ok(own.clone())
            }
            _ => {
                standbys.remove(name);
                Err(error)
            }
        },
    }
}

/// The state of a node, by its own words.
fn state(own: Result<Own, AskError>, lag: impl FnOnce(u64) -> Lag, primary_answers: bool) -> NodeState {
    let own = match own {
        Ok(own) => own,
        Err(error) => return NodeState::Silent(error.to_string()),
    };
    if own.state != "running" {
        return NodeState::Down(own.state);
    }
    let Some(timeline) = own.timeline else { return NodeState::Silent("it does not say its timeline".to_owned()) };
    let log = own.log.unwrap_or_default();
    let (Some(replayed), Some(system)) = (log.replayed_location, own.system) else {
        return match own.role.as_str() {
            "primary" | "master" => NodeState::Primary { timeline },
            _ => NodeState::Silent("it does not say how far it has replayed".to_owned()),
        };
    };
    NodeState::Standby(Standby {
        timeline,
        system,
        streams: !primary_answers || own.replication_state.as_deref() == Some("streaming"),
        is_paused: log.paused,
        is_excluded: own.tags.noloadbalance,
        lag: lag(replayed),
    })
}

/// The end of a primary's log, and when it was there.
#[derive(Debug, Default)]
struct PrimaryLog {
    timeline: u32,
    /// The last times at which it went so far and no further, in its order.
    marks: VecDeque<(Instant, u64)>,
}

impl PrimaryLog {
    /// It went as far as `end` at that time, or later.
    fn note(&mut self, at: Instant, timeline: u32, end: u64) {
        if self.timeline != timeline {
            // Its places mean something else.
            self.marks.clear();
            self.timeline = timeline;
        }
        match self.marks.back_mut() {
            Some((known, place)) if *place == end => *known = at,
            // It was asked twice, and the answers have crossed.
            Some((_, place)) if *place > end => {}
            _ => self.marks.push_back((at, end)),
        }
        if self.marks.len() > MARKS_MAX {
            // Of long ago, every other one will do: a standby is then taken to be further behind, never less.
            let mut index = self.marks.len();
            self.marks.retain(|_| {
                index -= 1;
                index.is_multiple_of(2)
            });
        }
    }

    /// The lag of a standby that has replayed so much.
    fn lag(&self, now: Instant, replayed: u64) -> Lag {
        let there = self.marks.partition_point(|(_, place)| *place <= replayed);
        let shown = there.checked_sub(1).map(|index| self.marks[index].0);
        Lag {
            time: shown.map(|at| now.duration_since(at)),
            bytes: self.marks.back().map(|(_, end)| end.saturating_sub(replayed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_has_what_the_primary_had_written_when_it_had_written_no_more() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut log = PrimaryLog::default();
        assert_eq!(log.lag(at(0), 100), Lag::default());
        for (second, end) in [(1, 100), (2, 100), (3, 150), (4, 200), (5, 190)] {
            log.note(at(second), 7, end);
        }
        for (replayed, time, bytes) in [
            (99, None, 101),
            (100, Some(8), 100),
            (149, Some(8), 51),
            (150, Some(7), 50),
            (200, Some(6), 0),
            (230, Some(6), 0),
        ] {
            let lag = Lag { time: time.map(Duration::from_secs), bytes: Some(bytes) };
            assert_eq!(log.lag(at(10), replayed), lag, "{replayed}");
        }
        // Another timeline may begin before the end of the one before.
        log.note(at(11), 8, 180);
        assert_eq!(log.lag(at(12), 179).time, None);
        assert_eq!(log.lag(at(12), 180).time, Some(Duration::from_secs(1)));
    }

    #[test]
    fn marks_are_thinned_out_and_the_last_one_stays() {
        let begun = Instant::now();
        let mut log = PrimaryLog::default();
        let last = 3 * MARKS_MAX as u64;
        for second in 0..=last {
            log.note(begun + Duration::from_secs(second), 1, second);
        }
        assert!(log.marks.len() <= MARKS_MAX);
        let now = begun + Duration::from_secs(last);
        let lag = |replayed| log.lag(now, replayed).time.map(|time| time.as_secs());
        assert_eq!(lag(last), Some(0));
        let long_ago = lag(last - 10_000).unwrap();
        assert!((10_000..10_100).contains(&long_ago), "{long_ago}");
    }

    fn own(change: impl FnOnce(&mut Own)) -> Own {
        let mut own = Own::default();
        own.state = "running".to_owned();
        own.timeline = Some(3);
        own.system = Some("7".to_owned());
        change(&mut own);
        own
    }

    fn standby(replication_state: &str) -> Own {
        own(|own| {
            own.role = "replica".to_owned();
            own.replication_state = Some(replication_state.to_owned());
            own.log = Some(sluice_patroni::Replayed { replayed_location: Some(5), ..Default::default() });
        })
    }

    #[test]
    fn a_node_is_what_it_says() {
        let lag = |replayed| Lag { time: None, bytes: Some(replayed) };
        let state = |own, answers| super::state(Ok(own), lag, answers);
        let streams = |state: NodeState| state.standby().map(|it| (it.streams, it.lag.bytes));
        assert_eq!(streams(state(standby("streaming"), true)), Some((true, Some(5))));
        assert_eq!(streams(state(standby("in archive recovery"), true)), Some((false, Some(5))));
        // Nobody is there to stream from.
        assert_eq!(streams(state(standby("in archive recovery"), false)), Some((true, Some(5))));
        let primary = own(|own| own.role = "primary".to_owned());
        assert_eq!(state(primary, true), NodeState::Primary { timeline: 3 });
        let down = own(|own| own.state = "starting".to_owned());
        assert_eq!(state(down, true), NodeState::Down("starting".to_owned()));
    }

    #[test]
    fn an_answer_may_be_late_once() {
        let mut standbys = HashMap::new();
        let late = || Err(AskError::Silent(ASK_EVERY));
        let said = || own(|_| {});
        assert!(remembered(&mut standbys, "a", late()).is_err(), "nothing is known of it");
        assert!(remembered(&mut standbys, "a", Ok(said())).is_ok());
        assert_eq!(remembered(&mut standbys, "a", late()).ok(), Some(said()));
        assert!(remembered(&mut standbys, "a", late()).is_err());
        assert!(remembered(&mut standbys, "a", Ok(said())).is_ok());
        assert!(remembered(&mut standbys, "a", Err(AskError::NotHttp)).is_err());
        assert!(remembered(&mut standbys, "a", late()).is_err());
    }
}
