//! Following clusters: which node is the primary, as the members say by Patroni's REST interface.
//!
//! Any member tells who holds the leader's lock (`GET /cluster`); that node is asked itself whether it holds it and is
//! out of recovery (`GET /primary`), and by which timeline it writes. A node that does not answer that is not the
//! primary, and what was seen last stays until another one is.

mod rest;
mod view;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use sluice_control::cluster::{Cluster, Primary, Rest};
use sluice_core::hub::Hub;
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::resolver::Resolver;

use view::{Member, Role};

/// The interval at which a primary is asked whether it still is.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The same at which all members are, while there seems to be none.
const SEARCH_EVERY: Duration = Duration::from_millis(200);

/// The interval at which all members are asked though the primary says that it is.
const ASK_ALL_EVERY: Duration = Duration::from_secs(10);

/// The time that others have for their answers once one has said who is the primary: an older one may have been quicker.
const OTHERS_TIME: Duration = Duration::from_millis(100);

/// The time within which all members answer, or do not count.
const ROUND_TIME: Duration = Duration::from_secs(2);

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
                    primary: None,
                    said: BTreeSet::new(),
                };
                (cluster.clone(), tasks.spawn(follower.run(suspicion.0.subscribe())))
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
        while tasks.try_join_next().is_some() {}
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
    /// The member that is the primary, as it said itself when it was asked last.
    primary: Option<Member>,
    /// Faults that the log has been told of.
    said: BTreeSet<String>,
}

impl Follower {
    async fn run(mut self, mut suspicion: watch::Receiver<()>) {
        let mut asked_all = Instant::now();
        loop {
            let begun = Instant::now();
            let is_due = begun.duration_since(asked_all) >= ASK_ALL_EVERY;
            if is_due || !self.ask_primary().await {
                asked_all = begun;
                self.search().await;
            }
            let (pace, hears) = if self.primary.is_some() { (ASK_EVERY, true) } else { (SEARCH_EVERY, false) };
            tokio::select! {
                () = sleep_until(begun + pace) => {}
                // Not more often than while there is none.
                Ok(()) = suspicion.changed(), if hears => sleep_until(begun + SEARCH_EVERY).await,
            }
        }
    }

    /// Asks the primary whether it still is. `false` if there is none, or it does not say so.
    async fn ask_primary(&mut self) -> bool {
        let Some(member) = &self.primary else { return false };
        match ask(&self.cluster, member).await {
            Ok(primary) => {
                self.found(primary, BTreeSet::new()).await;
                true
            }
            Err(_) => {
                self.primary = None;
                false
            }
        }
    }

    /// Asks all members who is the primary, and that one whether it is.
    async fn search(&mut self) {
        let mut tasks = JoinSet::new();
        for rest in self.cluster.members.iter().chain(&self.members).cloned().collect::<BTreeSet<_>>() {
            let cluster = self.cluster.clone();
            tasks.spawn(async move {
                let members = view::members(&rest, cluster.tls.as_deref()).await;
                let Some(leader) = members.as_ref().ok().and_then(|all| all.iter().find(|it| it.role == Role::Leader))
                else {
                    return (rest, members, None);
                };
                let primary = ask(&cluster, leader).await.map(|primary| (leader.clone(), primary));
                (rest, members, Some(primary))
            });
        }
        let mut faults = BTreeSet::new();
        let mut best: Option<(Member, Primary)> = None;
        let mut deadline = Instant::now() + ROUND_TIME;
        while let Ok(Some(Ok((rest, members, primary)))) = timeout(deadline - Instant::now(), tasks.join_next()).await {
            match members {
                Ok(members) => self.members = members.into_iter().map(|member| member.rest).collect(),
                Err(error) => {
                    faults.insert(format!("{rest} can't be asked: {error}"));
                    continue;
                }
            }
            match primary {
                Some(Ok(found)) => {
                    if best.as_ref().is_none_or(|(_, known)| known.timeline < found.1.timeline) {
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
        let (member, primary) = best.unzip();
        self.primary = member;
        match primary {
            Some(primary) => self.found(primary, faults).await,
            None => {
                faults.insert("no member is its primary; clients wait for one".to_owned());
                self.say(faults);
            }
        }
    }

    /// Tells the primary that has been found, unless it is known.
    async fn found(&mut self, primary: Primary, mut faults: BTreeSet<String>) {
        let snapshot = self.hub.snapshot();
        let standing = snapshot.clusters.iter().find(|standing| standing.cluster.name == self.cluster.name);
        let known = standing.and_then(|standing| standing.primary.as_ref());
        match known.map(|known| primary.follows(known)) {
            Some(Err(error)) => {
                faults.insert(error.to_string());
                self.primary = None;
            }
            _ if known == Some(&primary) => {}
            _ => {
                let (resolver, address) = (self.resolver.clone(), primary.address.clone());
                // A name server may take its time, and that is not the runtime's.
                let resolved = tokio::task::spawn_blocking(move || resolver.know_besides(&address)).await;
                if resolved.is_err() || self.told.send((self.cluster.name.clone(), primary)).await.is_err() {
                    return;
                }
            }
        }
        self.say(faults);
    }

    /// Says in the log what has not been said already.
    fn say(&mut self, faults: BTreeSet<String>) {
        for fault in faults.difference(&self.said) {
            tracing::warn!("cluster \"{}\": {fault}", self.cluster.name);
        }
        self.said = faults;
    }
}

/// Asks a member whether it is the primary.
async fn ask(cluster: &Cluster, member: &Member) -> Result<Primary, String> {
    let own = view::own(&member.rest, cluster.tls.as_deref()).await;
    let own = own.map_err(|error| format!("node \"{}\" does not say that it is the primary: {error}", member.name))?;
    Ok(Primary {
        node: member.name.clone(),
        address: member.address.clone(),
        timeline: own.timeline,
        system: own.system,
    })
}
