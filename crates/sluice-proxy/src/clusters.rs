//! Following clusters: which node is the primary, as the members say by Patroni's REST interface.
//!
//! Any member tells who holds the leader's lock (`GET /cluster`); that node is asked itself whether it holds it and is
//! out of recovery (`GET /primary`), and by which timeline it writes. A node that does not answer that is not the
//! primary, and what was seen last stays until another one is. A primary that seems to be at another address says itself
//! where it is (its own `GET /cluster`): others may tell from memory.
//!
//! It also says when a hold is over: a primary that was held for a restart of its own has been started anew.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use sluice_control::{
    address::Address,
    cluster::{Cluster, Primary, Rest, Standing},
};
use sluice_core::hub::{Held, Hub};
use sluice_patroni::{AskError, Members, Own, Question};
use sluice_tls::ClientTls;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::resolver::Resolver;

/// A member that has said where it is.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) rest: Rest,
    pub(crate) address: Address,
}

/// The time that an answer may take.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The same in every other round of questions to all members: one that was stopped where it is must not hold up what the
/// others have to say.
const HURRIED_ANSWER_TIME: Duration = Duration::from_millis(300);

/// The interval at which the primary, whether it still is, and another member, who holds the lock, are asked in turn.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The same at which all members are, while there seems to be none.
pub(crate) const SEARCH_EVERY: Duration = Duration::from_millis(200);

/// The interval while clients are held: each round that is waited for in vain is theirs.
const ASK_WHILE_HELD_EVERY: Duration = Duration::from_millis(100);

/// The interval at which all members are asked though the primary says that it is.
const ASK_ALL_EVERY: Duration = Duration::from_secs(2);

/// A member that has named another holder so often goes by an old view itself: all are asked at a calmer pace then.
const CONTESTED_MAX: u32 = 50;

/// The time that others have for their answers once one has said who is the primary: an older one may have been quicker.
const OTHERS_TIME: Duration = Duration::from_millis(100);

/// The time within which all members answer, or do not count.
const ROUND_TIME: Duration = Duration::from_secs(2);

/// The time for which a fault that is not there any more counts as told: longer than that from one look at all members
/// to the next.
const SAID_FOR: Duration = Duration::from_secs(10);

/// The interval at which the configuration is looked at for other clusters.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A cluster's primary, for the control thread.
pub(crate) type Told = (Arc<str>, Primary);

/// A server was lost, or can't be connected to: whoever follows a cluster looks at once.
#[derive(Debug, Clone)]
pub(crate) struct Suspicion(Arc<watch::Sender<()>>);

