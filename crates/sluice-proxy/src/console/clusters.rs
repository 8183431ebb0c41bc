//! `HOLD`, `RELEASE` and `SHOW CLUSTERS`: a cluster's clients are held while its primary changes hands, so that none is in
//! the midst of a transaction then.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use sluice_control::{address::Address, cluster::Standing, settings::PoolMode};
use sluice_core::{
    hub::{Held, Pool},
    ids::ServerRef,
    listing::ListedServer,
};
use sluice_wire::{ErrorResponse, sqlstate};

use super::{Cancel, Console, LOOKS_EVERY, rows::Table, tables::host_and_port};

/// The time for which transactions may go on where nobody says otherwise.
pub(super) const WAIT: Duration = Duration::from_secs(10);

/// The time for which clients are held at most where nobody says otherwise: whoever asks may die.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The interval at which it is looked whether a hold is over.
const ENDS_EVERY: Duration = Duration::from_millis(5);

/// The lengths of the last holds, by clusters.
pub(super) type Lengths = BTreeMap<Arc<str>, Duration>;

impl Console {
    /// Holds the clients of a cluster, and waits until none is in a transaction.
    pub(super) async fn hold(
        self: &Arc<Self>,
        cluster: &str,
        (wait, longest): (Duration, Duration),
        cancel: &Cancel,
    ) -> Result<(), ErrorResponse> {
        let deadline = Instant::now() + wait;
        let standing = self.standing(cluster)?;
        let name = standing.cluster.name.clone();
        let is_new = self.hub.hold_of(&name).is_none();
        let now = self.now();
        self.mailboxes.call_in(self.hub.hold(now, &name, now + longest));
        self.suspicion.raise();
        if is_new {
            tracing::info!("cluster \"{name}\": its clients are held from their next transactions on");
            let console = self.clone();
            let name = name.clone();
            tokio::spawn(async move { console.until_hold_ends(name).await });
        }
        let mut rested = HashSet::new();
        loop {
            let open = self.open_transactions(&standing, &mut rested).await?;
            if open == 0 || self.hub.hold_of(&name).is_none() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (open, have) = match open {
                    1 => ("a transaction".to_owned(), "has"),
                    open => (format!("{open} transactions"), "have"),
                };
                let seconds = wait.as_secs_f64();
                let error = format!("{open} of clients of cluster \"{name}\" {have} not ended within {seconds} s");
                let error = ErrorResponse::error(sqlstate::LOCK_NOT_AVAILABLE, error);
                return Err(error.hint("Clients are still held: HOLD again waits on, and RELEASE ends it."));
            }
            cancel.or(tokio::time::sleep(LOOKS_EVERY)).await.map_err(|cancelled| match is_new {
                true => {
                    self.hub.end_hold(&name, Held::Released);
                    cancelled.error("Clients go on: the HOLD is taken back.")
                }
                false => cancelled.error("The HOLD of before goes on: RELEASE ends it."),
            })?;
        }
    }

    /// Ends a hold.
    pub(super) fn release(&self, cluster: &str) -> Result<(), ErrorResponse> {
        let name = self.standing(cluster)?.cluster.name.clone();
        if self.hub.end_hold(&name, Held::Released) {
            return Ok(());
        }
        let error = format!("the clients of cluster \"{name}\" are not held");
        Err(ErrorResponse::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, error))
    }

    fn standing(&self, cluster: &str) -> Result<Standing, ErrorResponse> {
        let snapshot = self.hub.snapshot();
        let standing = snapshot.clusters.iter().find(|standing| *standing.cluster.name == *cluster);
        standing.cloned().ok_or_else(|| {
            let error = ErrorResponse::error(sqlstate::UNDEFINED_OBJECT, format!("no such cluster: {cluster}"));
            error.hint("SHOW CLUSTERS lists them.")
        })
    }

    /// Keeps the length of a hold, and says how it has ended.
    async fn until_hold_ends(&self, cluster: Arc<str>) {
        let Some(hold) = self.hub.hold_of(&cluster) else { return };
        while self.hub.hold_of(&cluster).is_some_and(|now| now.since == hold.since) {
            tokio::time::sleep(ENDS_EVERY).await;
        }
        let length = self.now().since(hold.since);
        let why = match self.hub.last_hold_of(&cluster) {
            Some(Held::Changed) => "there is another primary",
            Some(Held::Restarted) => "the primary has been restarted",
            Some(Held::Released) => "RELEASE",
            Some(Held::Expired) => "the time was over",
            None => "nothing is known of it",
        };
        tracing::info!("cluster \"{cluster}\": clients go on after {:.3} s: {why}", length.as_secs_f64());
        self.hold_lengths.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster, length);
    }

    /// The number of transactions that are open in a cluster. A session that keeps its server is waited for once: it is
    /// not held, and `rested` has those that were between two transactions when they were looked at.
    async fn open_transactions(
        &self,
        standing: &Standing,
        rested: &mut HashSet<ServerRef>,
    ) -> Result<usize, ErrorResponse> {
        let shared = |pool: &&Arc<Pool>| pool.sharing.mode == PoolMode::Transaction;
        let active = |pool: &Arc<Pool>| {
            let counts = pool.state().counts();
            counts.open.saturating_sub(counts.idle + counts.connecting + counts.pinned) as usize
        };
        let pools = self.hub.pools_of_cluster(&standing.cluster.name);
        let busy: usize = pools.iter().filter(shared).map(active).sum();
        let Some(address) = standing.primary.as_ref().map(|primary| &primary.address) else { return Ok(busy) };
        if busy > 0 {
            return Ok(busy);
        }
        let servers = self.listed().await?.listing.servers;
        let (busy, free): (Vec<ListedServer>, Vec<_>) =
            servers.into_iter().filter(|it| it.client.is_some() && it.address == *address).partition(|it| it.is_busy);
        rested.extend(free.into_iter().map(|it| it.server));
        Ok(busy.iter().filter(|it| !rested.contains(&it.server)).count())
    }

    pub(super) async fn clusters(&self) -> Result<Table, ErrorResponse> {
        const COLUMNS: [&str; 11] = [
            "name",
            "node",
            "host",
            "port",
            "timeline",
            "held",
            "held_us",
            "hold_ended",
            "clients",
            "cl_waiting",
            "sv_busy",
        ];
        let mut table = Table::new(&COLUMNS, &["name", "node", "host", "hold_ended"]);
        let (now, figures, servers) = (self.now(), self.figures(), self.listed().await?.listing.servers);
        let lengths = self.hold_lengths.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for standing in &self.hub.snapshot().clusters {
            let name = &standing.cluster.name;
            let nowhere = Address::Primary(name.clone());
            let address = standing.primary.as_ref().map_or(&nowhere, |primary| &primary.address);
            let (host, port) = host_and_port(address);
            let hold = self.hub.hold_of(name);
            let length = hold.map(|hold| now.since(hold.since)).or_else(|| lengths.get(name).copied());
            let ended = hold.map_or_else(|| self.hub.last_hold_of(name), |_| None).map(word);
            let pools = figures.pools.iter().filter(|pool| pool.address == *address);
            let (clients, waiting) =
                pools.fold((0, 0), |(clients, waiting), pool| (clients + pool.clients, waiting + pool.counts.waiting));
            let busy = servers.iter().filter(|server| server.is_busy && server.address == *address).count();
            table.push([
                (**name).into(),
                standing.primary.as_ref().map(|primary| primary.node.clone()).into(),
                host.into(),
                port.into(),
                standing.primary.as_ref().map(|primary| primary.timeline).into(),
                u32::from(hold.is_some()).into(),
                length.map(|length| length.as_micros() as u64).into(),
                ended.into(),
                clients.into(),
                waiting.into(),
                (busy as u64).into(),
            ]);
        }
        Ok(table)
    }
}

/// The way in which a hold has ended, in a word.
fn word(held: Held) -> &'static str {
    match held {
        Held::Changed => "changed",
        Held::Restarted => "restarted",
        Held::Released => "released",
        Held::Expired => "expired",
    }
}
