//! The control thread: it is told what has been observed, has `sluice-control` decide, and publishes what that comes
//! to. It also looks up secrets, and has host names looked up again; none of this ever keeps a worker waiting.

use std::{
    os::unix::net::UnixListener,
    sync::{Arc, mpsc as std_mpsc},
};

use sluice_control::{Change, Configuration, Control, Observation};
use sluice_core::{hub::Hub, mail::Mail};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

use crate::{
    clusters::{self, Suspicion},
    desk::Desk,
    lookup::{self, Asker, Request},
    mailbox::Mailboxes,
    nodes, server_rules,
};

/// Orders under way at once, at most.
const ORDERS_MAX: usize = 16;

/// An order to the control thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Go by this configuration, and say what has changed.
    Configure(Box<Configuration>, oneshot::Sender<Vec<Change>>),
    /// Say that you are there.
    Answer(std_mpsc::Sender<()>),
    /// Answer by HTTP no more, and hear at this socket which cancels a successor passes on.
    HandOver(UnixListener),
    /// End.
    Stop,
}

/// The way to the control thread.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS_MAX)
}

/// The things that the control thread works with.
pub(crate) struct Office {
    pub(crate) hub: Arc<Hub>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) desk: Arc<Desk>,
    /// Ended where a successor answers by HTTP.
    pub(crate) http: AbortHandle,
    pub(crate) suspicion: Suspicion,
}

impl Office {
    /// Publishes what an observation leads to.
    fn observe(&self, control: &mut Control, observation: Observation) -> Vec<Change> {
        let Some(published) = control.observe(observation) else { return Vec::new() };
        self.hub.publish(published.snapshot);
        self.mailboxes.send_all(|| Mail::Published);
        published.changes
    }
}

/// The control thread's work, until it is told to end.
pub(crate) async fn control(
    control: Control,
    orders: mpsc::Receiver<Order>,
    requests: mpsc::Receiver<Request>,
    asker: Asker,
    office: Office,
) {
    let names = asker.resolver.clone().keep();
    let (tell_rules, rules_told) = mpsc::channel(1);
    let rules = server_rules::follow(office.hub.clone(), asker.resolver.clone(), tell_rules);
    let (tell_primaries, primaries_told) = mpsc::channel(1);
    let followed =
        clusters::follow(office.hub.clone(), asker.resolver.clone(), office.suspicion.clone(), tell_primaries);
    let (tell_nodes, nodes_told) = mpsc::channel(1);
    let suspicion = (office.suspicion.clone(), asker.epoch);
    let looked_at = nodes::follow(office.hub.clone(), asker.resolver.clone(), suspicion, tell_nodes);
    let told = ToldOf { rules: rules_told, primaries: primaries_told, nodes: nodes_told };
    tokio::select! {
        () = obey(control, orders, told, office) => {}
        () = followed => {}
        () = looked_at => {}
        () = rules => {}
        () = names => {}
        () = lookup::answer(Arc::new(asker), requests) => {}
    }
}

/// The news of others.
struct ToldOf {
    /// Rules of a server.
    rules: mpsc::Receiver<server_rules::Told>,
    /// Primaries of clusters.
    primaries: mpsc::Receiver<clusters::Told>,
    /// Nodes of clusters that have readers.
    nodes: mpsc::Receiver<nodes::Told>,
}

/// Carries out orders, and goes by what others tell, one after the other.
async fn obey(mut control: Control, mut orders: mpsc::Receiver<Order>, mut told: ToldOf, office: Office) {
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            Some((cluster, primary)) = told.primaries.recv() => {
                for change in office.observe(&mut control, Observation::Primary(cluster, primary)) {
                    tracing::info!("{change}");
                }
                continue;
            }
            Some((cluster, nodes)) = told.nodes.recv() => {
                office.hub.tell_nodes(&cluster, nodes.clone().into());
                for change in office.observe(&mut control, Observation::Nodes(cluster, nodes)) {
                    tracing::info!("{change}");
                }
                continue;
            }
            Some((address, rules)) = told.rules.recv() => {
                // Of others it has been said already what is the matter with them.
                let loaded = rules.as_ref().filter(|rules| rules.unloaded.is_none()).map(|rules| rules.rules.rules().len());
                let changes = office.observe(&mut control, Observation::ServerRules(address.clone(), rules));
                if let (Some(count), false) = (loaded, changes.is_empty()) {
                    tracing::info!("clients are let in by the {count} access rules of {address}");
                }
                continue;
            }
        };
        let Some(order) = order else { return };
        match order {
            Order::Configure(configuration, done) => {
                let changes = office.observe(&mut control, Observation::Configured(configuration));
                // Nobody may be left to hear it.
                let _ = done.send(changes);
            }
            Order::Answer(answer) => {
                // It may have waited too long already.
                let _ = answer.send(());
            }
            Order::HandOver(cancels) => {
                office.http.abort();
                let hear = office.desk.clone().hear(cancels, office.mailboxes.clone(), office.hub.workers);
                tokio::spawn(async move {
                    if let Err(error) = hear.await {
                        tracing::error!("cancels of clients by the new process are no longer heard: {error}");
                    }
                });
            }
            Order::Stop => return,
        }
    }
}
