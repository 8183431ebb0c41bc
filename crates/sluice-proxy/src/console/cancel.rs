//! Cancels of commands that wait: a PAUSE, a DRAIN or a HOLD for the transactions under way. Other commands go on to their
//! ends, as they do not wait for clients.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Weak},
};

use sluice_core::ids::ClientRef;
use sluice_wire::{ErrorResponse, sqlstate};
use tokio::sync::Notify;

/// The commands that are being carried out, by their clients.
#[derive(Debug, Default)]
pub(super) struct Cancels(HashMap<ClientRef, Weak<Notify>>);

/// What tells a command that it is cancelled.
#[derive(Debug)]
pub(super) struct Cancel(Arc<Notify>);

/// A command was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cancelled;

impl Cancels {
    /// A client's command begins.
    pub(super) fn begin(&mut self, client: ClientRef) -> Cancel {
        self.0.retain(|_, command| command.strong_count() > 0);
        let command = Arc::<Notify>::default();
        self.0.insert(client, Arc::downgrade(&command));
        Cancel(command)
    }

    /// A client has cancelled its command, which may be done by now.
    pub(super) fn cancel(&mut self, client: ClientRef) {
        if let Some(command) = self.0.get(&client).and_then(Weak::upgrade) {
            command.notify_one();
        }
    }
}

impl Cancel {
    /// What `wait` gives, unless the cancel comes first.
    pub(super) async fn or<T>(&self, wait: impl Future<Output = T>) -> Result<T, Cancelled> {
        tokio::select! {
            done = wait => Ok(done),
            () = self.0.notified() => Err(Cancelled),
        }
    }
}

impl Cancelled {
    /// The error that says so, and what is left of the command.
    pub(super) fn error(self, left: impl Into<String>) -> ErrorResponse {
        ErrorResponse::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request").detail(left)
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use sluice_core::ids::ClientId;

    use super::*;

    const CLIENT: ClientRef = ClientRef { worker: 1, id: ClientId(2), serial: 3 };

    #[tokio::test]
    async fn a_cancel_ends_the_wait_of_its_own_command_only() {
        let mut cancels = Cancels::default();
        let first = cancels.begin(CLIENT);
        assert_eq!(first.or(future::ready(1)).await, Ok(1));
        cancels.cancel(ClientRef { serial: 4, ..CLIENT });
        cancels.cancel(CLIENT);
        assert_eq!(first.or(future::pending::<()>()).await, Err(Cancelled));
        let second = cancels.begin(CLIENT);
        assert_eq!(second.or(future::ready(2)).await, Ok(2));
        drop(second);
        cancels.begin(ClientRef { worker: 0, ..CLIENT });
        assert_eq!(cancels.0.len(), 1, "those that are done are forgotten");
    }
}