impl Default for Suspicion {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl Suspicion {
    pub(crate) fn raise(&self) {
        self.0.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}

/// Follows the clusters that the snapshot has, for ever, and tells their primaries.
pub(crate) async fn follow(hub: Arc<Hub>, resolver: Arc<Resolver>, suspicion: Suspicion, told: mpsc::Sender<Told>) {
    let mut tasks = JoinSet::new();
    let mut followed: HashMap<Arc<str>, (Arc<Cluster>, AbortHandle)> = HashMap::new();
    loop {
        let snapshot = hub.snapshot();
        let clusters = || snapshot.clusters.iter().map(|standing| &standing.cluster);
        followed.retain(|_, (known, task)| {
            let stays = clusters().any(|cluster| Arc::ptr_eq(cluster, known));
            if !stays {
                task.abort();
            }
            stays
        });
        for cluster in clusters() {
            followed.entry(cluster.name.clone()).or_insert_with(|| {
                let follower = Follower {
                    cluster: cluster.clone(),
                    hub: hub.clone(),
                    resolver: resolver.clone(),
                    told: told.clone(),
                    members: BTreeSet::new(),
                    next_other: 0,
                    primary: None,
                    started: None,
                    missed: None,
                    said: Said::default(),
                };
                (cluster.clone(), tasks.spawn(follower.run(suspicion.subscribe())))
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
        while tasks.try_join_next().is_some() {}
    }
}

/// Who is asked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Primary,
    Other,
}

impl Turn {
    /// The next one: where all is well they take turns, a hold is over by the primary's word, and another member that has
    /// contradicted it is heard again.
    fn next(self, is_of_primary: bool, is_contested: bool) -> Self {
        match self {
            _ if is_of_primary => Self::Primary,
            Self::Other if !is_contested => Self::Primary,
            _ => Self::Other,
        }
    }
}

/// Whoever follows one cluster.
struct Follower {
    cluster: Arc<Cluster>,
    hub: Arc<Hub>,
    resolver: Arc<Resolver>,
    told: mpsc::Sender<Told>,
    /// The members that others have named.
    members: BTreeSet<Rest>,
    /// Counts those of them that were asked beside the primary.
    next_other: usize,
    /// The member that is the primary, as it said itself when it was asked last.
    primary: Option<Member>,
    /// The time at which its postmaster was started, as it said last.
    started: Option<String>,
    /// The time since which no member has been its primary.
    missed: Option<Instant>,
    said: Said,
}

impl Follower {
    async fn run(mut self, mut suspicion: watch::Receiver<()>) {
        let mut asked_all = Instant::now();
        let (mut in_vain, mut contested) = (0_u32, 0_u32);
        let mut turn = Turn::Primary;
        loop {
            let begun = Instant::now();
            let is_due = begun.duration_since(asked_all) >= ASK_ALL_EVERY;
            let is_known = match turn {
                Turn::Primary => self.ask_primary().await,
                Turn::Other => !self.is_contested().await,
            };
            contested = match turn {
                Turn::Primary => contested,
                Turn::Other if is_known => 0,
                Turn::Other => contested.saturating_add(1),
            };
            if is_due || !is_known {
                asked_all = begun;
                self.search(if in_vain.is_multiple_of(2) { HURRIED_ANSWER_TIME } else { ANSWER_TIME }).await;
                in_vain = if self.primary.is_some() { 0 } else { in_vain.wrapping_add(1) };
            }
            let held = self.hub.hold_of(&self.cluster.name).is_some();
            let is_contested = (1..CONTESTED_MAX).contains(&contested);
            let (pace, hears) = match self.primary {
                _ if held => (ASK_WHILE_HELD_EVERY, false),
                Some(_) if !is_contested => (ASK_EVERY, true),
                _ => (SEARCH_EVERY, false),
            };
            turn = turn.next(held || self.primary.is_none(), is_contested);
            tokio::select! {
                () = sleep_until(begun + pace) => {}
                // Not more often than while there is none, unless clients are held.
                Ok(()) = suspicion.changed(), if hears => {
                    turn = Turn::Primary;
                    if self.hub.hold_of(&self.cluster.name).is_none() {
                        sleep_until(begun + SEARCH_EVERY).await;
                    }
                }
            }
        }
    }

    /// Whether a member that is not the primary, the next one each time, names another holder of the lock: a primary that is
    /// cut off from the others goes on saying for some seconds that it is one.
    async fn is_contested(&mut self) -> bool {
        let Some(primary) = &self.primary else { return true };
        let others: Vec<&Rest> = self.members.iter().filter(|rest| **rest != primary.rest).collect();
        let Some(other) = others.get(self.next_other % others.len().max(1)) else { return false };
        let said = question(&self.resolver, other, self.cluster.tls.clone(), HURRIED_ANSWER_TIME, Members::ask).await;
        let is_contested = said.ok().and_then(|all| Some(all.holder()?.name != primary.name)).unwrap_or(false);
        if !is_contested {
            self.next_other = self.next_other.wrapping_add(1);
        }
        is_contested
    }

    /// Asks the primary whether it still is. `false` if there is none, or it does not say so.
    async fn ask_primary(&mut self) -> bool {
        let Some(member) = &self.primary else { return false };
        match ask(&self.resolver, &self.cluster, member, ANSWER_TIME).await {
            Ok(found) => {
                self.found(found, BTreeSet::new()).await;
                true
            }
            Err(_) => {
                self.primary = None;
                false
            }
        }
    }

    /// Asks all members who is the primary, and that one whether it is.
    async fn search(&mut self, time_max: Duration) {
        let mut tasks = JoinSet::new();
        for rest in self.cluster.members.iter().chain(&self.members).cloned().collect::<BTreeSet<_>>() {
            let (resolver, cluster) = (self.resolver.clone(), self.cluster.clone());
            tasks.spawn(async move {
                let members = question(&resolver, &rest, cluster.tls.clone(), time_max, Members::ask).await;
                let leader = members.as_ref().ok().and_then(|all| placed(all.holder()?));
                let Some(leader) = leader else { return (rest, members, None) };
                let primary = ask(&resolver, &cluster, &leader, time_max).await.map(|found| (leader, found));
                (rest, members, Some(primary))
            });
        }
        let (mut faults, mut named) = (BTreeSet::new(), BTreeSet::new());
        let mut best: Option<(Member, Found)> = None;
        let mut deadline = Instant::now() + ROUND_TIME;
        while let Ok(Some(Ok((rest, members, primary)))) = timeout(deadline - Instant::now(), tasks.join_next()).await {
            match members {
                Ok(all) => {
                    named.extend(all.holder().map(|holder| holder.name.clone()));
                    self.members = all.members.iter().filter_map(|member| member.rest()).collect();
                }
                Err(error) => {
                    faults.insert(format!("{rest} can't be asked: {}", unanswered(&error)));
                    continue;
                }
            }
            match primary {
                Some(Ok(found)) => {
                    if best.as_ref().is_none_or(|(_, known)| known.0.timeline < found.1.0.timeline) {
                        best = Some(found);
                    }
                    deadline = deadline.min(Instant::now() + OTHERS_TIME);
                }
                Some(Err(error)) => {
                    faults.insert(error);
                }
                None => {
                    faults.insert("it has no leader".to_owned());
                }
            }
        }
        let best = match best {
            Some(best) => self.where_it_says(best, &named, time_max).await.map_err(|fault| faults.insert(fault)).ok(),
            None => None,
        };
        let (member, primary) = best.unzip();
        self.primary = member;
        match primary {
            Some(primary) => self.found(primary, faults).await,
            None => {
                self.missed.get_or_insert_with(Instant::now);
                faults.insert("no member is its primary; clients wait for one".to_owned());
                self.say(faults);
            }
        }
    }

    /// The primary that has been found, at the address that it says itself if others say that it has moved.
    ///
    /// It has answered as the holder of the lock, by which it is the one whom its own view names as that. Nobody else may be
    /// named: where two are, one of them has an old view, and it is not known which.
    async fn where_it_says(
        &self,
        (member, (primary, started)): (Member, Found),
        named: &BTreeSet<String>,
        time_max: Duration,
    ) -> Result<(Member, Found), String> {
        let Some(known) = self.known().filter(|known| primary.has_moved_from(known)) else {
            return Ok((member, (primary, started)));
        };
        let name = &member.name;
        let own = question(&self.resolver, &member.rest, self.cluster.tls.clone(), time_max, Members::ask).await;
        let own = own.map_err(|error| format!("node \"{name}\" does not say where it is: {}", unanswered(&error)))?;
        let Some(own) = own.holder().filter(|holder| holder.name == *name).and_then(placed) else {
            return Err(format!("node \"{name}\" does not say itself that it holds the lock, and where it is"));
        };
        if let Some(other) = named.iter().find(|other| *other != name).filter(|_| own.address != known.address) {
            let address = &own.address;
            return Err(format!(
                "node \"{name}\" says that it is at {address} now, and another member that \"{other}\" holds the lock"
            ));
        }
        let address = match self.is_listened_at(&own.address, time_max).await {
            true => own.address,
            // Patroni may announce what PostgreSQL is to have after its next restart only.
            false => known.address,
        };
        let primary = Primary { address: address.clone(), ..primary };
        Ok((Member { address, ..member }, (primary, started)))
    }

    /// Whether somebody takes connections there.
    async fn is_listened_at(&self, address: &Address, time_max: Duration) -> bool {
        let Address::Tcp(host, port) = address else { return false };
        let connect = async {
            for ip in self.resolver.addresses_of_member(host, time_max).await.unwrap_or_default() {
                if TcpStream::connect((ip, *port)).await.is_ok() {
                    return true;
                }
            }
            false
        };
        timeout(time_max, connect).await.unwrap_or(false)
    }

    /// The primary that the snapshot has had last.
    fn known(&self) -> Option<Primary> {
        self.standing().and_then(|standing| standing.last_primary().cloned())
    }

    fn standing(&self) -> Option<Standing> {
        self.hub.snapshot().clusters.iter().find(|standing| standing.cluster.name == self.cluster.name).cloned()
    }

    /// Tells the primary that has been found, unless it is known.
    async fn found(&mut self, (primary, started): Found, mut faults: BTreeSet<String>) {
        let standing = self.standing();
        let known = standing.as_ref().and_then(Standing::last_primary);
        let is_withdrawn = standing.as_ref().is_some_and(|standing| standing.withdrawn.is_some());
        match known.map(|known| primary.follows(known)) {
            Some(Err(error)) => {
                let mut fault = error.to_string();
                self.primary = None;
                if known.is_some_and(|known| primary.has_replaced(known)) {
                    fault += "; nobody is connected there. Where clients are to work with those data, restart the pool";
                    if !is_withdrawn && self.told.send((self.cluster.name.clone(), primary)).await.is_err() {
                        return;
                    }
                }
                faults.insert(fault);
            }
            _ if known == Some(&primary) && !is_withdrawn => {
                // That another one has taken its place is said by whoever hears of it.
                if let Some(since) = self.missed.take() {
                    let (name, node, gap_s) = (&self.cluster.name, &primary.node, since.elapsed().as_secs_f64());
                    tracing::info!("cluster \"{name}\": node \"{node}\" is its primary again, after {gap_s:.1} s");
                }
                // What was held for a restart of its own has no other end.
                if self.started.is_some() && started.is_some() && self.started != started {
                    self.hub.end_hold(&self.cluster.name, Held::Restarted);
                }
                self.started = started;
            }
            _ => {
                self.resolver.know_besides([&primary.address]).await;
                (self.started, self.missed) = (started, None);
                if self.told.send((self.cluster.name.clone(), primary)).await.is_err() {
                    return;
                }
            }
        }
        self.say(faults);
    }

    /// Says in the log what has not been said already.
    fn say(&mut self, faults: BTreeSet<String>) {
        for fault in self.said.news(Instant::now(), faults) {
            tracing::warn!("cluster \"{}\": {fault}", self.cluster.name);
        }
    }
}

/// Faults that the log has been told of, each with the time at which it was there last: some are there in every other
/// round only, as the time for an answer changes, and are not told anew for that.
#[derive(Debug, Default)]
struct Said(HashMap<String, Instant>);

impl Said {
    /// Those of the faults that the log has not been told of lately.
    fn news(&mut self, now: Instant, faults: BTreeSet<String>) -> Vec<String> {
        self.0.retain(|_, last| now.duration_since(*last) < SAID_FOR);
        faults.into_iter().filter(|fault| self.0.insert(fault.clone(), now).is_none()).collect()
    }
}

/// The words for an answer that there is not. They are the same whichever time it was given.
fn unanswered(error: &AskError) -> String {
    match error {
        AskError::Silent(_) => format!(
            "no answer within {:.1} s, or {:.1} s in every other round",
            HURRIED_ANSWER_TIME.as_secs_f64(),
            ANSWER_TIME.as_secs_f64()
        ),
        error => error.to_string(),
    }
}

/// A primary, and the time at which its postmaster was started.
type Found = (Primary, Option<String>);

/// Asks a member whether it is the primary.
async fn ask(
    resolver: &Arc<Resolver>,
    cluster: &Cluster,
    member: &Member,
    time_max: Duration,
) -> Result<Found, String> {
    let own = question(resolver, &member.rest, cluster.tls.clone(), time_max, Own::ask_primary).await;
    let own = own.map_err(|error| {
        format!("node \"{}\" does not say that it is the primary: {}", member.name, unanswered(&error))
    })?;
    let (Some(timeline), Some(system)) = (own.timeline, own.system) else {
        return Err(format!(
            "node \"{}\" holds the lock, and the state of its PostgreSQL is: {}",
            member.name, own.state
        ));
    };
    let primary = Primary { node: member.name.clone(), address: member.address.clone(), timeline, system };
    Ok((primary, own.started))
}

/// Asks a member something. The time is for all of it, the look-up of its name included.
pub(crate) async fn question<T: Send + 'static>(
    resolver: &Arc<Resolver>,
    rest: &Rest,
    tls: Option<Arc<ClientTls>>,
    time_max: Duration,
    ask: fn(&Question<'_>) -> Result<T, AskError>,
) -> Result<T, AskError> {
    let deadline = Instant::now() + time_max;
    let addresses = resolver.addresses_of_member(&rest.host, time_max).await;
    let addresses = addresses.map_err(|error| AskError::Io(io::Error::other(error)))?;
    let time_left = deadline.saturating_duration_since(Instant::now());
    let rest = rest.clone();
    let asked = tokio::task::spawn_blocking(move || {
        ask(&Question {
            rest: &rest,
            addresses: &addresses,
            tls: tls.as_deref(),
            credentials: None,
            time_max: time_left,
        })
    });
    match timeout(time_left, asked).await {
        Ok(Ok(Err(AskError::Silent(_)))) | Ok(Err(_)) | Err(_) => Err(AskError::Silent(time_max)),
        Ok(Ok(answer)) => answer,
    }
}

/// A member that has said where it is.
pub(crate) fn placed(member: &sluice_patroni::Member) -> Option<Member> {
    Some(Member { name: member.name.clone(), rest: member.rest()?, address: member.address()? })
}

#[cfg(test)]
mod tests {
    use super::{
        Turn::{Other, Primary},
        *,
    };

    #[test]
    fn faults_are_told_once_while_they_come_and_go() {
        let mut said = Said::default();
        let begin = Instant::now();
        let mut told = |ms: u64, faults: &[&str]| {
            let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
            said.news(begin + Duration::from_millis(ms), faults)
        };
        assert_eq!(told(0, &["a is silent", "there is no primary"]), ["a is silent", "there is no primary"]);
        for round in 1..100 {
            let faults: &[&str] = if round % 2 == 0 { &["a is silent"] } else { &[] };
            assert!(told(round * 200, faults).is_empty(), "{round}");
        }
        assert_eq!(told(20_000, &["b is silent", "there is no primary"]), ["b is silent", "there is no primary"]);
        assert_eq!(told(40_000, &["a is silent"]), ["a is silent"]);
    }

    #[test]
    fn silence_has_one_text_whichever_time_was_given() {
        let [hurried, calm] = [HURRIED_ANSWER_TIME, ANSWER_TIME].map(|time| unanswered(&AskError::Silent(time)));
        assert_eq!(hurried, calm);
    }

    #[test]
    fn who_is_asked_next() {
        for (turn, is_of_primary, is_contested, next) in [
            (Primary, false, false, Other),
            (Other, false, false, Primary),
            (Other, false, true, Other),
            (Other, true, true, Primary),
            (Primary, true, false, Primary),
        ] {
            assert_eq!(Turn::next(turn, is_of_primary, is_contested), next, "{turn:?} {is_of_primary} {is_contested}");
        }
    }
}
