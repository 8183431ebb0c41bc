//! `HOLD`, `RELEASE` and `SHOW CLUSTERS`: a cluster's clients are held while its primary changes hands, so that none is in
//! the midst of a transaction then.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use sluice_control::{address::Address, cluster::Standing, settings::PoolMode};
use sluice_core::{
    hub::{Held, Hub, Pool},
    ids::ServerRef,
    listing::ListedServer,
};
use sluice_wire::{ErrorResponse, sqlstate};

use super::{Cancel, Console, LOOKS_EVERY, rows::Table, tables::host_and_port, waits::Setting};

/// The time for which transactions may go on where nobody says otherwise.
pub(super) const WAIT: Duration = Duration::from_secs(10);

/// The time for which clients are held at most where nobody says otherwise, if transactions have [`WAIT`]: whoever asks may
/// die.
const LONGEST: Duration = Duration::from_secs(30);

/// The time that a hold goes on behind the one for transactions, where nobody says otherwise: another primary comes then.
const BEHIND: Duration = Duration::from_secs(20);

/// The interval at which it is looked whether a hold is over.
const ENDS_EVERY: Duration = Duration::from_millis(5);

/// The lengths of the last holds, by clusters.
pub(super) type Lengths = BTreeMap<Arc<str>, Duration>;

/// The time for which clients are held at most where only the one for transactions is given.
pub(super) fn longest(wait: Duration) -> Duration {
    LONGEST.max(wait + BEHIND)
}

/// The error for a hold that would end before transactions have had their time.
fn too_short(wait: Duration, longest: Duration) -> ErrorResponse {
    let [wait, longest] = [wait, longest].map(|time| time.as_secs_f64());
    let error = format!("clients would go on after {longest} s, when transactions have not had their {wait} s yet");
    ErrorResponse::error(sqlstate::INVALID_PARAMETER_VALUE, error)
        .hint("Give a second time that is more than the first, or leave it out: nobody is held.")
}

impl Console {
    /// Holds the clients of a cluster, and waits until none is in a transaction. An error, unless that is so, or the hold has
    /// done what it was for.
    pub(super) async fn hold(
        self: &Arc<Self>,
        cluster: &str,
        (wait, longest): (Duration, Duration),
        cancel: &Cancel,
    ) -> Result<(), ErrorResponse> {
        let standing = self.standing(cluster)?;
        let name = standing.cluster.name.clone();
        if longest <= wait {
            return Err(too_short(wait, longest));
        }
        let setting = Setting::Hold(name.clone());
        let is_new = self.hub.hold_of(&name).is_none();
        self.waits.join(&setting, !is_new);
        let now = self.now();
        self.mailboxes.call_in(self.hub.hold(now, &name, now + longest));
        self.suspicion.raise();
        if is_new {
            tracing::info!("cluster \"{name}\": its clients are held from their next transactions on");
            let console = self.clone();
            let name = name.clone();
            tokio::spawn(async move { console.until_hold_ends(name).await });
        }
        let waited = cancel.or(self.until_at_rest(&standing, wait)).await;
        if matches!(waited, Ok(Ok(Waited::AtRest | Waited::InVain(_)))) {
            self.waits.keep(&setting);
        }
        let is_nobodys = self.waits.leave(&setting);
        match waited {
            Ok(waited) => waited?.answer(&name, wait),
            Err(cancelled) if is_nobodys => {
                self.hub.end_hold(&name, Held::Released);
                Err(cancelled.error("Clients go on: the HOLD is taken back."))
            }
            Err(cancelled) => Err(cancelled.error("Another HOLD goes on: RELEASE ends it.")),
        }
    }

    /// Waits until no transaction is open in a cluster whose clients are held, for so long at most.
    async fn until_at_rest(&self, standing: &Standing, wait: Duration) -> Result<Waited, ErrorResponse> {
        let deadline = Instant::now() + wait;
        let name = &standing.cluster.name;
        let since = |hub: &Hub| hub.hold_of(name).map(|hold| hold.since);
        let ours = since(&self.hub);
        let mut rested = HashSet::new();
        loop {
            let open = self.open_transactions(standing, &mut rested).await?;
            // Behind the look: what is at rest counts only where it stays so.
            if ours.is_none() || since(&self.hub) != ours {
                return Ok(Waited::Ended(self.hub.last_hold_of(name), open));
            }
            if open == 0 {
                return Ok(Waited::AtRest);
            }
            if Instant::now() >= deadline {
                return Ok(Waited::InVain(open));
            }
            tokio::time::sleep(LOOKS_EVERY).await;
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

/// The end of a wait for transactions, with the number of those that are still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// None is.
    AtRest,
    /// They have had their time, and clients are still held.
    InVain(usize),
    /// Clients are not held any longer, which may be what the hold was for.
    Ended(Option<Held>, usize),
}

impl Waited {
    fn answer(self, cluster: &str, wait: Duration) -> Result<(), ErrorResponse> {
        match self {
            Self::AtRest | Self::Ended(Some(Held::Changed | Held::Restarted), _) => Ok(()),
            Self::InVain(open) => {
                let (open, have) = match open {
                    1 => ("a transaction".to_owned(), "has"),
                    open => (format!("{open} transactions"), "have"),
                };
                let seconds = wait.as_secs_f64();
                let error = format!("{open} of clients of cluster \"{cluster}\" {have} not ended within {seconds} s");
                let error = ErrorResponse::error(sqlstate::LOCK_NOT_AVAILABLE, error);
                Err(error.hint("Clients are still held: HOLD again waits on, and RELEASE ends it."))
            }
            Self::Ended(how, open) => {
                let open = match open {
                    0 => "no transaction is open".to_owned(),
                    1 => "a transaction is still open".to_owned(),
                    open => format!("{open} transactions are still open"),
                };
                let (why, hint) = match how {
                    Some(Held::Expired) => (
                        "the hold's time was over",
                        "Give HOLD more time in all than transactions have: the first number is that of their seconds, the \
                         second one that of all.",
                    ),
                    _ => ("another session has ended the hold", "HOLD again, once nobody needs clients to go on."),
                };
                let error = format!("the clients of cluster \"{cluster}\" are held no longer: {why}, and {open}");
                Err(ErrorResponse::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, error).hint(hint))
            }
        }
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
