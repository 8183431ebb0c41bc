//! The control thread: it is told what has been observed, has `sluice-control` decide, and publishes what that comes
//! to. It also looks up secrets and keeps host names; none of this ever keeps a worker waiting.

use std::{sync::Arc, time::Duration};

use sluice_control::{Change, Configuration, Control, Observation};
use sluice_core::{hub::Hub, mail::Mail};
use tokio::sync::{mpsc, oneshot};

use crate::{
    lookup::{self, Asker, Request},
    mailbox::Mailboxes,
    resolver::Resolver,
};

/// The interval at which host names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// Orders under way at once, at most.
const ORDERS_MAX: usize = 16;

/// An order to the control thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Go by this configuration, and say what has changed.
    Configure(Box<Configuration>, oneshot::Sender<Vec<Change>>),
    /// End.
    Stop,
}

/// The way to the control thread.
pub(crate) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS_MAX)
}

/// The control thread's work, until it is told to end.
pub(crate) async fn control(
    control: Control,
    orders: mpsc::Receiver<Order>,
    requests: mpsc::Receiver<Request>,
    asker: Asker,
    hub: Arc<Hub>,
    mailboxes: Arc<Mailboxes>,
) {
    let names = keep_names(asker.resolver.clone());
    tokio::select! {
        () = obey(control, orders, &hub, &mailboxes) => {}
        () = names => {}
        () = lookup::answer(Arc::new(asker), requests) => {}
    }
}

/// Carries out orders, one after the other.
async fn obey(mut control: Control, mut orders: mpsc::Receiver<Order>, hub: &Hub, mailboxes: &Mailboxes) {
    while let Some(Order::Configure(configuration, done)) = orders.recv().await {
        let mut changes = Vec::new();
        if let Some(published) = control.observe(Observation::Configured(*configuration)) {
            changes = published.changes;
            hub.publish(published.snapshot);
            mailboxes.send_all(|| Mail::Published);
        }
        // Nobody may be left to hear it.
        let _ = done.send(changes);
    }
}

/// Resolves host names again and again, and keeps nothing else waiting, however slow that is.
async fn keep_names(resolver: Arc<Resolver>) {
    loop {
        tokio::time::sleep(RESOLVE_EVERY).await;
        if !resolver.has_names() {
            continue;
        }
        let resolver = resolver.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || resolver.refresh()).await {
            tracing::error!("resolving host names: {error}");
        }
    }
}
